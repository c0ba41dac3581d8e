//! Log formats of Apache and nginx: common, combined, and combined with further columns.
//!
//! `[prefix ][host:port ]client ident user [time] "request" status bytes[ numbers][ "referer" "user agent"[ more]]`

use super::front_fields::FrontFields;
use super::line::{LogLine, LoggedClient, RequestLine};
use super::{LineError, LogField, MissingFields, address, line, line_error, quoted, timestamp};
use http::{Method, Version};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::ops::Range;
use tidegate_policy::Timestamp;

/// Parses a line.
pub(super) fn read(text: &[u8]) -> Result<LogLine<'_>, LineError> {
    let time = time_field(text).ok_or_else(|| line_error::of_unknown_line(text))?;
    let front = FrontFields::parse(&text[..time.start - 1]).ok_or(LineError::UnknownFormat)?;
    let (at, has_fraction) = timestamp::read(&text[time.clone()]).ok_or(LineError::InvalidTime)?;
    let (request, rest) =
        quoted::field(text[time.end + 1..].trim_ascii_start()).ok_or_else(|| line_error::of_unknown_line(text))?;
    let (status, rest) = split_word(rest);
    let status =
        parse_status(status).ok_or(if status.is_empty() { LineError::Truncated } else { LineError::InvalidStatus })?;
    let trailing = TrailingFields::read(rest)?;
    let (request_line, request_host) = parse_request_line(request);
    let host = request_host.or_else(|| front.host.map(Cow::Borrowed)).map(line::normalize_host);
    let client = front.default_client();
    let missing = ALWAYS_MISSING
        .with(LogField::Address, matches!(client, LoggedClient::HostName(_)))
        .with(LogField::Fraction, !has_fraction)
        .with(LogField::Host, host.is_none())
        .with(LogField::Referer, !trailing.has_agent)
        .with(LogField::UserAgent, !trailing.has_agent);
    let TrailingFields { bytes, referer, user_agent, .. } = trailing;
    Ok(LogLine {
        at,
        client,
        request: request_line,
        host,
        status,
        bytes,
        referer,
        user_agent,
        latency: None,
        headers_seen: None,
        missing,
        native: None,
    })
}

/// Returns the time of a line.
pub(super) fn read_time(text: &[u8]) -> Option<Timestamp> {
    timestamp::read(&text[time_field(text)?]).map(|(at, _)| at)
}

/// Returns the UTC offset of the time of a line, in seconds.
pub(super) fn utc_offset(text: &[u8]) -> Option<i64> {
    timestamp::utc_offset(&text[time_field(text)?])
}

/// Returns the range of the first text between brackets that is a time, or like one. Prefixes of collectors and IPv6
/// addresses have brackets, too.
pub(super) fn time_field(text: &[u8]) -> Option<Range<usize>> {
    let mut from = 0;
    for _ in 0..MAX_BRACKETS {
        let Some(start) = memchr::memchr(b'[', &text[from..]).map(|at| from + at + 1) else { break };
        let Some(end) = memchr::memchr(b']', &text[start..]).map(|at| start + at) else { break };
        if text.get(start + 2) == Some(&b'/') || timestamp::read(&text[start..end]).is_some() {
            return Some(start..end);
        }
        from = start;
    }
    None
}

/// Fields after the status.
#[derive(Default)]
struct TrailingFields<'a> {
    bytes: u64,
    referer: Option<Cow<'a, [u8]>>,
    user_agent: Option<Cow<'a, [u8]>>,
    /// True if the line has a column of the user agent; the common format has none.
    has_agent: bool,
    /// Columns behind the user agent.
    rest: &'a [u8],
}

impl<'a> TrailingFields<'a> {
    /// Reads the size, the referer and the user agent. Numbers, dashes and words between the size and the referer are
    /// other columns. A bare dash in front of the only quoted field is the referer (Traefik).
    fn read(rest: &'a [u8]) -> Result<Self, LineError> {
        let columns = Column::all(rest)?;
        let bytes = columns.first().and_then(Column::number).unwrap_or(0);
        let mut before = usize::from(!columns.is_empty());
        while columns.get(before).is_some_and(|column| !column.is_quoted || column.is_number()) {
            before += 1;
        }
        let columns = &columns[..];
        let is_dash = |index: usize| columns.get(index).is_some_and(|column| !column.is_quoted && column.is_dash());
        let is_number = |index: usize| columns.get(index).is_some_and(|column| !column.is_quoted && column.is_number());
        // Traefik: `size referer agent number "router" "server" 2ms`, with a bare dash for a missing field.
        let (referer, agent) = if is_dash(1) && is_dash(2) && is_number(3) {
            (Some(1), Some(2))
        } else if before == columns.len() {
            (None, None)
        } else if is_dash(before - 1) && before >= 2 && !columns.get(before + 1).is_some_and(Column::may_be_agent) {
            (Some(before - 1), Some(before))
        } else if is_dash(before + 1) && is_number(before + 2) {
            (Some(before), Some(before + 1))
        } else if columns.get(before + 1).is_none_or(|column| !column.is_quoted) {
            return Err(LineError::Truncated);
        } else {
            // A host or an address may precede the referer.
            let is_shifted = |shift: usize| {
                let quoted = |index: usize| columns.get(index).is_some_and(|column| column.is_quoted);
                columns[before + shift].is_referer() && quoted(before + shift + 1)
            };
            let shift = (0..columns.len() - before - 1).find(|shift| is_shifted(*shift)).unwrap_or(0);
            (Some(before + shift), Some(before + shift + 1))
        };
        let value = |index: Option<usize>| index.and_then(|index| quoted::unless_dash(columns[index].value.clone()));
        Ok(Self {
            bytes,
            referer: value(referer),
            user_agent: value(agent),
            has_agent: agent.is_some(),
            rest: agent.map_or(&[][..], |index| columns[index].rest),
        })
    }
}

