//! Requests for leases, and leases that arrive while usage changes.

use super::*;
use crate::lease::{LeaseRequest, WindowKey};
use crate::pacing::demand::DemandModel;
use crate::pacing::week::{HOURS_PER_WEEK, HourProfile};

const LIMIT: u64 = 100_000;
/// Lease of an idle quota of [`LIMIT`] units per day, with requests of one unit.
const IDLE_LEASE: u64 = 390;

const fn units(whole: u64) -> Units {
    Units::from_whole(whole)
}

/// A leased quota, whose lease requests are answered by the test.
struct LeasedQuota(QuotaState);

impl LeasedQuota {
    fn with_window(limit: u64, window: Window) -> Self {
        let quota = Quota { window, ..fixtures::quota("api", limit) };
        Self(QuotaState::new(&quota, &[CLASS], units(1), true, NOON))
    }

    fn daily() -> Self {
        Self::with_window(LIMIT, Window::Fixed { length: DAY })
    }

    fn requests(&mut self) -> Vec<LeaseRequest> {
        let mut requests = Vec::new();
        let now = self.0.latest_time();
        self.0.request_leases("api", &mut requests, now, REFRESH_TIME);
        requests
    }

    fn request_for(&mut self, window: u64) -> Option<LeaseRequest> {
        self.requests().into_iter().find(|request| request.window.id == window)
    }

    /// Requests leases, and grants `held` units of the current window.
    fn lease(&mut self, held: u64) -> LeaseRequest {
        let request = self.request_for(self.0.window_id()).expect("the current window is always requested");
        self.apply(&request, Lease { held: units(held), ..Lease::default() });
        request
    }

    fn apply(&mut self, request: &LeaseRequest, lease: Lease) {
        self.0.apply_lease(request, &lease);
    }

    fn advance(&mut self, seconds: u64) {
        self.0.advance_to(self.0.latest_time() + Duration::from_secs(seconds));
    }
}

fn amounts(request: &LeaseRequest) -> [u64; 3] {
    [request.taken, request.held, request.wanted].map(Units::floor)
}

#[test]
fn units_of_an_ended_window_are_returned_once() {
    let mut quota = LeasedQuota::daily();
    quota.lease(10);
    let ended = quota.0.window_id();
    quota.0.reserve(units(4));
    quota.advance(86_400);
    assert_eq!(quota.request_for(ended).map(|request| amounts(&request)), Some([4, 10, 4]));
    assert_eq!(quota.request_for(ended), None);
    quota.0.release(ended, units(1));
    assert_eq!(
        quota.request_for(ended).map(|request| amounts(&request)),
        Some([3, 4, 3]),
        "a changed count is reported"
    );
    assert_eq!(quota.request_for(ended), None);
}

#[test]
fn units_that_arrive_at_the_end_of_a_window_are_returned() {
    let mut quota = LeasedQuota::daily();
    quota.lease(10);
    let ended = quota.0.window_id();
    quota.advance(86_400);
    assert_eq!(quota.request_for(ended).map(|request| amounts(&request)), Some([0, 10, 0]));
    assert_eq!(quota.request_for(ended), None);
}

#[test]
fn late_cost_is_requested_until_the_ledger_grants_it() {
    let mut quota = LeasedQuota::daily();
    quota.lease(10);
    let ended = quota.0.window_id();
    quota.0.reserve(units(4));
    quota.advance(86_400);
    quota.requests();
    quota.0.settle(ended, CLASS, units(4), units(6));
    for _ in 0..3 {
        let request = quota.request_for(ended).expect("two units are owed");
        assert_eq!((amounts(&request), request.urgent), ([4, 4, 6], units(2)));
    }
    let request = quota.request_for(ended).expect("two units are owed");
    quota.apply(&request, Lease { held: units(6), ..Lease::default() });
    assert_eq!(quota.request_for(ended).map(|request| amounts(&request)), Some([6, 6, 6]));
    assert_eq!(quota.request_for(ended), None);
    assert_eq!((quota.0.class(CLASS).charged, quota.0.overrun()), (units(6), Units::ZERO));
}

