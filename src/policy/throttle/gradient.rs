//! Finds how many requests the origin can work on at once, from how long its answers take.
//!
//! As long as the origin has room, an answer takes as long with ten requests under way as with one: the *baseline*.
//! Beyond that they queue, and the latency grows with them. So the limit rises while the latency is near the baseline and
//! falls by the ratio of the two where it is not. It is looked at in *windows* of answers to requests that were sent under
//! one limit.
//!
//! ```text
//!   latency / baseline   1 ........ TOLERANCE ........ more
//!   limit                + its root   + 0              x TOLERANCE x baseline / latency, at least x 1/2
//! ```
//! The baseline must be the origin's own time and nobody's queue. From time to time the limit is lowered a little, and
//! again as long as the latency falls with it: a standing queue drains, and what remains is the baseline. Where the limit
//! was halved and the latency did not follow, it was no queue: the origin has become slower by itself, and is believed.

use crate::policy::Timestamp;
use std::time::Duration;

/// Between which bounds the limit follows the latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gradient {
    /// The least it becomes.
    pub min: u32,
    /// The most.
    pub max: u32,
}

/// The limit, and what it was learned from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradientLimit {
    most: f64,
    /// The latency without a queue, in seconds; none before the first window.
    baseline: Option<f64>,
    window: SampleWindow,
    windows_to_drain: u32,
    drain: Option<Drain>,
    /// The longest latency since it was last near the baseline.
    worst: Option<LatencyPeak>,
    /// In how many windows in a row the latency was too long at the floor.
    at_floor: u32,
    /// Timeouts of requests that were sent before are the same congestion.
    decreased_at: Timestamp,
}

/// What a request's answer says of the origin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadSample {
    /// It did what it was asked, in this time.
    Success(Duration),
    /// It has more to do than it can.
    Overloaded,
}

