//! Response to the client.

use super::admission::percent;
use super::assessment::{AssessedVerdict, Assessment};
use super::explanation::{self, ResponseSummary};
use super::input::ExplainInput;
use super::logged_outcome::LoggedOutcome;
use crate::engine::{BucketUsage, QuotaUsage};
use crate::gateway::{RateLimitSnapshot, preview};
use crate::policy::decide::QuotaSnapshot;
use crate::policy::tier::Share;
use crate::policy::{Reason, Verdict};
use crate::terminal::format_duration;
use std::collections::BTreeMap;

/// Returns the response, or both possible ones if it depends on earlier requests.
pub(super) fn responses(case: &ExplainInput<'_>, outcome: &Assessment<'_>) -> Vec<ResponseSummary> {
    let depends_on = if outcome.rulings.len() > 1 { dependencies(case, outcome) } else { Vec::new() };
    let answer = |ruled| ResponseSummary { depends_on: depends_on.clone(), ..response(case, ruled) };
    let answers = outcome.rulings.iter().map(answer);
    match &case.happened {
        Some(happened) if outcome.is_as_logged => answers.map(|answer| as_logged(answer, happened)).collect(),
        // The replay decides as the gateway did, so the logged status applies.
        Some(LoggedOutcome { status, decided: Some(_), .. }) if !outcome.differs_from_log => {
            answers.map(|answer| ResponseSummary { status: Some(*status), ..answer }).collect()
        }
        _ => answers.collect(),
    }
}

/// Returns the response as logged. The log does not contain the state of a bucket, so limit headers are omitted.
fn as_logged(answer: ResponseSummary, happened: &LoggedOutcome) -> ResponseSummary {
    let retry_after_s = happened.decided.as_ref().and_then(|decided| decided.retry_after_s);
    ResponseSummary { status: Some(happened.status), retry_after_s, headers: BTreeMap::new(), ..answer }
}

fn response(case: &ExplainInput<'_>, ruled: &AssessedVerdict<'_>) -> ResponseSummary {
    let class = case.classified().class;
    let refusal = ruled.refusal();
    let (level, shadow) = match ruled.verdict {
        Verdict::Admit { level, shadow } => (level, shadow),
        Verdict::Refuse(_) => (case.level, None),
    };
    // Retry-After of a pacing refusal is known only if the plan is.
    let knows_when = case.found.is_some() || refusal.is_none_or(|refusal| refusal.reason != Reason::Pacing);
    let asked = case.decision_request_for(class);
    let standing = |position: &QuotaSnapshot<'_>| {
        let used = if refusal.is_some() { position.taken } else { position.taken.saturating_add(position.cost) };
        QuotaUsage::new(&asked, position, used)
    };
    let standings: Vec<QuotaUsage> = ruled.positions.iter().map(standing).collect();
    let bucket = asked.bucket().map(|bucket| BucketUsage::new(bucket, level, case.now));
    let told = RateLimitSnapshot { class, route: case.route_place(), standings: &standings, bucket, refusal };
    let shown = preview(case.known.settings, told, case.spread, case.now);
    let field = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    ResponseSummary {
        verdict: if refusal.is_some() { explanation::Verdict::Refused } else { explanation::Verdict::Admitted },
        reason: refusal.map(|refusal| refusal.reason.name().to_owned()),
        shadow: shadow.map(|reason| reason.name().to_owned()),
        status: shown.status.map(|status| status.as_u16()),
        retry_after_s: shown.retry_after_s.filter(|_| knows_when),
        headers: shown.fields.iter().map(field).collect(),
        depends_on: Vec::new(),
    }
}

/// Returns the conditions on earlier requests that determine the verdict.
fn dependencies(case: &ExplainInput<'_>, outcome: &Assessment<'_>) -> Vec<String> {
    let class = case.classified().class;
    let mut told = Vec::new();
    for position in outcome.refused_positions() {
        let quota = &position.quota.name;
        let share =
            position.quota.tiers_for(class).map_or(Share::NONE, |ladder| ladder.shed_share(position.shedding.tier));
        if share > Share::NONE && share < Share::ALL {
            told.push(format!(
                "its position among the requests of its class: {}% are refused for {quota}",
                percent(share)
            ));
        }
        let pacing = position.quota.enforced_pacing().filter(|pacing| pacing.is_paced(class));
        if pacing.is_some() && outcome.refusal().is_some_and(|refusal| refusal.reason == Reason::Pacing) {
            let name = case.known.class_name(class);
            told.push(format!("the units that the plan of {quota} has for {name}, and their use by other requests"));
        }
        if let Some(guarded) = position.guarded.filter(|_| share > Share::NONE) {
            let every = format_duration(guarded.guard.admit_interval.as_secs());
            told.push(format!("the crawler guard: whether it has admitted a request of the operator within {every}"));
        }
    }
    told
}
