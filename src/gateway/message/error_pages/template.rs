//! Templates of pages: text with placeholders, parsed once. A response shares the text and has only the values for itself.

use crate::gateway::message::html::Escaped;
use crate::gateway::message::json::JsonText;
use crate::gateway::message::scratch::ScratchBuffer;
use bytes::Bytes;
use serde::de::IgnoredAny;
use std::collections::VecDeque;
use std::fmt::{self, Display, Write};
use tidegate_config::did_you_mean;

/// Most placeholders of a page: a response has a part for each, and memory for each part.
const MAX_PLACEHOLDERS: usize = 64;

const OPENING: &str = "{{";
const CLOSING: &str = "}}";

/// A parsed page.
#[derive(Debug)]
pub(in crate::gateway) struct PageTemplate {
    markup: Markup,
    parts: Vec<TemplatePart>,
}

/// Language of a page, by which values are escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Markup {
    Html,
    Json,
}

#[derive(Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(Bytes),
    Value(Placeholder),
    /// A value outside of the strings of JSON: `null` if it is empty.
    Number(Placeholder),
}

/// A value that a page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Placeholder {
    /// Status code.
    Status,
    /// Name of the status.
    Title,
    /// One sentence.
    Detail,
    /// Seconds until a retry makes sense; empty if unknown.
    RetryAfter,
    /// The same in words.
    Wait,
    /// Id of the decision.
    Decision,
}

/// Error of a template.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TemplateError {
    /// Offset of the placeholder or of invalid JSON, in bytes.
    pub(super) offset: usize,
    markup: Markup,
    kind: TemplateErrorKind,
}

#[derive(Debug, PartialEq, Eq)]
enum TemplateErrorKind {
    Unclosed,
    Unknown(String),
    TooMany,
    NotJson(String),
}

impl TemplateError {
    fn of_json(text: &str, error: &serde_json::Error) -> Self {
        let line_start: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
        let offset = (line_start + error.column().saturating_sub(1)).min(text.len());
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default().to_owned();
        Self { offset, markup: Markup::Json, kind: TemplateErrorKind::NotJson(message) }
    }
}

impl Placeholder {
    /// Returns true for values that are numbers.
    fn is_number(self) -> bool {
        matches!(self, Self::Status | Self::RetryAfter)
    }

    const ALL: [(&'static str, Self); 6] = [
        ("status", Self::Status),
        ("title", Self::Title),
        ("detail", Self::Detail),
        ("retry_after", Self::RetryAfter),
        ("wait", Self::Wait),
        ("decision", Self::Decision),
    ];
}

impl PageTemplate {
    /// Parses a page. JSON has to be valid with any values.
    pub(super) fn parse(text: &str, markup: Markup) -> Result<Self, TemplateError> {
        let (mut parts, mut offset) = (Vec::new(), 0);
        let mut placeholders = 0;
        // Documents of the same length: with values in place of the placeholders, and with null in place of an unknown time.
        let mut sample = String::with_capacity(text.len());
        let mut without_time = String::new();
        while let Some(start) = text[offset..].find(OPENING).map(|start| offset + start) {
            let error = |kind| TemplateError { offset: start, markup, kind };
            push_text(&mut parts, &text[offset..start]);
            sample.push_str(&text[offset..start]);
            without_time.push_str(&text[offset..start]);
            let inside = start + OPENING.len();
            // A name has no line break: the braces that close a later placeholder do not close this one.
            let line = text[inside..].lines().next().unwrap_or_default();
            let end = line.find(CLOSING).ok_or_else(|| error(TemplateErrorKind::Unclosed))?;
            let name = line[..end].trim();
            let known = Placeholder::ALL.iter().find(|(known, _)| *known == name);
            let (_, placeholder) = known.ok_or_else(|| error(TemplateErrorKind::Unknown(name.to_owned())))?;
            placeholders += 1;
            if placeholders > MAX_PLACEHOLDERS {
                return Err(error(TemplateErrorKind::TooMany));
            }
            offset = inside + end + CLOSING.len();
            let is_number = markup == Markup::Json && placeholder.is_number() && !ends_in_string(&sample);
            parts.push(if is_number { TemplatePart::Number(*placeholder) } else { TemplatePart::Value(*placeholder) });
            let length = offset - start;
            let value = (if is_number { "1" } else { "x" }).repeat(length);
            match is_number && *placeholder == Placeholder::RetryAfter {
                true => _ = write!(without_time, "{:length$}", "null"),
                false => without_time.push_str(&value),
            }
            sample.push_str(&value);
        }
        push_text(&mut parts, &text[offset..]);
        sample.push_str(&text[offset..]);
        without_time.push_str(&text[offset..]);
        if markup == Markup::Json {
            for sample in [&sample, &without_time] {
                serde_json::from_str::<IgnoredAny>(sample).map_err(|error| TemplateError::of_json(sample, &error))?;
            }
        }
        Ok(Self { markup, parts })
    }