#[test]
fn lease_of_more_than_twice_the_need_is_returned_in_part() {
    let mut quota = LeasedQuota::daily();
    assert_eq!(amounts(&quota.lease(2 * IDLE_LEASE)), [0, 0, IDLE_LEASE]);
    assert_eq!(
        amounts(&quota.lease(2 * IDLE_LEASE + 1)),
        [0, 2 * IDLE_LEASE, 2 * IDLE_LEASE],
        "twice the need is kept"
    );
    assert_eq!(amounts(&quota.requests()[0]), [0, 2 * IDLE_LEASE + 1, IDLE_LEASE]);
    assert_eq!(quota.0.leased(), units(IDLE_LEASE), "returned units are not taken");
}

#[test]
fn shortfall_is_requested_once_and_covers_the_cost() {
    let mut quota = LeasedQuota::daily();
    quota.lease(10);
    assert!(quota.0.request_refill_for(units(700)));
    assert!(!quota.0.request_refill_for(units(50)), "already requested");
    let request = quota.requests().remove(0);
    assert!(request.urgent >= units(750) && request.wanted >= units(750), "{request:?}");
    quota.advance(10);
    quota.lease(10);
    assert!(quota.0.request_refill_for(units(1)), "requested again for the new lease");
}

#[test]
fn fallback_units_are_available_once_the_ledger_is_not() {
    let mut quota = LeasedQuota::daily();
    let request = quota.requests().remove(0);
    quota.apply(&request, Lease { held: units(10), fallback: units(5), ..Lease::default() });
    assert!(!quota.0.covers(units(11)));
    for _ in 0..2 {
        quota.0.enable_fallback();
        assert!(quota.0.covers(units(15)) && !quota.0.covers(units(16)));
    }
}

#[test]
fn correction_is_pending_until_the_ledger_accepts_it() {
    let mut quota = LeasedQuota::daily();
    let before = quota.lease(10);
    assert_eq!(quota.0.take_pending_correction("api"), None);
    quota.0.reserve(units(3));
    quota.0.set_used(units(20));
    quota.apply(&before, Lease { held: units(10), taken_by_others: units(7), ..Lease::default() });
    assert_eq!(quota.0.used(), units(20), "a lease from before the correction does not undo it");
    let (request, total) = quota.0.take_pending_correction("api").expect("not reported yet");
    assert_eq!((request.window.id, total), (quota.0.window_id(), units(23)));
    assert_eq!(quota.0.take_pending_correction("api"), None);
    quota.0.requeue_correction(request.window.id + 1);
    assert_eq!(quota.0.take_pending_correction("api"), None, "of another window");
    quota.0.requeue_correction(request.window.id);
    quota.0.requeue_correction(request.window.id + 1);
    assert_eq!(quota.0.take_pending_correction("api"), Some((request.clone(), total)));
    quota.apply(&request, Lease { held: units(30), taken_by_others: units(7), ..Lease::default() });
    assert_eq!(quota.0.taken(), units(30), "from now on, the ledger counts");
}

#[test]
fn next_window_is_requested_shortly_before_its_start() {
    for (length, lead_s) in [(DAY, 5), (Duration::from_secs(8), 4)] {
        let mut quota = LeasedQuota::with_window(LIMIT, Window::Fixed { length });
        let end = quota.0.resets_at();
        quota.0.advance_to(end - Duration::from_millis(lead_s * 1000 + 1));
        assert_eq!(quota.request_for(end.0), None);
        quota.0.advance_to(end - Duration::from_secs(lead_s));
        let request = quota.request_for(end.0).expect("the window begins soon");
        assert!(request.taken.is_zero() && request.held.is_zero() && request.wanted > Units::ZERO, "{request:?}");
        let (lease, wanted) = (Lease { held: request.wanted, ..Lease::default() }, request.wanted);
        quota.apply(&request, lease);
        let kept = quota.request_for(end.0).expect("the window begins soon");
        assert_eq!((kept.held, kept.wanted), (wanted, wanted), "what was prefetched is kept");
        quota.0.advance_to(end);
        assert_eq!((quota.0.window_id(), quota.0.leased()), (end.0, wanted));
    }
}

#[test]
fn next_window_is_requested_after_any_number_of_windows() {
    let mut quota = LeasedQuota::daily();
    for _ in 0..3 {
        let end = quota.0.resets_at();
        quota.0.advance_to(end - Duration::from_secs(1));
        assert_eq!(quota.requests().iter().filter(|request| request.window.id == end.0).count(), 1);
        quota.0.advance_to(end);
    }
}

#[test]
fn first_use_windows_are_not_prefetched() {
    let mut quota = LeasedQuota::with_window(LIMIT, Window::FirstUse { length: Duration::from_secs(60) });
    quota.lease(10);
    quota.0.reserve(units(1));
    quota.advance(59);
    assert_eq!(quota.requests().len(), 1);
}

