//! Shared memory of the gate: who asked how often, what every quota has spent and promised. No I/O, no clock.
//!
//! [`Engine`] lives as long as the process. [`Admission`] is what it is under one set of rules; a reload makes a new
//! one over the same accounts, so nothing that was counted is lost. Locks are held for the length of one decision, in
//! one order (the client, then accounts by their number), and never while anything waits.

mod admission;
mod bot_detection;
mod clients;
mod cost_estimates;
mod demand;
mod dry_run;
mod evaluate;
mod leases;
mod observation;
mod permit;
mod quota;
mod refused_pages;
mod throttle;
mod views;

#[cfg(test)]
mod tests;

pub use admission::{Admission, AdmissionOutcome, BucketUsage, Decision, QuotaUsage};
pub use bot_detection::ProfileKey;
pub use demand::LearnedDemand;
pub use dry_run::DryRun;
pub use evaluate::Evaluation;
pub use leases::LeaseMode;
pub use observation::{Observation, ObservedRequest};
pub use permit::{Charged, Permit, Receipt};
pub use quota::OriginQuotaEvent;
pub use refused_pages::CrawledPage;
pub use throttle::{
    AcquireOutcome, OLDEST_FIRST_INTERVAL, QueuePoll, QueuedRequest, ResponseFeedback, ScopeState, SlotGuard,
    ThrottleRejection,
};
pub use views::{ClassPlan, ClassView, ClientView, PlanView, QuotaView, UnknownQuota};

use crate::policy::cost::{Cost, CostEstimate};
use crate::policy::quota::Quota;
use crate::policy::{Rules, Timestamp, Units};
use bot_detection::ProfileStore;
use clients::Clients;
use cost_estimates::CostEstimates;
use foldhash::fast::SeedableRandomState as Hashing;
use parking_lot::Mutex;
use quota::QuotaCounter;
use refused_pages::RefusedPages;
use std::sync::Arc;
use throttle::Throttle;

/// What the gate remembers from one request, and from one set of rules, to the next.
pub struct Engine {
    supply: LeaseMode,
    clients: Clients,
    observations: ProfileStore,
    experience: CostEstimates,
    accounts: Mutex<Vec<Arc<QuotaCounter>>>,
    class_names: Mutex<Vec<String>>,
    refused_pages: RefusedPages,
    throttle: Arc<Throttle>,
}

/// A class by its name, whatever its place in the present rules: slots outlive reloads.
pub(crate) type StableClassId = u16;

impl Engine {
    /// An engine that spends what comes from `supply` and remembers at most `max_clients` clients.
    pub fn new(supply: LeaseMode, max_clients: usize) -> Arc<Self> {
        Self::hashing_by(Hashing::random(), supply, max_clients)
    }

    /// An engine on accounts of its own that does the same in every run, whoever has chosen the keys of its maps.
    pub fn deterministic(max_clients: usize) -> Arc<Self> {
        Self::hashing_by(Hashing::fixed(), LeaseMode::Local, max_clients)
    }

    fn hashing_by(hashing: Hashing, supply: LeaseMode, max_clients: usize) -> Arc<Self> {
        Arc::new(Self {
            supply,
            clients: Clients::new(max_clients),
            observations: ProfileStore::new(hashing),
            experience: CostEstimates::default(),
            accounts: Mutex::default(),
            class_names: Mutex::default(),
            refused_pages: RefusedPages::default(),
            throttle: Arc::default(),
        })
    }

    /// Puts `rules` in force: what follows is decided by them, on the accounts as they stand.
    pub fn admission(self: &Arc<Self>, rules: Arc<Rules>, now: Timestamp) -> Admission {
        let slots = self.class_ids(&rules);
        let accounts = self.open(&rules, &slots, now);
        self.throttle.update_config(&rules.scopes);
        Admission::new(Arc::clone(self), rules, accounts, slots)
    }

    /// Opens the accounts of `rules`, or goes on with them, so that they can be supplied before anybody asks.
    pub fn open_quotas(&self, rules: &Rules, now: Timestamp) {
        self.open(rules, &self.class_ids(rules), now);
    }

    fn open(&self, rules: &Rules, slots: &[StableClassId], now: Timestamp) -> Vec<Arc<QuotaCounter>> {
        let open = |(place, quota)| self.account(quota, slots, max_cost(rules, place), now);
        rules.quotas.iter().enumerate().map(open).collect()
    }

    fn class_ids(&self, rules: &Rules) -> Vec<StableClassId> {
        rules.classes.iter().map(|class| self.class_id(&class.name)).collect()
    }

    fn class_id(&self, class: &str) -> StableClassId {
        let mut names = self.class_names.lock();
        let place = names.iter().position(|name| name == class).unwrap_or_else(|| {
            names.push(class.to_owned());
            names.len() - 1
        });
        place as StableClassId
    }

    fn account(&self, quota: &Quota, slots: &[StableClassId], dearest: Units, now: Timestamp) -> Arc<QuotaCounter> {
        let mut accounts = self.accounts.lock();
        if let Some(account) = accounts.iter().find(|account| account.name() == quota.name) {
            account.update_config(quota, slots, dearest, now);
            return Arc::clone(account);
        }
        let account = Arc::new(QuotaCounter::open(accounts.len(), quota, slots, dearest, self.supply.clone(), now));
        accounts.push(Arc::clone(&account));
        self.supply.wake_refresher();
        account
    }
}

/// The most that one request is expected to cost of the quota at `place`, as far as the settings say.
fn max_cost(rules: &Rules, place: usize) -> Units {
    let costs = rules.routes.iter().flat_map(|route| &route.costs);
    let of_quota = costs.filter(|(quota, _)| usize::from(quota.0) == place).map(|(_, cost)| match cost {
        Cost::Known(units) => *units,
        Cost::Learned => CostEstimate::INITIAL.0,
    });
    of_quota.max().unwrap_or(Units::from_whole(1))
}
