//! METRICS.md, from the table of metrics.

use super::admin_api::busy_gateway;
use super::assert_current;
use super::markdown::table;
use std::collections::BTreeSet;
use tidegate::telemetry::metrics::{LABELS, METRICS, MetricKind};

#[test]
fn metrics_document_is_current() {
    let code = |text: &str| format!("`{text}`");
    let list = |texts: &[&str]| texts.iter().map(|text| code(text)).collect::<Vec<_>>().join(", ");
    let metrics = METRICS
        .iter()
        .map(|metric| [code(metric.name), metric.kind.name().to_owned(), list(metric.labels), metric.help.to_owned()]);
    let labels = LABELS.iter().map(|label| {
        let values = (label.values)();
        let values = values.iter().map(|value| if value.is_empty() { "(empty)".to_owned() } else { code(value) });
        [code(label.name), label.meaning.to_owned(), values.collect::<Vec<_>>().join(", ")]
    });
    let text = INTRODUCTION.to_owned()
        + &table(["Metric", "Type", "Labels", "Meaning"], metrics)
        + "## Labels\n\n"
        + &table(["Label", "Meaning", "Values"], labels)
        + VALUES;
    assert_current("METRICS.md", "Metrics", &text);
}

#[test]
fn exported_series_have_documented_names_and_labels() {
    let (gateway, _) = busy_gateway();
    for series in gateway.metrics().keys() {
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let is_histogram =
            |name: &&str| METRICS.iter().any(|metric| metric.name == *name && metric.kind == MetricKind::Histogram);
        let parts = ["_bucket", "_sum", "_count"];
        let base = parts.iter().find_map(|suffix| name.strip_suffix(suffix).filter(is_histogram)).unwrap_or(name);
        let metric =
            METRICS.iter().find(|metric| metric.name == base).unwrap_or_else(|| panic!("undocumented {series}"));
        let mut names = Vec::new();
        for (label, value) in labels.trim_end_matches('}').split("\",").filter_map(|pair| pair.split_once("=\"")) {
            if label == "le" {
                continue;
            }
            names.push(label);
            let value = value.trim_end_matches('"');
            let documented =
                LABELS.iter().find(|documented| documented.name == label).unwrap_or_else(|| panic!("label {label}"));
            let values = (documented.values)();
            assert!(values.is_empty() || values.contains(&value), "{series}: {values:?}");
        }
        assert!(metric.has_labels(names), "{series}");
    }
}

#[test]
fn labels_of_metrics_are_documented() {
    let used: BTreeSet<&str> = METRICS.iter().flat_map(|metric| metric.labels.iter().copied()).collect();
    let documented: BTreeSet<&str> = LABELS.iter().map(|label| label.name).collect();
    assert_eq!(used, documented);
}

const INTRODUCTION: &str = "\
`GET /metrics` of the [admin listener](ADMIN_API.md) returns these metrics in the Prometheus text format. Quantities are
in units of the quota, times in seconds. Counters start at 0 with the process. A histogram has the series `_bucket`,
`_sum` and `_count`. Dashboard and alert rules are in `grafana/`.

";

const VALUES: &str = "\
Values of labels come from the configuration or from closed lists, never from a request. The [access log](ACCESS_LOG.md)
describes the values of `verdict`, `reason` and `kind`, [Classification](../CLASSIFICATION.md#behavior) those of `signal`.
";
