//! Ledger: the limit is never exceeded, including after crashes (docs/GUARANTEES.md).

use crate::support::memory_store::MemoryStore;
use crate::support::small_disk::SmallDisk;
use crate::support::stores::{self, NOON, expect_ready, run_store_suite};
use crate::support::wait::wait_for;
use crate::support::{crash, report_skip};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tidegate_engine::ledger::{FileStore, LeaseTable, OpenError, Store};
use tidegate_engine::{Admission, Engine, LeaseMode, Permit};
use tidegate_policy::fixtures;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::lease::SpendProfile;
use tidegate_policy::quota::Quota;
use tidegate_policy::route::Route;
use tidegate_policy::throttle::Scope;
use tidegate_policy::window::Window;
use tidegate_policy::{ClassId, RouteId, Rules, Timestamp, Units};

// --- one suite for all stores --------------------------------------------------------------------------------------

/// Instances on one in-memory table. An instance that crashes does not restart, and its units stay held.
#[derive(Default)]
struct MemoryFixture {
    table: Arc<Mutex<LeaseTable>>,
    instance_count: u64,
}

impl stores::StoreFixture for MemoryFixture {
    type Store = MemoryStore;

    fn open_store(&mut self) -> MemoryStore {
        self.instance_count += 1;
        MemoryStore::new(Arc::clone(&self.table), self.instance_count)
    }

    fn supports_multiple(&self) -> bool {
        true
    }
}

/// A single instance at a time on a directory.
struct FileFixture(TempDir);

impl FileFixture {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("temporary directory"))
    }
}

/// Monotonic time that advances by one second per call, so that no sync is delayed.
fn ticking_time() -> tidegate_engine::ledger::Uptime {
    let ticks = AtomicU64::new(0);
    Box::new(move || Timestamp(ticks.fetch_add(1_000_000_000, Ordering::Relaxed)))
}

/// Opens the ledger of a restarted instance. The old lock may outlive its instance shortly: a child process of another
/// test shares it between fork and exec.
fn reopen_file_store(dir: &Path, boot: &str, now: Timestamp) -> FileStore {
    wait_for("the ledger lock", || match FileStore::open(dir, boot, ticking_time(), now) {
        Err(OpenError::Locked(_)) => None,
        opened => Some(opened.unwrap_or_else(|error| panic!("{error}"))),
    })
}

impl stores::StoreFixture for FileFixture {
    type Store = FileStore;

    fn open_store(&mut self) -> FileStore {
        reopen_file_store(self.0.path(), "this boot", NOON)
    }

    fn supports_multiple(&self) -> bool {
        false
    }
}

#[test]
fn memory_store_passes_the_ledger_suite() {
    run_store_suite(MemoryFixture::default);
}

#[test]
fn file_store_passes_the_ledger_suite() {
    run_store_suite(FileFixture::new);
}

// --- engine and ledger against a simple model ----------------------------------------------------------------------

const LIMIT: u64 = 400;
const MAX_COST: u64 = 3;

fn rules(window: Window) -> Arc<Rules> {
    let route = |cost: u64| Route { name: cost.to_string(), ..fixtures::route(&[(0, cost)]) };
    Arc::new(Rules {
        classes: vec![fixtures::class("all")],
        quotas: vec![Quota { window, ..fixtures::quota("api", LIMIT) }],
        routes: (1..=MAX_COST).map(route).collect(),
        scopes: vec![Scope::unthrottled("default")],
        ..fixtures::rules()
    })
}

/// Step of a simulation.
#[derive(Clone, Debug)]
enum SimulationStep {
    /// Sends `count` requests of this cost.
    SendRequests {
        cost: u64,
        count: u64,
    },
    /// Settles the oldest open request: at the expected cost, at less, or as unsent.
    SettleRequest {
        cost: Option<u64>,
    },
    /// Refreshes leases, at a time after the previous refresh.
    RefreshLeases {
        after_ms: u64,
    },
    /// Crashes and restarts.
    Crash {
        power_cut: bool,
    },
    /// Stops cleanly and restarts.
    Stop,
    /// Advances time, or sets the clock.
    AdvanceClock {
        seconds: u64,
    },
    SetClockBack {
        seconds: u64,
    },
    /// Reloads with another window.
    RedefineWindow {
        window: Window,
    },
}

