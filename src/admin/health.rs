//! Liveness and readiness. Both need no token.

use super::DynGateway;
use super::problem::Problem;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

/// Responds that the process is alive.
pub(super) async fn liveness() -> Json<Value> {
    Json(json!({ "status": "alive" }))
}

/// Responds that the gateway is ready: the origin is resolved and the ledger is open. Otherwise 503 with the reasons.
pub(super) async fn readiness(State(gateway): State<DynGateway>) -> Result<Json<Value>, Problem> {
    let reasons = gateway.not_ready_reasons();
    match reasons.is_empty() {
        true => Ok(Json(json!({ "status": "ready" }))),
        false => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, reasons.join(" "))),
    }
}
