//! The quotas as they stand, and their correction by hand.

use super::Gate;
use super::problem::Problem;
use super::state::{amount, quota};
use crate::policy::Units;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, Extension, Path, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::SocketAddr;
use tracing::info;

/// A correction, as sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Correction {
    used: serde_json::Number,
}

/// All quotas of the rules in force.
pub(super) async fn list(State(gate): State<Gate>) -> Json<Value> {
    Json(gate.quotas().iter().map(quota).collect())
}

/// Sets what a quota has used, and leaves a line in the log that says who did it.
pub(super) async fn set_used(
    State(gate): State<Gate>,
    Path(name): Path<String>,
    peer: Option<Extension<ConnectInfo<SocketAddr>>>,
    body: Bytes,
) -> Result<Json<Value>, Problem> {
    let used = read(&body)?;
    let unknown = |_| Problem::new(StatusCode::NOT_FOUND, "There is no quota of that name.");
    let (from, to) = gate.set_used(&name, used).map_err(unknown)?;
    let peer = peer.map_or("unknown".to_owned(), |Extension(ConnectInfo(peer))| peer.to_string());
    info!(quota = name, %from, %to, %peer, "Quota {name} corrected by hand from {from} to {to}, from {peer}");
    Ok(Json(json!({ "name": name, "from": amount(from), "to": amount(to) })))
}

fn read(body: &[u8]) -> Result<Units, Problem> {
    let expected = r#"Send {"used": N}: a number, not negative, with at most a fraction."#;
    let wrong = |why: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, format!("{expected} {why}"));
    let sent: Correction = serde_json::from_slice(body).map_err(|error| wrong(error.to_string()))?;
    sent.used.to_string().parse().map_err(|_| wrong(format!("Found {}.", sent.used)))
}
