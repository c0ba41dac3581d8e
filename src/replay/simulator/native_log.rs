//! Synchronizes the simulated quotas with the gateway's own log.

use super::Simulator;
use super::decide::logged_origin_refusal;
use crate::engine::{Engine, QuotaUsage};
use crate::policy::{QuotaId, Timestamp, Units};
use crate::replay::RetryModel;
use crate::replay::in_flight::{Account, PendingCharge};
use crate::replay::log::{NativeFields, OrderedLine};
use smallvec::SmallVec;
use std::sync::Arc;

impl Simulator {
    /// Brings the quotas to their state before the logged decision: settles what was settled before it, and sets the
    /// usage from before the log began.
    ///
    /// While all decisions agree with the log, other usage follows it, too: manual corrections, usage reported by the
    /// origin, usage of other instances, and units lost in a crash.
    pub(super) fn sync_with_log(&mut self, own: &NativeFields<'_>, next: OrderedLine<'_>) {
        if self.run.is_some_and(|latest| latest < own.run) {
            self.restart(next.at);
        }
        self.run = self.run.max(Some(own.run));
        for account in &own.accounts {
            let Some(quota) = self.quota(&account.quota) else { continue };
            while let Some(bill) = self.in_flight.settled_before((next.place.file, quota), account.turn) {
                self.settle_or_retry(bill, (next.place.file, quota), next.at);
            }
            // A request that the state of the origin refused had been admitted first.
            let was_let_through = own.reason.is_none() || logged_origin_refusal(own).is_some();
            let own_share = if was_let_through { account.cost } else { Units::ZERO };
            let used = account.used.saturating_sub(own_share);
            let has_begun = std::mem::replace(&mut self.initial_usage_known[usize::from(quota.0)], true);
            if !has_begun && !used.is_zero() {
                let known = self.admission.set_used(&account.quota, used, next.at);
                self.tally.set_initial_usage(quota, known.map_or(Units::ZERO, |(_, used)| used));
            }
            let is_as_logged = self.tally.is_consistent() && self.clients == RetryModel::Ignore;
            if has_begun && is_as_logged && self.admission.sync_used_from_log(quota, used, next.at) {
                self.tally.record_correction();
            }
        }
    }

    /// Simulates a restart of the gateway, which keeps usage and learned demand, but neither clients nor tier phases.
    fn restart(&mut self, now: Timestamp) {
        self.settle_all(now);
        let engine = Engine::deterministic(self.policy.settings.limits.max_clients);
        let admission = engine.admission(Arc::clone(&self.rules), now);
        for quota in self.admission.quotas(now) {
            let _ = admission.set_used(&quota.name, quota.used, now);
        }
        engine.restore_demand(&self.engine.learned_demand());
        (self.engine, self.admission) = (engine, admission);
        self.tally.record_restart();
    }

    /// Resolves a quota by name.
    fn quota(&self, name: &str) -> Option<QuotaId> {
        let place = self.rules.quotas.iter().position(|quota| quota.name == name)?;
        Some(QuotaId(place as u16))
    }

    /// Returns the sequence numbers of the request's settlements; `None` unless the log contains all of them.
    pub(super) fn sequences(&self, own: &NativeFields<'_>, standings: &[QuotaUsage], file: usize) -> Option<Sequences> {
        let turn = |standing: &QuotaUsage| {
            let name = &self.rules.quotas[usize::from(standing.quota.0)].name;
            let account = own.accounts.iter().find(|account| account.quota == **name)?;
            let turn = Sequence { settled: account.settled_turn?, again: account.again_turn };
            Some(((file, standing.quota), turn))
        };
        standings.iter().map(turn).collect()
    }

    /// Registers each quota's part of a charge under its own sequence number.
    pub(super) fn settle_in_sequence(&mut self, turns: &Sequences, bill: PendingCharge, now: Timestamp) {
        let PendingCharge { permit, class, costs, mut page, .. } = bill;
        for (&(account, Sequence { settled, again }), permit) in turns.iter().zip(permit.split_by_quota()) {
            let then_settled = again.map(|_| settled);
            let part = PendingCharge { permit, class, costs: costs.clone(), then_settled, page: page.take() };
            self.add_charge(account, again.unwrap_or(settled), part, now);
        }
    }

    /// Settles a charge whose sequence number is reached, or charges it a second time and registers its settlement.
    fn settle_or_retry(&mut self, mut bill: PendingCharge, account: Account, now: Timestamp) {
        match bill.then_settled.take() {
            None => self.settle_charge(bill, now),
            Some(turn) => {
                bill.permit.reserve_retry(now);
                self.add_charge(account, turn, bill, now);
            }
        }
    }

    fn add_charge(&mut self, account: Account, turn: u64, bill: PendingCharge, now: Timestamp) {
        if let Some(other) = self.in_flight.add_charge(account, turn, bill) {
            self.settle_charge(other, now);
        }
    }
}

/// Sequence numbers of a request, by sequence domain.
pub(super) type Sequences = SmallVec<[(Account, Sequence); 2]>;

/// Sequence numbers of a request's settlement and second charge on a quota.
#[derive(Clone, Copy)]
pub(super) struct Sequence {
    settled: u64,
    again: Option<u64>,
}
