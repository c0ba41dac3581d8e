//! Cost of the throttle per request: acquire slots, record the response, release the slots.
//!
//! `cargo bench --bench throttle`. Also prints the memory per partition.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use std::collections::VecDeque;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Waker;
use std::time::Duration;
use tidegate::clock::Clock;
use tidegate::config;
use tidegate::engine::{AcquireOutcome, Admission, Engine, LeaseMode, QueuePoll, QueuedRequest, SlotGuard};
use tidegate::policy::identity::ClientKey;
use tidegate::policy::throttle::OriginOutcome;
use tidegate::policy::throttle::partition::PartitionInput;
use tidegate::policy::{ClassId, Timestamp};

const RULES: &str = "
origin: { url: 'http://127.0.0.1:1' }
scopes:
  default: { concurrency: 64, queue: { max_wait: 1h, max_length: 20000 } }
  backend: { concurrency: 4, delay: 0s, autothrottle: {}, backoff: {}, queue: { max_wait: 1h, max_length: 20000 } }
  tenant: { partition_by: { query: tenant }, concurrency: 1, queue: { max_wait: 1h, max_length: 20000 }, max_partitions: 20000 }
routes:
  - { match: /backend, scopes: backend }
  - { match: /tenant, scopes: tenant }
  - { match: /both, scopes: [default, tenant] }";

const BACKEND: usize = 0;
const TENANT: usize = 1;
const BOTH: usize = 2;
const NOW: Timestamp = Timestamp::from_seconds(1000);
const GOOD: OriginOutcome =
    OriginOutcome { status: Some(200), latency: Duration::ZERO, measured: true, retry_after: None };

fn new_admission() -> Arc<Admission> {
    let settings = config::load(Path::new("bench.yaml"), RULES, &[], &[], &[]).expect("valid rules");
    Arc::new(Engine::new(LeaseMode::Local, 1000).admission(Arc::clone(&settings.rules), NOW))
}

fn acquire(gate: &Admission, route: usize, client: u64, tenant: &str) -> AcquireOutcome {
    let said = PartitionInput { route: "", host: "a", path: "/", query: Some(tenant), header: &|_| None };
    gate.acquire_slots(ClientKey::from_number(client), ClassId(0), route, &said, 0.5, NOW)
}

/// Acquires slots, records a response and releases the slots.
fn run_request(gate: &Admission, route: usize, tenant: &str) {
    match acquire(gate, route, 1, tenant) {
        AcquireOutcome::Acquired(Some(pass)) => {
            black_box(pass.record_response(&GOOD, 0.5, NOW));
        }
        _ => panic!("no free slot"),
    }
}

/// In a full scope: queues one request, completes one in flight and grants its slot to the oldest waiter.
fn rotate_waiters(gate: &Admission, line: &mut VecDeque<QueuedRequest>, inside: &mut VecDeque<SlotGuard>, name: &str) {
    if let AcquireOutcome::Queued(waiting) = acquire(gate, BOTH, 1, name) {
        line.push_back(waiting);
    }
    if let Some(pass) = inside.pop_front() {
        black_box(pass.record_response(&GOOD, 0.5, NOW));
    }
    // All waiters have the same priority, so the oldest waiter is next.
    let next = line.pop_front().map(|mut waiting| waiting.poll(Waker::noop(), NOW));
    match next {
        Some(QueuePoll::Granted(pass)) => inside.push_back(pass),
        _ => panic!("no slot granted"),
    }
}

fn throttle(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("throttle");
    let free = new_admission();
    group.bench_function("one scope, free slots", |bench| bench.iter(|| run_request(&free, BACKEND, "")));
    group.bench_function("one partition", |bench| bench.iter(|| run_request(&free, TENANT, black_box("tenant=acme"))));
    group.bench_function("two scopes, one partitioned", |bench| bench.iter(|| run_request(&free, BOTH, "tenant=acme")));

    // Many partitions, each with one request in flight and one waiter.
    let before = resident_bytes();
    let names: Vec<String> = (0..10_100).map(|value| format!("tenant=tenant-{value}")).collect();
    let inside: Vec<AcquireOutcome> = names.iter().map(|name| acquire(&free, TENANT, 1, name)).collect();
    println!("{:.0} bytes per partition in use", (resident_bytes() - before) as f64 / names.len() as f64);
    let line: Vec<AcquireOutcome> = names.iter().map(|name| acquire(&free, TENANT, 2, name)).collect();
    group.bench_function("one partition, 10,000 others busy", |bench| {
        bench.iter(|| run_request(&free, TENANT, "tenant=acme"));
    });
    drop((line, inside));

    for waiting in [10, 250, 10_000] {
        let full = new_admission();
        let mut outcomes = names.iter().map(|name| acquire(&full, BOTH, 1, name));
        let mut inside: VecDeque<SlotGuard> = outcomes
            .by_ref()
            .take(64)
            .map(|entrance| match entrance {
                AcquireOutcome::Acquired(Some(pass)) => pass,
                _ => panic!("no free slot"),
            })
            .collect();
        // Each waiter is of another tenant, and so in a wait queue of its own.
        let mut line: VecDeque<QueuedRequest> = outcomes
            .take(waiting)
            .map(|entrance| match entrance {
                AcquireOutcome::Queued(waiting) => waiting,
                _ => panic!("not queued"),
            })
            .collect();
        let mut comers = names.iter().cycle().skip(inside.len() + line.len());
        group.bench_function(BenchmarkId::new("a full scope, wait queues", waiting), |bench| {
            bench.iter(|| rotate_waiters(&full, &mut line, &mut inside, comers.next().expect("iterator is a cycle")));
        });
    }
    group.finish();

    for threads in [1u32, 2] {
        for (name, route) in [("one scope", BACKEND), ("partitions", TENANT)] {
            let gate = new_admission();
            criterion.bench_function(&format!("requests per thread, {name}/{threads} threads"), |bench| {
                bench.iter_custom(|rounds| run_threads(&gate, route, threads, rounds));
            });
        }
    }
}

/// Returns the time in which `threads` concurrent threads complete `rounds` requests each.
fn run_threads(gate: &Admission, route: usize, threads: u32, rounds: u64) -> Duration {
    let (clock, ready) = (Clock::system(), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..threads)
            .map(|thread| {
                let (clock, ready) = (&clock, &ready);
                scope.spawn(move || {
                    let tenant = format!("tenant={thread}");
                    ready.fetch_add(1, Ordering::SeqCst);
                    while ready.load(Ordering::SeqCst) < threads {
                        std::hint::spin_loop();
                    }
                    let began = clock.monotonic_now();
                    for _ in 0..rounds {
                        run_request(gate, route, &tenant);
                    }
                    clock.monotonic_now().saturating_duration_since(began)
                })
            })
            .collect();
        runs.into_iter().map(|run| run.join().expect("thread does not panic")).max().unwrap_or_default()
    })
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * 4096
}

criterion_group!(benches, throttle);
criterion_main!(benches);
