//! Explanation input from a line of the gateway's own log, which contains everything that the decision used.

use super::environment::Environment;
use super::input::{ClientAttributes, ExplainInput, RequestAttributes};
use super::logged_outcome::{LoggedDecision, LoggedOutcome};
use crate::policy::bucket::BucketState;
use crate::policy::facts::claimed_operator;
use crate::policy::identity::ClientAddress;
use crate::policy::{Proof, Reason, Timestamp};
use crate::replay::log::{LogLine, NativeFields};
use crate::replay::{LoggedEvidence, ReplayRequest};
use http::HeaderMap;

/// Error for a log line without a gateway decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the line contains no decision of a gateway")]
pub struct NotADecision;

/// Returns the explanation input of a line of the gateway's own log.
pub fn input_from_log<'a>(line: &LogLine<'_>, known: Environment<'a>) -> Result<ExplainInput<'a>, NotADecision> {
    let request = ReplayRequest::of(line).ok_or(NotADecision)?;
    let who = client_attributes(line, &request, known);
    let asked = RequestAttributes {
        method: request.method.clone(),
        host: request.host.to_owned(),
        path: request.path.into_owned(),
        query: request.query.map(str::to_owned),
        user_agent: request.user_agent.to_vec(),
        sent: HeaderMap::new(),
    };
    let happened = LoggedOutcome::of(line);
    let case = match (&line.native, &happened.decided) {
        (Some(own), Some(decided)) => as_decided(ExplainInput::new(known, asked, who, line.at), own, decided),
        _ => return Err(NotADecision),
    };
    Ok(ExplainInput { happened: Some(happened), ..case })
}

/// Returns the client's attributes. Logged evidence has precedence over the current tables.
fn client_attributes(line: &LogLine<'_>, request: &ReplayRequest<'_>, known: Environment<'_>) -> ClientAttributes {
    let ReplayRequest { client, is_named, user_agent, .. } = *request;
    let operator = |name: &str| known.operators.id(name);
    let said = line.native.as_ref().map(|own| LoggedEvidence::of(own, known.rules(), operator)).unwrap_or_default();
    let claim = known.agents.claim(user_agent);
    let found_now = || {
        let claimed = claimed_operator(claim, said.signature).filter(|_| !is_named);
        claimed.map_or(Proof::Unknown, |operator| known.operators.verify(operator, client, Timestamp::default()))
    };
    ClientAttributes {
        peer: client,
        origin: ClientAddress { client, hops: Vec::new() },
        listed: known.lists.lookup(client),
        claim,
        proof: said.proof.unwrap_or_else(found_now),
        signature: said.signature,
        holds_key_of: said.holds_key_of.into_iter().collect(),
        suspicion: said.suspicion,
    }
}

/// Restores the quota usage and the bucket that the gateway found for the request.
fn as_decided<'a>(case: ExplainInput<'a>, own: &NativeFields<'_>, decided: &LoggedDecision) -> ExplainInput<'a> {
    let account = |quota: &str| own.accounts.iter().find(|account| account.quota == quota);
    let taken_before = |quota: &str| {
        let account = account(quota)?;
        Some(if decided.was_charged() { account.used.saturating_sub(account.cost) } else { account.used })
    };
    let mut case = case.with_used(taken_before);
    for position in &mut case.positions {
        if let Some(account) = account(&position.quota.name) {
            position.cost = account.cost;
        }
        position.shedding.tier = own.tier.unwrap_or_default();
        if let Some(planned) = &mut position.planned {
            planned.is_ahead = own.tier.is_some_and(|tier| tier > 0);
        }
        if decided.reason == Some(Reason::Ledger) {
            position.leased = position.taken;
        }
    }
    if decided.reason == Some(Reason::Bucket) {
        case.level = empty(&case, decided);
    }
    case
}

/// Returns an empty bucket whose next token is due when the logged `Retry-After` has passed, or earlier.
fn empty(case: &ExplainInput<'_>, decided: &LoggedDecision) -> BucketState {
    let class = case.classified().class;
    let Some(bucket) = case.decision_request_for(class).class_rules.bucket else { return BucketState::default() };
    let spent = BucketState { used_tokens: bucket.capacity, since: case.now };
    let whole_step = bucket.next_token_at(spent, case.now).saturating_duration_since(case.now);
    BucketState { since: case.now - whole_step.saturating_sub(decided.wait()), ..spent }
}
