//! Whose request it is: the address behind trusted proxies, and the key whose bucket pays.

use super::input::ExplainInput;
use super::step::{Stage, Step};
use crate::policy::identity::KeySource;
use std::net::IpAddr;

pub(super) fn step(case: &ExplainInput<'_>) -> Step {
    let (origin, peer) = (&case.who.origin, case.who.peer);
    let client = origin.client;
    let trust = &case.known.rules().trust;
    let source = trust.source.header();
    let says = match source {
        _ if case.happened.is_some() => format!("{client}, by the log"),
        Some(header) if client != peer => format!("{client}, as {peer} says in {header}"),
        Some(header) if !trust.trusts(peer) => {
            format!("{client} connected itself; it is no trusted proxy, so {header} is not read")
        }
        _ => format!("{client} connected itself"),
    };
    let mut evidence = vec![key_description(case)];
    if !origin.hops.is_empty() {
        let hops: Vec<String> = origin.hops.iter().map(IpAddr::to_string).collect();
        evidence.insert(0, format!("trusted proxies in between: {}", hops.join(", ")));
    }
    let step = Step::info(Stage::Identity, says).because(evidence).by(case.known.rule("clients.address_from"));
    step.with("client", client.to_string()).with("peer", peer.to_string())
}

/// Whose bucket the request goes by.
fn key_description(case: &ExplainInput<'_>) -> String {
    let (rules, classified) = (case.known.rules(), case.classified());
    let class = &rules.classes[usize::from(classified.class.0)];
    let network = rules.trust.key(case.who.origin.client).display(|_| "").to_string();
    match (&class.key, classified.operator) {
        (KeySource::Class, _) => format!("everybody in the class {} pays together", class.name),
        (KeySource::Operator, Some(operator)) => {
            format!("all crawlers of {} pay together", case.known.operators.name(operator))
        }
        (KeySource::Credential(carrier), _) => {
            format!("who sends the same in {} pays together; who sends nothing, as {network}", carrier.header())
        }
        _ if network.contains("::") => format!("its network {network}/{} pays as one client", rules.trust.ipv6_prefix),
        _ => format!("it pays as {network}"),
    }
}
