//! Form of a body: how JSON documents stand in it.

/// How JSON documents stand in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BodyForm {
    /// One document.
    Json,
    /// A document in each event of a `text/event-stream` (WHATWG HTML, section 9.2).
    EventStream,
    /// A document in each line.
    Lines,
}

impl BodyForm {
    /// Returns the form of a body with this `Content-Type`; `None` if costs are not looked for in such bodies.
    pub fn from_content_type(content_type: &[u8]) -> Option<Self> {
        let media_type = content_type.split(|&byte| byte == b';').next()?.trim_ascii();
        let is = |name: &str| media_type.eq_ignore_ascii_case(name.as_bytes());
        let has_json_suffix = || {
            let suffix = media_type.last_chunk::<5>().is_some_and(|end| end.eq_ignore_ascii_case(b"+json"));
            suffix && media_type.contains(&b'/')
        };
        if is("text/event-stream") {
            Some(Self::EventStream)
        } else if is("application/x-ndjson") || is("application/jsonl") || is("application/json-lines") {
            Some(Self::Lines)
        } else if is("application/json") || has_json_suffix() {
            Some(Self::Json)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_type_decides_the_form() {
        for (content_type, expected) in [
            ("application/json", Some(BodyForm::Json)),
            ("Application/JSON; charset=utf-8", Some(BodyForm::Json)),
            (" application/problem+json ;x=y", Some(BodyForm::Json)),
            ("application/vnd.api+JSON", Some(BodyForm::Json)),
            ("text/event-stream; charset=utf-8", Some(BodyForm::EventStream)),
            ("TEXT/EVENT-STREAM", Some(BodyForm::EventStream)),
            ("application/x-ndjson", Some(BodyForm::Lines)),
            ("application/jsonl", Some(BodyForm::Lines)),
            ("application/json-lines;", Some(BodyForm::Lines)),
            ("application/json-seq", None),
            ("text/html", None),
            ("text/html; x=application/json", None),
            ("+json", None),
            ("", None),
        ] {
            assert_eq!(BodyForm::from_content_type(content_type.as_bytes()), expected, "{content_type}");
        }
    }
}
