use super::*;
use proptest::prelude::*;

const fn units(whole: u64) -> Units {
    Units::from_whole(whole)
}

/// Returns a client in a network of its own.
fn client(number: u64) -> ClientKey {
    ClientKey::from_u64(number << 8)
}

/// Returns the number of entries of the table with most entries that counts at a moment.
fn len(usage: &KeyUsage, moment: u64) -> usize {
    usage.in_reach(moment).map(|table| table.entries.len()).max().unwrap_or_default()
}

#[test]
fn usage_is_of_one_key_and_one_window() {
    let mut usage = KeyUsage::new(KeyWindows::OfQuota, 8);
    usage.reserve(1, client(1), units(3));
    usage.reserve(1, client(1), units(2));
    usage.reserve(1, client(2), units(7));
    assert_eq!([1, 2, 3].map(|number| usage.used(1, client(number))), [units(5), units(7), Units::ZERO]);
    assert_eq!(usage.used(2, client(1)), Units::ZERO, "another window");
    usage.settle(1, client(1), units(3), units(1));
    assert_eq!(usage.used(1, client(1)), units(3));

    usage.reserve(2, client(2), units(1));
    assert_eq!([1, 2].map(|number| usage.used(2, client(number))), [Units::ZERO, units(1)]);
    usage.settle(1, client(2), units(7), units(6));
    assert_eq!([1, 2].map(|window| usage.used(window, client(2))), [units(6), units(1)], "each in its window");
    assert_eq!([1, 2, 3].map(|window| len(&usage, window)), [2, 1, 0]);

    usage.reserve(3, client(2), units(4));
    assert_eq!(usage.settle(1, client(2), units(6), Units::ZERO), None, "the window is forgotten");
    assert_eq!(usage.charge(1, client(2), units(7)), None, "the window is forgotten");
    assert_eq!([2, 3].map(|window| usage.used(window, client(2))), [units(1), units(4)]);
    assert_eq!([0, 1, 2, 4].map(|window| usage.is_forgotten(window)), [true, true, false, false]);
}

#[test]
fn clock_that_is_set_back_finds_the_earlier_window() {
    let mut usage = KeyUsage::new(KeyWindows::OfQuota, 8);
    usage.reserve(1, client(1), units(5));
    usage.reserve(9, client(1), units(3));
    assert_eq!(usage.used(1, client(1)), units(5));
    usage.reserve(1, client(1), units(2));
    assert_eq!([1, 9].map(|window| usage.used(window, client(1))), [units(7), units(3)]);
    usage.reserve(5, client(1), units(1));
    assert!(usage.is_forgotten(1), "a third window");
    assert_eq!([5, 9].map(|window| usage.used(window, client(1))), [units(1), units(3)]);
}

#[test]
fn usage_continues_in_other_windows() {
    let mut usage = KeyUsage::new(KeyWindows::OfQuota, 8);
    usage.reserve(20, client(1), units(2));
    usage.reserve(21, client(1), units(5));
    usage.redefine(21, KeyWindows::OfQuota, 3);
    assert_eq!([3, 20, 21].map(|window| usage.used(window, client(1))), [units(5), Units::ZERO, Units::ZERO]);
    assert!(usage.is_forgotten(2) && !usage.is_forgotten(3), "a clock that is set back opens no window again");
    assert_eq!(usage.used(2, client(1)), units(5));
    usage.redefine(7, KeyWindows::OfQuota, 8);
    assert_eq!(usage.records().count(), 0, "another window than the counted one");
}

#[test]
fn request_in_flight_is_settled_in_the_window_that_replaced_its_own() {
    let mut usage = KeyUsage::new(KeyWindows::OfQuota, 8);
    usage.reserve(20, client(1), units(1));
    for (before, after, charged) in [(20, 3, 4), (3, 14, 6), (14, 20, 5), (20, 3, 9)] {
        let reserved = usage.used(before, client(1));
        usage.redefine(before, KeyWindows::OfQuota, after);
        assert_eq!(usage.used(after, client(1)), reserved);
        usage.settle(before, client(1), reserved, units(charged));
        assert_eq!(usage.used(after, client(1)), units(charged), "{before} {after}");
        usage.charge(before, client(1), units(1));
        assert_eq!(usage.used(after, client(1)), units(charged + 1), "{before} {after}");
    }
    for window in [14, 20] {
        usage.charge(window, client(1), units(10));
    }
    assert_eq!(usage.used(3, client(1)), units(30), "requests of all windows before");
    for window in 30..60 {
        usage.redefine(if window == 30 { 3 } else { window - 1 }, KeyWindows::OfQuota, window);
    }
    usage.charge(52, client(1), units(1));
    assert_eq!(usage.used(59, client(1)), units(31));
}

