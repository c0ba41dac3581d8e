//! Simulated origin in virtual time: servers with one queue, and clients that send requests as fast as they are
//! permitted.

use super::backoff::{BackoffBlock, BackoffEpoch, BackoffState};
use super::controller::{ControllerState, EffectiveLimits};
use super::spacing::Spacing;
use super::{OriginOutcome, QueueConfig, ThrottleConfig};
use crate::policy::Timestamp;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// Phase of a simulation: from a start time on, this origin and these clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    pub(super) from_s: u64,
    pub(super) origin: Origin,
    /// Number of clients; each sends its next request when the previous one is answered.
    pub(super) clients: u32,
}

/// Simulated origin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    /// Number of requests served concurrently.
    pub(super) servers: u32,
    /// Service time of a request.
    pub(super) pages: ServiceTime,
    /// Requests accepted per second, with bursts of one second; others are answered with 429.
    pub(super) rate_limit: Option<u32>,
    /// Time in the queue after which a request times out.
    pub(super) queue_timeout: Duration,
}

/// Distribution of service times, without queueing.
#[derive(Clone, Copy, Debug)]
pub(super) enum ServiceTime {
    /// Constant, in seconds.
    Even(f64),
    /// Uniform between 0.5 and 1.5 times the mean, in seconds.
    Noisy(f64),
    /// Nine of ten requests fast, one slow, in seconds.
    Mixed(f64, f64),
}

/// Statistics of one second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SecondStats {
    /// Number of responses.
    pub(super) answered: u32,
    /// Number of overload responses and timeouts.
    pub(super) overloaded: u32,
    /// Number of responses that the origin had capacity for.
    pub(super) possible: f64,
    /// Total queueing time of the responses at the origin, in seconds.
    pub(super) queued: f64,
    /// Effective limits at the end of the second.
    pub(super) pace: EffectiveLimits,
    /// Length of the origin's queue at the end of the second.
    pub(super) in_queue: u32,
}

/// Statistics of several seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Summary {
    /// Number of responses as a ratio of the capacity.
    pub(super) share: f64,
    /// Mean queueing time at the origin, in seconds.
    pub(super) wait: f64,
    /// Mean length of the origin's queue.
    pub(super) in_queue: f64,
}

pub(super) struct Simulation {
    throttle: ThrottleConfig,
    phases: Vec<Phase>,
    now: Timestamp,
    chance: u64,
    course: ControllerState,
    pressure: BackoffState,
    next_start: Timestamp,
    /// Time of the next scheduled check.
    look_at: Timestamp,
    under_way: u32,
    busy: u32,
    queue: VecDeque<Request>,
    events: BinaryHeap<Reverse<(Timestamp, u64, Event)>>,
    order: u64,
    seconds: Vec<SecondStats>,
    tokens: (f64, Timestamp),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    sent: Timestamp,
    spell: BackoffEpoch,
    rate_limit: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Answered(Request),
    Refused(Request),
    GivenUp(Request),
    Look,
    Second,
}

impl Summary {
    pub(super) fn of(seconds: &[SecondStats]) -> Self {
        let sum = |value: fn(&SecondStats) -> f64| seconds.iter().map(value).sum::<f64>();
        let answered = sum(|second| f64::from(second.answered));
        Self {
            share: answered / sum(|second| second.possible),
            wait: sum(|second| second.queued) / answered.max(1.0),
            in_queue: sum(|second| f64::from(second.in_queue)) / seconds.len() as f64,
        }
    }
}

/// Returns throttle settings without limits.
pub(super) fn permissive_config() -> ThrottleConfig {
    ThrottleConfig {
        concurrency: None,
        spacing: Spacing::default(),
        controller: None,
        backoff: None,
        queue: QueueConfig { max_wait: Duration::from_secs(2), max_length: 256 },
    }
}

impl Simulation {
    pub(super) fn of(throttle: &ThrottleConfig, phases: &[Phase], seed: u64) -> Self {
        // Not at the epoch, so that the default backoff state lies in the past.
        let now = Timestamp::from_seconds(1000);
        let state = throttle.update_controller(ControllerState::Fixed, now);
        Self {
            throttle: throttle.clone(),
            phases: phases.to_vec(),
            now,
            chance: seed,
            course: state,
            pressure: BackoffState::default(),
            next_start: now,
            look_at: now,
            under_way: 0,
            busy: 0,
            queue: VecDeque::new(),
            events: BinaryHeap::new(),
            order: 0,
            seconds: Vec::new(),
            tokens: (0.0, now),
        }
    }

