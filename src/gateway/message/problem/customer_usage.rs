//! Usage of a customer as JSON.

use super::JSON;
use super::forward_auth::{document_response, number};
use crate::gateway::message::response_body::ResponseBody;
use http::StatusCode;
use hyper::body::Body;
use serde_json::{Value, json};
use tidegate_access_log::{hexadecimal, rfc3339};
use tidegate_engine::BudgetUsage;
use tidegate_http1::{Name, Response};

/// Returns the usage of the budgets of a customer of `class`, with the decision `id`, and the length of the body.
pub(in crate::gateway) fn customer_usage<'a>(
    class: &str,
    budgets: impl Iterator<Item = (&'a str, BudgetUsage)>,
    id: u64,
) -> (Response<ResponseBody>, u64) {
    let budget = |(quota, usage): (&str, BudgetUsage)| {
        json!({
            "quota": quota,
            "limit": number(usage.limit),
            "used": number(usage.used),
            "remaining": number(usage.limit.saturating_sub(usage.used)),
            "window_end": rfc3339(usage.window_end),
        })
    };
    let budgets: Vec<Value> = budgets.map(budget).collect();
    let mut response = document_response(StatusCode::OK, JSON, &json!({ "class": class, "budgets": budgets }));
    response.fields.append(Name::Decision, &hexadecimal(id));
    let length = response.body.size_hint().lower();
    (response, length)
}