    /// Returns the page with the values that `value` returns, escaped.
    pub(in crate::gateway) fn render<T: Display>(
        &self,
        scratch: &mut ScratchBuffer,
        value: impl Fn(Placeholder) -> T,
    ) -> VecDeque<Bytes> {
        let mut render = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => Some(text.clone()),
            TemplatePart::Value(placeholder) => {
                let value = value(*placeholder).to_string();
                scratch.bytes(|text| match self.markup {
                    Markup::Html => write!(text, "{}", Escaped(&value)),
                    Markup::Json => write!(text, "{}", JsonText(&value)),
                })
            }
            TemplatePart::Number(placeholder) => scratch.bytes(|text| match value(*placeholder).to_string().as_str() {
                "" => text.write_str("null"),
                number => text.write_str(number),
            }),
        };
        self.parts.iter().filter_map(&mut render).filter(|part| !part.is_empty()).collect()
    }
}

/// Returns true if a string of JSON is open at the end of `text`.
fn ends_in_string(text: &str) -> bool {
    let (mut is_open, mut is_escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            b'"' if !is_escaped => is_open = !is_open,
            _ => {}
        }
        is_escaped = byte == b'\\' && !is_escaped;
    }
    is_open
}

fn push_text(parts: &mut Vec<TemplatePart>, text: &str) {
    if !text.is_empty() {
        parts.push(TemplatePart::Text(Bytes::copy_from_slice(text.as_bytes())));
    }
}

