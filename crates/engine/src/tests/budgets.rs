//! Budgets: each key has its own limit, whatever the others use.

use super::*;
use crate::ledger::key_file::KeyFile;
use std::collections::HashMap;
use std::path::Path;
use tidegate_policy::budget::{Budget, BudgetKey};
use tidegate_policy::decide::DecisionRequest;
use tidegate_policy::key_lease::{Beyond, KeyGrant, KeyLeaseCall, KeyLeaseRow, KeyReply};
use tidegate_policy::key_usage::KeyWindows;

const LIMIT: u64 = 10;

fn customer(number: u64) -> Payer {
    Payer { client: ClientKey::from_u64(number), customer: ClientKey::from_credential(number) }
}

fn budget(per: BudgetKey, max_keys: usize) -> Budget {
    let class_keys = vec![ClientKey::of_class("a"), ClientKey::of_class("b")];
    Budget {
        per,
        class_limits: HashMap::new(),
        key_limits: HashMap::new(),
        class_keys,
        max_keys,
        has_metrics_by_key: false,
    }
}

fn with_budgets(budget: Budget) -> Quota {
    Quota { budget: Some(budget), ..fixtures::quota("customer", LIMIT) }
}

fn admission_of(quotas: Vec<Quota>, costs: &[(u16, u64)]) -> Admission {
    let classes = vec![fixtures::class("a"), fixtures::class("b")];
    let rules = Rules { classes, quotas, routes: vec![route(costs)], ..fixtures::rules() };
    Engine::new(LeaseMode::Local, 1000).admission(Arc::new(rules), NOON)
}

fn decide(admission: &Admission, payer: Payer, class: ClassId) -> Decision {
    decide_at(admission, payer, class, NOON)
}

fn decide_at(admission: &Admission, payer: Payer, class: ClassId, now: Timestamp) -> Decision {
    let class_rules = &admission.rules()[class];
    let request = DecisionRequest {
        class,
        class_rules,
        route: &admission.rules()[RouteId(0)],
        has_learned_cost: false,
        exemption: None,
        switch: None,
        has_copy: false,
        is_refresh: false,
    };
    admission.admit_guarded(payer, &request, RouteId(0), None, now)
}

fn admitted(admission: &Admission, payer: Payer, class: ClassId, count: usize) -> usize {
    let admit = |_: &usize| {
        let mut permit = decide(admission, payer, class).permit;
        permit.iter_mut().for_each(Permit::mark_sent);
        permit.is_some()
    };
    (0..count).filter(admit).count()
}

#[test]
fn each_key_spends_its_own_limit_and_no_more() {
    let units = Units::from_whole;
    let budget = Budget {
        class_limits: [(ClassId(1), units(15))].into(),
        key_limits: [(customer(3).customer, units(4))].into(),
        ..budget(BudgetKey::Customer, 100)
    };
    let admission = admission_of(vec![with_budgets(budget)], &[(0, 1)]);
    let counts =
        [(1, 0), (2, 1), (3, 1)].map(|(number, class)| admitted(&admission, customer(number), ClassId(class), 20));
    assert_eq!(counts, [10, 15, 4]);
    let refused = decide(&admission, customer(1), ClassId(0));
    assert_eq!(refused.verdict.refusal().map(|refusal| refusal.reason), Some(Reason::Quota));
    let usage = refused.quota_usage[0];
    assert_eq!((usage.used, usage.remaining), (units(10), Units::ZERO));
    let entries = &admission.budget_entries(0, NOON)[0];
    assert_eq!((entries.keys, entries.used), (3, units(29)));
    assert!(admission.quotas(NOON).is_empty());
    let usage = admission.budget_usage(QuotaId(0), ClassId(1), customer(2).customer, NOON).expect("it has budgets");
    assert_eq!((usage.used, usage.limit), (units(15), units(15)));
}

#[test]
fn usage_shown_to_a_customer_is_its_own() {
    let admission = admission_of(vec![with_budgets(budget(BudgetKey::Customer, 100))], &[(0, 1)]);
    admitted(&admission, customer(1), ClassId(0), 6);
    let usage = decide(&admission, customer(2), ClassId(0)).quota_usage[0];
    assert_eq!((usage.used.floor(), usage.remaining.floor()), (1, 9));
}

