//! Parses requests from logs of other servers, so that they can be sent again.

use super::crowd::Visit;
use http::Version;
use http::uri::PathAndQuery;
use tidegate::policy::Timestamp;
use tidegate::replay::log::{self, RequestLine};

/// A request of a log.
#[derive(Clone, Debug)]
pub struct Line {
    pub at: Timestamp,
    pub status: u16,
    pub http10: bool,
    pub visit: Visit,
}

/// Returns all requests of a log that can be sent again. Skips other lines.
pub fn read(log: &str) -> Vec<Visit> {
    log.lines().filter_map(line).map(|line| line.visit).collect()
}

/// Parses one line, including the outcome of its request.
pub fn line(text: &str) -> Option<Line> {
    let log::LogLine { at, status, client, request: asked, referer, user_agent, .. } =
        log::LogLine::read(text.as_bytes()).ok()??;
    let RequestLine { method, path, query, version } = asked?;
    let target = query.map_or_else(|| path.to_string(), |query| format!("{path}?{query}"));
    let sendable = METHODS.contains(&method.as_str())
        && version != Version::HTTP_09
        && target.starts_with('/')
        && target.parse::<PathAndQuery>().is_ok();
    let (referer, user_agent) = (referer.as_deref().map(said), user_agent.as_deref().map(said));
    let text = |field: &Option<String>| !field.as_ref().is_some_and(|field| field.contains(char::is_control));
    (sendable && text(&referer) && text(&user_agent)).then(|| Line {
        at,
        status,
        http10: version == Version::HTTP_10,
        visit: Visit {
            client: client.address(),
            method: method.to_string(),
            target,
            user_agent: user_agent.unwrap_or_default(),
            referer,
            kind: None,
        },
    })
}

fn said(field: &[u8]) -> String {
    String::from_utf8_lossy(field).into_owned()
}

/// Methods that the gateway forwards.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
