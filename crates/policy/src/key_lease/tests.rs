use super::lease::MIN_REQUESTS;
use super::table::IDLE_TICKS;
use super::*;
use crate::Timestamp;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

const WINDOW: Span = Span { start: Timestamp::from_seconds(0), end: Timestamp::from_seconds(100) };
const NOW: Timestamp = Timestamp::from_seconds(50);

const fn units(whole: u64) -> Units {
    Units::from_whole(whole)
}

fn key(number: u64) -> ClientKey {
    ClientKey::from_credential(number)
}

/// Held and taken units of each key by instance, with the rules of the script.
#[derive(Default)]
struct Ledger(BTreeMap<ClientKey, BTreeMap<usize, (Units, Units)>>);

impl Ledger {
    fn lease(&mut self, instance: usize, call: &KeyLeaseCall) -> KeyReply {
        KeyReply::Granted(call.rows.iter().map(|row| self.lease_key(instance, row, call.max_keys)).collect())
    }

    fn lease_key(&mut self, instance: usize, row: &KeyLeaseRow, max_keys: usize) -> KeyGrant {
        let is_shared = row.key.owner() == crate::identity::KeyOwner::SharedBudget;
        if !self.0.contains_key(&row.key) && self.0.len() >= max_keys && !is_shared {
            return KeyGrant::Shared;
        }
        let leases = self.0.entry(row.key).or_default();
        let own = leases.get(&instance).copied();
        assert!(own.unwrap_or_default().0 >= row.acknowledged.unwrap_or_default(), "the ledger has lost nothing");
        let forgotten = own.filter(|_| row.acknowledged.is_none()).unwrap_or_default().0;
        let [taken, held, needed, wanted] =
            [row.taken, row.held, row.needed, row.wanted].map(|units| units.saturating_add(forgotten));
        let others = leases.iter().filter(|(holder, _)| **holder != instance);
        let (held_by_others, taken_by_others) = others.fold((Units::ZERO, Units::ZERO), |sum, (_, lease)| {
            (sum.0.saturating_add(lease.0), sum.1.saturating_add(lease.1))
        });
        let free = row.limit.saturating_sub(held_by_others).saturating_sub(held);
        let mut grant = Units::ZERO;
        if needed.saturating_sub(held) <= free {
            let half = Units::from_milli(free.milli() / 2);
            grant = wanted.saturating_sub(held).min(needed.saturating_sub(held).max(half));
        }
        let held = held.saturating_add(grant);
        leases.insert(instance, (held, taken));
        KeyGrant::Counted { held, taken_by_others, forgotten, beyond: Beyond::Nothing }
    }
}

fn exchange(ledger: &mut Ledger, instance: usize, leases: &mut KeyLeases, is_tick: bool) -> bool {
    let calls = leases.calls("q", WINDOW, NOW, is_tick, MAX_ROWS);
    let mut is_satisfied = true;
    for call in &calls {
        is_satisfied &= leases.apply(call, &ledger.lease(instance, call));
    }
    is_satisfied
}

/// Admits a request of `cost` if the lease covers it.
fn admit(leases: &mut KeyLeases, key: ClientKey, limit: u64, cost: u64) -> bool {
    let KeyBalance { taken, leased } = leases.balance(0, key, units(limit), units(cost), NOW);
    let after = taken.saturating_add(units(cost));
    if after > leased || after > units(limit) {
        leases.request(WINDOW, key, units(limit), units(cost), NOW);
        return false;
    }
    leases.reserve(WINDOW, key, units(limit), units(cost), NOW);
    true
}

#[test]
fn lease_takes_88_bytes() {
    assert_eq!(size_of::<KeyLease>(), 88);
}

#[test]
fn first_request_waits_and_further_ones_have_leases() {
    let (mut ledger, mut leases) = (Ledger::default(), KeyLeases::new(KeyWindows::OfQuota, 10));
    assert!(!admit(&mut leases, key(1), 1000, 1));
    assert!(!leases.request(WINDOW, key(1), units(1000), units(1), NOW), "it is requested already");
    assert!(exchange(&mut ledger, 0, &mut leases, false));
    let admitted = (0..20).filter(|_| admit(&mut leases, key(1), 1000, 1)).count();
    assert_eq!(admitted as u64, MIN_REQUESTS);
    // Leases grow with use, and one call is for several requests.
    let mut calls = 0;
    for _ in 0..500 {
        if !admit(&mut leases, key(1), 1000, 1) || !leases.tables[0].queue.is_empty() {
            calls += 1;
            exchange(&mut ledger, 0, &mut leases, false);
        }
    }
    assert!(calls < 100, "{calls}");
}

