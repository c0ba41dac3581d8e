//! Test suite for all ledger stores. A fixture opens the store under test.

use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate::ledger::{Lease, LeaseRequest, Store, StoreError, WindowKey};
use tidegate::policy::window::Span;
use tidegate::policy::{Timestamp, Units};

/// Noon of a day.
pub const NOON: Timestamp = Timestamp::from_seconds(1_800_014_400);

/// A ledger that instances open and close.
pub trait Ledger {
    type Store: Store;

    /// Opens the store for the only instance, or for one more if several are supported.
    fn gate(&mut self) -> Self::Store;

    /// Returns true if several instances may use the ledger at once.
    fn takes_several(&self) -> bool;

    /// Waits for a result of the store.
    fn wait<T>(&self, answer: impl Future<Output = T>) -> T {
        at_once(answer)
    }
}

/// Returns the result of a store that never blocks.
pub fn at_once<T>(answer: impl Future<Output = T>) -> T {
    let mut answer = std::pin::pin!(answer);
    match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the store blocks"),
    }
}

/// An instance that leases from one quota of 1000 units per day.
pub struct Gate<'a, L: Ledger> {
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

pub fn unopened(ordinal: u64) -> WindowKey {
    WindowKey { id: ordinal, span: None, lookback: 0 }
}

fn today() -> WindowKey {
    window(1_799_971_200, 86_400, 0)
}

impl<'a, L: Ledger> Gate<'a, L> {
    pub fn new(ledger: &'a L, store: L::Store) -> Self {
        Self { ledger, store, now: NOON, window: today(), taken: 0, held: 0 }
    }

