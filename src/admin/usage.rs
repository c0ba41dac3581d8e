//! What the customers of listed API keys have used of their budgets.

use super::DynGateway;
use super::amount::Amount;
use super::problem::Problem;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Query of `GET /api/v1/usage`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UsageQuery {
    /// Name of a customer; all if it is left out.
    key: Option<String>,
}

/// Usage of one budget by one customer.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UsageDocument {
    /// Name of the customer.
    pub key: String,
    /// Class of the customer.
    pub class: String,
    /// False if the key has expired or is disabled.
    pub valid: bool,
    /// Name of the quota.
    pub quota: String,
    /// Limit of the customer per window, in units.
    pub limit: Amount,
    /// Settled plus reserved units of the current window.
    pub used: Amount,
    /// Units left.
    pub remaining: Amount,
    /// End of the window.
    pub window_end: String,
}

/// Lists the usage of all customers, or of one, by name and quota.
pub(super) async fn list(
    State(gateway): State<DynGateway>,
    query: Result<Query<UsageQuery>, QueryRejection>,
) -> Result<Json<Vec<UsageDocument>>, Problem> {
    let Query(UsageQuery { key }) = query.map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.body_text()))?;
    let mut usage = gateway.customer_usage();
    if let Some(key) = key {
        usage.retain(|usage| usage.key == key);
        if usage.is_empty() {
            return Err(Problem::new(StatusCode::NOT_FOUND, format!("key: no customer {key} has a budget")));
        }
    }
    Ok(Json(usage))
}