#[test]
fn idle_units_are_returned_and_spent_by_others() {
    let mut ledger = Ledger::default();
    let (mut first, mut second) = (KeyLeases::new(KeyWindows::OfQuota, 10), KeyLeases::new(KeyWindows::OfQuota, 10));
    assert!(!admit(&mut first, key(1), 100, 2));
    exchange(&mut ledger, 0, &mut first, false);
    assert!(admit(&mut first, key(1), 100, 2));
    (0..=IDLE_TICKS + 1).for_each(|_| _ = exchange(&mut ledger, 0, &mut first, true));
    assert_eq!(ledger.0[&key(1)][&0], (units(2), units(2)));
    let mut admitted = 0;
    for _ in 0..300 {
        admitted += u64::from(admit(&mut second, key(1), 100, 1));
        exchange(&mut ledger, 1, &mut second, false);
    }
    assert_eq!(admitted, 98);
    assert_eq!(second.balance(0, key(1), units(100), Units::ZERO, NOW).taken, units(100));
}

#[test]
fn keys_beyond_the_maximum_share_budgets() {
    let (mut ledger, mut leases) = (Ledger::default(), KeyLeases::new(KeyWindows::OfQuota, 4));
    let mut spend = |number: u64| {
        let mut admitted = 0;
        for _ in 0..40 {
            if admit(&mut leases, key(number), 10, 1) {
                leases.settle(0, key(number), units(1), units(1));
                admitted += 1;
            }
            exchange(&mut ledger, 0, &mut leases, true);
        }
        admitted
    };
    assert_eq!([0, 1, 2, 3].map(&mut spend), [10; 4]);
    let shared: u64 = (1000..1200).map(spend).sum();
    assert!(shared > 0 && shared <= 10 * SHARED_BUDGETS, "{shared}");
    assert!(leases.entries().filter(|(window, _)| *window == 0).count() <= 4 + SHARED_BUDGETS as usize);
    let table = &leases.tables[0];
    let is_exact = |lease: &KeyLease| lease.state != KeyState::Counted || lease.used <= units(10);
    assert!(table.leases.iter().all(is_exact));
}

#[test]
fn call_without_an_answer_is_made_again() {
    let (mut ledger, mut leases) = (Ledger::default(), KeyLeases::new(KeyWindows::OfQuota, 10));
    assert!(!admit(&mut leases, key(1), 1000, 5));
    let calls = leases.calls("q", WINDOW, NOW, false, MAX_ROWS);
    // The ledger executes the call, and the reply is lost.
    ledger.lease(0, &calls[0]);
    leases.requeue(&calls[0]);
    exchange(&mut ledger, 0, &mut leases, false);
    assert!(admit(&mut leases, key(1), 1000, 5));
}

#[test]
fn made_up_keys_take_no_place_from_a_key_that_is_counted() {
    let (mut ledger, mut first, mut second) =
        (Ledger::default(), KeyLeases::new(KeyWindows::OfQuota, 4), KeyLeases::new(KeyWindows::OfQuota, 4));
    for number in 0..4 {
        admit(&mut first, key(number), 100, 1);
        exchange(&mut ledger, 0, &mut first, false);
    }
    for number in 1000..3000 {
        admit(&mut second, key(number), 100, 1);
        exchange(&mut ledger, 1, &mut second, false);
    }
    assert!(second.entries().filter(|(window, _)| *window == 0).count() <= 4 + SHARED_BUDGETS as usize);
    assert!(!admit(&mut second, key(1), 100, 1));
    exchange(&mut ledger, 1, &mut second, false);
    assert!(admit(&mut second, key(1), 100, 1), "without a tick");
}

#[test]
fn key_with_a_request_in_flight_keeps_its_place_until_the_rest_is_returned() {
    let (mut ledger, mut leases) = (Ledger::default(), KeyLeases::new(KeyWindows::OfQuota, 2));
    for number in [1, 2] {
        assert!(!admit(&mut leases, key(number), 100, 5));
        exchange(&mut ledger, 0, &mut leases, false);
        assert!(admit(&mut leases, key(number), 100, 5));
    }
    let mut be_idle = |leases: &mut KeyLeases| {
        (0..=IDLE_TICKS + 1).for_each(|_| _ = exchange(&mut ledger, 0, leases, true));
        [1, 2].map(|number| ledger.0[&key(number)][&0])
    };
    leases.settle(0, key(2), units(5), units(5));
    assert_eq!(be_idle(&mut leases), [(units(5), units(5)); 2]);
    assert!(leases.request(WINDOW, key(3), units(100), units(1), NOW), "in the place of the second key");
    leases.settle(0, key(1), units(5), units(2));
    assert_eq!(be_idle(&mut leases), [(units(2), units(2)), (units(5), units(5))]);
}