#[test]
fn scarce_sliding_window_leaves_its_units_to_the_current_part() {
    let minute = Duration::from_secs(60);
    let held_of_next = |window: &Window, left: u64| {
        let mut quota = LeasedQuota::with_window(1000, window.clone());
        let end = Timestamp::from_seconds(43_260);
        quota.0.advance_to(end - Duration::from_secs(1));
        for request in quota.requests() {
            quota.apply(&request, Lease { held: units(4), held_by_others: units(1000 - left), ..Lease::default() });
        }
        let next = quota.request_for(end.0);
        let request = next.expect("four units of the next part are held");
        (request.held.floor(), request.wanted.floor(), quota.request_for(end.0).is_some())
    };
    let sliding = Window::Sliding { length: minute * 5, sub_windows: 5 };
    assert_eq!(held_of_next(&sliding, 16), (4, 4, true), "four leases are left");
    assert_eq!(held_of_next(&sliding, 15), (4, 0, false), "returned once");
    assert_eq!(held_of_next(&Window::Fixed { length: minute }, 15), (4, 4, true), "no other window takes from it");
}

#[test]
fn forecast_demand_is_that_of_the_rest_of_the_window() {
    let mut quota = LeasedQuota::daily();
    let hours = [HourProfile { units: 10.0, weeks: 1.0 }; HOURS_PER_WEEK];
    quota.0.restore_demand(CLASS, DemandModel::from_hours(hours));
    let expected = |quota: &mut LeasedQuota| -> Vec<u64> {
        quota.requests().iter().map(|request| (request.expected_demand.as_f64() / 10.0).round() as u64).collect()
    };
    assert_eq!(expected(&mut quota), [12]);
    quota.advance(11 * 3600 + 3599);
    assert_eq!(expected(&mut quota), [0, 24]);
}

#[test]
fn usage_after_a_report_counts_before_the_ledger_knows_it() {
    let window = Window::Sliding { length: Duration::from_secs(300), sub_windows: 5 };
    let mut quota = LeasedQuota::with_window(1000, window);
    quota.lease(10);
    let first = quota.0.window_id();
    quota.0.reserve(units(4));
    quota.advance(60);
    let requests = quota.requests();
    quota.0.settle(first, CLASS, units(1), units(1));
    quota.0.reserve_retry(first, CLASS, Units::ZERO);
    quota.0.settle(first, CLASS, Units::ZERO, units(3));
    let current = requests.iter().find(|request| request.window.id != first).expect("the current window");
    quota.apply(current, Lease { held: units(5), taken_by_others: units(4), ..Lease::default() });
    assert_eq!(quota.0.used(), units(4), "the ledger has yet to lease what the origin spent since");
    let past = quota.request_for(first).expect("three units are owed");
    quota.apply(&past, Lease { held: units(7), ..Lease::default() });
    quota.apply(current, Lease { held: units(5), taken_by_others: units(4), ..Lease::default() });
    assert_eq!(quota.0.used(), units(7));
}

#[test]
fn first_use_window_is_open_from_the_first_use_of_any_instance() {
    const LENGTH: Duration = Duration::from_secs(600);
    let reset_after = |opened: bool, span: Option<(u64, u64)>| {
        let mut quota = LeasedQuota::with_window(LIMIT, Window::FirstUse { length: LENGTH });
        if opened {
            quota.0.reserve(units(1));
        }
        let request = quota.requests().remove(0);
        let span = span.map(|(start, end)| Span {
            start: NOON - LENGTH + Duration::from_secs(start),
            end: NOON - LENGTH + Duration::from_secs(end),
        });
        quota.apply(&request, Lease { held: units(10), span, ..Lease::default() });
        quota.0.resets_at().saturating_duration_since(NOON).as_secs()
    };
    assert_eq!((reset_after(false, None), reset_after(true, None)), (600, 600));
    for opened in [false, true] {
        assert_eq!(reset_after(opened, Some((500, 1100))), 500, "another instance opened it before");
        assert_eq!(reset_after(opened, Some((500, 1050))), 450, "the ledger ends it earlier");
        assert_eq!(reset_after(opened, Some((500, 100_000))), 500, "it is not longer than configured");
    }
    assert_eq!(reset_after(true, Some((700, 1300))), 600, "another instance opened it later");
}

