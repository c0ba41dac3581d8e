//! Simulated origin in virtual time: servers with one queue, and clients that send requests as fast as they are
//! permitted.

use super::backoff::{BackoffBlock, BackoffEpoch, BackoffState};
use super::controller::{ControllerState, EffectiveLimits};
use super::spacing::Spacing;
use super::{ClientSlots, OriginOutcome, QueueConfig, ThrottleConfig};
use crate::Timestamp;
use crate::rng::Rng;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// Phase of a simulation: from a start time on, this origin and these clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    pub(super) from_s: u64,
    pub(super) origin: SimulatedOrigin,
    /// Number of clients; each sends its next request when the previous one is answered.
    pub(super) clients: u32,
}

/// Simulated origin.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimulatedOrigin {
    /// Number of requests served concurrently.
    pub(super) servers: u32,
    /// Service time of a request.
    pub(super) service_time: ServiceTime,
    /// Requests accepted per second, with bursts of one second; others are answered with 429.
    pub(super) rate_limit: Option<u32>,
    /// Time in the queue after which a request times out.
    pub(super) queue_timeout: Duration,
}

/// Distribution of service times, without queueing.
#[derive(Clone, Copy, Debug)]
pub(super) enum ServiceTime {
    /// Constant, in seconds.
    Constant(f64),
    /// Uniform between 0.5 and 1.5 times the mean, in seconds.
    Uniform(f64),
    /// Nine of ten requests fast, one slow, in seconds.
    Bimodal(f64, f64),
}

/// Statistics of one second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SecondStats {
    /// Number of responses.
    pub(super) response_count: u32,
    /// Number of overload responses and timeouts.
    pub(super) overload_count: u32,
    /// Number of responses that the origin had capacity for.
    pub(super) capacity: f64,
    /// Total queueing time of the responses at the origin, in seconds.
    pub(super) queueing_time: f64,
    /// Effective limits at the end of the second.
    pub(super) limits: EffectiveLimits,
    /// Length of the origin's queue at the end of the second.
    pub(super) queue_length: u32,
}

/// Statistics of several seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Summary {
    /// Number of responses as a ratio of the capacity.
    pub(super) capacity_ratio: f64,
    /// Mean queueing time at the origin, in seconds.
    pub(super) mean_wait: f64,
    /// Mean length of the origin's queue.
    pub(super) queue_length: f64,
}

