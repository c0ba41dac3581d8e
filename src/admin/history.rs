//! Usage of the quotas over the last hour, day and month, and requests of the classes over the first two, in bounded memory.

use super::DynGateway;
use super::amount::Amount;
use super::state::{CacheUsageDocument, StateDocument};
use axum::Json;
use axum::extract::State;
use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tidegate_access_log::rfc3339;
use tidegate_policy::{Timestamp, Units};

/// Samples of the last hour, day and month.
#[derive(Default)]
pub(super) struct History(Mutex<Spans>);

/// The history as JSON.
#[derive(Clone, Default, Serialize)]
pub(super) struct Spans {
    hour: Samples,
    day: Samples,
    /// Usage of the quotas only, for the charts of long windows.
    month: Samples,
}

/// Samples of one span, oldest first.
#[derive(Clone, Default, Serialize)]
struct Samples(VecDeque<Sample>);

/// State at one time.
#[derive(Clone, Debug, Serialize)]
struct Sample {
    #[serde(rename = "time", serialize_with = "serialize_time")]
    at: Timestamp,
    quotas: Vec<QuotaSample>,
    #[serde(flatten)]
    traffic: Option<TrafficSample>,
}

/// Requests and responses since the process start.
#[derive(Clone, Debug, Serialize)]
struct TrafficSample {
    classes: Vec<ClassSample>,
    responses: ResponsesSample,
    cache: Option<CacheSample>,
}

/// Responses since the process start.
#[derive(Clone, Debug, Serialize)]
struct ResponsesSample {
    statuses: BTreeMap<String, u64>,
    bytes: u64,
    /// Number of admitted requests by duration.
    latency: Vec<u64>,
}

/// Counts of the cache since the process start.
#[derive(Clone, Debug, Serialize)]
struct CacheSample {
    requests: u64,
    answered: u64,
    /// Units saved, by quota.
    saved: BTreeMap<String, Amount>,
}

/// Usage of a quota.
#[derive(Clone, Debug, Serialize)]
struct QuotaSample {
    name: String,
    used: Amount,
    limit: Amount,
    planned: Option<Amount>,
}

/// Requests of a class since the process start.
#[derive(Clone, Debug, Serialize)]
struct ClassSample {
    name: String,
    admitted: u64,
    refused: u64,
    shadow_refused: u64,
}

impl History {
    /// Adds a sample of the current state to each span that is due for one.
    pub(super) fn sample(&self, gateway: &DynGateway) {
        let now = gateway.now();
        let mut spans = self.0.lock();
        let Spans { hour, day, month } = &mut *spans;
        // The hour is due whenever another span is: its samples are the closest.
        let (is_hour_due, is_day_due) = (hour.is_due(now, HOUR), day.is_due(now, DAY));
        if !is_hour_due && !is_day_due {
            return;
        }
        let sample = Sample::of(gateway, now);
        if month.is_due(now, MONTH) {
            month.push(Sample { traffic: None, ..sample.clone() }, MONTH);
        }
        if is_hour_due {
            hour.push(sample.clone(), HOUR);
        }
        if is_day_due {
            day.push(sample, DAY);
        }
    }
}

/// Returns the samples of all spans.
pub(super) async fn show(State(history): State<Arc<History>>) -> Json<Spans> {
    Json(history.0.lock().clone())
}

fn serialize_time<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&rfc3339(*time))
}

/// Samples the state until dropped.
pub(super) async fn run(history: Arc<History>, gateway: DynGateway) {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
        history.sample(&gateway);
    }
}

impl Samples {
    /// Returns true if the last sample is old enough for another one.
    fn is_due(&self, now: Timestamp, span: Duration) -> bool {
        self.0.back().is_none_or(|last| now.saturating_duration_since(last.at) >= span / MAX_SAMPLES as u32)
    }

    /// Adds a sample, and removes those older than `span`.
    fn push(&mut self, sample: Sample, span: Duration) {
        let now = sample.at;
        self.0.push_back(sample);
        let is_old = |first: &Sample| now.saturating_duration_since(first.at) > span;
        while self.0.len() > MAX_SAMPLES + 1 || self.0.front().is_some_and(is_old) {
            self.0.pop_front();
        }
    }
}

impl Sample {
    fn of(gateway: &DynGateway, at: Timestamp) -> Self {
        let StateDocument { quotas, traffic, responses, latency, cache, .. } = gateway.state();
        let quotas = quotas.into_iter().map(|quota| QuotaSample {
            name: quota.name,
            used: quota.used,
            limit: quota.limit,
            planned: quota.pacing.map(|pacing| pacing.planned),
        });
        let classes = traffic.into_iter().map(|class| ClassSample {
            name: class.class,
            admitted: class.admitted,
            refused: class.refused,
            shadow_refused: class.shadow_refused,
        });
        let cache = cache.as_ref().map(CacheSample::of);
        let latency = latency.iter().map(|range| range.requests).collect();
        let responses = ResponsesSample { statuses: responses.statuses, bytes: responses.bytes, latency };
        let traffic = TrafficSample { classes: classes.collect(), responses, cache };
        Self { at, quotas: quotas.collect(), traffic: Some(traffic) }
    }
}

impl CacheSample {
    fn of(usage: &CacheUsageDocument) -> Self {
        let CacheUsageDocument { requests, answered, .. } = *usage;
        let mut saved = BTreeMap::<String, Units>::new();
        for entry in &usage.saved {
            let total = saved.entry(entry.quota.clone()).or_default();
            *total = total.saturating_add(entry.units.units().unwrap_or_default());
        }
        Self { requests, answered, saved: saved.into_iter().map(|(quota, units)| (quota, units.into())).collect() }
    }
}

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const MONTH: Duration = Duration::from_secs(31 * 24 * 3600);

/// Maximum number of intervals between the samples of a span: one in 10 s of the hour, one in 4 min of the day, one in 2 h
/// of the month.
const MAX_SAMPLES: usize = 360;

/// Interval of the checks whether a sample is due. It is short because the clock of a demo runs faster.
const TICK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_spaced_and_bounded() {
        let mut samples = Samples::default();
        let at = |seconds| Timestamp::from_seconds(seconds);
        for second in 0..3 * 3600 {
            if samples.is_due(at(second), HOUR) {
                samples.push(Sample { at: at(second), quotas: Vec::new(), traffic: None }, HOUR);
            }
        }
        let times: Vec<u64> = samples.0.iter().map(|sample| sample.at.seconds()).collect();
        assert_eq!((times.len(), times[0], times[1], times[360]), (361, 7190, 7200, 10_790));
        assert!(!samples.is_due(at(9), HOUR), "a clock that goes back adds nothing");
        samples.push(Sample { at: at(20_000), quotas: Vec::new(), traffic: None }, HOUR);
        assert_eq!(samples.0.len(), 1, "after a pause of hours, only what is recent is left");
    }
}
