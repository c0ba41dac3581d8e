//! The ledger: never one unit too many, whatever happens (docs/GUARANTEES.md).

mod support;

use parking_lot::Mutex;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::client::Client;
use support::gate;
use support::origin::Origin;
use support::program::{Program, run};
use support::stores::{self, NOON, at_once, put_through};
use tempfile::TempDir;
use tidegate::engine::{Admission, Engine, Permit, Ruling, Supply};
use tidegate::ledger::{File, Memory, OpenError, Store, Table};
use tidegate::policy::class::{Class, When};
use tidegate::policy::cost::Cost;
use tidegate::policy::identity::{ClientKey, Trust};
use tidegate::policy::lease::Spending;
use tidegate::policy::quota::Quota;
use tidegate::policy::route::{Pattern, Route};
use tidegate::policy::window::Window;
use tidegate::policy::{ClassId, QuotaId, Reason, Rules, Timestamp, Units};

// --- one suite for every store -------------------------------------------------------------------------------------

/// Gates on one table in memory; one that dies never comes back, and what it held stays held.
#[derive(Default)]
struct InMemory {
    table: Arc<Mutex<Table>>,
    gates: u64,
}

impl stores::Ledger for InMemory {
    type Store = Memory;

    fn gate(&mut self) -> Memory {
        self.gates += 1;
        Memory::new(Arc::clone(&self.table), self.gates)
    }

    fn takes_several(&self) -> bool {
        true
    }
}

/// One gate at a time on a directory.
struct InFile(TempDir);

impl InFile {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }
}

/// An uptime on which a tenth of a second passes between any two looks: syncs are never too many.
fn uptime() -> tidegate::ledger::Uptime {
    let ticks = AtomicU64::new(0);
    Box::new(move || Timestamp(ticks.fetch_add(100_000_000, Ordering::Relaxed)))
}

impl stores::Ledger for InFile {
    type Store = File;

    fn gate(&mut self) -> File {
        File::open(self.0.path(), "this boot", uptime(), NOON).expect("nobody else has it")
    }

    fn takes_several(&self) -> bool {
        false
    }
}

#[test]
fn the_ledger_in_memory_keeps_its_promises() {
    put_through(InMemory::default);
}

#[test]
fn the_ledger_in_a_file_keeps_its_promises() {
    put_through(InFile::new);
}

// --- a whole gate against a simple reference -----------------------------------------------------------------------

const LIMIT: u64 = 400;
const DEAREST: u64 = 3;

fn rules(window: Window) -> Arc<Rules> {
    let quota = Quota {
        name: "api".into(),
        limit: Units::whole(LIMIT),
        window,
        enforce: true,
        cost_header: None,
        free_when_cached: true,
        sync_from: None,
        ladders: vec![None],
    };
    let class =
        Class { name: "all".into(), when: When::default(), blocked: false, bucket: None, enforce: true, priority: 0 };
    let route = |cost: u64| Route {
        name: cost.to_string(),
        path: Pattern::parse("/**").expect("any path"),
        hosts: vec![],
        methods: vec![],
        query: vec![],
        costs: vec![(QuotaId(0), Cost::Known(Units::whole(cost)))],
        scopes: vec![],
    };
    Arc::new(Rules {
        trust: Trust::default(),
        agent_rules: vec![],
        classes: vec![class],
        quotas: vec![quota],
        routes: (1..=DEAREST).map(route).collect(),
        scopes: vec!["default".into()],
    })
}

