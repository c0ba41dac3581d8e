//! Compression of responses: which ones, and in which content coding (RFC 9110 sections 8.4.1 and 12.5.3).

use super::cache::FieldLines;

/// Content coding that the gateway applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// Zstandard (RFC 8878).
    Zstd,
    /// Brotli (RFC 7932).
    Brotli,
    /// gzip (RFC 1952).
    Gzip,
}

impl Coding {
    /// Returns the name in `Content-Encoding`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }
}

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

    /// Returns the coding for a client: of those with its greatest weight, the preferred one. `None` if it accepts none of
    /// them, or prefers none.
    pub fn choose(&self, request: &impl FieldLines) -> Option<Coding> {
        let (mut weights, mut any, mut identity) = ([None; 3], None, 0);
        for member in request.members("accept-encoding") {
            let mut parts = member.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
            let name = parts.next().unwrap_or_default();
            let weight = parts.find_map(thousandths).unwrap_or(1000);
            match name {
                b"*" => any = Some(weight),
                _ if name.eq_ignore_ascii_case(b"identity") => identity = weight,
                _ => {
                    let name = if name.eq_ignore_ascii_case(b"x-gzip") { b"gzip" } else { name };
                    let coding =
                        self.codings.iter().position(|coding| name.eq_ignore_ascii_case(coding.name().as_bytes()));
                    coding.into_iter().for_each(|index| weights[index] = Some(weight));
                }
            }
        }
        let weight = |index: usize| weights[index].or(any).unwrap_or(0);
        let best = (0..self.codings.len()).rev().max_by_key(|&index| weight(index))?;
        (weight(best) > 0 && weight(best) >= identity).then(|| self.codings[best])
    }
}

/// Returns the weight that a parameter is, in thousandths.
fn thousandths(parameter: &[u8]) -> Option<u32> {
    let value = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="))?;
    let weight: f32 = std::str::from_utf8(value).ok()?.trim().parse().ok()?;
    Some((weight.clamp(0.0, 1.0) * 1000.0) as u32)
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
    use proptest::prelude::*;

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
    fn client_gets_the_coding_that_it_prefers() {
        for (accepted, expected) in [
            ("gzip, deflate, br, zstd", Some(Coding::Zstd)),
            ("gzip, br", Some(Coding::Brotli)),
            ("GZIP", Some(Coding::Gzip)),
            ("x-gzip", Some(Coding::Gzip)),
            ("gzip;q=1.0, br;q=0.8", Some(Coding::Gzip)),
            ("gzip; q=0.5 , identity; q=0.8", None),
            ("gzip;q=0.5, identity;q=0.5", Some(Coding::Gzip)),
            ("*", Some(Coding::Zstd)),
            ("zstd;q=0, *;q=0.1", Some(Coding::Brotli)),
            ("gzip;q=0", None),
            ("gzip;q=0.000", None),
            ("identity", None),
            ("deflate", None),
            ("", None),
            ("gzip;q=nonsense", Some(Coding::Gzip)),
        ] {
            assert_eq!(rules().choose(&[("accept-encoding", accepted)]), expected, "{accepted}");
        }
        assert_eq!(rules().choose(&[("accept", "gzip")]), None, "without the field");
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

    proptest! {
        #[test]
        fn chosen_coding_is_one_that_the_client_names(accepted in "[a-z0-9*;=., -]{0,60}") {
            if let Some(coding) = rules().choose(&[("accept-encoding", accepted.as_str())]) {
                prop_assert!(accepted.contains('*') || accepted.contains(coding.name()));
            }
        }
    }
}