#[test]
fn requests_that_do_not_end_leave_room_for_other_keys() {
    for count in [1, 300] {
        let (mut ledger, mut leases) = (Ledger::default(), KeyLeases::new(KeyWindows::OfQuota, 1));
        for _ in 0..count {
            while !admit(&mut leases, key(1), 10_000, 1) {
                exchange(&mut ledger, 0, &mut leases, false);
            }
        }
        (0..=IDLE_TICKS + 1).for_each(|_| _ = exchange(&mut ledger, 0, &mut leases, true));
        assert!(leases.request(WINDOW, key(2), units(100), units(1), NOW), "{count} requests in flight");
        exchange(&mut ledger, 0, &mut leases, false);
        assert!(!admit(&mut leases, key(2), 100, 1), "it shares a budget, which needs a lease");
        exchange(&mut ledger, 0, &mut leases, false);
        assert!(admit(&mut leases, key(2), 100, 1));
        assert_eq!(ledger.0[&key(1)][&0].1, units(count), "what was reserved stays charged");
    }
}

#[test]
fn cost_beyond_the_reservation_of_an_earlier_process_is_charged() {
    let (mut ledger, mut leases) = (Ledger::default(), KeyLeases::new(KeyWindows::OfQuota, 1));
    leases.open(WINDOW);
    leases.settle(0, key(1), units(5), units(30));
    exchange(&mut ledger, 0, &mut leases, true);
    assert_eq!(ledger.0[&key(1)][&0].1, units(25));
}

#[test]
fn reply_about_a_window_that_has_ended_meanwhile_is_not_applied() {
    let length = Duration::from_secs(20);
    let windows = KeyWindows::FirstUse { length };
    let mut leases = KeyLeases::new(windows, 10);
    let span = windows.table_span(WINDOW, NOW);
    let grant = |held, remaining| {
        let (held, beyond) = (units(held), Beyond::Own { remaining, is_earlier: false });
        let grant = KeyGrant::Counted { held, taken_by_others: Units::ZERO, forgotten: Units::ZERO, beyond };
        KeyReply::Granted(vec![grant])
    };
    leases.request(span, key(1), units(100), units(5), NOW);
    // By the clock of the ledger, its window has begun earlier.
    let first = leases.calls("q", span, NOW, false, MAX_ROWS).remove(0);
    leases.apply(&first, &grant(20, Duration::from_secs(5)));
    leases.reserve(span, key(1), units(100), units(20), NOW);
    let call = leases.calls("q", span, NOW, true, MAX_ROWS).remove(0);
    let later = NOW + Duration::from_secs(6);
    leases.request(span, key(1), units(100), units(5), later);
    leases.apply(&call, &grant(40, Duration::from_secs(20)));
    let balance = leases.balance(span.start.0, key(1), units(100), units(5), later);
    assert_eq!(balance, KeyBalance { taken: Units::ZERO, leased: Units::ZERO });
}

#[test]
fn clean_stop_returns_leases_of_which_nothing_is_used() {
    let (mut ledger, mut leases) = (Ledger::default(), KeyLeases::new(KeyWindows::OfQuota, 10));
    exchange(&mut ledger, 0, &mut leases, true);
    assert_eq!(leases.last_report("q", NOW).iter().map(|call| call.rows.len()).collect::<Vec<_>>(), [0], "it ends");
    assert!(!admit(&mut leases, key(1), 100, 5));
    exchange(&mut ledger, 0, &mut leases, false);
    assert!(admit(&mut leases, key(1), 100, 5));
    leases.settle(0, key(1), units(5), Units::ZERO);
    let calls = leases.last_report("q", NOW);
    let row = &calls[0].rows[0];
    assert_eq!((row.key, row.held, row.taken), (key(1), Units::ZERO, Units::ZERO));
}

