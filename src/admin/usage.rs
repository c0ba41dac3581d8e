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
use tidegate_config::did_you_mean;

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
    /// End of the window; of a sliding one, the time at which more units are left.
    pub window_end: String,
}

/// Query of `GET /api/v1/usage/history`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    /// Month such as `2026-11`; the current one if it is left out.
    month: Option<String>,
    /// Name of a customer; all if it is left out.
    key: Option<String>,
}

/// Usage of one budget by one customer in a window that has ended.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UsageRecord {
    /// Name of the customer.
    pub key: String,
    /// Class of the customer at the end of the window.
    pub class: String,
    /// Name of the quota.
    pub quota: String,
    /// Limit of the customer, in units.
    pub limit: Amount,
    /// Units used in the window, or in one of the 12 parts of a sliding one.
    pub used: Amount,
    /// Start of the window or part.
    pub window_start: String,
    /// End of the window or part.
    pub window_end: String,
}

/// Lists the usage in the windows of a month that have ended, by customer, quota and window.
pub(super) async fn history(
    State(gateway): State<DynGateway>,
    query: Result<Query<HistoryQuery>, QueryRejection>,
) -> Result<Json<Vec<UsageRecord>>, Problem> {
    let Query(HistoryQuery { month, key }) =
        query.map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.body_text()))?;
    // Reads a file, and must not block the control runtime.
    let records = tokio::task::spawn_blocking(move || gateway.usage_history(month.as_deref())).await;
    let records = records.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let mut records = records.map_err(|error| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, error))?;
    records.retain(|record| key.as_ref().is_none_or(|key| record.key == *key));
    Ok(Json(records))
}

/// Lists the usage of all customers, or of one, by name and quota.
pub(super) async fn list(
    State(gateway): State<DynGateway>,
    query: Result<Query<UsageQuery>, QueryRejection>,
) -> Result<Json<Vec<UsageDocument>>, Problem> {
    let Query(UsageQuery { key }) = query.map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.body_text()))?;
    let mut usage = gateway.customer_usage();
    if let Some(key) = key {
        let mut others: Vec<String> = usage.iter().map(|usage| usage.key.clone()).collect();
        usage.retain(|usage| usage.key == key);
        if usage.is_empty() {
            others.dedup();
            return Err(Problem::new(StatusCode::NOT_FOUND, unknown_customer(&key, &others)));
        }
    }
    Ok(Json(usage))
}

/// Returns what is wrong with `key`, which is none of the customers `known`.
fn unknown_customer(key: &str, known: &[String]) -> String {
    let names = known.iter().map(String::as_str);
    let hint = match known.len() {
        0 => "write per: api_key at a quota, and api_keys".to_owned(),
        1..=MAX_LISTED => format!("known: {}", known.join(", ")),
        more => format!("known: {} and {} more", known[..MAX_LISTED].join(", "), more - MAX_LISTED),
    };
    format!("key: no customer {key:?}{} has a budget; {hint}", did_you_mean(key, names))
}

/// Number of customers that an error lists.
const MAX_LISTED: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_customer_is_told_which_ones_there_are() {
        let names = |count: usize| (0..count).map(|number| format!("customer-{number}")).collect::<Vec<_>>();
        assert_eq!(
            unknown_customer("nobody", &[]),
            "key: no customer \"nobody\" has a budget; write per: api_key at a quota, and api_keys"
        );
        assert_eq!(
            unknown_customer("acne", &["acme".into(), "trial".into()]),
            "key: no customer \"acne\" (did you mean \"acme\"?) has a budget; known: acme, trial"
        );
        let many = unknown_customer("nobody", &names(25));
        assert!(many.ends_with("customer-18, customer-19 and 5 more"), "{many}");
    }
}
