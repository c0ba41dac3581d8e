//! Paths that every client may read: never refused, hence never charged.

use http::Method;

/// Path of robots.txt. GET and HEAD are never refused: crawlers that cannot read it assume that everything is allowed,
/// or nothing.
pub const ROBOTS_TXT_PATH: &str = "/robots.txt";

/// Path of the crawl policy document, if the gateway serves it. Never refused either: refused crawlers need it most.
pub const CRAWL_POLICY_PATH: &str = "/.well-known/crawl-policy";

/// Returns true if `method` for the normalized `path` reads robots.txt.
pub fn is_robots_txt_read(method: &Method, path: &str) -> bool {
    path == ROBOTS_TXT_PATH && is_read_method(method)
}

/// Returns true if `method` only reads: GET and HEAD.
pub fn is_read_method(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_get_and_head_of_robots_txt_read_it() {
        for (method, is_read) in
            [(Method::GET, true), (Method::HEAD, true), (Method::POST, false), (Method::OPTIONS, false)]
        {
            assert_eq!(is_read_method(&method), is_read, "{method}");
            assert_eq!(is_robots_txt_read(&method, ROBOTS_TXT_PATH), is_read, "{method}");
            assert!(!is_robots_txt_read(&method, "/robots.txt/") && !is_robots_txt_read(&method, CRAWL_POLICY_PATH));
        }
    }
}
