//! One log line of any format.

use super::MissingFields;
use http::{Method, Version};
use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;
use tidegate_access_log::read::NativeFields;
use tidegate_policy::Timestamp;
use tidegate_policy::bot_detection::HeadersSeen;
use tidegate_policy::hash::fnv1a;
use tidegate_policy::route;

/// A request parsed from a log line.
#[derive(Clone, Debug)]
pub struct LogLine<'a> {
    /// Time of the request.
    pub at: Timestamp,
    /// Client of the request.
    pub client: LoggedClient<'a>,
    /// Request line; `None` if it is missing or invalid.
    pub request: Option<RequestLine<'a>>,
    /// Request host in lower case, without port, if known.
    pub host: Option<Cow<'a, str>>,
    /// Response status.
    pub status: u16,
    /// Body bytes sent to the client.
    pub bytes: u64,
    /// Referer, if sent.
    pub referer: Option<Cow<'a, [u8]>>,
    /// User agent, if sent.
    pub user_agent: Option<Cow<'a, [u8]>>,
    /// Response time of the origin, if a log of another server has it.
    pub latency: Option<Duration>,
    /// Request headers, if a log of another server has all of them.
    pub headers_seen: Option<HeadersSeen>,
    /// Fields that the line lacks.
    pub missing: MissingFields,
    /// Fields that only the gateway's own log contains.
    pub native: Option<Box<NativeFields<'a>>>,
}

/// Client as identified by a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedClient<'a> {
    /// IP address.
    Address(IpAddr),
    /// Host name that the server logged instead of the address.
    HostName(&'a str),
}

/// Request line of a logged request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestLine<'a> {
    /// Request method.
    pub method: Method,
    /// Path, as sent.
    pub path: Cow<'a, str>,
    /// Query, without its question mark.
    pub query: Option<Cow<'a, str>>,
    /// HTTP version.
    pub version: Version,
}

/// Normalizes a logged host for rules, as the gateway does.
pub(super) fn normalize_host(host: Cow<'_, str>) -> Cow<'_, str> {
    match host {
        Cow::Borrowed(host) => route::normalize_host(host),
        Cow::Owned(host) => Cow::Owned(route::normalize_host(&host).into_owned()),
    }
}

impl LoggedClient<'_> {
    /// Returns the client's address, or an unassigned address derived from its host name.
    pub fn address(&self) -> IpAddr {
        match self {
            Self::Address(address) => *address,
            Self::HostName(name) => {
                let hash = fnv1a(name.bytes().map(|byte| byte.to_ascii_lowercase()));
                Ipv6Addr::from(UNASSIGNED | u128::from(hash >> 8) << 64).into()
            }
        }
    }
}

/// `fd00::/8`, for private networks: 56 bits of the name's hash select a /64, which counts as one client.
const UNASSIGNED: u128 = 0xfd << 120;