#[test]
fn window_that_does_not_count_any_more_is_not_expected_in_the_ledger() {
    let windows = KeyWindows::sliding(Duration::from_secs(1200));
    let mut leases = KeyLeases::new(windows, 10);
    let mut spend = |now: Timestamp| {
        let part = windows.table_span(WINDOW, now);
        leases.request(part, key(1), units(1000), units(5), now);
        let calls = leases.calls("q", part, now, false, MAX_ROWS);
        for call in &calls {
            let beyond = Beyond::Earlier { taken: Units::ZERO, expiring: 0 };
            let (held, taken_by_others, forgotten) = (units(20), Units::ZERO, Units::ZERO);
            let grant = KeyGrant::Counted { held, taken_by_others, forgotten, beyond };
            leases.apply(call, &KeyReply::Granted(vec![grant]));
        }
        let (settled_in, _) = leases.reserve(part, key(1), units(1000), units(1), now);
        // A request of an earlier part has cost more than its lease.
        leases.settle(settled_in - settled_in.min(2 * windows.spacing()), key(1), Units::ZERO, units(30));
        calls.into_iter().flat_map(|call| call.leased).min()
    };
    let part = |number: u64| Timestamp::from_seconds(100 * number + 1);
    let earliest: Vec<_> = (0..=16).map(|number| spend(part(number))).collect();
    let expected = |number: u64| (number > 0).then(|| 100_000_000_000 * number.saturating_sub(12));
    assert_eq!(earliest, (0..=16).map(expected).collect::<Vec<_>>());
}

#[test]
fn usage_of_a_window_counts_in_the_one_that_replaces_it() {
    const NEXT: Span = Span { start: Timestamp::from_seconds(40), end: Timestamp::from_seconds(200) };
    let mut ledgers = [Ledger::default(), Ledger::default()];
    let mut leases = KeyLeases::new(KeyWindows::OfQuota, 10);
    assert!(!admit(&mut leases, key(1), 100, 5));
    exchange(&mut ledgers[0], 0, &mut leases, false);
    assert!(admit(&mut leases, key(1), 100, 5));
    leases.redefine(0, KeyWindows::OfQuota, NEXT, NOW);
    assert_eq!(
        leases.balance(NEXT.start.0, key(1), units(100), Units::ZERO, NOW),
        KeyBalance { taken: units(5), leased: units(5) }
    );
    // A request that was decided before costs more than was reserved.
    leases.settle(0, key(1), units(5), units(9));
    for call in leases.calls("q", NEXT, NOW, true, MAX_ROWS) {
        assert_eq!(call.window, NEXT);
        leases.apply(&call, &ledgers[1].lease(0, &call));
    }
    assert_eq!(ledgers[1].0[&key(1)][&0].1, units(9));
    assert_eq!(
        leases.entries().map(|(window, entry)| (window, entry.used)).collect::<Vec<_>>(),
        [(NEXT.start.0, units(9))]
    );
}

proptest! {
    /// Instances never hold more than the limit of a key together, and what they have used is within what they hold, for any order
    /// of requests, settlements below the reservation, calls, lost replies, ticks and restarts.
    #[test]
    fn instances_never_exceed_the_limit_of_a_key(
        steps in prop::collection::vec((0_usize..3, 0_u64..3, 1_u64..6, 0_u8..8), 0..300), limit in 1_u64..60,
    ) {
        let mut ledger = Ledger::default();
        let mut instances: Vec<KeyLeases> = (0..3).map(|_| KeyLeases::new(KeyWindows::OfQuota, 2)).collect();
        let mut holders = [0, 1, 2];
        let mut used = BTreeMap::<ClientKey, u64>::new();
        for (instance, number, cost, step) in steps {
            let leases = &mut instances[instance];
            match step {
                0..=3 => {
                    let settled = cost.div_ceil(2);
                    if admit(leases, key(number), limit, cost) {
                        // A key that shares a budget is not counted here.
                        let is_shared = leases.tables[0].leases.iter().any(|it| it.key == key(number) && it.state == KeyState::Shared);
                        leases.settle(0, key(number), units(cost), units(settled));
                        *used.entry(if is_shared { shared_key(key(number)) } else { key(number) }).or_default() += settled;
                    }
                }
                4 => _ = exchange(&mut ledger, holders[instance], leases, false),
                5 => _ = exchange(&mut ledger, holders[instance], leases, true),
                6 => {
                    for call in leases.calls("q", WINDOW, NOW, false, MAX_ROWS) {
                        ledger.lease(holders[instance], &call);
                        leases.requeue(&call);
                    }
                }
                _ => {
                    *leases = KeyLeases::new(KeyWindows::OfQuota, 2);
                    holders[instance] += 3;
                }
            }
            for leases in ledger.0.values() {
                let held = leases.values().fold(Units::ZERO, |sum, lease| sum.saturating_add(lease.0));
                prop_assert!(held <= units(limit), "{held} of {limit}");
            }
            prop_assert!(used.values().all(|used| *used <= limit), "{used:?} of {limit}");
        }
    }
}