#[test]
fn request_is_charged_in_all_quotas_or_in_none() {
    let all = fixtures::quota("all", 25);
    let quotas = || vec![all.clone(), with_budgets(budget(BudgetKey::Customer, 100))];
    let admission = admission_of(quotas(), &[(0, 1), (1, 1)]);
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 20), 10);
    assert_eq!(admission.quotas(NOON)[0].used.floor(), 10, "what a budget refuses is charged nowhere");
    assert_eq!(admitted(&admission, customer(2), ClassId(0), 20), 10);
    assert_eq!(admitted(&admission, customer(3), ClassId(0), 20), 5);
    let usage = admission.budget_usage(QuotaId(1), ClassId(0), customer(3).customer, NOON);
    assert_eq!(usage.expect("it has budgets").used.floor(), 5, "what the quota refuses is charged to no budget");
}

#[test]
fn budgets_of_clients_and_of_classes_are_apart() {
    for (per, expected) in [(BudgetKey::Client, [10, 10, 0]), (BudgetKey::Class, [10, 0, 10])] {
        let admission = admission_of(vec![with_budgets(budget(per, 100))], &[(0, 1)]);
        let counts =
            [(1, 0), (2, 0), (2, 1)].map(|(number, class)| admitted(&admission, customer(number), ClassId(class), 20));
        assert_eq!(counts, expected, "{per:?}");
    }
}

#[test]
fn actual_cost_replaces_the_expected_one() {
    let admission = admission_of(vec![with_budgets(budget(BudgetKey::Customer, 100))], &[(0, 5)]);
    let used = || {
        let usage = admission.budget_usage(QuotaId(0), ClassId(0), customer(1).customer, NOON);
        usage.expect("it has budgets").used.floor()
    };
    let permit = decide(&admission, customer(1), ClassId(0)).permit.expect("units are left");
    assert_eq!(used(), 5);
    permit.settle(|_, _| Units::from_whole(2));
    assert_eq!(used(), 2);
    drop(decide(&admission, customer(1), ClassId(0)).permit);
    assert_eq!(used(), 2, "what was not sent is released");
    let mut permit = decide(&admission, customer(1), ClassId(0)).permit.expect("units are left");
    permit.mark_sent();
    assert!(!permit.reserve_retry(NOON), "a retry would exceed the budget");
    permit.settle(|_, _| Units::from_whole(100));
    assert_eq!(used(), 102, "what the origin has done is counted");
    assert!(decide(&admission, customer(1), ClassId(0)).permit.is_none());
}

#[test]
fn next_window_begins_without_usage() {
    let admission = admission_of(vec![with_budgets(budget(BudgetKey::Customer, 100))], &[(0, 1)]);
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 20), 10);
    let end = admission.budget_entries(0, NOON)[0].window_end.expect("windows of the quota");
    let usage = admission.budget_usage(QuotaId(0), ClassId(0), customer(1).customer, end);
    assert_eq!(usage.expect("it has budgets").used, Units::ZERO);
}

#[test]
fn clock_that_ran_ahead_and_is_set_back_gives_no_units_back() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let open = || customers_in(dir.path());
    let mut admission = open();
    let left = |admission: &Admission, now| {
        let usage = admission.budget_usage(QuotaId(0), ClassId(0), customer(1).customer, now).expect("it has budgets");
        usage.limit.saturating_sub(usage.used).floor()
    };
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 7), 7);
    let window_after = |now| admission.budget_entries(0, now)[0].window_end.expect("windows of the quota");
    let next = window_after(NOON);
    let last = window_after(next);
    for (now, expected) in [(next, LIMIT), (NOON, LIMIT - 7), (last, LIMIT), (next, LIMIT)] {
        assert_eq!(left(&admission, now), expected);
        admission = open();
    }
    // A third window makes the first one forgotten.
    for (now, expected) in [(next, LIMIT - 1), (last, LIMIT - 1), (NOON, 0), (next, LIMIT - 2)] {
        let mut permit = decide_at(&admission, customer(1), ClassId(0), now).permit;
        permit.iter_mut().for_each(Permit::mark_sent);
        assert_eq!((permit.is_some(), left(&admission, now)), (now != NOON, expected));
        drop(permit);
        admission = open();
    }
}

