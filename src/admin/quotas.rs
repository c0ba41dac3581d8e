//! Quotas of the admin API, and their manual correction.

use super::DynGateway;
use super::amount::Amount;
use super::audit_text::{self, MAX_NAME};
use super::corrections::{CorrectionDocument, Corrections};
use super::listener::OptionalPeer;
use super::problem::Problem;
use super::state::QuotaDocument;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use tidegate_access_log::rfc3339;
use tidegate_policy::Units;

/// Body of `PUT /api/v1/quotas/{name}/used`: `used` is a number or a string such as "12.25", `by` an optional name of 1
/// to 64 characters.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetUsedBody {
    used: Value,
    by: Option<String>,
}

/// Body of `POST /api/v1/quotas/{name}/reset`: empty, or an optional name `by`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResetBody {
    by: Option<String>,
}

/// Response to a correction of a quota.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct CorrectionResponse {
    /// Name of the quota.
    pub name: String,
    /// Usage before the correction, in units.
    pub from: Amount,
    /// Usage after the correction, in units.
    pub to: Amount,
}

/// Lists all quotas of the current rules; the data of `tidegate quota show`.
pub(super) async fn list(State(gateway): State<DynGateway>) -> Json<Value> {
    Json(json!(gateway.state().quotas))
}

/// Returns one quota.
pub(super) async fn show(State(gateway): State<DynGateway>, Path(name): Path<String>) -> Result<Json<Value>, Problem> {
    match find_quota(&name, &gateway.state().quotas) {
        Ok(quota) => Ok(Json(json!(quota))),
        Err(error) => Err(Problem::new(StatusCode::NOT_FOUND, error)),
    }
}

/// Sets the usage of the current window and logs the correction. An enforced quota accepts 0 to its limit, less the
/// units reserved for requests in flight; a quota in shadow mode may exceed its limit.
///
/// Ends a Redis recovery of the quota and a closure by `sync_from`. Responds with `name`, `from` and `to`. The
/// correction is active at once, and stored before the response (or a warning is logged after 2 s).
pub(super) async fn set_used(
    State(gateway): State<DynGateway>,
    State(corrections): State<Arc<Corrections>>,
    Path(name): Path<String>,
    peer: OptionalPeer,
    body: Bytes,
) -> Result<Json<Value>, Problem> {
    let sent: SetUsedBody = serde_json::from_slice(&body)
        .map_err(|error| malformed_body(r#"{"used": N} or {"used": N, "by": "NAME"}"#, &error))?;
    correct(&gateway, &corrections, &name, &sent.used, peer, sent.by)
}

/// Sets the usage to 0: the full limit of the window is available again, less reserved units.
pub(super) async fn reset(
    State(gateway): State<DynGateway>,
    State(corrections): State<Arc<Corrections>>,
    Path(name): Path<String>,
    peer: OptionalPeer,
    body: Bytes,
) -> Result<Json<Value>, Problem> {
    let sent: ResetBody = match body.is_empty() {
        true => ResetBody::default(),
        false => serde_json::from_slice(&body)
            .map_err(|error| malformed_body(r#"an empty body or {"by": "NAME"}"#, &error))?,
    };
    correct(&gateway, &corrections, &name, &json!(0), peer, sent.by)
}

fn correct(
    gateway: &DynGateway,
    corrections: &Corrections,
    name: &str,
    used: &Value,
    peer: OptionalPeer,
    by: Option<String>,
) -> Result<Json<Value>, Problem> {
    let quotas = gateway.state().quotas;
    if find_quota(name, &quotas).is_err() && gateway.customer_usage().iter().any(|usage| usage.quota == *name) {
        let remedy = "give one customer more by limits in api_keys, or all of them by limit or limits of the quota";
        let problem = format!("quota: {name} has a budget for each key, and their usage cannot be set; {remedy}");
        return Err(Problem::new(StatusCode::NOT_FOUND, problem));
    }
    let used = check(name, used, by.as_deref(), &quotas)?;
    // The quota can disappear in between only by a reload.
    let not_found = |_| Problem::new(StatusCode::NOT_FOUND, format!("quota: {name} was removed by a reload"));
    let (from, to) = gateway.set_used(name, used).map_err(not_found)?;
    let response = CorrectionResponse { name: name.to_owned(), from: from.into(), to: to.into() };
    corrections.record(CorrectionDocument {
        time: rfc3339(gateway.now()),
        quota: name.to_owned(),
        from: from.into(),
        to: to.into(),
        peer: peer.map(|Extension(peer)| peer.to_string()),
        by,
        ..CorrectionDocument::default()
    });
    Ok(Json(json!(response)))
}

/// Returns the units to set, or a problem with all errors, one per line.
fn check(name: &str, used: &Value, by: Option<&str>, quotas: &[QuotaDocument]) -> Result<Units, Problem> {
    let quota = find_quota(name, quotas);
    let limit = quota.as_ref().ok().filter(|quota| quota.enforce).and_then(|quota| quota.limit.units());
    let used = parse_units(used, limit);
    let by = audit_text::check("by", by, MAX_NAME);
    let status = if quota.is_err() { StatusCode::NOT_FOUND } else { StatusCode::UNPROCESSABLE_ENTITY };
    match (&quota, &used, &by) {
        (Ok(_), Ok(used), Ok(())) => Ok(*used),
        _ => {
            let errors: Vec<String> = [quota.err(), used.err(), by.err()].into_iter().flatten().collect();
            Err(Problem::new(status, errors.join("\n")))
        }
    }
}

fn find_quota<'a>(name: &str, quotas: &'a [QuotaDocument]) -> Result<&'a QuotaDocument, String> {
    quotas.iter().find(|view| view.name == name).ok_or_else(|| {
        let names: Vec<&str> = quotas.iter().map(|view| view.name.as_str()).collect();
        let hint = match names.is_empty() {
            true => "the current config has no quotas".to_owned(),
            false => format!("known: {}", names.join(", ")),
        };
        format!("quota: unknown name {name:?}; {hint}")
    })
}

/// Parses units from a JSON number or string, up to `limit` if there is one.
fn parse_units(sent: &Value, limit: Option<Units>) -> Result<Units, String> {
    let range = limit.map_or("of at least 0".to_owned(), |limit| format!("from 0 to {limit}"));
    let text = match sent {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match text.parse::<Units>() {
        Ok(used) if limit.is_some_and(|limit| used > limit) => {
            Err(format!("used: {used} exceeds the limit; give a number {range}"))
        }
        Ok(used) => Ok(used),
        Err(_) => Err(format!("used: found {sent}; give a number {range}, such as 12 or 0.25")),
    }
}

fn malformed_body(expected: &str, error: &serde_json::Error) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, format!("body: {error}; send {expected}"))
}
