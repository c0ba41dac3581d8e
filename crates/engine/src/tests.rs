use super::*;
use proptest::prelude::*;
use std::time::Duration;
use tidegate_policy::bucket::Bucket;
use tidegate_policy::budget::Payer;
use tidegate_policy::class::Class;
use tidegate_policy::cost::Cost;
use tidegate_policy::exempt::ROBOTS_TXT_PATH;
use tidegate_policy::fixtures::{self, route};
use tidegate_policy::identity::ClientKey;
use tidegate_policy::lease::{Lease, LeaseRequest};
use tidegate_policy::quota::Quota;
use tidegate_policy::route::Route;
use tidegate_policy::throttle::Scope;
use tidegate_policy::tier::Share;
use tidegate_policy::window::Window;
use tidegate_policy::{ClassId, QuotaId, Reason, RouteId, Units};

mod budgets;
mod exempt;
mod flood;
mod guarded;
mod paced;
mod session_pages;
mod stated;

const NOON: Timestamp = Timestamp::from_seconds(43_200);
const TOMORROW: Timestamp = Timestamp::from_seconds(86_400);
const PERSON: ClassId = ClassId(0);
const BOT: ClassId = ClassId(1);
const CLIENT: ClientKey = ClientKey::from_u64(1);

fn quota(name: &str, limit: u64, bot_tiers: &[(u64, u32)]) -> Quota {
    let bot_tiers = fixtures::class_tiers(Units::from_whole(limit), bot_tiers);
    Quota { class_tiers: vec![None, Some(bot_tiers)], ..fixtures::quota(name, limit) }
}

fn rules(quotas: Vec<Quota>, routes: Vec<Route>) -> Arc<Rules> {
    let bucket = Bucket { capacity: 2, fill: 1, interval: Duration::from_secs(10), smooth: false, costed_only: false };
    let limited = Class { bucket: Some(bucket), ..fixtures::class("limited") };
    Arc::new(Rules {
        classes: vec![fixtures::class("person"), fixtures::class("bot"), limited],
        quotas,
        routes,
        scopes: vec![Scope::unthrottled("default")],
        ..fixtures::rules()
    })
}

fn admission(quotas: Vec<Quota>, routes: Vec<Route>) -> Admission {
    Engine::new(LeaseMode::Local, 1000).admission(rules(quotas, routes), NOON)
}

fn try_admit(admission: &Admission, class: ClassId, route: u32, now: Timestamp) -> Result<Permit, Reason> {
    let Decision { verdict, permit, .. } = admission.admit(CLIENT, class, RouteId(route), "/item/1", now);
    permit.ok_or_else(|| verdict.refusal().expect("a permit or a refusal").reason)
}

/// Returns the settled and reserved units of the quota at `index`.
fn used_and_reserved(admission: &Admission, index: usize) -> (u64, u64) {
    let view = &admission.quotas(NOON)[index];
    (view.used.floor(), view.reserved.floor())
}

#[test]
fn robots_txt_is_free_on_a_costed_route() {
    let admission = admission(vec![quota("api", 1, &[])], vec![route(&[(0, 1)])]);
    let _last = try_admit(&admission, PERSON, 0, NOON).expect("one unit is left");
    let decision = admission.admit(CLIENT, BOT, RouteId(0), ROBOTS_TXT_PATH, NOON);
    assert!(decision.permit.is_some(), "robots.txt is never refused");
    assert!(decision.quota_usage.is_empty());
    assert_eq!(used_and_reserved(&admission, 0), (0, 1), "usage is within the limit");
}

#[test]
fn permit_dropped_before_sending_releases_its_units() {
    let admission = admission(vec![quota("api", 10, &[])], vec![route(&[(0, 4)])]);
    let permit = try_admit(&admission, PERSON, 0, NOON).expect("units are left");
    assert_eq!(used_and_reserved(&admission, 0), (0, 4));
    drop(permit);
    assert_eq!(used_and_reserved(&admission, 0), (0, 0));
}

