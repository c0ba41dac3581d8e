//! Lookup of recent decisions: the access log line and the explanation. Each worker stores its last 1,024 decisions.

use super::DynGateway;
use super::problem::Problem;
use crate::telemetry::DECISION_RING_LEN;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_access_log::EvidenceWord;
use tidegate_replay::explain::Explanation;

/// Filters of `GET /api/v1/decisions`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DecisionFilter {
    class: Option<String>,
    reason: Option<String>,
    /// Beginning of the client's address.
    client: Option<String>,
    limit: Option<usize>,
}

/// Lists the access log lines of recent decisions, latest first.
pub(super) async fn list(
    State(gateway): State<DynGateway>,
    query: Result<Query<DecisionFilter>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let Query(filter) = query.map_err(|error| {
        let detail = format!("query: {error}; known: class, reason, client, limit");
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    })?;
    // Reads up to a megabyte, and must not delay other tasks.
    let list = tokio::task::spawn_blocking(move || filter.select(&gateway.recent_decisions()));
    let decisions = list.await.map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "The search panicked."))?;
    Ok(Json(json!({ "decisions": decisions })))
}

impl DecisionFilter {
    /// Returns the matching lines by time, latest first.
    fn select(&self, lines: &[Vec<u8>]) -> Vec<Value> {
        let limit = self.limit.unwrap_or(DEFAULT_LISTED).min(MAX_LISTED);
        let mut matches: Vec<(LineHead<'_>, &[u8])> = lines
            .iter()
            .filter_map(|line| Some((serde_json::from_slice::<LineHead<'_>>(line).ok()?, &**line)))
            .filter(|(head, _)| self.matches(head))
            .collect();
        matches.sort_unstable_by(|(one, _), (other, _)| other.time.cmp(one.time));
        matches.into_iter().take(limit).filter_map(|(_, line)| with_evidence_text(line)).collect()
    }

    fn matches(&self, head: &LineHead<'_>) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| wanted.is_empty() || Some(wanted) == found)
        };
        let reason = head.reason.or(head.shadow_reason);
        is(&self.class, Some(head.class))
            && is(&self.reason, reason)
            && self.client.as_deref().is_none_or(|start| head.client.starts_with(start.trim()))
    }
}

/// Returns a line with its evidence as sentences, besides.
fn with_evidence_text(line: &[u8]) -> Option<Value> {
    let mut document: Value = serde_json::from_slice(line).ok()?;
    let client = document["client"].as_str().unwrap_or_default();
    let entries = document["evidence"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let sentences: Vec<String> = entries.map(|entry| EvidenceWord::describe(entry, client)).collect();
    document.as_object_mut()?.insert("evidence_text".into(), json!(sentences));
    Some(document)
}

/// Members of a line that select it.
#[derive(Deserialize)]
struct LineHead<'a> {
    time: &'a str,
    client: &'a str,
    class: &'a str,
    reason: Option<&'a str>,
    shadow_reason: Option<&'a str>,
}

/// Returns the access log line of decision `id`, as sent in `X-Tidegate-Decision`.
pub(super) async fn show(State(gateway): State<DynGateway>, Path(id): Path<String>) -> Result<Response, Problem> {
    let line = gateway.decision(parse_id(&id)?).ok_or_else(not_found)?;
    Ok(([(CONTENT_TYPE, "application/json")], line).into_response())
}

/// Returns the explanation of decision `id`: its steps, and the changes that would admit the request. It is the
/// document of `tidegate explain ID --json`.
pub(super) async fn explain(
    State(gateway): State<DynGateway>,
    Path(id): Path<String>,
) -> Result<Json<Explanation>, Problem> {
    gateway.explanation(parse_id(&id)?).map(Json).ok_or_else(not_found)
}

fn parse_id(id: &str) -> Result<u64, Problem> {
    // Digits only: the parser would also accept a sign.
    let well_formed = id.len() == 16 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = u64::from_str_radix(id, 16).ok().filter(|_| well_formed);
    number.ok_or_else(|| Problem::new(StatusCode::BAD_REQUEST, "A decision id is 16 hexadecimal digits."))
}

fn not_found() -> Problem {
    let detail = format!(
        "Decision not found: each worker keeps its last {DECISION_RING_LEN}. If the access log has it, use `tidegate \
         explain --log FILE:LINE`. Invalid requests, those for other hosts and redirects to https are recorded in neither."
    );
    Problem::new(StatusCode::NOT_FOUND, detail)
}

/// Number of decisions listed without a `limit`, and at most.
const DEFAULT_LISTED: usize = 50;
const MAX_LISTED: usize = 500;
