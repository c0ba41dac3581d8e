//! Partitions, and invariants of all scopes together.

use super::*;

fn partitioned_by_tenant(rules: throttle::ThrottleConfig, max_partitions: usize) -> ThrottleFixture {
    ThrottleFixture::with_scopes(&[("all", permissive()), ("tenant", rules)]).partitioned("tenant", max_partitions)
}

#[test]
fn each_partition_is_throttled_separately() {
    let fixture = partitioned_by_tenant(with_concurrency(1), 10);
    let _acme = fixture.expect_acquired(&["tenant=acme"], 0);
    let _other = fixture.expect_acquired(&["tenant=other"], 0);
    let mut second = fixture.expect_queued(&["tenant=acme"], 2, HIGH_PRIORITY, 0);
    second.pending_until(0);
    let state = fixture.state("tenant", 0);
    assert_eq!((state.in_flight, state.queue_length, state.limit, state.partitions), (2, 1, Some(1), Some(2)));
    let values: Vec<_> = fixture
        .partitions("tenant", 0)
        .into_iter()
        .map(|partition| (partition.name.to_string(), partition.queue_length))
        .collect();
    assert_eq!(values, [("acme".to_owned(), 1), ("other".to_owned(), 0)]);
}

#[test]
fn requests_without_value_share_one_partition() {
    let fixture = partitioned_by_tenant(with_concurrency(1), 10);
    let _first = fixture.expect_acquired(&["tenant"], 0);
    for without_value in ["tenant", "tenant=", "tenant=a&tenant=b"] {
        fixture.expect_queued(&[without_value], 2, HIGH_PRIORITY, 0).pending_until(0);
    }
    assert_eq!(fixture.partitions("tenant", 0).len(), 1);
}

#[test]
fn idle_partition_without_state_is_evicted() {
    let fixture = partitioned_by_tenant(with_concurrency(1), 10);
    drop(fixture.expect_acquired(&["tenant=acme"], 0));
    assert_eq!(fixture.state("tenant", 0).partitions, Some(0));

    let spaced = Spacing { delay: seconds(5), ..Spacing::default() };
    let fixture = partitioned_by_tenant(throttle::ThrottleConfig { spacing: spaced, ..permissive() }, 10);
    drop(fixture.expect_acquired(&["tenant=acme"], 0));
    assert_eq!(fixture.state("tenant", 4999).partitions, Some(1), "the spacing still blocks the next request");
    assert_eq!(fixture.state("tenant", 5000).partitions, Some(0));

    let fixture = partitioned_by_tenant(with_backoff(), 10);
    let guard = fixture.expect_acquired(&["tenant=acme"], 0);
    let _ = guard.record_response(&origin_outcome(429), 0.0, ms(0));
    drop(guard);
    assert_eq!(fixture.state("tenant", 1000).backoff_level, 1, "the backoff is over, its level remains");
    assert_eq!(fixture.state("tenant", 599_999).partitions, Some(1));
    assert_eq!(fixture.state("tenant", 600_000).partitions, Some(0));
}

#[test]
fn partition_flood_is_bounded_and_throttled_as_one() {
    let fixture = partitioned_by_tenant(with_long_queue(with_concurrency(2)), 10);
    let mut guards: Vec<SlotGuard> =
        (0..10).map(|value| fixture.expect_acquired(&[&format!("tenant={value}")], 0)).collect();
    guards.extend((10..12).map(|value| fixture.expect_acquired(&[&format!("tenant={value}")], 0)));
    let mut waiters: Vec<TestClient> =
        (12..100).map(|value| fixture.expect_queued(&[&format!("tenant={value}")], value, HIGH_PRIORITY, 0)).collect();
    waiters.iter_mut().for_each(|waiter| assert!(waiter.pending_until(0) > 0));
    let state = fixture.state("tenant", 0);
    assert_eq!((state.partitions, state.in_flight, state.queue_length), (Some(10), 12, 88));
    let others = &fixture.partitions("tenant", 0)[0];
    assert_eq!((&*others.name, others.in_flight), ("(others)", 2));
    let _known = fixture.expect_acquired(&["tenant=3"], 0);

    drop(guards.swap_remove(0));
    let _new = fixture.expect_acquired(&["tenant=new"], 0);
    assert!(
        fixture.partitions("tenant", 0).iter().any(|partition| &*partition.name == "new"),
        "an idle partition is evicted"
    );
}

