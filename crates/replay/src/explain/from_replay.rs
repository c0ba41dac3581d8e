//! Explanation input from a replay, which has applied all lines before the request.

use super::environment::Environment;
use super::input::{ClientAttributes, ExplainInput, ReplayedState, RequestAttributes};
use super::logged_outcome::LoggedOutcome;
use crate as replay;
use http::HeaderMap;
use tidegate_engine::{DryRun, QuotaView};
use tidegate_policy::identity::ClientAddress;

/// Returns the explanation input of a pending request: its dry run, and the state of all quotas on its arrival.
pub fn input_from_replay<'a>(
    pending: &replay::PendingRequest<'_, '_>,
    dry_run: DryRun<'a>,
    environment: Environment<'a>,
    quotas: &'a [QuotaView],
) -> ExplainInput<'a> {
    let facts = pending.facts;
    let request = RequestAttributes {
        method: facts.method.clone(),
        host: facts.host.to_owned(),
        path: facts.path.to_owned(),
        query: facts.query.map(str::to_owned),
        user_agent: facts.user_agent.to_vec(),
        headers: HeaderMap::new(),
    };
    let client = ClientAttributes {
        peer: facts.client,
        address: ClientAddress { client: facts.client, hops: Vec::new() },
        address_lists: facts.address_lists,
        claim: facts.claim,
        proof: facts.proof,
        signature: facts.signature,
        api_key_classes: facts.api_key_classes.to_vec(),
        bot_score: facts.bot_score,
    };
    let input = ExplainInput::new(environment, request, client, pending.at).with_quotas(quotas);
    let class = input.classification().class;
    ExplainInput {
        bucket_state: dry_run.bucket_state,
        quota_snapshots: dry_run.by_class[class.index()].clone(),
        replayed: Some(ReplayedState { class, by_class: dry_run.by_class }),
        spread: pending.spread,
        logged: Some(LoggedOutcome::from_line(pending.line)),
        ..input
    }
}