    fn ask(&self, wanted: u64) -> LeaseRequest {
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
    pub fn asks(&mut self, wanted: u64) -> Lease {
        let ask = [self.ask(wanted)];
        let lease = self.ledger.wait(self.store.lease(&ask, self.now)).expect("store returns leases").remove(0);
        self.held = lease.held.floor();
        assert!(lease.taken_by_others <= lease.held_by_others);
        lease
    }

    pub fn takes(&mut self, units: u64) {
        assert!(self.taken + units <= self.held, "taking {units} units with {} of {} taken", self.taken, self.held);
        self.taken += units;
    }

    pub fn closes(mut self) {
        let ask = [self.ask(self.taken)];
        self.ledger.wait(self.store.close(&ask, self.now)).expect("store returns leases");
    }

    pub fn corrects(&mut self, used: u64) -> Result<(), StoreError> {
        let ask = self.ask(self.taken);
        self.ledger.wait(self.store.correct(&ask, Units::from_whole(used), self.now))
    }
}

/// Runs the whole suite. `fresh` returns a new, empty ledger for each test.
pub fn put_through<L: Ledger>(mut fresh: impl FnMut() -> L) {
    what_is_taken_survives_a_clean_stop(fresh());
    what_is_held_counts_after_a_death(fresh());
    never_more_than_the_limit_is_handed_out(fresh());
    what_is_given_back_can_be_had_again(fresh());
    what_is_taken_beyond_the_limit_is_counted(fresh());
    another_window_is_another_allowance(fresh());
    earlier_parts_weigh_on_a_sliding_window(fresh());
    a_part_asked_for_ahead_weighs_as_well(fresh());
    a_window_of_first_use_is_opened_once(fresh());
    a_correction_by_hand_stays(fresh());
    if fresh().takes_several() {
        gates_share_one_allowance(fresh());
        a_closed_gate_leaves_the_rest_to_others(fresh());
    }
}

fn what_is_taken_survives_a_clean_stop<L: Ledger>(mut ledger: L) {
    let store = ledger.gate();
    let mut gate = Gate::new(&ledger, store);
    gate.asks(100);
    gate.takes(30);
    gate.closes();
    let store = ledger.gate();
    let lease = Gate::new(&ledger, store).asks(10);
    assert_eq!((lease.held_by_others, lease.taken_by_others), (Units::from_whole(30), Units::from_whole(30)));
    assert_eq!((lease.held, lease.lost), (Units::from_whole(10), Units::ZERO));
}

fn what_is_held_counts_after_a_death<L: Ledger>(mut ledger: L) {
    let store = ledger.gate();
    let mut gate = Gate::new(&ledger, store);
    gate.asks(100);
    gate.takes(30);
    drop(gate);
    let store = ledger.gate();
    let lease = Gate::new(&ledger, store).asks(LIMIT);
    assert!(lease.held_by_others >= Units::from_whole(30), "{lease:?}");
    assert!(lease.held.saturating_add(lease.held_by_others) <= Units::from_whole(LIMIT), "{lease:?}");
}

fn never_more_than_the_limit_is_handed_out<L: Ledger>(mut ledger: L) {
    let store = ledger.gate();
    let mut gate = Gate::new(&ledger, store);
    assert_eq!(gate.asks(600).held, Units::from_whole(600));
    gate.takes(600);
    assert_eq!(gate.asks(5000).held, Units::from_whole(LIMIT));
    gate.takes(400);
    assert_eq!(gate.asks(5000).held, Units::from_whole(LIMIT));
}

fn what_is_given_back_can_be_had_again<L: Ledger>(mut ledger: L) {
    let store = ledger.gate();
    let mut gate = Gate::new(&ledger, store);
    gate.asks(900);
    gate.takes(100);
    assert_eq!(gate.asks(200).held, Units::from_whole(200));
    assert_eq!(gate.asks(1000).held, Units::from_whole(1000));
}

/// Usage reported by the origin has precedence, and a limit can be lowered.
fn what_is_taken_beyond_the_limit_is_counted<L: Ledger>(mut ledger: L) {
    let store = ledger.gate();
    let mut gate = Gate::new(&ledger, store);
    gate.asks(LIMIT);
    gate.taken = LIMIT + 7;
    assert_eq!(gate.asks(LIMIT + 7).held, Units::from_whole(LIMIT + 7));
    gate.closes();
    let store = ledger.gate();
    let lease = Gate::new(&ledger, store).asks(1);
    assert_eq!((lease.held, lease.held_by_others), (Units::ZERO, Units::from_whole(LIMIT + 7)));
}

fn another_window_is_another_allowance<L: Ledger>(mut ledger: L) {
    let store = ledger.gate();
    let mut gate = Gate::new(&ledger, store);
    gate.asks(LIMIT);
    gate.takes(LIMIT);
    (gate.window, gate.taken, gate.held) = (window(1_800_057_600, 86_400, 0), 0, 0);
    assert_eq!(gate.asks(LIMIT).held, Units::from_whole(LIMIT), "prefetched");
    (gate.window, gate.taken, gate.held) = (today(), LIMIT, LIMIT);
    assert_eq!(gate.asks(LIMIT + 1).held, Units::from_whole(LIMIT), "the first part is unchanged");
}

fn earlier_parts_weigh_on_a_sliding_window<L: Ledger>(mut ledger: L) {
    let store = ledger.gate();
    let mut gate = Gate::new(&ledger, store);
    let part = |number: u64| window(1_800_014_400 + number * 60, 60, 3);
    for (number, held) in [(0, 400), (1, 600), (2, 0), (3, 0), (4, 400), (5, 600)] {
        (gate.window, gate.taken, gate.held) = (part(number), 0, 0);
        gate.now = NOON + Duration::from_secs(number * 60);
        let lease = gate.asks(if number % 4 == 0 { 400 } else { LIMIT });
        assert_eq!(lease.held, Units::from_whole(held), "part {number}: {lease:?}");
        gate.takes(held);
        // Report the units taken before continuing.
        gate.asks(held);
    }
}

fn a_part_asked_for_ahead_weighs_as_well<L: Ledger>(mut ledger: L) {
    let store = ledger.gate();
    let mut gate = Gate::new(&ledger, store);
    gate.window = window(1_800_014_460, 60, 3);
    assert_eq!(gate.asks(300).held, Units::from_whole(300));
    (gate.window, gate.held) = (window(1_800_014_400, 60, 3), 0);
    assert_eq!(gate.asks(LIMIT).held, Units::from_whole(700));
}

fn a_window_of_first_use_is_opened_once<L: Ledger>(mut ledger: L) {
    let hour = Span { start: NOON, end: NOON + Duration::from_secs(3600) };
    let store = ledger.gate();
    let mut gate = Gate::new(&ledger, store);
    gate.window = unopened(0);
    assert_eq!(gate.asks(10).span, None);
    gate.window.span = Some(hour);
    gate.takes(10);
    gate.asks(LIMIT);
    gate.takes(LIMIT - 10);
    gate.asks(LIMIT);
    gate.closes();
    let store = ledger.gate();
    let mut next = Gate::new(&ledger, store);
    (next.window, next.now) = (unopened(0), NOON + Duration::from_secs(60));
    let lease = next.asks(10);
    assert_eq!((lease.held, lease.span), (Units::ZERO, Some(hour)), "the window is still open");
    (next.window, next.now) = (unopened(1), NOON + Duration::from_secs(3601));
    assert_eq!(next.asks(10).held, Units::from_whole(10));
}

fn a_correction_by_hand_stays<L: Ledger>(mut ledger: L) {
    let store = ledger.gate();
    let mut gate = Gate::new(&ledger, store);
    gate.asks(600);
    gate.takes(600);
    gate.closes();
    for used in [100, 900, 0] {
        let store = ledger.gate();
        let mut gate = Gate::new(&ledger, store);
        gate.asks(0);
        if let Err(StoreError::Refused(told)) = gate.corrects(used) {
            println!("skipped: {told}");
            return;
        }
        assert_eq!(gate.asks(LIMIT).held, Units::from_whole(LIMIT - used), "corrected to {used}");
        gate.asks(0);
        gate.closes();
        let store = ledger.gate();
        assert_eq!(Gate::new(&ledger, store).asks(0).held_by_others, Units::from_whole(used), "after a restart");
    }
}

fn gates_share_one_allowance<L: Ledger>(mut ledger: L) {
    let stores = [ledger.gate(), ledger.gate(), ledger.gate()];
    let mut gates = stores.map(|store| Gate::new(&ledger, store));
    for round in 1..=100 {
        for gate in &mut gates {
            gate.asks(gate.taken + 7);
            gate.takes((gate.held - gate.taken).min(round % 8));
        }
        let held: u64 = gates.iter().map(|gate| gate.held).sum();
        assert!(held <= LIMIT, "{held} units leased");
    }
    let told = gates[0].asks(0);
    let of_others: u64 = gates[1..].iter().map(|gate| gate.held).sum();
    assert_eq!(told.held_by_others, Units::from_whole(of_others));
}

fn a_closed_gate_leaves_the_rest_to_others<L: Ledger>(mut ledger: L) {
    let [one, other] = [ledger.gate(), ledger.gate()];
    let (mut one, mut other) = (Gate::new(&ledger, one), Gate::new(&ledger, other));
    one.asks(900);
    one.takes(50);
    assert_eq!(other.asks(LIMIT).held, Units::from_whole(100));
    one.closes();
    assert_eq!(other.asks(LIMIT).held, Units::from_whole(950));
}