#[test]
fn partition_count_stays_bounded_over_many_values() {
    let fixture = partitioned_by_tenant(with_backoff(), 100);
    for value in 0..100_000u64 {
        let guard = match fixture.acquire(&[&format!("tenant={value}")], value, HIGH_PRIORITY, value) {
            AcquireOutcome::Acquired(Some(guard)) => guard,
            AcquireOutcome::Queued(_) | AcquireOutcome::Rejected(_) => continue,
            AcquireOutcome::Acquired(None) => panic!("the scope is throttled"),
        };
        if value % 7 == 0 {
            // A backoff level prevents the eviction.
            let _ = guard.record_response(&origin_outcome(429), 0.0, ms(value));
        }
    }
    assert_eq!(fixture.partitions("tenant", 100_000).len(), 101);
}

#[test]
fn reload_can_partition_and_unpartition_a_scope() {
    let mut fixture = ThrottleFixture::with_scopes(&[("tenant", with_concurrency(1))]);
    let before = fixture.expect_acquired(&["tenant"], 0);
    fixture = fixture.partitioned("tenant", 10);
    let acme = fixture.expect_acquired(&["tenant=acme"], 0);
    assert_eq!(fixture.state("tenant", 0).partitions, Some(1));
    fixture.scopes[0].partitioning = None;
    fixture.throttle.update_config(&fixture.scopes);
    assert_eq!(fixture.state("tenant", 0).in_flight, 1, "the earlier instance is used again");
    fixture.expect_queued(&["tenant=acme"], 2, HIGH_PRIORITY, 0).pending_until(0);
    drop((before, acme));
    fixture = fixture.partitioned("tenant", 10);
    assert_eq!(fixture.state("tenant", 0).partitions, Some(0), "slots released meanwhile stay released");
}

#[test]
fn waiter_for_two_scopes_reserves_only_one_slot() {
    let fixture = ThrottleFixture::with_scopes(&[
        ("all", with_long_queue(with_concurrency(8))),
        ("reports", with_long_queue(with_concurrency(1))),
    ]);
    let report = fixture.expect_acquired(&["all", "reports"], 0);
    let mut waiter = fixture.expect_queued(&["all", "reports"], 1, LOW_PRIORITY, 0);
    waiter.pending_until(0);
    let pages: Vec<SlotGuard> = (0..5).map(|_| fixture.expect_acquired(&["all"], 0)).collect();
    // After seven grants, the next one is reserved for the oldest waiter until it can start.
    for _ in 0..20 {
        let page = fixture.expect_acquired(&["all"], 0);
        fixture.expect_queued(&["all"], 2, HIGH_PRIORITY, 0).pending_until(0);
        drop(page);
    }
    drop(pages);
    drop(report);
    assert!(waiter.is_woken(), "the slot stayed reserved");
}

#[test]
fn slot_reservation_ends_when_oldest_waiter_backs_off() {
    let fixture = ThrottleFixture::with_scopes(&[
        ("a", with_long_queue(with_concurrency(1))),
        ("b", with_long_queue(throttle::ThrottleConfig { concurrency: NonZeroU32::new(1), ..with_backoff() })),
    ]);
    // After seven grants, the next grant of `a` is oldest-first.
    (0..7).for_each(|_| drop(fixture.expect_acquired(&["a"], 0)));
    let in_b = fixture.expect_acquired(&["b"], 0);
    let mut both = fixture.expect_queued(&["a", "b"], 2, HIGH_PRIORITY, 0);
    both.pending_until(0);
    let mut only_a = fixture.expect_queued(&["a"], 3, HIGH_PRIORITY, 0);
    only_a.pending_until(0);
    assert!(!only_a.is_woken(), "the slot of `a` is reserved");
    let _ = in_b.record_response(&origin_outcome(429), 0.0, ms(0));
    assert!(only_a.is_woken(), "`b` backs off, so the slot of `a` is not reserved");
    let _only_a = only_a.poll_granted(0);
}

