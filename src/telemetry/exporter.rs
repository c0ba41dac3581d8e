//! Totals of the workers at a scrape, as metrics.

use super::counters::{UpstreamCounters, WorkerCounters};
use super::handshake_result::HandshakeResult;
use super::metrics::*;
use super::registry::Registry;
use super::status_class::StatusClass;
use metrics::{Key, counter, gauge, with_local_recorder};
use tidegate_http_cache::CacheResult;
use tidegate_policy::bot_detection::Signal;
use tidegate_policy::{ClientKind, Reason, Units};

/// Records `totals` in `registry`.
pub(super) fn record_totals(totals: &WorkerCounters, registry: &Registry) {
    with_local_recorder(registry, || {
        record_classes(totals);
        record_requests(totals);
        record_scopes_and_operators(totals);
        record_connections(totals);
    });
    for (class, counts) in totals.classes.iter() {
        for (verdict, samples) in
            [("admitted", &counts.responses.admitted_duration), ("refused", &counts.refused_duration)]
        {
            let labels = [("class", class.to_owned()), ("verdict", verdict.to_owned())];
            registry.add_samples(&Key::from_parts(REQUEST_DURATION, &labels), samples);
        }
    }
    each_upstream(totals, |labels, counts| {
        registry.add_samples(&Key::from_parts(ORIGIN_REQUEST_DURATION, labels), &counts.duration);
    });
}

/// Calls `each` with the labels and the counters of each scope, and of each origin in it where there are several.
fn each_upstream(totals: &WorkerCounters, mut each: impl FnMut(&[(&'static str, String)], &UpstreamCounters)) {
    // Requests of a time with one origin.
    let is_shown = |counts: &UpstreamCounters| totals.origins.is_empty() || counts.codes.iter().any(|count| *count > 0);
    for (scope, counts) in totals.scopes.iter().filter(|(_, counts)| is_shown(&counts.upstream)) {
        each(&[("scope", scope.to_owned())], &counts.upstream);
    }
    for (origin, scopes) in totals.origins.iter() {
        for (scope, counts) in scopes.iter() {
            each(&[("scope", scope.to_owned()), ("origin", origin.to_owned())], counts);
        }
    }
}

fn record_classes(totals: &WorkerCounters) {
    for (class, counts) in totals.classes.iter() {
        let class = || class.to_owned();
        counter!(REQUESTS, "class" => class(), "verdict" => "admitted", "reason" => "").absolute(counts.admitted);
        for ((reason, &refused), &shadow) in Reason::ALL.iter().zip(&counts.refused).zip(&counts.shadow) {
            let reason = reason.name();
            counter!(REQUESTS, "class" => class(), "verdict" => "refused", "reason" => reason).absolute(refused);
            counter!(SHADOW_REFUSALS, "class" => class(), "reason" => reason).absolute(shadow);
        }
        record_responses(&class(), &counts.responses.codes);
        for (quota, units) in counts.saved.iter() {
            counter!(QUOTA_SAVED, "quota" => quota.to_owned(), "class" => class()).absolute(units.milli());
            // From zero on, so that a rate shows the first refresh.
            counter!(CACHE_REFRESHED, "quota" => quota.to_owned(), "class" => class()).absolute(Units::ZERO.milli());
        }
        for (quota, units) in counts.refreshed.iter() {
            counter!(CACHE_REFRESHED, "quota" => quota.to_owned(), "class" => class()).absolute(units.milli());
        }
    }
    record_responses("", &totals.unclassified);
}

fn record_responses(class: &str, codes: &[u64]) {
    for (code, &count) in StatusClass::ALL.iter().zip(codes) {
        counter!(RESPONSES, "class" => class.to_owned(), "code" => code.name()).absolute(count);
    }
}

fn record_requests(totals: &WorkerCounters) {
    for (kind, counts) in ClientKind::ALL.iter().zip(totals.kinds) {
        let refused = counts.refused + counts.blocked;
        counter!(REQUESTS_BY_KIND, "kind" => kind.name(), "verdict" => "admitted").absolute(counts.admitted);
        counter!(REQUESTS_BY_KIND, "kind" => kind.name(), "verdict" => "refused").absolute(refused);
    }
    for (signal, &count) in Signal::ALL.iter().zip(&totals.signals) {
        counter!(SUSPECTED, "signal" => signal.name()).absolute(count);
    }
    for (result, &count) in CacheResult::ALL.iter().zip(&totals.cache) {
        counter!(CACHE_REQUESTS, "result" => result.name()).absolute(count);
    }
    for (route, units) in totals.unexpected_costs.iter() {
        counter!(UNEXPECTED_COST, "route" => route.to_owned()).absolute(units.milli());
    }
}

fn record_scopes_and_operators(totals: &WorkerCounters) {
    each_upstream(totals, |labels, counts| {
        for (code, &count) in StatusClass::ALL.iter().zip(&counts.codes) {
            let mut labels = labels.to_vec();
            labels.insert(1, ("code", code.name().to_owned()));
            counter!(ORIGIN_REQUESTS, &labels).absolute(count);
        }
    });
    for (scope, counts) in totals.scopes.iter() {
        gauge!(ORIGIN_INFLIGHT, "scope" => scope.to_owned()).set(counts.inflight as f64);
    }
    for (operator, counts) in totals.operators.iter() {
        let [valid, invalid, unknown] = counts.signed;
        for (method, result, count) in [
            ("ranges", "verified", counts.verified),
            ("ranges", "impostor", counts.impostor),
            ("signature", "verified", valid),
            ("signature", "invalid", invalid),
            ("signature", "unknown", unknown),
        ] {
            let operator = operator.to_owned();
            counter!(VERIFICATIONS, "operator" => operator, "method" => method, "result" => result).absolute(count);
        }
    }
}

fn record_connections(totals: &WorkerCounters) {
    gauge!(CONNECTIONS).set(totals.connections_open as f64);
    counter!(CONNECTIONS_REFUSED).absolute(totals.connections_refused);
    for (result, &count) in HandshakeResult::ALL.iter().zip(&totals.handshakes) {
        counter!(TLS_HANDSHAKES, "result" => result.name()).absolute(count);
    }
    gauge!(CONNECTION_MEMORY).set(totals.connection_memory as f64);
    counter!(CONNECTIONS_SHED).absolute(totals.connections_shed);
}
