//! A format of another server, with what the first lines of its file show.

use super::client_rule::ClientRule;
use super::columns::Columns;
use super::field::{Encoding, Field, Meaning};
use super::json::JsonNames;
use super::json_dialects::{self, DIALECTS, JsonDialect};
use super::record::{FieldSet, FieldValues};
use super::template::Template;
use super::template_syntax::{self, HAPROXY_HTTPLOG};
use super::value::Value;
use crate::log::{LineError, LogLine};

/// A format with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::log) enum NamedFormat {
    /// Combined, common, or the gateway's own.
    Common,
    /// JSON of a program with fixed names, by its index.
    Dialect(usize),
    /// JSON of nginx or of another program, with names that are guessed or given.
    Json,
    /// HTTP log of HAProxy.
    HaProxy,
    /// Application load balancer of Amazon.
    LoadBalancer,
    /// Classic load balancer of Amazon.
    ClassicLoadBalancer,
    /// W3C extended, of IIS, CloudFront and others.
    W3c,
}

impl NamedFormat {
    /// All formats with their names on the command line.
    const NAMES: [(&'static str, Self); 9] = [
        ("combined", Self::Common),
        ("caddy", Self::Dialect(0)),
        ("traefik", Self::Dialect(1)),
        ("cloudflare", Self::Dialect(2)),
        ("json", Self::Json),
        ("haproxy", Self::HaProxy),
        ("alb", Self::LoadBalancer),
        ("elb", Self::ClassicLoadBalancer),
        ("w3c", Self::W3c),
    ];

    /// Formats of other servers, in the order in which they are tried.
    pub(in crate::log) const FOREIGN: [Self; 8] = [
        Self::Dialect(0),
        Self::Dialect(1),
        Self::Dialect(2),
        Self::Json,
        Self::W3c,
        Self::LoadBalancer,
        Self::ClassicLoadBalancer,
        Self::HaProxy,
    ];

    /// Returns the format with this name.
    pub(in crate::log) fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.into_iter().find(|(known, _)| *known == name).map(|(_, format)| format)
    }

    /// Returns the names of all formats.
    pub(in crate::log) fn names() -> String {
        Self::NAMES.map(|(name, _)| name).join(", ")
    }

    /// Returns true if a line may have this format, by its first byte.
    fn may_begin(self, line: &[u8]) -> bool {
        match self {
            Self::Common => true,
            Self::Dialect(_) | Self::Json => line.starts_with(b"{"),
            Self::W3c => line.first().is_some_and(|byte| *byte == b'#' || byte.is_ascii_digit()),
            Self::HaProxy | Self::LoadBalancer | Self::ClassicLoadBalancer => !line.starts_with(b"{"),
        }
    }
}

/// Format of a file.
#[derive(Clone, Debug)]
pub(in crate::log) struct ForeignFormat {
    name: String,
    reader: LineReader,
    /// Fields that the log has.
    known: FieldSet,
    clients: ClientRule,
    /// Names that the log gives its fields.
    names: Vec<(String, Meaning)>,
    /// First lines that are read.
    pub(in crate::log) read_lines: usize,
    warnings: Vec<String>,
}

/// Reader of the lines of a format.
#[derive(Clone, Debug)]
enum LineReader {
    Json(JsonNames),
    Columns(Columns),
    /// Columns that the log names itself, and may name anew.
    NamedColumns(Option<Columns>, Vec<(String, Meaning)>),
    Template(Template),
}

impl ForeignFormat {
    /// Returns a format with a name, with `fields` by the names of the command line; `None` if no line may have it.
    pub(in crate::log) fn named(format: NamedFormat, fields: &[(String, Meaning)], lines: &[&[u8]]) -> Option<Self> {
        if !lines.iter().any(|line| format.may_begin(line)) {
            return None;
        }
        match format {
            NamedFormat::Common => None,
            NamedFormat::Dialect(index) => {
                let dialect = DIALECTS.get(index).filter(|dialect| dialect.is_of_any(lines))?;
                Some(Self::of_dialect(dialect, fields, lines))
            }
            NamedFormat::Json => {
                let objects: Vec<&[u8]> = lines.iter().copied().filter(|line| line.starts_with(b"{")).collect();
                Some(Self::of_json("JSON with guessed names", json_dialects::guess(&objects), fields, lines))
            }
            NamedFormat::W3c => {
                let reader = LineReader::NamedColumns(None, fields.to_vec());
                Some(Self::new("W3C extended", reader, Vec::new(), lines))
            }
            NamedFormat::LoadBalancer => {
                Some(Self::of_columns("Amazon load balancer", Columns::of_load_balancer(), lines))
            }
            NamedFormat::ClassicLoadBalancer => {
                Some(Self::of_columns("classic Amazon load balancer", Columns::of_classic_load_balancer(), lines))
            }
            NamedFormat::HaProxy => {
                let template = template_syntax::haproxy(HAPROXY_HTTPLOG).expect("the format of HAProxy is valid");
                Some(Self::of_template("HAProxy", template, fields, lines))
            }
        }
    }

