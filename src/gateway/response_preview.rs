//! What a client would be told of a decision, for whoever asks without being one.

use super::problem::Problem;
use super::rate_limit_headers::{RateLimitHeaders, RateLimitSnapshot};
use crate::config::Settings;
use crate::http1::Fields;
use crate::policy::Timestamp;
use http::{HeaderMap, StatusCode};

/// The head of an answer, as far as it follows from the decision.
#[derive(Clone, Debug)]
pub struct ResponsePreview {
    /// The status; none where it is the origin's to give.
    pub status: Option<StatusCode>,
    /// How long the client is told to stay away, with what is added to spread returns.
    pub retry_after_s: Option<u64>,
    /// What is said of its allowance.
    pub fields: HeaderMap,
}

/// The answer that says what is `told`, to a client whose return is put off by `spread`, a share of its wait.
pub fn preview(settings: &Settings, told: RateLimitSnapshot<'_>, spread: f64, now: Timestamp) -> ResponsePreview {
    let rules = &settings.rules;
    let problem = Problem::refused(rules, told, spread);
    let status = problem.as_ref().map(Problem::status);
    let mut fields = Fields::new();
    let announcements = RateLimitHeaders::new(&settings.headers, rules);
    announcements.write(rules, told, now, status.unwrap_or(StatusCode::OK), &mut fields);
    let retry_after_s = problem.as_ref().and_then(Problem::retry_after);
    ResponsePreview { status, retry_after_s, fields: fields.to_map() }
}
