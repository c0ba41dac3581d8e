//! Validates a request: host, path as sent and as matched by rules, framing.
//!
//! The parser (`http1`, or hyper for HTTP/2) does not check these; they are checked here, before the request is
//! counted.

use crate::gateway::message::headers::end_to_end;
use crate::gateway::session::SessionCookies;
use http::uri::Authority;
use http::{Method, Uri, Version};
use std::borrow::Cow;
use std::cell::OnceCell;
use tidegate_config::settings::Settings;
use tidegate_http1::{self as http1, Name, RequestHead, list};
use tidegate_policy::own_hosts::OwnHosts;
use tidegate_policy::path::{self, Ambiguity, PathError, PathReadings};
use tidegate_policy::request_body::JsonMatch;
use tidegate_policy::request_fields::FieldMatch;
use tidegate_policy::route::{normalize_host, split_port};
use tidegate_policy::{RequestFacts, Signature, query};

/// A valid client request.
pub(in crate::gateway) struct ClientRequest {
    /// Request head; the one for the origin once the request is forwarded.
    pub(in crate::gateway) head: RequestHead,
    pub(in crate::gateway) target: Target,
    pub(in crate::gateway) has_body: bool,
    /// Result of the signature verification; empty until it is needed.
    pub(in crate::gateway) signature: OnceCell<Signature>,
    /// Values of session cookies, which are removed from the head.
    pub(in crate::gateway) session_cookies: SessionCookies,
    /// What the JSON body says; `None` until it is read, or if no route asks for it.
    pub(in crate::gateway) json: Option<Box<JsonMatch>>,
}

/// Target of a request, as matched by rules.
pub(in crate::gateway) struct Target {
    /// Path as rules read it.
    path: PathReadings,
    /// Target for the origin, if it is another than the client sent.
    resolved: Option<Box<Uri>>,
    /// Target as sent, once another has replaced it.
    sent: Option<Box<Uri>>,
    /// Host in lower case, without its port and last dot.
    host: String,
    /// True for a CORS preflight.
    is_preflight: bool,
    /// Conditions of routes on header fields and cookies that the request meets; `None` if no route has any.
    fields: Option<Box<FieldMatch>>,
}

/// Reason why a request cannot be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum RequestError {
    /// No host, several hosts, or an invalid one.
    Host,
    /// Host that is none of the own hosts, or no host although there are own hosts.
    Misdirected,
    /// Path that origins read in different ways.
    Path(PathError),
    /// Body that can be read in several ways.
    Body(Ambiguity),
    /// Header fields that can be read in several ways.
    Fields(Ambiguity),
    /// Query with more parameters than are read.
    Query,
    /// Request target that is neither a path nor a URL.
    Target,
    /// Header field of HTTP/2 with a blank before or after its value.
    FieldValue,
    /// Both Content-Length and Transfer-Encoding.
    Framing,
    /// CONNECT or TRACE.
    Method,
    /// Another method than GET and HEAD, for a document of the gateway.
    DocumentMethod,
    /// Expectation other than 100-continue.
    Expectation,
    /// Body longer than allowed.
    TooLarge,
    /// Request that has already passed through this gateway.
    Loop,
    /// Request that is not unambiguous HTTP/1.1.
    Malformed(http1::Malformed),
}

impl ClientRequest {
    /// Returns the path as rules match it: normalized.
    pub(in crate::gateway) fn path(&self) -> &str {
        self.target.path(&self.head)
    }

    /// Returns the path that the origin is sent.
    pub(in crate::gateway) fn origin_path(&self) -> &str {
        self.target.path.for_origin().unwrap_or_else(|| self.head.target.path())
    }

