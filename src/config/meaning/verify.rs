//! How crawlers are proven to be whose they say they are.

use super::classes::operator_id;
use super::report::Report;
use crate::config::raw::verify as written;
use crate::config::settings::{Signatures, Verify};
use crate::policy::OperatorId;
use std::time::Duration;

/// What the draft standard recommends at most.
const LONGEST_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) fn verify(raw: &written::Verify, operators: &[&str], report: &mut Report) -> Verify {
    let signatures = &raw.signatures;
    let max_lifetime = signatures.max_lifetime.as_ref().map(|span| span.0);
    let max_lifetime = report.lasting("verify.signatures.max_lifetime", max_lifetime, LONGEST_LIFETIME);
    let agents = agents(signatures, operators, report);
    let signatures = Signatures { unlisted_agents: signatures.unlisted_agents, agents, max_lifetime };
    Verify { signatures: raw.signatures.enabled.unwrap_or(true).then_some(signatures) }
}

fn agents(raw: &written::Signatures, operators: &[&str], report: &mut Report) -> Vec<(String, OperatorId)> {
    let mut agents = Vec::new();
    for (operator, addresses) in &raw.agents.0 {
        let path = format!("verify.signatures.agents.{operator}");
        let Some(operator) = operator_id(operator, &path, operators, report) else { continue };
        for address in &addresses.0 {
            if !is_agent(address) {
                report.mistake(
                    &path,
                    format!("{address:?} is no agent's address"),
                    "write it like https://bot.example",
                );
            }
            agents.push((address.clone(), operator));
        }
    }
    agents
}

fn is_agent(address: &str) -> bool {
    let host = |url: http::Uri| url.scheme_str() == Some("https") && url.host().is_some_and(|host| !host.is_empty());
    address.parse().is_ok_and(host) && !address.contains('@')
}
