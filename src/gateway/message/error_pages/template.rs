//! Templates of pages: text with placeholders, parsed once. A response shares the text and has only the values for itself.

use crate::gateway::message::html::Escaped;
use crate::gateway::message::scratch::ScratchBuffer;
use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt::{self, Display, Write};
use tidegate_config::did_you_mean;

/// Most placeholders of a page: a response has a part for each, and memory for each part.
const MAX_PLACEHOLDERS: usize = 64;

const OPENING: &str = "{{";
const CLOSING: &str = "}}";

/// A parsed page.
#[derive(Debug)]
pub(in crate::gateway) struct PageTemplate(Vec<TemplatePart>);

#[derive(Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(Bytes),
    Value(Placeholder),
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
    /// Offset of the placeholder, in bytes.
    pub(super) offset: usize,
    kind: TemplateErrorKind,
}

#[derive(Debug, PartialEq, Eq)]
enum TemplateErrorKind {
    Unclosed,
    Unknown(String),
    TooMany,
}

impl Placeholder {
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
    /// Parses a page.
    pub(super) fn parse(text: &str) -> Result<Self, TemplateError> {
        let (mut parts, mut offset) = (Vec::new(), 0);
        let mut placeholders = 0;
        while let Some(start) = text[offset..].find(OPENING).map(|start| offset + start) {
            let error = |kind| TemplateError { offset: start, kind };
            push_text(&mut parts, &text[offset..start]);
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
            parts.push(TemplatePart::Value(*placeholder));
            offset = inside + end + CLOSING.len();
        }
        push_text(&mut parts, &text[offset..]);
        Ok(Self(parts))
    }

    /// Returns the page with the values that `value` returns, escaped for HTML.
    pub(in crate::gateway) fn render<T: Display>(
        &self,
        scratch: &mut ScratchBuffer,
        value: impl Fn(Placeholder) -> T,
    ) -> VecDeque<Bytes> {
        let mut render = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => Some(text.clone()),
            TemplatePart::Value(placeholder) => {
                scratch.bytes(|text| write!(text, "{}", Escaped(&value(*placeholder).to_string())))
            }
        };
        self.0.iter().filter_map(&mut render).filter(|part| !part.is_empty()).collect()
    }
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
        match &self.kind {
            TemplateErrorKind::Unclosed => {
                out.write_str("found {{ without }} in its line; close the placeholder, or write &#123;{ for two braces")
            }
            TemplateErrorKind::Unknown(name) => {
                let suggestion = did_you_mean(name, names);
                write!(
                    out,
                    "found the unknown placeholder {:?}{suggestion}; known: {}; write &#123;{{ for two braces",
                    name,
                    names.join(", ")
                )
            }
            TemplateErrorKind::TooMany => write!(out, "found more than {MAX_PLACEHOLDERS} placeholders; remove some"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse_error(text: &str) -> (usize, String) {
        let error = PageTemplate::parse(text).expect_err("invalid page");
        (error.offset, error.to_string())
    }

    fn render(text: &str, value: impl Fn(Placeholder) -> &'static str) -> String {
        let page = PageTemplate::parse(text).expect("valid page");
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

    proptest! {
        #[test]
        fn text_without_placeholders_stays_as_it_is(text in "[^{]{0,40}(\\{[^{]{1,9}){0,3}") {
            prop_assert_eq!(render(&text, |_| "x"), text);
        }

        #[test]
        fn arbitrary_text_never_panics(text in "[{}a-z_ \\n\u{e9}]{0,40}") {
            let _ = PageTemplate::parse(&text);
        }
    }
}
