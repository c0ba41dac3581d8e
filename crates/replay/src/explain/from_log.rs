//! Explanation input from a line of the gateway's own log, which contains everything that the decision used.

use super::assumed_usage::AssumedUsage;
use super::copy_use::CopyUse;
use super::environment::Environment;
use super::input::{ExplainInput, RequestAttributes};
use super::logged_outcome::{LoggedDecision, LoggedOutcome};
use crate::ReplayRequest;
use crate::evidence::LineEvidence;
use crate::log::LogLine;
use tidegate_access_log::read::{LoggedEvidence, NativeFields};
use tidegate_policy::bucket::BucketState;
use tidegate_policy::{ClientFacts, Reason};

/// Error for a log line without a gateway decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the line contains no decision of a gateway")]
pub struct NoDecisionError;

/// Returns the explanation input of a line of the gateway's own log.
pub fn input_from_log<'a>(
    line: &LogLine<'_>,
    environment: Environment<'a>,
) -> Result<ExplainInput<'a>, NoDecisionError> {
    let request = ReplayRequest::from_line(line).ok_or(NoDecisionError)?;
    let client = client_facts(line, &request, environment);
    let attributes = RequestAttributes::from_log(&request.facts(environment.rules().path_policy), line, request.client);
    let logged = LoggedOutcome::from_line(line);
    let input = match (&line.native, &logged.decision) {
        (Some(native), Some(decision)) => {
            restore_logged_state(ExplainInput::new(environment, attributes, client, line.at), native, decision)
        }
        _ => return Err(NoDecisionError),
    };
    let switch = line.native.as_deref().and_then(NativeFields::logged_switch);
    let copy = line.native.as_deref().map_or(CopyUse::Unknown, CopyUse::from_log);
    Ok(ExplainInput { logged: Some(logged), switch, copy, ..input })
}

/// Returns what is known of the client. Logged evidence has precedence over the current tables.
fn client_facts(line: &LogLine<'_>, request: &ReplayRequest<'_>, environment: Environment<'_>) -> ClientFacts {
    let Environment { user_agents, operators, lists, network_databases, .. } = environment;
    let rules = environment.rules();
    let logged = line.native.as_ref().map(|native| LoggedEvidence::parse(native, rules, |name| operators.id(name)));
    let claim = user_agents.claim(request.user_agent);
    let mut evidence = LineEvidence {
        request,
        claim,
        logged,
        rules,
        operators,
        lists,
        network_databases,
        observes_all: false,
        reclassifies: false,
        bot_score: || None,
    };
    ClientFacts::gather(request.client, &mut evidence)
}

/// Restores the quota usage and the bucket that the gateway found for the request.
fn restore_logged_state<'a>(
    input: ExplainInput<'a>,
    native: &NativeFields<'_>,
    decision: &LoggedDecision,
) -> ExplainInput<'a> {
    let usage = |quota: &str| native.quotas.iter().find(|usage| usage.quota == quota);
    let taken_before = |quota: &str| {
        let usage = usage(quota)?;
        let used = if decision.was_charged() { usage.used.saturating_sub(usage.cost) } else { usage.used };
        Some(AssumedUsage::Units(used))
    };
    let rules = input.environment.rules();
    let learned = native.quotas.iter().filter_map(|usage| {
        let quota = rules.quota_id(&usage.quota).filter(|quota| input.is_learned(*quota))?;
        rules[quota].has_reported_costs().then_some((quota, usage.cost))
    });
    let learned: Vec<_> = learned.collect();
    let mut input = input.with_used_and_learned(taken_before, &learned);
    if native.has_copy {
        // Its quotas were not asked.
        input.quota_snapshots.clear();
    }
    for snapshot in &mut input.quota_snapshots {
        if let Some(usage) = usage(&snapshot.quota.name) {
            snapshot.cost = usage.cost;
        }
        snapshot.shedding.tier = native.tier.unwrap_or_default();
        if let Some(planned) = &mut snapshot.plan {
            planned.is_ahead = native.tier.is_some_and(|tier| tier > 0);
        }
        if decision.is_refused_by(Reason::ClientShare) {
            snapshot.client_used = snapshot.quota.client_limit;
        }
        if decision.reason == Some(Reason::Ledger) {
            snapshot.leased = snapshot.taken;
        }
    }
    if decision.is_refused_by(Reason::Bucket) {
        input.bucket_state = empty_bucket(&input, decision);
    }
    input
}

/// Returns an empty bucket whose next token is due when the logged `Retry-After` has passed, or earlier.
fn empty_bucket(input: &ExplainInput<'_>, decision: &LoggedDecision) -> BucketState {
    let class = input.classification().class;
    let Some(bucket) = input.decision_request_for(class).class_rules.bucket else { return BucketState::default() };
    let spent = BucketState { used_tokens: bucket.capacity, refilled_at: input.now };
    let until_next_token = bucket.next_token_at(spent, input.now).saturating_duration_since(input.now);
    BucketState { refilled_at: input.now - until_next_token.saturating_sub(decision.retry_after()), ..spent }
}
