//! Step of the identity: the client address behind trusted proxies, and the bucket key.

use super::input::ExplainInput;
use super::step::{Stage, Step};
use std::net::IpAddr;
use tidegate_config::SettingPath;
use tidegate_policy::identity::KeySource;

pub(super) fn step(input: &ExplainInput<'_>) -> Step {
    let (client, peer) = (input.client.address, input.request.peer);
    let trust = &input.environment.rules().trust;
    let source = trust.source.header();
    let message = match source {
        _ if input.logged.is_some() => format!("{client}, from the log"),
        Some(header) if client != peer => format!("{client}, from {header} of the trusted proxy {peer}"),
        Some(header) if !trust.trusts(peer) => {
            format!("{client} connected directly; it is not a trusted proxy, so {header} is ignored")
        }
        _ => format!("{client} connected directly"),
    };
    let mut evidence = vec![key_description(input)];
    if !input.request.hops.is_empty() {
        let hops: Vec<String> = input.request.hops.iter().map(IpAddr::to_string).collect();
        evidence.insert(0, format!("trusted proxies on the path: {}", hops.join(", ")));
    }
    let step = Step::info(Stage::Identity, message)
        .with_evidence(evidence)
        .with_rule(input.environment.rule(&SettingPath::ROOT.clients().address_from()));
    step.with_number("client", client.to_string()).with_number("peer", peer.to_string())
}

/// Returns the key of the bucket that the request uses, in words.
fn key_description(input: &ExplainInput<'_>) -> String {
    let (rules, classified) = (input.environment.rules(), input.classification());
    let class = &rules[classified.class];
    let network = rules.trust.key(input.client.address).display(|_| "").to_string();
    match (&class.key, classified.operator) {
        (KeySource::Class, _) => format!("bucket key: the class {}, shared by all its clients", class.name),
        (KeySource::Operator, Some(operator)) => {
            format!(
                "bucket key: the operator {}, shared by all its crawlers",
                input.environment.operators.name(operator)
            )
        }
        (KeySource::Credential(source), _) => {
            format!("bucket key: the value of {}; {network} if it is missing", source.header())
        }
        _ if network.contains("::") => format!("bucket key: the network {network}/{}", rules.trust.ipv6_prefix),
        _ => format!("bucket key: {network}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{CLIENT, CURL, PolicyFixture, RULES, step};
    use super::*;
    use serde_json::json;

    #[test]
    fn peer_that_is_no_trusted_proxy_is_the_client() {
        let policy = PolicyFixture::new(RULES);
        let identity = step(&policy.request(CURL, CLIENT, "/item/1", 0), Stage::Identity);
        let expected = "192.0.2.1 connected directly; it is not a trusted proxy, so x-forwarded-for is ignored";
        assert_eq!((identity.message.as_str(), identity.numbers["peer"].as_str()), (expected, Some(CLIENT)));
        assert_eq!(identity.evidence, ["bucket key: 192.0.2.1"]);
    }

    #[test]
    fn logged_address_is_the_client() {
        let identity = step(&PolicyFixture::new(RULES).logged(&json!({})), Stage::Identity);
        assert_eq!(identity.message, "192.0.2.1, from the log");
    }
}
