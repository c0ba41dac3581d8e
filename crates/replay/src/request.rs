//! A log line as the request that the gateway would have received.

use super::log::{LogLine, LoggedClient};
use http::{Method, Version};
use std::borrow::Cow;
use std::net::IpAddr;
use tidegate_policy::RequestFacts;
use tidegate_policy::bot_detection::{HeadersSeen, Referer};
use tidegate_policy::path::{PathPolicy, PathReadings, normalize};
use tidegate_policy::query::has_too_many_parameters;
use tidegate_policy::request_body::JsonMatch;
use tidegate_policy::request_fields::FieldMatch;

/// Request of a log line, validated like a live request.
#[derive(Clone, Debug)]
pub struct ReplayRequest<'a> {
    /// Request method.
    pub method: &'a Method,
    /// Request host; empty if unknown.
    pub host: &'a str,
    /// Normalized path.
    pub path: Cow<'a, str>,
    /// Other readings of the path; `None` if it has only one.
    other_paths: Option<Box<OtherPaths>>,
    /// Query, without the question mark.
    pub query: Option<&'a str>,
    /// Client address, or an address derived from the host name if the log contains that instead.
    pub client: IpAddr,
    /// True if `client` is derived from a host name, so that it proves nothing.
    pub is_host_name: bool,
    /// User agent; empty if there is none.
    pub user_agent: &'a [u8],
    /// Referer of the request.
    pub referer: Referer,
    /// Known request headers.
    pub headers_seen: HeadersSeen,
    /// True for a CORS preflight. In a log of another program every OPTIONS is taken for one.
    is_preflight: bool,
    /// What the JSON body said, in the gateway's own log.
    json: Option<&'a JsonMatch>,
    /// Which conditions on header fields and cookies it met, in the gateway's own log.
    fields: Option<&'a FieldMatch>,
}

/// Readings of a path besides the normalized one.
#[derive(Clone, Debug)]
struct OtherPaths {
    lenient: PathReadings,
    raw: PathReadings,
}

impl<'a> ReplayRequest<'a> {
    /// Returns the request of a line; `None` if the gateway rejects it as invalid.
    pub fn from_line(line: &'a LogLine<'_>) -> Option<Self> {
        let request = line.request.as_ref()?;
        let is_valid = request.path.starts_with('/') || (request.path == "*" && request.method == Method::OPTIONS);
        if !is_valid || matches!(request.method, Method::CONNECT | Method::TRACE) {
            return None;
        }
        if request.query.as_deref().is_some_and(has_too_many_parameters) {
            return None;
        }
        let host = line.host.as_deref().unwrap_or_default();
        let referer = match line.missing.contains(super::log::LogField::Referer) {
            true => Referer::Unknown,
            false => Referer::from_header(line.referer.as_deref(), host),
        };
        let path = normalize(&request.path).ok()?;
        let other_paths = match path {
            Cow::Borrowed(_) => None,
            Cow::Owned(_) => Some(Box::new(OtherPaths {
                lenient: PathReadings::new(&request.path, PathPolicy::Lenient).ok()?,
                raw: PathReadings::new(&request.path, PathPolicy::Raw).ok()?,
            })),
        };
        let headers_seen = line.native.as_ref().map(|native| native.headers_seen).or(line.headers_seen);
        let is_http_10 = request.version == Version::HTTP_10;
        Some(Self {
            method: &request.method,
            host,
            path,
            other_paths,
            query: request.query.as_deref(),
            client: line.client.address(),
            is_host_name: matches!(line.client, LoggedClient::HostName(_)),
            user_agent: line.user_agent.as_deref().unwrap_or_default(),
            referer,
            is_preflight: headers_seen
                .map_or(request.method == Method::OPTIONS, |headers| headers.contains(HeadersSeen::PREFLIGHT)),
            json: line.native.as_ref().and_then(|native| native.json.as_ref()),
            fields: line.native.as_ref().and_then(|native| native.fields.as_ref()),
            headers_seen: headers_seen.unwrap_or(HeadersSeen::default().with(HeadersSeen::HTTP_10, is_http_10)),
        })
    }

    /// Returns the request as rules with `path_policy` match it. It is not rejected for its path, because the log shows
    /// that its origin has processed it.
    pub(super) fn facts(&self, path_policy: PathPolicy) -> RequestFacts<'_> {
        let Self { method, host, query, user_agent, is_preflight, json, fields, .. } = *self;
        let other_paths = self.other_paths.as_ref().map_or(&[][..], |others| match path_policy {
            PathPolicy::Strict | PathPolicy::Lenient => others.lenient.others(),
            PathPolicy::Raw => others.raw.others(),
        });
        RequestFacts { method, host, path: &self.path, other_paths, query, user_agent, is_preflight, json, fields }
    }
}