#[test]
fn cooling_slot_behind_reserved_slot_opens_by_time() {
    let spacing = Spacing { per_slot: Duration::from_millis(400), ..Spacing::default() };
    let fixture = ThrottleFixture::with_scopes(&[
        ("a", with_long_queue(with_concurrency(1))),
        ("b", with_long_queue(throttle::ThrottleConfig { spacing, ..with_concurrency(2) })),
    ]);
    // After seven grants, the next grant of `b` is oldest-first. The slot of the seventh cools down until 2800.
    (0..7).for_each(|number| drop(fixture.expect_acquired(&["b"], 400 * number)));
    let _in_a = fixture.expect_acquired(&["a"], 2400);
    let mut both = fixture.expect_queued(&["a", "b"], 2, HIGH_PRIORITY, 2400);
    let mut only_b = fixture.expect_queued(&["b"], 3, HIGH_PRIORITY, 2400);
    let timers = [both.pending_until(2400), only_b.pending_until(2400)];
    assert!(timers.contains(&2800), "a waiter polls when the second slot of `b` is free: {timers:?}");
    both.pending_until(2800);
    assert!(only_b.is_woken(), "the first slot stays reserved, the second is granted");
    let _only_b = only_b.poll_granted(2800);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Acquire {
        scope_set: usize,
        value: u64,
        client: u64,
        priority: u8,
    },
    Poll(usize),
    Cancel(usize),
    Respond(usize, u16),
    Release(usize),
    Advance(u64),
    Reload(usize),
    /// Polls every waiter that was woken or whose poll time has passed.
    PollDue,
}

fn step() -> impl Strategy<Value = Step> {
    let acquire = (0usize..SCOPE_SETS.len(), 0u64..7, 0u64..5, 0u8..3);
    prop_oneof![
        6 => acquire.prop_map(|(scope_set, value, client, priority)| Step::Acquire { scope_set, value, client, priority }),
        4 => (0usize..20).prop_map(Step::Poll),
        1 => (0usize..20).prop_map(Step::Cancel),
        2 => (0usize..20, prop_oneof![Just(200u16), Just(429), Just(500)]).prop_map(|(index, status)| Step::Respond(index, status)),
        4 => (0usize..20).prop_map(Step::Release),
        2 => (0u64..700).prop_map(Step::Advance),
        1 => (0usize..3).prop_map(Step::Reload),
        3 => Just(Step::PollDue),
    ]
}

const SCOPE_SETS: [&[&str]; 7] = [&["a"], &["b"], &["a", "b"], &["t"], &["a", "t"], &["a", "b", "t"], &["t", "u"]];
const MAX_PARTITIONS: usize = 3;
const MAX_QUEUE_LENGTH: u32 = 6;

/// A waiter with the time of its next poll.
struct PolledClient {
    client: TestClient,
    next_poll_at: Timestamp,
}

/// State of the property test: a throttle, its waiters and the slots held.
struct SchedulerModel {
    fixture: ThrottleFixture,
    waiters: Vec<PolledClient>,
    in_flight: Vec<SlotGuard>,
    now: u64,
}

impl SchedulerModel {
    fn new() -> Self {
        let spaced =
            Spacing { delay: Duration::from_millis(50), per_slot: Duration::from_millis(400), ..Spacing::default() };
        let backoff =
            limited(2).backoff.map(|backoff| Backoff { min_clients: NonZeroU32::new(3).expect("3"), ..backoff });
        let b = throttle::ThrottleConfig { spacing: spaced, backoff, ..limited(2) };
        let fixture = ThrottleFixture::with_scopes(&[
            ("a", limited_per_client(3)),
            ("b", b.clone()),
            ("t", limited(2)),
            ("u", b),
        ]);
        let fixture = fixture.partitioned("t", MAX_PARTITIONS).partitioned("u", MAX_PARTITIONS);
        Self { fixture, waiters: Vec::new(), in_flight: Vec::new(), now: 0 }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Acquire { scope_set, value, client, priority } => {
                let names: Vec<String> = SCOPE_SETS[scope_set].iter().map(|name| format!("{name}={value}")).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                match self.fixture.acquire(&names, client, priority, self.now) {
                    AcquireOutcome::Acquired(guard) => self.in_flight.extend(guard),
                    AcquireOutcome::Queued(request) => {
                        self.waiters.push(PolledClient {
                            client: TestClient::new(request),
                            next_poll_at: Timestamp::default(),
                        });
                    }
                    AcquireOutcome::Rejected(_) => {}
                }
            }
            Step::Poll(index) if index < self.waiters.len() => self.poll_waiter(index),
            Step::Cancel(index) if index < self.waiters.len() => drop(self.waiters.remove(index)),
            Step::Respond(index, status) if index < self.in_flight.len() => {
                let _ = self.in_flight[index].record_response(&origin_outcome(status), 0.5, ms(self.now));
            }
            Step::Release(index) if index < self.in_flight.len() => drop(self.in_flight.remove(index)),
            Step::Advance(span) => self.now += span,
            Step::Reload(variant) => self.reload(variant),
            Step::PollDue => self.poll_due_waiters(),
            _ => {}
        }
    }

    fn poll_waiter(&mut self, index: usize) {
        match self.waiters[index].client.poll_at(self.now) {
            QueuePoll::Granted(guard) => {
                self.in_flight.push(guard);
                self.waiters.remove(index);
            }
            QueuePoll::Rejected(_) => drop(self.waiters.remove(index)),
            QueuePoll::Pending { poll_at } => {
                assert!(poll_at > ms(self.now));
                self.waiters[index].next_poll_at = poll_at;
            }
        }
    }

    fn reload(&mut self, variant: usize) {
        let scopes = &mut self.fixture.scopes;
        scopes[0].throttle = Some(limited_per_client([3, 1, 5][variant]));
        scopes[3].throttle = Some(limited(2)).filter(|_| variant != 1);
        let partitioning = Partitioning {
            key: PartitionKey::Query("t".into()),
            max_partitions: NonZeroUsize::new(MAX_PARTITIONS).expect("the maximum is positive"),
        };
        scopes[2].partitioning = Some(partitioning).filter(|_| variant != 2);
        self.fixture.throttle.update_config(&self.fixture.scopes);
    }

    fn poll_due_waiters(&mut self) {
        let is_due = |now: u64| move |waiter: &PolledClient| waiter.client.is_woken() || waiter.next_poll_at <= ms(now);
        while let Some(index) = self.waiters.iter().position(is_due(self.now)) {
            self.poll_waiter(index);
        }
        assert!(
            !self.fixture.throttle.scheduler.lock().has_runnable_waiter(ms(self.now)),
            "a waiter that could start was not woken"
        );
    }
}

