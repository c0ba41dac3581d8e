//! Requests that are not use: clients may always read some paths, and browsers and certificate authorities send some
//! requests by themselves. They are free, and no rule that protects units refuses them.

use super::bucket::Bucket;
use http::Method;
use std::time::Duration;

/// Why a request is not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exemption {
    /// It reads robots.txt.
    RobotsTxt,
    /// It reads the crawl policy that the gateway serves.
    CrawlPolicy,
    /// A customer reads its usage, which the gateway serves.
    Usage,
    /// It reads an answer of the origin to a certificate authority (RFC 8555 section 8.3), which validates from
    /// changing addresses as a bot.
    AcmeChallenge,
    /// A browser asks whether a page of another origin may send a request (CORS preflight).
    Preflight,
}

impl Exemption {
    /// All exemptions.
    pub const ALL: [Self; 5] = [Self::RobotsTxt, Self::CrawlPolicy, Self::Usage, Self::AcmeChallenge, Self::Preflight];

    /// Bucket of exempt requests of one client that reach the origin: a free request must not be a way to flood it. A
    /// page with many endpoints sends dozens of preflights at once.
    pub const BUCKET: Bucket =
        Bucket { capacity: 100, fill: 10, interval: Duration::from_secs(1), smooth: true, costed_only: false };

    /// Bucket of exempt requests of a network (/24, or /48 of IPv6), one per exemption: many addresses must not be a way
    /// either. Requests beyond it are ordinary ones.
    pub const NETWORK_BUCKET: Bucket = Bucket { capacity: 400, fill: 40, ..Self::BUCKET };

    /// Like [`Self::NETWORK_BUCKET`], of all clients together.
    pub const TOTAL_BUCKET: Bucket = Bucket { capacity: 2000, fill: 200, ..Self::BUCKET };

    /// Returns true if the origin answers, so that buckets bound the requests.
    pub const fn is_bounded(self) -> bool {
        matches!(self, Self::AcmeChallenge | Self::Preflight)
    }

    /// Returns the requests in words.
    pub const fn description(self) -> &'static str {
        match self {
            Self::RobotsTxt => "GET and HEAD of /robots.txt",
            Self::CrawlPolicy => "GET and HEAD of /.well-known/crawl-policy",
            Self::Usage => "GET and HEAD of /.well-known/usage",
            Self::AcmeChallenge => "GET of /.well-known/acme-challenge/TOKEN (ACME), at most 10 a second of a client",
            Self::Preflight => "CORS preflights (OPTIONS), at most 10 a second of a client",
        }
    }
}

/// Directory of answers to certificate authorities (RFC 8555 section 8.3).
const ACME_CHALLENGE_DIRECTORY: &str = "/.well-known/acme-challenge/";

/// Path of robots.txt. GET and HEAD are never refused: crawlers that cannot read it assume that everything is allowed,
/// or nothing.
pub const ROBOTS_TXT_PATH: &str = "/robots.txt";

/// Path of the crawl policy document, if the gateway serves it. Never refused either: refused crawlers need it most.
pub const CRAWL_POLICY_PATH: &str = "/.well-known/crawl-policy";

/// Path of the usage of a customer, if the gateway serves it. Never refused either: who has used all wants to know until when.
pub const USAGE_PATH: &str = "/.well-known/usage";

/// Documents that the gateway serves itself, beside robots.txt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnDocuments {
    /// The crawl policy.
    pub crawl_policy: bool,
    /// The usage of a customer.
    pub usage: bool,
}

impl OwnDocuments {
    /// No document.
    pub const NONE: Self = Self { crawl_policy: false, usage: false };

    /// Returns the exemption of reads of the document at a normalized path; `None` if it is not served.
    pub fn at(self, path: &str) -> Option<Exemption> {
        match path {
            CRAWL_POLICY_PATH if self.crawl_policy => Some(Exemption::CrawlPolicy),
            USAGE_PATH if self.usage => Some(Exemption::Usage),
            _ => None,
        }
    }
}

/// Returns true if `method` for the normalized `path` reads robots.txt.
pub fn is_robots_txt_read(method: &Method, path: &str) -> bool {
    path == ROBOTS_TXT_PATH && is_read_method(method)
}

/// Returns true if `method` for the normalized `path` reads an ACME challenge: one segment of base64url (RFC 8555 section
/// 8.3), which no origin can read as another path.
pub fn is_acme_challenge(method: &Method, path: &str) -> bool {
    let is_token = |token: &str| {
        (1..=256).contains(&token.len())
            && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    method == Method::GET && path.strip_prefix(ACME_CHALLENGE_DIRECTORY).is_some_and(is_token)
}

/// Returns true if `method` only reads: GET and HEAD.
pub fn is_read_method(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_get_of_one_token_reads_an_acme_challenge() {
        let is_challenge = |path: &str| is_acme_challenge(&Method::GET, path);
        assert!(is_challenge("/.well-known/acme-challenge/abcDEF123_-"));
        for path in [
            "/.well-known/acme-challenge/",
            "/.well-known/acme-challenge",
            "/.well-known/acme-challenge/a/b",
            "/.well-known/acme-challenge/..",
            "/.well-known/acme-challenge/a.php",
            "/.well-known/acme-challenge/a%2Fb",
            "/.well-known/acme-challenge/a;b",
            "/a/.well-known/acme-challenge/a",
        ] {
            assert!(!is_challenge(path), "{path}");
        }
        assert!(!is_challenge(&format!("/.well-known/acme-challenge/{}", "a".repeat(257))));
        for method in [Method::HEAD, Method::POST, Method::OPTIONS] {
            assert!(!is_acme_challenge(&method, "/.well-known/acme-challenge/a"), "{method}");
        }
    }

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