/// What can be done to a gate.
#[derive(Clone, Debug)]
enum Step {
    /// So many requests of this cost.
    Ask {
        cost: u64,
        times: u64,
    },
    /// The oldest open request ends: at what it was expected to cost, or at less, or unsent.
    End {
        cost: Option<u64>,
    },
    /// The keeper's round, and how long after the last.
    Round {
        after_ms: u64,
    },
    /// The gate dies, and comes back.
    Crash {
        power: bool,
    },
    /// It stops in good order, and comes back.
    Stop,
    /// Time passes, or the clock is set.
    Pass {
        seconds: u64,
    },
    SetBack {
        seconds: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..=DEAREST, 1u64..12).prop_map(|(cost, times)| Step::Ask { cost, times }),
        4 => proptest::option::of(0..=DEAREST).prop_map(|cost| Step::End { cost }),
        6 => (0u64..2000).prop_map(|after_ms| Step::Round { after_ms }),
        1 => any::<bool>().prop_map(|power| Step::Crash { power }),
        1 => Just(Step::Stop),
        2 => (1u64..90).prop_map(|seconds| Step::Pass { seconds }),
        1 => (2u64..300).prop_map(|seconds| Step::SetBack { seconds }),
    ]
}

/// A gate with its ledger, and what the origin would have counted.
struct World<L: Recovers> {
    ledger: L,
    window: Window,
    now: Timestamp,
    store: Option<L::Store>,
    admission: Admission,
    open: Vec<(Permit, Timestamp, u64)>,
    /// By the beginning of the window: what was served, or may have been.
    served: BTreeMap<Timestamp, u64>,
    crashes: u64,
}

/// A ledger that a gate comes back to.
trait Recovers {
    type Store: Store;
    fn comes_back(&mut self, power_cut: bool, now: Timestamp) -> Self::Store;
}

impl Recovers for InMemory {
    type Store = Memory;

    fn comes_back(&mut self, _: bool, _: Timestamp) -> Memory {
        stores::Ledger::gate(self)
    }
}

/// A directory and how often the machine has been started.
struct OnDisk(TempDir, u64);

impl Recovers for OnDisk {
    type Store = File;

    fn comes_back(&mut self, power_cut: bool, now: Timestamp) -> File {
        self.1 += u64::from(power_cut);
        File::open(self.0.path(), &format!("boot {}", self.1), uptime(), now).expect("it is whole")
    }
}

impl<L: Recovers> World<L> {
    fn new(mut ledger: L, window: Window) -> Self {
        let store = Some(ledger.comes_back(false, NOON));
        let admission = Self::admission(&window, NOON);
        let (open, served) = (Vec::new(), BTreeMap::new());
        Self { ledger, window, now: NOON, store, admission, open, served, crashes: 0 }
    }

    fn admission(window: &Window, now: Timestamp) -> Admission {
        Engine::new(Supply::Leased(Arc::new(|| {})), 10).admission(rules(window.clone()), now)
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Ask { cost, times } => (0..times).for_each(|_| self.ask(cost)),
            Step::End { cost } if !self.open.is_empty() => {
                let (mut permit, window, expected) = self.open.remove(0);
                let counted = self.served.get_mut(&window).expect("it was counted");
                *counted -= expected - cost.unwrap_or(expected).min(expected);
                permit.sent();
                permit.settle(|_, expected| cost.map_or(expected, Units::whole).min(expected));
            }
            Step::End { .. } => {}
            Step::Round { after_ms } => {
                self.now += Duration::from_millis(after_ms);
                self.round();
            }
            Step::Crash { power } => {
                self.open.clear();
                self.store = None;
                self.store = Some(self.ledger.comes_back(power, self.now));
                self.admission = Self::admission(&self.window, self.now);
                self.crashes += 1;
            }
            Step::Stop => {
                while !self.open.is_empty() {
                    self.take(&Step::End { cost: None });
                }
                let asks = self.admission.engine().asks(self.now);
                let store = self.store.as_mut().expect("it is open");
                at_once(store.close(&asks, self.now)).expect("it is written");
                self.store = None;
                self.store = Some(self.ledger.comes_back(true, self.now));
                self.admission = Self::admission(&self.window, self.now);
            }
            Step::Pass { seconds } => self.now += Duration::from_secs(seconds),
            Step::SetBack { seconds } => self.now = self.now - Duration::from_secs(seconds),
        }
    }

    fn ask(&mut self, cost: u64) {
        let place = usize::try_from(cost - 1).expect("a small number");
        let decision = self.admission.admit(ClientKey::from_number(1), ClassId(0), place, "/", self.now);
        if let Ruling::Admitted(permit) = decision.ruling {
            let window = self.window.span(self.now).start;
            *self.served.entry(window).or_default() += cost;
            self.open.push((permit, window, cost));
        }
    }

    fn round(&mut self) {
        let engine = self.admission.engine();
        let store = self.store.as_mut().expect("it is open");
        for (ask, used) in engine.corrections(self.now) {
            at_once(store.correct(&ask, used, self.now)).expect("it is written");
        }
        let asks = engine.asks(self.now);
        let leases = at_once(store.lease(&asks, self.now)).expect("an answer");
        engine.supply(&asks, &leases, self.now);
    }

    /// What any window has been charged, with what weighs on it.
    fn most_served(&self) -> u64 {
        let reach = match self.window {
            Window::Sliding { length, .. } => length,
            _ => Duration::ZERO,
        };
        let within = |&start: &Timestamp| self.served.range(start..=start + reach).map(|(_, units)| units).sum();
        self.served.keys().map(within).max().unwrap_or(0)
    }
}