    /// Returns the path with its dot segments resolved, for targets that keep the rest of it.
    pub(in crate::gateway) fn resolved_path(&self) -> Cow<'_, str> {
        path::resolved(self.head.target.path())
    }

    /// Sets the path and query that the origin is sent.
    pub(in crate::gateway) fn set_origin_target(&mut self, path_and_query: &str) {
        if self.head.target.path_and_query().is_none_or(|sent| sent.as_str() != path_and_query) {
            self.target.resolved = Uri::try_from(path_and_query).map(Box::new).ok();
        }
    }

    /// Replaces the target by the one for the origin.
    pub(in crate::gateway) fn resolve_target(&mut self) {
        if let Some(resolved) = self.target.resolved.take() {
            self.target.sent = Some(Box::new(std::mem::replace(&mut self.head.target, *resolved)));
        }
    }

    /// Returns the target as the client sent it.
    pub(in crate::gateway) fn sent_target(&self) -> &Uri {
        self.target.sent.as_deref().unwrap_or(&self.head.target)
    }

    /// Returns the conditions of routes on header fields and cookies that the request meets; `None` if no route has any.
    pub(in crate::gateway) fn field_match(&self) -> Option<&FieldMatch> {
        self.target.fields.as_deref()
    }

    /// Returns true for a CORS preflight.
    pub(in crate::gateway) fn is_preflight(&self) -> bool {
        self.target.is_preflight && !self.has_body
    }

    /// Returns the request as rules match it.
    pub(in crate::gateway) fn facts(&self) -> RequestFacts<'_> {
        RequestFacts {
            method: &self.head.method,
            host: &self.target.host,
            path: self.path(),
            other_paths: self.target.path.others(),
            query: self.head.target.query(),
            user_agent: self.head.fields.get(Name::UserAgent).unwrap_or_default(),
            is_preflight: self.is_preflight(),
            json: self.json.as_deref(),
            fields: self.field_match(),
        }
    }
}

impl Target {
    /// Returns the path of the request with this head as rules match it: normalized.
    pub(in crate::gateway) fn path<'a>(&'a self, head: &'a RequestHead) -> &'a str {
        self.path.normalized(head.target.path())
    }

    /// Returns the host in lower case, without its port and last dot.
    pub(in crate::gateway) fn host(&self) -> &str {
        &self.host
    }

    /// Parses the target of a request. Rejects everything that the gateway and the origin could interpret differently,
    /// and requests for other hosts than the own ones.
    pub(in crate::gateway) fn parse(head: &RequestHead, via: &str, settings: &Settings) -> Result<Self, RequestError> {
        let fields = &head.fields;
        if matches!(head.method, Method::CONNECT | Method::TRACE) {
            return Err(RequestError::Method);
        }
        // Those of HTTP/1.1 are counted while they are parsed.
        if fields.len() > settings.limits.max_headers {
            return Err(RequestError::Malformed(http1::Malformed::HeadTooLarge));
        }
        // Those of HTTP/1.1 are removed while it is parsed, also by the origin: it would read another value than the rules.
        if head.version == Version::HTTP_2 && fields.iter().any(|field| has_outer_blank(field.value)) {
            return Err(RequestError::FieldValue);
        }
        if let Some(length) = fields.get(Name::ContentLength) {
            if fields.contains(Name::TransferEncoding) {
                return Err(RequestError::Framing);
            }
            if parse_number(length).is_none_or(|length| length > settings.limits.max_body_size) {
                return Err(RequestError::TooLarge);
            }
        }
        if fields.all(Name::Expect).flat_map(list).any(|item| !item.eq_ignore_ascii_case(b"100-continue")) {
            return Err(RequestError::Expectation);
        }
        if fields.all(Name::Via).any(|value| via_contains(value, via)) {
            return Err(RequestError::Loop);
        }
        check_host(head)?;
        check_path(head)?;
        let path = PathReadings::new(head.target.path(), settings.rules.path_policy).map_err(RequestError::Path)?;
        if head.target.query().is_some_and(query::has_too_many_parameters) {
            return Err(RequestError::Query);
        }
        let resolved = path.for_origin().map(|path| with_path(&head.target, path)).transpose()?;
        let host_and_port = std::str::from_utf8(host(head)).unwrap_or_default();
        let host = normalize_host(host_and_port).into_owned();
        let is_own = |own_hosts: &OwnHosts| own_hosts.contains(&host) && has_numeric_port(host_and_port);
        if !settings.hosts.as_ref().is_none_or(is_own) {
            return Err(RequestError::Misdirected);
        }
        let field_match = settings.rules.field_match(|| end_to_end(fields));
        let facts = RequestFacts {
            method: &head.method,
            host: &host,
            path: path.normalized(head.target.path()),
            other_paths: path.others(),
            query: head.target.query(),
            user_agent: b"",
            is_preflight: false,
            json: None,
            fields: field_match.as_ref(),
        };
        if !path.others().is_empty() || facts.is_ambiguous() {
            let checked = settings.check_readings(&facts, &path::resolved(head.target.path()));
            checked.map_err(|ambiguity| match path.others() {
                [] => RequestError::Fields(ambiguity),
                _ => RequestError::Path(PathError::Ambiguous(ambiguity)),
            })?;
        }
        let fields = field_match.map(Box::new);
        Ok(Self { path, resolved, sent: None, host, is_preflight: is_preflight(head), fields })
    }
}

