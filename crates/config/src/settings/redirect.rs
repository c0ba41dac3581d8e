//! Redirects of a route.

use http::{Method, StatusCode};
use std::fmt::{self, Write};
use tidegate_policy::exempt::is_read_method;

/// Redirect of all requests of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// Status; `None` is that of a permanent redirect.
    pub status: Option<StatusCode>,
    /// Absolute path, or http or https URL, without the placeholder of the rest.
    pub target: String,
    /// Number of segments of the request path before the rest that is appended; `None` if none is.
    pub rest_after: Option<usize>,
}

impl Redirect {
    /// Placeholder of the rest, at the end of a target.
    pub const REST: &str = "{rest}";

    /// Returns the status of the response to `method`.
    pub fn status_for(&self, method: &Method) -> StatusCode {
        self.status.unwrap_or_else(|| Self::permanent_status(method))
    }

    /// Returns the status of a permanent redirect. Every client knows 301; only 308 keeps method and body.
    pub fn permanent_status(method: &Method) -> StatusCode {
        match is_read_method(method) {
            true => StatusCode::MOVED_PERMANENTLY,
            false => StatusCode::PERMANENT_REDIRECT,
        }
    }

    /// Returns the value of `Location` for a request with `path`, in which dot segments are resolved, and `query`.
    ///
    /// Scheme and host are always those of the target: it ends with a slash where the rest is appended, and the rest
    /// begins with neither a slash nor a backslash, which browsers read as a slash.
    pub fn location(&self, path: &str, query: Option<&str>) -> String {
        let mut location = self.target.clone();
        if let Some(segments) = self.rest_after {
            push_rest(&mut location, path, segments);
        }
        if let Some(query) = query.filter(|_| !self.target.contains('?')) {
            location.push('?');
            push_encoded(&mut location, query, b"/?");
        }
        location
    }
}

impl fmt::Display for Redirect {
    /// Writes the target as the file does.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.target)?;
        out.write_str(if self.rest_after.is_some() { Self::REST } else { "" })
    }
}

/// Appends what follows the first `segments` of `path`. It begins with no slash.
pub(super) fn push_rest(location: &mut String, path: &str, segments: usize) {
    push_encoded(location, rest(path, segments), b"/");
}

/// Returns what follows the first `segments` of `path`. Repeated slashes are one.
fn rest(path: &str, segments: usize) -> &str {
    let mut rest = path.trim_start_matches('/');
    for _ in 0..segments {
        rest = rest.split_once('/').map_or("", |(_, rest)| rest.trim_start_matches('/'));
    }
    rest
}

/// Appends `text`, and encodes what is neither in a path nor among `also` (RFC 3986 section 3.3).
fn push_encoded(location: &mut String, text: &str, also: &[u8]) {
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@%".contains(&byte) || also.contains(&byte) {
            true => location.push(char::from(byte)),
            false => write!(location, "%{byte:02X}").unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Uri;
    use proptest::prelude::*;

    fn redirect(target: &str, rest_after: Option<usize>) -> Redirect {
        Redirect { status: None, target: target.into(), rest_after }
    }

    #[test]
    fn rest_and_query_follow_the_target() {
        for (target, rest_after, path, query, expected) in [
            ("/new", None, "/old/a", None, "/new"),
            ("/new/", Some(1), "/old/a/b/", Some("c=d"), "/new/a/b/?c=d"),
            ("/new/", Some(1), "/old", None, "/new/"),
            ("/new/", Some(2), "//a//b///c", None, "/new/c"),
            ("https://example.com/", Some(0), "/a%20b", Some("x?y"), "https://example.com/a%20b?x?y"),
            ("/new?", None, "/old", Some("a=b"), "/new?"),
            ("/new?c=d", None, "/old", Some("a=b"), "/new?c=d"),
        ] {
            assert_eq!(redirect(target, rest_after).location(path, query), expected, "{target} {path}");
        }
    }

    #[test]
    fn rest_does_not_change_the_host() {
        for (path, expected) in [
            ("/old//evil.example", "/evil.example"),
            ("/old///evil.example/", "/evil.example/"),
            ("/old/\\evil.example", "/%5Cevil.example"),
            ("/old/\\/evil.example", "/%5C/evil.example"),
            ("/old/\t/evil.example", "/%09/evil.example"),
            ("/old/a\r\nLocation: //evil.example", "/a%0D%0ALocation:%20//evil.example"),
            ("/old/%2F/evil.example", "/%2F/evil.example"),
            ("/old/@evil.example", "/@evil.example"),
            ("/old/\u{e9}#<\"", "/%C3%A9%23%3C%22"),
        ] {
            assert_eq!(redirect("/", Some(1)).location(path, None), expected, "{path:?}");
        }
    }

    proptest! {
        #[test]
        fn host_is_that_of_the_target(path in "/?[/\\\\.a@:%25F?#\\t\\n\u{e9} ]{0,12}", query in "[/\\\\?#a=\\t ]{0,6}") {
            let location = redirect("https://own.example/", Some(0)).location(&path, Some(&query));
            let url = Uri::try_from(location.as_str()).expect("a URL");
            prop_assert_eq!(url.authority().map(|authority| authority.as_str()), Some("own.example"));
            let location = redirect("/", Some(0)).location(&path, Some(&query));
            prop_assert!(!location[1..].starts_with(['/', '\\']), "{}", location);
            prop_assert!(location.bytes().all(|byte| byte.is_ascii_graphic()));
        }
    }
}
