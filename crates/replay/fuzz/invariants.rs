//! Invariants of the readers of access logs. Each takes arbitrary bytes and panics if it is violated.

use std::borrow::Cow;
use std::fmt::Write;
use tidegate_access_log::LineWriter;
use tidegate_access_log::sample::sample_with;
use tidegate_policy::Timestamp;
use tidegate_replay::log::{LogLine, LoggedClient, line_utc_offset};

/// A line of a common format that is read has a UTC offset. Written again with all escapes, it is read as the same
/// request.
pub(crate) fn log_lines(bytes: &[u8]) {
    let Ok(Some(line)) = LogLine::read(bytes) else { return };
    if line.native.is_some() {
        return;
    }
    assert!(line_utc_offset(bytes).is_some(), "a line has a time, but no offset");
    // The form in which lines of other formats are kept is no text.
    if bytes.starts_with(b"\x1f") {
        return;
    }
    let Some(text) = combined(&line, bytes) else { return };
    let reread = LogLine::read(text.as_bytes()).ok().flatten().expect("a written line is read");
    assert_eq!(compared(&reread), compared(&line), "the round trip changes the request: {text}");
}

/// A request with any text of a client is logged as one line, and read as the same request. The parts of the text are
/// separated by line breaks.
pub(crate) fn native_lines(bytes: &[u8]) {
    let mut parts = bytes.split(|&byte| byte == b'\n');
    let mut next = || parts.next().unwrap_or_default();
    let (path, query) = (String::from_utf8_lossy(next()), String::from_utf8_lossy(next()));
    let (host, user_agent, referer) = (next(), next(), next());
    let record = sample_with(|it| {
        it.request.host = host;
        it.request.path = &path;
        it.request.query = Some(&query);
        it.request.user_agent = user_agent;
        it.request.referer = Some(referer);
    });
    let mut text = Vec::new();
    LineWriter::starting_at(Timestamp(0)).write_json(&mut text, &record);
    let line = text.strip_suffix(b"\n").expect("a line ends");
    assert!(!line.contains(&b'\n') && std::str::from_utf8(line).is_ok(), "not one line of text");
    let read = LogLine::read(line).expect("a written line is read").expect("a written line is not empty");
    let request = read.request.expect("a written line has a request");
    assert_eq!((&*request.path, request.query), (&*logged(&path), Some(logged(&query))), "path and query");
    // Other bytes are logged as characters of Latin-1.
    if let Ok(user_agent) = std::str::from_utf8(user_agent) {
        assert_eq!(read.user_agent.unwrap_or_default(), logged(user_agent).as_bytes(), "user agent");
    }
    if let Ok(referer) = std::str::from_utf8(referer) {
        assert_eq!(read.referer.unwrap_or_default(), logged(referer).as_bytes(), "referer");
    }
    assert_eq!((read.status, read.bytes), (record.response.status, record.response.bytes));
}

/// Returns a text as it is logged: its first 2 KiB.
fn logged(text: &str) -> Cow<'_, str> {
    match text.len() > 2048 {
        true => Cow::Owned(format!("{}…", &text[..text.floor_char_boundary(2048)])),
        false => Cow::Borrowed(text),
    }
}

/// Returns the line in the combined format, with the time as in `original`; `None` if the format cannot hold it.
fn combined(line: &LogLine<'_>, original: &[u8]) -> Option<String> {
    let LoggedClient::Address(client) = line.client else { return None };
    let request = line.request.as_ref()?;
    let host = line.host.as_deref().unwrap_or_default();
    let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte));
    // Other hosts could be read as an address, a time, or the prefix of a collector.
    if line.host.is_some()
        && !(is_name(host) && host.contains('.') && host.starts_with(|first: char| first.is_ascii_lowercase()))
    {
        return None;
    }
    let time = &original[memchr::memchr(b'[', original)?..];
    // The prefix of a collector has brackets, too.
    if time.get(3) != Some(&b'/') {
        return None;
    }
    let time = std::str::from_utf8(&time[..=memchr::memchr(b']', time)?]).ok()?;
    let mut text = String::new();
    if line.host.is_some() {
        // The port ends at the last colon, also of a name with a colon.
        write!(text, "{host}:80 ").ok()?;
    }
    write!(text, "{client} - - {time} \"{} {}", request.method, escaped(request.path.as_bytes())).ok()?;
    if let Some(query) = &request.query {
        write!(text, "?{}", escaped(query.as_bytes())).ok()?;
    }
    write!(text, " {:?}\" {} {}", request.version, line.status, line.bytes).ok()?;
    let field = |value: &Option<Cow<'_, [u8]>>| value.as_ref().map_or("-".to_owned(), |value| escaped(value));
    if line.referer.is_some() || line.user_agent.is_some() {
        write!(text, " \"{}\" \"{}\"", field(&line.referer), field(&line.user_agent)).ok()?;
    }
    Some(text)
}

/// Returns a quoted text with all bytes escaped that are not letters, digits or usual in targets.
fn escaped(bytes: &[u8]) -> String {
    let escape = |&byte: &u8| match byte {
        b' ' | b'!' | b'#'..=b'[' | b']'..=b'~' => char::from(byte).to_string(),
        b'"' | b'\\' => format!("\\{}", char::from(byte)),
        _ => format!("\\x{byte:02x}"),
    };
    bytes.iter().map(escape).collect()
}

/// Returns what the combined format holds of a request.
fn compared(line: &LogLine<'_>) -> String {
    let LogLine { at, client, request, host, status, bytes, referer, user_agent, .. } = line;
    format!("{:?}", (at, client, request, host, status, bytes, referer, user_agent))
}