#[test]
fn usage_continues_in_another_window_after_a_reload() {
    let quota = with_budgets(budget(BudgetKey::Customer, 100));
    let admission = admission_of(vec![quota.clone()], &[(0, 1)]);
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 7), 7);
    let window = Window::Fixed { length: Duration::from_secs(7 * 3600) };
    let quotas = vec![Quota { window, ..quota }];
    let rules = Rules { quotas, ..Rules::clone(admission.rules()) };
    let admission = admission.engine.admission(Arc::new(rules), NOON);
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 20), 3);
}

/// Returns the admission for the same rules with another quota, as a reload does.
fn reloaded(admission: &Admission, quota: Quota) -> Admission {
    let rules = Rules { quotas: vec![quota], ..Rules::clone(admission.rules()) };
    admission.engine.admission(Arc::new(rules), NOON)
}

/// Starts an engine for `quota` with the files in `dir`.
fn started(dir: &Path, quota: Quota) -> Admission {
    let admission = admission_of(vec![quota], &[(0, 1)]);
    admission.engine().open_key_files(dir, || NOON).expect("the directory is writable");
    admission
}

fn used(admission: &Admission, payer: Payer) -> u64 {
    let usage = admission.budget_usage(QuotaId(0), ClassId(0), payer.customer, NOON);
    usage.expect("it has budgets").used.floor()
}

fn fixed(hours: u64) -> Window {
    Window::Fixed { length: Duration::from_secs(hours * 3600) }
}

fn sliding(hours: u64) -> Window {
    Window::Sliding { length: Duration::from_secs(hours * 3600), sub_windows: 60 }
}

fn first_use(hours: u64) -> Window {
    Window::FirstUse { length: Duration::from_secs(hours * 3600) }
}

#[test]
fn refused_customer_is_told_when_enough_units_are_back() {
    for (window, first_back, all_back) in [(sliding(12), 13, 16), (first_use(12), 12, 12)] {
        let quota = Quota { window, ..with_budgets(budget(BudgetKey::Customer, 100)) };
        let admission = admission_of(vec![quota], &[(0, 5)]);
        let hours = |hours| Timestamp(NOON.0 + hours * 3_600_000_000_000);
        let sent = |time: Timestamp| {
            let decision = decide_at(&admission, customer(1), ClassId(0), time);
            let wait = decision.verdict.refusal().map(|refusal| refusal.wait);
            decision.permit.into_iter().for_each(|mut permit| permit.mark_sent());
            wait.map(|wait| (time + wait).saturating_duration_since(NOON).as_secs() / 3600)
        };
        assert_eq!([0, 3].map(|time| sent(hours(time))), [None, None], "{first_back}");
        assert_eq!(sent(hours(4)), Some(first_back), "five of ten units are enough");
        let usage = |time| admission.budget_usage(QuotaId(0), ClassId(0), customer(1).customer, time).expect("budgets");
        assert_eq!((usage(hours(4)).used.floor(), usage(hours(4)).window_end), (10, hours(first_back)));
        assert_eq!(usage(hours(all_back)).used.floor(), 0);
        let other = decide_at(&admission, customer(2), ClassId(0), hours(4)).quota_usage[0];
        assert_eq!((other.used.floor(), other.resets_at), (5, hours(4 + first_back)), "another customer");
        assert_eq!(sent(Timestamp(hours(first_back).0 - 1)), Some(first_back));
        assert_eq!(sent(hours(first_back)), None);
    }
}

