//! A request of a log that a replay has come to: it finds what all lines before it have left.

use super::input::{Asking, Case, Found, Who};
use super::logged_outcome::Happened;
use super::environment::Known;
use crate::engine::{Prospect, QuotaView};
use crate::policy::identity::Origin;
use crate::replay;
use http::HeaderMap;

/// The request as the rules see it: what it finds, and how all quotas stand when it comes.
pub fn replayed<'a>(
    asking: &replay::Asking<'_, '_>,
    prospect: Prospect<'a>,
    known: Known<'a>,
    quotas: &'a [QuotaView],
) -> Case<'a> {
    let facts = asking.facts;
    let asked = Asking {
        method: facts.method.clone(),
        host: facts.host.to_owned(),
        path: facts.path.to_owned(),
        query: facts.query.map(str::to_owned),
        user_agent: facts.user_agent.to_vec(),
        sent: HeaderMap::new(),
    };
    let who = Who {
        peer: facts.client,
        origin: Origin { client: facts.client, hops: Vec::new() },
        listed: facts.listed,
        claim: facts.claim,
        proof: facts.proof,
        signature: facts.signature,
        holds_key_of: facts.holds_key_of.to_vec(),
        suspicion: facts.suspicion,
    };
    let case = Case::new(known, asked, who, asking.at).with_quotas(quotas);
    let class = case.classified().class;
    Case {
        level: prospect.level,
        positions: prospect.by_class[usize::from(class.0)].clone(),
        found: Some(Found { class, by_class: prospect.by_class }),
        spread: asking.spread,
        happened: Some(Happened::of(asking.line)),
        ..case
    }
}
