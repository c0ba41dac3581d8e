//! Prometheus exporter: adds up the counters of all workers and reads the state of the engine.

use super::NetworkListsView;
use super::counters::{ClassCounters, WorkerCounters};
use super::exposition::Exposition;
use super::metrics::*;
use super::status_class::StatusClass;
use metrics::{Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use std::fmt::Display;
use tidegate_engine::{Admission, QuotaView, ScopeState};
use tidegate_policy::bot_detection::Signal;
use tidegate_policy::{ClientKind, Reason};

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
        operators: &[&str],
        lists: &NetworkListsView<'_>,
    ) -> String {
        self.count_requests(counters);
        self.count_connections_and_kinds(counters);
        let engine = admission.engine();
        self.gauge(BOT_DETECTION_CLIENTS, &[], admission.tracked_profiles() as f64);
        self.gauge(CLIENTS_TRACKED, &[], engine.clients_tracked() as f64);
        self.count(CLIENTS_EVICTED, &[], engine.clients_evicted());
        let mut text = Exposition::appending_to(self.handle.render());
        write_durations(&mut text, counters);
        write_throttle(&mut text, scopes);
        write_quotas(&mut text, quotas);
        let mut family = text.family(LONGEST_REFUSAL);
        for (operator, span) in engine.longest_refusals() {
            if let Some(name) = operators.get(usize::from(operator.0)) {
                family.sample(&[name], span.as_secs());
            }
        }
        let mut family = text.family(ADDRESS_LIST_NETWORKS);
        lists.lists.iter().for_each(|list| family.sample(&[&list.name], list.networks));
        let mut family = text.family(ADDRESS_LIST_STALE);
        lists.lists.iter().for_each(|list| family.sample(&[&list.name], u8::from(list.is_stale)));
        let mut family = text.family(OPERATOR_RANGES_STALE);
        lists.stale_ranges.iter().for_each(|(operator, count)| family.sample(&[operator], count));
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
        self.gauge(CONNECTIONS, &[], counters.connections_open as f64);
        self.count(CONNECTIONS_REFUSED, &[], counters.connections_refused);
    }
}

fn write_durations(text: &mut Exposition, counters: &WorkerCounters) {
    let mut family = text.family(REQUEST_DURATION);
    for (class, ClassCounters { admitted_duration, refused_duration, .. }) in counters.classes.iter() {
        family.histogram(&[class, "admitted"], admitted_duration);
        family.histogram(&[class, "refused"], refused_duration);
    }
    let mut family = text.family(ORIGIN_REQUEST_DURATION);
    for (scope, counts) in counters.scopes.iter() {
        family.histogram(&[scope], &counts.duration);
    }
    let mut family = text.family(ORIGIN_INFLIGHT);
    for (scope, counts) in counters.scopes.iter() {
        family.sample(&[scope], counts.inflight);
    }
}

fn write_throttle(text: &mut Exposition, scopes: &[ScopeState]) {
    let mut family = text.family(ORIGIN_CONCURRENCY_LIMIT);
    for (scope, limit) in scopes.iter().filter_map(|scope| Some((scope, scope.limit?))) {
        family.sample(&[&scope.name], limit);
    }
    each_scope(text, scopes, ORIGIN_DELAY, |scope| scope.delay.as_secs_f64());
    each_scope(text, scopes, ORIGIN_BACKOFF, |scope| scope.backoff_remaining.as_secs_f64());
    each_scope(text, scopes, QUEUE_LENGTH, |scope| scope.queue_length);
    let mut family = text.family(SCOPE_PARTITIONS);
    for (scope, partitions) in scopes.iter().filter_map(|scope| Some((scope, scope.partitions?))) {
        family.sample(&[&scope.name], partitions);
    }
}

fn each_scope<T: Display>(text: &mut Exposition, scopes: &[ScopeState], metric: Metric, value: fn(&ScopeState) -> T) {
    let mut family = text.family(metric);
    for scope in scopes {
        family.sample(&[&scope.name], value(scope));
    }
}

fn write_quotas(text: &mut Exposition, quotas: &[QuotaView]) {
    each_quota(text, quotas, QUOTA_LIMIT, |quota| quota.limit);
    each_quota(text, quotas, QUOTA_ENFORCED, |quota| u8::from(quota.enforce));
    each_quota(text, quotas, QUOTA_USED, |quota| quota.used);
    each_quota(text, quotas, QUOTA_RESERVED, |quota| quota.reserved);
    each_quota(text, quotas, QUOTA_WINDOW_START, |quota| quota.window_start.seconds());
    each_quota(text, quotas, QUOTA_WINDOW_END, |quota| quota.window_end.seconds());
    each_quota(text, quotas, QUOTA_LOST, |quota| quota.lost);
    each_quota(text, quotas, QUOTA_DRIFT, |quota| quota.drift as f64 / 1000.0);
    each_quota(text, quotas, QUOTA_OVERRUN, |quota| quota.overrun);
    let plans = || quotas.iter().filter_map(|quota| Some((quota, quota.plan?)));
    let mut family = text.family(PACING_PLANNED);
    plans().for_each(|(quota, plan)| family.sample(&[&quota.name], plan.planned));
    let mut family = text.family(PACING_EARMARKED);
    plans().for_each(|(quota, plan)| family.sample(&[&quota.name], plan.earmarked));
    let mut family = text.family(PACING_ADMIT_RATIO);
    each_class(quotas, |quota, class| {
        if let Some(share) = class.plan.as_ref().and_then(|plan| plan.admit_share) {
            family.sample(&[quota, &class.class], share.ratio());
        }
    });
    let mut family = text.family(QUOTA_CHARGED);
    each_class(quotas, |quota, class| family.sample(&[quota, &class.class], class.charged));
    let mut family = text.family(QUOTA_GUARD_UNITS);
    each_class(quotas, |quota, class| family.sample(&[quota, &class.class], class.guard_admitted));
    let mut family = text.family(TIER_SHED);
    each_class(quotas, |quota, class| family.sample(&[quota, &class.class], class.shed_share.ratio()));
}

fn each_quota<T: Display>(text: &mut Exposition, quotas: &[QuotaView], metric: Metric, value: fn(&QuotaView) -> T) {
    let mut family = text.family(metric);
    for quota in quotas {
        family.sample(&[&quota.name], value(quota));
    }
}

fn each_class(quotas: &[QuotaView], mut each: impl FnMut(&str, &tidegate_engine::ClassView)) {
    for quota in quotas {
        quota.by_class.iter().for_each(|class| each(&quota.name, class));
    }
}

fn key(metric: Metric, values: &[&str]) -> Key {
    let labels: Vec<Label> =
        metric.labels.iter().zip(values).map(|(&label, &value)| Label::new(label, value.to_owned())).collect();
    Key::from_parts(metric.name, labels)
}

const METADATA: Metadata<'static> = Metadata::new("tidegate", Level::INFO, None);