/// Returns true for the head of a CORS preflight (the Fetch standard, section 4.8): a browser sends it before the request of a
/// page, without credentials and without content.
fn is_preflight(head: &RequestHead) -> bool {
    let has = |name| head.fields.get_all_by_text(name).any(|value| !value.is_empty());
    let has_content = || has("transfer-encoding") || head.fields.get_all_by_text("content-length").any(|it| it != b"0");
    head.method == Method::OPTIONS
        && has("origin")
        && head.fields.get_all_by_text("access-control-request-method").any(|method| Method::from_bytes(method).is_ok())
        && !has("cookie")
        && !has("authorization")
        && !has_content()
}

/// Returns `target` with another path, in origin form.
pub(in crate::gateway) fn with_path(target: &Uri, path: &str) -> Result<Box<Uri>, RequestError> {
    let query = target.query().map_or(String::new(), |query| format!("?{query}"));
    Uri::try_from(format!("{path}{query}")).map(Box::new).map_err(|_| RequestError::Target)
}

/// Returns the host that the origin is sent.
pub(in crate::gateway) fn host(head: &RequestHead) -> &[u8] {
    match head.target.authority() {
        Some(authority) => authority.as_str().as_bytes(),
        None => head.fields.get(Name::Host).unwrap_or_default(),
    }
}

/// Returns true for a value that RFC 9113 section 8.2.1 forbids, because a space or tab begins or ends it.
fn has_outer_blank(value: &[u8]) -> bool {
    [value.first(), value.last()].into_iter().flatten().any(|byte| matches!(byte, b' ' | b'\t'))
}

/// Returns true if the port, if there is one, is a number: `example.com:80.evil.com` is no spelling of `example.com`.
fn has_numeric_port(host: &str) -> bool {
    split_port(host).1.is_none_or(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

fn parse_number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn via_contains(via: &[u8], pseudonym: &str) -> bool {
    list(via).any(|hop| hop.split(|&byte| byte == b' ').nth(1) == Some(pseudonym.as_bytes()))
}

/// Checks that there is exactly one host, the same in the target and the field (RFC 9112 section 3.2, RFC 9113 section
/// 8.3.1).
fn check_host(head: &RequestHead) -> Result<(), RequestError> {
    let mut hosts = head.fields.all(Name::Host);
    let (field, second) = (hosts.next(), hosts.next());
    if second.is_some() {
        return Err(RequestError::Host);
    }
    let is_valid = match (head.target.authority(), field) {
        (Some(authority), _) if authority.as_str().contains('@') || !is_valid_authority(authority) => false,
        (Some(authority), Some(field)) if head.version == Version::HTTP_2 => {
            field.eq_ignore_ascii_case(authority.as_str().as_bytes())
        }
        (Some(_), _) => true,
        (None, Some(field)) => is_host(field),
        (None, None) => head.version == Version::HTTP_10,
    };
    if is_valid { Ok(()) } else { Err(RequestError::Host) }
}

fn is_host(value: &[u8]) -> bool {
    if value.is_empty() || value.len() > 255 {
        return false;
    }
    // Only names that are certainly valid skip the parser.
    let is_simple = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-' || *byte == b'.';
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:[]%!$&'()*+,;=".contains(byte);
    value.iter().all(is_simple)
        || value.iter().all(is_allowed)
            && Authority::try_from(value).is_ok_and(|authority| is_valid_authority(&authority))
}

/// Returns true if there is a host, and its port is one or absent.
fn is_valid_authority(authority: &Authority) -> bool {
    let port = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    let is_port = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.parse::<u16>().is_ok();
    let port_is_valid = matches!(port, "" | ":") || port.strip_prefix(':').is_some_and(is_port);
    port_is_valid && !authority.host().is_empty()
}

fn check_path(head: &RequestHead) -> Result<(), RequestError> {
    let is_valid = match head.target.path_and_query() {
        Some(path) => path.as_str().starts_with('/') || (path.as_str() == "*" && head.method == Method::OPTIONS),
        None => head.target.scheme().is_some(),
    };
    if is_valid { Ok(()) } else { Err(RequestError::Target) }
}