impl Display for TemplateError {
    /// Writes what was found and what would do.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Placeholder::ALL.map(|(name, _)| name);
        let braces = match self.markup {
            Markup::Html => "&#123;{",
            Markup::Json => "\\u007b{",
        };
        match &self.kind {
            TemplateErrorKind::Unclosed => {
                write!(
                    out,
                    "found {{{{ without }}}} in its line; close the placeholder, or write {braces} for two braces"
                )
            }
            TemplateErrorKind::Unknown(name) => {
                let suggestion = did_you_mean(name, names);
                write!(
                    out,
                    "found the unknown placeholder {:?}{suggestion}; known: {}; write {braces} for two braces",
                    name,
                    names.join(", ")
                )
            }
            TemplateErrorKind::TooMany => write!(out, "found more than {MAX_PLACEHOLDERS} placeholders; remove some"),
            TemplateErrorKind::NotJson(error) => write!(
                out,
                "found no JSON: {error}; write placeholders in strings, only status and retry_after also as numbers"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse_error(text: &str) -> (usize, String) {
        let error = PageTemplate::parse(text, Markup::Html).expect_err("invalid page");
        (error.offset, error.to_string())
    }

    fn render(text: &str, value: impl Fn(Placeholder) -> &'static str) -> String {
        render_in(Markup::Html, text, value)
    }

    fn render_in(markup: Markup, text: &str, value: impl Fn(Placeholder) -> &'static str) -> String {
        let page = PageTemplate::parse(text, markup).expect("valid page");
        let parts = page.render(&mut ScratchBuffer::new(), value);
        String::from_utf8(parts.into_iter().flatten().collect()).expect("UTF-8")
    }

    #[test]
    fn values_are_escaped_and_text_is_not() {
        let value = |placeholder| match placeholder {
            Placeholder::Detail => "<b> & \"'",
            Placeholder::Wait => "",
            _ => "1",
        };
        assert_eq!(
            render("<p>{{detail}}</p>{{ status }}{{wait}} }} {é}", value),
            "<p>&lt;b&gt; &amp; &quot;&#39;</p>1 }} {é}"
        );
    }

    #[test]
    fn unknown_and_unclosed_placeholders_are_found() {
        let (offset, message) = parse_error("a{{status}}\n {{ statsu }}");
        assert_eq!(offset, 13);
        assert!(
            message.starts_with("found the unknown placeholder \"statsu\" (did you mean \"status\"?); known: status, ")
        );
        assert_eq!(parse_error("{{status\n}}").0, 0, "a name has no line break");
        assert_eq!(parse_error("{{{status}}").0, 0);
        assert!(parse_error("{{}}").1.starts_with("found the unknown placeholder \"\""));
        let many = "{{status}}".repeat(MAX_PLACEHOLDERS + 1);
        assert_eq!(parse_error(&many).1, "found more than 64 placeholders; remove some");
    }

    #[test]
    fn values_in_json_are_strings_or_numbers() {
        let value = |placeholder| match placeholder {
            Placeholder::Detail => "\"quoted\" \\ \n",
            Placeholder::RetryAfter => "",
            _ => "429",
        };
        let text = r#"{"a\"b": "{{detail}}", "code": {{ status }}, "text": "{{status}}{{retry_after}}", "wait": {{retry_after}}}"#;
        let json: serde_json::Value = serde_json::from_str(&render_in(Markup::Json, text, value)).expect("valid JSON");
        let expected = serde_json::json!({ "a\"b": "\"quoted\" \\ \n", "code": 429, "text": "429", "wait": null });
        assert_eq!(json, expected);
    }

    #[test]
    fn invalid_json_is_found_with_its_place() {
        let error = |text: &str| {
            let error = PageTemplate::parse(text, Markup::Json).expect_err("invalid page");
            (error.offset, error.to_string())
        };
        let hint = "; write placeholders in strings, only status and retry_after also as numbers";
        assert_eq!(error("{\n\"a\": {{detail}}}"), (7, format!("found no JSON: expected value{hint}")));
        assert_eq!(error("{\"a\": 1").1, format!("found no JSON: EOF while parsing an object{hint}"));
        assert_eq!(error("{\"a\": 1} x").0, 9);
        assert_eq!(error("{\"a\": \"\\{{status}}\"}").1, format!("found no JSON: invalid escape{hint}"));
        for number in ["-{{retry_after}}", "5{{retry_after}}", "{{retry_after}}.5", "{{retry_after}}{{retry_after}}"] {
            let message = error(&format!("{{\"a\": {number}}}")).1;
            assert!(message.ends_with(hint), "the time may be unknown: {number} {message}");
        }
        assert!(error("{\"a\": \"{{b}}\"}").1.ends_with("write \\u007b{ for two braces"));
    }

    proptest! {
        #[test]
        fn a_json_page_is_valid_with_every_value(
            text in "\\{(\"[a-z\\\\\"{]{0,4}\": ?(\"[x\\\\]?\\{\\{detail\\}\\}\\\\?\"|\\{\\{status\\}\\}|[-5]?\\{\\{retry_after\\}\\}(\\.5)?|\\{\\{wait\\}\\}),?){0,3}\\}",
            detail in any::<String>(), number in proptest::option::of(any::<u32>()),
        ) {
            if let Ok(page) = PageTemplate::parse(&text, Markup::Json) {
                let number = number.map_or(String::new(), |number| number.to_string());
                let value = |placeholder: Placeholder| match placeholder {
                    Placeholder::Status => "429".to_owned(),
                    Placeholder::RetryAfter => number.clone(),
                    _ => detail.clone(),
                };
                let parts = page.render(&mut ScratchBuffer::new(), value);
                let text: Vec<u8> = parts.into_iter().flatten().collect();
                prop_assert!(serde_json::from_slice::<IgnoredAny>(&text).is_ok(), "{}", String::from_utf8_lossy(&text));
            }
        }

        #[test]
        fn text_without_placeholders_stays_as_it_is(text in "[^{]{0,40}(\\{[^{]{1,9}){0,3}") {
            prop_assert_eq!(render(&text, |_| "x"), text);
        }

        #[test]
        fn arbitrary_text_never_panics(text in "[{}a-z_ \\n\u{e9}]{0,40}") {
            let _ = PageTemplate::parse(&text, Markup::Html);
        }
    }
}
