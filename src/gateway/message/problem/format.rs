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
        let mut parts = range.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let best = match parts.next() {
            Some(name) if name.eq_ignore_ascii_case(b"text/html") => &mut html,
            Some(name) if name.eq_ignore_ascii_case(b"application/problem+json") => &mut problem,
            Some(name) if name.eq_ignore_ascii_case(b"application/json") => &mut json,
            _ => continue,
        };
        let weight = match parts.find_map(|part| part.strip_prefix(b"q=")) {
            Some(weight) => std::str::from_utf8(weight).ok().and_then(|weight| weight.parse().ok()),
            None => Some(1.0),
        };
        *best = weight.map(|weight: f32| best.map_or(weight, |best: f32| best.max(weight))).or(*best);
    }
    let html = html.unwrap_or(0.0);
    html > 0.0 && html >= problem.or(json).unwrap_or(0.0)
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
        assert!(!prefers_html(b"\xff"));
        assert!(super::prefers_html([&b"application/json;q=0.5"[..], b"", b",text/html,"].into_iter()));
    }
}
