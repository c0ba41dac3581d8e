//! Parses requests from logs of other servers, so that they can be sent again.

use super::load::LoadRequest;
use http::Version;
use http::uri::PathAndQuery;
use tidegate_policy::Timestamp;
use tidegate_replay::log::{self, RequestLine};

/// A request of a log.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    pub at: Timestamp,
    pub status: u16,
    pub http10: bool,
    pub request: LoadRequest,
}

/// Returns all requests of a log that can be sent again. Skips other lines.
pub fn sendable_requests(log: &str) -> Vec<LoadRequest> {
    log.lines().filter_map(parse_line).map(|line| line.request).collect()
}

/// Parses one line, including the outcome of its request.
pub fn parse_line(text: &str) -> Option<RecordedRequest> {
    let log::LogLine { at, status, client, request: request_line, referer, user_agent, .. } =
        log::LogLine::read(text.as_bytes()).ok()??;
    let RequestLine { method, path, query, version } = request_line?;
    let target = query.map_or_else(|| path.to_string(), |query| format!("{path}?{query}"));
    let is_sendable = METHODS.contains(&method.as_str())
        && version != Version::HTTP_09
        && target.starts_with('/')
        && target.parse::<PathAndQuery>().is_ok();
    let (referer, user_agent) = (referer.as_deref().map(lossy_text), user_agent.as_deref().map(lossy_text));
    let text = |field: &Option<String>| !field.as_ref().is_some_and(|field| field.contains(char::is_control));
    (is_sendable && text(&referer) && text(&user_agent)).then(|| RecordedRequest {
        at,
        status,
        http10: version == Version::HTTP_10,
        request: LoadRequest {
            client: client.address(),
            method: method.to_string(),
            target,
            user_agent: user_agent.unwrap_or_default(),
            referer,
            kind: None,
        },
    })
}

fn lossy_text(field: &[u8]) -> String {
    String::from_utf8_lossy(field).into_owned()
}

/// Methods that the gateway forwards.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
