use super::metrics::{METRICS, Metric, MetricKind, QUOTA_LIMIT, VERIFICATIONS};
use super::*;
use std::collections::{BTreeMap, BTreeSet};
use tidegate_access_log::RecordedOutcome;
use tidegate_access_log::sample::{sample_record, sample_with};
use tidegate_config::settings::AccessLogFormat;
use tidegate_policy::throttle::Scope;
use tidegate_policy::{Reason, RouteId, fixtures};

const NOW: Timestamp = Timestamp::from_seconds(1_795_252_443);

#[test]
fn every_series_is_unique_with_help_and_type() {
    let fixture = TelemetryFixture::new();
    fixture.worker.record(&sample_record());
    let scraped = ParsedMetrics::parse_text(&fixture.scrape());
    for metric in METRICS {
        assert!(scraped.families.contains(metric.name), "{} is not exported", metric.name);
    }
    assert_eq!(scraped.families.len(), METRICS.len(), "unknown families are exported");
}

#[test]
fn configured_series_exist_before_the_first_request() {
    let scraped = ParsedMetrics::parse_text(&TelemetryFixture::new().scrape());
    for series in [
        r#"tidegate_requests_total{class="odd \"name\"",verdict="refused",reason="tier"}"#,
        r#"tidegate_requests_by_kind_total{kind="human",verdict="refused"}"#,
        r#"tidegate_responses_total{class="person",code="429"}"#,
        r#"tidegate_request_duration_seconds_count{class="person",verdict="admitted"}"#,
        r#"tidegate_origin_requests_total{scope="default",code="5xx"}"#,
        r#"tidegate_verifications_total{operator="bingbot",method="ranges",result="impostor"}"#,
        "tidegate_access_log_dropped_lines_total",
    ] {
        assert_eq!(scraped.samples.get(series), Some(&0.0), "{series}");
    }
}

#[test]
fn responses_are_counted_by_class_and_route() {
    let fixture = TelemetryFixture::new();
    let other = fixture.telemetry.worker();
    fixture.worker.record(&sample_record());
    fixture.worker.response_without_class(400);
    other.record(&sample_record());
    other.record(&sample_with(|it| {
        it.decision.route = RouteId(0);
        it.decision.route_name = "/search";
        it.decision.outcome = RecordedOutcome::Refused(Reason::Tier);
        it.response.status = 429;
        it.response.bytes = 80;
    }));
    let telemetry = &fixture.telemetry;
    let routes = telemetry.route_traffic(9);
    let counts: Vec<_> = routes.iter().map(|it| (&*it.route, it.admitted, it.refused, it.responses.bytes)).collect();
    assert_eq!(counts, [("/item/*", 2, 0, 10_240), ("/search", 0, 1, 80)]);
    assert_eq!(routes[1].responses.statuses, [("429", 1)]);
    assert_eq!(routes[1].responses.latency.count(), 0, "a refusal has no latency");
    assert_eq!(telemetry.route_traffic(1).len(), 1, "the busiest only");
    let all = telemetry.all_responses();
    assert_eq!((all.statuses, all.bytes), (vec![("2xx", 2), ("4xx", 1), ("429", 1)], 10_320));
    let person = telemetry.class_traffic().into_iter().find(|it| it.class == "person").expect("a class");
    assert_eq!((person.responses.bytes, person.responses.latency.count()), (10_320, 2));
}

