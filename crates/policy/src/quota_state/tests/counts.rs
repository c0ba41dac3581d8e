//! Costs of requests, reports of the origin, and counts from outside.

use super::*;
use crate::pacing::demand::DemandModel;
use crate::pacing::week::{HOURS_PER_WEEK, HourProfile};
use crate::pacing::{PacingMode, PacingRole};

const LENGTH: Duration = Duration::from_secs(3600);

const fn units(whole: u64) -> Units {
    Units::from_whole(whole)
}

fn first_use_state() -> QuotaState {
    let quota = Quota { window: Window::FirstUse { length: LENGTH }, ..fixtures::quota("api", 10) };
    QuotaState::new(&quota, &[CLASS], units(1), false, NOON)
}

fn remaining(whole: u64) -> OriginReport {
    OriginReport { remaining: Some(units(whole)), ..OriginReport::default() }
}

#[test]
fn free_requests_and_settlements_of_other_windows_open_no_window() {
    let one_second = Duration::from_secs(1);
    let mut state = first_use_state();
    let id = state.window_id();
    state.reserve(Units::ZERO);
    state.settle(id, CLASS, Units::ZERO, Units::ZERO);
    state.settle(id + 1, CLASS, Units::ZERO, units(1));
    state.advance_to(NOON + one_second);
    assert_eq!(state.resets_at(), NOON + one_second + LENGTH, "not open");
    state.settle(id, CLASS, Units::ZERO, units(1));
    state.advance_to(NOON + 2 * one_second);
    assert_eq!(state.resets_at(), NOON + one_second + LENGTH, "open since the cost");
}

#[test]
fn limit_is_covered_exactly() {
    let mut state = state(10, false);
    assert!(state.covers(units(10)) && !state.covers(Units::from_milli(10_001)));
    state.reserve(units(4));
    assert!(state.covers(units(6)) && !state.covers(Units::from_milli(6_001)));
}

#[test]
fn settlement_requests_a_refill_if_the_lease_is_low_or_exceeded() {
    let mut state = state(1000, true);
    let mut requests = Vec::new();
    state.request_leases("api", &mut requests, NOON, REFRESH_TIME);
    let lease = Lease { held: units(10), ..Lease::default() };
    let mut needs_refill = |costs: &[u64]| -> Vec<bool> {
        state.apply_lease(&requests[0], &lease);
        costs
            .iter()
            .map(|cost| state.settle(requests[0].window.id, CLASS, Units::ZERO, units(*cost)).needs_refill)
            .collect()
    };
    assert_eq!(needs_refill(&[4, 2, 1]), [false, true, false], "once, when half is used");
    assert_eq!(needs_refill(&[4, 1]), [true, false], "one unit more than is left");
}

#[test]
fn report_before_the_first_use_is_of_an_earlier_window() {
    let mut state = first_use_state();
    assert_eq!((state.sync_with_origin(state.window_id(), remaining(3), NOON), state.used()), (None, Units::ZERO));
    state.reserve(units(1));
    state.advance_to(NOON + Duration::from_secs(60));
    let event = state.sync_with_origin(state.window_id(), remaining(3), state.latest_time());
    assert_eq!((event, state.taken()), (Some(OriginQuotaEvent::Drift { milli: 6000 }), units(7)));
}

#[test]
fn report_for_an_earlier_window_counts_only_in_a_sliding_one() {
    let sliding = Window::Sliding { length: LENGTH, sub_windows: 6 };
    for (window, used) in [(Window::Fixed { length: LENGTH }, Units::ZERO), (sliding, units(7))] {
        let quota = Quota { window, ..fixtures::quota("api", 10) };
        let mut state = QuotaState::new(&quota, &[CLASS], units(1), false, NOON);
        let id = state.window_id();
        state.advance_to(NOON + LENGTH + LENGTH / 2);
        state.sync_with_origin(id, remaining(3), state.latest_time());
        assert_eq!(state.used(), used);
    }
}

