//! Prefixes that collectors of logs write in front of each line.

use crate::log::timestamp;
use std::borrow::Cow;

/// Collector that wrote a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::log) enum Collector {
    /// None.
    #[default]
    None,
    /// Container runtime of Kubernetes: `TIME stdout F LINE`; a long line is several of flag `P`.
    Kubernetes,
    /// `kubectl logs --prefix`: `[pod/NAME/CONTAINER] LINE`.
    Pod,
    /// Docker Compose: `NAME  | LINE`.
    Compose,
    /// Docker Compose with times: `NAME  | TIME LINE`.
    ComposeWithTime,
    /// `docker logs -t`: `TIME LINE`.
    Time,
    /// Docker's files: `{"log":"LINE\n","stream":"stdout","time":"TIME"}`.
    DockerFile,
    /// syslog (RFC 3164 and 5424): `TIME HOST PROGRAM[PID]: LINE`.
    Syslog,
}

/// A line without its prefix.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::log) struct Stripped<'a> {
    pub(in crate::log) text: Cow<'a, [u8]>,
    /// True for the start or the middle of a long line, which the next ones of its stream continue.
    pub(in crate::log) is_part: bool,
    /// True for the standard error output, whose lines may be between the parts of another.
    pub(in crate::log) is_stderr: bool,
}

impl Collector {
    /// All collectors. Behind `None` are those whose prefix may be the start of a line.
    pub(in crate::log) const ALL: [Self; 8] = [
        Self::Kubernetes,
        Self::Pod,
        Self::Compose,
        Self::ComposeWithTime,
        Self::DockerFile,
        Self::None,
        Self::Time,
        Self::Syslog,
    ];

    /// Returns the collector for reports.
    pub(in crate::log) const fn name(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Kubernetes | Self::Pod => Some("behind prefixes of Kubernetes"),
            Self::Compose | Self::ComposeWithTime => Some("behind prefixes of Docker Compose"),
            Self::Time => Some("behind times of a collector"),
            Self::DockerFile => Some("in files of Docker"),
            Self::Syslog => Some("behind prefixes of syslog"),
        }
    }

    /// Returns a line without the prefix; `None` if it has none.
    pub(in crate::log) fn strip<'a>(self, line: &'a [u8]) -> Option<Stripped<'a>> {
        let whole = |line| Stripped { text: Cow::Borrowed(line), is_part: false, is_stderr: false };
        match self {
            Self::None => Some(whole(line)),
            Self::Kubernetes => {
                let rest = behind_time(line)?;
                let is_stderr = rest.starts_with(b"stderr ");
                let rest = rest.strip_prefix(b"stdout ").or_else(|| rest.strip_prefix(b"stderr "))?;
                let (flags, rest) = rest.split_at(memchr::memchr(b' ', rest)?);
                let is_part = flags == b"P" || flags.starts_with(b"P:");
                let is_known = is_part || flags == b"F" || flags.starts_with(b"F:");
                is_known.then(|| Stripped { text: Cow::Borrowed(&rest[1..]), is_part, is_stderr })
            }
            Self::Pod => {
                let rest = line.strip_prefix(b"[pod/")?;
                let end = memchr::memchr(b']', rest)?;
                rest[end + 1..].strip_prefix(b" ").map(whole)
            }
            Self::ComposeWithTime => {
                let Stripped { text: Cow::Borrowed(rest), .. } = Self::Compose.strip(line)? else { return None };
                behind_time(rest).map(whole)
            }
            Self::Compose => {
                let bar = memchr::memchr(b'|', line)?;
                let name = std::str::from_utf8(&line[..bar]).ok()?;
                let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-_. \u{1b}[;".contains(letter);
                // The name may have a color.
                let rest = &line[bar + 1..];
                let rest = rest.strip_prefix(b"\x1b[0m").unwrap_or(rest).strip_prefix(b" ")?;
                let is_prefix = name.len() > 1 && name.ends_with(' ') && name.chars().all(is_name);
                (is_prefix && !name.starts_with(' ')).then(|| whole(rest))
            }
            Self::Time => behind_time(line).map(whole),
            Self::DockerFile => {
                let rest = line.strip_prefix(b"{\"log\":")?;
                let mut texts = serde_json::Deserializer::from_slice(rest).into_iter::<String>();
                let text = texts.next()?.ok()?.into_bytes();
                let rest = &rest[texts.byte_offset()..];
                let stream = memchr::memmem::find(rest, b"\"stream\":\"std").map(|at| &rest[at + 13..])?;
                let is_part = !text.ends_with(b"\n");
                let end = text.trim_ascii_end().len();
                let text = Cow::Owned(if is_part { text } else { text[..end].to_vec() });
                Some(Stripped { text, is_part, is_stderr: stream.starts_with(b"err") })
            }
            Self::Syslog => behind_syslog_header(line).map(whole),
        }
    }
}

/// Returns what follows an RFC 3339 time and a blank.
fn behind_time(line: &[u8]) -> Option<&[u8]> {
    let end = memchr::memchr(b' ', line)?;
    timestamp::rfc3339(&line[..end]).map(|_| &line[end + 1..])
}

/// Returns what follows the header of a syslog line: `Nov 25 10:00:00 host program[1]: `, `TIME host program: `, or the
/// fields of RFC 5424. Clients cannot write it: it is what comes first.
fn behind_syslog_header(line: &[u8]) -> Option<&[u8]> {
    let (priority, rest) = match line.strip_prefix(b"<") {
        Some(rest) => {
            let end = memchr::memchr(b'>', &rest[..rest.len().min(4)])?;
            (true, &rest[end + 1..])
        }
        None => (false, line),
    };
    if let Some(rest) = rest.strip_prefix(b"1 ").filter(|_| priority) {
        return behind_rfc5424_header(rest);
    }
    let rest = match behind_time(rest) {
        Some(rest) => rest,
        None => {
            // `Nov  5 10:00:00 `
            let is_date = rest.get(3) == Some(&b' ') && rest.get(6) == Some(&b' ') && rest.get(9) == Some(&b':');
            rest.get(16..).filter(|_| is_date && rest.get(15) == Some(&b' '))?
        }
    };
    let behind_word = |rest: &[u8]| memchr::memchr(b' ', rest).map(|end| end + 1);
    let host = behind_word(rest)?;
    let tag = if rest[..host - 1].ends_with(b":") { 0 } else { host };
    let end = tag + behind_word(&rest[tag..])?;
    rest[..end - 1].ends_with(b":").then(|| &rest[end..])
}

/// Returns what follows `time host program process message [data]`.
fn behind_rfc5424_header(mut rest: &[u8]) -> Option<&[u8]> {
    for _ in 0..5 {
        rest = &rest[memchr::memchr(b' ', rest)? + 1..];
    }
    let rest = match rest.strip_prefix(b"- ") {
        Some(rest) => rest,
        None => {
            rest.strip_prefix(b"[")?;
            // A bracket in a value has a backslash in front.
            let mut end = memchr::memmem::find(rest, b"] ")?;
            while rest[..end].ends_with(b"\\") {
                end += 1 + memchr::memmem::find(&rest[end + 1..], b"] ")?;
            }
            &rest[end + 2..]
        }
    };
    Some(rest.strip_prefix("\u{feff}".as_bytes()).unwrap_or(rest))
}
