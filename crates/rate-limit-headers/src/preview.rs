//! Previews the response that a client would receive for a decision.

use super::{RateLimitHeaders, RateLimitSnapshot};
use http::{HeaderMap, StatusCode};
use tidegate_config::Settings;
use tidegate_http1::Fields;
use tidegate_policy::Timestamp;

/// The head of a response, as determined by the decision.
#[derive(Clone, Debug)]
pub struct ResponsePreview {
    /// Status; `None` if the origin determines it.
    pub status: Option<StatusCode>,
    /// `Retry-After` in seconds, including the jitter.
    pub retry_after_s: Option<u64>,
    /// Rate-limit fields.
    pub fields: HeaderMap,
}

/// Returns the response for `snapshot`, with a retry time increased by `spread`, a ratio of the wait.
pub fn preview(settings: &Settings, snapshot: RateLimitSnapshot<'_>, spread: f64, now: Timestamp) -> ResponsePreview {
    let rules = &settings.rules;
    let class = &rules[snapshot.class];
    let status = snapshot.refusal.map(|refusal| refusal.status(class));
    let mut fields = Fields::new();
    let headers = RateLimitHeaders::new(&settings.headers, rules);
    headers.write(rules, snapshot, now, status.unwrap_or(StatusCode::OK), &mut fields);
    let retry_after_s = snapshot.refusal.and_then(|refusal| refusal.retry_after(class, spread));
    ResponsePreview { status, retry_after_s, fields: fields.to_map() }
}
