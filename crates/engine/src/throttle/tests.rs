mod client_slots;
mod overload;
mod promise;

use super::*;
use proptest::prelude::*;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use tidegate_policy::fixtures::request_facts;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::throttle::autothrottle::Autothrottle;
use tidegate_policy::throttle::backoff::Backoff;
use tidegate_policy::throttle::controller::Controller;
use tidegate_policy::throttle::gradient::Gradient;
use tidegate_policy::throttle::partition::Partitioning;
use tidegate_policy::throttle::spacing::Spacing;
use tidegate_policy::throttle::{self, ClientSlots, Jitter, OriginOutcome, QueueConfig};
use tidegate_policy::tier::Share;
use tidegate_policy::{RequestFacts, RouteId};

mod values;

const HIGH_PRIORITY: u8 = 3;
const LOW_PRIORITY: u8 = 1;

/// Configuration with the widest limits.
fn permissive() -> throttle::ThrottleConfig {
    throttle::ThrottleConfig {
        concurrency: None,
        client_slots: ClientSlots::Share(Share::ALL),
        spacing: Spacing::default(),
        backoff: None,
        controller: None,
        queue: QueueConfig { max_wait: seconds(2), max_length: 256 },
    }
}

fn with_concurrency(concurrency: u32) -> throttle::ThrottleConfig {
    throttle::ThrottleConfig { concurrency: NonZeroU32::new(concurrency), ..permissive() }
}

fn with_long_queue(rules: throttle::ThrottleConfig) -> throttle::ThrottleConfig {
    throttle::ThrottleConfig { queue: QueueConfig { max_wait: seconds(3600), ..rules.queue }, ..rules }
}

fn with_backoff() -> throttle::ThrottleConfig {
    let backoff = Backoff {
        statuses: vec![429],
        factor: 2,
        min_delay: seconds(1),
        max_delay: seconds(60),
        jitter: Jitter::default(),
        window: seconds(60),
        min_clients: NonZeroU32::MIN,
    };
    throttle::ThrottleConfig { backoff: Some(backoff), ..permissive() }
}