#[test]
fn keys_with_most_usage_are_those_of_all_parts() {
    for window in [sliding(12), first_use(12)] {
        let quota = Quota { window, ..with_budgets(budget(BudgetKey::Customer, 100)) };
        let admission = admission_of(vec![quota], &[(0, 1)]);
        for (hour, number) in [(0, 1), (1, 1), (1, 2), (5, 1), (5, 3)] {
            let time = Timestamp(NOON.0 + hour * 3_600_000_000_000);
            let permit = decide_at(&admission, customer(number), ClassId(0), time).permit;
            permit.into_iter().for_each(|mut permit| permit.mark_sent());
        }
        let entries = &admission.budget_entries(2, Timestamp(NOON.0 + 6 * 3_600_000_000_000))[0];
        assert_eq!(entries.top[0].used.floor(), 3, "{entries:?}");
        assert_eq!((entries.top.len(), entries.top[1].used.floor()), (2, 1));
        assert_eq!((entries.keys, entries.used.floor()), (3, 5));
    }
}

#[test]
fn sum_and_number_of_keys_are_those_of_all_keys_that_count() {
    let dir = tempfile::tempdir().expect("temporary directory");
    for (name, window) in [("a", fixed(24)), ("b", sliding(12)), ("c", first_use(12))] {
        let quota =
            || Quota { name: name.into(), window: window.clone(), ..with_budgets(budget(BudgetKey::Customer, 5000)) };
        let admission = started(dir.path(), quota());
        let of_all = |admission: &Admission, hours: u64| {
            let entries = &admission.budget_entries(5, Timestamp(NOON.0 + hours * 3_600_000_000_000))[0];
            (entries.keys, entries.used.floor(), entries.top.len(), entries.window_end.is_some())
        };
        (0..2500).for_each(|number| assert_eq!(admitted(&admission, customer(number), ClassId(0), 2), 2));
        assert_eq!(of_all(&admission, 0), (2500, 5000, 5, true), "{name}");
        let restarted = started(dir.path(), quota());
        assert_eq!(of_all(&restarted, 0), (2500, 5000, 5, true), "{name} after a restart");
        assert_eq!(of_all(&restarted, 36), (0, 0, 0, name == "a"), "{name} after the end");
    }
}

#[test]
fn actual_costs_are_charged_after_a_reload_of_the_window() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let quota = Quota { limit: Units::from_whole(1000), ..with_budgets(budget(BudgetKey::Customer, 100)) };
    let of_window = |window: &Window| Quota { window: window.clone(), ..quota.clone() };
    let mut admission = started(dir.path(), of_window(&fixed(7)));
    let payer = customer(1);
    let units = Units::from_whole;
    // To a longer window, a shorter one, one of another kind, and back: each request is in flight over a reload.
    let windows = [fixed(24), fixed(1), sliding(24), fixed(7), first_use(2), first_use(48), fixed(1), fixed(24 * 30)];
    for (number, window) in windows.iter().chain(&[first_use(3), sliding(1), sliding(9), first_use(1)]).enumerate() {
        let expected = 7 * number as u64;
        assert_eq!(used(&admission, payer), expected);
        let permits = [(); 2].map(|()| decide(&admission, payer, ClassId(0)).permit.expect("units are left"));
        admission = reloaded(&admission, of_window(window));
        assert_eq!(used(&admission, payer), expected + 2);
        permits.into_iter().for_each(|permit| _ = permit.settle(|_, _| units(3)));
        assert_eq!(used(&admission, payer), expected + 6, "in flight");
        admission.unexpected_permit(payer, ClassId(0), QuotaId(0), NOON).settle(|_, _| units(1));
        assert_eq!(used(&admission, payer), expected + 7, "unexpected");
        admission = started(dir.path(), of_window(window));
        assert_eq!(used(&admission, payer), expected + 7, "after a restart");
    }
}

#[test]
fn budgets_and_shares_of_one_name_keep_their_usage_over_reloads() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let with_budget = with_budgets(budget(BudgetKey::Client, 100));
    let with_shares = Quota { client_limit: Some(Units::from_whole(5)), ..fixtures::quota("customer", LIMIT) };
    let admission = started(dir.path(), with_budget.clone());
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 4), 4);
    let admission = reloaded(&admission, with_shares.clone());
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 20), 5, "a share of its own");
    let admission = reloaded(&admission, with_budget.clone());
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 3), 3);
    for _ in 0..2 {
        let restarted = started(dir.path(), with_shares.clone());
        assert_eq!(admitted(&restarted, customer(1), ClassId(0), 20), 0);
    }
    let restarted = started(dir.path(), with_budget);
    assert_eq!(admitted(&restarted, customer(1), ClassId(0), 20), 3);
}

