//! Prometheus exporter: adds up the counters of all workers and reads the state of the engine.

use super::counters::WorkerCounters;
use super::exposition::Exposition;
use super::handshake_result::HandshakeResult;
use super::metrics::*;
use super::panics::panic_count;
use super::status_class::StatusClass;
use super::{AcmeView, CertificateView, ConfiguredView};
use metrics::{Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use tidegate_engine::{Admission, QuotaView, ScopeState};
use tidegate_http_cache::CacheResult;
use tidegate_policy::bot_detection::Signal;
use tidegate_policy::{ClientKind, Reason, Units};

/// Whole counters and plain gauges, stored by the exporter library. A process may have several exporters; none is
/// installed globally.
///
/// Histograms do not pass through it, so it does not grow between scrapes and needs no upkeep.
pub(super) struct Exporter {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
}

impl Exporter {
    pub(super) fn new() -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        for metric in METRICS {
            match metric.kind {
                MetricKind::Counter => recorder.describe_counter(metric.name.into(), None, metric.help.into()),
                MetricKind::Gauge => recorder.describe_gauge(metric.name.into(), None, metric.help.into()),
                MetricKind::Histogram => {}
            }
        }
        let handle = recorder.handle();
        Self { recorder, handle }
    }

    /// Sets a counter to its total.
    pub(super) fn count(&self, metric: Metric, labels: &[&str], total: u64) {
        self.recorder.register_counter(&key(metric, labels), &METADATA).absolute(total);
    }

    /// Adds one to a counter.
    pub(super) fn add_one(&self, metric: Metric, labels: &[&str]) {
        self.recorder.register_counter(&key(metric, labels), &METADATA).increment(1);
    }

    /// Sets a gauge.
    pub(super) fn gauge(&self, metric: Metric, labels: &[&str], value: f64) {
        self.recorder.register_gauge(&key(metric, labels), &METADATA).set(value);
    }

    /// Returns the exposition: all values set so far, `counters`, and the state of the engine. `operators` are names by
    /// operator id.
    pub(super) fn render(
        &self,
        counters: &WorkerCounters,
        admission: &Admission,
        quotas: &[QuotaView],
        scopes: &[ScopeState],
        configured: &ConfiguredView<'_>,
    ) -> String {
        self.count_requests(counters);
        self.count_connections_and_kinds(counters);
        let engine = admission.engine();
        self.gauge(BOT_DETECTION_CLIENTS, &[], admission.tracked_profiles() as f64);
        self.gauge(CLIENTS_TRACKED, &[], engine.clients_tracked() as f64);
        self.count(CLIENTS_EVICTED, &[], engine.clients_evicted());
        let mut text = Exposition::with_families(&self.handle.render());
        for metric in METRICS {
            text.family(*metric);
        }
        write_workers(&mut text, counters);
        scopes.iter().for_each(|scope| write_scope(&mut text, scope));
        quotas.iter().for_each(|quota| write_quota(&mut text, quota));
        for (operator, span) in engine.longest_refusals() {
            if let Some(name) = configured.operators.get(operator.index()) {
                text.sample(LONGEST_REFUSAL, &[name], span.as_secs());
            }
        }
        for list in &configured.lists {
            text.sample(ADDRESS_LIST_NETWORKS, &[&list.name], list.networks);
            text.sample(ADDRESS_LIST_STALE, &[&list.name], u8::from(list.is_stale));
        }
        for (operator, count) in &configured.stale_ranges {
            text.sample(OPERATOR_RANGES_STALE, &[operator], count);
        }
        for (url, is_up) in &configured.origin_servers {
            text.sample(ORIGIN_SERVER_UP, &[url], u8::from(*is_up));
        }
        for CertificateView { domain, expires_at, is_stale } in &configured.certificates {
            text.sample(CERTIFICATE_EXPIRY, &[domain], expires_at);
            text.sample(CERTIFICATE_STALE, &[domain], u8::from(*is_stale));
        }
        for AcmeView { domain, failures } in &configured.acme {
            text.sample(ACME_FAILURES, &[domain], failures);
        }
        text.finish()
    }

    fn count_requests(&self, counters: &WorkerCounters) {
        for (class, counts) in counters.classes.iter() {
            self.count(REQUESTS, &[class, "admitted", ""], counts.admitted);
            for (reason, (&refused, &shadow)) in Reason::ALL.iter().zip(counts.refused.iter().zip(&counts.shadow)) {
                self.count(REQUESTS, &[class, "refused", reason.name()], refused);
                self.count(SHADOW_REFUSALS, &[class, reason.name()], shadow);
            }
            self.count_codes(class, &counts.codes);
        }
        for (kind, [admitted, refused]) in ClientKind::ALL.iter().zip(counters.kinds) {
            self.count(REQUESTS_BY_KIND, &[kind.name(), "admitted"], admitted);
            self.count(REQUESTS_BY_KIND, &[kind.name(), "refused"], refused);
        }
        for (signal, &count) in Signal::ALL.iter().zip(&counters.signals) {
            self.count(SUSPECTED, &[signal.name()], count);
        }
        for (result, &count) in CacheResult::ALL.iter().zip(&counters.cache) {
            self.count(CACHE_REQUESTS, &[result.name()], count);
        }
        self.count_codes("", &counters.unclassified);
    }

    fn count_codes(&self, class: &str, codes: &[u64]) {
        for (code, &count) in StatusClass::NAMES.iter().zip(codes) {
            self.count(RESPONSES, &[class, code], count);
        }
    }

    fn count_connections_and_kinds(&self, counters: &WorkerCounters) {
        for (scope, counts) in counters.scopes.iter() {
            for (code, &count) in StatusClass::NAMES.iter().zip(&counts.codes) {
                self.count(ORIGIN_REQUESTS, &[scope, code], count);
            }
        }
        for (operator, counts) in counters.operators.iter() {
            self.count(VERIFICATIONS, &[operator, "ranges", "verified"], counts.verified);
            self.count(VERIFICATIONS, &[operator, "ranges", "impostor"], counts.impostor);
            for (result, &count) in ["verified", "invalid", "unknown"].iter().zip(&counts.signed) {
                self.count(VERIFICATIONS, &[operator, "signature", result], count);
            }
        }
        self.count(PANICS, &[], panic_count());
        self.gauge(CONNECTIONS, &[], counters.connections_open as f64);
        self.count(CONNECTIONS_REFUSED, &[], counters.connections_refused);
        for (result, &count) in HandshakeResult::ALL.iter().zip(&counters.handshakes) {
            self.count(TLS_HANDSHAKES, &[result.name()], count);
        }
        self.gauge(CONNECTION_MEMORY, &[], counters.connection_memory as f64);
        self.count(CONNECTIONS_SHED, &[], counters.connections_shed);
    }
}

