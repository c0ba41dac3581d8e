//! `Retry-After` is kept: a rejected client that returns at that time is served or queued.

use super::*;

/// A scope whose responses all have the same latency.
struct ScopeSimulation {
    gate: ThrottleFixture,
    latency_ms: u64,
    now: u64,
    guests: Vec<TestClient>,
    /// End time and status of each request in flight.
    inside: Vec<(u64, u16, SlotGuard)>,
}

impl ScopeSimulation {
    fn with_config(rules: throttle::ThrottleConfig, latency_ms: u64) -> Self {
        let scope = Self {
            gate: ThrottleFixture::with_scopes(&[("api", rules)]),
            latency_ms,
            now: 1_000_000,
            guests: Vec::new(),
            inside: Vec::new(),
        };
        // A first response sets the latency.
        let first = scope.gate.expect_acquired(&["api"], 0);
        let _ = first.record_response(&scope.outcome_after_latency(200), 0.0, ms(0));
        scope
    }

    fn outcome_after_latency(&self, status: u16) -> OriginOutcome {
        OriginOutcome { latency: Duration::from_millis(self.latency_ms), ..origin_outcome(status) }
    }

    /// Sends a request whose response has `status`. Returns the rejection, if any.
    fn send(&mut self, client: u64, priority: u8, status: u16) -> Option<ThrottleRejection> {
        match self.gate.acquire(&["api"], client, priority, self.now) {
            AcquireOutcome::Acquired(pass) => {
                self.inside.extend(pass.map(|pass| (self.now + self.latency_ms, status, pass)));
            }
            AcquireOutcome::Queued(waiting) => self.guests.push(TestClient::new(waiting)),
            AcquireOutcome::Rejected(closed) => return Some(closed),
        }
        None
    }

    fn run_until(&mut self, end: u64) {
        while self.now < end {
            self.now += 1;
            for (over, status, pass) in std::mem::take(&mut self.inside) {
                match over <= self.now {
                    true => drop(pass.record_response(&self.outcome_after_latency(status), 0.0, ms(self.now))),
                    false => self.inside.push((over, status, pass)),
                }
            }
            for mut guest in std::mem::take(&mut self.guests) {
                match guest.poll_at(self.now) {
                    QueuePoll::Granted(pass) => self.inside.push((self.now + self.latency_ms, 200, pass)),
                    QueuePoll::Pending { .. } => self.guests.push(guest),
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
        comers in proptest::collection::vec((0u64..200, 0u64..6, 0u8..3, prop_oneof![8 => Just(200u16), 1 => Just(429)]), 0..24),
    ) {
        let rules = throttle::ThrottleConfig {
            concurrency: concurrency.and_then(NonZeroU32::new),
            spacing: Spacing { delay: Duration::from_millis(delay_ms), ..Spacing::default() },
            queue: QueueConfig { max_wait: Duration::from_millis(max_wait_ms), max_length },
            ..with_backoff()
        };
        let mut scope = ScopeSimulation::with_config(rules, latency_ms);
        for (gap, client, priority, status) in comers {
            scope.run_until(scope.now + gap);
            let _ = scope.send(client, priority, status);
        }
        // This request is the last one for a while. Not every scope is full by then.
        let turned_away = (0..8).find_map(|_| scope.send(9, BOT, 200));
        if let Some(closed) = turned_away {
            let wait_ms = closed.retry_after.as_millis() as u64 + 1;
            scope.inside.iter_mut().for_each(|(_, status, _)| *status = 200);
            scope.run_until(scope.now + wait_ms);
            let again = scope.send(9, BOT, 200);
            prop_assert!(again.is_none(), "rejected with {closed:?}, then with {again:?}");
        }
    }
}
