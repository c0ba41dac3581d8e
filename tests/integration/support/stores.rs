//! Test suite for all ledger stores. A fixture opens the store under test.

use crate::support::report_skip;
use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate_engine::ledger::{Lease, LeaseRequest, Store, StoreError, WindowKey};
use tidegate_policy::window::Span;
use tidegate_policy::{Timestamp, Units};

/// Noon of a day.
pub const NOON: Timestamp = Timestamp::from_seconds(1_800_014_400);

/// A ledger that instances open and close.
pub trait StoreFixture {
    type Store: Store;

    /// Opens the store for the only instance, or for one more if several are supported.
    fn open_store(&mut self) -> Self::Store;

    /// Returns true if several instances may use the ledger at once.
    fn supports_multiple(&self) -> bool;

    /// Waits for a result of the store.
    fn resolve_future<T>(&self, future: impl Future<Output = T>) -> T {
        expect_ready(future)
    }
}

/// Returns the result of a store that never blocks.
pub fn expect_ready<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the store blocks"),
    }
}

/// An instance that leases from one quota of 1000 units per day.
pub struct StoreClient<'a, L: StoreFixture> {
    ledger: &'a L,
    store: L::Store,
    pub now: Timestamp,
    pub window: WindowKey,
    pub taken: u64,
    pub held: u64,
}

pub const LIMIT: u64 = 1000;

pub fn window(seconds: u64, length: u64, back: u32) -> WindowKey {
    let start = Timestamp::from_seconds(seconds);
    WindowKey { id: start.0, span: Some(Span { start, end: start + Duration::from_secs(length) }), lookback: back }
}

pub fn unopened_window(ordinal: u64) -> WindowKey {
    WindowKey { id: ordinal, span: None, lookback: 0 }
}

fn day_window() -> WindowKey {
    window(1_799_971_200, 86_400, 0)
}

impl<'a, L: StoreFixture> StoreClient<'a, L> {
    pub fn new(ledger: &'a L, store: L::Store) -> Self {
        Self { ledger, store, now: NOON, window: day_window(), taken: 0, held: 0 }
    }

    fn lease_request(&self, wanted: u64) -> LeaseRequest {
        let [limit, taken, held, wanted] = [LIMIT, self.taken, self.held, wanted].map(Units::from_whole);
        let (quota, window) = ("api".to_owned(), self.window);
        LeaseRequest {
            quota,
            limit,
            window,
            taken,
            held,
            wanted,
            urgent: wanted.saturating_sub(taken),
            expected_demand: Units::ZERO,
        }
    }

    /// Requests a lease until it is granted. A store may defer work that must be written first.
    pub fn request_lease(&mut self, wanted: u64) -> Lease {
        let requests = [self.lease_request(wanted)];
        let lease =
            self.ledger.resolve_future(self.store.lease(&requests, self.now)).expect("store returns leases").remove(0);
        self.held = lease.held.floor();
        assert!(lease.taken_by_others <= lease.held_by_others);
        lease
    }

    pub fn use_units(&mut self, units: u64) {
        assert!(self.taken + units <= self.held, "taking {units} units with {} of {} taken", self.taken, self.held);
        self.taken += units;
    }

    pub fn close_store(mut self) {
        let requests = [self.lease_request(self.taken)];
        self.ledger.resolve_future(self.store.close(&requests, self.now)).expect("store returns leases");
    }

    pub fn correct_used(&mut self, used: u64) -> Result<(), StoreError> {
        let request = self.lease_request(self.taken);
        self.ledger.resolve_future(self.store.correct(&request, Units::from_whole(used), self.now))
    }
}

/// Runs the whole suite. `new_ledger` returns a new, empty ledger for each test.
pub fn run_store_suite<L: StoreFixture>(mut new_ledger: impl FnMut() -> L) {
    taken_units_survive_a_clean_stop(new_ledger());
    held_units_count_after_a_crash(new_ledger());
    leases_never_exceed_the_limit(new_ledger());
    returned_units_are_leased_again(new_ledger());
    units_beyond_the_limit_are_counted(new_ledger());
    each_window_has_its_own_limit(new_ledger());
    earlier_parts_count_in_sliding_windows(new_ledger());
    prefetched_parts_count_in_sliding_windows(new_ledger());
    first_use_window_opens_once(new_ledger());
    manual_correction_persists(new_ledger());
    if new_ledger().supports_multiple() {
        instances_share_one_limit(new_ledger());
        closed_instance_returns_unused_units(new_ledger());
    }
}