fn any_step() -> impl Strategy<Value = SimulationStep> {
    prop_oneof![
        6 => (1..=MAX_COST, 1u64..12).prop_map(|(cost, count)| SimulationStep::SendRequests { cost, count }),
        4 => proptest::option::of(0..=MAX_COST).prop_map(|cost| SimulationStep::SettleRequest { cost }),
        6 => (0u64..2000).prop_map(|after_ms| SimulationStep::RefreshLeases { after_ms }),
        1 => any::<bool>().prop_map(|power_cut| SimulationStep::Crash { power_cut }),
        1 => Just(SimulationStep::Stop),
        2 => (1u64..90).prop_map(|seconds| SimulationStep::AdvanceClock { seconds }),
        1 => (2u64..300).prop_map(|seconds| SimulationStep::SetClockBack { seconds }),
        1 => any_window().prop_map(|window| SimulationStep::RedefineWindow { window }),
    ]
}

/// A gateway with its ledger, and a model of the origin's counter.
struct LedgerSimulation<L: ReopenableLedger> {
    ledger: L,
    window: Window,
    now: Timestamp,
    latest: Timestamp,
    store: Option<L::Store>,
    engine: Arc<Engine>,
    admission: Admission,
    inflight: Vec<(Permit, Timestamp, u64)>,
    /// Units served, or possibly served, by the start of the window.
    served: BTreeMap<Timestamp, u64>,
    crashes: u64,
}

/// A ledger that can be reopened after a restart.
trait ReopenableLedger {
    type Store: Store;
    fn reopen(&mut self, power_cut: bool, now: Timestamp) -> Self::Store;
}

impl ReopenableLedger for MemoryFixture {
    type Store = MemoryStore;

    fn reopen(&mut self, _: bool, _: Timestamp) -> MemoryStore {
        stores::StoreFixture::open_store(self)
    }
}

/// A directory, and the number of boots of the machine.
struct DiskFixture(TempDir, u64);

impl ReopenableLedger for DiskFixture {
    type Store = FileStore;

    fn reopen(&mut self, power_cut: bool, now: Timestamp) -> FileStore {
        self.1 += u64::from(power_cut);
        reopen_file_store(self.0.path(), &format!("boot {}", self.1), now)
    }
}

fn engine() -> Arc<Engine> {
    Engine::new(LeaseMode::Leased(Arc::new(|| {})), 10)
}

impl<L: ReopenableLedger> LedgerSimulation<L> {
    fn new(mut ledger: L, window: Window) -> Self {
        let store = Some(ledger.reopen(false, NOON));
        let engine = engine();
        let admission = engine.admission(rules(window.clone()), NOON);
        let (inflight, served) = (Vec::new(), BTreeMap::new());
        Self { ledger, window, now: NOON, latest: NOON, store, engine, admission, inflight, served, crashes: 0 }
    }

    /// Starts an engine whose only state is the ledger.
    fn restart_engine(&mut self) {
        self.engine = engine();
        self.admission = self.engine.admission(rules(self.window.clone()), self.now);
    }

    fn apply_step(&mut self, step: &SimulationStep) {
        self.latest = self.latest.max(self.now);
        match *step {
            SimulationStep::SendRequests { cost, count } => (0..count).for_each(|_| self.send_request(cost)),
            SimulationStep::SettleRequest { cost } if !self.inflight.is_empty() => {
                let (mut permit, window, expected) = self.inflight.remove(0);
                let window_units = self.served.get_mut(&window).expect("window was counted");
                *window_units -= expected - cost.unwrap_or(expected).min(expected);
                permit.mark_sent();
                permit.settle(|_, expected| cost.map_or(expected, Units::from_whole).min(expected));
            }
            SimulationStep::SettleRequest { .. } => {}
            SimulationStep::RefreshLeases { after_ms } => {
                self.now += Duration::from_millis(after_ms);
                self.refresh_leases();
            }
            SimulationStep::Crash { power_cut } => {
                self.inflight.clear();
                self.store = None;
                self.store = Some(self.ledger.reopen(power_cut, self.now));
                self.restart_engine();
                self.crashes += 1;
            }
            SimulationStep::Stop => {
                while !self.inflight.is_empty() {
                    self.apply_step(&SimulationStep::SettleRequest { cost: None });
                }
                let requests = self.admission.engine().lease_requests(self.now, Duration::ZERO);
                let store = self.store.as_mut().expect("store is open");
                expect_ready(store.close(&requests, self.now)).expect("ledger is written");
                self.store = None;
                self.store = Some(self.ledger.reopen(true, self.now));
                self.restart_engine();
            }
            SimulationStep::AdvanceClock { seconds } => self.now += Duration::from_secs(seconds),
            SimulationStep::SetClockBack { seconds } => self.now = self.now - Duration::from_secs(seconds),
            SimulationStep::RedefineWindow { ref window } => self.redefine_window(window),
        }
    }

