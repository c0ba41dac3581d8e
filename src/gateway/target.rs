//! What a request asks for, checked: the host, the path as sent and as rules match it, the framing.
//!
//! What parses and frames it (`http1`, or hyper for HTTP/2) leaves the rest to us: checked here, before anything is
//! counted.

use crate::http1;
use crate::policy::route::normalise;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version, header};
use std::borrow::Cow;

/// Where a request goes.
#[derive(Clone)]
pub(super) struct Target {
    /// The host as the origin is told it.
    pub(super) host: HeaderValue,
    /// The path and query as sent.
    pub(super) path_and_query: PathAndQuery,
}

/// Why a request is not one that can be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// No host, two, or one that is not a host.
    Host,
    /// A path with an encoded NUL.
    Path,
    /// A request target that is neither a path nor a URL.
    Target,
    /// Both Content-Length and Transfer-Encoding.
    Framing,
    /// CONNECT or TRACE.
    Method,
    /// An expectation other than 100-continue.
    Expectation,
    /// A body longer than allowed.
    TooLarge,
    /// It has already passed through this gate.
    Loop,
    /// It is not HTTP/1.1 that everyone reads the same way.
    Unreadable(http1::Malformed),
}

impl Target {
    /// Reads the target of `request`; everything that could mean one thing here and another at the origin is refused.
    pub(super) fn of<B>(request: &Request<B>, via: &str, max_body: u64) -> Result<Self, Malformed> {
        let headers = request.headers();
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            return Err(Malformed::Method);
        }
        if headers.contains_key(header::CONTENT_LENGTH) {
            if headers.contains_key(header::TRANSFER_ENCODING) {
                return Err(Malformed::Framing);
            }
            if content_length(headers).is_none_or(|length| length > max_body) {
                return Err(Malformed::TooLarge);
            }
        }
        if headers.get(header::EXPECT).is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
            return Err(Malformed::Expectation);
        }
        if headers.get_all(header::VIA).iter().any(|value| names(value, via)) {
            return Err(Malformed::Loop);
        }
        Ok(Self { host: host(request)?, path_and_query: path_and_query(request)? })
    }

    /// The path as sent.
    pub(super) fn path(&self) -> &str {
        self.path_and_query.path()
    }

    /// The path as rules match it.
    pub(super) fn normal_path(&self) -> Result<Cow<'_, str>, Malformed> {
        normalise(self.path()).map_err(|_| Malformed::Path)
    }

    /// The host as rules match it: lower case, without its port.
    pub(super) fn normal_host(&self) -> Cow<'_, str> {
        let host = self.host.to_str().unwrap_or_default();
        let host = match host.rfind([':', ']']) {
            Some(at) if host.as_bytes()[at] == b':' => &host[..at],
            _ => host,
        };
        match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => Cow::Owned(host.to_ascii_lowercase()),
            false => Cow::Borrowed(host),
        }
    }

    /// The target as the origin is asked for it.
    pub(super) fn uri(&self) -> Uri {
        Uri::from(self.path_and_query.clone())
    }
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn names(via: &HeaderValue, pseudonym: &str) -> bool {
    let hops = via.as_bytes().split(|&byte| byte == b',');
    hops.into_iter().any(|hop| hop.trim_ascii().split(|&byte| byte == b' ').nth(1) == Some(pseudonym.as_bytes()))
}

/// RFC 9112 section 3.2 and RFC 9113 section 8.3.1: exactly one host, the same wherever it is given.
fn host<B>(request: &Request<B>) -> Result<HeaderValue, Malformed> {
    let mut given = request.headers().get_all(header::HOST).iter();
    let (field, second) = (given.next(), given.next());
    if second.is_some() {
        return Err(Malformed::Host);
    }
    if let Some(authority) = request.uri().authority() {
        let same = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes());
        if request.version() == Version::HTTP_2 && field.is_some_and(|value| !same(value)) {
            return Err(Malformed::Host);
        }
        if authority.as_str().contains('@') {
            return Err(Malformed::Host);
        }
        return HeaderValue::from_str(authority.as_str()).map_err(|_| Malformed::Host);
    }
    match field {
        Some(value) if is_host(value.as_bytes()) => Ok(value.clone()),
        None if request.version() == Version::HTTP_10 => Ok(HeaderValue::from_static("")),
        _ => Err(Malformed::Host),
    }
}

fn is_host(value: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:[]%!$&'()*+,;=".contains(byte);
    if value.is_empty() || value.len() > 255 || !value.iter().all(plain) {
        return false;
    }
    // Only names and ports that are certainly whole skip the parser.
    let simple = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-' || *byte == b'.';
    value.iter().all(simple) || Authority::try_from(value).is_ok_and(|authority| authority.host().len() > 1)
}

fn path_and_query<B>(request: &Request<B>) -> Result<PathAndQuery, Malformed> {
    let uri = request.uri();
    match uri.path_and_query() {
        Some(path) if path.as_str().starts_with('/') => Ok(path.clone()),
        Some(path) if path.as_str() == "*" && request.method() == Method::OPTIONS => Ok(path.clone()),
        None if uri.authority().is_some() => Ok(PathAndQuery::from_static("/")),
        _ => Err(Malformed::Target),
    }
}
