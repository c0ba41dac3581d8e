use super::*;
use crate::fixtures;
use crate::lease::Lease;
use crate::quota_sync::{OriginQuotaEvent, OriginReport};
use proptest::prelude::*;

mod counts;
mod guard;
mod leasing;
mod windows;

const NOON: Timestamp = Timestamp::from_seconds(43_200);
const REFRESH_TIME: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(86_400);
const CLASS: StableClassId = 1;

fn state(limit: u64, is_leased: bool) -> QuotaState {
    QuotaState::new(&fixtures::quota("api", limit), &[CLASS], Units::from_whole(1), is_leased, NOON)
}

#[test]
fn late_settlement_charges_the_window_of_its_reservation() {
    let mut state = state(10, false);
    let first = state.window_id();
    state.reserve(Units::from_whole(4));
    assert!(state.advance_to(NOON + DAY));
    let settlement = state.settle(first, CLASS, Units::from_whole(4), Units::from_whole(20));
    assert_eq!(settlement.overrun, Units::from_whole(10), "the ended window holds no more than its limit");
    assert_eq!((state.used(), state.reserved()), (Units::ZERO, Units::ZERO));
    assert_eq!(state.class(CLASS).charged, Units::from_whole(20));
}

#[test]
fn unexpected_cost_opens_a_first_use_window_at_its_decision() {
    const LENGTH: Duration = Duration::from_secs(3);
    let quota = Quota { window: Window::FirstUse { length: LENGTH }, ..fixtures::quota("api", 10) };
    let mut state = QuotaState::new(&quota, &[CLASS], Units::from_whole(1), false, NOON);
    let decided_at = NOON + Duration::from_secs(1);
    state.advance_to(NOON + Duration::from_secs(2));
    let (first, _) = state.settle_unexpected(decided_at, CLASS, Units::from_whole(4));
    assert_eq!(
        (first, state.resets_at(), state.used()),
        (state.window_id(), decided_at + LENGTH, Units::from_whole(4))
    );
    assert!(state.advance_to(decided_at + LENGTH));
    let (late, _) = state.settle_unexpected(decided_at, CLASS, Units::from_whole(2));
    assert_eq!((late, state.used()), (first, Units::ZERO), "the window of the decision is charged, although it ended");
}

#[test]
fn refill_is_requested_once_per_lease() {
    let mut state = state(1000, true);
    let lease = Lease { held: Units::from_whole(10), ..Lease::default() };
    let mut requests = Vec::new();
    state.request_leases("api", &mut requests, NOON, REFRESH_TIME);
    state.apply_lease(&requests[0], &lease);
    state.reserve(Units::from_whole(5));
    assert!(!state.request_refill_if_low(), "half of the lease is left");
    state.reserve(Units::from_whole(1));
    assert!(state.request_refill_if_low());
    assert!(!state.request_refill_if_low() && !state.request_refill_for(Units::from_whole(9)), "already requested");
    state.apply_lease(&requests[0], &lease);
    state.reserve(Units::from_whole(3));
    assert!(state.request_refill_if_low(), "requested again");
}

#[test]
fn reported_exhaustion_closes_the_quota_up_to_its_reset() {
    let mut state = state(10, false);
    let resets_at = NOON + Duration::from_secs(60);
    let report = OriginReport { resets_at: Some(resets_at), exhausted: true, ..OriginReport::default() };
    let event = state.sync_with_origin(state.window_id(), report, NOON);
    assert_eq!(event, Some(OriginQuotaEvent::Exhausted { until: resets_at }));
    state.advance_to(resets_at - Duration::from_millis(1));
    assert_eq!((state.exhausted_until(), state.resets_at()), (Some(resets_at), resets_at));
    state.advance_to(resets_at);
    assert_eq!((state.exhausted_until(), state.resets_at()), (None, Timestamp::from_seconds(86_400)));
}

#[test]
fn effective_span_of_a_sliding_window_reaches_back_by_its_length() {
    let window = Window::Sliding { length: DAY, sub_windows: 24 };
    let quota = Quota { window, ..fixtures::quota("api", 10) };
    let state = QuotaState::new(&quota, &[CLASS], Units::from_whole(1), false, NOON);
    assert_eq!(state.effective_span().start, Timestamp::from_seconds(43_200) - DAY);
}

#[test]
fn drift_is_that_of_the_last_report() {
    let mut state = state(10, false);
    for (remaining, milli) in [(7, 3000), (9, -2000)] {
        let report = OriginReport { remaining: Some(Units::from_whole(remaining)), ..OriginReport::default() };
        state.sync_with_origin(state.window_id(), report, NOON);
        assert_eq!((state.drift(), state.used()), (milli, Units::from_whole(3)), "the count only rises");
    }
}

#[test]
fn units_lost_in_crashes_add_up() {
    let mut state = state(1000, true);
    let mut requests = Vec::new();
    state.request_leases("api", &mut requests, NOON, REFRESH_TIME);
    for lost in [2, 3] {
        state.apply_lease(&requests[0], &Lease { lost: Units::from_whole(lost), ..Lease::default() });
    }
    assert_eq!(state.lost(), Units::from_whole(5));
}

/// A change of the state. An index selects one of the open reservations.
#[derive(Clone, Copy, Debug)]
enum Change {
    Reserve(u64),
    Settle(usize, u64),
    Release(usize),
    Retry(usize),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (0u64..9).prop_map(Change::Reserve),
        (any::<usize>(), 0u64..20).prop_map(|(index, actual)| Change::Settle(index, actual)),
        any::<usize>().prop_map(Change::Release),
        any::<usize>().prop_map(Change::Retry),
    ]
}

proptest! {
    #[test]
    fn no_unit_is_lost_or_counted_twice(changes in proptest::collection::vec(change(), 1..60), limit in 1u64..60) {
        let mut state = state(limit, false);
        let (mut open, mut spent) = (Vec::new(), Units::ZERO);
        for change in changes {
            let before = state.sequence();
            match change {
                Change::Reserve(cost) if state.covers(Units::from_whole(cost)) => {
                    state.next_sequence();
                    state.reserve(Units::from_whole(cost));
                    open.push(Units::from_whole(cost));
                }
                Change::Settle(index, actual) if !open.is_empty() => {
                    let expected = open.swap_remove(index % open.len());
                    let settlement = state.settle(state.window_id(), CLASS, expected, Units::from_whole(actual));
                    spent = spent.saturating_add(Units::from_whole(actual));
                    prop_assert_eq!(settlement.sequence, state.sequence());
                }
                Change::Release(index) if !open.is_empty() => {
                    let expected = open.swap_remove(index % open.len());
                    state.release(state.window_id(), expected);
                }
                Change::Retry(index) if !open.is_empty() && state.covers(open[index % open.len()]) => {
                    let expected = open[index % open.len()];
                    let sequence = state.reserve_retry(state.window_id(), CLASS, expected);
                    spent = spent.saturating_add(expected);
                    prop_assert_eq!(sequence, state.sequence());
                }
                _ => continue,
            }
            let reserved = open.iter().fold(Units::ZERO, |sum, cost| sum.saturating_add(*cost));
            let is_numbered = !matches!(change, Change::Release(_));
            prop_assert_eq!(state.sequence(), before + u64::from(is_numbered));
            prop_assert_eq!(state.reserved(), reserved);
            prop_assert_eq!(state.used().saturating_add(state.overrun()), spent);
            prop_assert_eq!(state.class(CLASS).charged, spent);
            prop_assert!(state.taken() <= state.limit(), "{:?} of {:?}", state.taken(), state.limit());
        }
    }
}