#[test]
fn large_share_of_a_client_is_recorded_in_steps_until_a_reload_makes_it_small() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let with_share =
        |share| Quota { client_limit: Some(Units::from_whole(share)), ..fixtures::quota("units", 1 << 24) };
    let (large, small) = (with_share(1 << 20), with_share(1000));
    let used = |admission: &Admission| {
        let counter = &admission.counters()[0];
        let (client, limit) = (customer(1).client, Units::from_whole(1000));
        counter.client_used(&counter.lock(), client, limit, Units::ZERO).0.floor()
    };
    let admission = started(dir.path(), large.clone());
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 3), 3);
    let restarted = |quota: &Quota| used(&started(dir.path(), quota.clone()));
    assert_eq!((used(&admission), restarted(&large)), (3, 8));
    let admission = started(dir.path(), large);
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 1), 1);
    let admission = reloaded(&admission, small.clone());
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 1), 1);
    assert_eq!((used(&admission), restarted(&small)), (10, 10));
}

#[test]
fn changes_of_max_keys_forget_no_usage() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let of_keys = |max_keys| with_budgets(budget(BudgetKey::Customer, max_keys));
    let mut admission = started(dir.path(), of_keys(4));
    for number in 0..4 {
        assert_eq!(admitted(&admission, customer(number), ClassId(0), 9), 9);
    }
    for number in 4..8 {
        admitted(&admission, customer(number), ClassId(0), 1);
    }
    for max_keys in [100, 2, 50] {
        for restarts in [false, true] {
            admission = match restarts {
                true => started(dir.path(), of_keys(max_keys)),
                false => reloaded(&admission, of_keys(max_keys)),
            };
            let least = (0..8).map(|number| used(&admission, customer(number))).min();
            assert!(least >= Some(9), "{max_keys} {restarts}");
        }
    }
    assert!((0..4).all(|number| admitted(&admission, customer(number), ClassId(0), 20) <= 1));
}

/// Puts a directory where the file of usage by key is created.
fn obstacle(dir: &Path) -> tempfile::TempDir {
    let name = tempfile::Builder::new().prefix("key_usage.customer.new").rand_bytes(0).tempdir_in(dir);
    name.expect("the directory is writable")
}

#[test]
fn quota_that_a_reload_adds_admits_nothing_until_it_is_recorded() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let quota = with_budgets(budget(BudgetKey::Customer, 100));
    let admission = started(dir.path(), quota.clone());
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 4), 4);
    // What was recorded at an earlier start counts, too.
    let admission = started(dir.path(), fixtures::quota("other", LIMIT));
    let obstacle = obstacle(dir.path());
    let admission = reloaded(&admission, quota.clone());
    let refused = decide(&admission, customer(1), ClassId(0));
    assert_eq!(refused.verdict.refusal().map(|refusal| refusal.reason), Some(Reason::Ledger));
    assert_eq!(admission.unrecorded_budget(NOON), Some("customer"));
    let charge = admission.unexpected_permit(customer(1), ClassId(0), QuotaId(0), NOON);
    charge.settle(|_, _| Units::from_whole(2));
    let counter = &admission.counters()[0];
    assert!(counter.sync_key_file(&|| NOON).is_err());
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 1), 0);
    obstacle.close().expect("it is empty");
    counter.sync_key_file(&|| NOON).expect("the directory is writable");
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 3), 3);
    assert_eq!(admitted(&started(dir.path(), quota), customer(1), ClassId(0), 20), 1);
}