pub(super) struct Simulation {
    throttle: ThrottleConfig,
    phases: Vec<Phase>,
    now: Timestamp,
    rng: Rng,
    controller_state: ControllerState,
    backoff_state: BackoffState,
    next_start: Timestamp,
    /// Time of the next scheduled check.
    next_check_at: Timestamp,
    in_flight: u32,
    busy_servers: u32,
    queue: VecDeque<SimulatedRequest>,
    events: BinaryHeap<Reverse<(Timestamp, u64, SimulationEvent)>>,
    event_sequence: u64,
    seconds: Vec<SecondStats>,
    tokens: (f64, Timestamp),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SimulatedRequest {
    sent_at: Timestamp,
    epoch: BackoffEpoch,
    service_time: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SimulationEvent {
    Completed(SimulatedRequest),
    RateLimited(SimulatedRequest),
    TimedOut(SimulatedRequest),
    Check,
    SecondEnded,
}

impl Summary {
    pub(super) fn from_stats(seconds: &[SecondStats]) -> Self {
        let sum = |value: fn(&SecondStats) -> f64| seconds.iter().map(value).sum::<f64>();
        let response_count = sum(|second| f64::from(second.response_count));
        Self {
            capacity_ratio: response_count / sum(|second| second.capacity),
            mean_wait: sum(|second| second.queueing_time) / response_count.max(1.0),
            queue_length: sum(|second| f64::from(second.queue_length)) / seconds.len() as f64,
        }
    }
}

/// Returns throttle settings without limits.
pub(super) fn permissive_config() -> ThrottleConfig {
    ThrottleConfig {
        concurrency: None,
        client_slots: ClientSlots::Quarter,
        spacing: Spacing::default(),
        controller: None,
        backoff: None,
        queue: QueueConfig { max_wait: Duration::from_secs(2), max_length: 256 },
    }
}

impl Simulation {
    pub(super) fn new(throttle: &ThrottleConfig, phases: &[Phase], seed: u64) -> Self {
        // Not at the epoch, so that the default backoff state lies in the past.
        let now = Timestamp::from_seconds(1000);
        let state = throttle.update_controller(ControllerState::Fixed, now);
        Self {
            throttle: throttle.clone(),
            phases: phases.to_vec(),
            now,
            rng: Rng::new(seed),
            controller_state: state,
            backoff_state: BackoffState::default(),
            next_start: now,
            next_check_at: now,
            in_flight: 0,
            busy_servers: 0,
            queue: VecDeque::new(),
            events: BinaryHeap::new(),
            event_sequence: 0,
            seconds: Vec::new(),
            tokens: (0.0, now),
        }
    }

    /// Runs the simulation for `seconds`; returns the statistics of each second.
    pub(super) fn run(mut self, seconds: u64) -> Vec<SecondStats> {
        for second in 1..=seconds {
            self.schedule(Timestamp::from_seconds(1000 + second), SimulationEvent::SecondEnded);
        }
        self.seconds.push(SecondStats::default());
        self.step();
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            self.now = now;
            self.handle(event);
            if self.seconds.len() as u64 > seconds {
                break;
            }
            self.step();
        }
        self.seconds.pop();
        self.seconds
    }

    fn handle(&mut self, event: SimulationEvent) {
        match event {
            SimulationEvent::Check => {}
            SimulationEvent::SecondEnded => {
                let origin = self.phase().origin;
                let (limits, queue_length) =
                    (self.throttle.effective_limits(&self.controller_state), self.queue.len() as u32);
                let capacity = f64::from(origin.servers) / origin.service_time.mean();
                let possible = origin.rate_limit.map_or(capacity, |service_time| capacity.min(f64::from(service_time)));
                let last = self.seconds.last_mut().expect("a current second");
                (last.limits, last.queue_length, last.capacity) = (limits, queue_length, possible);
                self.seconds.push(SecondStats::default());
            }
            SimulationEvent::Completed(request) => {
                self.busy_servers -= 1;
                let latency = self.now.saturating_duration_since(request.sent_at);
                let last = self.seconds.last_mut().expect("a current second");
                last.response_count += 1;
                last.queueing_time += latency.saturating_sub(request.service_time).as_secs_f64();
                self.on_response(request, Some(200), latency);
            }
            SimulationEvent::RateLimited(request) => {
                self.seconds.last_mut().expect("a current second").overload_count += 1;
                self.on_response(request, Some(429), Duration::from_millis(1));
            }
            SimulationEvent::TimedOut(request) => {
                // All requests have the same timeout, so a queued request that expires is the first.
                if self.queue.pop_front_if(|waiting| *waiting == request).is_some() {
                    self.seconds.last_mut().expect("a current second").overload_count += 1;
                    self.on_response(request, None, self.now.saturating_duration_since(request.sent_at));
                }
            }
        }
    }

    fn on_response(&mut self, request: SimulatedRequest, status: Option<u16>, latency: Duration) {
        let outcome = OriginOutcome { status, latency, latency_counts: true, retry_after: None, is_unreachable: false };
        self.throttle.on_outcome(&mut self.controller_state, &outcome, request.sent_at, self.in_flight, self.now);
        let epoch = request.epoch;
        let after =
            self.throttle.backoff_after(self.backoff_state, &self.controller_state, epoch, &outcome, 0.0, self.now);
        self.backoff_state = after.on_finished(epoch);
        self.in_flight -= 1;
    }

    /// Sends the permitted requests, and starts those that the origin has servers for.
    fn step(&mut self) {
        let phase = *self.phase();
        while self.in_flight < phase.clients && self.may_send() {
            self.send(phase.origin);
        }
        while self.busy_servers < phase.origin.servers
            && let Some(request) = self.queue.pop_front()
        {
            self.busy_servers += 1;
            self.schedule(self.now + request.service_time, SimulationEvent::Completed(request));
        }
    }

    fn may_send(&mut self) -> bool {
        let limits = self.throttle.effective_limits(&self.controller_state);
        if limits.limit.is_some_and(|limit| self.in_flight >= limit) {
            return false;
        }
        let mut next_start = self.next_start;
        if let Some(backoff) = &self.throttle.backoff {
            self.backoff_state = backoff.decayed(self.backoff_state, self.now);
            match self.backoff_state.blocked_by(self.now) {
                Some(BackoffBlock::BackingOff(until)) => next_start = next_start.max(until),
                Some(BackoffBlock::Probing) => return false,
                None => {}
            }
        }
        if self.now < next_start && self.next_check_at != next_start {
            self.next_check_at = next_start;
            self.schedule(next_start, SimulationEvent::Check);
        }
        self.now >= next_start
    }

    fn send(&mut self, origin: SimulatedOrigin) {
        let (state, epoch) = self.backoff_state.on_sent();
        self.backoff_state = state;
        self.in_flight += 1;
        self.throttle.on_sent(&mut self.controller_state, self.in_flight, self.now);
        let delay = self.throttle.effective_limits(&self.controller_state).delay;
        self.next_start = self.throttle.spacing.next_start(delay, 0.0, self.now);
        let service_time = Duration::from_secs_f64(origin.service_time.time(self.rng.gen_f64(), self.rng.gen_f64()));
        let request = SimulatedRequest { sent_at: self.now, epoch, service_time };
        if !self.accepts(origin) {
            return self.schedule(self.now + Duration::from_millis(1), SimulationEvent::RateLimited(request));
        }
        self.queue.push_back(request);
        self.schedule(self.now + origin.queue_timeout, SimulationEvent::TimedOut(request));
    }

    fn accepts(&mut self, origin: SimulatedOrigin) -> bool {
        let Some(rate) = origin.rate_limit.map(f64::from) else { return true };
        let (tokens, since) = self.tokens;
        let tokens = (tokens + self.now.saturating_duration_since(since).as_secs_f64() * rate).min(rate);
        let is_accepted = tokens >= 1.0;
        self.tokens = (if is_accepted { tokens - 1.0 } else { tokens }, self.now);
        is_accepted
    }

    fn schedule(&mut self, time: Timestamp, event: SimulationEvent) {
        self.event_sequence += 1;
        self.events.push(Reverse((time, self.event_sequence, event)));
    }

    fn phase(&self) -> &Phase {
        let since = self.now.seconds() - 1000;
        self.phases.iter().rev().find(|phase| phase.from_s <= since).expect("the first phase starts at 0 s")
    }
}

impl ServiceTime {
    fn time(self, selector: f64, variation: f64) -> f64 {
        match self {
            Self::Constant(mean) => mean,
            Self::Uniform(mean) => mean * (0.5 + variation),
            Self::Bimodal(fast, slow) => (if selector < 0.1 { slow } else { fast }) * (0.8 + 0.4 * variation),
        }
    }

    pub(super) fn mean(self) -> f64 {
        match self {
            Self::Constant(mean) | Self::Uniform(mean) => mean,
            Self::Bimodal(fast, slow) => 0.9 * fast + 0.1 * slow,
        }
    }
}
