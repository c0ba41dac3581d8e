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
use tidegate_config as config;
use tidegate_engine::clock::Clock;
use tidegate_engine::{AcquireOutcome, Admission, Engine, LeaseMode, QueuePoll, QueuedRequest, SlotGuard};
use tidegate_policy::fixtures::request_facts;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::throttle::OriginOutcome;
use tidegate_policy::throttle::overload::RequestSource;
use tidegate_policy::throttle::partition::PartitionInput;
use tidegate_policy::{ClassId, RequestFacts, RouteId, Timestamp};

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

const BACKEND: RouteId = RouteId(0);
const TENANT: RouteId = RouteId(1);
const BOTH: RouteId = RouteId(2);
const NOW: Timestamp = Timestamp::from_seconds(1000);
const GOOD: OriginOutcome = OriginOutcome {
    status: Some(200),
    latency: Duration::ZERO,
    latency_counts: true,
    retry_after: None,
    is_unreachable: false,
};

fn new_admission() -> Arc<Admission> {
    let settings = config::load(Path::new("bench.yaml"), RULES, &[], &[], &[]).expect("valid rules");
    Arc::new(Engine::new(LeaseMode::Local, 1000).admission(Arc::clone(&settings.rules), NOW))
}

fn acquire(admission: &Admission, route: RouteId, client: u64, tenant: &str) -> AcquireOutcome {
    let request = RequestFacts { query: Some(tenant), ..request_facts("/") };
    let input = PartitionInput { route: "", request, header: &|_| None };
    let source = RequestSource { client: ClientKey::from_u64(client), network: client, route };
    admission.acquire_slots(source, ClassId(0), &input, 0.5, true, NOW)
}

/// Acquires slots, records a response and releases the slots.
fn run_request(admission: &Admission, route: RouteId, tenant: &str) {
    match acquire(admission, route, 1, tenant) {
        AcquireOutcome::Acquired(Some(guard)) => {
            black_box(guard.record_response(&GOOD, 0.5, NOW));
        }
        _ => panic!("no free slot"),
    }
}

/// In a full scope: queues one request, completes one in flight and grants its slot to the oldest waiter.
fn rotate_waiters(
    admission: &Admission,
    waiters: &mut VecDeque<QueuedRequest>,
    guards: &mut VecDeque<SlotGuard>,
    name: &str,
) {
    if let AcquireOutcome::Queued(request) = acquire(admission, BOTH, 1, name) {
        waiters.push_back(request);
    }
    if let Some(guard) = guards.pop_front() {
        black_box(guard.record_response(&GOOD, 0.5, NOW));
    }
    // All waiters have the same priority, so the oldest waiter is next.
    let next = waiters.pop_front().map(|mut request| request.poll(Waker::noop(), NOW));
    match next {
        Some(QueuePoll::Granted(guard)) => guards.push_back(guard),
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
    let guards: Vec<AcquireOutcome> = names.iter().map(|name| acquire(&free, TENANT, 1, name)).collect();
    println!("{:.0} bytes per partition in use", (resident_bytes() - before) as f64 / names.len() as f64);
    let waiters: Vec<AcquireOutcome> = names.iter().map(|name| acquire(&free, TENANT, 2, name)).collect();
    group.bench_function("one partition, 10,000 others busy", |bench| {
        bench.iter(|| run_request(&free, TENANT, "tenant=acme"));
    });
    drop((waiters, guards));

    for waiter_count in [10, 250, 10_000] {
        let full = new_admission();
        let mut outcomes = names.iter().map(|name| acquire(&full, BOTH, 1, name));
        let mut guards: VecDeque<SlotGuard> = outcomes
            .by_ref()
            .take(64)
            .map(|outcome| match outcome {
                AcquireOutcome::Acquired(Some(guard)) => guard,
                _ => panic!("no free slot"),
            })
            .collect();
        // Each waiter is of another tenant, and so in a wait queue of its own.
        let mut waiters: VecDeque<QueuedRequest> = outcomes
            .take(waiter_count)
            .map(|outcome| match outcome {
                AcquireOutcome::Queued(request) => request,
                _ => panic!("not queued"),
            })
            .collect();
        let mut next_names = names.iter().cycle().skip(guards.len() + waiters.len());
        group.bench_function(BenchmarkId::new("a full scope, wait queues", waiter_count), |bench| {
            bench.iter(|| {
                rotate_waiters(&full, &mut waiters, &mut guards, next_names.next().expect("iterator is a cycle"));
            });
        });
    }
    group.finish();

    for threads in [1u32, 2] {
        for (name, route) in [("one scope", BACKEND), ("partitions", TENANT)] {
            let admission = new_admission();
            criterion.bench_function(&format!("requests per thread, {name}/{threads} threads"), |bench| {
                bench.iter_custom(|rounds| run_threads(&admission, route, threads, rounds));
            });
        }
    }
}

/// Returns the time in which `threads` concurrent threads complete `rounds` requests each.
fn run_threads(admission: &Admission, route: RouteId, threads: u32, rounds: u64) -> Duration {
    let (clock, ready) = (Clock::system(), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                let (clock, ready) = (&clock, &ready);
                scope.spawn(move || {
                    let tenant = format!("tenant={thread}");
                    ready.fetch_add(1, Ordering::SeqCst);
                    while ready.load(Ordering::SeqCst) < threads {
                        std::hint::spin_loop();
                    }
                    let start = clock.monotonic_now();
                    for _ in 0..rounds {
                        run_request(admission, route, &tenant);
                    }
                    clock.monotonic_now().saturating_duration_since(start)
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().expect("thread does not panic")).max().unwrap_or_default()
    })
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * 4096
}

criterion_group!(benches, throttle);
criterion_main!(benches);
