//! Memory, time to start and cost of a decision with a million keys in one budget.
//!
//! `cargo run --release -p tidegate-engine --example key_budgets`, and of a budget that gateways share, with the port of an empty
//! Redis: `cargo run --release -p tidegate-engine --example key_budgets -- 6379`

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "it measures time, and prints it")]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidegate_engine::clock::Clock;
use tidegate_engine::ledger::redis::{HostPort, Incarnation, RedisAddress, RedisEndpoint};
use tidegate_engine::ledger::{Lease, LeaseRefresher, LeaseRequest, RedisStore, Store, StoreError, WakeHandle};
use tidegate_engine::{Admission, Engine, LeaseMode};
use tidegate_policy::budget::{Budget, BudgetKey, Payer};
use tidegate_policy::decide::DecisionRequest;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::key_lease::{Beyond, KeyGrant, KeyLeaseCall, KeyLeaseRow, KeyReply};
use tidegate_policy::quota::Quota;
use tidegate_policy::{ClassId, RouteId, Rules, Timestamp, Units, fixtures};

const KEYS: u64 = 1_000_000;

/// Number of keys that wait for leases together.
const BATCH: u64 = 2_000;

const NOON: Timestamp = Timestamp::from_seconds(1_800_014_400);

fn admission(has_budgets: bool) -> Admission {
    admission_of(&Engine::new(LeaseMode::Local, 1000), has_budgets, NOON)
}

fn admission_of(engine: &Arc<Engine>, has_budgets: bool, now: Timestamp) -> Admission {
    let budget = Budget {
        per: BudgetKey::Customer,
        class_limits: HashMap::new(),
        key_limits: HashMap::new(),
        class_keys: vec![ClientKey::of_class("a")],
        max_keys: KEYS as usize,
        has_metrics_by_key: false,
    };
    let quota = Quota { budget: has_budgets.then_some(budget), ..fixtures::quota("customer", 1_000_000_000_000) };
    let classes = vec![fixtures::class("a")];
    let rules = Rules { classes, quotas: vec![quota], routes: vec![fixtures::route(&[(0, 1)])], ..fixtures::rules() };
    engine.admission(Arc::new(rules), now)
}

/// Decides on a request of the customer with a number, and settles it. Returns true if it is admitted.
fn decide(admission: &Admission, number: u64, now: Timestamp) -> bool {
    let class_rules = &admission.rules()[ClassId(0)];
    let request = DecisionRequest {
        class: ClassId(0),
        class_rules,
        route: &admission.rules()[RouteId(0)],
        has_learned_cost: false,
        exemption: None,
        switch: None,
        has_copy: false,
        is_refresh: false,
    };
    // A permutation of the numbers, so that no place in memory follows another.
    let number = number.wrapping_mul(611_953) % KEYS;
    let hash = tidegate_policy::hash::mix(number + 1);
    let payer = Payer { client: ClientKey::from_u64(1), customer: ClientKey::from_credential(hash) };
    let permit = admission.admit_guarded(payer, &request, RouteId(0), None, now).permit;
    permit.map(|permit| permit.settle(|_, expected| expected)).is_some()
}

fn time_of_decisions(admission: &Admission, count: u64, now: Timestamp) -> Duration {
    let begin = Instant::now();
    (0..count).for_each(|number| assert!(decide(admission, number, now), "units are left"));
    begin.elapsed() / count as u32
}

/// Returns the resident memory, in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number of pages") * 4096
}

/// A store in Redis that counts its calls.
struct CountingStore {
    store: RedisStore,
    calls: Arc<AtomicU64>,
}

impl Store for CountingStore {
    async fn lease(&mut self, requests: &[LeaseRequest], now: Timestamp) -> Result<Vec<Lease>, StoreError> {
        self.store.lease(requests, now).await
    }

    async fn close(&mut self, requests: &[LeaseRequest], now: Timestamp) -> Result<(), StoreError> {
        self.store.close(requests, now).await
    }

