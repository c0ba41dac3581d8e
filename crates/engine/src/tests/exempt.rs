//! Exempt requests of many clients.

use super::*;
use crate::{Classified, RequestPurpose};
use tidegate_policy::exempt::Exemption;
use tidegate_policy::{Classification, ClientKind};

/// Returns how many of `count` requests of different clients are exempt. The others are charged, and none is refused.
fn exempt(
    admission: &Admission,
    exemption: Exemption,
    client: impl Fn(u64) -> u64,
    count: u64,
    now: Timestamp,
) -> usize {
    let is_exempt = |number: &u64| {
        let classification =
            Classification { kind: ClientKind::Human, operator: None, class: PERSON, evidence: Default::default() };
        let classified = Classified {
            classification,
            route: RouteId(0),
            key: ClientKey::from_u64(client(*number)),
            customer: ClientKey::from_u64(client(*number)),
            switch: None,
            exemption: Some(exemption),
        };
        let facts = fixtures::request_facts("/");
        let evaluation = admission.evaluate_classified(classified, &facts, &[], RequestPurpose::Response, now);
        let decision = evaluation.decision;
        assert!(decision.permit.is_some(), "{:?}", decision.verdict);
        assert_eq!(decision.quota_usage.is_empty(), evaluation.classified.exemption.is_some());
        evaluation.classified.exemption.is_some()
    };
    (0..count).filter(is_exempt).count()
}

#[test]
fn buckets_of_clients_and_networks_are_apart_while_the_table_of_clients_is_full() {
    let rules = rules(vec![quota("api", 1_000_000, &[])], vec![route(&[(0, 1)])]);
    let admission = Engine::new(LeaseMode::Local, 0).admission(rules, NOON);
    for exemption in [Exemption::Preflight, Exemption::AcmeChallenge] {
        assert_eq!(exempt(&admission, exemption, |number| number, 100, NOON), 100, "{exemption:?}");
    }
}

#[test]
fn exempt_requests_of_many_clients_are_bounded_and_others_are_ordinary_ones() {
    let rules = rules(vec![quota("api", 1_000_000, &[])], vec![route(&[(0, 1)])]);
    let admission = Engine::new(LeaseMode::Local, 100_000).admission(rules, NOON);
    let later = NOON + Duration::from_secs(1);
    let of_one_network = |number: u64| 0x2001_0db8_0001_0000 | number;
    let of_many_networks = |number: u64| 0x2001_0db8_0000_0000 | number << 16;
    for exemption in [Exemption::Preflight, Exemption::AcmeChallenge] {
        let exempt = |client: &dyn Fn(u64) -> u64, now| exempt(&admission, exemption, client, 5000, now);
        assert_eq!((exempt(&of_one_network, NOON), exempt(&of_one_network, later)), (400, 40), "{exemption:?}");
        assert_eq!(exempt(&of_many_networks, later), 2000 - 200 - 40, "{exemption:?}");
    }
}