fn spaced(delay_ms: u64) -> Spacing {
    Spacing { delay: Duration::from_millis(delay_ms), ..Spacing::default() }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn ms(count: u64) -> Timestamp {
    Timestamp(count * 1_000_000)
}

fn origin_outcome(status: u16) -> OriginOutcome {
    OriginOutcome {
        status: Some(status),
        latency: Duration::from_millis(10),
        latency_counts: true,
        retry_after: None,
        is_unreachable: false,
    }
}

/// A throttle with its scopes.
struct ThrottleFixture {
    throttle: Arc<Throttle>,
    scopes: Vec<Scope>,
}

impl ThrottleFixture {
    fn with_scopes(scopes: &[(&str, throttle::ThrottleConfig)]) -> Self {
        let scope = |(name, rules): &(&str, throttle::ThrottleConfig)| Scope {
            name: (*name).to_owned(),
            throttle: Some(rules.clone()),
            partitioning: None,
        };
        let scopes: Vec<Scope> = scopes.iter().map(scope).collect();
        let throttle = Arc::new(Throttle::default());
        throttle.update_config(&scopes);
        Self { throttle, scopes }
    }

    /// Partitions the scope `name` by the query parameter of the same name, with at most `max_partitions` partitions.
    fn partitioned(mut self, name: &str, max_partitions: usize) -> Self {
        let scope = self.scopes.iter_mut().find(|scope| scope.name == name).expect("the scope is configured");
        let max_partitions = NonZeroUsize::new(max_partitions).expect("the maximum is positive");
        scope.partitioning = Some(Partitioning { key: PartitionKey::Query(name.to_owned()), max_partitions });
        self.throttle.update_config(&self.scopes);
        self
    }

    /// Returns the scopes of `names`. A name may contain a partition value, such as `tenant=acme`.
    fn route_scopes(&self, names: &[&str]) -> RouteScopes {
        let is_named = |scope: &&Scope| names.iter().any(|name| name.split('=').next() == Some(&scope.name));
        self.throttle.route_scopes(self.scopes.iter().filter(is_named)).expect("a named scope is throttled")
    }

    fn acquire(&self, names: &[&str], client: u64, priority: u8, now: u64) -> AcquireOutcome {
        let source = RequestSource { client: ClientKey::from_u64(client), network: client, route: RouteId(0) };
        self.acquire_from(source, names, priority, now)
    }

    fn acquire_from(&self, source: RequestSource, names: &[&str], priority: u8, now: u64) -> AcquireOutcome {
        let request = SlotRequest { source, priority, random: 0.0, may_wait: true };
        let query = names.join("&");
        let facts = RequestFacts { query: Some(&query), ..request_facts("/") };
        let input = PartitionInput { route: "/**", request: facts, header: &|_| None };
        self.throttle.acquire(&self.route_scopes(names), &input, request, ms(now))
    }

    fn expect_acquired(&self, names: &[&str], now: u64) -> SlotGuard {
        match self.acquire(names, 1, HIGH_PRIORITY, now) {
            AcquireOutcome::Acquired(Some(guard)) => guard,
            _ => panic!("expected slots at {now}"),
        }
    }

    fn expect_queued(&self, names: &[&str], client: u64, priority: u8, now: u64) -> TestClient {
        match self.acquire(names, client, priority, now) {
            AcquireOutcome::Queued(request) => TestClient::new(request),
            _ => panic!("expected a queued request at {now}"),
        }
    }

    fn expect_rejected(&self, names: &[&str], priority: u8, now: u64) -> ThrottleRejection {
        match self.acquire(names, 1, priority, now) {
            AcquireOutcome::Rejected(rejection) => rejection,
            _ => panic!("expected a rejection at {now}"),
        }
    }

    fn partitions(&self, name: &str, now: u64) -> Vec<ScopeState> {
        self.throttle.busiest_partitions(name, usize::MAX, ms(now))
    }

    fn state(&self, name: &str, now: u64) -> ScopeState {
        let states = self.throttle.snapshots(ms(now));
        states.into_iter().find(|state| *state.name == *name).expect("the scope is configured")
    }
}

/// A queued request with its waker.
struct TestClient {
    request: QueuedRequest,
    waker: Arc<FlagWaker>,
}

#[derive(Default)]
struct FlagWaker(AtomicBool);

impl Wake for FlagWaker {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl TestClient {
    fn new(request: QueuedRequest) -> Self {
        Self { request, waker: Arc::default() }
    }

    fn is_woken(&self) -> bool {
        self.waker.0.swap(false, Ordering::Relaxed)
    }

    fn poll_at(&mut self, now: u64) -> QueuePoll {
        self.request.poll(&Waker::from(Arc::clone(&self.waker)), ms(now))
    }

    fn pending_until(&mut self, now: u64) -> u64 {
        match self.poll_at(now) {
            QueuePoll::Pending { poll_at } => poll_at.0 / 1_000_000,
            _ => panic!("expected to wait at {now}"),
        }
    }

    fn poll_granted(&mut self, now: u64) -> SlotGuard {
        match self.poll_at(now) {
            QueuePoll::Granted(guard) => guard,
            _ => panic!("expected slots at {now}"),
        }
    }

    fn poll_rejected(&mut self, now: u64) -> ThrottleRejection {
        match self.poll_at(now) {
            QueuePoll::Rejected(rejection) => rejection,
            _ => panic!("expected a rejection at {now}"),
        }
    }
}

#[test]
fn freed_slot_wakes_the_next_waiter() {
    let fixture = ThrottleFixture::with_scopes(&[("api", with_concurrency(1))]);
    let first = fixture.expect_acquired(&["api"], 0);
    let mut second = fixture.expect_queued(&["api"], 2, HIGH_PRIORITY, 0);
    assert_eq!(second.pending_until(0), 2000, "no earlier poll is needed");
    drop(first);
    assert!(second.is_woken());
    let second = second.poll_granted(5);
    assert_eq!(fixture.state("api", 5).in_flight, 1);
    drop(second);
    assert_eq!(fixture.state("api", 5).in_flight, 0);
}

#[test]
fn cancelled_waiter_releases_its_position() {
    let fixture = ThrottleFixture::with_scopes(&[("api", with_concurrency(1))]);
    let first = fixture.expect_acquired(&["api"], 0);
    let mut second = fixture.expect_queued(&["api"], 2, HIGH_PRIORITY, 0);
    let mut third = fixture.expect_queued(&["api"], 3, HIGH_PRIORITY, 0);
    second.pending_until(0);
    third.pending_until(0);
    drop(first);
    assert!(second.is_woken());
    drop(second);
    assert!(third.is_woken(), "the granted slot was released unused");
    drop(third);
    assert_eq!((fixture.state("api", 0).queue_length, fixture.state("api", 0).in_flight), (0, 0));
}

#[test]
fn all_scopes_are_acquired_or_none() {
    let fixture = ThrottleFixture::with_scopes(&[("a", with_concurrency(1)), ("b", with_concurrency(1))]);
    let in_b = fixture.expect_acquired(&["b"], 0);
    let mut both = fixture.expect_queued(&["a", "b"], 2, HIGH_PRIORITY, 0);
    both.pending_until(0);
    assert_eq!(fixture.state("a", 0).in_flight, 0, "a waiter of b holds no slot");
    let in_a = fixture.expect_acquired(&["a"], 0);
    drop(in_b);
    assert!(!both.is_woken());
    drop(in_a);
    assert!(both.is_woken());
    let _both = both.poll_granted(0);
    assert_eq!((fixture.state("a", 0).in_flight, fixture.state("b", 0).in_flight), (1, 1));
}

#[test]
fn starts_are_spaced_and_one_waiter_holds_timer() {
    let spacing = spaced(100);
    let fixture = ThrottleFixture::with_scopes(&[("api", throttle::ThrottleConfig { spacing, ..permissive() })]);
    let _first = fixture.expect_acquired(&["api"], 0);
    let mut second = fixture.expect_queued(&["api"], 2, HIGH_PRIORITY, 0);
    let mut third = fixture.expect_queued(&["api"], 3, HIGH_PRIORITY, 0);
    assert_eq!((second.pending_until(0), third.pending_until(0)), (100, 2000));
    assert_eq!(second.pending_until(99), 100);
    let _second = second.poll_granted(100);
    assert!(third.is_woken(), "the third waiter owns the timer now");
    assert_eq!(third.pending_until(100), 200);
    let _third = third.poll_granted(200);
}

#[test]
fn slot_is_reused_only_after_its_delay() {
    let spacing = Spacing { per_slot: seconds(1), ..spaced(300) };
    let fixture = ThrottleFixture::with_scopes(&[("api", throttle::ThrottleConfig { spacing, ..with_concurrency(2) })]);
    drop(fixture.expect_acquired(&["api"], 0));
    let mut second = fixture.expect_queued(&["api"], 2, HIGH_PRIORITY, 100);
    assert_eq!(second.pending_until(100), 300);
    let second = second.poll_granted(300);
    let mut third = fixture.expect_queued(&["api"], 3, HIGH_PRIORITY, 600);
    assert_eq!(third.pending_until(600), 1000, "the delay has passed, the first slot cools down");
    drop(second);
    assert_eq!(third.pending_until(700), 1000);
    let _third = third.poll_granted(1000);
    let mut fourth = fixture.expect_queued(&["api"], 4, HIGH_PRIORITY, 1200);
    assert_eq!(fourth.pending_until(1200), 1300, "the second slot");
    let _fourth = fourth.poll_granted(1300);
    let mut fifth = fixture.expect_queued(&["api"], 5, HIGH_PRIORITY, 2300);
    assert_eq!(fifth.pending_until(2300), 4300, "both slots are held, however long ago their requests were sent");
}

#[test]
fn slot_held_beyond_its_delay_is_immediately_reusable() {
    let spacing = Spacing { per_slot: seconds(10), ..Spacing::default() };
    let fixture = ThrottleFixture::with_scopes(&[("api", throttle::ThrottleConfig { spacing, ..with_concurrency(2) })]);
    let old = fixture.expect_acquired(&["api"], 0);
    drop(fixture.expect_acquired(&["api"], 9000));
    let mut next = fixture.expect_queued(&["api"], 2, HIGH_PRIORITY, 9000);
    assert_eq!(next.pending_until(9000), 11_000, "not rejected because of the slot that is free at 19 s");
    let mut early = fixture.expect_queued(&["api"], 3, HIGH_PRIORITY, 9500);
    early.pending_until(9500);
    assert!(matches!(next.poll_at(10_500), QueuePoll::Pending { .. }));
    drop(old);
    assert!(next.is_woken());
    drop(next.poll_granted(10_500));
    assert_eq!(
        early.poll_rejected(11_500).retry_after,
        Duration::from_millis(7500),
        "the wait until the next slot is free"
    );
    let empty = ThrottleFixture::with_scopes(&[("api", throttle::ThrottleConfig { spacing, ..with_concurrency(1) })]);
    drop(empty.expect_acquired(&["api"], 0));
    assert_eq!(
        empty.expect_rejected(&["api"], HIGH_PRIORITY, 1000).reason,
        Reason::Throttle,
        "no slot is free before 10 s"
    );
}

#[test]
fn unservable_request_is_rejected_with_retry_after() {
    let spacing = spaced(5000);
    let fixture = ThrottleFixture::with_scopes(&[("api", throttle::ThrottleConfig { spacing, ..permissive() })]);
    let _first = fixture.expect_acquired(&["api"], 0);
    assert_eq!(fixture.expect_rejected(&["api"], HIGH_PRIORITY, 1000), rejection(Reason::Throttle, 4));

    let fixture = ThrottleFixture::with_scopes(&[("api", with_concurrency(1))]);
    let first = fixture.expect_acquired(&["api"], 0);
    let mut second = fixture.expect_queued(&["api"], 2, HIGH_PRIORITY, 0);
    let _ = first.record_response(&OriginOutcome { latency: seconds(3), ..origin_outcome(200) }, 0.0, ms(0));
    assert_eq!(second.pending_until(1999), 2000);
    assert_eq!(second.poll_rejected(2000), rejection(Reason::Throttle, 3), "the latency of one request");
    assert_eq!(fixture.state("api", 2000).queue_length, 0);
}

#[test]
fn request_that_would_exceed_max_wait_is_rejected() {
    let spacing = Spacing { delay: seconds(1), ..Spacing::default() };
    let queue = QueueConfig { max_wait: Duration::from_millis(2500), max_length: 256 };
    let fixture = ThrottleFixture::with_scopes(&[("api", throttle::ThrottleConfig { spacing, queue, ..permissive() })]);
    let _first = fixture.expect_acquired(&["api"], 0);
    let (_second, _third) =
        (fixture.expect_queued(&["api"], 2, LOW_PRIORITY, 0), fixture.expect_queued(&["api"], 2, LOW_PRIORITY, 0));
    assert!(
        matches!(fixture.acquire(&["api"], 2, LOW_PRIORITY, 0), AcquireOutcome::Rejected(ThrottleRejection { retry_after: wait, .. }) if wait == seconds(3))
    );
    let _other = fixture.expect_queued(&["api"], 3, LOW_PRIORITY, 0);
    assert!(
        matches!(fixture.acquire(&["api"], 4, LOW_PRIORITY, 0), AcquireOutcome::Rejected(_)),
        "behind one waiter of each of the two clients"
    );
    let _person = fixture.expect_queued(&["api"], 4, HIGH_PRIORITY, 0);
}

#[test]
fn full_queue_evicts_only_for_a_higher_priority() {
    let rules =
        throttle::ThrottleConfig { queue: QueueConfig { max_wait: seconds(2), max_length: 2 }, ..with_concurrency(1) };
    let fixture = ThrottleFixture::with_scopes(&[("api", rules)]);
    let _first = fixture.expect_acquired(&["api"], 0);
    let mut older = fixture.expect_queued(&["api"], 2, LOW_PRIORITY, 0);
    let mut younger = fixture.expect_queued(&["api"], 3, LOW_PRIORITY, 0);
    older.pending_until(0);
    younger.pending_until(0);
    assert_eq!(fixture.expect_rejected(&["api"], LOW_PRIORITY, 0).reason, Reason::Throttle);
    let mut person = fixture.expect_queued(&["api"], 4, HIGH_PRIORITY, 0);
    assert!(younger.is_woken() && !older.is_woken());
    assert_eq!(younger.poll_rejected(0).reason, Reason::Throttle);
    let _other_person = fixture.expect_queued(&["api"], 5, HIGH_PRIORITY, 0);
    assert_eq!(
        fixture.expect_rejected(&["api"], HIGH_PRIORITY, 0).reason,
        Reason::Throttle,
        "all waiters have the same priority"
    );
    assert_eq!(person.pending_until(0), 2000);
}

#[test]
fn nobody_is_evicted_for_a_request_that_is_rejected() {
    let rules = || throttle::ThrottleConfig {
        queue: QueueConfig { max_wait: seconds(2), max_length: 1 },
        ..with_concurrency(1)
    };
    let fixture = ThrottleFixture::with_scopes(&[("a", rules()), ("b", rules())]);
    let _first = fixture.expect_acquired(&["a", "b"], 0);
    let mut crawler = fixture.expect_queued(&["a"], 2, LOW_PRIORITY, 0);
    let mut person = fixture.expect_queued(&["b"], 3, HIGH_PRIORITY, 0);
    assert!(
        matches!(fixture.acquire(&["a", "b"], 4, HIGH_PRIORITY, 0), AcquireOutcome::Rejected(_)),
        "b is full of equals"
    );
    crawler.pending_until(0);
    person.pending_until(0);
    assert!(!crawler.is_woken());
}

#[test]
fn clients_of_equal_priority_are_served_round_robin() {
    let fixture = ThrottleFixture::with_scopes(&[("api", with_long_queue(with_concurrency(1)))]);
    let mut guard = fixture.expect_acquired(&["api"], 0);
    let mut waiters: Vec<(u64, TestClient)> =
        [7, 7, 7, 7, 8, 9].map(|client| (client, fixture.expect_queued(&["api"], client, LOW_PRIORITY, 0))).into();
    waiters.iter_mut().for_each(|(_, waiter)| assert!(waiter.pending_until(0) > 0));
    let mut order = Vec::new();
    while !waiters.is_empty() {
        drop(guard);
        let next = waiters.iter().position(|(_, waiter)| waiter.is_woken()).expect("a waiter is woken");
        let (client, mut waiter) = waiters.remove(next);
        order.push(client);
        guard = waiter.poll_granted(0);
    }
    assert_eq!(order, [7, 8, 9, 7, 7, 7]);
}

#[test]
fn overload_rejects_requests_until_a_probe_succeeds() {
    let fixture = ThrottleFixture::with_scopes(&[("api", with_long_queue(with_backoff())), ("other", permissive())]);
    let first = fixture.expect_acquired(&["api"], 0);
    let feedback =
        first.record_response(&OriginOutcome { retry_after: Some(seconds(5)), ..origin_outcome(429) }, 0.0, ms(0));
    assert_eq!(feedback.backoff, Some(rejection(Reason::Backoff, 5)));
    drop(first);
    let _elsewhere = fixture.expect_acquired(&["other"], 0);
    let mut probe = fixture.expect_queued(&["api"], 2, HIGH_PRIORITY, 1000);
    let mut next = fixture.expect_queued(&["api"], 3, HIGH_PRIORITY, 1000);
    assert_eq!(probe.pending_until(1000), 5000);
    next.pending_until(1000);
    let probe = probe.poll_granted(5000);
    next.pending_until(5001);
    assert!(probe.record_response(&origin_outcome(200), 0.0, ms(5100)).backoff.is_none());
    let _next = next.poll_granted(5100);
    let state = fixture.state("api", 5100);
    assert_eq!((state.backoff_level, state.backoff_remaining), (1, Duration::ZERO));

    let fixture = ThrottleFixture::with_scopes(&[("api", with_backoff())]);
    let first = fixture.expect_acquired(&["api"], 0);
    let mut second = match fixture.acquire(&["api"], 1, HIGH_PRIORITY, 0) {
        AcquireOutcome::Acquired(Some(guard)) => guard,
        _ => panic!("expected slots"),
    };
    let _ = first.record_response(&OriginOutcome { retry_after: Some(seconds(30)), ..origin_outcome(429) }, 0.0, ms(0));
    assert_eq!(fixture.expect_rejected(&["api"], HIGH_PRIORITY, 1000), rejection(Reason::Backoff, 29));
    drop(std::mem::replace(&mut second, first));
    assert_eq!(fixture.state("api", 1000).in_flight, 1);
}

#[test]
fn backoff_beyond_max_wait_rejects_queued_waiters() {
    let fixture = ThrottleFixture::with_scopes(&[(
        "api",
        throttle::ThrottleConfig { concurrency: NonZeroU32::new(1), ..with_backoff() },
    )]);
    let first = fixture.expect_acquired(&["api"], 0);
    let mut second = fixture.expect_queued(&["api"], 2, HIGH_PRIORITY, 0);
    second.pending_until(0);
    let _ = first.record_response(&OriginOutcome { retry_after: Some(seconds(30)), ..origin_outcome(429) }, 0.0, ms(0));
    assert!(second.is_woken(), "the backoff wakes the waiter");
    assert_eq!(second.poll_rejected(0), rejection(Reason::Backoff, 30));
}

#[test]
fn scope_state_survives_reload_by_name() {
    let fixture = ThrottleFixture::with_scopes(&[("api", with_backoff())]);
    let guard = fixture.expect_acquired(&["api"], 0);
    let _ = guard.record_response(&OriginOutcome { retry_after: Some(seconds(30)), ..origin_outcome(429) }, 0.0, ms(0));
    let scope = |name: &str| Scope { name: name.into(), throttle: Some(with_backoff()), partitioning: None };
    fixture.throttle.update_config(&[scope("new"), scope("api")]);
    let state = fixture.state("api", 0);
    assert_eq!((state.in_flight, state.backoff_remaining), (1, seconds(30)));
    fixture.throttle.update_config(&[scope("new")]);
    drop(guard);
    fixture.throttle.update_config(&[scope("api")]);
    assert_eq!(fixture.state("api", 0).in_flight, 0, "slots released meanwhile stay released");
}

#[test]
fn waiters_of_a_removed_scope_keep_its_limits() {
    let fixture = ThrottleFixture::with_scopes(&[("api", with_long_queue(with_concurrency(1)))]);
    let guard = fixture.expect_acquired(&["api"], 0);
    let mut waiters: Vec<TestClient> =
        (1..4).map(|client| fixture.expect_queued(&["api"], client, HIGH_PRIORITY, 0)).collect();
    for waiter in &mut waiters {
        waiter.pending_until(0);
    }
    fixture.throttle.update_config(&[Scope {
        name: "renamed".into(),
        throttle: Some(with_concurrency(1)),
        partitioning: None,
    }]);
    assert!(
        waiters.iter_mut().all(|waiter| matches!(waiter.poll_at(0), QueuePoll::Pending { .. })),
        "no waiter starts"
    );
    drop(guard);
    let granted: Vec<QueuePoll> = waiters
        .iter_mut()
        .map(|waiter| waiter.poll_at(0))
        .filter(|poll| matches!(poll, QueuePoll::Granted(_)))
        .collect();
    assert_eq!(granted.len(), 1);
}

#[test]
fn reload_shortens_backoff_and_delay_to_new_bounds() {
    let hour = Duration::from_secs(3600);
    let long = throttle::ThrottleConfig {
        spacing: Spacing { delay: hour, per_slot: hour, ..Spacing::default() },
        backoff: Some(Backoff {
            min_delay: hour,
            max_delay: hour,
            ..with_backoff().backoff.expect("the configuration has a backoff")
        }),
        ..with_concurrency(1)
    };
    let fixture = ThrottleFixture::with_scopes(&[("api", long)]);
    let guard = fixture.expect_acquired(&["api"], 0);
    let _ = guard.record_response(&origin_outcome(429), 0.0, ms(0));
    drop(guard);
    let short = throttle::ThrottleConfig {
        spacing: Spacing { delay: seconds(1), per_slot: seconds(2), ..Spacing::default() },
        backoff: Some(Backoff {
            max_delay: seconds(3),
            ..with_backoff().backoff.expect("the configuration has a backoff")
        }),
        ..with_concurrency(1)
    };
    fixture.throttle.update_config(&[Scope { name: "api".into(), throttle: Some(short), partitioning: None }]);
    assert_eq!(fixture.state("api", 0).backoff_remaining, seconds(3));
    let _guard = fixture.expect_acquired(&["api"], 3000);
}

#[test]
fn effective_limit_comes_from_the_controller() {
    let gradient = Gradient { min: 2, max: 64 };
    let rules = throttle::ThrottleConfig { controller: Some(Controller::Gradient(gradient)), ..with_concurrency(64) };
    let fixture = ThrottleFixture::with_scopes(&[("api", with_long_queue(rules.clone()))]);
    assert_eq!(fixture.state("api", 0).limit, Some(8), "the initial limit is small");
    for now in 0..60 {
        let guards: Vec<SlotGuard> = (0..8).map(|_| fixture.expect_acquired(&["api"], now * 10)).collect();
        guards.iter().for_each(|guard| drop(guard.record_response(&origin_outcome(200), 0.0, ms(now * 10 + 10))));
    }
    let limit = fixture.state("api", 600).limit.expect("the scope has a limit");
    assert!((12..=16).contains(&limit), "grows while half of it is used: {limit}");
    fixture.throttle.update_config(&[Scope { name: "api".into(), throttle: Some(rules), partitioning: None }]);
    assert_eq!(fixture.state("api", 600).limit, Some(limit), "a reload keeps the limit");
    fixture.throttle.update_config(&[Scope {
        name: "api".into(),
        throttle: Some(with_concurrency(5)),
        partitioning: None,
    }]);
    assert_eq!(fixture.state("api", 600).limit, Some(5));
}

#[test]
fn adjustments_are_reported_only_when_logging_is_on() {
    let auto = |debug| Autothrottle {
        target_concurrency: 1.0,
        start_delay: seconds(1),
        max_delay: seconds(5),
        success_statuses: vec![200],
        log_adjustments: debug,
    };
    let scope =
        |debug| throttle::ThrottleConfig { controller: Some(Controller::Autothrottle(auto(debug))), ..permissive() };
    let fixture = ThrottleFixture::with_scopes(&[("watched", scope(true)), ("other", scope(false))]);
    let feedback = fixture.expect_acquired(&["watched", "other"], 0).record_response(&origin_outcome(200), 0.0, ms(10));
    let [(name, adjustment)] = &feedback.delay_adjustments[..] else { panic!("{feedback:?}") };
    let from_to = (adjustment.old_delay, adjustment.new_delay);
    assert_eq!((&**name, from_to), ("watched", (seconds(1), Duration::from_millis(505))));
    assert_eq!(fixture.state("other", 10).delay, Duration::from_millis(505));
}

/// 64 clients that send again as soon as they are served, at a latency of 100 ms, for 30 s.
#[test]
fn priority_scheduling_is_fair_and_free_of_starvation() {
    const SERVICE_MS: u64 = 100;
    const END_MS: u64 = 30_000;
    let class = |client: u64| {
        [(3u8, 16), (2, 40), (1, 64)].iter().find(|(_, below)| client < *below).expect("each client has a class").0
    };
    let fixture = ThrottleFixture::with_scopes(&[("api", with_long_queue(with_concurrency(4)))]);
    let mut waiters: Vec<(u64, u64, TestClient)> = Vec::new();
    let mut in_flight: Vec<(u64, u64, SlotGuard)> = Vec::new();
    let mut served = [0u64; 64];
    let mut longest = [0u64; 4];
    let mut to_send: Vec<u64> = (0..64).collect();
    for now in (0..END_MS).step_by(10) {
        for client in std::mem::take(&mut to_send) {
            match fixture.acquire(&["api"], client, class(client), now) {
                AcquireOutcome::Acquired(Some(guard)) => in_flight.push((now + SERVICE_MS, client, guard)),
                AcquireOutcome::Queued(request) => waiters.push((now, client, TestClient::new(request))),
                _ => panic!("the queue has room for all clients"),
            }
        }
        let mut queued = Vec::new();
        for (since, client, mut waiter) in waiters {
            match waiter.poll_at(now) {
                QueuePoll::Granted(guard) => {
                    let longest = &mut longest[usize::from(class(client))];
                    *longest = (*longest).max(now - since);
                    in_flight.push((now + SERVICE_MS, client, guard));
                }
                QueuePoll::Pending { .. } => queued.push((since, client, waiter)),
                QueuePoll::Rejected(rejection) => panic!("{rejection:?}"),
            }
        }
        waiters = queued;
        assert!(in_flight.len() <= 4, "{} at {now}", in_flight.len());
        in_flight.retain(|(until, client, _)| {
            let stays = *until > now;
            if !stays {
                served[*client as usize] += 1;
                to_send.push(*client);
            }
            stays
        });
    }
    let of_class =
        |priority: u8| (0..64).filter(move |&client| class(client) == priority).map(|client| served[client as usize]);
    let shares: Vec<u64> = [3, 2, 1].map(|priority| of_class(priority).sum()).into();
    let total: u64 = shares.iter().sum();
    assert!(total > 1050, "the origin is kept busy: {total}");
    assert!(shares[0] * 8 >= total * 6 && shares[0] > shares[1] + shares[2], "the first class goes first: {shares:?}");
    assert!((shares[1] + shares[2]) * 10 >= total, "one grant in eight goes to the oldest waiter: {shares:?}");
    assert!(served.iter().all(|&count| count > 0), "no client starves: {served:?}");
    for priority in [1, 2, 3] {
        let (min, max) = (
            of_class(priority).min().expect("the class has clients"),
            of_class(priority).max().expect("the class has clients"),
        );
        assert!(max - min <= 2, "clients of class {priority} are served equally: {min} to {max}");
    }
    // 63 waiters ahead, an eighth of 40 grants per second.
    assert!(longest.iter().all(|&wait| wait <= 8 * 64 * SERVICE_MS / 4), "{longest:?}");
}

fn rejection(reason: Reason, wait: u64) -> ThrottleRejection {
    ThrottleRejection { scope: "api".into(), reason, retry_after: seconds(wait) }
}