    /// Runs the simulation for `seconds`; returns the statistics of each second.
    pub(super) fn run(mut self, seconds: u64) -> Vec<SecondStats> {
        for second in 1..=seconds {
            self.at(Timestamp::from_seconds(1000 + second), Event::Second);
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

    fn handle(&mut self, event: Event) {
        match event {
            Event::Look => {}
            Event::Second => {
                let origin = self.phase().origin;
                let (limits, in_queue) = (self.throttle.effective_limits(&self.course), self.queue.len() as u32);
                let possible = f64::from(origin.servers) / origin.pages.mean();
                let possible = origin.rate_limit.map_or(possible, |rate_limit| possible.min(f64::from(rate_limit)));
                let last = self.seconds.last_mut().expect("a current second");
                (last.pace, last.in_queue, last.possible) = (limits, in_queue, possible);
                self.seconds.push(SecondStats::default());
            }
            Event::Answered(request) => {
                self.busy -= 1;
                let latency = self.now.saturating_duration_since(request.sent);
                let last = self.seconds.last_mut().expect("a current second");
                last.answered += 1;
                last.queued += latency.saturating_sub(request.rate_limit).as_secs_f64();
                self.on_response(request, Some(200), latency);
            }
            Event::Refused(request) => {
                self.seconds.last_mut().expect("a current second").overloaded += 1;
                self.on_response(request, Some(429), Duration::from_millis(1));
            }
            Event::GivenUp(request) => {
                // All requests have the same timeout, so a queued request that expires is the first.
                if self.queue.pop_front_if(|waiting| *waiting == request).is_some() {
                    self.seconds.last_mut().expect("a current second").overloaded += 1;
                    self.on_response(request, None, self.now.saturating_duration_since(request.sent));
                }
            }
        }
    }

    fn on_response(&mut self, request: Request, status: Option<u16>, latency: Duration) {
        let outcome = OriginOutcome { status, latency, latency_counts: true, retry_after: None };
        self.throttle.on_outcome(&mut self.course, &outcome, request.sent, self.under_way, self.now);
        let epoch = request.spell;
        let after = self.throttle.backoff_after(self.pressure, &self.course, epoch, &outcome, 0.0, self.now);
        self.pressure = after.on_finished(epoch);
        self.under_way -= 1;
    }

    /// Sends the permitted requests, and starts those that the origin has servers for.
    fn step(&mut self) {
        let phase = *self.phase();
        while self.under_way < phase.clients && self.may_send() {
            self.send(phase.origin);
        }
        while self.busy < phase.origin.servers
            && let Some(request) = self.queue.pop_front()
        {
            self.busy += 1;
            self.at(self.now + request.rate_limit, Event::Answered(request));
        }
    }

    fn may_send(&mut self) -> bool {
        let limits = self.throttle.effective_limits(&self.course);
        if limits.limit.is_some_and(|limit| self.under_way >= limit) {
            return false;
        }
        let mut next_start = self.next_start;
        if let Some(backoff) = &self.throttle.backoff {
            self.pressure = backoff.decayed(self.pressure, self.now);
            match self.pressure.blocked_by(self.now) {
                Some(BackoffBlock::BackingOff(until)) => next_start = next_start.max(until),
                Some(BackoffBlock::Probing) => return false,
                None => {}
            }
        }
        if self.now < next_start && self.look_at != next_start {
            self.look_at = next_start;
            self.at(next_start, Event::Look);
        }
        self.now >= next_start
    }

    fn send(&mut self, origin: Origin) {
        let (state, epoch) = self.pressure.on_sent();
        self.pressure = state;
        self.under_way += 1;
        self.throttle.on_sent(&mut self.course, self.under_way, self.now);
        let delay = self.throttle.effective_limits(&self.course).delay;
        self.next_start = self.throttle.spacing.next_start(delay, 0.0, self.now);
        let service_time = Duration::from_secs_f64(origin.pages.time(self.random(), self.random()));
        let request = Request { sent: self.now, spell: epoch, rate_limit: service_time };
        if !self.accepts(origin) {
            return self.at(self.now + Duration::from_millis(1), Event::Refused(request));
        }
        self.queue.push_back(request);
        self.at(self.now + origin.queue_timeout, Event::GivenUp(request));
    }

    fn accepts(&mut self, origin: Origin) -> bool {
        let Some(rate) = origin.rate_limit.map(f64::from) else { return true };
        let (tokens, since) = self.tokens;
        let tokens = (tokens + self.now.saturating_duration_since(since).as_secs_f64() * rate).min(rate);
        let is_accepted = tokens >= 1.0;
        self.tokens = (if is_accepted { tokens - 1.0 } else { tokens }, self.now);
        is_accepted
    }

    fn at(&mut self, time: Timestamp, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, event)));
    }

    fn phase(&self) -> &Phase {
        let since = self.now.seconds() - 1000;
        self.phases.iter().rev().find(|phase| phase.from_s <= since).expect("the first phase starts at 0 s")
    }

    /// Splitmix64: the same seed yields the same run.
    fn random(&mut self) -> f64 {
        self.chance = self.chance.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.chance ^ (self.chance >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl ServiceTime {
    fn time(self, selector: f64, variation: f64) -> f64 {
        match self {
            Self::Even(mean) => mean,
            Self::Noisy(mean) => mean * (0.5 + variation),
            Self::Mixed(fast, slow) => (if selector < 0.1 { slow } else { fast }) * (0.8 + 0.4 * variation),
        }
    }

    pub(super) fn mean(self) -> f64 {
        match self {
            Self::Even(mean) | Self::Noisy(mean) => mean,
            Self::Mixed(fast, slow) => 0.9 * fast + 0.1 * slow,
        }
    }
}
