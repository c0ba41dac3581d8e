//! What the command line says about the format of logs.

use super::formats::field::{Encoding, Field, Meaning};
use super::formats::{NamedFormat, columns::Columns, template::Template, template_syntax};

/// Options about the format of logs; by default it is detected.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogOptions {
    /// Format of all lines (`--format`).
    pub format: Option<LogFormat>,
    /// Names of fields (`--field`).
    pub fields: Vec<LogFieldName>,
}

/// Format of the lines of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogFormat(pub(super) FormatArgument);

/// Value of `--format`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FormatArgument {
    /// A format by its name.
    Named(NamedFormat),
    /// A format string.
    Template(Template),
    /// A format string that writes JSON.
    Json(Vec<(String, Meaning)>),
    /// A directive `#Fields:`.
    Columns(Columns),
}

/// Name that a log gives a field.
#[derive(Clone, Debug, PartialEq)]
pub struct LogFieldName {
    pub(super) meaning: Meaning,
    pub(super) name: String,
}

impl std::str::FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Some(format) = NamedFormat::from_name(text) {
            return Ok(Self(FormatArgument::Named(format)));
        }
        let has_any = |marks: &[&str]| marks.iter().any(|mark| text.contains(mark));
        let argument = if text.starts_with("#Fields:") {
            Columns::of_directive(text.as_bytes()).map(FormatArgument::Columns).ok_or("#Fields: names no columns")?
        } else if text.starts_with('{') && text.contains('$') {
            let names = template_syntax::nginx_json(text)?;
            let has = |field| names.iter().any(|(_, meaning)| meaning.field == field);
            for (field, variable) in [(Field::Client, "$remote_addr"), (Field::Status, "$status")] {
                if !(has(field) || field == Field::Client && has(Field::Forwarded)) {
                    return Err(format!("the format lacks a name with the value \"{variable}\""));
                }
            }
            FormatArgument::Json(names)
        } else if text.contains('$') {
            FormatArgument::Template(template_syntax::nginx(text)?)
        } else if has_any(&["%ci", "%[", "%ST", "%HM", "{+Q}"]) {
            FormatArgument::Template(template_syntax::haproxy(text)?)
        } else if text.contains('%') {
            FormatArgument::Template(template_syntax::apache(text)?)
        } else {
            return Err(format!(
                "write a format string of nginx ($remote_addr ...), Apache (%h ...) or HAProxy (%ci ...), a line #Fields:, or \
                 one of {}",
                NamedFormat::names()
            ));
        };
        Ok(Self(argument))
    }
}

impl std::str::FromStr for LogFieldName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (field, name) = text.split_once('=').ok_or("write FIELD=NAME, such as client=remote_addr")?;
        let Some(known) = Field::from_name(field) else {
            let names: Vec<&str> = Field::NAMES.into_iter().map(|(name, _)| name).collect();
            return Err(format!("unknown field {field:?}; use one of {}", names.join(", ")));
        };
        match name {
            "" => Err(format!("{field}= names no field of the log; write its name, such as client=remote_addr")),
            _ => Ok(Self { meaning: Meaning::of(known).encoded(Encoding::Plain), name: name.to_owned() }),
        }
    }
}