#[test]
fn exhaustion_is_reported_again_only_with_a_later_reset() {
    let mut state = state(10, false);
    let mut event = |minutes: u64| {
        let resets_at = Some(NOON + Duration::from_secs(60 * minutes));
        let report = OriginReport { resets_at, exhausted: true, ..OriginReport::default() };
        matches!(state.sync_with_origin(state.window_id(), report, NOON), Some(OriginQuotaEvent::Exhausted { .. }))
    };
    assert_eq!([5, 5, 4, 6].map(&mut event), [true, false, false, true]);
}

#[test]
fn drift_is_reported_if_it_changes_by_more_than_a_hundredth_of_the_limit() {
    let mut state = state(1000, false);
    let drifts = [990, 979, 968, 968].map(|left| state.sync_with_origin(state.window_id(), remaining(left), NOON));
    let drift = |milli| Some(OriginQuotaEvent::Drift { milli });
    assert_eq!(drifts, [None, drift(11_000), None, drift(0)]);
}

#[test]
fn correction_returns_the_usage_before_and_after() {
    let mut state = state(10, false);
    state.reserve(units(3));
    assert_eq!(
        [4, 9, 0].map(|used| state.set_used(units(used))),
        [(0, 4), (4, 7), (7, 0)].map(|(a, b)| (units(a), units(b)))
    );
}

#[test]
fn count_of_a_log_replaces_the_own_and_replans_if_it_falls() {
    let quota = Quota {
        pacing: Some(fixtures::pacing(&[PacingRole::Unpaced, PacingRole::Unpaced])),
        ..fixtures::quota("api", 10)
    };
    let mut state = QuotaState::new(&quota, &[0, CLASS], units(1), false, NOON);
    let pacing = quota.pacing.as_ref().expect("the quota is paced");
    state.reserve(units(2));
    state.plan_for(pacing, &[0, CLASS], CLASS);
    state.adopt_plan();
    let mut sync = |taken: u64| {
        let changed = state.sync_used_from_log(units(taken));
        assert_eq!((state.taken(), state.reserved()), (units(taken.max(2)), units(2)));
        (changed, state.pacer().expect("planned").is_due(NOON))
    };
    assert_eq!([2, 5, 5].map(&mut sync), [(false, false), (true, false), (false, false)]);
    assert_eq!(sync(4), (true, true));
}

#[test]
fn hourly_forecast_is_that_of_the_class() {
    let mut state = state(10, false);
    assert_eq!(state.hourly_forecast(CLASS), []);
    let hours = [HourProfile { units: 10.0, weeks: 1.0 }; HOURS_PER_WEEK];
    state.restore_demand(CLASS, DemandModel::from_hours(hours));
    let forecast = state.hourly_forecast(CLASS);
    assert!(forecast.len() == 24 && forecast.iter().all(|units| (units - 10.0).abs() < 0.01), "{forecast:?}");
    assert_eq!(state.hourly_forecast(CLASS + 1), []);
}

#[test]
fn tiers_of_a_paced_quota_count_only_usage_ahead_of_the_plan() {
    let pacing = Pacing { forecast: PacingMode::Even, ..fixtures::pacing(&[PacingRole::Unpaced]) };
    let paced = Quota { pacing: Some(pacing.clone()), ..fixtures::quota("api", 1000) };
    let mut state = QuotaState::new(&paced, &[CLASS], units(1), false, NOON);
    state.reserve(units(500));
    assert_eq!(state.used_for_tiers(&paced), units(500), "there is no plan yet");
    state.plan_for(&pacing, &[CLASS], CLASS);
    state.adopt_plan();
    assert_eq!(state.used_for_tiers(&paced), Units::ZERO);
    assert_eq!(state.used_for_tiers(&fixtures::quota("api", 1000)), units(500), "without pacing");
    state.reserve(units(100));
    assert_eq!(state.used_for_tiers(&paced), units(600));
}
