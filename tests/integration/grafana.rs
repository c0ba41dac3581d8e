//! The dashboard and the alert rules use only metrics that the gateway exports.

use serde_json::Value;
use std::collections::BTreeSet;
use tidegate::telemetry::metrics::{METRICS, Metric, MetricKind};
use tidegate_policy::bot_detection::Signal;
use tidegate_policy::{ClientKind, Reason};

const DASHBOARD: &str = include_str!("../../grafana/tidegate.json");
const ALERTS: &str = include_str!("../../grafana/alerts.yaml");

/// Labels that Prometheus adds to all scraped metrics.
const SCRAPE_LABELS: [&str; 2] = ["instance", "job"];

#[test]
fn dashboard_queries_only_existing_metrics_and_labels() {
    let dashboard = dashboard();
    let queries = strings_at(&dashboard, "expr");
    assert!(queries.len() > 30, "{} queries", queries.len());
    queries.iter().for_each(|query| check_query(query));
    let queried: BTreeSet<&str> =
        queries.iter().flat_map(|query| metric_selectors(query)).map(|(name, _)| find_metric(name).0.name).collect();
    let unused: Vec<&str> = METRICS.iter().map(|metric| metric.name).filter(|name| !queried.contains(name)).collect();
    assert_eq!(
        unused,
        ["tidegate_quota_window_start_timestamp_seconds"],
        "metrics missing in the dashboard shows all other metrics"
    );
}

#[test]
fn legends_use_labels_kept_by_query() {
    for target in objects_with(&dashboard(), "legendFormat") {
        let (query, legend) = (text(&target["expr"]), text(&target["legendFormat"]));
        let aggregated =
            query.starts_with("sum") || query.starts_with("min") || query.starts_with("histogram_quantile");
        let grouped = groupings(query);
        for label in legend.split("{{").skip(1).filter_map(|rest| rest.split_once("}}")).map(|(label, _)| label) {
            let is_known = metric_selectors(query).iter().any(|(name, _)| find_metric(name).0.labels.contains(&label))
                || label == "instance";
            assert!(is_known && (!aggregated || grouped.contains(label)), "{legend} of {query}");
        }
    }
}

#[test]
fn panels_have_titles_units_and_distinct_positions() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut cells = BTreeSet::new();
    for panel in panels {
        assert!(!text(&panel["title"]).is_empty());
        let position = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().expect("a number"));
        let [x, y, width, height] = position;
        assert!(x + width <= 24, "{}", panel["title"]);
        for cell in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
            assert!(cells.insert(cell), "panel {} overlaps anotherpanel", panel["title"]);
        }
        if panel["type"] != "row" {
            assert!(!text(&panel["fieldConfig"]["defaults"]["unit"]).is_empty(), "{}", panel["title"]);
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
        }
    }
}

#[test]
fn alerts_query_existing_metrics_and_describe_actions() {
    let alerts: Value = serde_saphyr::from_str(ALERTS).expect("the rules are YAML");
    let rules = alerts["groups"][0]["rules"].as_array().expect("rules");
    assert_eq!(rules.len(), 20);
    for rule in rules {
        check_query(text(&rule["expr"]));
        for value in [&rule["alert"], &rule["labels"]["severity"], &rule["annotations"]["summary"]] {
            assert!(!text(value).is_empty(), "{rule}");
        }
        assert!(
            text(&rule["annotations"]["description"]).len() > 50,
            "alert {} needs a description of what to do",
            rule["alert"]
        );
    }
}

#[test]
fn unknown_metric_names_or_labels_are_detected() {
    for query in [
        "tidegate_nothing_total",
        "tidegate_requests_total_bucket",
        "tidegate_request_duration_seconds",
        r#"tidegate_requests_total{tier="1"}"#,
        r#"tidegate_requests_total{verdict="rejected"}"#,
        r#"tidegate_requests_by_kind_total{kind="person"}"#,
        "sum by (tier) (tidegate_requests_total)",
    ] {
        assert!(std::panic::catch_unwind(|| check_query(query)).is_err(), "{query}");
    }
}

