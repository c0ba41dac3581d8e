//! Gradient controller: adapts the concurrency limit to the latency of the origin.
//!
//! While the origin has spare capacity, its latency is independent of concurrency: the *baseline*. Beyond that,
//! requests queue and latency grows. The limit rises while latency is near the baseline, and falls by their ratio
//! otherwise. It is evaluated in *windows* of responses to requests that were sent under one limit.
//!
//! ```text
//!   latency / baseline   1 ........ TOLERANCE ........ more
//!   limit                + its root   + 0              x TOLERANCE x baseline / latency, at least x 1/2
//! ```
//! The baseline must contain no queueing time. Periodically the limit is lowered a little, repeatedly while latency
//! falls with it: a standing queue drains, and the remaining latency is the baseline. If the limit was halved without
//! an effect on latency, there was no queue: the origin itself became slower, and its latency is the new baseline.

use crate::Timestamp;
use std::time::Duration;

/// Bounds of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gradient {
    /// Minimum limit.
    pub min: u32,
    /// Maximum limit.
    pub max: u32,
}

/// State of the gradient controller: the limit and its statistics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradientLimit {
    limit: f64,
    /// Latency without a queue, in seconds; `None` before the first window.
    baseline: Option<f64>,
    window: SampleWindow,
    windows_to_drain: u32,
    drain: Option<Drain>,
    /// Maximum latency since it was last near the baseline.
    latency_peak: Option<LatencyPeak>,
    /// Number of consecutive windows with excessive latency at the minimum limit.
    windows_at_min: u32,
    /// Time of the last decrease for overload; overload of requests sent before belongs to the same congestion.
    decreased_at: Timestamp,
}

/// Load of the origin, as observed on one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadSample {
    /// Success, with its latency.
    Success(Duration),
    /// Overload.
    Overloaded,
}