fn taken_units_survive_a_clean_stop<L: StoreFixture>(mut ledger: L) {
    let store = ledger.open_store();
    let mut instance = StoreClient::new(&ledger, store);
    instance.request_lease(100);
    instance.use_units(30);
    instance.close_store();
    let store = ledger.open_store();
    let lease = StoreClient::new(&ledger, store).request_lease(10);
    assert_eq!((lease.held_by_others, lease.taken_by_others), (Units::from_whole(30), Units::from_whole(30)));
    assert_eq!((lease.held, lease.lost), (Units::from_whole(10), Units::ZERO));
}

fn held_units_count_after_a_crash<L: StoreFixture>(mut ledger: L) {
    let store = ledger.open_store();
    let mut instance = StoreClient::new(&ledger, store);
    instance.request_lease(100);
    instance.use_units(30);
    drop(instance);
    let store = ledger.open_store();
    let lease = StoreClient::new(&ledger, store).request_lease(LIMIT);
    assert!(lease.held_by_others >= Units::from_whole(30), "{lease:?}");
    assert!(lease.held.saturating_add(lease.held_by_others) <= Units::from_whole(LIMIT), "{lease:?}");
}

fn leases_never_exceed_the_limit<L: StoreFixture>(mut ledger: L) {
    let store = ledger.open_store();
    let mut instance = StoreClient::new(&ledger, store);
    assert_eq!(instance.request_lease(600).held, Units::from_whole(600));
    instance.use_units(600);
    assert_eq!(instance.request_lease(5000).held, Units::from_whole(LIMIT));
    instance.use_units(400);
    assert_eq!(instance.request_lease(5000).held, Units::from_whole(LIMIT));
}

fn returned_units_are_leased_again<L: StoreFixture>(mut ledger: L) {
    let store = ledger.open_store();
    let mut instance = StoreClient::new(&ledger, store);
    instance.request_lease(900);
    instance.use_units(100);
    assert_eq!(instance.request_lease(200).held, Units::from_whole(200));
    assert_eq!(instance.request_lease(1000).held, Units::from_whole(1000));
}

/// Usage reported by the origin has precedence, and a limit can be lowered.
fn units_beyond_the_limit_are_counted<L: StoreFixture>(mut ledger: L) {
    let store = ledger.open_store();
    let mut instance = StoreClient::new(&ledger, store);
    instance.request_lease(LIMIT);
    instance.taken = LIMIT + 7;
    assert_eq!(instance.request_lease(LIMIT + 7).held, Units::from_whole(LIMIT + 7));
    instance.close_store();
    let store = ledger.open_store();
    let lease = StoreClient::new(&ledger, store).request_lease(1);
    assert_eq!((lease.held, lease.held_by_others), (Units::ZERO, Units::from_whole(LIMIT + 7)));
}

fn each_window_has_its_own_limit<L: StoreFixture>(mut ledger: L) {
    let store = ledger.open_store();
    let mut instance = StoreClient::new(&ledger, store);
    instance.request_lease(LIMIT);
    instance.use_units(LIMIT);
    (instance.window, instance.taken, instance.held) = (window(1_800_057_600, 86_400, 0), 0, 0);
    assert_eq!(instance.request_lease(LIMIT).held, Units::from_whole(LIMIT), "prefetched");
    (instance.window, instance.taken, instance.held) = (day_window(), LIMIT, LIMIT);
    assert_eq!(instance.request_lease(LIMIT + 1).held, Units::from_whole(LIMIT), "the first part is unchanged");
}

