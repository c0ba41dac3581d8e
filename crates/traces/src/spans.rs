//! Spans of a finished request.

use super::context::TraceContext;
use std::net::IpAddr;
use std::time::Duration;
use tidegate_access_log::{Record, RecordedOutcome};
use tidegate_policy::bot_detection::HeadersSeen;
use tidegate_policy::{Reason, Timestamp};

/// Longest text of a client in a span, in bytes.
const MAX_TEXT: usize = 512;

/// What the spans of a finished request say: one of the gateway, and one of its request to the origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Spans {
    /// Ids.
    pub context: TraceContext,
    /// Id of the decision.
    pub decision: u64,
    /// Time of the first byte of the request.
    pub started_at: Timestamp,
    /// Time until the last byte of the response.
    pub duration: Duration,
    /// Method.
    pub method: String,
    /// Name of the route.
    pub route: String,
    /// `http` or `https`; `None` if the request was rejected before that was read.
    pub scheme: Option<&'static str>,
    /// Host that the client asked for.
    pub host: String,
    /// Path without the query, which may have secrets.
    pub path: String,
    /// User agent.
    pub user_agent: String,
    /// Version of HTTP.
    pub version: &'static str,
    /// Address of the client.
    pub client: IpAddr,
    /// Class of the client.
    pub class: String,
    /// Kind of the client.
    pub kind: &'static str,
    /// Reason of a refusal.
    pub refusal: Option<Reason>,
    /// Status of the response.
    pub status: u16,
    /// Body bytes of the response.
    pub bytes: u64,
    /// Request to the origin, if there was one.
    pub origin: Option<OriginSpan>,
}

/// Span of a request to the origin.
#[derive(Clone, Debug, PartialEq)]
pub struct OriginSpan {
    /// Time at which it was sent.
    pub started_at: Timestamp,
    /// Time until the head of the response, or until it failed.
    pub duration: Duration,
    /// Name of the origin, where there are several.
    pub name: Option<String>,
    /// Status; `None` without a response.
    pub status: Option<u16>,
}

impl Spans {
    /// Returns the spans of a request.
    pub fn new(record: &Record<'_>, context: TraceContext) -> Self {
        let Record { client, request, decision, response, .. } = record;
        let total = u64::try_from(response.total.as_nanos()).unwrap_or(u64::MAX);
        let origin = response.origin.map(|call| OriginSpan {
            started_at: record.admitted_at + decision.scope_wait,
            duration: call.duration,
            name: decision.origin.map(str::to_owned),
            status: call.status,
        });
        Self {
            context,
            decision: record.id,
            started_at: Timestamp(record.settled_at.0.saturating_sub(total)),
            duration: response.total,
            method: request.method.to_string(),
            route: decision.route_name.to_owned(),
            scheme: scheme(client.headers_seen),
            host: text(request.host),
            path: text(request.path.as_bytes()),
            user_agent: text(request.user_agent),
            version: match request.version {
                http::Version::HTTP_10 => "1.0",
                http::Version::HTTP_2 => "2",
                _ => "1.1",
            },
            client: client.address,
            class: client.class_name.to_owned(),
            kind: client.kind.name(),
            refusal: match decision.outcome {
                RecordedOutcome::Refused(reason) => Some(reason),
                RecordedOutcome::Admitted { .. } => None,
            },
            status: response.status,
            bytes: response.bytes,
            origin,
        }
    }
}

fn scheme(seen: HeadersSeen) -> Option<&'static str> {
    seen.contains(HeadersSeen::INSPECTED).then(|| if seen.contains(HeadersSeen::TLS) { "https" } else { "http" })
}

/// Returns the beginning of what a client has sent.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_TEXT)]).into_owned()
}