#[test]
fn raised_maximum_forgets_no_replaced_key() {
    let mut usage = KeyUsage::new(KeyWindows::OfQuota, 4);
    (0..4).for_each(|number| _ = usage.reserve(1, client(number), units(9)));
    (4..8).for_each(|number| _ = usage.reserve(1, client(number), units(1)));
    usage.set_max_keys(100);
    let stored: Vec<_> = usage.records().collect();
    for mut usage in [usage, KeyUsage::restore(KeyWindows::OfQuota, 100, &stored)] {
        for number in 0..8 {
            assert!(usage.used(1, client(number)) >= units(9), "{number}");
            usage.reserve(1, client(number), units(1));
            assert!(usage.used(1, client(number)) >= units(10), "{number}");
        }
        assert_eq!((len(&usage, 1), usage.used(2, client(9))), (8, Units::ZERO), "a new window");
    }
}

#[test]
fn lowered_maximum_changes_no_usage() {
    let mut usage = KeyUsage::new(KeyWindows::OfQuota, 100);
    (0..40).for_each(|number| _ = usage.reserve(1, client(number), units(1)));
    let mut stored: Vec<_> = usage.records().collect();
    let twice = ChangedEntry { entry: KeyEntry { key: client(7), used: units(3) }, ..stored[5] };
    stored.push(twice);
    let mut restored = KeyUsage::restore(KeyWindows::OfQuota, 3, &stored);
    let of_restored = |restored: &KeyUsage| {
        (0..40).filter(|number| *number != 7).all(|number| restored.used(1, client(number)) == units(1))
    };
    assert!(of_restored(&restored));
    assert_eq!([7, 50].map(|number| restored.used(1, client(number))), [units(3), Units::ZERO]);
    restored.reserve(1, client(50), units(1));
    assert_eq!((len(&restored, 1), restored.used(1, client(50))), (40, units(2)), "it takes the place of another one");
}

#[test]
fn clients_of_one_network_share_the_limits_of_eight() {
    let mut usage = KeyUsage::new(KeyWindows::OfQuota, 1000);
    let limit = units(10);
    let in_network = |number: u64| ClientKey::from_u64(7 << 8 | number);
    (0..7).for_each(|number| _ = usage.reserve(1, in_network(number), limit));
    assert_eq!(usage.used_by_client(1, in_network(200), limit), Units::ZERO);
    usage.reserve(1, in_network(7), units(4));
    assert_eq!([7, 200].map(|number| usage.used_by_client(1, in_network(number), limit)), [units(4), units(4)]);
    usage.reserve(1, in_network(8), units(6));
    assert_eq!(usage.used_by_client(1, in_network(200), limit), limit, "nothing is left for further addresses");
    usage.settle(1, in_network(8), units(6), Units::ZERO);
    assert_eq!(usage.used_by_client(1, in_network(200), limit), units(4));
    assert_eq!(usage.used_by_client(1, client(3), limit), Units::ZERO, "another network");
    let credential = ClientKey::from_credential(1);
    (0..9).for_each(|_| _ = usage.reserve(1, credential, limit));
    let other = ClientKey::from_credential(2);
    assert_eq!(usage.used_by_client(1, other, limit), Units::ZERO, "a credential has no network");
}

#[test]
fn made_up_keys_take_neither_the_usage_nor_the_units_of_others() {
    const CUSTOMERS: u64 = 200;
    let key = ClientKey::from_credential;
    let mut usage = KeyUsage::new(KeyWindows::OfQuota, 1000);
    (0..CUSTOMERS).for_each(|number| _ = usage.reserve(1, key(number), units(500)));
    for number in 0..100_000 {
        usage.reserve(1, key(1_000_000 + number), units(1));
        usage.settle(1, key(1_000_000 + number), units(1), units(1));
        assert!(len(&usage, 1) <= 1000);
    }
    // Each made-up key replaces another one, whose usage it inherits: about 125 units for each of the 800 entries.
    let begins_with = usage.used(1, key(999_999_999));
    assert!(begins_with < units(200), "{begins_with}");
    for number in 0..CUSTOMERS {
        assert_eq!(usage.used(1, key(number)), units(500));
    }
}

#[test]
fn made_up_keys_that_cost_nothing_take_no_units_of_others() {
    let key = ClientKey::from_credential;
    let mut usage = KeyUsage::new(KeyWindows::OfQuota, 100);
    // The requests of 100 keys are in flight at once, each with much reserved, and cost nothing in the end.
    (0..100).for_each(|number| _ = usage.reserve(1, key(number), units(990)));
    assert_eq!(usage.used(1, key(1000)), Units::MAX, "no place is free");
    (0..100).for_each(|number| _ = usage.settle(1, key(number), units(990), Units::ZERO));
    for number in 1000..1200 {
        assert_eq!(usage.used(1, key(number)), Units::ZERO);
        usage.reserve(1, key(number), units(10));
        usage.settle(1, key(number), units(10), Units::ZERO);
    }
    // One request in flight keeps its place, whatever takes that of others.
    usage.reserve(1, key(1), units(7));
    let before = usage.used(1, key(1));
    (2000..9000).for_each(|number| {
        usage.reserve(1, key(number), units(1));
        usage.settle(1, key(number), units(1), units(1));
    });
    assert_eq!(usage.used(1, key(1)), before);
}