    fn of_dialect(dialect: &JsonDialect, fields: &[(String, Meaning)], lines: &[&[u8]]) -> Self {
        let own = own_names(dialect.fields().iter().map(|(name, meaning)| (String::from(*name), *meaning)), fields);
        let names: Vec<(String, Meaning)> = fields.iter().cloned().chain(own).collect();
        let json = dialect.complete(JsonNames::new(names.iter().map(|(name, meaning)| (&**name, *meaning))));
        Self::new(dialect.name, LineReader::Json(json), names, lines)
    }

    /// Returns JSON with names that are guessed, or those of a format string.
    pub(in crate::log) fn of_json(
        name: &str,
        guessed: Vec<(String, Meaning)>,
        fields: &[(String, Meaning)],
        lines: &[&[u8]],
    ) -> Self {
        let mut names = fields.to_vec();
        for (name, meaning) in own_names(guessed.into_iter(), fields) {
            // A second choice may be another address.
            let is_address = matches!(meaning.field, Field::Client | Field::Forwarded);
            if !is_address || !names.iter().any(|(_, other)| other.field == meaning.field) {
                names.push((name, meaning));
            }
        }
        let json = JsonNames::new(names.iter().map(|(name, meaning)| (&**name, *meaning)));
        Self::new(name, LineReader::Json(json), names, lines)
    }

    /// Returns a format of columns that the log does not name.
    pub(in crate::log) fn of_columns(name: &str, columns: Columns, lines: &[&[u8]]) -> Self {
        let names = columns.names().map(|(name, meaning)| (name.to_owned(), meaning)).collect();
        Self::new(name, LineReader::Columns(columns), names, lines)
    }

    /// Returns a W3C format with the columns up to the first directive.
    pub(in crate::log) fn of_w3c(columns: Columns, fields: &[(String, Meaning)], lines: &[&[u8]]) -> Self {
        Self::new("W3C extended", LineReader::NamedColumns(Some(columns), fields.to_vec()), Vec::new(), lines)
    }

    /// Returns the format of a format string.
    pub(in crate::log) fn of_template(
        name: &str,
        mut template: Template,
        fields: &[(String, Meaning)],
        lines: &[&[u8]],
    ) -> Self {
        for (name, meaning) in fields {
            let number: Option<usize> = name.strip_prefix("capture.").and_then(|number| number.parse().ok());
            if let Some(index) = number.and_then(|number| number.checked_sub(1)) {
                template.set_capture(index, meaning.encoded(Encoding::Hash));
            }
        }
        let captures = fields.iter().filter(|(name, _)| name.starts_with("capture.")).cloned();
        let names: Vec<(String, Meaning)> =
            template.names().map(|(name, meaning)| (name.to_owned(), meaning)).chain(captures).collect();
        Self::new(name, LineReader::Template(template), names, lines)
    }

