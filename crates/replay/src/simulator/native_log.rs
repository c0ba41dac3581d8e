//! Synchronizes the simulated quotas with the gateway's own log.

use super::Simulator;
use super::decide::logged_origin_refusal;
use crate::RetryModel;
use crate::in_flight::{PendingCharge, SequenceDomain};
use crate::log::OrderedLine;
use crate::response_cache::ResponseCache;
use smallvec::SmallVec;
use std::sync::Arc;
use tidegate_access_log::read::NativeFields;
use tidegate_config::settings::Ledger;
use tidegate_engine::{Engine, QuotaUsage};
use tidegate_policy::{Timestamp, Units};

impl Simulator {
    /// Brings the quotas to their state before the logged decision: settles what was settled before it, and sets the
    /// usage from before the log began.
    ///
    /// While all decisions agree with the log, other usage follows it, too: manual corrections, usage reported by the
    /// origin, usage of other instances, and units lost in a crash.
    pub(super) fn sync_with_log(&mut self, native: &NativeFields<'_>, next: OrderedLine<'_>) {
        if self.started_us.is_some_and(|latest| latest < native.started_us) {
            self.restart(next.at);
        }
        self.started_us = self.started_us.max(Some(native.started_us));
        for account in &native.quotas {
            let Some(quota) = self.rules.quota_id(&account.quota) else { continue };
            while let Some(charge) = self.in_flight.pop_settled_before((next.position.file, quota), account.sequence) {
                self.settle_or_retry(charge, (next.position.file, quota), next.at);
            }
            // A request that the state of the origin refused had been admitted first.
            let was_admitted = native.reason.is_none() || logged_origin_refusal(native).is_some();
            let own_cost = if was_admitted { account.cost } else { Units::ZERO };
            let used = account.used.saturating_sub(own_cost);
            let is_known = std::mem::replace(&mut self.has_initial_usage[quota.index()], true);
            if !is_known && !used.is_zero() {
                let applied = self.admission.set_used(&account.quota, used, next.at);
                self.stats.set_initial_usage(quota, applied.map_or(Units::ZERO, |(_, used)| used));
            }
            let follows_log =
                self.stats.is_consistent() && !self.has_left_log && self.retry_model == RetryModel::Ignore;
            if is_known && follows_log && self.admission.sync_used_from_log(quota, used, next.at) {
                self.stats.record_correction();
            }
        }
    }

    /// Simulates a restart of the gateway, which keeps usage and what was learned, but neither clients nor tier phases.
    fn restart(&mut self, now: Timestamp) {
        self.settle_all(now);
        let engine = Engine::deterministic(self.policy.settings.limits.max_tracked_clients);
        let admission = engine.admission(Arc::clone(&self.rules), now);
        for quota in self.admission.quotas(now) {
            let _ = admission.set_used(&quota.name, quota.used, now);
        }
        if self.policy.settings.ledger != Ledger::Memory {
            engine.restore_key_usage(&self.engine);
        }
        engine.restore_demand(&self.engine.learned_demand());
        engine.restore_baseline(&self.engine.learned_baseline(), &self.rules, now);
        (self.engine, self.admission) = (engine, admission);
        self.learned_until = self.learned_until.map(|_| Timestamp::default());
        self.response_cache.iter_mut().for_each(ResponseCache::restart);
        self.stats.record_restart();
    }

    /// Returns the sequence numbers of the request's settlements; `None` unless the log contains all of them.
    pub(super) fn sequences(
        &self,
        native: &NativeFields<'_>,
        usages: &[QuotaUsage],
        file: usize,
    ) -> Option<ChargeSequences> {
        let sequence = |usage: &QuotaUsage| {
            let name = &self.rules[usage.quota].name;
            let account = native.quotas.iter().find(|account| account.quota == **name)?;
            let sequence = ChargeSequence { settlement: account.settle_sequence?, retry: account.retry_sequence };
            Some(((file, usage.quota), sequence))
        };
        usages.iter().map(sequence).collect()
    }

    /// Registers each quota's part of a charge under its own sequence number.
    pub(super) fn settle_in_sequence(&mut self, sequences: &ChargeSequences, charge: PendingCharge, now: Timestamp) {
        let PendingCharge { permit, class, costs, mut page, .. } = charge;
        for (&(account, ChargeSequence { settlement, retry }), permit) in sequences.iter().zip(permit.split_by_quota())
        {
            let then_settled = retry.map(|_| settlement);
            let part =
                PendingCharge { permit, class, costs: costs.clone(), settle_sequence: then_settled, page: page.take() };
            self.add_charge(account, retry.unwrap_or(settlement), part, now);
        }
    }

    /// Settles a charge whose sequence number is reached, or charges it a second time and registers its settlement.
    fn settle_or_retry(&mut self, mut charge: PendingCharge, account: SequenceDomain, now: Timestamp) {
        match charge.settle_sequence.take() {
            None => self.settle_charge(charge, now),
            Some(sequence) => {
                charge.permit.reserve_retry(now);
                self.add_charge(account, sequence, charge, now);
            }
        }
    }

    /// Registers a charge to be settled before the first decision with a later sequence number.
    pub(super) fn add_charge(&mut self, account: SequenceDomain, sequence: u64, charge: PendingCharge, now: Timestamp) {
        if let Some(other) = self.in_flight.add_charge(account, sequence, charge) {
            self.settle_charge(other, now);
        }
    }
}

/// Sequence numbers of a request, by sequence domain.
pub(super) type ChargeSequences = SmallVec<[(SequenceDomain, ChargeSequence); 2]>;

/// Sequence numbers of a request's settlement and second charge on a quota.
#[derive(Clone, Copy)]
pub(super) struct ChargeSequence {
    settlement: u64,
    retry: Option<u64>,
}