/// A column behind the status.
pub(super) struct Column<'a> {
    pub(super) value: Cow<'a, [u8]>,
    pub(super) is_quoted: bool,
    rest: &'a [u8],
}

impl<'a> Column<'a> {
    /// Splits a text into its columns. Stops at a quote that is not closed behind a user agent.
    pub(super) fn all(text: &'a [u8]) -> Result<SmallVec<[Self; 8]>, LineError> {
        let mut columns = SmallVec::new();
        let mut rest = text.trim_ascii_start();
        while !rest.is_empty() && columns.len() < MAX_COLUMNS {
            let is_quoted = rest.starts_with(b"\"");
            let (value, after) = match is_quoted {
                true => match quoted::field(rest) {
                    Some(field) => field,
                    None if columns.iter().filter(|column: &&Self| column.is_quoted).count() >= 2 => break,
                    None => return Err(LineError::Truncated),
                },
                false => {
                    let (word, after) = split_word(rest);
                    (Cow::Borrowed(word), after)
                }
            };
            rest = after.trim_ascii_start();
            columns.push(Self { value, is_quoted, rest });
        }
        Ok(columns)
    }

    fn number(&self) -> Option<u64> {
        std::str::from_utf8(&self.value).ok()?.parse().ok()
    }

    /// Returns true for numbers, also several of one column (`0.003, 0.010`) and with a unit (`2ms`).
    fn is_number(&self) -> bool {
        let text = self.value.strip_suffix(b"ms").or_else(|| self.value.strip_suffix(b"s")).unwrap_or(&self.value);
        text.iter().any(u8::is_ascii_digit)
            && text.iter().filter(|byte| **byte == b'.').count() <= 2
            && text.iter().all(|byte| byte.is_ascii_digit() || b".,: -".contains(byte))
            && address::parse_list(&self.value).is_none()
    }

    pub(super) fn is_dash(&self) -> bool {
        matches!(&*self.value, b"-")
    }

    /// Returns true if this column may be a user agent behind a referer.
    fn may_be_agent(&self) -> bool {
        self.is_quoted && address::parse_list(&self.value).is_none()
    }

    /// Returns true if the column is surely a referer.
    fn is_referer(&self) -> bool {
        self.is_quoted && (matches!(&*self.value, b"-" | b"") || memchr::memmem::find(&self.value, b"://").is_some())
    }
}

/// Returns the columns behind the user agent of a line.
pub(super) fn columns_behind_agent(text: &[u8]) -> Option<SmallVec<[Column<'_>; 8]>> {
    let time = time_field(text)?;
    let (_, rest) = quoted::field(text[time.end + 1..].trim_ascii_start())?;
    let (_, rest) = split_word(rest);
    let trailing = TrailingFields::read(rest).ok().filter(|trailing| trailing.has_agent)?;
    Column::all(trailing.rest).ok()
}

/// Parses the request line and its host, if it contains one. The target may contain blanks; a version may be missing.
pub(super) fn parse_request_line(line: Cow<'_, [u8]>) -> (Option<RequestLine<'_>>, Option<Cow<'_, str>>) {
    match quoted::text(line) {
        Cow::Borrowed(line) => split_request_line(line, Cow::Borrowed),
        Cow::Owned(line) => split_request_line(&line, |text| Cow::Owned(text.to_owned())),
    }
}

/// Target of a request line.
pub(super) struct RequestTarget<'a> {
    pub(super) host: Option<&'a str>,
    pub(super) path: &'a str,
    pub(super) query: Option<&'a str>,
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
    /// Splits a target. Only an absolute one has a host.
    pub(super) fn parse(target: &'a str) -> Self {
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

pub(super) fn parse_version(word: &str) -> Option<Version> {
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

/// Fields that no line of these formats contains.
const ALWAYS_MISSING: MissingFields =
    MissingFields::from_fields(&[LogField::Headers, LogField::Cost, LogField::Latency]);

/// Brackets searched for the time: those of a prefix and of addresses come before it.
const MAX_BRACKETS: usize = 8;

/// More columns than a format has.
const MAX_COLUMNS: usize = 32;
