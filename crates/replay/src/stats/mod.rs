//! Statistics of decisions, in memory that does not grow with the log.

mod agreement;
mod bots;
mod budgets;
mod cache;
mod classes;
mod hours;
mod refused_pages;
mod routes;
mod series;
mod spenders;
mod spikes;
mod windows;

use super::decision::ReplayedDecision;
use super::log_span::LogSpan;
use super::report::{ClassTiersReport, NameLookup, PolicyReport, QuotaReport, TierReport};
use super::request::ReplayRequest;
use super::response_store::StoreUsage;
use agreement::Agreement;
use bots::Bots;
use budgets::Budgets;
use cache::CacheStats;
use classes::Classes;
use hours::Hours;
use refused_pages::RefusedPages;
use routes::RouteStats;
use series::Series;
use spikes::Spikes;
use tidegate_access_log::read::NativeFields;
use tidegate_engine::spenders::Spenders;
use tidegate_engine::{Charged, Receipt};
use tidegate_policy::quota::Quota;
use tidegate_policy::{ClassId, ClientKind, QuotaId, Rules, Timestamp, Units};
use windows::Windows;

/// Statistics of one policy for its report.
pub(super) struct ReplayStats {
    classes: Classes,
    cache: CacheStats,
    hours: Hours,
    windows: Vec<Windows>,
    budgets: Vec<Budgets>,
    used: Vec<Series>,
    planned: Vec<Series>,
    bots: Bots,
    routes: RouteStats,
    spenders: Spenders,
    spikes: Spikes,
    /// Times of the first and the last decision.
    span: Option<LogSpan>,
    refused_pages: RefusedPages,
    agreement: Agreement,
}

impl ReplayStats {
    pub(super) fn new(rules: &Rules) -> Self {
        let (classes, quotas) = (rules.classes.len(), rules.quotas.len());
        Self {
            classes: Classes::new(classes, quotas),
            cache: CacheStats::new(classes, quotas),
            hours: Hours::new(classes, quotas),
            windows: rules.quotas.iter().map(|quota| Windows::new(quota, classes)).collect(),
            budgets: rules.quotas.iter().map(|_| Budgets::default()).collect(),
            used: rules.quotas.iter().map(|_| Series::default()).collect(),
            planned: rules.quotas.iter().map(|_| Series::default()).collect(),
            bots: Bots::default(),
            routes: RouteStats::new(rules.routes.len()),
            spenders: spenders::new(),
            spikes: Spikes::default(),
            span: None,
            refused_pages: RefusedPages::default(),
            agreement: Agreement::default(),
        }
    }

    /// Records a decision.
    pub(super) fn record_decision(&mut self, decision: &ReplayedDecision, request: &ReplayRequest<'_>, rules: &Rules) {
        self.span.get_or_insert(LogSpan { first: decision.at, last: decision.at }).extend(decision.at);
        self.classes.add(decision);
        self.cache.add(decision);
        self.hours.add(decision);
        for (index, usage) in decision.quota_usage.iter().enumerate() {
            let quota = usage.quota.index();
            let is_refusing = decision.refusing_quotas.contains(index);
            if let Some(budget) = &rules[usage.quota].budget {
                let payer = (decision.classification.class, decision.payer);
                self.budgets[quota].add(budget, usage, payer, is_refusing, decision.at);
                continue;
            }
            let refused =
                decision.refusal_reason.filter(|_| is_refusing).map(|reason| (reason, decision.classification.class));
            self.windows[quota].add(usage, refused, decision.at);
            self.used[quota].add(decision.at, usage.used);
        }
        self.routes.add(decision);
        spenders::add(&mut self.spenders, decision, request);
        self.spikes.add(decision, request);
        if decision.classification.kind != ClientKind::Human {
            self.bots.add(decision);
        }
        if decision.classification.kind == ClientKind::VerifiedBot && decision.refusal_reason.is_some() {
            self.refused_pages.add(decision, request);
        }
    }

