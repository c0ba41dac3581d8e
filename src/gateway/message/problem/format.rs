//! The response format that a client prefers: JSON or HTML.

use tidegate_http1::{Name, RequestHead, list};

/// Response format of a client. Determined only if the gateway itself responds.
#[derive(Clone, Copy)]
pub(in crate::gateway) struct ResponseFormat {
    pub(in crate::gateway) prefers_html: bool,
}

impl ResponseFormat {
    /// Format for a request that could not be parsed.
    pub(in crate::gateway) const UNKNOWN: Self = Self { prefers_html: false };

    /// Returns the format that the request prefers.
    pub(in crate::gateway) fn from_head(head: &RequestHead) -> Self {
        Self { prefers_html: prefers_html(head.fields.all(Name::Accept)) }
    }
}

/// Returns true if HTML is accepted with the highest weight of all types that the lines of `Accept` name.
fn prefers_html<'a>(accept: impl Iterator<Item = &'a [u8]>) -> bool {
    let [mut html, mut problem, mut json] = [None; 3];
    // The usual value of programs names none.
    for range in accept.filter(|line| *line != b"*/*").flat_map(list) {
        let best = match range {
            range if is_of_type(range, b"text/html") => &mut html,
            range if is_of_type(range, b"application/problem+json") => &mut problem,
            range if is_of_type(range, b"application/json") => &mut json,
            _ => continue,
        };
        let mut parameters = range.split(|&byte| byte == b';').skip(1).map(<[u8]>::trim_ascii);
        let weight = match parameters.find_map(|parameter| parameter.strip_prefix(b"q=")) {
            Some(weight) => std::str::from_utf8(weight).ok().and_then(|weight| weight.parse().ok()),
            None => Some(1.0),
        };
        *best = weight.map(|weight: f32| best.map_or(weight, |best: f32| best.max(weight))).or(*best);
    }
    let html = html.unwrap_or(0.0);
    html > 0.0 && html >= problem.or(json).unwrap_or(0.0)
}

/// Returns true if `range` is `media_type`, with or without parameters. Most ranges differ from it within a few bytes.
fn is_of_type(range: &[u8], media_type: &[u8]) -> bool {
    let Some((name, rest)) = range.split_at_checked(media_type.len()) else { return false };
    name.eq_ignore_ascii_case(media_type) && matches!(rest.trim_ascii_start().first(), None | Some(b';'))
}

#[cfg(test)]
mod tests {
    fn prefers_html(accept: &[u8]) -> bool {
        super::prefers_html([accept].into_iter())
    }

    #[test]
    fn browsers_get_html_and_programs_get_json() {
        assert!(prefers_html(b"text/html,application/xhtml+xml,*/*;q=0.8"));
        assert!(!prefers_html(b"*/*"));
        assert!(!prefers_html(b"application/json, text/html;q=0.5"));
        assert!(!prefers_html(b"text/html;q=0"));
        assert!(prefers_html(b"application/json;q=0.4, Text/HTML; level=1; q=0.5"));
        assert!(!prefers_html(b"application/problem+json, application/json;q=0.1, text/html;q=0.5"));
        assert!(prefers_html(b"text/html;q=much, text/html;q=0.1"), "an invalid weight is ignored");
        assert!(!prefers_html(b"text/html5, text/htm, text/html/x, text/html x"));
        assert!(prefers_html(b"text/html ;q=0.1"));
        assert!(!prefers_html(b"\xff"));
        assert!(super::prefers_html([&b"application/json;q=0.5"[..], b"", b",text/html,"].into_iter()));
    }
}
