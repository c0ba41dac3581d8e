//! Registry of the metrics: the recorder behind the macros of the crate `metrics`, and the only writer of the exposition.

use super::histogram::Histogram;
use super::metrics::{METRICS, Metric, MetricKind};
use metrics::atomics::AtomicU64;
use metrics::{Counter, Gauge, HistogramFn, Key, KeyName, Label, Metadata, Recorder, SharedString, Unit};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidegate_policy::Units;

/// Series of all metrics by name. Each gateway has its own; none is installed globally. `Display` writes them in the
/// Prometheus text format 0.0.4, sorted, with the metrics that have no series.
#[derive(Debug)]
pub(super) struct Registry(Mutex<BTreeMap<&'static str, MetricFamily>>);

/// A metric with its series by their labels, as they are written.
#[derive(Clone, Debug)]
struct MetricFamily {
    metric: &'static Metric,
    series: BTreeMap<String, Series>,
}

/// Value of a series, shared with the handles that record it.
#[derive(Clone, Debug)]
enum Series {
    Counter(Arc<AtomicU64>),
    /// Bits of a float.
    Gauge(Arc<AtomicU64>),
    Histogram(Arc<SharedHistogram>),
}

#[derive(Debug, Default)]
struct SharedHistogram(Mutex<Histogram>);

impl Registry {
    /// Returns a registry with the series of this one. Series that are added to one of them are not in the other.
    pub(super) fn child(&self) -> Self {
        Self(Mutex::new(self.0.lock().clone()))
    }

    /// Adds samples that a worker has counted to a histogram.
    pub(super) fn add_samples(&self, key: &Key, samples: &Histogram) {
        self.histogram(key).0.lock().merge(samples);
    }

    fn histogram(&self, key: &Key) -> Arc<SharedHistogram> {
        match self.series(key) {
            Series::Histogram(histogram) => histogram,
            _ => panic!("{} is not a histogram", key.name()),
        }
    }

    /// Returns the series of `key`; adds it if it is new.
    fn series(&self, key: &Key) -> Series {
        let mut families = self.0.lock();
        let MetricFamily { metric, series } =
            families.get_mut(key.name()).expect("METRICS has the names of all metrics");
        debug_assert!(metric.has_labels(key.labels().map(Label::key)), "labels of {key}");
        series.entry(label_list(key)).or_insert_with(|| Series::new(metric.kind)).clone()
    }
}

impl Default for Registry {
    fn default() -> Self {
        let families = METRICS.iter().map(|metric| (metric.name, MetricFamily { metric, series: BTreeMap::new() }));
        Self(Mutex::new(families.collect()))
    }
}

impl Recorder for Registry {
    // METRICS describes the metrics.
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match self.series(key) {
            Series::Counter(total) => Counter::from_arc(total),
            _ => panic!("{} is not a counter", key.name()),
        }
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        match self.series(key) {
            Series::Gauge(bits) => Gauge::from_arc(bits),
            _ => panic!("{} is not a gauge", key.name()),
        }
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> metrics::Histogram {
        metrics::Histogram::from_arc(self.histogram(key))
    }
}

impl HistogramFn for SharedHistogram {
    fn record(&self, seconds: f64) {
        self.0.lock().record(Duration::try_from_secs_f64(seconds).unwrap_or_default());
    }
}

impl Series {
    fn new(kind: MetricKind) -> Self {
        match kind {
            MetricKind::Counter | MetricKind::UnitCounter => Self::Counter(Arc::default()),
            MetricKind::Gauge => Self::Gauge(Arc::default()),
            MetricKind::Histogram => Self::Histogram(Arc::default()),
        }
    }
}

impl Display for Registry {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        self.0.lock().values().try_for_each(|family| family.fmt(out))
    }
}

