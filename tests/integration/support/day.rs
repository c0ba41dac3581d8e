//! The product's made-up day, with what the gate must make of everybody in it.

use super::crowd::Visit;
use std::time::Duration;
use tidegate::demo::traffic;
use tidegate::policy::ClientKind;

/// A day of `scale` times the usual traffic.
pub fn generated(seed: u64, scale: f64) -> Vec<Visit> {
    traffic::generate(seed, scale).into_iter().map(expected).collect()
}

/// The same with the time of each visit, what its client really is, and what the story calls it.
pub fn labelled(seed: u64, scale: f64) -> impl Iterator<Item = (Duration, Visit, ClientKind, &'static str)> {
    traffic::generate(seed, scale)
        .into_iter()
        .map(|visit| (visit.at, visit.label, visit.actor, expected(visit)))
        .map(|(at, label, actor, visit)| (at, visit, label, actor))
}

fn expected(visit: traffic::DemoRequest) -> Visit {
    Visit {
        client: visit.client,
        method: visit.method.to_string(),
        target: visit.path,
        user_agent: visit.user_agent.into_owned(),
        referer: visit.referer,
        kind: match visit.label {
            // Its behaviour alone shows it, and that takes more than one visit.
            ClientKind::SuspectedBot => None,
            // Its operator's addresses are not among those that the product knows.
            ClientKind::VerifiedBot if visit.actor == "uptime monitor" => Some(ClientKind::DeclaredBot),
            label => Some(label),
        },
    }
}
