//! Metrics of states, read at each scrape.

use super::ServiceState;
use super::certificates::CertificateView;
use super::customers::usage_of_customers;
use crate::admin::UsageDocument;
use crate::admin::state::PromiseDocument;
use crate::gateway::OriginView;
use crate::telemetry::metrics::*;
use metrics::{counter, gauge};
use tidegate_engine::{Admission, BudgetEntries, IgnoredReport, QuotaView, ScopeState};
use tidegate_policy::promise::PromisedFigure;
use tidegate_policy::quota::Quota;
use tidegate_policy::switches::SwitchEffect;

impl ServiceState {
    /// Records the current state with the macros of the crate `metrics`.
    pub(super) fn record_state(&self) {
        self.handle.with_admission(|admission| self.record_admission(admission));
        self.record_crawlers();
        self.record_cache();
        for (quota, route, count) in self.handle.missing_costs() {
            counter!(COST_MISSING, "quota" => quota, "route" => route).absolute(count);
        }
        self.record_origin_and_certificates();
        if let Some(promise) = &*self.promise.lock() {
            record_promise(promise);
        }
        gauge!(UPGRADES).set(self.handle.upgrades() as f64);
        let switches = self.switches.current(self.handle.now());
        for effect in SwitchEffect::ALL.map(SwitchEffect::name) {
            let count = switches.iter().filter(|switch| switch.effect.as_deref() == Some(effect)).count();
            gauge!(SWITCHES, "effect" => effect).set(count as f64);
        }
        counter!(NOTIFICATIONS, "result" => "sent").absolute(self.notifications.sent());
        counter!(NOTIFICATIONS, "result" => "failed").absolute(self.notifications.failed());
        if let Some((pending, evicted)) = self.handle.pending_decisions() {
            gauge!(FORWARD_AUTH_PENDING).set(pending as f64);
            counter!(FORWARD_AUTH_EVICTED).absolute(evicted);
        }
        for (list, networks, error) in self.lists(&self.address_list_files.lock()) {
            gauge!(ADDRESS_LIST_NETWORKS, "list" => list.clone()).set(networks as f64);
            gauge!(ADDRESS_LIST_STALE, "list" => list).set(u8::from(error.is_some()));
        }
    }

    fn record_admission(&self, admission: &Admission) {
        let engine = admission.engine();
        gauge!(BOT_DETECTION_CLIENTS).set(admission.tracked_profiles() as f64);
        gauge!(CLIENTS_TRACKED).set(engine.clients_tracked() as f64);
        counter!(CLIENTS_EVICTED).absolute(engine.clients_evicted());
        admission.scopes(self.handle.uptime()).iter().for_each(record_scope);
        admission.quotas(self.handle.now()).iter().for_each(record_quota);
        let budgets = admission.budget_entries(0, self.handle.now());
        budgets.iter().for_each(|budget| record_budget(budget, &admission.rules()[budget.quota]));
        let is_named = |usage: &UsageDocument| {
            let quota = admission.rules().quotas.iter().find(|quota| quota.name == usage.quota);
            quota.and_then(|quota| quota.budget.as_ref()).is_some_and(|budget| budget.has_metrics_by_key)
        };
        usage_of_customers(admission, self.handle.now())
            .iter()
            .filter(|usage| is_named(usage))
            .for_each(record_customer);
        for (operator, span) in engine.longest_refusals() {
            let operator = self.operators.name(operator).to_owned();
            gauge!(LONGEST_REFUSAL, "operator" => operator).set(span.as_secs() as f64);
        }
    }

    fn record_crawlers(&self) {
        gauge!(DNS_QUEUE_LENGTH).set(self.operators.dns().map_or(0, |dns| dns.pending_count()) as f64);
        for (operator, count) in self.operators.stale_lists() {
            gauge!(OPERATOR_RANGES_STALE, "operator" => operator.to_owned()).set(count as f64);
        }
        for compliance in self.handle.crawl_compliance() {
            let labels = [("operator", self.operators.name(compliance.operator).to_owned())];
            gauge!(CRAWL_DELAY_ADVERTISED, &labels).set(compliance.advertised.unwrap_or(0));
            counter!(CRAWLER_REQUESTS, &labels).absolute(compliance.requests);
            counter!(ROBOTS_REQUESTS, &labels).absolute(compliance.robots_txt_requests);
            counter!(CRAWL_INTERVALS, &labels).absolute(compliance.interval_count);
            counter!(CRAWL_INTERVAL_SECONDS, &labels).absolute(compliance.total_interval.as_secs());
            counter!(CRAWL_DELAY_VIOLATIONS, &labels).absolute(compliance.violations);
        }
    }

    fn record_cache(&self) {
        let Some(stats) = self.handle.cache_stats() else { return };
        gauge!(CACHE_BYTES, "store" => "memory").set(stats.memory_bytes as f64);
        gauge!(CACHE_ENTRIES).set(stats.entries as f64);
        counter!(CACHE_EVICTIONS).absolute(stats.evictions);
        let [marked, ignored] = self.handle.cache_invalidations();
        counter!(CACHE_INVALIDATIONS, "result" => "marked").absolute(marked);
        counter!(CACHE_INVALIDATIONS, "result" => "ignored").absolute(ignored);
        if let Some(disk) = stats.disk {
            gauge!(CACHE_BYTES, "store" => "disk").set(disk.bytes as f64);
            counter!(CACHE_DISK_ERRORS).absolute(disk.errors);
        }
    }

