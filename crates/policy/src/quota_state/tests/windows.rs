//! Windows that end, overlap, or count as used up.

use super::*;

const fn units(whole: u64) -> Units {
    Units::from_whole(whole)
}

fn sliding_state() -> QuotaState {
    let window = Window::Sliding { length: Duration::from_secs(300), sub_windows: 5 };
    let quota = Quota { window, ..fixtures::quota("api", 100) };
    QuotaState::new(&quota, &[CLASS], units(1), true, NOON)
}

/// Applies a lease of ten units, with `taken_by_others`.
fn lease(state: &mut QuotaState, taken_by_others: u64) {
    let mut requests = Vec::new();
    state.request_leases("api", &mut requests, state.latest_time(), REFRESH_TIME);
    let request = requests.iter().find(|request| request.window.id == state.window_id()).expect("a request");
    let (held, others) = (units(10), units(taken_by_others));
    state.apply_lease(request, &Lease { held, held_by_others: others, taken_by_others: others, ..Lease::default() });
}

#[test]
fn tiers_begin_anew_in_each_window() {
    let mut state = state(10, false);
    state.class_mut(CLASS).shedding.tier = 2;
    state.advance_to(NOON + DAY / 4);
    state.update_config(&fixtures::quota("api", 20), &[CLASS], units(1));
    assert_eq!(state.class(CLASS).shedding.tier, 2, "the same window");
    state.advance_to(NOON + DAY);
    assert_eq!(state.class(CLASS).shedding.tier, 0);
}

#[test]
fn leased_window_begins_without_the_usage_of_the_one_before() {
    let mut state = state(100, true);
    lease(&mut state, 7);
    state.reserve(units(3));
    state.advance_to(NOON + DAY);
    assert_eq!((state.taken(), state.leased_limit()), (Units::ZERO, units(100)));
}

#[test]
fn usage_of_a_sliding_window_is_estimated_until_the_ledger_reports_it() {
    let mut state = sliding_state();
    lease(&mut state, 3);
    state.reserve(units(4));
    state.advance_to(NOON + Duration::from_secs(60));
    assert_eq!((state.used(), state.leased_limit()), (units(7), Units::MAX), "an estimate is no limit");
    lease(&mut state, 5);
    assert_eq!((state.used(), state.leased_limit()), (units(5), units(100)));
}

#[test]
fn estimate_contains_everything_that_may_not_have_expired() {
    let mut state = sliding_state();
    lease(&mut state, 3);
    state.reserve(units(4));
    let mut used = Vec::new();
    for part in 1..8 {
        state.advance_to(NOON + Duration::from_secs(60 * part));
        used.push(state.used().floor());
        state.reserve(units(u64::from(part == 1)));
    }
    assert_eq!(used, [7, 8, 8, 8, 8, 4, 3], "own usage expires; that of others when the ledger says so");
}

#[test]
fn unused_sliding_window_needs_no_estimate() {
    let mut state = sliding_state();
    lease(&mut state, 0);
    state.advance_to(NOON + Duration::from_secs(60));
    assert_eq!(state.leased_limit(), units(100));
}

#[test]
fn window_of_another_length_ends_at_its_own_end() {
    let hourly = Quota { window: Window::Fixed { length: Duration::from_secs(3600) }, ..fixtures::quota("api", 10) };
    let first_hour = Timestamp::from_seconds(10 * 86_400 + 1800);
    let mut state = QuotaState::new(&hourly, &[CLASS], units(1), false, first_hour);
    state.reserve(units(4));
    state.update_config(&fixtures::quota("api", 10), &[CLASS], units(1));
    assert_eq!((state.resets_at(), state.taken()), (Timestamp::from_seconds(11 * 86_400), units(4)));
}

#[test]
fn window_that_may_have_been_used_up_takes_and_requests_nothing() {
    let mut state = sliding_state();
    lease(&mut state, 0);
    let first = state.window_id();
    state.reserve(units(6));
    state.evicted_windows.evict(Span { start: NOON, end: NOON + Duration::from_secs(60) });
    state.advance_to(NOON + DAY);
    state.advance_to(NOON);
    assert_eq!(state.window_id(), first);
    assert!(!state.covers(units(1)));
    assert!(!state.request_refill_if_low() && !state.request_refill_for(units(1)));
    let settlement = state.settle(first, CLASS, Units::ZERO, units(2));
    assert_eq!((settlement.overrun, settlement.needs_refill), (units(2), false));
    let mut requests = Vec::new();
    state.request_leases("api", &mut requests, NOON, REFRESH_TIME);
    assert!(requests.iter().all(|request| request.window.id != first), "{requests:?}");
    state.advance_to(NOON + DAY);
    state.request_leases("api", &mut requests, NOON, REFRESH_TIME);
    assert!(requests.iter().all(|request| request.window.id != first), "{requests:?}");
}