#[test]
fn scrape_sums_all_workers() {
    let fixture = TelemetryFixture::new();
    let other = fixture.telemetry.worker();
    fixture.worker.record(&sample_record());
    fixture.worker.connection_opened();
    other.connection_opened();
    other.upstream_started(&[], sample_record().names);
    fixture.scrape();
    other.record(&sample_record());
    other.record(&sample_with(|it| {
        it.decision.outcome = RecordedOutcome::Refused(Reason::Bucket);
        it.response.status = 429;
        it.response.origin = None;
    }));
    other.record(&sample_with(|it| {
        it.decision.outcome = RecordedOutcome::Admitted { shadow_reason: Some(Reason::Tier) };
        it.response.origin = None;
    }));
    other.response_without_class(400);
    assert!(fixture.telemetry.origin_inflight().contains(&("default".to_owned(), 1)));
    let scraped = ParsedMetrics::parse_text(&fixture.scrape());
    for (series, value) in [
        (r#"tidegate_requests_total{class="person",verdict="admitted",reason=""}"#, 3.0),
        (r#"tidegate_requests_total{class="person",verdict="refused",reason="bucket"}"#, 1.0),
        (r#"tidegate_requests_by_kind_total{kind="human",verdict="refused"}"#, 1.0),
        (r#"tidegate_shadow_refusals_total{class="person",reason="tier"}"#, 1.0),
        (r#"tidegate_responses_total{class="person",code="2xx"}"#, 3.0),
        (r#"tidegate_responses_total{class="person",code="429"}"#, 1.0),
        (r#"tidegate_responses_total{class="",code="4xx"}"#, 1.0),
        (r#"tidegate_request_duration_seconds_bucket{class="person",verdict="admitted",le="0.05"}"#, 3.0),
        (r#"tidegate_request_duration_seconds_bucket{class="person",verdict="admitted",le="0.025"}"#, 0.0),
        (r#"tidegate_origin_request_duration_seconds_count{scope="default"}"#, 2.0),
        (r#"tidegate_origin_inflight{scope="default"}"#, 1.0),
        ("tidegate_client_connections", 2.0),
    ] {
        assert_eq!(scraped.samples.get(series), Some(&value), "{series}");
    }
}

#[test]
fn events_remain_and_states_end_with_their_scrape() {
    let TelemetryFixture { telemetry, .. } = TelemetryFixture::new();
    let verified = r#"tidegate_verifications_total{operator="googlebot",method="dns",result="verified"}"#;
    let limit = r#"tidegate_quota_limit{quota="places_api"}"#;
    telemetry.record(|| {
        counter!(VERIFICATIONS, "operator" => "googlebot", "method" => "dns", "result" => "verified").increment(1);
    });
    let scraped = telemetry.scrape(|| gauge!(QUOTA_LIMIT, "quota" => "places_api").set(100));
    let scraped = ParsedMetrics::parse_text(&scraped);
    assert_eq!((scraped.samples[verified], scraped.samples[limit]), (1.0, 100.0));
    let scraped = ParsedMetrics::parse_text(&telemetry.scrape(|| ()));
    assert_eq!((scraped.samples[verified], scraped.samples.get(limit)), (1.0, None));
}

#[test]
fn failed_reload_is_exported_until_success() {
    let fixture = TelemetryFixture::new();
    let successful = || ParsedMetrics::parse_text(&fixture.scrape()).samples["tidegate_config_last_reload_successful"];
    assert_eq!(successful(), 1.0);
    fixture.telemetry.reload_failed();
    assert_eq!(successful(), 0.0);
    fixture.telemetry.config_loaded(&rules(), &[], NOW);
    assert_eq!(successful(), 1.0);
}

#[test]
fn decision_is_found_on_any_worker() {
    let fixture = TelemetryFixture::new();
    let other = fixture.telemetry.worker();
    other.record(&sample_with(|it| it.id = 0xbeef));
    let line = fixture.telemetry.decision(0xbeef).expect("remembered");
    let line: serde_json::Value = serde_json::from_slice(&line).expect("JSON");
    assert_eq!(line["id"], "000000000000beef");
    assert_eq!(fixture.telemetry.decision(0xdead), None);
}

#[test]
fn close_flushes_all_workers() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("access.log");
    let log = AccessLog::start(LogTarget::File(path.clone(), None, AccessLogFormat::Json)).expect("the log starts");
    let telemetry = Telemetry::new(Some(log), ("1.0.0", "abc"), NOW);
    let workers = [telemetry.worker(), telemetry.worker()];
    workers.iter().for_each(|worker| worker.record(&sample_record()));
    assert!(telemetry.close(Duration::from_secs(20)));
    assert_eq!(std::fs::read_to_string(path).expect("the log").lines().count(), 2);
}

#[test]
fn combined_log_leaves_decisions_explainable() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("access.log");
    let log = AccessLog::start(LogTarget::File(path.clone(), None, AccessLogFormat::Combined)).expect("the log starts");
    let telemetry = Telemetry::new(Some(log), ("1.0.0", "abc"), NOW);
    let worker = telemetry.worker();
    let records = [1, 2].map(|id| {
        sample_with(|it| {
            it.id = id;
            it.request.user_agent = b"a \"b\"";
        })
    });
    records.iter().for_each(|record| worker.record(record));
    let line: serde_json::Value =
        serde_json::from_slice(&telemetry.decision(2).expect("remembered")).expect("JSON of one decision");
    assert_eq!(line["id"], "0000000000000002");
    assert!(telemetry.close(Duration::from_secs(20)));
    let text = std::fs::read_to_string(path).expect("the log");
    assert_eq!(text.lines().count(), 2);
    for line in text.lines() {
        assert!(line.ends_with(r#" "a \x22b\x22""#), "{line}");
    }
}

struct TelemetryFixture {
    telemetry: Telemetry,
    worker: WorkerTelemetry,
}

impl TelemetryFixture {
    fn new() -> Self {
        let telemetry = Telemetry::new(None, ("1.0.0", "abc"), NOW);
        telemetry.config_loaded(&rules(), &["googlebot", "bingbot"], NOW);
        let worker = telemetry.worker();
        Self { telemetry, worker }
    }

    fn scrape(&self) -> String {
        self.telemetry.scrape(|| ())
    }
}

fn rules() -> Rules {
    Rules {
        classes: vec![fixtures::class("odd \"name\""), fixtures::class("person")],
        quotas: vec![fixtures::quota("places_api", 100)],
        scopes: vec![Scope::unthrottled("search_backend")],
        ..fixtures::rules()
    }
}

/// An exposition, parsed as strictly as Prometheus does.
struct ParsedMetrics {
    families: BTreeSet<String>,
    samples: BTreeMap<String, f64>,
}

impl ParsedMetrics {
    fn parse_text(text: &str) -> Self {
        let (mut families, mut samples) = (BTreeSet::new(), BTreeMap::new());
        let (mut described, mut metric): (Option<&str>, Option<&Metric>) = (None, None);
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(help) = line.strip_prefix("# HELP ") {
                described = help.split_once(' ').map(|(name, _)| name);
            } else if let Some(family) = line.strip_prefix("# TYPE ") {
                let (name, form) = family.split_once(' ').expect("a name and a type");
                assert_eq!(described, Some(name), "HELP must precede TYPE");
                assert!(families.insert(name.to_owned()), "duplicate family {name}");
                metric = METRICS.iter().find(|metric| metric.name == name);
                assert_eq!(metric.map(|metric| metric.kind.name()), Some(form), "{name}");
            } else {
                let (series, value) = line.rsplit_once(' ').expect("a series and a value");
                check_sample(metric.expect("a TYPE line precedes"), series);
                let value = value.parse().expect("a number");
                assert_eq!(samples.insert(series.to_owned(), value), None, "duplicate series {series}");
            }
        }
        assert!(text.ends_with('\n'));
        Self { families, samples }
    }
}

fn check_sample(metric: &Metric, series: &str) {
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let suffix = name.strip_prefix(metric.name).expect("a sample of the current family");
    let labels: Vec<&str> =
        labels.split("\",").filter_map(|pair| pair.split_once("=\"")).map(|(name, _)| name).collect();
    let labels = match (metric.kind, suffix) {
        (MetricKind::Histogram, "_bucket") => labels.strip_suffix(&["le"]).expect("a bucket has a bound"),
        (MetricKind::Histogram, "_sum" | "_count") => &labels,
        (MetricKind::Counter | MetricKind::UnitCounter | MetricKind::Gauge, "") => &labels,
        _ => panic!("{series} does not belong to {}", metric.name),
    };
    assert!(metric.has_labels(labels.iter().copied()), "{series}");
}
