//! URLs of pages as clients, sitemaps, administrators and origins spell them.
//!
//! One page has many spellings: letters beyond ASCII or their percent-encoding, `%7e` or `~`, `//` or `/`, dot segments, the
//! port of the scheme, the host in any case. Origins may tell some of them apart, so that each spelling that the origin is
//! sent has copies of its own; what removes or invalidates copies finds all of them by the canonical one.

use super::site::Site;
use http::Uri;
use std::borrow::Cow;
use std::fmt;
use tidegate_policy::{path, query};

/// Returns true if `text` is the URL of a page, with scheme and host, in any spelling.
pub fn is_page_url(text: &str) -> bool {
    PageUrl::parse(text).is_some()
}

/// Returns the host of the URL of a page; `None` if `text` is none.
pub fn page_host(text: &str) -> Option<String> {
    PageUrl::parse(text)?.to_uri()?.host().map(str::to_owned)
}

/// URL of a page.
pub(in crate::gateway) struct PageUrl {
    pub(in crate::gateway) site: Site,
    /// Path and query, in ASCII.
    target: Uri,
}

impl PageUrl {
    /// Reads a URL with scheme and host; `None` for other text. The host may be an internationalized name (RFC 5891), the
    /// rest an IRI (RFC 3987).
    pub(in crate::gateway) fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.trim().split_once("://")?;
        let (authority, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let authority = if authority.is_ascii() { Cow::Borrowed(authority) } else { Cow::Owned(ascii(authority)?) };
        if authority.contains('@') {
            return None;
        }
        let site = Site::from_url(&format!("{}://{authority}/", scheme.to_ascii_lowercase()).parse().ok()?)?;
        Some(Self { site, target: target_of(target)? })
    }

    /// Reads a reference in a response to a request for `path` of `site` (RFC 3986 section 5.2).
    pub(in crate::gateway) fn resolve(site: &Site, path: &str, reference: &str) -> Option<Self> {
        let reference = reference.trim();
        let is_absolute = reference.split(['/', '?', '#']).next().is_some_and(|start| start.contains(':'));
        if is_absolute {
            return Self::parse(reference);
        }
        if reference.starts_with("//") {
            return Self::parse(&format!("{}:{reference}", site.scheme()));
        }
        let directory = &path[..path.rfind('/').map_or(0, |slash| slash + 1)];
        let target = match reference.chars().next() {
            Some('/') => target_of(reference)?,
            None | Some('?' | '#') => target_of(&format!("{path}{reference}"))?,
            Some(_) => target_of(&format!("{directory}{reference}"))?,
        };
        Some(Self { site: site.clone(), target })
    }

    /// Returns the path.
    pub(in crate::gateway) fn path(&self) -> &str {
        self.target.path()
    }

    /// Returns the query.
    pub(in crate::gateway) fn query(&self) -> Option<&str> {
        self.target.query()
    }

    /// Returns the URL with scheme and host.
    pub(in crate::gateway) fn to_uri(&self) -> Option<Uri> {
        self.to_string().parse().ok()
    }
}

impl fmt::Display for PageUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}", self.site.key(), self.target)
    }
}

/// Returns the ASCII form of an internationalized host with its port.
fn ascii(authority: &str) -> Option<String> {
    let (host, port) = authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
    let host = idna::domain_to_ascii(host).ok()?;
    Some(port.map_or_else(|| host.clone(), |port| format!("{host}:{port}")))
}

/// Returns path and query of a URL without its fragment, with what no URL contains percent-encoded.
fn target_of(text: &str) -> Option<Uri> {
    let text = text.split('#').next().unwrap_or_default();
    let mut target = String::with_capacity(text.len() + 1);
    if !text.starts_with('/') {
        target.push('/');
    }
    for byte in text.bytes() {
        match query::needs_encoding(byte) {
            true => target.push_str(&format!("%{byte:02X}")),
            false => target.push(char::from(byte)),
        }
    }
    target.parse().ok()
}

/// Returns true if path and query are spelled canonically.
pub(in crate::gateway) fn is_canonical(path: &str, query: Option<&str>) -> bool {
    path::normalize(path).is_ok_and(|canonical| canonical == path)
        && query.is_none_or(|query| query::normalize(query) == query)
}

