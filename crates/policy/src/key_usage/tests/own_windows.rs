//! Windows that slide, and windows that keys open.

use super::super::*;
use super::{client, len, units};
use proptest::prelude::*;
use std::time::Duration;

const LENGTH: u64 = 1200;
const PART: u64 = LENGTH / PARTS as u64;

const SLIDING: KeyWindows = KeyWindows::Sliding { part: Duration::from_nanos(PART) };
const FIRST_USE: KeyWindows = KeyWindows::FirstUse { length: Duration::from_nanos(LENGTH) };

#[test]
fn parts_of_a_sliding_window_cover_its_length() {
    assert_eq!(KeyWindows::sliding(Duration::from_nanos(LENGTH)), SLIDING);
    assert_eq!(KeyWindows::sliding(Duration::from_nanos(LENGTH - 1)), SLIDING, "parts are never too short");
    assert_eq!(SLIDING.span(5 * PART + 3).map(|span| (span.start.0, span.end.0)), Some((5 * PART, 6 * PART)));
    assert_eq!(FIRST_USE.span(7).map(|span| (span.start.0, span.end.0)), Some((7, LENGTH + 7)));
    assert_eq!(KeyWindows::OfQuota.span(7), None);
}

#[test]
fn usage_of_a_sliding_window_expires_part_by_part() {
    let mut usage = KeyUsage::new(SLIDING, 8);
    let start = 100 * PART;
    usage.reserve(start + 7, client(1), units(3));
    usage.reserve(start + 5 * PART, client(1), units(4));
    let used = |moment| usage.used(moment, client(1)).floor();
    let expiry = start + LENGTH + PART;
    assert_eq!([start + 6 * PART, expiry - 1, expiry, expiry + 5 * PART].map(used), [7, 7, 4, 0]);
    let renewal = |goal| usage.renewal(start + 6 * PART, client(1), units(goal)).map(|time| time.0);
    assert_eq!([6, 4, 3, 0].map(renewal), [expiry, expiry, expiry + 5 * PART, expiry + 5 * PART].map(Some));
    assert_eq!(usage.renewal(start, client(2), units(1)).map(|time| time.0), Some(expiry), "nothing is used");
}

#[test]
fn each_key_opens_its_window_by_its_first_charge() {
    let mut usage = KeyUsage::new(FIRST_USE, 8);
    let start = 10 * LENGTH + 700;
    usage.reserve(start, client(1), units(3));
    usage.reserve(start + 400, client(2), units(5));
    usage.reserve(start + LENGTH - 1, client(1), units(1));
    let used = |moment| [1, 2].map(|number| usage.used(moment, client(number)).floor());
    assert_eq!(used(start + LENGTH - 1), [4, 5], "over the border of two tables");
    assert_eq!(used(start + LENGTH), [0, 5]);
    assert_eq!(used(start + LENGTH + 400), [0, 0]);
    let ends = |number, moment| usage.renewal(moment, client(number), Units::ZERO).map(|time| time.0);
    assert_eq!(ends(1, start + 900), Some(start + LENGTH));
    assert_eq!(ends(3, start + 900), Some(start + 900 + LENGTH), "it would open now");
    assert_eq!(usage.entries(start + LENGTH, 0..8).map(|entry| entry.used.floor()).collect::<Vec<_>>(), [5]);
}

#[test]
fn renewal_of_all_keys_is_that_of_the_first_units_or_of_the_last_window() {
    let start = 100 * LENGTH + 7;
    let renewals = |windows| {
        let mut usage = KeyUsage::new(windows, 8);
        let none = usage.keys_renewal(start);
        let unsent = usage.reserve(start, client(1), units(2)).window;
        usage.settle(unsent, client(1), units(2), Units::ZERO);
        usage.reserve(start + 2 * PART, client(2), units(1));
        usage.reserve(start + 5 * PART, client(3), units(1));
        let of_customer = usage.renewal(start + 5 * PART, client(2), Units::ZERO);
        let of_all = [6 * PART, LENGTH + 4 * PART, 3 * LENGTH].map(|later| usage.keys_renewal(start + later));
        (none, of_customer, of_all.map(|time| time.map(|time| time.0 - start)))
    };
    let (none, of_customer, of_all) = renewals(SLIDING);
    let first = LENGTH + 3 * PART - 7;
    assert_eq!((none, of_customer), (None, Some(Timestamp(start + first))));
    assert_eq!(of_all, [Some(first), Some(first + 3 * PART), None]);
    let (none, _, of_all) = renewals(FIRST_USE);
    let last = LENGTH + 5 * PART;
    assert_eq!((none, of_all), (None, [Some(last), Some(last), None]));
}

