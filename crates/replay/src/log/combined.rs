//! Log formats of Apache and nginx: common, combined, and combined with a leading virtual host or trailing fields.
//!
//! `[host:port ]client ident user [time] "request" status bytes[ "referer" "user agent"[ more]]`

use super::line::{LogLine, LoggedClient, RequestLine};
use super::{LineError, LogField, MissingFields, line, quoted, timestamp};
use http::{Method, Version};
use std::borrow::Cow;
use std::net::IpAddr;
use tidegate_policy::Timestamp;
use tidegate_policy::network::canonical;

/// Parses a line.
pub(super) fn read(text: &[u8]) -> Result<LogLine<'_>, LineError> {
    let open = memchr::memchr(b'[', text).ok_or(LineError::UnknownFormat)?;
    let (host, client) = parse_leading_fields(&text[..open]).ok_or(LineError::UnknownFormat)?;
    let close = open + memchr::memchr(b']', &text[open..]).ok_or(LineError::Truncated)?;
    let (at, has_fraction) = timestamp::read(&text[open + 1..close]).ok_or(LineError::InvalidTime)?;
    let (request, rest) = quoted::field(text[close + 1..].trim_ascii_start()).ok_or(LineError::Truncated)?;
    let (status, rest) = split_word(rest);
    let status =
        parse_status(status).ok_or(if status.is_empty() { LineError::Truncated } else { LineError::InvalidStatus })?;
    let (bytes, rest) = split_word(rest);
    let trailing = TrailingFields::read(rest)?;
    let (request_line, request_host) = parse_request_line(request);
    let host = request_host.or_else(|| host.map(Cow::Borrowed)).map(line::normalize_host);
    let missing = ALWAYS_MISSING
        .with(LogField::Address, matches!(client, LoggedClient::HostName(_)))
        .with(LogField::Fraction, !has_fraction)
        .with(LogField::Host, host.is_none())
        .with(LogField::Referer, trailing.is_none())
        .with(LogField::UserAgent, trailing.is_none());
    let TrailingFields { referer, user_agent } = trailing.unwrap_or_default();
    Ok(LogLine {
        at,
        client,
        request: request_line,
        host,
        status,
        bytes: parse_number(bytes),
        referer,
        user_agent,
        missing,
        native: None,
    })
}

/// Returns the time of a line.
pub(super) fn read_time(text: &[u8]) -> Option<Timestamp> {
    timestamp::read(time_field(text)?).map(|(at, _)| at)
}

/// Returns the UTC offset of the time of a line, in seconds.
pub(super) fn utc_offset(text: &[u8]) -> Option<i64> {
    timestamp::utc_offset(time_field(text)?)
}

fn time_field(text: &[u8]) -> Option<&[u8]> {
    let open = memchr::memchr(b'[', text)?;
    let close = open + memchr::memchr(b']', &text[open..])?;
    Some(&text[open + 1..close])
}

/// Fields after the response size; the common format has none.
#[derive(Default)]
struct TrailingFields<'a> {
    referer: Option<Cow<'a, [u8]>>,
    user_agent: Option<Cow<'a, [u8]>>,
}

impl<'a> TrailingFields<'a> {
    fn read(rest: &'a [u8]) -> Result<Option<Self>, LineError> {
        let rest = rest.trim_ascii_start();
        if !rest.starts_with(b"\"") {
            return Ok(None);
        }
        let (referer, rest) = quoted::field(rest).ok_or(LineError::Truncated)?;
        let (user_agent, _) = quoted::field(rest.trim_ascii_start()).ok_or(LineError::Truncated)?;
        Ok(Some(Self { referer: quoted::unless_dash(referer), user_agent: quoted::unless_dash(user_agent) }))
    }
}

/// Parses the fields before the time: the virtual host, if present, and the client. The first address of a list
/// (`X-Forwarded-For`) counts.
fn parse_leading_fields(text: &[u8]) -> Option<(Option<&str>, LoggedClient<'_>)> {
    let text = std::str::from_utf8(text).ok()?;
    let (first, rest) = next_word(text)?;
    let (host, client) = match next_word(rest) {
        Some((second, _))
            if !first.ends_with(',') && second != "-" && second.trim_end_matches(',').parse::<IpAddr>().is_ok() =>
        {
            (Some(first), second)
        }
        _ => (None, first),
    };
    let client = client.trim_end_matches(',');
    let client = match client.parse::<IpAddr>() {
        Ok(address) => LoggedClient::Address(canonical(address)),
        Err(_) => LoggedClient::HostName(client),
    };
    Some((host, client))
}