    fn new(name: &str, reader: LineReader, names: Vec<(String, Meaning)>, lines: &[&[u8]]) -> Self {
        let mut format = Self {
            name: name.to_owned(),
            reader,
            known: FieldSet::default(),
            clients: ClientRule::default(),
            names,
            read_lines: 0,
            warnings: Vec::new(),
        };
        let mut detecting = format.clone();
        let values: Vec<FieldValues<'_>> = lines
            .iter()
            .filter_map(|line| if detecting.is_directive(line) { None } else { detecting.read_values(line).ok() })
            .collect();
        let addresses: Vec<_> =
            values.iter().map(|it| (it.decoded(Field::Client), it.decoded(Field::Forwarded))).collect();
        format.clients =
            ClientRule::detect(addresses.iter().map(|(peer, forwarded)| (peer.as_deref(), forwarded.as_deref())));
        format.known = match &format.reader {
            LineReader::Json(_) => {
                values.iter().fold(FieldSet::default(), |known, values| known.union(values.fields()))
            }
            LineReader::Template(template) => template.fields(),
            LineReader::Columns(columns) | LineReader::NamedColumns(Some(columns), _) => columns.fields(),
            LineReader::NamedColumns(None, _) => detecting.known,
        };
        if let LineReader::NamedColumns(Some(columns), _) = &detecting.reader {
            format.names = columns.names().map(|(name, meaning)| (name.to_owned(), meaning)).collect();
        }
        format.warnings.extend(format.clients.warning().map(str::to_owned));
        if values.iter().any(|it| it.value(Field::Time).is_some_and(Value::is_time_without_zone)) {
            format.warnings.push("times have no zone and are read as UTC".to_owned());
        }
        format.read_lines =
            values.into_iter().map(|it| it.into_line(format.known, &format.clients)).filter(Result::is_ok).count();
        format
    }

    /// Reads a line; `None` if it is none of a request by its format. `line` is valid UTF-8 if the format is JSON.
    pub(in crate::log) fn read<'a>(&mut self, line: &'a [u8]) -> Result<Option<(LogLine<'a>, i64)>, LineError> {
        if line.trim_ascii().is_empty() || self.is_directive(line) {
            return Ok(None);
        }
        self.read_values(line)?.into_line(self.known, &self.clients).map(Some)
    }

    /// Returns true if the reader needs lines of valid UTF-8.
    pub(in crate::log) fn is_json(&self) -> bool {
        matches!(self.reader, LineReader::Json(_))
    }

    /// Returns true for a directive of the W3C, and takes the columns that it names.
    fn is_directive(&mut self, line: &[u8]) -> bool {
        let LineReader::NamedColumns(current, fields) = &mut self.reader else { return false };
        if !line.starts_with(b"#") {
            return false;
        }
        if let Some(mut columns) = Columns::of_directive(line) {
            for (name, meaning) in fields {
                columns.set_meaning(name, *meaning);
            }
            self.known = columns.fields();
            *current = Some(columns);
        }
        true
    }

    fn read_values<'a>(&self, line: &'a [u8]) -> Result<FieldValues<'a>, LineError> {
        match &self.reader {
            LineReader::Json(names) => match line.starts_with(b"{") {
                true => names.read(line),
                false => Err(LineError::OtherFormat),
            },
            LineReader::Columns(columns) | LineReader::NamedColumns(Some(columns), _) => columns.read(line),
            LineReader::NamedColumns(None, _) => Err(LineError::NoColumnNames),
            LineReader::Template(template) => template.read(line),
        }
    }

    /// Returns true if lines have the field `name` of the command line.
    pub(in crate::log) fn uses(&self, name: &str, meaning: Meaning) -> bool {
        self.known.contains(meaning.field)
            && self.names.iter().any(|(known, other)| known == name && other.field == meaning.field)
    }

    /// Returns the format and its fields, for a report.
    pub(in crate::log) fn describe(&self) -> String {
        let fields = Field::NAMES.into_iter().filter_map(|(_, field)| {
            let mut names = self.names.iter().filter(|(_, meaning)| meaning.field == field).map(|(name, _)| &**name);
            let is_used = self.known.contains(field);
            names.next().filter(|_| is_used).map(|name| format!("{}={name}", field.name()))
        });
        format!("{}: {}", self.name, fields.collect::<Vec<_>>().join(", "))
    }

    /// Returns the columns of the client, for a report.
    pub(in crate::log) fn describe_client(&self) -> String {
        let name = |field| {
            let name = self.names.iter().find(|(_, meaning)| meaning.field == field);
            name.map_or("(no field)", |(name, _)| &**name)
        };
        self.clients.describe(name(Field::Client), name(Field::Forwarded))
    }

    /// Returns what is doubtful about the log.
    pub(in crate::log) fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Returns the names of a format whose fields the command line does not name. A client that is named there is behind no
/// other column.
fn own_names(
    names: impl Iterator<Item = (String, Meaning)>,
    fields: &[(String, Meaning)],
) -> impl Iterator<Item = (String, Meaning)> {
    names.filter(|(_, meaning)| {
        let is_named = |field| fields.iter().any(|(_, named)| named.field == field);
        !(is_named(meaning.field) || meaning.field == Field::Forwarded && is_named(Field::Client))
    })
}
