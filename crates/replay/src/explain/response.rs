//! Response to the client.

use super::assessment::{AssessedDecision, Assessment};
use super::copy_use::CopyEffect;
use super::explanation::{self, ResponseSummary};
use super::input::ExplainInput;
use super::logged_outcome::LoggedOutcome;
use crate::terminal::format_duration;
use std::collections::BTreeMap;
use tidegate_engine::{BucketUsage, QuotaUsage};
use tidegate_policy::decide::QuotaSnapshot;
use tidegate_policy::tier::Share;
use tidegate_policy::{Reason, Verdict};
use tidegate_rate_limit_headers::{RateLimitSnapshot, preview};

/// Returns the response, or both possible ones if it depends on earlier requests.
pub(super) fn responses(input: &ExplainInput<'_>, assessment: &Assessment<'_>) -> Vec<ResponseSummary> {
    let outcomes = assessment.outcomes();
    let depends_on = if outcomes.len() > 1 { dependencies(input, assessment) } else { Vec::new() };
    let summary = |assessed| ResponseSummary { depends_on: depends_on.clone(), ..response(input, assessed) };
    let summaries = outcomes.iter().map(summary);
    match &input.logged {
        Some(logged) if assessment.is_logged_response => {
            summaries.map(|summary| apply_logged(summary, logged)).collect()
        }
        // The replay decides as the gateway did, so the logged status applies.
        Some(LoggedOutcome { status, decision: Some(_), .. }) if !assessment.differs_from_log => {
            summaries.map(|summary| ResponseSummary { status: Some(*status), ..summary }).collect()
        }
        _ => summaries.collect(),
    }
}

/// Returns the response as logged. The log does not contain the state of a bucket, so limit headers are omitted.
fn apply_logged(summary: ResponseSummary, logged: &LoggedOutcome) -> ResponseSummary {
    let retry_after_s = logged.decision.as_ref().and_then(|decision| decision.retry_after_s);
    ResponseSummary { status: Some(logged.status), retry_after_s, headers: BTreeMap::new(), ..summary }
}

fn response(input: &ExplainInput<'_>, assessed: &AssessedDecision<'_>) -> ResponseSummary {
    let class = input.classification().class;
    let refusal = assessed.refusal();
    let (level, shadow) = match assessed.verdict {
        Verdict::Admit { bucket_state: level, shadow } => (level, shadow),
        Verdict::Refuse(_) => (input.bucket_state, None),
    };
    // Retry-After of a pacing refusal is known only if the plan is.
    let knows_retry_after = input.replayed.is_some() || refusal.is_none_or(|refusal| refusal.reason != Reason::Pacing);
    let request = input.decision_request_for(class);
    let usage = |snapshot: &QuotaSnapshot<'_>| {
        let used = if refusal.is_some() { snapshot.taken } else { snapshot.taken.saturating_add(snapshot.cost) };
        QuotaUsage::new(&request, snapshot, used)
    };
    let usages: Vec<QuotaUsage> = assessed.quota_snapshots.iter().map(usage).collect();
    // The policies in the fields are those of classes.
    let bucket = request.bucket().filter(|_| request.bounded_exemption().is_none());
    let bucket = bucket.map(|bucket| BucketUsage::new(bucket, level, input.now));
    let rate_limit = RateLimitSnapshot { class, route: input.route_id(), usages: &usages, bucket, refusal };
    let rendered = preview(input.environment.settings, rate_limit, input.spread, input.now);
    // The stored response has its own status, and names no time to retry.
    let is_replaced =
        input.copy.effect() == CopyEffect::Replacement && refusal.is_some_and(|refusal| refusal.reason.allows_copy());
    let redirect = input.redirect().filter(|_| refusal.is_none());
    let redirected = redirect.map(|redirect| redirect.status_for(&input.request.method));
    let is_sent =
        |(name, _): &(&http::HeaderName, &http::HeaderValue)| !is_replaced || *name != http::header::RETRY_AFTER;
    let field = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    ResponseSummary {
        verdict: if refusal.is_some() { explanation::Verdict::Refused } else { explanation::Verdict::Admitted },
        reason: refusal.map(|refusal| refusal.reason.name().to_owned()),
        shadow: shadow.map(|reason| reason.name().to_owned()),
        status: rendered.status.filter(|_| !is_replaced).or(redirected).map(|status| status.as_u16()),
        retry_after_s: rendered.retry_after_s.filter(|_| knows_retry_after && !is_replaced),
        headers: rendered.fields.iter().filter(is_sent).map(field).collect(),
        depends_on: Vec::new(),
    }
}

/// Returns the conditions on earlier requests that determine the verdict.
fn dependencies(input: &ExplainInput<'_>, assessment: &Assessment<'_>) -> Vec<String> {
    let class = input.classification().class;
    let mut dependencies = Vec::new();
    for snapshot in assessment.refused_snapshots() {
        let quota = &snapshot.quota.name;
        let share =
            snapshot.quota.tiers_for(class).map_or(Share::NONE, |tiers| tiers.shed_share(snapshot.shedding.tier));
        if share > Share::NONE && share < Share::ALL {
            dependencies.push(format!("its position among the requests of its class: {share} are refused for {quota}"));
        }
        let pacing = snapshot.quota.enforced_pacing().filter(|pacing| pacing.is_paced(class));
        if pacing.is_some() && assessment.refusal().is_some_and(|refusal| refusal.reason == Reason::Pacing) {
            let name = input.environment.class_name(class);
            dependencies
                .push(format!("the units that the plan of {quota} has for {name}, and their use by other requests"));
        }
        if let Some(guard_state) = snapshot.guard_state.filter(|_| share > Share::NONE) {
            let interval = format_duration(guard_state.guard.admit_interval.as_secs());
            dependencies.push(format!(
                "the crawler guard: whether it has admitted a request of the operator within {interval}"
            ));
        }
    }
    dependencies
}
