//! Reads requests out of a log in Apache's combined format, so that they can be sent again.
//!
//! A strict reader would not do: real logs hold quotes that nobody escaped, and lines that were never a request.

use super::crowd::Visit;
use http::uri::PathAndQuery;
use tidegate::policy::Timestamp;

/// One request as a log tells it.
#[derive(Clone, Debug)]
pub struct Line {
    pub at: Timestamp,
    pub status: u16,
    pub http10: bool,
    pub visit: Visit,
}

/// All requests of a log that can be sent once more; the other lines are left out.
pub fn read(log: &str) -> Vec<Visit> {
    log.lines().filter_map(line).map(|line| line.visit).collect()
}

/// One of them, with what became of it.
pub fn line(line: &str) -> Option<Line> {
    let (client, rest) = line.split_once(' ')?;
    let (time, rest) = rest.split_once('[')?.1.split_once(']')?;
    let (request, rest) = quoted(rest)?;
    let status = rest.trim_start().split(' ').next().and_then(|status| status.parse().ok()).unwrap_or(200);
    let (referer, rest) = quoted(rest)?;
    let (user_agent, _) = quoted(rest)?;
    let mut words = request.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let version = words.next().filter(|version| version.starts_with("HTTP/"))?;
    let sendable = METHODS.contains(&method) && target.starts_with('/') && target.parse::<PathAndQuery>().is_ok();
    let said = |field: String| Some(field).filter(|field| field != "-");
    let text = |field: &str| !field.contains(|letter: char| letter.is_control());
    (sendable && text(&referer) && text(&user_agent)).then(|| Line {
        at: moment(time).unwrap_or_default(),
        status,
        http10: version == "HTTP/1.0",
        visit: Visit {
            client: client.parse().unwrap_or(SOMEBODY.into()),
            method: method.to_owned(),
            target: target.to_owned(),
            user_agent: said(user_agent).unwrap_or_default(),
            referer: said(referer),
            kind: None,
        },
    })
}

/// `07/Jun/2024:00:00:09 +0900`
fn moment(text: &str) -> Option<Timestamp> {
    let zoned = jiff::Zoned::strptime("%d/%b/%Y:%H:%M:%S %z", text).ok()?;
    u64::try_from(zoned.timestamp().as_second()).ok().map(Timestamp::from_seconds)
}

/// The next field in quotes, and what follows it. Only a quote before a space or the end closes it.
fn quoted(line: &str) -> Option<(String, &str)> {
    let inside = line.split_once('"')?.1;
    let bytes = inside.as_bytes();
    let closes = |at: &usize| {
        bytes[*at] == b'"' && !inside[..*at].ends_with('\\') && matches!(bytes.get(at + 1), None | Some(b' '))
    };
    let end = (0..bytes.len()).find(closes)?;
    Some((inside[..end].replace("\\\"", "\"").replace("\\\\", "\\"), &inside[end + 1..]))
}

/// What a proxy passes on.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Stands in for a client that the log names by host name.
const SOMEBODY: [u8; 4] = [198, 18, 0, 1];