#[test]
fn window_that_a_reload_cannot_record_admits_nothing() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let quota = with_budgets(budget(BudgetKey::Customer, 100));
    let admission = started(dir.path(), quota.clone());
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 4), 4);
    let obstacle = obstacle(dir.path());
    let quota = Quota { window: fixed(7), ..quota };
    let admission = reloaded(&admission, quota.clone());
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 1), 0);
    let counter = &admission.counters()[0];
    assert!(counter.sync_key_file(&|| NOON).is_err());
    obstacle.close().expect("it is empty");
    counter.sync_key_file(&|| NOON).expect("the directory is writable");
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 2), 2);
    assert_eq!(admitted(&started(dir.path(), quota), customer(1), ClassId(0), 20), 4);
}

/// Returns an admission with budgets of customers that are recorded in a directory, as after a start.
fn customers_in(dir: &Path) -> Admission {
    let admission = admission_of(vec![with_budgets(budget(BudgetKey::Customer, 100))], &[(0, 1)]);
    admission.engine().open_key_files(dir, || NOON).expect("the directory is writable");
    admission
}

#[test]
fn usage_outlives_the_engine_without_a_shutdown() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let open = || customers_in(dir.path());
    let first = open();
    assert_eq!(admitted(&first, customer(1), ClassId(0), 7), 7);
    let in_flight = decide(&first, customer(2), ClassId(0)).permit.expect("units are left");
    // As after a kill: nothing is settled, and nothing closed.
    std::mem::forget(in_flight);
    let second = open();
    assert_eq!(admitted(&second, customer(1), ClassId(0), 20), 3);
    assert_eq!(admitted(&second, customer(2), ClassId(0), 20), 9, "what was in flight counts as expected");
}

#[test]
fn nothing_is_admitted_that_cannot_be_recorded() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let admission = customers_in(dir.path());
    let read_only = KeyFile::read_only(dir.path(), "customer");
    let file = admission.counters()[0].replace_key_file(read_only);
    // The write fails after the decision; the next one knows.
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 5), 1);
    let refused = decide(&admission, customer(2), ClassId(0));
    assert_eq!(refused.verdict.refusal().map(|refusal| refusal.reason), Some(Reason::Ledger));
    assert_eq!(admission.unrecorded_budget(NOON), Some("customer"));
    admission.counters()[0].replace_key_file(file.expect("a file was open"));
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 20), 9);
    assert_eq!(admission.unrecorded_budget(NOON), None);
}

#[test]
fn nothing_is_written_to_a_disk_that_does_not_sync() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let open = || customers_in(dir.path());
    let admission = open();
    let counter = &admission.counters()[0];
    let permits: Vec<_> = (0..6).map(|_| decide(&admission, customer(1), ClassId(0)).permit).collect();
    let stalled = |seconds: u64| KeyFile::stalled(dir.path(), "customer", Timestamp(NOON.0 - seconds * 1_000_000_000));
    let file = counter.replace_key_file(stalled(1));
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 1), 1, "a sync takes a while");
    counter.replace_key_file(stalled(3));
    let refused = decide(&admission, customer(2), ClassId(0));
    assert_eq!(refused.verdict.refusal().map(|refusal| refusal.reason), Some(Reason::Ledger));
    drop(permits);
    assert_eq!(admitted(&open(), customer(1), ClassId(0), 20), 3, "what is settled is not written");
    counter.replace_key_file(file.expect("a file was open"));
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 20), 9);
}

#[test]
fn file_whose_sync_has_failed_is_replaced() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let open = || customers_in(dir.path());
    let admission = open();
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 2), 2);
    let counter = &admission.counters()[0];
    counter.replace_key_file(KeyFile::unsyncable(dir.path(), "customer"));
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 3), 3);
    counter.sync_key_file(&|| NOON).expect("the directory is writable");
    assert_eq!(admitted(&admission, customer(1), ClassId(0), 1), 1);
    assert_eq!(admitted(&open(), customer(1), ClassId(0), 20), 4);
}

