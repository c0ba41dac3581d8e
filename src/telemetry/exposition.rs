//! Prometheus text format 0.0.4 for metrics that the exporter library cannot hold: histograms counted by the workers,
//! counters of fractions, and series that disappear when a reload removes their quota.

use super::histogram::Histogram;
use super::metrics::Metric;
use std::fmt::{Display, Write};

/// Text of an exposition.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
}

/// A metric family to which samples are added.
pub(super) struct Family<'a> {
    text: &'a mut String,
    metric: Metric,
}

impl Exposition {
    /// Creates an exposition that continues after `text`.
    pub(super) fn appending_to(text: String) -> Self {
        Self { text }
    }

    /// Starts a family. All its samples follow without a gap.
    pub(super) fn family(&mut self, metric: Metric) -> Family<'_> {
        let Metric { name, help, kind: form, .. } = metric;
        put(&mut self.text, format_args!("# HELP {name} {help}\n# TYPE {name} {}\n", form.name()));
        Family { text: &mut self.text, metric }
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

impl Family<'_> {
    /// Adds one sample. `labels` are the label values, in the order of the metric's label names.
    pub(super) fn sample(&mut self, labels: &[&str], value: impl Display) {
        self.line("", labels, None, value);
    }

    /// Adds one histogram.
    pub(super) fn histogram(&mut self, labels: &[&str], histogram: &Histogram) {
        for (bound, count) in histogram.cumulative() {
            self.line("_bucket", labels, Some(bound), count);
        }
        self.line("_sum", labels, None, histogram.sum_seconds());
        self.line("_count", labels, None, histogram.count());
    }

    fn line(&mut self, suffix: &str, labels: &[&str], bound: Option<&str>, value: impl Display) {
        put(self.text, format_args!("{}{suffix}", self.metric.name));
        let pairs = self.metric.labels.iter().copied().zip(labels.iter().copied()).chain(bound.map(|le| ("le", le)));
        let mut separator = '{';
        for (label, value) in pairs {
            put(self.text, format_args!("{separator}{label}=\"{}\"", EscapedLabel(value)));
            separator = ',';
        }
        let close = if separator == ',' { "}" } else { "" };
        put(self.text, format_args!("{close} {value}\n"));
    }
}

/// A label value. Backslash, quote and line feed are escaped.
struct EscapedLabel<'a>(&'a str);

impl Display for EscapedLabel<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '\\' => out.write_str("\\\\"),
            '"' => out.write_str("\\\""),
            '\n' => out.write_str("\\n"),
            _ => out.write_char(character),
        })
    }
}

fn put(text: &mut String, part: std::fmt::Arguments<'_>) {
    text.write_fmt(part).expect("writing to a string cannot fail");
}
