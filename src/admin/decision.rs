//! Why was I refused? The line of a decision and what led to it, as long as it is remembered.

use super::Gate;
use super::problem::Problem;
use crate::explain::Explanation;
use crate::telemetry::DECISION_RING_LEN;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

/// The access-log line of decision `id`, an id as in `X-Tidegate-Decision`.
pub(super) async fn show(State(gate): State<Gate>, Path(id): Path<String>) -> Result<Response, Problem> {
    let line = gate.decision(number(&id)?).ok_or_else(not_found)?;
    Ok(([(CONTENT_TYPE, "application/json")], line).into_response())
}

/// Each step that led to decision `id`, and what would have let the request through.
pub(super) async fn explain(State(gate): State<Gate>, Path(id): Path<String>) -> Result<Json<Explanation>, Problem> {
    gate.explanation(number(&id)?).map(Json).ok_or_else(not_found)
}

fn number(id: &str) -> Result<u64, Problem> {
    // Digits only: the parser would take a sign, too.
    let well_formed = id.len() == 16 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = u64::from_str_radix(id, 16).ok().filter(|_| well_formed);
    number.ok_or_else(|| Problem::new(StatusCode::BAD_REQUEST, "A decision id is 16 hexadecimal digits."))
}

fn not_found() -> Problem {
    let kept = format!(
        "The gate does not remember this decision: each worker keeps its last {DECISION_RING_LEN}. The access log may \
         have it, for `tidegate explain --log FILE:LINE`."
    );
    Problem::new(StatusCode::NOT_FOUND, kept)
}
