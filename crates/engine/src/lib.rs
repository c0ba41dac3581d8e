//! State shared between requests: client buckets, quota counters and throttled scopes. Only `clock`, `files`,
//! `ledger`, `state_lock`, `demand_store`, `baseline_store` and `switch_store` do I/O.
//!
//! [`Engine`] lives as long as the process. [`Admission`] combines it with one configuration; a reload creates a new
//! one over the same quota counters, so no count is lost. Locks are held for one decision, in a fixed order (the
//! client, then quota counters by number), and never across a wait.

mod admission;
pub mod baseline_store;
mod bot_detection;
mod budget_entries;
mod clients;
pub mod clock;
mod cost_estimates;
mod credentials;
mod demand;
pub mod demand_store;
mod dry_run;
mod evaluate;
mod exempt;
mod exempt_costs;
pub mod files;
pub mod heavy_hitters;
mod ignored_reports;
mod key_leases;
mod learned_costs;
mod lease_mode;
mod leases;
pub mod ledger;
mod observation;
mod permit;
mod quota;
mod refused_pages;
mod return_table;
pub mod spenders;
pub mod state_file;
pub mod state_lock;
pub mod switch_store;
mod throttle;
mod usage;
mod views;

#[cfg(test)]
mod tests;

pub use admission::{Admission, Decision};
pub use bot_detection::ProfileKey;
pub use budget_entries::{BudgetEntries, EndedWindow};
pub use credentials::Credentials;
pub use demand::LearnedDemand;
pub use dry_run::DryRun;
pub use evaluate::{Classified, Evaluation, RequestPurpose};
pub use exempt_costs::ExemptGuard;
pub use heavy_hitters::Demand;
pub use ignored_reports::IgnoredReport;
pub use learned_costs::{LearnedCosts, PathCostView};
pub use lease_mode::LeaseMode;
pub use observation::{Observation, ObservedRequest};
pub use permit::{Charged, Permit, Receipt};
pub use refused_pages::CrawledPage;
pub use return_table::ReturnTable;
pub use throttle::{
    AcquireOutcome, OLDEST_FIRST_INTERVAL, QueuePoll, QueuedRequest, ResponseFeedback, ScopeState, SlotGuard,
    ThrottleRejection,
};
pub use usage::{BucketUsage, QuotaUsage};
pub use views::{BudgetUsage, ClassPlan, ClassView, ClientView, PlanView, QuotaView, UnknownQuota};

use bot_detection::ProfileStore;
use clients::Clients;
use cost_estimates::CostEstimates;
use foldhash::fast::SeedableRandomState as Hashing;
use ledger::KeyFiles;
use parking_lot::Mutex;
use quota::QuotaCounter;
use refused_pages::RefusedPages;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use throttle::Throttle;
use tidegate_policy::path_costs::PathCosts;
use tidegate_policy::quota::Quota;
use tidegate_policy::{QuotaId, Rules, StableClassId, Timestamp, Units};

/// Inline list: most requests use one quota and one scope, few use more.
pub type InlineVec<T> = smallvec::SmallVec<[T; 2]>;

/// State that outlives requests and configurations.
pub struct Engine {
    lease_mode: LeaseMode,
    clients: Clients,
    profiles: ProfileStore,
    cost_estimates: CostEstimates,
    /// Costs learned for paths whose route has none.
    path_costs: Mutex<PathCosts>,
    quotas: Arc<Mutex<Vec<Arc<QuotaCounter>>>>,
    /// Files in which usage by key is recorded; `None` if it is only in memory.
    key_files: Mutex<Option<KeyFiles>>,
    /// No budgets of keys are leased, because other instances may know the keys by other hashes.
    holds_key_leases: AtomicBool,
    class_names: Mutex<Vec<String>>,
    refused_pages: RefusedPages,
    throttle: Arc<Throttle>,
}

impl Engine {
    /// Creates an engine with units as set by `lease_mode` and at most `max_clients` tracked clients.
    pub fn new(lease_mode: LeaseMode, max_clients: usize) -> Arc<Self> {
        Self::with_hasher(Hashing::random(), lease_mode, max_clients)
    }