/// Returns the canonical spelling of a URL with scheme and host, as it is stored.
pub(in crate::gateway) fn canonical_url(url: &str) -> Cow<'_, str> {
    let host = url.find("://").map_or(0, |scheme| scheme + 3);
    let path_start = url[host..].find(['/', '?']).map_or(url.len(), |slash| host + slash);
    let (site, target) = url.split_at(path_start);
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let canonical_path = path::normalize(path).unwrap_or(Cow::Borrowed(path));
    let canonical_query = query.map(query::normalize);
    if canonical_path == path && canonical_query.as_deref() == query {
        return Cow::Borrowed(url);
    }
    let query = canonical_query.map_or_else(String::new, |query| format!("?{query}"));
    Cow::Owned(format!("{site}{canonical_path}{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(text: &str) -> Option<String> {
        let url = PageUrl::parse(text)?;
        Some(canonical_url(&url.to_string()).into_owned())
    }

    #[test]
    fn spellings_of_a_page_are_one_canonical_url() {
        for (expected, spellings) in [
            (
                "http://example.com/gr%C3%B6%C3%9Fe",
                &[
                    "http://example.com/größe",
                    "HTTP://EXAMPLE.com:80/gr%c3%b6%c3%9fe",
                    "http://example.com./gr%C3%B6ße#top",
                ][..],
            ),
            (
                "https://xn--bcher-kva.example/a/b?q=%C3%B6~",
                &[
                    "https://bücher.example/a/b?q=ö~",
                    "https://BÜCHER.example:443//a/./x/../b?q=%c3%b6%7E",
                    "https://xn--bcher-kva.example/%61//b?q=%C3%B6%7e",
                ],
            ),
            (
                "http://example.com/",
                &["http://example.com", "http://example.com/", "http://example.com/#a", "http://example.com/a/.."],
            ),
            ("http://example.com/?a=1", &["http://example.com?a=1", "http://example.com/?%61=1"]),
            ("http://example.com:8080/a%20b", &["http://example.com:8080/a b", "http://example.com:8080/a%20b"]),
            ("http://[::1]/a", &["http://[::1]:80/a"]),
        ] {
            for spelling in spellings {
                assert_eq!(canonical(spelling).as_deref(), Some(expected), "{spelling}");
            }
        }
        for invalid in
            ["", "/page", "example.com/a", "ftp://a/b", "http://", "http://user@a/", "http:///a", "http://a b/"]
        {
            assert!(canonical(invalid).is_none(), "{invalid}");
        }
    }

    #[test]
    fn references_are_resolved_against_the_page() {
        let site = PageUrl::parse("http://example.com/").expect("a URL").site;
        for (reference, expected) in [
            ("/list", "http://example.com/list"),
            ("http://EXAMPLE.com:80/list#x", "http://example.com/list"),
            ("//example.com/list", "http://example.com/list"),
            ("//other.example/list", "http://other.example/list"),
            ("list", "http://example.com/shop/list"),
            ("../list", "http://example.com/list"),
            ("?page=2", "http://example.com/shop/item?page=2"),
            ("", "http://example.com/shop/item"),
            ("/größe", "http://example.com/gr%C3%B6%C3%9Fe"),
            ("https://example.com/list", "https://example.com/list"),
        ] {
            let url = PageUrl::resolve(&site, "/shop/item", reference).expect(reference);
            assert_eq!(canonical_url(&url.to_string()), expected, "{reference}");
        }
        for invalid in ["mailto:a@example.com", "javascript:alert(1)", "http:list"] {
            assert!(PageUrl::resolve(&site, "/shop/item", invalid).is_none(), "{invalid}");
        }
    }

    proptest! {
        #[test]
        fn canonical_url_is_its_own_canonical_url(target in "/[a-z/.%0-9;ö~ -]{0,20}(\\?[a-z=&%0-9ö~]{0,10})?") {
            if let Some(once) = canonical(&format!("http://example.com{target}")) {
                prop_assert_eq!(canonical_url(&once), once.as_str());
            }
        }
    }
}
