//! Costs that requests state, and what they can overspend.

use super::*;
use crate::RequestPurpose;
use tidegate_policy::cost::RequestedCost;
use tidegate_policy::facts::Claim;
use tidegate_policy::{Facts, fixtures};

const QUOTA: QuotaId = QuotaId(0);

/// Returns the admission of a site with one quota, whose requests state their costs.
fn admission_of(limit: u64) -> Admission {
    let default = Units::from_whole(1000);
    let cost = RequestedCost { paths: vec!["max_tokens".into()], per_byte: Units::ZERO, default };
    let stated =
        Route { costs: vec![(QUOTA, Cost::Requested { default })], requested_costs: vec![(QUOTA, cost)], ..route(&[]) };
    admission(vec![quota("tokens", limit, &[])], vec![stated])
}

/// Decides on a request that states a cost.
fn state(admission: &Admission, stated: u64) -> Option<Permit> {
    let request = fixtures::request_facts("/v1/chat");
    let client = fixtures::client_facts(Claim::Browser);
    let classified = admission.classify(&Facts { request, client: &client }, |_| None, |_| None, NOON);
    let stated = [(QUOTA, Units::from_whole(stated))];
    let mut permit =
        admission.evaluate_classified(classified, &request, &stated, RequestPurpose::Response, NOON).decision.permit?;
    permit.mark_sent();
    Some(permit)
}

/// Settles a request that costs `actual`. Returns the units reserved, and those charged beyond the limit.
fn settle(permit: Permit, actual: u64) -> (u64, u64) {
    let receipt = permit.settle(|_, _| Units::from_whole(actual));
    (receipt[0].expected.floor(), receipt[0].overrun.floor())
}

/// Lets enough requests report that they cost `actual`, which is less than they state.
fn teach(admission: &Admission, actual: u64) {
    for _ in 0..32 {
        settle(state(admission, actual + 1).expect("units are left"), actual);
    }
}

#[test]
fn a_thousand_parallel_requests_overspend_nothing_that_they_state() {
    let admission = admission_of(1_000_000);
    let permits: Vec<Permit> = (0..1000).filter_map(|_| state(&admission, 128_000)).collect();
    assert_eq!((permits.len(), used_and_reserved(&admission, 0)), (7, (0, 896_000)));
    let settled: Vec<(u64, u64)> = permits.into_iter().map(|permit| settle(permit, 128_000)).collect();
    assert_eq!((settled, used_and_reserved(&admission, 0)), (vec![(128_000, 0); 7], (896_000, 0)));
}

#[test]
fn a_thousand_parallel_requests_overspend_at_most_what_they_state_beyond_the_learned_cost() {
    let admission = admission_of(1_000_000);
    teach(&admission, 500);
    let permits: Vec<Permit> = (0..1000).filter_map(|_| state(&admission, 128_000)).collect();
    assert_eq!((permits.len(), used_and_reserved(&admission, 0)), (1000, (16_000, 500_000)), "no day is blocked");
    let overrun: u64 = permits.into_iter().map(|permit| settle(permit, 4000).1).sum();
    assert_eq!((overrun, used_and_reserved(&admission, 0)), (16_000 + 4_000_000 - 1_000_000, (1_000_000, 0)));
    assert!(overrun <= 1000 * (128_000 - 500));
    assert!(state(&admission, 128_000).is_none());
}

#[test]
fn one_higher_report_raises_what_the_next_requests_reserve() {
    let admission = admission_of(1_000_000);
    teach(&admission, 500);
    settle(state(&admission, 128_000).expect("units are left"), 64_000);
    let permits: Vec<Permit> = (0..1000).filter_map(|_| state(&admission, 128_000)).collect();
    assert_eq!(permits.len(), 920_000 / 1000);
}

proptest! {
    /// What is charged beyond the limit is at most what the requests in flight cost beyond what they reserved.
    #[test]
    fn overrun_is_at_most_what_requests_cost_beyond_their_reservations(
        requests in prop::collection::vec((1u64..5000, 1u64..5000), 1..200),
        limit in 1000u64..100_000,
        learned in prop::option::of(1u64..1000),
    ) {
        let admission = admission_of(limit);
        if let Some(learned) = learned.filter(|learned| learned * 40 < limit) {
            teach(&admission, learned);
        }
        let permits: Vec<(Permit, u64)> =
            requests.iter().filter_map(|&(stated, actual)| Some((state(&admission, stated)?, actual))).collect();
        let (used, reserved) = used_and_reserved(&admission, 0);
        prop_assert!(used + reserved <= limit);
        let (mut beyond, mut overrun) = (0, 0);
        for (permit, actual) in permits {
            let (expected, over) = settle(permit, actual);
            beyond += actual.saturating_sub(expected);
            overrun += over;
        }
        prop_assert!(overrun <= beyond && used_and_reserved(&admission, 0).0 <= limit);
    }
}