#[test]
fn permit_dropped_after_sending_charges_the_expected_cost() {
    let admission = admission(vec![quota("api", 10, &[])], vec![route(&[(0, 4)])]);
    let mut permit = try_admit(&admission, PERSON, 0, NOON).expect("units are left");
    permit.mark_sent();
    drop(permit);
    assert_eq!(used_and_reserved(&admission, 0), (4, 0));
}

#[test]
fn panicking_task_settles_its_permit() {
    let admission = admission(vec![quota("api", 10, &[])], vec![route(&[(0, 4)])]);
    let panics = |sent: bool| {
        let mut permit = try_admit(&admission, PERSON, 0, NOON).expect("units are left");
        let task = std::panic::AssertUnwindSafe(move || {
            if sent {
                permit.mark_sent();
            }
            let _held = permit;
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(std::panic::catch_unwind(task).is_err());
    };
    panics(false);
    assert_eq!(used_and_reserved(&admission, 0), (0, 0));
    panics(true);
    assert_eq!(used_and_reserved(&admission, 0), (4, 0));
}

#[test]
fn manual_correction_reaches_the_ledger_up_or_down() {
    let engine = Engine::new(LeaseMode::Leased(Arc::new(|| ())), 1000);
    let admission = engine.admission(rules(vec![quota("api", 100, &[])], vec![route(&[(0, 1)])]), NOON);
    for used in [20, 20, 30, 5, 0] {
        admission.set_used("api", Units::from_whole(used), NOON).expect("the quota exists");
        let reported: Vec<u64> = engine.pending_corrections(NOON).iter().map(|(_, all)| all.floor()).collect();
        assert_eq!(reported, [used], "each correction is reported");
    }
    assert!(engine.pending_corrections(NOON).is_empty());
}

/// Grants all lease requests in full.
fn grant_all(engine: &Engine, now: Timestamp) -> Vec<LeaseRequest> {
    let requests = engine.lease_requests(now, Duration::ZERO);
    let leases: Vec<Lease> =
        requests.iter().map(|request| Lease { held: request.wanted, ..Lease::default() }).collect();
    engine.apply_leases(&requests, &leases, now);
    requests
}

#[test]
fn one_expensive_response_does_not_enlarge_later_leases() {
    let engine = Engine::new(LeaseMode::Leased(Arc::new(|| ())), 1000);
    let admission = engine.admission(rules(vec![quota("api", 10_000, &[])], vec![route(&[(0, 1)])]), NOON);
    let lease = |now| grant_all(&engine, now)[0].wanted.saturating_sub(Units::from_whole(2001)).floor();
    grant_all(&engine, NOON);
    let permit = try_admit(&admission, PERSON, 0, NOON).expect("units are left");
    let _ = permit.settle(|_, _| Units::from_whole(2000));
    grant_all(&engine, NOON);
    let later = NOON + Duration::from_secs(10);
    let _ = try_admit(&admission, PERSON, 0, later).expect("units are left").settle(|_, cost| cost);
    assert!(lease(later) <= 156, "at most a 64th of the limit, not four times the high cost");
}

#[test]
fn learned_cost_above_the_limit_can_decrease() {
    let learned = Route { costs: vec![(QuotaId(0), Cost::Learned)], ..route(&[]) };
    let admission = admission(vec![quota("api", 10, &[])], vec![learned]);
    for _ in 0..8 {
        let permit = try_admit(&admission, PERSON, 0, NOON).expect("the expected cost is capped at the limit");
        let _ = permit.settle(|_, _| Units::from_whole(500));
        admission.set_used("api", Units::ZERO, NOON).expect("the quota exists");
    }
    let _ = try_admit(&admission, PERSON, 0, NOON)
        .expect("the expected cost is capped at the limit")
        .settle(|_, _| Units::from_whole(1));
    assert_eq!(used_and_reserved(&admission, 0), (1, 0));
}

#[test]
fn first_use_window_opens_at_first_nonzero_cost() {
    let first_use = Quota { window: Window::FirstUse { length: Duration::from_secs(60) }, ..quota("api", 10, &[]) };
    let learned = Route { costs: vec![(QuotaId(0), Cost::Learned)], ..route(&[]) };
    let admission = admission(vec![first_use], vec![learned]);
    for _ in 0..2000 {
        let _ = try_admit(&admission, PERSON, 0, NOON).expect("nothing was charged so far").settle(|_, _| Units::ZERO);
    }
    let _ =
        try_admit(&admission, PERSON, 0, NOON).expect("the expected cost is zero").settle(|_, _| Units::from_whole(10));
    let view = &admission.quotas(NOON)[0];
    assert_eq!((view.used, view.window_end), (Units::from_whole(10), NOON + Duration::from_secs(60)));
    let later = NOON + Duration::from_secs(61);
    assert!(try_admit(&admission, PERSON, 0, later).is_ok(), "the window has ended");
}

#[test]
fn usage_survives_a_change_of_window_kind() {
    let length = Duration::from_secs(86_400);
    let windows = [
        Window::Fixed { length },
        Window::FirstUse { length },
        Window::Sliding { length: length / 2, sub_windows: 60 },
    ];
    for before in &windows {
        for after in &windows {
            for lease_mode in [LeaseMode::Local, LeaseMode::Leased(Arc::new(|| ()))] {
                let engine = Engine::new(lease_mode, 1000);
                let admission_with = |window: &Window| {
                    let quota = Quota { window: window.clone(), ..quota("api", 100, &[]) };
                    let admission = engine.admission(rules(vec![quota], vec![route(&[(0, 1)])]), NOON);
                    grant_all(&engine, NOON);
                    admission
                };
                let admission = admission_with(before);
                for _ in 0..40 {
                    grant_all(&engine, NOON);
                    let _ = try_admit(&admission, PERSON, 0, NOON).expect("units are left").settle(|_, cost| cost);
                }
                let view = &admission_with(after).quotas(NOON)[0];
                assert!(view.used >= Units::from_whole(40), "{before:?}, then {after:?}: {}", view.used);
            }
        }
    }
}

#[test]
fn the_actual_cost_replaces_the_expected_one() {
    let admission = admission(vec![quota("api", 10, &[])], vec![route(&[(0, 4)])]);
    let receipt = try_admit(&admission, PERSON, 0, NOON).expect("units are left").settle(|_, _| Units::from_milli(250));
    assert_eq!(receipt[0].settled, Units::from_milli(250));
    assert_eq!(admission.quotas(NOON)[0].used, Units::from_milli(250));
}

#[test]
fn decision_time_never_goes_back() {
    let admission = admission(vec![quota("api", 10, &[])], vec![route(&[(0, 1)])]);
    let (earlier, later) = (NOON, NOON + Duration::from_micros(3));
    let decided_at = |now| admission.admit(CLIENT, PERSON, RouteId(0), "/item/1", now).decided_at;
    assert_eq!([later, earlier].map(decided_at), [later, later]);
}

#[test]
fn cost_beyond_the_lease_counts_immediately() {
    let engine = Engine::new(LeaseMode::Leased(Arc::new(|| ())), 1000);
    let admission = engine.admission(rules(vec![quota("api", 100, &[])], vec![route(&[(0, 1)])]), NOON);
    grant_all(&engine, NOON);
    let receipt = try_admit(&admission, PERSON, 0, NOON).expect("units are left").settle(|_, _| Units::from_whole(120));
    assert_eq!(receipt[0].overrun, Units::from_whole(20), "20 units exceed the limit, whatever the lease");
    let decision = admission.admit(CLIENT, PERSON, RouteId(0), "/item/1", NOON);
    assert_eq!(decision.quota_usage[0].used, Units::from_whole(100));
    assert_eq!(decision.verdict.refusal().map(|refusal| refusal.reason), Some(Reason::Quota));
}

#[test]
fn cost_beyond_the_limit_is_counted_as_overrun() {
    let admission = admission(vec![quota("api", 10, &[])], vec![route(&[(0, 4)])]);
    let receipt = try_admit(&admission, PERSON, 0, NOON).expect("units are left").settle(|_, _| Units::from_whole(15));
    assert_eq!((receipt[0].settled, receipt[0].overrun), (Units::from_whole(15), Units::from_whole(5)));
    let view = &admission.quotas(NOON)[0];
    assert_eq!((view.used, view.overrun), (Units::from_whole(10), Units::from_whole(5)));
}

#[test]
fn retried_request_is_charged_for_both_attempts() {
    let admission = admission(vec![quota("api", 10, &[])], vec![route(&[(0, 4)])]);
    let mut permit = try_admit(&admission, PERSON, 0, NOON).expect("units are left");
    permit.mark_sent();
    assert!(permit.reserve_retry(NOON));
    let receipt = permit.settle(|_, _| Units::from_whole(1));
    assert_eq!(
        receipt[0].settled,
        Units::from_whole(5),
        "expected cost of the first attempt, actual cost of the second"
    );
    assert_eq!(used_and_reserved(&admission, 0), (5, 0));
}

#[test]
fn all_quotas_are_charged_or_none() {
    let admission = admission(vec![quota("wide", 100, &[]), quota("narrow", 1, &[])], vec![route(&[(0, 1), (1, 1)])]);
    let _held = try_admit(&admission, PERSON, 0, NOON).expect("both quotas have a unit");
    assert_eq!(try_admit(&admission, PERSON, 0, NOON).err(), Some(Reason::Quota));
    assert_eq!((used_and_reserved(&admission, 0), used_and_reserved(&admission, 1)), ((0, 1), (0, 1)));
}

#[test]
fn new_window_starts_empty_despite_late_charges() {
    let admission = admission(vec![quota("api", 4, &[])], vec![route(&[(0, 4)])]);
    let mut late = try_admit(&admission, PERSON, 0, NOON).expect("the units of the whole day");
    late.mark_sent();
    assert_eq!(try_admit(&admission, PERSON, 0, NOON).err(), Some(Reason::Quota));
    let next_day = try_admit(&admission, PERSON, 0, TOMORROW).expect("the new window has units");
    drop(late);
    assert_eq!(try_admit(&admission, PERSON, 0, TOMORROW).err(), Some(Reason::Quota));
    drop(next_day);
}

#[test]
fn clock_set_back_finds_the_previous_window_usage() {
    let admission = admission(vec![quota("api", 1, &[])], vec![route(&[(0, 1)])]);
    let _today = try_admit(&admission, PERSON, 0, NOON).expect("today has a unit");
    let _tomorrow = try_admit(&admission, PERSON, 0, TOMORROW).expect("tomorrow has a unit");
    assert_eq!(try_admit(&admission, PERSON, 0, NOON).err(), Some(Reason::Quota));
    assert_eq!(try_admit(&admission, PERSON, 0, TOMORROW).err(), Some(Reason::Quota));
}

#[test]
fn clock_step_back_by_a_second_is_ignored() {
    let admission = admission(vec![quota("api", 2, &[])], vec![route(&[(0, 1)])]);
    let _first = try_admit(&admission, PERSON, 0, TOMORROW).expect("two units are left");
    let _second = try_admit(&admission, PERSON, 0, TOMORROW - Duration::from_secs(1)).expect("the same window applies");
    assert_eq!(try_admit(&admission, PERSON, 0, TOMORROW).err(), Some(Reason::Quota));
}

#[test]
fn evicted_window_counts_as_exhausted() {
    let admission = admission(vec![quota("api", 1, &[])], vec![route(&[(0, 1)])]);
    for day in 1..30 {
        drop(try_admit(&admission, PERSON, 0, Timestamp::from_seconds(day * 86_400)));
    }
    assert_eq!(try_admit(&admission, PERSON, 0, Timestamp::from_seconds(2 * 86_400)).err(), Some(Reason::Quota));
    assert!(try_admit(&admission, PERSON, 0, Timestamp::from_seconds(28 * 86_400)).is_ok());
}

fn admission_with_window(limit: u64, window: Window) -> Admission {
    admission(vec![Quota { window, ..quota("api", limit, &[]) }], vec![route(&[(0, 1)])])
}

#[test]
fn first_use_window_opens_with_the_first_charge() {
    let admission = admission_with_window(1, Window::FirstUse { length: Duration::from_secs(60) });
    let (opened, soon) = (NOON + Duration::from_secs(7200), NOON + Duration::from_secs(7259));
    let _one = try_admit(&admission, PERSON, 0, opened).expect("the first unit");
    assert_eq!(admission.quotas(soon)[0].window_end, opened + Duration::from_secs(60));
    assert_eq!(try_admit(&admission, PERSON, 0, soon).err(), Some(Reason::Quota));
    let later = opened + Duration::from_secs(1000);
    let _next = try_admit(&admission, PERSON, 0, later).expect("the next window");
    assert_eq!(admission.quotas(later)[0].window_start, later);
}

#[test]
fn first_use_window_survives_a_clock_set_back() {
    let admission = admission_with_window(1, Window::FirstUse { length: Duration::from_secs(60) });
    let _one = try_admit(&admission, PERSON, 0, TOMORROW).expect("the first unit");
    assert_eq!(try_admit(&admission, PERSON, 0, NOON).err(), Some(Reason::Quota), "no additional units");
    assert_eq!(
        admission.quotas(NOON)[0].window_end,
        NOON + Duration::from_secs(60),
        "the window continues from the earlier time"
    );
}

#[test]
fn sliding_window_counts_usage_until_it_expires() {
    let admission = admission_with_window(2, Window::Sliding { length: Duration::from_secs(60), sub_windows: 60 });
    let at = |seconds: u64| NOON + Duration::from_secs(seconds);
    try_admit(&admission, PERSON, 0, at(0)).expect("the first unit").settle(|_, cost| cost);
    try_admit(&admission, PERSON, 0, at(30)).expect("the second unit").settle(|_, cost| cost);
    assert_eq!(try_admit(&admission, PERSON, 0, at(59)).err(), Some(Reason::Quota));
    assert_eq!(admission.quotas(at(59))[0].used, Units::from_whole(2));
    assert_eq!(admission.quotas(at(59))[0].window_end, at(61), "end of the overlap of the first charge");
    try_admit(&admission, PERSON, 0, at(61)).expect("the first charge has expired").settle(|_, cost| cost);
    assert_eq!(try_admit(&admission, PERSON, 0, at(62)).err(), Some(Reason::Quota));
}

#[test]
fn late_settlement_corrects_the_sliding_window() {
    let admission = admission_with_window(4, Window::Sliding { length: Duration::from_secs(60), sub_windows: 60 });
    let late: Vec<_> = (0..4).map(|_| try_admit(&admission, PERSON, 0, NOON).expect("four")).collect();
    let later = NOON + Duration::from_secs(30);
    assert_eq!(try_admit(&admission, PERSON, 0, later).err(), Some(Reason::Quota));
    late.into_iter().for_each(|permit| drop(permit.settle(|_, _| Units::ZERO)));
    assert!(try_admit(&admission, PERSON, 0, later).is_ok());
}

#[test]
fn unexpected_cost_of_a_long_response_does_not_set_the_clock_back() {
    let length = Duration::from_secs(10);
    for window in [Window::Sliding { length, sub_windows: 10 }, Window::Fixed { length }, Window::FirstUse { length }] {
        let admission = admission_with_window(100, window.clone());
        let at = |seconds: u64| NOON + Duration::from_secs(seconds);
        let view = |seconds| admission.quotas(at(seconds))[0].clone();
        try_admit(&admission, PERSON, 0, at(0)).expect("a unit").settle(|_, cost| cost);
        try_admit(&admission, PERSON, 0, at(13)).expect("another one").settle(|_, cost| cost);
        let before = view(13);
        let late = admission.unexpected_permit(Payer::of(CLIENT), PERSON, QuotaId(0), at(0));
        let charged = late.settle(|_, _| Units::from_whole(70));
        assert_eq!(charged[0].settled, Units::from_whole(70), "{window:?}");
        let after = view(13);
        assert_eq!((after.window_start, after.window_end), (before.window_start, before.window_end), "{window:?}");
        assert!(after.used <= Units::from_whole(71), "{window:?}: {}", after.used);
        assert!(try_admit(&admission, PERSON, 0, at(13)).is_ok(), "{window:?}");
    }
}

#[test]
fn manual_correction_resets_earlier_sliding_window_parts() {
    let admission = admission_with_window(2, Window::Sliding { length: Duration::from_secs(60), sub_windows: 60 });
    let later = NOON + Duration::from_secs(30);
    for now in [NOON, later] {
        try_admit(&admission, PERSON, 0, now).expect("two").settle(|_, cost| cost);
    }
    assert_eq!(admission.set_used("api", Units::ZERO, later), Ok((Units::from_whole(2), Units::ZERO)));
    assert_eq!(admission.quotas(later)[0].used, Units::ZERO);
    assert!(try_admit(&admission, PERSON, 0, later).is_ok());
}

#[test]
fn redefined_window_counts_usage_of_the_previous_one() {
    let engine = Engine::new(LeaseMode::Local, 1000);
    let daily = quota("api", 10, &[]);
    let hourly = Quota { window: Window::Fixed { length: Duration::from_secs(3600) }, ..daily.clone() };
    let routes = || vec![route(&[(0, 6)])];
    let (ten, noon) = (NOON - Duration::from_secs(7200), NOON);
    let before = engine.admission(rules(vec![daily], routes()), ten);
    try_admit(&before, PERSON, 0, ten).expect("units are left").settle(|_, cost| cost);
    let after = engine.admission(rules(vec![hourly], routes()), noon);
    assert_eq!(try_admit(&after, PERSON, 0, noon).err(), Some(Reason::Quota), "six of ten units are used today");
    assert!(try_admit(&after, PERSON, 0, TOMORROW).is_ok());
}

#[test]
fn reload_keeps_quota_usage() {
    let engine = Engine::new(LeaseMode::Local, 1000);
    let before = engine.admission(rules(vec![quota("api", 10, &[(5, 50)])], vec![route(&[(0, 6)])]), NOON);
    try_admit(&before, PERSON, 0, NOON).expect("units are left").settle(|_, cost| cost);
    let after = engine.admission(
        rules(vec![quota("new", 5, &[]), quota("api", 8, &[(5, 50)])], vec![route(&[(0, 1)]), route(&[(1, 3)])]),
        NOON,
    );
    assert_eq!(used_and_reserved(&after, 1), (6, 0));
    assert_eq!(try_admit(&after, PERSON, 1, NOON).err(), Some(Reason::Quota));
}

#[test]
fn bucket_is_charged_only_for_admitted_requests() {
    let admission = admission(vec![quota("api", 1, &[])], vec![route(&[(0, 1)]), route(&[])]);
    let limited = ClassId(2);
    let tokens = || admission.admit(CLIENT, limited, RouteId(0), "/item/1", NOON).bucket.map(|bucket| bucket.remaining);
    try_admit(&admission, PERSON, 0, NOON).expect("one unit is left").settle(|_, cost| cost);
    assert_eq!(tokens(), Some(2), "a request refused for the quota takes no token");
    for expected in [None, None, Some(Reason::Bucket)] {
        assert_eq!(try_admit(&admission, limited, 1, NOON).err(), expected);
    }
    assert_eq!(admission.top_clients(5, |_| "", NOON)[0].refusal_count, 2);
}

#[test]
fn idle_clients_with_full_buckets_are_evicted() {
    let admission = admission(vec![quota("api", 9, &[])], vec![route(&[(0, 1)])]);
    drop(try_admit(&admission, ClassId(2), 0, NOON));
    admission.evict_idle(NOON + Duration::from_secs(601));
    assert_eq!(admission.engine().clients_tracked(), 1, "the bucket is full ten seconds after noon");
    admission.evict_idle(NOON + Duration::from_secs(611));
    assert_eq!(admission.engine().clients_tracked(), 0);
}

/// Returns the decisions on `class` by sequence number, with whether a tier refused.
fn concurrent_decisions(admission: &Admission, threads: usize, each: usize, held: usize) -> Vec<(u64, bool)> {
    let run = |thread: usize| {
        let mut open = Vec::new();
        let mut decisions = Vec::new();
        for round in 0..each {
            let decision = admission.admit(ClientKey::from_u64(thread as u64), BOT, RouteId(0), "/item/1", NOON);
            let sequence = decision.quota_usage[0].sequence;
            let is_refused = decision.verdict.refusal().is_some_and(|refusal| refusal.reason == Reason::Tier);
            decisions.push((sequence, is_refused));
            if let Some(mut permit) = decision.permit {
                if round % 2 == 0 {
                    permit.mark_sent();
                }
                open.push(permit);
            }
            if open.len() > held {
                drop(open.remove(0));
            }
        }
        decisions
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        let mut decisions: Vec<_> =
            running.into_iter().flat_map(|thread| thread.join().expect("no thread panics")).collect();
        decisions.sort_unstable();
        decisions
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn shed_shares_are_exact_on_any_thread_count(
        percent in 1u32..100, threads in 1usize..5,
    ) {
        let admission = admission(vec![quota("api", 1_000_000, &[(0, percent)])], vec![route(&[(0, 1)])]);
        let decisions = concurrent_decisions(&admission, threads, 500, 8);
        prop_assert_eq!(decisions.len(), threads * 500);
        for length in [1usize, 7, 100, 499] {
            for run in decisions.windows(length) {
                let refused = run.iter().filter(|(_, refused)| *refused).count() as f64;
                let expected = length as f64 * f64::from(percent) / 100.0;
                prop_assert!((refused - expected).abs() <= 1.0, "{} of {}, {} due", refused, length, expected);
            }
        }
    }

    #[test]
    fn concurrent_usage_never_exceeds_the_limit(
        limit in 1u64..300, cost in 1u64..7, threads in 1usize..5, held in 0usize..20,
    ) {
        let admission = admission(vec![quota("api", limit, &[])], vec![route(&[(0, cost)])]);
        let watching = std::sync::atomic::AtomicBool::new(true);
        std::thread::scope(|scope| {
            scope.spawn(|| while watching.load(std::sync::atomic::Ordering::Relaxed) {
                let (used, reserved) = used_and_reserved(&admission, 0);
                assert!(used + reserved <= limit, "{used} settled and {reserved} reserved of {limit}");
            });
            concurrent_decisions(&admission, threads, 200, held);
            watching.store(false, std::sync::atomic::Ordering::Relaxed);
        });
        let (used, reserved) = used_and_reserved(&admission, 0);
        prop_assert_eq!(reserved, 0, "every reservation is settled");
        prop_assert!(used <= limit);
        prop_assert_eq!(used % cost, 0);
    }

    #[test]
    fn clock_jumps_never_open_a_window_twice(
        kind in 0usize..3, steps in proptest::collection::vec((0u64..40, any::<bool>()), 1..200),
    ) {
        const LIMIT: u64 = 3;
        let length = Duration::from_secs(100);
        let window = [
            Window::Fixed { length },
            Window::Sliding { length, sub_windows: 4 },
            Window::FirstUse { length },
        ][kind].clone();
        let admission = admission_with_window(LIMIT, window.clone());
        let mut taken: std::collections::BTreeMap<Timestamp, u64> = Default::default();
        let mut now = NOON;
        for (step, back) in steps {
            let step = Duration::from_secs(step * step);
            now = if back { now - step } else { now + step };
            if let Ok(permit) = try_admit(&admission, PERSON, 0, now) {
                // A step back of less than two seconds counts as none.
                let span = if kind == 2 { now } else { window.span(now).start };
                let span = if back && step < Duration::from_secs(2) { continue } else { span };
                *taken.entry(span).or_default() += 1;
                permit.settle(|_, cost| cost);
            }
        }
        if kind == 0 {
            prop_assert!(taken.values().all(|&units| units <= LIMIT), "{taken:?}");
        }
        if kind == 1 {
            for start in taken.keys() {
                let sum: u64 = taken.range(*start..=*start + length).map(|(_, units)| units).sum();
                prop_assert!(sum <= LIMIT, "{sum} from {start:?} on: {taken:?}");
            }
        }
        if kind == 2 {
            let bound = LIMIT * (1 + taken.len() as u64);
            prop_assert!(taken.values().sum::<u64>() <= bound);
        }
    }
}
