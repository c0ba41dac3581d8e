//! Lines of other formats as text that is read without their file.
//!
//! How a line of another format is read depends on its file. The reader of the file therefore writes what the line says in
//! this form, and all later readers need the text alone. No file contains it: it begins with [`MARK`].

use super::{LineError, LogLine, LoggedClient, MissingFields, RequestLine};
use http::{Method, Version};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;
use tidegate_policy::Timestamp;
use tidegate_policy::bot_detection::HeadersSeen;

/// First byte of each line: a separator that no server writes at the start of a line.
pub(super) const MARK: u8 = 0x1f;

/// Parts of a line, as the program stores them.
#[derive(Serialize, Deserialize)]
struct Parts<'a> {
    nanoseconds: u64,
    utc_offset_s: i64,
    client: IpAddr,
    #[serde(borrow)]
    request: Option<(&'a str, &'a str, Option<&'a str>, u8)>,
    authority: Option<&'a str>,
    response: (u16, u64),
    headers: (Option<&'a [u8]>, Option<&'a [u8]>, Option<u16>),
    lacks: u8,
    latency: Option<Duration>,
}

/// Appends a line of another format. Fails for lines with a host name in place of the client's address.
pub(super) fn write(line: &LogLine<'_>, utc_offset_s: i64, out: &mut Vec<u8>) -> Result<(), LineError> {
    let LoggedClient::Address(client) = line.client else { return Err(LineError::InvalidClient) };
    let request = line.request.as_ref().map(|RequestLine { method, path, query, version }| {
        let version = VERSIONS.iter().position(|known| known == version).unwrap_or(0);
        (method.as_str(), &**path, query.as_deref(), version as u8)
    });
    let parts = Parts {
        nanoseconds: line.at.0,
        utc_offset_s,
        client,
        request,
        authority: line.host.as_deref(),
        response: (line.status, line.bytes),
        headers: (line.referer.as_deref(), line.user_agent.as_deref(), line.headers_seen.map(HeadersSeen::bits)),
        lacks: line.missing.bits(),
        latency: line.latency,
    };
    out.push(MARK);
    let start = std::mem::take(out);
    *out = postcard::to_extend(&parts, start).map_err(|_| LineError::TooLong)?;
    Ok(())
}

/// Reads a line.
pub(super) fn read(text: &[u8]) -> Result<LogLine<'_>, LineError> {
    let Parts { nanoseconds, client, request, authority, response: (status, bytes), headers, lacks, latency, .. } =
        parse(text).ok_or(LineError::UnknownFormat)?;
    let (referer, user_agent, headers_seen) = headers;
    let request = request.and_then(|(method, path, query, version)| {
        Some(RequestLine {
            method: Method::from_bytes(method.as_bytes()).ok()?,
            path: path.into(),
            query: query.map(Cow::Borrowed),
            version: *VERSIONS.get(usize::from(version))?,
        })
    });
    Ok(LogLine {
        at: Timestamp(nanoseconds),
        client: LoggedClient::Address(client),
        request,
        host: authority.map(Cow::Borrowed),
        status,
        bytes,
        referer: referer.map(Cow::Borrowed),
        user_agent: user_agent.map(Cow::Borrowed),
        latency,
        headers_seen: headers_seen.map(HeadersSeen::from_bits),
        missing: MissingFields::from_bits(lacks),
        native: None,
    })
}

/// Returns the UTC offset of the time of a line, in seconds.
pub(super) fn utc_offset(text: &[u8]) -> Option<i64> {
    parse(text).map(|parts| parts.utc_offset_s)
}

fn parse(text: &[u8]) -> Option<Parts<'_>> {
    postcard::from_bytes(text.strip_prefix(&[MARK])?).ok()
}

/// Versions of HTTP by their number in a line.
const VERSIONS: [Version; 5] = [Version::HTTP_11, Version::HTTP_10, Version::HTTP_2, Version::HTTP_3, Version::HTTP_09];