/// Checks metric names, labels, values of closed labels, and groupings of a query.
fn check_query(query: &str) {
    let selectors = metric_selectors(query);
    assert!(!selectors.is_empty(), "{query} queries no Tidegate metric");
    let mut labels: BTreeSet<&str> = SCRAPE_LABELS.into();
    for (name, selector) in selectors {
        let (metric, suffix) = find_metric(name);
        let metric_labels = metric.labels.iter().copied().chain((suffix == "_bucket").then_some("le"));
        labels.extend(metric_labels.clone());
        for (label, value) in matchers(selector) {
            assert!(
                metric_labels.clone().any(|allowed| allowed == label) || SCRAPE_LABELS.contains(&label),
                "{label} of {name}"
            );
            assert!(is_valid_label_value(label, value), "{label}={value} of {name}");
        }
    }
    for grouping in groupings(query) {
        assert!(labels.contains(grouping), "{grouping} in {query}");
    }
}

/// Returns the metric of a name, and the suffix of a histogram's name.
fn find_metric(name: &str) -> (&'static Metric, &str) {
    let is_match = |metric: &&Metric| match (metric.kind, name.strip_prefix(metric.name)) {
        (MetricKind::Histogram, Some(suffix)) => ["_bucket", "_sum", "_count"].contains(&suffix),
        (_, rest) => rest == Some(""),
    };
    let metric = METRICS.iter().find(is_match).unwrap_or_else(|| panic!("{name} is not exported"));
    (metric, &name[metric.name.len()..])
}

fn is_valid_label_value(label: &str, value: &str) -> bool {
    let valid: Vec<&str> = match label {
        "verdict" => vec!["admitted", "refused"],
        "window" => vec!["current", "last"],
        "kind" => ClientKind::ALL.map(ClientKind::name).to_vec(),
        "signal" => Signal::ALL.map(Signal::name).to_vec(),
        "reason" => Reason::ALL.map(Reason::name).to_vec(),
        "code" => vec!["1xx", "2xx", "3xx", "4xx", "429", "5xx", "503", "error"],
        _ => return true,
    };
    value.split('|').all(|value| valid.contains(&value))
}

/// Returns every Tidegate metric name in a query, with the selector in its braces.
fn metric_selectors(query: &str) -> Vec<(&str, &str)> {
    let starts = query.match_indices("tidegate_").map(|(start, _)| &query[start..]);
    starts
        .map(|rest| {
            let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(rest.len());
            let selector =
                rest[end..].strip_prefix('{').and_then(|inner| inner.split_once('}')).map_or("", |(inner, _)| inner);
            (&rest[..end], selector)
        })
        .collect()
}

fn matchers(selector: &str) -> impl Iterator<Item = (&str, &str)> {
    selector.split(',').filter_map(|matcher| {
        let (label, value) = matcher.split_once('=')?;
        Some((label.trim_end_matches('!'), value.trim_start_matches('~').trim_matches('"')))
    })
}

fn groupings(query: &str) -> BTreeSet<&str> {
    let groups = ["by (", "on ("].into_iter().flat_map(|word| query.split(word).skip(1));
    groups
        .filter_map(|rest| rest.split_once(')'))
        .flat_map(|(inner, _)| inner.split(", "))
        .filter(|label| !label.is_empty())
        .collect()
}

fn dashboard() -> Value {
    serde_json::from_str(DASHBOARD).expect("the dashboard is JSON")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a string"))
}

fn strings_at(value: &Value, key: &str) -> Vec<String> {
    objects_with(value, key).iter().map(|object| text(&object[key]).to_owned()).collect()
}

fn objects_with(value: &Value, key: &str) -> Vec<Value> {
    let inner = match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(members) => members.values().collect(),
        _ => Vec::new(),
    };
    let object = value.get(key).map(|_| value.clone());
    object.into_iter().chain(inner.into_iter().flat_map(|value| objects_with(value, key))).collect()
}