#[test]
fn keys_that_are_visited_in_steps_are_those_that_count() {
    for windows in [SLIDING, FIRST_USE] {
        let mut usage = KeyUsage::new(windows, 100);
        let start = 100 * LENGTH;
        // Each key is in several parts, by other numbers; of the first twenty, nothing counts at the end.
        for number in (0..60).chain((20..80).rev()) {
            let part = if number < 20 { 0 } else { 8 * PART };
            usage.reserve(start + part, client(number), units(1));
        }
        usage.reserve(start + 9 * PART, client(79), units(5));
        let moment = start + LENGTH + 2 * PART;
        let steps = (0..usage.slots()).step_by(7).flat_map(|slot| usage.entries(moment, slot..slot + 7));
        let mut entries: Vec<_> = steps.map(|entry| (entry.key.to_u64(), entry.used.floor())).collect();
        entries.sort_unstable();
        let used = |number| if number == 79 { 6 } else { 1 + u64::from(number < 60) };
        let expected: Vec<_> = (20..80).map(|number| (client(number).to_u64(), used(number))).collect();
        assert_eq!(entries, expected, "{windows:?}");
    }
}

#[test]
fn late_settlement_is_of_the_window_in_which_it_was_reserved() {
    for windows in [SLIDING, FIRST_USE] {
        let mut usage = KeyUsage::new(windows, 8);
        let start = 10 * LENGTH;
        let first = usage.reserve(start, client(1), units(3)).window;
        let later = start + LENGTH + PART;
        let second = usage.reserve(later, client(1), units(4)).window;
        usage.settle(first, client(1), units(3), units(9));
        assert_eq!(usage.used(later, client(1)), units(4), "{windows:?}");
        usage.settle(second, client(1), units(4), units(1));
        assert_eq!(usage.used(later, client(1)), units(1), "{windows:?}");
    }
}

#[test]
fn late_charge_of_a_window_that_another_process_opened_counts() {
    let mut usage = KeyUsage::new(FIRST_USE, 8);
    let start = 10 * LENGTH;
    usage.reserve(start + 300, client(1), units(3));
    usage.settle(start + 100, client(1), units(1), units(5));
    assert_eq!(usage.used(start + 400, client(1)), units(7));
}

#[test]
fn clock_set_back_to_before_a_window_gives_no_units() {
    for windows in [SLIDING, FIRST_USE] {
        let mut usage = KeyUsage::new(windows, 8);
        let start = 10 * LENGTH;
        usage.reserve(start, client(1), units(9));
        assert_eq!(usage.used(start - 500, client(1)), units(9), "{windows:?}");
        usage.reserve(start - 500, client(1), units(1));
        assert_eq!([start - 500, start].map(|now| usage.used(now, client(1)).floor()), [10, 10], "{windows:?}");
    }
}

#[test]
fn client_of_a_sliding_window_shares_the_limits_of_its_network() {
    let mut usage = KeyUsage::new(SLIDING, 1000);
    let in_network = |number: u64| ClientKey::from_u64(7 << 8 | number);
    let (start, limit) = (100 * PART, units(10));
    (0..8).for_each(|number| _ = usage.reserve(start + number * PART, in_network(number), limit));
    let now = start + 8 * PART;
    let used = |moment| usage.used_by_client(moment, in_network(200), limit);
    assert_eq!(used(now), limit, "eight clients have used all");
    assert_eq!(used(start + LENGTH + PART), Units::ZERO, "one of them no more");
    let renewal = usage.client_renewal(now, in_network(200), limit, units(9));
    assert_eq!(renewal.map(|time| time.0), Some(start + LENGTH + PART));
}