/// Model of a ledger: units held of each window, by instance.
#[derive(Default)]
struct LedgerModel(Vec<(WindowKey, usize, Units, Units)>);

impl LedgerModel {
    fn lease(&mut self, instance: usize, request: &LeaseRequest) -> Lease {
        let key = &request.window;
        let counts = |(window, holder, ..): &&(WindowKey, usize, Units, Units)| {
            key.overlaps(window.id, window.span) || (window.id == key.id && *holder != instance)
        };
        let (held_by_others, taken_by_others) =
            self.0.iter().filter(counts).fold((Units::ZERO, Units::ZERO), |sum, row| {
                (sum.0.saturating_add(row.2), sum.1.saturating_add(row.3))
            });
        let available = request.limit.saturating_sub(held_by_others);
        let kept = request.held.min(request.wanted);
        let held = request.wanted.min(available).max(kept).max(request.taken);
        self.0.retain(|(window, holder, ..)| window.id != key.id || *holder != instance);
        self.0.push((*key, instance, held, request.taken));
        Lease { held, held_by_others, taken_by_others, ..Lease::default() }
    }
}

fn any_window() -> impl Strategy<Value = Window> {
    prop_oneof![
        Just(Window::Fixed { length: Duration::from_secs(20) }),
        Just(Window::Sliding { length: Duration::from_secs(60), sub_windows: 3 }),
    ]
}

proptest! {
    /// Instances never take more than the limit together, whatever part of an expected cost is spent, and whenever
    /// their leases arrive.
    #[test]
    fn instances_never_take_more_than_the_limit(
        window in any_window(), limit in 20u64..200,
        steps in proptest::collection::vec((0usize..3, 0u8..4, 1u64..9), 1..150),
    ) {
        let mut ledger = LedgerModel::default();
        let mut instances = [0, 1, 2].map(|_| LeasedQuota::with_window(limit, window.clone()));
        let mut taken: Vec<(Timestamp, Units)> = Vec::new();
        let mut open: Vec<(usize, u64, usize, Units)> = Vec::new();
        let mut now = NOON;
        for (index, action, amount) in steps {
            let quota = &mut instances[index];
            quota.0.advance_to(now);
            let cost = units(amount);
            match action {
                0 if quota.0.covers(cost) => {
                    quota.0.reserve(cost);
                    taken.push((window.span(now).start, cost));
                    open.push((index, quota.0.window_id(), taken.len() - 1, cost));
                }
                0 => { quota.0.request_refill_for(cost); }
                1 if !open.is_empty() => {
                    let (holder, id, row, expected) = open.swap_remove(amount as usize % open.len());
                    let actual = expected.min(units(amount / 2));
                    taken[row].1 = actual;
                    instances[holder].0.settle(id, CLASS, expected, actual);
                }
                1 => now += Duration::from_secs(amount),
                2 => {
                    let requests = quota.requests();
                    for request in &requests {
                        let lease = ledger.lease(index, request);
                        quota.apply(request, lease);
                    }
                }
                _ => now += Duration::from_secs(amount),
            }
            let reach = window.nominal_length().saturating_mul(u32::from(window.is_sliding()));
            let span = window.span(now);
            let sum: Units =
                taken.iter().filter(|(start, _)| *start + reach >= span.start).map(|(_, units)| *units).sum();
            prop_assert!(sum <= units(limit), "{sum} of {limit} taken");
        }
    }
}

#[test]
fn cost_that_a_request_states_is_held_for_seconds_only() {
    for stated in [IDLE_LEASE, 3 * IDLE_LEASE, LIMIT / 2, LIMIT] {
        let mut quota = LeasedQuota::daily();
        quota.0.request_refill_for(units(stated));
        let request = quota.lease(stated);
        assert!(request.wanted >= units(stated), "{request:?}");
        let window = quota.0.window_id();
        quota.0.reserve(units(stated));
        quota.0.settle(window, CLASS, units(stated), units(1));
        let mut held = units(stated);
        for _ in 0..16 {
            quota.advance(1);
            let request = quota.request_for(window).expect("the current window is always requested");
            // A ledger grants no less than is held, unless units are returned.
            held = if request.wanted < request.held { request.wanted } else { held };
            quota.apply(&request, Lease { held, ..Lease::default() });
        }
        assert!(held <= units(1 + 2 * (IDLE_LEASE + 1)), "{held} held after {stated}");
    }
}
