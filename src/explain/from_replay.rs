//! Explanation input from a replay, which has applied all lines before the request.

use super::environment::Environment;
use super::input::{ClientAttributes, ExplainInput, ReplayedState, RequestAttributes};
use super::logged_outcome::LoggedOutcome;
use crate::engine::{DryRun, QuotaView};
use crate::policy::identity::ClientAddress;
use crate::replay;
use http::HeaderMap;

/// Returns the explanation input of a pending request: its dry run, and the state of all quotas on its arrival.
pub fn input_from_replay<'a>(
    asking: &replay::PendingRequest<'_, '_>,
    prospect: DryRun<'a>,
    known: Environment<'a>,
    quotas: &'a [QuotaView],
) -> ExplainInput<'a> {
    let facts = asking.facts;
    let asked = RequestAttributes {
        method: facts.method.clone(),
        host: facts.host.to_owned(),
        path: facts.path.to_owned(),
        query: facts.query.map(str::to_owned),
        user_agent: facts.user_agent.to_vec(),
        sent: HeaderMap::new(),
    };
    let who = ClientAttributes {
        peer: facts.client,
        origin: ClientAddress { client: facts.client, hops: Vec::new() },
        listed: facts.address_lists,
        claim: facts.claim,
        proof: facts.proof,
        signature: facts.signature,
        holds_key_of: facts.api_key_classes.to_vec(),
        suspicion: facts.bot_score,
    };
    let case = ExplainInput::new(known, asked, who, asking.at).with_quotas(quotas);
    let class = case.classified().class;
    ExplainInput {
        level: prospect.level,
        positions: prospect.by_class[usize::from(class.0)].clone(),
        found: Some(ReplayedState { class, by_class: prospect.by_class }),
        spread: asking.spread,
        happened: Some(LoggedOutcome::of(asking.line)),
        ..case
    }
}
