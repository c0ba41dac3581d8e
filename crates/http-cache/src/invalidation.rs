//! Writes: requests whose success invalidates stored responses (RFC 9111 section 4.4).

use http::Method;

/// Returns true if a successful response of `status` to a request with `method` invalidates the stored responses of its
/// URL. Methods that are not registered as safe may change a page.
pub fn invalidates(method: &Method, status: u16) -> bool {
    let is_safe = matches!(
        method.as_str(),
        "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PRI" | "PROPFIND" | "QUERY" | "REPORT" | "SEARCH"
    );
    !is_safe && (200..400).contains(&status)
}

/// Returns the names of the response fields whose URLs a successful write invalidates, too: that of a resource that was
/// created, and that of the one that the response represents. A redirect may lead to a page that its client has chosen.
pub fn naming_fields(status: u16) -> &'static [&'static str] {
    match status {
        201 => &["location", "content-location"],
        200..=299 => &["content-location"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_that_are_not_known_as_safe_invalidate() {
        for (method, status, expected) in [
            ("POST", 200, true),
            ("DELETE", 204, true),
            ("PATCH", 303, true),
            ("MADE-UP", 200, true),
            ("get", 200, true),
            ("PUT", 404, false),
            ("POST", 500, false),
            ("GET", 200, false),
            ("HEAD", 200, false),
            ("OPTIONS", 204, false),
            ("PROPFIND", 207, false),
            ("QUERY", 200, false),
        ] {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            assert_eq!(invalidates(&method, status), expected, "{method} {status}");
        }
    }

    #[test]
    fn redirect_names_no_page_to_invalidate() {
        assert!((300..400).all(|status| naming_fields(status).is_empty()));
        assert_eq!((naming_fields(201).len(), naming_fields(200)), (2, &["content-location"][..]));
    }
}