impl Display for MetricFamily {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        let Metric { name, help, kind, .. } = self.metric;
        writeln!(out, "# HELP {name} {help}\n# TYPE {name} {}", kind.name())?;
        for (labels, series) in &self.series {
            match series {
                Series::Counter(milli) if *kind == MetricKind::UnitCounter => {
                    write_sample(out, name, labels, Units::from_milli(milli.load(Ordering::Relaxed)))?;
                }
                Series::Counter(total) => write_sample(out, name, labels, total.load(Ordering::Relaxed))?,
                Series::Gauge(bits) => write_sample(out, name, labels, f64::from_bits(bits.load(Ordering::Relaxed)))?,
                Series::Histogram(histogram) => write_histogram(out, name, labels, &histogram.0.lock())?,
            }
        }
        Ok(())
    }
}

fn write_histogram(out: &mut Formatter<'_>, name: &str, labels: &str, histogram: &Histogram) -> Result {
    for (bound, count) in histogram.cumulative() {
        let separator = if labels.is_empty() { "" } else { "," };
        write_sample(out, &format!("{name}_bucket"), &format!("{labels}{separator}le=\"{bound}\""), count)?;
    }
    write_sample(out, &format!("{name}_sum"), labels, histogram.sum_seconds())?;
    write_sample(out, &format!("{name}_count"), labels, histogram.count())
}

fn write_sample(out: &mut Formatter<'_>, name: &str, labels: &str, value: impl Display) -> Result {
    match labels {
        "" => writeln!(out, "{name} {value}"),
        _ => writeln!(out, "{name}{{{labels}}} {value}"),
    }
}

/// Returns the labels as the exposition has them. Backslash, quote and line feed are escaped.
fn label_list(key: &Key) -> String {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs = key.labels().map(|label| format!("{}=\"{}\"", label.key(), escaped(label.value())));
    pairs.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::super::metrics::{PANICS, QUOTA_CHARGED, QUOTA_DRIFT, REQUEST_DURATION};
    use super::*;
    use metrics::{counter, gauge, histogram, with_local_recorder};

    #[test]
    fn macros_record_in_the_registry_of_the_thread() {
        let (registry, other) = (Registry::default(), Registry::default());
        with_local_recorder(&registry, || {
            counter!(PANICS).increment(2);
            counter!(PANICS).increment(1);
            gauge!(QUOTA_DRIFT, "quota" => "api").set(-0.25);
            histogram!(REQUEST_DURATION, "class" => "person", "verdict" => "admitted").record(Duration::from_millis(2));
        });
        let lines = samples(&registry);
        for line in [
            "tidegate_panics_total 3",
            r#"tidegate_quota_drift{quota="api"} -0.25"#,
            r#"tidegate_request_duration_seconds_bucket{class="person",verdict="admitted",le="0.001"} 0"#,
            r#"tidegate_request_duration_seconds_bucket{class="person",verdict="admitted",le="+Inf"} 1"#,
            r#"tidegate_request_duration_seconds_sum{class="person",verdict="admitted"} 0.002"#,
            r#"tidegate_request_duration_seconds_count{class="person",verdict="admitted"} 1"#,
        ] {
            assert!(lines.iter().any(|found| found == line), "{line}: {lines:?}");
        }
        assert!(samples(&other).is_empty());
    }

    #[test]
    fn units_keep_their_fractions_and_labels_are_escaped() {
        let registry = Registry::default();
        with_local_recorder(&registry, || {
            counter!(QUOTA_CHARGED, "quota" => "a\\b", "class" => "odd \"name\"\n").absolute(1250);
        });
        assert_eq!(samples(&registry), [r#"tidegate_quota_charged_total{quota="a\\b",class="odd \"name\"\n"} 1.25"#]);
    }

    #[test]
    fn child_shares_series_and_keeps_its_own() {
        let registry = Registry::default();
        with_local_recorder(&registry, || counter!(PANICS).increment(1));
        let child = registry.child();
        with_local_recorder(&child, || gauge!(QUOTA_DRIFT, "quota" => "api").set(1));
        with_local_recorder(&registry, || counter!(PANICS).increment(1));
        assert_eq!(samples(&child), ["tidegate_panics_total 2", r#"tidegate_quota_drift{quota="api"} 1"#]);
        assert_eq!(samples(&registry), ["tidegate_panics_total 2"]);
    }

    fn samples(registry: &Registry) -> Vec<String> {
        registry.to_string().lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }
}
