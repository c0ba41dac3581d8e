//! The product's made-up day, with what the gate must make of everybody in it.

use super::crowd::Visit;
use tidegate::demo::day;
use tidegate::policy::Kind;

/// A day of `scale` times the usual traffic.
pub fn generated(seed: u64, scale: f64) -> Vec<Visit> {
    day::generate(seed, scale).into_iter().map(expected).collect()
}

fn expected(visit: day::Visit) -> Visit {
    Visit {
        client: visit.client,
        method: visit.method.to_string(),
        target: visit.path,
        user_agent: visit.user_agent.into_owned(),
        referer: visit.referer,
        kind: match visit.label {
            // Its behaviour alone would show it, and behaviour is not looked at yet.
            Kind::SuspectedBot => None,
            // Its operator's addresses are not among those that the product knows.
            Kind::VerifiedBot if visit.actor == "uptime monitor" => Some(Kind::DeclaredBot),
            label => Some(label),
        },
    }
}