#[test]
fn made_up_keys_take_no_units_of_customers_whose_windows_are_their_own() {
    let key = ClientKey::from_credential;
    for windows in [SLIDING, FIRST_USE] {
        let mut usage = KeyUsage::new(windows, 1000);
        let start = 100 * LENGTH;
        (0..200).for_each(|number| _ = usage.reserve(start, key(number), units(500)));
        for number in 0..100_000_u64 {
            let moment = start + number * LENGTH / 200_000;
            let window = usage.reserve(moment, key(1_000_000 + number), units(1)).window;
            usage.settle(window, key(1_000_000 + number), units(1), units(1));
            assert!(len(&usage, moment) <= 1000);
        }
        let end = start + LENGTH / 2;
        let begins_with = usage.used(end, key(999_999_999));
        assert!(begins_with < units(200), "{windows:?} {begins_with}");
        for number in 0..200 {
            assert!(usage.used(end, key(number)) >= units(500), "{windows:?} {number}");
        }
        let unused = end + 3 * LENGTH;
        assert_eq!(usage.used(unused, key(999_999_999)), Units::ZERO, "{windows:?}");
    }
}

#[test]
fn change_of_the_windows_keeps_what_counts() {
    let start = 10 * LENGTH;
    let now = start + 3 * PART;
    let all = [KeyWindows::OfQuota, SLIDING, FIRST_USE, KeyWindows::sliding(Duration::from_nanos(7 * LENGTH))];
    for (before, after) in all.into_iter().flat_map(|before| all.map(|after| (before, after))) {
        let mut usage = KeyUsage::new(before, 8);
        let [first, second] = [start, now].map(|time| {
            let moment = before.moment(start, Timestamp(time));
            usage.reserve(moment, client(1), units(4));
            usage.reserve(moment, client(2), units(1)).window
        });
        let moment = after.moment(start, Timestamp(now));
        usage.redefine(before.moment(start, Timestamp(now)), after, moment);
        let used = |usage: &KeyUsage| [1, 2, 3].map(|number| usage.used(moment, client(number)).floor());
        assert_eq!(used(&usage), [8, 2, 0], "{before:?} {after:?}");
        usage.settle(first, client(1), units(4), units(1));
        usage.settle(second, client(1), units(4), units(3));
        assert_eq!(used(&usage), [4, 2, 0], "{before:?} {after:?}: in flight");
        let stored: Vec<_> = usage.records().collect();
        assert_eq!(used(&KeyUsage::restore(after, 8, &stored)), [4, 2, 0], "{before:?} {after:?}: restored");
    }
}

/// What happens to one key.
#[derive(Clone, Debug)]
enum Event {
    /// A request that may cost what is expected, or less.
    Request { key: u64, expected: u64, charged: u64 },
    /// The oldest requests in flight are settled.
    Settle { count: usize },
    /// The process is killed: what was in flight counts as expected.
    Restart,
    /// The clock goes on, or back.
    Step { by: i64 },
}

fn events(max_step_back: i64) -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        8 => (0_u64..4, 1_u64..6, 0_u64..6).prop_map(|(key, expected, charged)| Event::Request {
            key,
            expected,
            charged: charged.min(expected),
        }),
        3 => (1_usize..4).prop_map(|count| Event::Settle { count }),
        1 => Just(Event::Restart),
        4 => (0_i64..PART as i64 * 2).prop_map(|by| Event::Step { by }),
        1 => (0_i64..LENGTH as i64 * 2).prop_map(|by| Event::Step { by }),
        1 => (0..=max_step_back).prop_map(|by| Event::Step { by: -by }),
    ];
    prop::collection::vec(event, 0..150)
}

/// What was charged, and what was refused.
#[derive(Debug, Default)]
struct History {
    /// Time, key, units and window of each charge.
    charges: Vec<(u64, u64, u64, u64)>,
    /// Units of each refusal, and those that counted then by the documented rule.
    refusals: Vec<(u64, u64)>,
}

const LIMIT: u64 = 12;

