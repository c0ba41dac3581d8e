//! One log line of any format.

use super::MissingFields;
use super::native_fields::NativeFields;
use crate::policy::Timestamp;
use http::{Method, Version};
use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};

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

/// Normalizes a host for rules: lower case, without port.
pub(super) fn normalize_host(host: Cow<'_, str>) -> Cow<'_, str> {
    let end = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name.len(),
        _ => host.len(),
    };
    match (host.bytes().any(|byte| byte.is_ascii_uppercase()), host) {
        (false, Cow::Borrowed(text)) => Cow::Borrowed(&text[..end]),
        (_, text) => Cow::Owned(text[..end].to_ascii_lowercase()),
    }
}

impl LoggedClient<'_> {
    /// Returns the client's address, or an unassigned address derived from its host name.
    pub fn address(&self) -> IpAddr {
        match self {
            Self::Address(address) => *address,
            Self::HostName(name) => Ipv6Addr::from(UNASSIGNED | u128::from(hash(name.as_bytes()) >> 8) << 64).into(),
        }
    }
}

/// FNV hash, which is the same in every run.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// `fd00::/8`, for private networks: 56 bits of the name's hash select a /64, which counts as one client.
const UNASSIGNED: u128 = 0xfd << 120;
