//! Lookup of recent decisions: the access log line and the explanation. Each worker stores its last 1,024 decisions.

use super::DynGateway;
use super::problem::Problem;
use crate::telemetry::DECISION_RING_LEN;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use tidegate_replay::explain::Explanation;

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
         explain --log FILE:LINE`."
    );
    Problem::new(StatusCode::NOT_FOUND, detail)
}