/// Parses the request line and its host, if it contains one. The target may contain blanks; a version may be missing.
fn parse_request_line(line: Cow<'_, [u8]>) -> (Option<RequestLine<'_>>, Option<Cow<'_, str>>) {
    match quoted::text(line) {
        Cow::Borrowed(line) => split_request_line(line, Cow::Borrowed),
        Cow::Owned(line) => split_request_line(&line, |text| Cow::Owned(text.to_owned())),
    }
}

struct RequestTarget<'a> {
    host: Option<&'a str>,
    path: &'a str,
    query: Option<&'a str>,
}

fn split_request_line<'a, 'b>(
    line: &'b str,
    to_cow: impl Fn(&'b str) -> Cow<'a, str>,
) -> (Option<RequestLine<'a>>, Option<Cow<'a, str>>) {
    let Some((method, rest)) = split_at_blank(line, line.bytes().position(is_blank)) else { return (None, None) };
    let Ok(method) = Method::from_bytes(method.as_bytes()) else { return (None, None) };
    let last = split_at_blank(rest, rest.bytes().rposition(is_blank));
    let (target, version) = match last.map(|(target, last)| (target, parse_version(last))) {
        Some((target, Some(version))) => (target, version),
        _ => (rest, Version::HTTP_09),
    };
    let RequestTarget { host, path, query } = RequestTarget::parse(target);
    (Some(RequestLine { method, path: to_cow(path), query: query.map(&to_cow), version }), host.map(&to_cow))
}

impl<'a> RequestTarget<'a> {
    fn parse(target: &'a str) -> Self {
        let absolute = if target.starts_with('/') { None } else { target.split_once("://") };
        let (host, target) = match absolute {
            Some(("http" | "https", rest)) => {
                let (authority, _) = rest.split_once(['/', '?']).unwrap_or((rest, ""));
                let path = &rest[authority.len()..];
                (Some(authority), if path.is_empty() { "/" } else { path })
            }
            _ => (None, target),
        };
        match memchr::memchr(b'?', target.as_bytes()) {
            Some(at) => Self { host, path: &target[..at], query: Some(&target[at + 1..]) },
            None => Self { host, path: target, query: None },
        }
    }
}

fn parse_version(word: &str) -> Option<Version> {
    Some(match word.strip_prefix("HTTP/")? {
        "1.1" => Version::HTTP_11,
        "1.0" => Version::HTTP_10,
        "2.0" | "2" => Version::HTTP_2,
        "3.0" | "3" => Version::HTTP_3,
        "0.9" => Version::HTTP_09,
        _ => Version::HTTP_11,
    })
}

/// Splits off the next word.
fn split_word(text: &[u8]) -> (&[u8], &[u8]) {
    let text = text.trim_ascii_start();
    let end = text.iter().copied().position(is_blank).unwrap_or(text.len());
    text.split_at(end)
}

/// Splits off the next word; `None` if there is none.
fn next_word(text: &str) -> Option<(&str, &str)> {
    let start = text.bytes().position(|byte| !is_blank(byte))?;
    let text = &text[start..];
    Some(split_at_blank(text, text.bytes().position(is_blank)).unwrap_or((text, "")))
}

/// Splits `text` at the blank at `at`. Callers search byte by byte because words are short.
fn split_at_blank(text: &str, at: Option<usize>) -> Option<(&str, &str)> {
    at.map(|at| (&text[..at], &text[at + 1..]))
}

fn is_blank(byte: u8) -> bool {
    byte == b' '
}

fn parse_status(word: &[u8]) -> Option<u16> {
    let status = std::str::from_utf8(word).ok()?.parse().ok()?;
    (100..1000).contains(&status).then_some(status)
}

/// Parses a number; a dash is 0.
fn parse_number(word: &[u8]) -> u64 {
    std::str::from_utf8(word).ok().and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Fields that no line of these formats contains.
const ALWAYS_MISSING: MissingFields =
    MissingFields::from_fields(&[LogField::Headers, LogField::Cost, LogField::Latency]);
