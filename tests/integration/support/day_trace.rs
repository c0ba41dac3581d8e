//! The synthetic day of the demo, with the classification that the gateway must make of each request.

use super::load::LoadRequest;
use std::time::Duration;
use tidegate::demo::{day, traffic};
use tidegate_policy::ClientKind;

/// Generates a day with `scale` times the usual traffic.
pub fn generate_day(seed: u64, scale: f64) -> Vec<LoadRequest> {
    day::generate(seed, scale).into_iter().map(to_load_request).collect()
}

/// Like [`generate_day`], with the time of each request, the true kind of its client and the name of its actor.
pub fn labeled_day(seed: u64, scale: f64) -> impl Iterator<Item = (Duration, LoadRequest, ClientKind, &'static str)> {
    day::generate(seed, scale)
        .into_iter()
        .map(|request| (request.at, request.label, request.actor, to_load_request(request)))
        .map(|(at, label, actor, request)| (at, request, label, actor))
}

fn to_load_request(request: traffic::DemoRequest) -> LoadRequest {
    LoadRequest {
        client: request.client,
        method: request.method.to_string(),
        target: request.path,
        user_agent: request.user_agent.into_owned(),
        referer: request.referer,
        kind: match request.label {
            // Detected by behavior only, which takes more than one request.
            ClientKind::SuspectedBot => None,
            // The operator's addresses are not in the built-in lists.
            ClientKind::VerifiedBot if request.actor == "uptime monitor" => Some(ClientKind::DeclaredBot),
            label => Some(label),
        },
    }
}
