//! One line of a log, whatever wrote it.

use super::native::NativeFields;
use super::{LineError, MissingFields, combined, native};
use crate::policy::Timestamp;
use http::{Method, Version};
use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};

/// One request, as a log tells it.
#[derive(Clone, Debug)]
pub struct LogLine<'a> {
    /// When it came, by the log.
    pub at: Timestamp,
    /// Who asked.
    pub client: LoggedClient<'a>,
    /// For what; none where there was no request line, or none that is one.
    pub request: Option<RequestLine<'a>>,
    /// The host asked for, in lower case and without its port, where it is known.
    pub host: Option<Cow<'a, str>>,
    /// The status that the client got.
    pub status: u16,
    /// The bytes of the body that the client got.
    pub bytes: u64,
    /// The page that led here, where one was named.
    pub referer: Option<Cow<'a, [u8]>>,
    /// The user agent, where one was sent.
    pub user_agent: Option<Cow<'a, [u8]>>,
    /// What the line does not say.
    pub missing: MissingFields,
    /// What only the gate itself writes down.
    pub native: Option<Box<NativeFields<'a>>>,
}

/// Who asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedClient<'a> {
    /// An address.
    Address(IpAddr),
    /// A host name: the server looked it up, and did not keep the address.
    HostName(&'a str),
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestLine<'a> {
    /// The method.
    pub method: Method,
    /// The path, as sent.
    pub path: Cow<'a, str>,
    /// The query, without its question mark.
    pub query: Option<Cow<'a, str>>,
    /// The version of HTTP.
    pub version: Version,
}

impl<'a> LogLine<'a> {
    /// Reads a line without its end; nothing where it is empty.
    pub fn read(text: &'a [u8]) -> Result<Option<Self>, LineError> {
        match text.trim_ascii_start().first() {
            None => Ok(None),
            Some(b'{') => native::read(text).map(Some),
            Some(_) => combined::read(text).map(Some),
        }
    }
}

/// Seconds east of Greenwich of the clock that wrote a line; the gate's own is at Greenwich.
pub fn east(text: &[u8]) -> Option<i64> {
    match text.first() {
        Some(b'{') => Some(0),
        _ => combined::utc_offset(text),
    }
}

/// When the request of a line came, without reading all of it.
pub(super) fn moment(text: &[u8]) -> Option<Timestamp> {
    match text.first() {
        Some(b'{') => native::moment(text),
        _ => combined::moment(text),
    }
}

/// The host as rules see it: in lower case, without its port.
pub(super) fn host(written: Cow<'_, str>) -> Cow<'_, str> {
    let end = match written.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name.len(),
        _ => written.len(),
    };
    match (written.bytes().any(|byte| byte.is_ascii_uppercase()), written) {
        (false, Cow::Borrowed(text)) => Cow::Borrowed(&text[..end]),
        (_, text) => Cow::Owned(text[..end].to_ascii_lowercase()),
    }
}

impl LoggedClient<'_> {
    /// An address to know it by: its own, or one that no host has and that follows from its name.
    pub fn address(&self) -> IpAddr {
        match self {
            Self::Address(address) => *address,
            Self::HostName(name) => Ipv6Addr::from(UNASSIGNED | u128::from(hash(name.as_bytes()) >> 8) << 64).into(),
        }
    }
}

/// The hash of FNV: the same in every run.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// `fd00::/8`, for networks of one's own: 56 bits of the name make a /64, which is one client.
const UNASSIGNED: u128 = 0xfd << 120;