    async fn lease_keys(&mut self, call: &KeyLeaseCall, now: Timestamp) -> Result<KeyReply, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.store.lease_keys(call, now).await
    }
}

/// Serves 10 s of requests of a hundred customers at two gateways, `rate` of each customer a second at each.
fn measure_calls(gateways: &[(Admission, LeaseRefresher); 2], calls: &AtomicU64, clock: &Clock, rate: u64) {
    const CUSTOMERS: u64 = 100;
    const TICKS: u64 = 1000;
    let calls_before = calls.load(Ordering::Relaxed);
    let (mut served, mut waited) = (0, 0);
    let mut waiting: Vec<(usize, u64)> = Vec::new();
    let (begin, mut due) = (Instant::now(), 0);
    for tick in 1..=TICKS {
        waiting.retain(|(gateway, number)| !decide(&gateways[*gateway].0, *number, clock.now()));
        for request in due..CUSTOMERS * rate * tick / 100 {
            for (gateway, (admission, _)) in gateways.iter().enumerate() {
                let number = request.wrapping_mul(61) % CUSTOMERS;
                served += 1;
                if !decide(admission, number, clock.now()) {
                    waited += 1;
                    waiting.push((gateway, number));
                }
            }
        }
        due = CUSTOMERS * rate * tick / 100;
        std::thread::sleep(Duration::from_millis(10 * tick).saturating_sub(begin.elapsed()));
    }
    let calls = calls.load(Ordering::Relaxed) - calls_before;
    let a_request = calls as f64 / f64::from(served);
    println!(
        "{rate}/s of a customer at each of two gateways: {a_request:.3} calls a request, {waited} of {served} waited"
    );
}

/// Serves each key, and once more from its lease. Returns the mean time of such a decision, and their number.
fn serve_all(admission: &Admission, refresher: &LeaseRefresher, now: impl Fn() -> Timestamp) -> (Duration, u32) {
    let (mut time, mut count) = (Duration::ZERO, 0);
    for first in (0..KEYS).step_by(BATCH as usize) {
        let mut waiting: Vec<u64> = (first..first + BATCH).collect();
        while !waiting.is_empty() {
            waiting.retain(|number| !decide(admission, *number, now()));
            refresher.flush(Duration::from_secs(1));
        }
        let begin = Instant::now();
        count += (first..first + BATCH).filter(|number| decide(admission, *number, now())).count() as u32;
        time += begin.elapsed();
    }
    (time / count.max(1), count)
}

/// A ledger in memory that grants all.
struct GrantingStore;

impl Store for GrantingStore {
    async fn lease(&mut self, _: &[LeaseRequest], _: Timestamp) -> Result<Vec<Lease>, StoreError> {
        Ok(Vec::new())
    }

    async fn close(&mut self, _: &[LeaseRequest], _: Timestamp) -> Result<(), StoreError> {
        Ok(())
    }

    async fn lease_keys(&mut self, call: &KeyLeaseCall, _: Timestamp) -> Result<KeyReply, StoreError> {
        let grant = |row: &KeyLeaseRow| KeyGrant::Counted {
            held: row.wanted,
            taken_by_others: Units::ZERO,
            forgotten: Units::ZERO,
            beyond: Beyond::Nothing,
        };
        Ok(KeyReply::Granted(call.rows.iter().map(grant).collect()))
    }
}