    /// Creates an engine with local quotas and fixed hash keys, so that every run gives the same results.
    pub fn deterministic(max_clients: usize) -> Arc<Self> {
        Self::with_hasher(Hashing::fixed(), LeaseMode::Local, max_clients)
    }

    fn with_hasher(hashing: Hashing, lease_mode: LeaseMode, max_clients: usize) -> Arc<Self> {
        Arc::new(Self {
            lease_mode,
            clients: Clients::new(max_clients),
            profiles: ProfileStore::new(hashing),
            cost_estimates: CostEstimates::default(),
            path_costs: Mutex::default(),
            quotas: Arc::default(),
            key_files: Mutex::default(),
            holds_key_leases: AtomicBool::new(false),
            class_names: Mutex::default(),
            refused_pages: RefusedPages::default(),
            throttle: Arc::default(),
        })
    }

    /// Creates the admission for `rules`, on the existing quota counters.
    pub fn admission(self: &Arc<Self>, rules: Arc<Rules>, now: Timestamp) -> Admission {
        let class_ids = self.class_ids(&rules);
        let counters = self.open(&rules, &class_ids, now);
        self.throttle.update_config(&rules.scopes);
        Admission::new(Arc::clone(self), rules, counters, class_ids)
    }

    /// Opens or updates the quota counters of `rules`, so that they can lease units before the first request.
    pub fn open_quotas(&self, rules: &Rules, now: Timestamp) {
        self.open(rules, &self.class_ids(rules), now);
    }

    fn open(&self, rules: &Rules, class_ids: &[StableClassId], now: Timestamp) -> Vec<Arc<QuotaCounter>> {
        let open =
            |(index, quota)| self.open_counter(quota, class_ids, max_cost(rules, QuotaId::from_index(index)), now);
        rules.quotas.iter().enumerate().map(open).collect()
    }

    fn class_ids(&self, rules: &Rules) -> Vec<StableClassId> {
        rules.classes.iter().map(|class| self.class_id(&class.name)).collect()
    }

    fn class_id(&self, class: &str) -> StableClassId {
        let mut names = self.class_names.lock();
        let index = names.iter().position(|name| name == class).unwrap_or_else(|| {
            names.push(class.to_owned());
            names.len() - 1
        });
        index as StableClassId
    }

    fn open_counter(
        &self,
        quota: &Quota,
        class_ids: &[StableClassId],
        max_cost: Units,
        now: Timestamp,
    ) -> Arc<QuotaCounter> {
        let mut counters = self.quotas.lock();
        let is_same = |it: &&Arc<QuotaCounter>| it.name() == quota.name && it.has_budgets() == quota.budget.is_some();
        if let Some(counter) = counters.iter().find(is_same) {
            counter.update_config(quota, class_ids, max_cost, self.clients.max_clients(), now);
            self.record_keys(counter, quota);
            return Arc::clone(counter);
        }
        let counter = Arc::new(QuotaCounter::open(
            counters.len(),
            quota,
            class_ids,
            max_cost,
            self.lease_mode.clone(),
            self.clients.max_clients(),
            now,
        ));
        self.record_keys(&counter, quota);
        counters.push(Arc::clone(&counter));
        self.lease_mode.wake_refresher();
        counter
    }

    /// Continues with the usage by key of another engine, whose quotas have the same names.
    pub fn restore_key_usage(&self, other: &Self) {
        for (counter, earlier) in self.quotas.lock().iter().zip(other.quotas.lock().iter()) {
            counter.restore_key_usage(earlier);
        }
    }
}

/// Returns the highest expected cost of one request in `quota`, according to the configuration.
fn max_cost(rules: &Rules, quota: QuotaId) -> Units {
    let costs = rules.routes.iter().flat_map(|route| &route.costs);
    let quota_costs = costs.filter(|(id, _)| *id == quota).map(|(_, cost)| cost.first_estimate());
    quota_costs.max().unwrap_or(Units::from_whole(1))
}