/// Grants all that the calls of an instance want.
fn grant_all(engine: &Engine) -> Vec<KeyLeaseCall> {
    let calls = engine.key_lease_calls(NOON, false);
    for call in &calls {
        let beyond = match call.windows {
            KeyWindows::OfQuota => Beyond::Nothing,
            KeyWindows::Sliding { .. } => Beyond::Earlier { taken: Units::ZERO, expiring: 13 },
            KeyWindows::FirstUse { length } => Beyond::Own { remaining: length, is_earlier: false },
        };
        let grant = |row: &KeyLeaseRow| KeyGrant::Counted {
            held: row.wanted,
            taken_by_others: Units::ZERO,
            forgotten: Units::ZERO,
            beyond,
        };
        engine.apply_key_leases(call, &KeyReply::Granted(call.rows.iter().map(grant).collect()));
    }
    calls
}

fn shared_engine() -> Arc<Engine> {
    Engine::new(LeaseMode::Shared(Arc::new(|| {})), 1000)
}

fn shared_admission(engine: &Arc<Engine>, window: Window) -> Admission {
    let quota = Quota { window, ..with_budgets(budget(BudgetKey::Customer, 100)) };
    let classes = vec![fixtures::class("a")];
    let rules = Rules { classes, quotas: vec![quota], routes: vec![route(&[(0, 2)])], ..fixtures::rules() };
    engine.admission(Arc::new(rules), NOON)
}

/// Number of requests of one customer that are served, each at the latest once it has a lease.
fn served(admission: &Admission, count: usize) -> usize {
    let is_served = |_: &usize| {
        admitted(admission, customer(1), ClassId(0), 1) == 1 || {
            grant_all(admission.engine());
            admitted(admission, customer(1), ClassId(0), 1) == 1
        }
    };
    (0..count).filter(is_served).count()
}

const DAY: Window = Window::Fixed { length: Duration::from_secs(86_400) };

/// Windows of each kind.
fn windows() -> [Window; 4] {
    let length = Duration::from_secs(3_600);
    [DAY, Window::Fixed { length }, Window::Sliding { length, sub_windows: 6 }, Window::FirstUse { length }]
}

#[test]
fn cost_of_a_request_that_a_hand_over_leaves_behind_is_charged_by_the_next_process() {
    for window in windows() {
        let (before, after) =
            (shared_admission(&shared_engine(), window.clone()), shared_admission(&shared_engine(), window));
        assert_eq!(
            decide(&before, customer(1), ClassId(0)).verdict.refusal().map(|it| it.reason),
            Some(Reason::Ledger)
        );
        grant_all(before.engine());
        let mut permit = decide(&before, customer(1), ClassId(0)).permit.expect("units are leased");
        permit.mark_sent();
        before.engine().last_report_of_keys(NOON);
        before.engine().close_key_files();
        permit.settle(|_, _| Units::from_whole(7));
        let late = before.engine().take_late_key_charges();
        assert_eq!(
            late.iter().map(|late| (late.released, late.charged)).collect::<Vec<_>>(),
            [(Units::ZERO, Units::from_whole(5))]
        );
        late.iter().for_each(|late| after.engine().charge_key_late(late, NOON));
        let calls = after.engine().key_lease_calls(NOON, true);
        assert_eq!(
            calls.iter().flat_map(|call| &call.rows).map(|row| row.taken).collect::<Vec<_>>(),
            [Units::from_whole(5)]
        );
    }
}

#[test]
fn reload_of_the_window_keeps_what_keys_have_used_of_leases() {
    let pairs = (0..16).map(|pair| [pair / 4, pair % 4]).filter(|[before, after]| before != after);
    for [before, after] in pairs.map(|pair| pair.map(|index| windows()[index].clone())) {
        let engine = shared_engine();
        assert_eq!(served(&shared_admission(&engine, before), 3), 3);
        let after = shared_admission(&engine, after);
        assert!(decide(&after, customer(1), ClassId(0)).permit.is_none(), "nothing is leased of the new window");
        let calls = grant_all(after.engine());
        assert_eq!(calls[0].rows[0].taken, Units::from_whole(6));
        assert_eq!(served(&after, 5), 2);
        let top = &after.budget_entries(3, NOON)[0];
        assert_eq!((top.keys, top.top[0].used), (1, Units::from_whole(LIMIT)));
    }
}