/// What is counted until the next look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct SampleWindow {
    began: Timestamp,
    answers: u32,
    /// Of their latencies in seconds, added up.
    logarithms: f64,
    congested: u32,
    /// Requests under way, added up over so many glances.
    in_flight: u64,
    samples: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Drain {
    /// The limit to return to.
    from: f64,
    latency: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct LatencyPeak {
    limit: f64,
    latency: f64,
}

impl GradientLimit {
    /// A limit of which nothing is known.
    pub fn new(gradient: &Gradient, now: Timestamp) -> Self {
        Self {
            most: gradient.clamp(INITIAL_LIMIT),
            baseline: None,
            window: SampleWindow { began: now, ..SampleWindow::default() },
            windows_to_drain: FIRST_DRAIN_WINDOWS,
            drain: None,
            worst: None,
            at_floor: 0,
            decreased_at: Timestamp::default(),
        }
    }

    /// Returns the most requests that may be under way.
    pub fn current(&self) -> u32 {
        self.most as u32
    }

    /// Takes over other bounds.
    pub fn update_bounds(&mut self, gradient: &Gradient) {
        self.most = gradient.clamp(self.most);
        self.drain = None;
    }

    /// A request was sent; with it, `in_flight` are.
    pub fn on_sent(&mut self, in_flight: u32, now: Timestamp) {
        // Time in which nobody asked is no part of it.
        if self.window.samples == 0 {
            self.window.began = now;
        }
        self.window.sample_in_flight(in_flight);
    }

    /// A request that was sent at `sent` was answered, or was not; with it, `in_flight` were.
    pub fn on_outcome(
        &mut self,
        gradient: &Gradient,
        sign: LoadSample,
        sent: Timestamp,
        in_flight: u32,
        now: Timestamp,
    ) {
        self.window.sample_in_flight(in_flight);
        match sign {
            // What was sent under another limit tells of that.
            LoadSample::Success(latency) if sent >= self.window.began => {
                self.window.answers += 1;
                self.window.logarithms += latency.max(MIN_LATENCY).as_secs_f64().ln();
            }
            LoadSample::Overloaded if sent >= self.decreased_at => self.window.congested += 1,
            LoadSample::Success(_) | LoadSample::Overloaded => {}
        }
        if self.window.is_complete(now) {
            self.evaluate_window(gradient, now);
            self.window = SampleWindow { began: now, ..SampleWindow::default() };
        }
    }

    fn evaluate_window(&mut self, gradient: &Gradient, now: Timestamp) {
        let window = self.window;
        if !window.used_half_of(self.current()) {
            self.end_drain();
        } else if window.congested > 0 {
            self.end_drain();
            self.worst = None;
            self.decreased_at = now;
            let share = f64::from(window.congested) / f64::from(window.congested + window.answers);
            self.most = gradient.clamp(self.most * (1.0 - share).max(MIN_RATIO_PER_WINDOW));
        } else {
            self.update_limit(gradient, (window.logarithms / f64::from(window.answers.max(1))).exp());
        }
    }

    fn update_limit(&mut self, gradient: &Gradient, latency: f64) {
        let Some(baseline) = self.baseline else {
            self.baseline = Some(latency);
            return;
        };
        match self.drain {
            Some(drain) => self.continue_drain(gradient, drain, baseline, latency),
            None => self.adjust_to_latency(gradient, baseline, latency),
        }
    }

    fn adjust_to_latency(&mut self, gradient: &Gradient, baseline: f64, latency: f64) {
        let ratio = latency / baseline;
        if ratio < 1.0 {
            self.baseline = Some((baseline + latency) / 2.0);
        }
        if ratio <= TOLERANCE {
            (self.worst, self.at_floor) = (None, 0);
            let room = ((TOLERANCE - ratio) / (TOLERANCE - 1.0)).min(1.0);
            self.most = gradient.clamp(self.most + self.most.sqrt() * room);
        } else if self.is_service_time(gradient, latency) {
            self.baseline = Some(latency);
            (self.worst, self.at_floor) = (None, 0);
        } else {
            self.most = gradient.clamp(self.most * (TOLERANCE / ratio).max(MIN_RATIO_PER_WINDOW));
        }
        self.windows_to_drain = self.windows_to_drain.saturating_sub(1);
        if self.windows_to_drain == 0 && self.worst.is_none() {
            self.windows_to_drain = DRAIN_INTERVAL_WINDOWS;
            self.drain = Some(Drain { from: self.most, latency });
            self.most = gradient.clamp(self.most * DRAIN_RATIO);
        }
    }

    /// Queues shrink with the limit. What does not is the origin's own time.
    fn is_service_time(&mut self, gradient: &Gradient, latency: f64) -> bool {
        let is_at_floor = self.current() <= gradient.min;
        self.at_floor = if is_at_floor { self.at_floor + 1 } else { 0 };
        match self.worst {
            Some(worst) if latency <= worst.latency * LATENCY_NOISE => {
                let cut = self.most / worst.limit;
                (cut <= 0.5 && latency > worst.latency * cut.cbrt()) || self.at_floor >= MIN_LIMIT_CONFIRM_WINDOWS
            }
            _ => {
                self.worst = Some(LatencyPeak { limit: self.most, latency });
                self.at_floor >= MIN_LIMIT_CONFIRM_WINDOWS
            }
        }
    }

    fn continue_drain(&mut self, gradient: &Gradient, drain: Drain, baseline: f64, latency: f64) {
        let lower = gradient.clamp(self.most * DRAIN_RATIO);
        if latency < drain.latency * DRAIN_LATENCY_RATIO && (lower as u32) < self.current() {
            self.drain = Some(Drain { latency, ..drain });
            self.most = lower;
            return;
        }
        self.end_drain();
        if latency < baseline {
            self.baseline = Some(latency);
            // There was a queue in the baseline; perhaps not all of it has gone.
            self.windows_to_drain =
                if latency < baseline * DRAIN_LATENCY_RATIO { FIRST_DRAIN_WINDOWS } else { DRAIN_INTERVAL_WINDOWS };
        } else if latency <= baseline * TOLERANCE {
            self.baseline = Some((baseline + latency) / 2.0);
        }
    }

    fn end_drain(&mut self) {
        if let Some(drain) = self.drain.take() {
            self.most = drain.from;
        }
    }
}

impl Gradient {
    fn clamp(&self, limit: f64) -> f64 {
        limit.min(f64::from(self.max)).max(f64::from(self.min.max(1)))
    }
}

impl SampleWindow {
    fn sample_in_flight(&mut self, in_flight: u32) {
        self.samples += 1;
        self.in_flight += u64::from(in_flight);
    }

    fn is_complete(&self, now: Timestamp) -> bool {
        let (seen, lasted) = (self.answers + self.congested, now.saturating_duration_since(self.began));
        seen >= WINDOW_SAMPLES && lasted >= MIN_WINDOW || seen >= MIN_WINDOW_SAMPLES && lasted >= MAX_WINDOW
    }

    fn used_half_of(&self, limit: u32) -> bool {
        self.in_flight * 2 >= u64::from(limit) * self.samples
    }
}

/// Small enough for any origin, large enough not to be felt.
const INITIAL_LIMIT: f64 = 8.0;
/// How much longer than the baseline answers may take before there is a queue.
const TOLERANCE: f64 = 1.35;
/// No window takes away more.
const MIN_RATIO_PER_WINDOW: f64 = 0.5;
/// A clock that stood still has measured nothing.
const MIN_LATENCY: Duration = Duration::from_micros(1);

/// So many answers tell the mean of a mix of pages well enough.
const WINDOW_SAMPLES: u32 = 20;
/// A fast origin is not looked at for every few milliseconds.
const MIN_WINDOW: Duration = Duration::from_millis(100);
/// After so long, [`MIN_WINDOW_SAMPLES`] answers have to do.
const MAX_WINDOW: Duration = Duration::from_secs(10);
const MIN_WINDOW_SAMPLES: u32 = 4;

/// The first baseline may have been measured in a queue.
const FIRST_DRAIN_WINDOWS: u32 = 4;
/// Drains cost a little throughput: two windows of so many.
const DRAIN_INTERVAL_WINDOWS: u32 = 24;
/// By what a drain lowers the limit: by more than the tolerance lets it stand too high.
const DRAIN_RATIO: f64 = 0.6;
/// In a queue the latency falls as the limit does; half-way to not at all, it has fallen.
const DRAIN_LATENCY_RATIO: f64 = 0.8;
/// A latency that is longer by less has not grown.
const LATENCY_NOISE: f64 = 1.15;
/// At the floor, no queue can be the gate's: after so many windows the latency is believed.
const MIN_LIMIT_CONFIRM_WINDOWS: u32 = 3;

#[cfg(test)]
mod tests;
