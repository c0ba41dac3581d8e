//! Usage of the quotas and requests of the classes over the last hour and the last day, in bounded memory.

use super::amount::Amount;
use super::{CacheUsage, DynGateway, cache};
use axum::Json;
use axum::extract::State;
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tidegate_access_log::rfc3339;
use tidegate_policy::{Timestamp, Units};

/// Samples of the last hour and the last day.
#[derive(Default)]
pub(super) struct History(Mutex<Spans>);

#[derive(Default)]
struct Spans {
    hour: Samples,
    day: Samples,
}

/// Samples of one span, oldest first.
#[derive(Default)]
struct Samples(VecDeque<Sample>);

/// State at one time.
#[derive(Clone, Debug)]
struct Sample {
    at: Timestamp,
    quotas: Vec<QuotaSample>,
    classes: Vec<ClassSample>,
    cache: Option<CacheSample>,
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

/// The history as JSON.
#[derive(Debug, Serialize)]
pub(super) struct HistoryDocument {
    hour: Vec<SampleDocument>,
    day: Vec<SampleDocument>,
}

#[derive(Debug, Serialize)]
struct SampleDocument {
    time: String,
    quotas: Vec<QuotaSample>,
    classes: Vec<ClassSample>,
    cache: Option<CacheSample>,
}

impl History {
    /// Adds a sample of the current state to each span that is due for one.
    pub(super) fn sample(&self, gateway: &DynGateway) {
        let now = gateway.now();
        let mut spans = self.0.lock();
        let Spans { hour, day } = &mut *spans;
        let (is_hour_due, is_day_due) = (hour.is_due(now, HOUR), day.is_due(now, DAY));
        if !is_hour_due && !is_day_due {
            return;
        }
        let sample = Sample::of(gateway, now);
        if is_hour_due {
            hour.push(sample.clone(), HOUR);
        }
        if is_day_due {
            day.push(sample, DAY);
        }
    }
}

/// Returns the samples of the last hour and the last day.
pub(super) async fn show(State(history): State<Arc<History>>) -> Json<HistoryDocument> {
    let spans = history.0.lock();
    let documents = |samples: &Samples| samples.0.iter().map(Sample::document).collect();
    Json(HistoryDocument { hour: documents(&spans.hour), day: documents(&spans.day) })
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
        let count = |counts: &[(_, u64)]| counts.iter().map(|(_, count)| count).sum();
        let quotas = gateway.quotas().into_iter().map(|quota| QuotaSample {
            name: quota.name,
            used: quota.used.into(),
            limit: quota.limit.into(),
            planned: quota.plan.map(|plan| plan.planned.into()),
        });
        let classes = gateway.class_traffic().into_iter().map(|class| ClassSample {
            name: class.class,
            admitted: class.admitted,
            refused: count(&class.refused),
            shadow_refused: count(&class.shadow),
        });
        let cache = gateway.cache_usage().as_ref().map(CacheSample::of);
        Self { at, quotas: quotas.collect(), classes: classes.collect(), cache }
    }

    fn document(&self) -> SampleDocument {
        let (quotas, classes, cache) = (self.quotas.clone(), self.classes.clone(), self.cache.clone());
        SampleDocument { time: rfc3339(self.at), quotas, classes, cache }
    }
}

impl CacheSample {
    fn of(usage: &CacheUsage) -> Self {
        let (requests, answered) = cache::answered(usage);
        let mut saved = BTreeMap::<String, Units>::new();
        for (quota, _, units) in &usage.saved {
            let total = saved.entry(quota.clone()).or_default();
            *total = total.saturating_add(*units);
        }
        Self { requests, answered, saved: saved.into_iter().map(|(quota, units)| (quota, units.into())).collect() }
    }
}

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Maximum number of intervals between the samples of a span: one in 10 s of the hour, one in 4 min of the day.
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
                samples.push(Sample { at: at(second), quotas: Vec::new(), classes: Vec::new(), cache: None }, HOUR);
            }
        }
        let times: Vec<u64> = samples.0.iter().map(|sample| sample.at.seconds()).collect();
        assert_eq!((times.len(), times[0], times[1], times[360]), (361, 7190, 7200, 10_790));
        assert!(!samples.is_due(at(9), HOUR), "a clock that goes back adds nothing");
        samples.push(Sample { at: at(20_000), quotas: Vec::new(), classes: Vec::new(), cache: None }, HOUR);
        assert_eq!(samples.0.len(), 1, "after a pause of hours, only what is recent is left");
    }
}
