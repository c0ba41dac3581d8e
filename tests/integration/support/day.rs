//! The synthetic day of the demo, with the classification that the gateway must make of each request.

use super::crowd::Visit;
use std::time::Duration;
use tidegate::demo::traffic;
use tidegate::policy::ClientKind;

/// Generates a day with `scale` times the usual traffic.
pub fn generated(seed: u64, scale: f64) -> Vec<Visit> {
    traffic::generate(seed, scale).into_iter().map(expected).collect()
}

/// Like [`generate_day`], with the time of each request, the true kind of its client and the name of its actor.
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
            // Detected by behavior only, which takes more than one request.
            ClientKind::SuspectedBot => None,
            // The operator's addresses are not in the built-in lists.
            ClientKind::VerifiedBot if visit.actor == "uptime monitor" => Some(ClientKind::DeclaredBot),
            label => Some(label),
        },
    }
}
