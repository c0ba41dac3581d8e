//! `Retry-After` is kept: a rejected client that returns at that time is served or queued.

use super::*;

/// A scope whose responses all have the same latency.
struct ScopeSimulation {
    fixture: ThrottleFixture,
    latency_ms: u64,
    now: u64,
    waiters: Vec<TestClient>,
    /// End time and status of each request in flight.
    in_flight: Vec<(u64, u16, SlotGuard)>,
}

impl ScopeSimulation {
    fn with_config(rules: throttle::ThrottleConfig, latency_ms: u64) -> Self {
        let simulation = Self {
            fixture: ThrottleFixture::with_scopes(&[("api", rules)]),
            latency_ms,
            now: 1_000_000,
            waiters: Vec::new(),
            in_flight: Vec::new(),
        };
        // A first response sets the latency.
        let first = simulation.fixture.expect_acquired(&["api"], 0);
        let _ = first.record_response(&simulation.outcome_after_latency(200), 0.0, ms(0));
        simulation
    }

    fn outcome_after_latency(&self, status: u16) -> OriginOutcome {
        OriginOutcome { latency: Duration::from_millis(self.latency_ms), ..origin_outcome(status) }
    }

    /// Sends a request whose response has `status`. Returns the rejection, if any.
    fn send(&mut self, client: u64, priority: u8, status: u16) -> Option<ThrottleRejection> {
        match self.fixture.acquire(&["api"], client, priority, self.now) {
            AcquireOutcome::Acquired(guard) => {
                self.in_flight.extend(guard.map(|guard| (self.now + self.latency_ms, status, guard)));
            }
            AcquireOutcome::Queued(request) => self.waiters.push(TestClient::new(request)),
            AcquireOutcome::Rejected(rejection) => return Some(rejection),
        }
        None
    }

    fn run_until(&mut self, end: u64) {
        while self.now < end {
            self.now += 1;
            for (end_ms, status, guard) in std::mem::take(&mut self.in_flight) {
                match end_ms <= self.now {
                    true => drop(guard.record_response(&self.outcome_after_latency(status), 0.0, ms(self.now))),
                    false => self.in_flight.push((end_ms, status, guard)),
                }
            }
            for mut waiter in std::mem::take(&mut self.waiters) {
                match waiter.poll_at(self.now) {
                    QueuePoll::Granted(guard) => self.in_flight.push((self.now + self.latency_ms, 200, guard)),
                    QueuePoll::Pending { .. } => self.waiters.push(waiter),
                    QueuePoll::Rejected(_) => {}
                }
            }
        }
    }
}

proptest! {
    // Each case simulates a second or two of a scope in steps of 1 ms.
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn client_retrying_after_the_wait_is_not_rejected(
        concurrency in proptest::option::of(1u32..4),
        delay_ms in prop_oneof![Just(0u64), 1u64..300],
        max_wait_ms in prop_oneof![Just(0u64), 1u64..2000],
        max_length in 1u32..5,
        latency_ms in 1u64..800,
        requests in proptest::collection::vec((0u64..200, 0u64..6, 0u8..3, prop_oneof![8 => Just(200u16), 1 => Just(429)]), 0..24),
    ) {
        let rules = throttle::ThrottleConfig {
            concurrency: concurrency.and_then(NonZeroU32::new),
            spacing: Spacing { delay: Duration::from_millis(delay_ms), ..Spacing::default() },
            queue: QueueConfig { max_wait: Duration::from_millis(max_wait_ms), max_length },
            ..with_backoff()
        };
        let mut simulation = ScopeSimulation::with_config(rules, latency_ms);
        for (gap, client, priority, status) in requests {
            simulation.run_until(simulation.now + gap);
            let _ = simulation.send(client, priority, status);
        }
        // This request is the last one for a while. Not every scope is full by then.
        let rejection = (0..8).find_map(|_| simulation.send(9, LOW_PRIORITY, 200));
        if let Some(rejection) = rejection {
            let wait_ms = rejection.retry_after.as_millis() as u64 + 1;
            simulation.in_flight.iter_mut().for_each(|(_, status, _)| *status = 200);
            simulation.run_until(simulation.now + wait_ms);
            let retried = simulation.send(9, LOW_PRIORITY, 200);
            prop_assert!(retried.is_none(), "rejected with {rejection:?}, then with {retried:?}");
        }
    }
}