#[test]
fn usage_is_restored_from_its_changes() {
    let mut usage = KeyUsage::new(KeyWindows::OfQuota, 40);
    let mut stored = HashMap::new();
    let key = ClientKey::from_credential;
    for number in 0..100 {
        let window = if number % 9 == 1 { 6 } else { 7 };
        let changed = usage.reserve(window, key(number % 60), units(number % 5));
        usage.settle(window, key(number % 60), units(number % 5), units(number % 5));
        stored.insert((changed.place.table, changed.place.slot), changed);
    }
    for (table, window) in [(0, 5), (1, 4)] {
        let place = Place { table, slot: 40 };
        stored.insert((table, 40), ChangedEntry { place, window, ..stored[&(0, 0)] });
    }
    let restored = KeyUsage::restore(KeyWindows::OfQuota, 40, &stored.into_values().collect::<Vec<_>>());
    for (window, number) in [6, 7].into_iter().flat_map(|window| (0..60).map(move |number| (window, number))) {
        assert_eq!(restored.used(window, key(number)), usage.used(window, key(number)), "{window} {number}");
    }
    assert_eq!(restored.latest_window(), 7);
}

proptest! {
    /// Each key has used what was reserved and charged for it, whatever the others do.
    #[test]
    fn usage_is_the_sum_of_a_keys_charges(
        requests in prop::collection::vec((0_u64..5, 0_u64..4, 0_u64..6), 0..60),
    ) {
        let (mut usage, mut expected) = (KeyUsage::new(KeyWindows::OfQuota, 5), [0_u64; 5]);
        for (number, reserved, charged) in requests {
            usage.reserve(9, client(number), units(reserved));
            usage.settle(9, client(number), units(reserved), units(charged));
            expected[number as usize] += charged;
        }
        for (number, expected) in expected.into_iter().enumerate() {
            prop_assert_eq!(usage.used(9, client(number as u64)), units(expected));
        }
    }

    /// However the clock is set, a key has in each window what it used there, unless the window is forgotten. So it is after a
    /// restart at any moment.
    #[test]
    fn clock_jumps_lose_no_usage(
        requests in prop::collection::vec((0_u64..4, 0_u64..3, 0_u64..4, 0_u64..6, any::<bool>()), 0..60),
    ) {
        let (mut usage, mut expected) = (KeyUsage::new(KeyWindows::OfQuota, 5), HashMap::<(u64, u64), u64>::new());
        let mut stored = HashMap::new();
        for (window, number, reserved, charged, restarts) in requests {
            if usage.is_forgotten(window) {
                continue;
            }
            let changed = usage.reserve(window, client(number), units(reserved));
            stored.insert(changed.place, changed);
            if let Some(changed) = usage.settle(window, client(number), units(reserved), units(charged)) {
                stored.insert(changed.place, changed);
            }
            *expected.entry((window, number)).or_default() += charged;
            if restarts {
                let mut records: Vec<_> = stored.drain().map(|(_, record)| record).collect();
                records.sort_by_key(|record| record.place);
                usage = KeyUsage::restore(KeyWindows::OfQuota, 5, &records);
                stored = usage.records().map(|record| (record.place, record)).collect();
            }
            for (&(window, number), &expected) in &expected {
                if !usage.is_forgotten(window) {
                    prop_assert_eq!(usage.used(window, client(number)), units(expected), "{} {}", window, number);
                }
            }
        }
    }

    /// A full table counts no key too low, also with reservations that are settled after their entry was given away.
    #[test]
    fn no_usage_is_counted_too_low(
        requests in prop::collection::vec((0_u64..12, 0_u64..4, 0_u64..6, 0_usize..4), 0..200), max_keys in 1_usize..8,
    ) {
        let (mut usage, mut expected) = (KeyUsage::new(KeyWindows::OfQuota, max_keys), [0_u64; 12]);
        let mut open: Vec<(u64, u64, u64)> = Vec::new();
        for (number, reserved, charged, settled) in requests {
            usage.reserve(9, client(number), units(reserved));
            expected[number as usize] += reserved;
            open.push((number, reserved, charged));
            for (number, reserved, charged) in open.drain(..settled.min(open.len())) {
                usage.settle(9, client(number), units(reserved), units(charged));
                expected[number as usize] = expected[number as usize] + charged - reserved;
            }
            for (number, expected) in expected.iter().enumerate() {
                prop_assert!(usage.used(9, client(number as u64)) >= units(*expected), "{number}");
            }
            prop_assert!(len(&usage, 9) <= max_keys);
        }
    }
}

mod own_windows;