/// Runs events on the usage of keys with a limit, stored as in a file.
fn run(windows: KeyWindows, max_keys: usize, events: &[Event]) -> History {
    let mut usage = KeyUsage::new(windows, max_keys);
    let mut stored = HashMap::new();
    let mut history = History::default();
    // Each with its number among the charges, and what it costs in the end.
    let mut in_flight: Vec<(usize, u64)> = Vec::new();
    let mut now = 1000 * LENGTH;
    for event in events {
        match *event {
            Event::Request { key, expected, charged } => {
                let used = usage.used(now, client(key));
                if usage.is_forgotten(now) || used.saturating_add(units(expected)) > units(LIMIT) {
                    let counts = if windows == SLIDING { LENGTH + PART } else { LENGTH };
                    history.refusals.push((expected, history.charged(key, now + 1 - counts, counts)));
                    continue;
                }
                let changed = usage.reserve(now, client(key), units(expected));
                stored.insert(changed.place, changed);
                in_flight.push((history.charges.len(), charged));
                history.charges.push((now, key, expected, changed.window));
            }
            Event::Settle { count } => {
                for (number, charged) in in_flight.drain(..count.min(in_flight.len())) {
                    let (_, key, expected, window) = &mut history.charges[number];
                    let changed = usage.settle(*window, client(*key), units(*expected), units(charged));
                    stored.extend(changed.map(|changed| (changed.place, changed)));
                    *expected = charged;
                }
            }
            Event::Restart => {
                in_flight.clear();
                let mut records: Vec<_> = stored.drain().map(|(_, record)| record).collect();
                records.sort_by_key(|record: &ChangedEntry| record.place);
                usage = KeyUsage::restore(windows, max_keys, &records);
                stored = usage.records().map(|record| (record.place, record)).collect();
            }
            Event::Step { by } => now = now.saturating_add_signed(by),
        }
    }
    history
}

impl History {
    /// Returns what a key was charged from `start` on for `length`.
    fn charged(&self, key: u64, start: u64, length: u64) -> u64 {
        let within = |time: u64| time.checked_sub(start).is_some_and(|since| since < length);
        let of_key = self.charges.iter().filter(|(time, owner, ..)| *owner == key && within(*time));
        of_key.map(|(_, _, units, _)| units).sum()
    }
}

proptest! {
    /// No key is charged more than its limit in any span of the length, whatever the clock does.
    #[test]
    fn sliding_window_never_exceeds_its_limit(events in events(3 * LENGTH as i64), max_keys in 1_usize..6) {
        let history = run(SLIDING, max_keys, &events);
        for (start, key, ..) in &history.charges {
            let charged = history.charged(*key, *start, LENGTH);
            prop_assert!(charged <= LIMIT, "{key} at {start}: {charged}");
        }
    }

    /// No key is charged more than its limit in a window that it has opened, and its windows do not overlap.
    #[test]
    fn opened_window_never_exceeds_its_limit(events in events(3 * LENGTH as i64)) {
        let history = run(FIRST_USE, 8, &events);
        let mut windows = HashMap::<(u64, u64), u64>::new();
        for (time, key, charged, start) in &history.charges {
            *windows.entry((*key, *start)).or_default() += charged;
            prop_assert!(time.abs_diff(*start) < LENGTH, "{key} at {time}");
        }
        for ((key, start), charged) in &windows {
            prop_assert!(*charged <= LIMIT, "{key} at {start}: {charged}");
            let overlaps = |(other, of_other): &(u64, u64)| other == key && (1..LENGTH).contains(&start.abs_diff(*of_other));
            prop_assert!(!windows.keys().any(overlaps), "{key} at {start}");
        }
    }

    /// Also with a table that is full, no key is charged more than its limit after it has opened a window until that ends.
    #[test]
    fn full_table_of_opened_windows_counts_no_key_too_low(events in events(0), max_keys in 1_usize..4) {
        let history = run(FIRST_USE, max_keys, &events);
        for (_, key, _, start) in &history.charges {
            let charged = history.charged(*key, *start, LENGTH);
            prop_assert!(charged <= LIMIT, "{key} at {start}: {charged}");
        }
    }

    /// With room for all keys, nothing is refused that the units of the length and one part would have paid, or of the open window.
    #[test]
    fn nothing_is_refused_while_units_are_left(events in events(0)) {
        for windows in [SLIDING, FIRST_USE] {
            for (expected, counted) in run(windows, 8, &events).refusals {
                prop_assert!(expected + counted > LIMIT, "{windows:?}: {expected} refused, {counted} used");
            }
        }
    }
}
