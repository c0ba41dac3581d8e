//! Is the process alive, and would a request sent now be served?

use super::Gate;
use super::problem::Problem;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

/// Alive, as long as it can say so.
pub(super) async fn liveness() -> Json<Value> {
    Json(json!({ "status": "alive" }))
}

/// Ready, or what is missing.
pub(super) async fn readiness(State(gate): State<Gate>) -> Result<Json<Value>, Problem> {
    let missing = gate.not_ready_reasons();
    match missing.is_empty() {
        true => Ok(Json(json!({ "status": "ready" }))),
        false => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, missing.join(" "))),
    }
}
