//! Compression of responses: which ones, and in which of the content codings that a client accepts.

use tidegate_http_cache::FieldLines;
use tidegate_http_cache::coding::{self, Coding};

/// Rules of compression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressionRules {
    /// Codings, the preferred one first.
    pub codings: Vec<Coding>,
    /// Smallest body that is compressed, in bytes.
    pub min_size: u64,
    /// Media types that are compressed.
    pub types: Vec<MediaTypePattern>,
}

/// Pattern of a media type, in lower case: a star is any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaTypePattern {
    beginning: String,
    /// Text after the star; `None` without one.
    end: Option<String>,
}

/// Fields of responses that stay as they are: they have a coding, are parts, or are signed by a digest.
const UNCHANGED: [&str; 6] =
    ["content-encoding", "content-range", "content-digest", "repr-digest", "digest", "content-md5"];

/// Type whose events are sent one by one.
const EVENT_STREAM: &str = "text/event-stream";

impl CompressionRules {
    /// Returns true if a response may be compressed. `length` is that of its body, if it is known.
    pub fn includes(&self, status: u16, response: &impl FieldLines, length: Option<u64>) -> bool {
        let has_whole_body = status >= 200 && !matches!(status, 204..=206 | 304);
        has_whole_body
            && length.is_none_or(|length| length >= self.min_size)
            && response.first("content-type").is_some_and(|value| self.includes_type(value))
            && !UNCHANGED.iter().any(|name| response.has(name))
            && !response.members("cache-control").any(|member| member.eq_ignore_ascii_case(b"no-transform"))
    }

    fn includes_type(&self, content_type: &[u8]) -> bool {
        let media_type = content_type.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
        let Ok(media_type) = std::str::from_utf8(media_type).map(str::to_ascii_lowercase) else { return false };
        self.types.iter().any(|pattern| pattern.matches(&media_type))
    }

    /// Returns the coding for a client ([`coding::choose`]).
    pub fn choose(&self, request: &impl FieldLines) -> Option<Coding> {
        coding::choose(&self.codings, request)
    }
}

impl MediaTypePattern {
    /// Parses a pattern, such as `text/*` or `application/json`. `None` unless it has a slash, at most one star, and
    /// only characters of a media type.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+*/".contains(&byte);
        let (kind, subtype) = text.split_once('/')?;
        if kind.is_empty() || kind == "*" || subtype.is_empty() || subtype.contains('/') || !text.bytes().all(is_valid)
        {
            return None;
        }
        let mut parts = text.splitn(3, '*').map(str::to_owned);
        let pattern = Self { beginning: parts.next()?, end: parts.next() };
        parts.next().is_none().then_some(pattern)
    }

    /// Returns true if the pattern includes `media_type`, in lower case. A star does not include streams of events.
    fn matches(&self, media_type: &str) -> bool {
        let Some(rest) = media_type.strip_prefix(self.beginning.as_str()) else { return false };
        match &self.end {
            None => rest.is_empty(),
            Some(end) => rest.ends_with(end.as_str()) && media_type != EVENT_STREAM,
        }
    }

    /// Returns the pattern as it is written.
    pub fn text(&self) -> String {
        match &self.end {
            None => self.beginning.clone(),
            Some(end) => format!("{}*{end}", self.beginning),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> CompressionRules {
        CompressionRules {
            codings: vec![Coding::Zstd, Coding::Brotli, Coding::Gzip],
            min_size: 1000,
            types: ["text/*", "application/json", "application/*+json"]
                .iter()
                .map(|text| MediaTypePattern::parse(text).expect("a pattern"))
                .collect(),
        }
    }

    #[test]
    fn responses_that_must_not_change_stay() {
        let page = ("content-type", "text/html; charset=utf-8");
        let includes = |status, fields: &[(&str, &str)], length| rules().includes(status, &fields, length);
        assert!(includes(200, &[page], Some(1000)) && includes(200, &[page], None) && includes(404, &[page], None));
        assert!(!includes(200, &[page], Some(999)));
        for status in [100, 101, 204, 205, 206, 304] {
            assert!(!includes(status, &[page], None), "{status}");
        }
        for field in [
            ("content-encoding", "br"),
            ("content-range", "bytes 0-1/2"),
            ("repr-digest", "sha-256=:AAAA:"),
            ("cache-control", "public, No-Transform"),
        ] {
            assert!(!includes(200, &[page, field], None), "{field:?}");
        }
    }

    #[test]
    fn types_are_those_of_the_patterns() {
        let includes = |value: &str| rules().includes(200, &[("content-type", value)], None);
        assert!(includes("TEXT/CSS") && includes("application/json;charset=utf-8") && includes("application/ld+json"));
        assert!(!includes("text/event-stream") && !includes("image/png") && !includes("application/jsonx"));
        assert!(!includes("") && !rules().includes(200, &[("server", "x")], None));
        for invalid in ["text", "*", "*/*", "/x", "text/", "a/b/c", "text/*x*", "text/ html", "text/é"] {
            assert_eq!(MediaTypePattern::parse(invalid), None, "{invalid}");
        }
    }
}