fn windows() -> impl Strategy<Value = Window> {
    let length = Duration::from_secs(60);
    prop_oneof![
        Just(Window::Fixed { length }),
        Just(Window::Fixed { length: Duration::from_secs(86_400) }),
        Just(Window::Sliding { length, parts: 6 }),
    ]
}

/// The most that one death can waste, as it is published: two leases.
fn bound() -> u64 {
    let limit = Units::whole(LIMIT);
    let (length, dearest) = (Duration::from_secs(86_400), Units::whole(DEAREST));
    Spending { limit, left: limit, length, per_second: limit, dearest }.largest().floor() * 2
}

fn never_too_many<L: Recovers>(ledger: L, window: Window, steps: &[Step]) {
    let mut world = World::new(ledger, window);
    for step in steps {
        world.take(step);
        let most = world.most_served();
        assert!(most <= LIMIT, "{most} of {LIMIT} after {step:?}: {:?}", world.served);
    }
}

/// One day, in which nothing is forgotten: what is counted beyond what was served was held by those who died.
fn waste_is_bounded<L: Recovers>(ledger: L, steps: &[Step]) {
    let mut world = World::new(ledger, Window::Fixed { length: Duration::from_secs(86_400) });
    for step in steps.iter().filter(|step| !matches!(step, Step::Pass { .. } | Step::SetBack { .. })) {
        world.take(step);
        world.round();
        let view = &world.admission.quotas(world.now)[0];
        let (counted, served) = (view.used.plus(view.reserved).floor(), world.served.values().sum::<u64>());
        assert!(counted >= served, "{counted} counted, {served} served after {step:?}");
        let wasted = counted - served;
        let bound = bound() * world.crashes;
        assert!(wasted <= bound, "{wasted} wasted by {} crashes after {step:?}, {bound} at most", world.crashes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn whatever_happens_no_window_is_charged_more_than_its_limit_in_memory(
        window in windows(), steps in proptest::collection::vec(step(), 1..120),
    ) {
        never_too_many(InMemory::default(), window, &steps);
    }

    #[test]
    fn whatever_happens_no_window_is_charged_more_than_its_limit_in_a_file(
        window in windows(), steps in proptest::collection::vec(step(), 1..120),
    ) {
        never_too_many(OnDisk(tempfile::tempdir().expect("a directory"), 0), window, &steps);
    }

    #[test]
    fn a_crash_wastes_no_more_than_a_lease_in_memory(steps in proptest::collection::vec(step(), 1..120)) {
        waste_is_bounded(InMemory::default(), &steps);
    }

    #[test]
    fn a_crash_wastes_no_more_than_a_lease_in_a_file(steps in proptest::collection::vec(step(), 1..120)) {
        waste_is_bounded(OnDisk(tempfile::tempdir().expect("a directory"), 0), &steps);
    }
}