fn earlier_parts_count_in_sliding_windows<L: StoreFixture>(mut ledger: L) {
    let store = ledger.open_store();
    let mut instance = StoreClient::new(&ledger, store);
    let part = |number: u64| window(1_800_014_400 + number * 60, 60, 3);
    for (number, held) in [(0, 400), (1, 600), (2, 0), (3, 0), (4, 400), (5, 600)] {
        (instance.window, instance.taken, instance.held) = (part(number), 0, 0);
        instance.now = NOON + Duration::from_secs(number * 60);
        let lease = instance.request_lease(if number % 4 == 0 { 400 } else { LIMIT });
        assert_eq!(lease.held, Units::from_whole(held), "part {number}: {lease:?}");
        instance.use_units(held);
        // Report the units taken before continuing.
        instance.request_lease(held);
    }
}

fn prefetched_parts_count_in_sliding_windows<L: StoreFixture>(mut ledger: L) {
    let store = ledger.open_store();
    let mut instance = StoreClient::new(&ledger, store);
    instance.window = window(1_800_014_460, 60, 3);
    assert_eq!(instance.request_lease(300).held, Units::from_whole(300));
    (instance.window, instance.held) = (window(1_800_014_400, 60, 3), 0);
    assert_eq!(instance.request_lease(LIMIT).held, Units::from_whole(700));
}

fn first_use_window_opens_once<L: StoreFixture>(mut ledger: L) {
    let hour = Span { start: NOON, end: NOON + Duration::from_secs(3600) };
    let store = ledger.open_store();
    let mut instance = StoreClient::new(&ledger, store);
    instance.window = unopened_window(0);
    assert_eq!(instance.request_lease(10).span, None);
    instance.window.span = Some(hour);
    instance.use_units(10);
    instance.request_lease(LIMIT);
    instance.use_units(LIMIT - 10);
    instance.request_lease(LIMIT);
    instance.close_store();
    let store = ledger.open_store();
    let mut next = StoreClient::new(&ledger, store);
    (next.window, next.now) = (unopened_window(0), NOON + Duration::from_secs(60));
    let lease = next.request_lease(10);
    assert_eq!((lease.held, lease.span), (Units::ZERO, Some(hour)), "the window is still open");
    (next.window, next.now) = (unopened_window(1), NOON + Duration::from_secs(3601));
    assert_eq!(next.request_lease(10).held, Units::from_whole(10));
}

fn manual_correction_persists<L: StoreFixture>(mut ledger: L) {
    let store = ledger.open_store();
    let mut instance = StoreClient::new(&ledger, store);
    instance.request_lease(600);
    instance.use_units(600);
    instance.close_store();
    for used in [100, 900, 0] {
        let store = ledger.open_store();
        let mut instance = StoreClient::new(&ledger, store);
        instance.request_lease(0);
        if let Err(StoreError::Refused(reason)) = instance.correct_used(used) {
            report_skip(&reason);
            return;
        }
        assert_eq!(instance.request_lease(LIMIT).held, Units::from_whole(LIMIT - used), "corrected to {used}");
        instance.request_lease(0);
        instance.close_store();
        let store = ledger.open_store();
        assert_eq!(
            StoreClient::new(&ledger, store).request_lease(0).held_by_others,
            Units::from_whole(used),
            "after a restart"
        );
    }
}

fn instances_share_one_limit<L: StoreFixture>(mut ledger: L) {
    let stores = [ledger.open_store(), ledger.open_store(), ledger.open_store()];
    let mut instances = stores.map(|store| StoreClient::new(&ledger, store));
    for round in 1..=100 {
        for instance in &mut instances {
            instance.request_lease(instance.taken + 7);
            instance.use_units((instance.held - instance.taken).min(round % 8));
        }
        let held: u64 = instances.iter().map(|instance| instance.held).sum();
        assert!(held <= LIMIT, "{held} units leased");
    }
    let lease = instances[0].request_lease(0);
    let held_by_others: u64 = instances[1..].iter().map(|instance| instance.held).sum();
    assert_eq!(lease.held_by_others, Units::from_whole(held_by_others));
}

fn closed_instance_returns_unused_units<L: StoreFixture>(mut ledger: L) {
    let [one, other] = [ledger.open_store(), ledger.open_store()];
    let (mut one, mut other) = (StoreClient::new(&ledger, one), StoreClient::new(&ledger, other));
    one.request_lease(900);
    one.use_units(50);
    assert_eq!(other.request_lease(LIMIT).held, Units::from_whole(100));
    one.close_store();
    assert_eq!(other.request_lease(LIMIT).held, Units::from_whole(950));
}