    /// Records the planned usage of a quota at `now`.
    pub(super) fn record_plan(&mut self, quota: QuotaId, planned: Units, now: Timestamp) {
        self.planned[quota.index()].add(now, planned);
    }

    /// Records a settled request of `class`.
    pub(super) fn record_settlement(&mut self, class: ClassId, receipt: &Receipt, now: Timestamp) {
        for charged in receipt {
            let &Charged { quota, settled, .. } = charged;
            self.classes.charge(class, quota, settled);
            self.hours.charge(class, quota, settled, now);
            self.windows[quota.index()].charge(class, charged);
            self.budgets[quota.index()].charge(settled);
        }
    }

    /// Sets the usage of a quota before the log began.
    pub(super) fn set_initial_usage(&mut self, quota: QuotaId, used: Units) {
        self.windows[quota.index()].set_initial_usage(used);
    }

    /// Compares a decision with the logged one.
    pub(super) fn record_agreement(&mut self, decision: &ReplayedDecision, native: &NativeFields<'_>, rules: &Rules) {
        self.agreement.add(decision, native, rules);
    }

    /// Returns true if all decisions so far agree with the log.
    pub(super) fn is_consistent(&self) -> bool {
        self.agreement.is_consistent()
    }

    /// Records a restart of the gateway that wrote the log.
    pub(super) fn record_restart(&mut self) {
        self.agreement.record_restart();
    }

    /// Records a correction: the logged usage differs from what its requests explain.
    pub(super) fn record_correction(&mut self) {
        self.agreement.record_correction();
    }

    pub(super) fn report(
        self,
        name: &str,
        rules: &Rules,
        names: &NameLookup<'_>,
        stored: Option<StoreUsage>,
        abandoned: u64,
        unsupported: Vec<String>,
    ) -> PolicyReport {
        let (requests, admitted) = self.classes.totals();
        let series = self.used.iter().zip(&self.planned);
        let quotas = rules.quotas.iter().zip(self.windows.iter().zip(series));
        let budgets = rules.quotas.iter().zip(&self.budgets).filter(|(quota, _)| quota.budget.is_some());
        let span = self.span.unwrap_or_default();
        PolicyReport {
            name: name.to_owned(),
            requests,
            admitted,
            refused: requests - admitted,
            classes: self.classes.report(rules),
            budgets: budgets.map(|(quota, budgets)| budgets.report(quota)).collect(),
            quotas: quotas
                .filter(|(quota, _)| quota.budget.is_none())
                .map(|(quota, (windows, series))| quota_report(quota, windows, series, rules, span))
                .collect(),
            verified_bots: self.hours.admit_report(),
            hours: self.hours.report(rules),
            bots: self.bots.report(names),
            routes: self.routes.report(rules),
            spenders: spenders::report(&self.spenders),
            spikes: self.spikes.report(),
            refused_pages: self.refused_pages.report(names),
            cache: self.cache.report(rules, stored),
            agreement: self.agreement.report(),
            abandoned,
            unsupported,
        }
    }
}

fn quota_report(
    quota: &Quota,
    windows: &Windows,
    (used, planned): (&Series, &Series),
    rules: &Rules,
    span: LogSpan,
) -> QuotaReport {
    let tier = |tier: &tidegate_policy::tier::Tier| TierReport { above: tier.threshold, shed: tier.shed_share };
    let tiers_report = |(class, class_tiers): (&tidegate_policy::class::Class, _)| {
        let class_tiers: &Option<tidegate_policy::quota::ClassTiers> = class_tiers;
        let tiers = class_tiers.as_ref()?.tiers.tiers().iter().map(tier).collect();
        Some(ClassTiersReport { class: class.name.clone(), tiers })
    };
    let (step_s, used) = used.report();
    QuotaReport {
        name: quota.name.clone(),
        limit: quota.limit,
        zone: quota.window.zone().map(str::to_owned),
        tiers: rules.classes.iter().zip(&quota.class_tiers).filter_map(tiers_report).collect(),
        windows_in_all: windows.count(),
        windows: windows.report(quota.limit, rules, span),
        step_s,
        used,
        planned: planned.report().1,
    }
}