/// Measures the memory of leases in one window and in two.
fn measure_leases() {
    let wake_handle = WakeHandle::default();
    let engine = Engine::new(wake_handle.shared_lease_mode(), 1000);
    let admission = admission_of(&engine, true, NOON);
    let clock = Arc::new(AtomicU64::new(NOON.0));
    // Keys are served within half a minute, and idle for the rest of it.
    let tick = || Timestamp(clock.fetch_add(30_000_000_000 / (2 * KEYS), Ordering::Relaxed));
    let of_refresher = Arc::clone(&clock);
    let refresher = LeaseRefresher::start(GrantingStore, engine, wake_handle, move || {
        Timestamp(of_refresher.load(Ordering::Relaxed))
    })
    .expect("a thread");
    let before = resident();
    for windows in ["one window", "two windows"] {
        serve_all(&admission, &refresher, tick);
        println!("shared, in memory, {windows}: {} bytes a key", (resident() - before) / KEYS);
        clock.fetch_add(86_400_000_000_000, Ordering::Relaxed);
    }
}

/// Measures a budget that is shared through the Redis at `port`.
fn measure_shared(port: u16) {
    let clock = Clock::system();
    let address = RedisAddress::Tcp(HostPort { host: "127.0.0.1".to_owned(), port });
    let server = RedisEndpoint { address, tls: None, user: None, password: None, database: 0 };
    let calls = Arc::new(AtomicU64::new(0));
    let start = |run: u64| {
        let wake_handle = WakeHandle::default();
        let engine = Engine::new(wake_handle.shared_lease_mode(), 1000);
        let admission = admission_of(&engine, true, clock.now());
        let store = RedisStore::new(server.clone(), "bench", false, Incarnation::ephemeral(run));
        let store = CountingStore { store, calls: Arc::clone(&calls) };
        let now = clock.clone();
        let refresher = LeaseRefresher::start(store, engine, wake_handle, move || now.now());
        (admission, refresher.expect("a thread"))
    };
    let before = resident();
    let (admission, refresher) = start(1);
    let (time, count) = serve_all(&admission, &refresher, || clock.now());
    println!("shared, decision with a lease: {time:?} ({count} requests)");
    let begin = Instant::now();
    let (again, refresher_again) = start(2);
    while !decide(&again, 0, clock.now()) {
        refresher_again.flush(Duration::from_secs(1));
    }
    println!("a second gateway serves its first request after {:?}", begin.elapsed());
    println!("shared, in memory: {} bytes a key", (resident() - before) / KEYS);
    let gateways = [(admission, refresher), (again, refresher_again)];
    for rate in [1, 10, 100] {
        measure_calls(&gateways, &calls, &clock, rate);
    }
}

fn main() {
    if let Some(port) = std::env::args().nth(1) {
        return measure_shared(port.parse().expect("a port"));
    }
    measure_leases();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let without = admission(false);
    decide(&without, 0, NOON);
    println!("decision without budgets: {:?}", time_of_decisions(&without, KEYS, NOON));
    drop(without);

    let before = resident();
    let first = admission(true);
    let first_of_each = time_of_decisions(&first, KEYS, NOON);
    println!("in memory: {} bytes a key", (resident() - before) / KEYS);
    println!("decision, first of a key: {first_of_each:?}, again: {:?}", time_of_decisions(&first, KEYS, NOON));
    let tomorrow = NOON + Duration::from_secs(86_400);
    time_of_decisions(&first, KEYS, tomorrow);
    println!("with a million in the window before, too: {} bytes a key of both", (resident() - before) / KEYS);
    drop(first);

    let recorded = admission(true);
    recorded.engine().open_key_files(dir.path(), || NOON).expect("a writable directory");
    time_of_decisions(&recorded, KEYS, NOON);
    println!("decision with the file: {:?}", time_of_decisions(&recorded, KEYS, NOON));
    recorded.engine().close_key_files();
    drop(recorded);
    let file = std::fs::read_dir(dir.path()).expect("it exists").flatten().next().expect("a file");
    println!("file: {} bytes a key", file.metadata().expect("it exists").len() / KEYS);

    let restarted = admission(true);
    let begin = Instant::now();
    restarted.engine().open_key_files(dir.path(), || NOON).expect("a writable directory");
    println!("restart: {:?} to read a million keys", begin.elapsed());
    assert_eq!(restarted.budget_entries(0, NOON)[0].keys as u64, KEYS);
}