fn write_workers(text: &mut Exposition, counters: &WorkerCounters) {
    for (class, counts) in counters.classes.iter() {
        text.histogram(REQUEST_DURATION, &[class, "admitted"], &counts.admitted_duration);
        text.histogram(REQUEST_DURATION, &[class, "refused"], &counts.refused_duration);
    }
    for (scope, counts) in counters.scopes.iter() {
        text.histogram(ORIGIN_REQUEST_DURATION, &[scope], &counts.duration);
        text.sample(ORIGIN_INFLIGHT, &[scope], counts.inflight);
    }
    for (class, counts) in counters.classes.iter() {
        for (quota, units) in counts.saved.iter() {
            text.sample(QUOTA_SAVED, &[quota, class], units);
        }
        for (quota, units) in counts.refreshed.iter() {
            text.sample(CACHE_REFRESHED, &[quota, class], units);
        }
        // From zero on, so that a rate shows the first refresh.
        let is_refreshed = |quota: &str| counts.refreshed.iter().any(|(refreshed, _)| refreshed == quota);
        for (quota, _) in counts.saved.iter().filter(|(quota, _)| !is_refreshed(quota)) {
            text.sample(CACHE_REFRESHED, &[quota, class], Units::ZERO);
        }
    }
    for (route, units) in counters.unexpected_costs.iter() {
        text.sample(UNEXPECTED_COST, &[route], units);
    }
}

fn write_scope(text: &mut Exposition, scope: &ScopeState) {
    let labels: &[&str] = &[&scope.name];
    if let Some(limit) = scope.limit {
        text.sample(ORIGIN_CONCURRENCY_LIMIT, labels, limit);
    }
    text.sample(ORIGIN_DELAY, labels, scope.delay.as_secs_f64());
    text.sample(ORIGIN_BACKOFF, labels, scope.backoff_remaining.as_secs_f64());
    text.sample(ORIGIN_BACKOFF_PARTS, labels, scope.backoff_parts);
    text.sample(QUEUE_LENGTH, labels, scope.queue_length);
    if let Some(partitions) = scope.partitions {
        text.sample(SCOPE_PARTITIONS, labels, partitions);
    }
}

fn write_quota(text: &mut Exposition, quota: &QuotaView) {
    let labels: &[&str] = &[&quota.name];
    text.sample(QUOTA_LIMIT, labels, quota.limit);
    text.sample(QUOTA_ENFORCED, labels, u8::from(quota.enforce));
    text.sample(QUOTA_USED, labels, quota.used);
    text.sample(QUOTA_RESERVED, labels, quota.reserved);
    text.sample(QUOTA_WINDOW_START, labels, quota.window_start.seconds());
    text.sample(QUOTA_WINDOW_END, labels, quota.window_end.seconds());
    text.sample(QUOTA_LOST, labels, quota.lost);
    text.sample(QUOTA_DRIFT, labels, quota.drift as f64 / 1000.0);
    text.sample(QUOTA_OVERRUN, labels, quota.overrun);
    text.sample(QUOTA_IMPLAUSIBLE_COSTS, labels, quota.implausible_costs);
    if let Some(plan) = quota.plan {
        text.sample(PACING_PLANNED, labels, plan.planned);
        text.sample(PACING_EARMARKED, labels, plan.earmarked);
    }
    for class in &quota.by_class {
        let labels: &[&str] = &[&quota.name, &class.class];
        if let Some(share) = class.plan.as_ref().and_then(|plan| plan.admit_share) {
            text.sample(PACING_ADMIT_RATIO, labels, share.ratio());
        }
        text.sample(QUOTA_CHARGED, labels, class.charged);
        text.sample(QUOTA_GUARD_UNITS, labels, class.guard_admitted);
        text.sample(TIER_SHED, labels, class.shed_share.ratio());
    }
}

fn key(metric: Metric, values: &[&str]) -> Key {
    let labels: Vec<Label> =
        metric.labels.iter().zip(values).map(|(&label, &value)| Label::new(label, value.to_owned())).collect();
    Key::from_parts(metric.name, labels)
}

const METADATA: Metadata<'static> = Metadata::new("tidegate", Level::INFO, None);