    /// Replaces the window. Units that count at this time continue to count. The time is exact, and no request is in
    /// flight.
    fn redefine_window(&mut self, window: &Window) {
        while !self.inflight.is_empty() {
            self.apply_step(&SimulationStep::SettleRequest { cost: None });
        }
        self.now = self.now.max(self.latest);
        self.refresh_leases();
        let start = self.window.span(self.now).start;
        let used = self.served.range(start - self.lookback()..=start).map(|(_, units)| units).sum();
        self.window = window.clone();
        self.admission = self.engine.admission(rules(window.clone()), self.now);
        self.served = BTreeMap::from([(window.span(self.now).start, used)]);
        self.refresh_leases();
    }

    fn lookback(&self) -> Duration {
        match self.window {
            Window::Sliding { length, .. } => length,
            _ => Duration::ZERO,
        }
    }

    fn send_request(&mut self, cost: u64) {
        let route = RouteId::from_index(cost as usize - 1);
        let decision = self.admission.admit(ClientKey::from_u64(1), ClassId(0), route, "/", self.now);
        if let Some(permit) = decision.permit {
            let window = self.window.span(self.now).start;
            *self.served.entry(window).or_default() += cost;
            self.inflight.push((permit, window, cost));
        }
    }

    fn refresh_leases(&mut self) {
        let engine = self.admission.engine();
        let store = self.store.as_mut().expect("store is open");
        for (request, used) in engine.pending_corrections(self.now) {
            expect_ready(store.correct(&request, used, self.now)).expect("ledger is written");
        }
        let requests = engine.lease_requests(self.now, Duration::ZERO);
        let leases = expect_ready(store.lease(&requests, self.now)).expect("store returns leases");
        engine.apply_leases(&requests, &leases, self.now);
    }

    /// Returns the maximum of the units charged to any window, including what counts toward it.
    fn max_served(&self) -> u64 {
        let lookback = self.lookback();
        let served_within =
            |&start: &Timestamp| self.served.range(start..=start + lookback).map(|(_, units)| units).sum();
        self.served.keys().map(served_within).max().unwrap_or(0)
    }
}

fn any_window() -> impl Strategy<Value = Window> {
    let length = Duration::from_secs(60);
    prop_oneof![
        Just(Window::Fixed { length }),
        Just(Window::Fixed { length: Duration::from_secs(86_400) }),
        Just(Window::Sliding { length, sub_windows: 6 }),
    ]
}

/// Returns the maximum waste of one crash, as documented: two leases.
fn max_crash_waste() -> u64 {
    let limit = Units::from_whole(LIMIT);
    let (length, max_cost) = (Duration::from_secs(86_400), Units::from_whole(MAX_COST));
    let profile = SpendProfile {
        limit,
        left: limit,
        length,
        per_second: limit,
        max_cost,
        shortfall: Units::ZERO,
        refresh_time: Duration::ZERO,
    };
    profile.max_size().floor() * 2
}

fn assert_limit_kept<L: ReopenableLedger>(ledger: L, window: Window, steps: &[SimulationStep]) {
    let mut simulation = LedgerSimulation::new(ledger, window);
    for step in steps {
        simulation.apply_step(step);
        let max_served = simulation.max_served();
        assert!(max_served <= LIMIT, "{max_served} of {LIMIT} after {step:?}: {:?}", simulation.served);
    }
}