    fn record_origin_and_certificates(&self) {
        for OriginView { name, servers, .. } in self.handle.origins() {
            for server in servers {
                let mut labels = vec![("server", server.url)];
                labels.extend(name.clone().map(|name| ("origin", name)));
                gauge!(ORIGIN_SERVER_UP, &labels).set(u8::from(server.is_healthy));
            }
        }
        for CertificateView { domain, expires_at, is_stale } in self.certificates() {
            gauge!(CERTIFICATE_EXPIRY, "domain" => domain.clone()).set(expires_at as f64);
            gauge!(CERTIFICATE_STALE, "domain" => domain).set(u8::from(is_stale));
        }
        for (domain, failures) in self.acme.failures() {
            counter!(ACME_FAILURES, "domain" => domain.to_owned()).absolute(failures);
        }
    }
}

fn record_promise(promise: &PromiseDocument) {
    for (window, kept) in [("current", Some(&promise.current)), ("last", promise.last.as_ref())] {
        let Some(kept) = kept else { continue };
        let figures = [kept.people_refused, kept.search_served, kept.left_over];
        for (figure, share) in PromisedFigure::ALL.into_iter().zip(figures) {
            if let Some(share) = share {
                gauge!(PROMISE_KEPT, "figure" => figure.name(), "window" => window).set(share);
            }
        }
    }
    for figure in PromisedFigure::ALL.map(PromisedFigure::name) {
        if let Some(last) = &promise.last {
            let is_missed = last.missed.iter().any(|missed| missed == figure);
            gauge!(PROMISE_MISSED, "figure" => figure).set(u8::from(is_missed));
        }
    }
}

fn record_scope(scope: &ScopeState) {
    let labels = [("scope", scope.name.clone())];
    if let Some(limit) = scope.limit {
        gauge!(ORIGIN_CONCURRENCY_LIMIT, &labels).set(limit);
    }
    gauge!(ORIGIN_DELAY, &labels).set(scope.delay);
    gauge!(ORIGIN_BACKOFF, &labels).set(scope.backoff_remaining);
    gauge!(ORIGIN_BACKOFF_PARTS, &labels).set(scope.backoff_parts as f64);
    gauge!(QUEUE_LENGTH, &labels).set(scope.queue_length);
    if let Some(partitions) = scope.partitions {
        gauge!(SCOPE_PARTITIONS, &labels).set(partitions as f64);
    }
}

/// Records the usage of the customers of a quota whose metrics name them.
fn record_customer(usage: &UsageDocument) {
    let labels = [("quota", usage.quota.clone()), ("key", usage.key.clone())];
    gauge!(BUDGET_USED, &labels).set(usage.used.as_f64());
    gauge!(BUDGET_LIMIT, &labels).set(usage.limit.as_f64());
}

fn record_budget(budget: &BudgetEntries, quota: &Quota) {
    let labels = [("quota", quota.name.clone())];
    gauge!(BUDGET_KEYS, &labels).set(budget.keys as f64);
    gauge!(QUOTA_ENFORCED, &labels).set(u8::from(quota.enforce));
}

fn record_quota(quota: &QuotaView) {
    let labels = [("quota", quota.name.clone())];
    gauge!(QUOTA_LIMIT, &labels).set(quota.limit.as_f64());
    gauge!(QUOTA_ENFORCED, &labels).set(u8::from(quota.enforce));
    gauge!(QUOTA_USED, &labels).set(quota.used.as_f64());
    gauge!(QUOTA_RESERVED, &labels).set(quota.reserved.as_f64());
    gauge!(QUOTA_WINDOW_START, &labels).set(quota.window_start.seconds() as f64);
    gauge!(QUOTA_WINDOW_END, &labels).set(quota.window_end.seconds() as f64);
    counter!(QUOTA_LOST, &labels).absolute(quota.lost.milli());
    gauge!(QUOTA_DRIFT, &labels).set(quota.drift as f64 / 1000.0);
    counter!(QUOTA_OVERRUN, &labels).absolute(quota.overrun.milli());
    counter!(QUOTA_IMPLAUSIBLE_COSTS, &labels).absolute(quota.implausible_costs);
    for (cause, count) in IgnoredReport::ALL.into_iter().zip(quota.ignored_reports) {
        let labels = [("quota", quota.name.clone()), ("cause", cause.name().to_owned())];
        counter!(QUOTA_IGNORED_REPORTS, &labels).absolute(count);
    }
    if let Some(plan) = quota.plan {
        gauge!(PACING_PLANNED, &labels).set(plan.planned.as_f64());
        gauge!(PACING_EARMARKED, &labels).set(plan.earmarked.as_f64());
    }
    for class in &quota.by_class {
        let labels = [("quota", quota.name.clone()), ("class", class.class.clone())];
        if let Some(share) = class.plan.as_ref().and_then(|plan| plan.admit_share) {
            gauge!(PACING_ADMIT_RATIO, &labels).set(share.ratio());
        }
        counter!(QUOTA_CHARGED, &labels).absolute(class.charged.milli());
        counter!(QUOTA_GUARD_UNITS, &labels).absolute(class.guard_admitted.milli());
        gauge!(TIER_SHED, &labels).set(class.shed_share.ratio());
    }
}
