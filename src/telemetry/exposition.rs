//! Prometheus text format 0.0.4, sorted by family. The families of the exporter library are merged with those that it
//! cannot hold: histograms counted by the workers, counters of fractions, series that disappear when a reload removes
//! their quota, and families without series.

use super::histogram::Histogram;
use super::metrics::Metric;
use std::collections::BTreeMap;
use std::fmt::{Display, Write};

/// Families of an exposition, by name. Samples can be added in any order.
#[derive(Debug)]
pub(super) struct Exposition(BTreeMap<String, String>);

impl Exposition {
    /// Creates an exposition with the families of `rendered`, the text of the exporter library.
    pub(super) fn with_families(rendered: &str) -> Self {
        let families = rendered.split_terminator("\n\n").filter_map(|family| {
            let name = family.strip_prefix("# HELP ")?.split(' ').next()?;
            Some((name.to_owned(), format!("{family}\n")))
        });
        Self(families.collect())
    }

    /// Returns the text of a family; adds the family if it is new.
    pub(super) fn family(&mut self, metric: Metric) -> &mut String {
        let Metric { name, help, kind, .. } = metric;
        let header = || format!("# HELP {name} {help}\n# TYPE {name} {}\n", kind.name());
        self.0.entry(name.to_owned()).or_insert_with(header)
    }

    /// Adds one sample. `labels` are the label values, in the order of the metric's label names.
    pub(super) fn sample(&mut self, metric: Metric, labels: &[&str], value: impl Display) {
        self.line(metric, "", labels, None, value);
    }

    /// Adds one histogram.
    pub(super) fn histogram(&mut self, metric: Metric, labels: &[&str], histogram: &Histogram) {
        for (bound, count) in histogram.cumulative() {
            self.line(metric, "_bucket", labels, Some(bound), count);
        }
        self.line(metric, "_sum", labels, None, histogram.sum_seconds());
        self.line(metric, "_count", labels, None, histogram.count());
    }

    /// Returns the text.
    pub(super) fn finish(self) -> String {
        self.0.into_values().collect()
    }

    fn line(&mut self, metric: Metric, suffix: &str, labels: &[&str], bound: Option<&str>, value: impl Display) {
        let text = self.family(metric);
        put(text, format_args!("{}{suffix}", metric.name));
        let pairs = metric.labels.iter().copied().zip(labels.iter().copied()).chain(bound.map(|le| ("le", le)));
        let mut separator = '{';
        for (label, value) in pairs {
            put(text, format_args!("{separator}{label}=\"{}\"", EscapedLabel(value)));
            separator = ',';
        }
        let close = if separator == ',' { "}" } else { "" };
        put(text, format_args!("{close} {value}\n"));
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