/// Statistics since the last evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct SampleWindow {
    started_at: Timestamp,
    success_count: u32,
    /// Sum of the logarithms of their latencies in seconds.
    log_latency_sum: f64,
    overload_count: u32,
    /// Sum of the requests in flight, over the number of samples.
    in_flight: u64,
    sample_count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Drain {
    /// Limit before the drain.
    limit_before: f64,
    latency: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct LatencyPeak {
    limit: f64,
    latency: f64,
}

impl GradientLimit {
    /// Creates a state without observations.
    pub fn new(gradient: &Gradient, now: Timestamp) -> Self {
        Self {
            limit: gradient.clamp(INITIAL_LIMIT),
            baseline: None,
            window: SampleWindow { started_at: now, ..SampleWindow::default() },
            windows_to_drain: FIRST_DRAIN_WINDOWS,
            drain: None,
            latency_peak: None,
            windows_at_min: 0,
            decreased_at: Timestamp::default(),
        }
    }

    /// Returns the maximum number of requests in flight.
    pub fn current(&self) -> u32 {
        self.limit as u32
    }

    /// Applies other bounds.
    pub fn update_bounds(&mut self, gradient: &Gradient) {
        self.limit = gradient.clamp(self.limit);
        self.drain = None;
    }

    /// Records that a request was sent; `in_flight` is the number of requests in flight, including it.
    pub fn on_sent(&mut self, in_flight: u32, now: Timestamp) {
        // Idle time before the first request is not part of the window.
        if self.window.sample_count == 0 {
            self.window.started_at = now;
        }
        self.window.sample_in_flight(in_flight);
    }

    /// Records the outcome of a request sent at `sent`; `in_flight` is the number of requests in flight, including it.
    pub fn on_outcome(
        &mut self,
        gradient: &Gradient,
        sample: LoadSample,
        sent: Timestamp,
        in_flight: u32,
        now: Timestamp,
    ) {
        self.window.sample_in_flight(in_flight);
        match sample {
            // A response to a request sent under another limit does not count.
            LoadSample::Success(latency) if sent >= self.window.started_at => {
                self.window.success_count += 1;
                self.window.log_latency_sum += latency.max(MIN_LATENCY).as_secs_f64().ln();
            }
            LoadSample::Overloaded if sent >= self.decreased_at => self.window.overload_count += 1,
            LoadSample::Success(_) | LoadSample::Overloaded => {}
        }
        if self.window.is_complete(now) {
            self.evaluate_window(gradient, now);
            self.window = SampleWindow { started_at: now, ..SampleWindow::default() };
        }
    }

    fn evaluate_window(&mut self, gradient: &Gradient, now: Timestamp) {
        let window = self.window;
        if !window.used_half_of(self.current()) {
            self.end_drain();
        } else if window.overload_count > 0 {
            self.end_drain();
            self.latency_peak = None;
            self.decreased_at = now;
            let share = f64::from(window.overload_count) / f64::from(window.overload_count + window.success_count);
            self.limit = gradient.clamp(self.limit * (1.0 - share).max(MIN_RATIO_PER_WINDOW));
        } else {
            self.update_limit(gradient, (window.log_latency_sum / f64::from(window.success_count.max(1))).exp());
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
            (self.latency_peak, self.windows_at_min) = (None, 0);
            let headroom = ((TOLERANCE - ratio) / (TOLERANCE - 1.0)).min(1.0);
            self.limit = gradient.clamp(self.limit + self.limit.sqrt() * headroom);
        } else if self.is_service_time(gradient, latency) {
            self.baseline = Some(latency);
            (self.latency_peak, self.windows_at_min) = (None, 0);
        } else {
            self.limit = gradient.clamp(self.limit * (TOLERANCE / ratio).max(MIN_RATIO_PER_WINDOW));
        }
        self.windows_to_drain = self.windows_to_drain.saturating_sub(1);
        if self.windows_to_drain == 0 && self.latency_peak.is_none() {
            self.windows_to_drain = DRAIN_INTERVAL_WINDOWS;
            self.drain = Some(Drain { limit_before: self.limit, latency });
            self.limit = gradient.clamp(self.limit * DRAIN_RATIO);
        }
    }

    /// Returns true if the latency is the origin's service time: queueing time would shrink with the limit.
    fn is_service_time(&mut self, gradient: &Gradient, latency: f64) -> bool {
        let is_at_floor = self.current() <= gradient.min;
        self.windows_at_min = if is_at_floor { self.windows_at_min + 1 } else { 0 };
        match self.latency_peak {
            Some(peak) if latency <= peak.latency * LATENCY_NOISE => {
                let ratio = self.limit / peak.limit;
                (ratio <= 0.5 && latency > peak.latency * ratio.cbrt())
                    || self.windows_at_min >= MIN_LIMIT_CONFIRM_WINDOWS
            }
            _ => {
                self.latency_peak = Some(LatencyPeak { limit: self.limit, latency });
                self.windows_at_min >= MIN_LIMIT_CONFIRM_WINDOWS
            }
        }
    }

    fn continue_drain(&mut self, gradient: &Gradient, drain: Drain, baseline: f64, latency: f64) {
        let lower = gradient.clamp(self.limit * DRAIN_RATIO);
        if latency < drain.latency * DRAIN_LATENCY_RATIO && (lower as u32) < self.current() {
            self.drain = Some(Drain { latency, ..drain });
            self.limit = lower;
            return;
        }
        self.end_drain();
        if latency < baseline {
            self.baseline = Some(latency);
            // The baseline contained queueing time, possibly more than was drained.
            self.windows_to_drain =
                if latency < baseline * DRAIN_LATENCY_RATIO { FIRST_DRAIN_WINDOWS } else { DRAIN_INTERVAL_WINDOWS };
        } else if latency <= baseline * TOLERANCE {
            self.baseline = Some((baseline + latency) / 2.0);
        }
    }

    fn end_drain(&mut self) {
        if let Some(drain) = self.drain.take() {
            self.limit = drain.limit_before;
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
        self.sample_count += 1;
        self.in_flight += u64::from(in_flight);
    }

    fn is_complete(&self, now: Timestamp) -> bool {
        let (count, elapsed) =
            (self.success_count + self.overload_count, now.saturating_duration_since(self.started_at));
        count >= WINDOW_SAMPLES && elapsed >= MIN_WINDOW || count >= MIN_WINDOW_SAMPLES && elapsed >= MAX_WINDOW
    }

    fn used_half_of(&self, limit: u32) -> bool {
        self.in_flight * 2 >= u64::from(limit) * self.sample_count
    }
}

/// Initial limit: small enough for any origin, large enough not to delay clients.
const INITIAL_LIMIT: f64 = 8.0;
/// Ratio of latency to baseline up to which there is no queue.
const TOLERANCE: f64 = 1.35;
/// Minimum factor of a decrease per window.
const MIN_RATIO_PER_WINDOW: f64 = 0.5;
/// Lower bound of latencies, for clocks that did not advance.
const MIN_LATENCY: Duration = Duration::from_micros(1);

/// Number of responses that suffice for the mean of a mix of pages.
const WINDOW_SAMPLES: u32 = 20;
/// Minimum length of a window, so that a fast origin is not evaluated every few milliseconds.
const MIN_WINDOW: Duration = Duration::from_millis(100);
/// Window length from which on [`MIN_WINDOW_SAMPLES`] responses suffice.
const MAX_WINDOW: Duration = Duration::from_secs(10);
const MIN_WINDOW_SAMPLES: u32 = 4;

/// Windows until the first drain, since the first baseline may contain queueing time.
const FIRST_DRAIN_WINDOWS: u32 = 4;
/// Windows between drains; a drain costs a little throughput in two of them.
const DRAIN_INTERVAL_WINDOWS: u32 = 24;
/// Factor of a drain; lowers the limit by more than the tolerance may exceed the optimum.
const DRAIN_RATIO: f64 = 0.6;
/// Ratio up to which latency counts as fallen: halfway between proportional to the limit and constant.
const DRAIN_LATENCY_RATIO: f64 = 0.8;
/// Ratio up to which latency counts as unchanged.
const LATENCY_NOISE: f64 = 1.15;
/// Windows at the minimum limit after which latency counts as service time: the gateway cannot cause a queue there.
const MIN_LIMIT_CONFIRM_WINDOWS: u32 = 3;

#[cfg(test)]
mod tests;