/// Runs one day, in which no window is evicted: units counted beyond those served were held by crashed instances.
fn assert_waste_bounded<L: ReopenableLedger>(ledger: L, steps: &[SimulationStep]) {
    let mut simulation = LedgerSimulation::new(ledger, Window::Fixed { length: Duration::from_secs(86_400) });
    for step in steps.iter().filter(|step| {
        !matches!(
            step,
            SimulationStep::AdvanceClock { .. }
                | SimulationStep::SetClockBack { .. }
                | SimulationStep::RedefineWindow { .. }
        )
    }) {
        simulation.apply_step(step);
        simulation.refresh_leases();
        let view = &simulation.admission.quotas(simulation.now)[0];
        let (counted, served) =
            (view.used.saturating_add(view.reserved).floor(), simulation.served.values().sum::<u64>());
        assert!(counted >= served, "{counted} counted, {served} served after {step:?}");
        let wasted = counted - served;
        let bound = max_crash_waste() * simulation.crashes;
        assert!(
            wasted <= bound,
            "{wasted} units wasted by {} crashes after {step:?}, limit {bound}",
            simulation.crashes
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn memory_store_never_charges_beyond_window_limit(
        window in any_window(), steps in proptest::collection::vec(any_step(), 1..120),
    ) {
        assert_limit_kept(MemoryFixture::default(), window, &steps);
    }

    #[test]
    fn file_store_never_charges_beyond_window_limit(
        window in any_window(), steps in proptest::collection::vec(any_step(), 1..120),
    ) {
        assert_limit_kept(DiskFixture(tempfile::tempdir().expect("temporary directory"), 0), window, &steps);
    }

    #[test]
    fn crash_waste_is_bounded_in_memory(steps in proptest::collection::vec(any_step(), 1..120)) {
        assert_waste_bounded(MemoryFixture::default(), &steps);
    }

    #[test]
    fn crash_waste_is_bounded_in_a_file(steps in proptest::collection::vec(any_step(), 1..120)) {
        assert_waste_bounded(DiskFixture(tempfile::tempdir().expect("temporary directory"), 0), &steps);
    }
}

// --- invalid ledger files -------------------------------------------------------------------------------------------

fn open_file_store(dir: &Path) -> Result<FileStore, OpenError> {
    FileStore::open(dir, "this boot", ticking_time(), NOON)
}

fn open_error(dir: &Path) -> String {
    wait_for("the ledger lock", || match open_file_store(dir) {
        Err(OpenError::Locked(_)) => None,
        Err(error) => Some(error.to_string()),
        Ok(_) => panic!("opened an invalid ledger"),
    })
}

/// Creates a directory with a ledger in which 30 units are used.
fn dir_with_ledger() -> TempDir {
    let mut ledger = FileFixture::new();
    let store = stores::StoreFixture::open_store(&mut ledger);
    let mut instance = stores::StoreClient::new(&ledger, store);
    instance.request_lease(100);
    instance.use_units(30);
    instance.close_store();
    ledger.0
}

#[test]
fn invalid_ledger_file_is_reported_and_kept() {
    type Corruption = fn(&mut Vec<u8>);
    let table: [(&str, Corruption, &str); 6] = [
        ("foreign", |bytes| *bytes = b"#!/bin/sh\nexit 0\n".to_vec(), "not a Tidegate ledger file; move it"),
        ("empty", Vec::clear, "damaged ledger file: empty file; move it"),
        (
            "newer",
            |bytes| bytes[16] = 2,
            "unsupported ledger version 2 (this build supports up to 1); run the build that wrote it",
        ),
        ("truncated", |bytes| bytes.truncate(9000), "damaged ledger file: truncated file"),
        ("header", |bytes| bytes[20] ^= 1, "damaged ledger file: header checksum mismatch"),
        ("records", |bytes| bytes[4096..].fill(7), "damaged ledger file: no intact record"),
    ];
    for (name, corrupt, expected) in table {
        let dir = dir_with_ledger();
        let file = dir.path().join("ledger");
        let mut bytes = std::fs::read(&file).expect("ledger file exists");
        corrupt(&mut bytes);
        std::fs::write(&file, &bytes).expect("file is writable");
        let error = open_error(dir.path());
        assert!(error.starts_with(&file.display().to_string()) && error.contains(expected), "{name}: {error}");
        assert_eq!(std::fs::read(&file).expect("file exists"), bytes, "{name}: the file is not overwritten");
    }
}

#[test]
fn ledger_opens_with_one_damaged_record() {
    let dir = dir_with_ledger();
    let file = dir.path().join("ledger");
    let mut bytes = std::fs::read(&file).expect("ledger file exists");
    let slot = (bytes.len() - 4096) / 2;
    bytes[4096 + slot..].fill(7);
    std::fs::write(&file, &bytes).expect("file is writable");
    reopen_file_store(dir.path(), "this boot", NOON);
}

#[test]
fn ledger_opens_with_damaged_journal() {
    let dir = dir_with_ledger();
    std::fs::write(dir.path().join("journal"), b"junk").expect("file is writable");
    reopen_file_store(dir.path(), "this boot", NOON);
}

#[test]
fn second_instance_reports_the_locked_directory() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let _first = open_file_store(dir.path()).expect("directory is not locked");
    let expected = format!("state directory {} is locked by another instance; stop it", dir.path().display());
    let error = open_file_store(dir.path()).err().expect("directory is locked").to_string();
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn unusable_state_directory_is_named() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("file is writable");
    let error = open_error(&file.join("state"));
    assert!(error.starts_with("cannot use state directory") && error.contains("state_dir"), "{error}");
}

#[test]
fn a_read_only_directory_is_refused() {
    use std::os::unix::fs::DirBuilderExt;
    let dir = tempfile::tempdir().expect("temporary directory");
    let (state, yaml) = (dir.path().join("state"), dir.path().join("tidegate.yaml"));
    std::fs::DirBuilder::new().mode(0o500).create(&state).expect("temporary directory is writable");
    let settings = format!(
        "state_dir: {}\nlisten: 127.0.0.1:0\nlog: {{ access: off }}\norigin: {{ url: http://127.0.0.1:1 }}\n",
        state.display()
    );
    std::fs::write(&yaml, settings).expect("file is writable");
    let program = env!("CARGO_BIN_EXE_tidegate");
    // Without these capabilities, permissions apply to root, too.
    let restricted = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", program];
    let command = if std::fs::write(state.join("probe"), "").is_ok() { &restricted[..] } else { &restricted[2..] };
    let output = std::process::Command::new(command[0])
        .args(&command[1..])
        .arg("--config")
        .arg(&yaml)
        .output()
        .expect("program runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("make it writable"), "{errors}");
}

#[test]
fn state_directory_is_private_to_user() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("temporary directory");
    let state = dir.path().join("deep/state");
    let _ledger = open_file_store(&state).expect("ledger is created");
    for (name, mode) in [("", 0o700), ("ledger", 0o600), ("journal", 0o600), ("lock", 0o600)] {
        let actual = std::fs::metadata(state.join(name)).expect("file exists").permissions().mode() & 0o777;
        assert_eq!(actual, mode, "{name}: {actual:o}");
    }
}

#[test]
fn full_disk_fails_startup_with_hint() {
    let Some(small) = SmallDisk::mount("64k") else { return report_skip("cannot mount a file system") };
    let state_dir = small.path().join("state");
    let error = open_error(&state_dir);
    let path = state_dir.join("ledger");
    assert!(error.starts_with(&format!("cannot write {}", path.display())) && error.contains("free space"), "{error}");
    assert!(!path.exists(), "no partial file is left");
}

#[test]
fn ledger_with_many_quotas_reopens_completely() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut ledger = open_file_store(dir.path()).expect("ledger is created");
    let requests: Vec<_> = (0..1000)
        .flat_map(|quota| (0..8).map(move |day| (quota, day)))
        .map(|(quota, day)| tidegate_engine::ledger::LeaseRequest {
            quota: format!("quota_{quota}"),
            limit: Units::from_whole(1000),
            window: stores::window(day * 86_400, 86_400, 0),
            taken: Units::from_whole(1),
            held: Units::ZERO,
            wanted: Units::from_whole(20),
            urgent: Units::from_whole(2),
            expected_demand: Units::ZERO,
        })
        .collect();
    let leases = expect_ready(ledger.lease(&requests, NOON)).expect("store returns leases");
    drop(ledger);
    let mut ledger = reopen_file_store(dir.path(), "this boot", NOON);
    let reopened = expect_ready(ledger.lease(&requests, NOON)).expect("store returns leases");
    assert!(
        leases.iter().zip(&reopened).all(|(before, after)| after.held_by_others >= before.held),
        "{:?}",
        reopened[0]
    );
}

// --- the program itself, killed under load -------------------------------------------------------------------------

#[test]
fn killed_process_never_overspends() {
    let rounds = std::env::var("TIDEGATE_CRASH_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(20);
    crash::kill_repeatedly(rounds);
}

#[test]
fn process_killed_on_full_disk_never_overspends() {
    let Some(small) = SmallDisk::mount("512k") else { return report_skip("cannot mount a file system") };
    crash::kill_on_full_disk(small.path(), 5);
}

#[test]
fn process_suspended_across_window_end_never_overspends() {
    crash::suspend_across_window_end();
}

#[test]
fn usage_and_manual_correction_survive_restarts() {
    crash::clean_restart();
}
