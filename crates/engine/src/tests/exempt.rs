//! Exempt requests of many clients.

use super::*;
use tidegate_policy::decide::DecisionRequest;
use tidegate_policy::exempt::Exemption;

#[test]
fn exempt_requests_of_all_clients_are_bounded() {
    let rules = rules(vec![quota("api", 1, &[])], vec![route(&[(0, 1)])]);
    let admission = Engine::new(LeaseMode::Local, 20_000).admission(rules, NOON);
    let admits = |exemption, client: u64, now| {
        let request = DecisionRequest {
            class: PERSON,
            class_rules: &admission.rules()[PERSON],
            route: &admission.rules()[RouteId(0)],
            has_learned_cost: false,
            exemption: Some(exemption),
            switch: None,
            has_copy: false,
            is_refresh: false,
        };
        let decision = admission.admit_guarded(ClientKey::from_u64(client), &request, RouteId(0), None, now);
        assert!(decision.quota_usage.is_empty());
        assert_eq!(decision.permit.is_some(), decision.verdict.refusal().is_none());
        assert!(decision.verdict.refusal().is_none_or(|refusal| refusal.reason == Reason::Bucket));
        decision.permit.is_some()
    };
    let admitted = |exemption, now| (0..5000).filter(|client| admits(exemption, *client, now)).count();
    let later = NOON + Duration::from_secs(1);
    for exemption in [Exemption::Preflight, Exemption::AcmeChallenge] {
        assert_eq!((admitted(exemption, NOON), admitted(exemption, later)), (2000, 200), "{exemption:?}");
    }
}