fn limited(concurrency: u32) -> throttle::ThrottleConfig {
    let queue = QueueConfig { max_wait: seconds(2), max_length: MAX_QUEUE_LENGTH };
    throttle::ThrottleConfig { concurrency: NonZeroU32::new(concurrency), queue, ..with_backoff() }
}

/// Like [`limited`]; one client occupies two slots at most.
fn limited_per_client(concurrency: u32) -> throttle::ThrottleConfig {
    throttle::ThrottleConfig {
        client_slots: ClientSlots::Count(NonZeroU32::new(2).expect("2")),
        ..limited(concurrency)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    #[test]
    fn limits_hold_and_all_state_is_released(steps in proptest::collection::vec(step(), 1..300)) {
        let mut model = SchedulerModel::new();
        let mut before: Vec<ScopeState> = Vec::new();
        for step in steps {
            let is_reload = matches!(step, Step::Reload(_));
            model.apply(step);
            let mut states: Vec<ScopeState> = ["a", "b"].map(|name| model.fixture.state(name, model.now)).into();
            for name in ["t", "u"] {
                let values = model.fixture.partitions(name, model.now);
                prop_assert!(values.len() <= MAX_PARTITIONS + 1, "{values:?}");
                states.extend(values.into_iter().map(|state| ScopeState { name: format!("{name} {}", state.name).into(), ..state }));
            }
            for state in &states {
                // A reload may lower the limit below the requests in flight; from then on these only decrease.
                let old = before.iter().find(|old| old.name == state.name).map_or(0, |old| old.in_flight);
                let limit = state.limit.unwrap_or(u32::MAX);
                prop_assert!(is_reload || state.in_flight <= limit.max(old), "{state:?}");
                prop_assert!(state.queue_length <= MAX_QUEUE_LENGTH, "{state:?}");
            }
            before = states;
        }
        // Each remaining waiter is served or rejected within its maximum wait if it polls when required.
        drop(std::mem::take(&mut model.in_flight));
        for _ in 0..2000 {
            model.now += 10;
            model.poll_due_waiters();
            model.in_flight.clear();
        }
        prop_assert!(model.waiters.is_empty());
        for name in ["a", "b"] {
            let state = model.fixture.state(name, model.now);
            prop_assert_eq!((state.in_flight, state.queue_length), (0, 0));
        }
        prop_assert!(model.fixture.throttle.scheduler.lock().is_empty(), "queues are removed");
        model.now += 600_000;
        prop_assert_eq!(model.fixture.state("t", model.now).partitions.unwrap_or(0), 0, "partitions are evicted");
        prop_assert_eq!(model.fixture.throttle.scheduler.lock().subject_count, 0, "parts are removed");
    }
}
