//! Where the log is the gate's own: the books are kept as it kept them.

use super::{Simulator, logged_origin_refusal};
use crate::engine::{Engine, QuotaUsage};
use crate::policy::{QuotaId, Timestamp, Units};
use crate::replay::RetryModel;
use crate::replay::in_flight::{Account, PendingCharge};
use crate::replay::log::{NativeFields, OrderedLine};
use smallvec::SmallVec;
use std::sync::Arc;

impl Simulator {
    /// Brings the books to where the gate found them that logged this: what was settled before its decision is settled,
    /// and what was used before the log began is used.
    ///
    /// As long as all has been decided as the gate did, what else was used follows the log, too: somebody corrected it by
    /// hand, the origin or another gate spent it, or a crash lost it.
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
            // What the origin's condition refused had been let through first.
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

    /// The gate was started anew: it forgot its clients and where classes stood in their turn, not what was used and learned.
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

    /// The quota of that name.
    fn quota(&self, name: &str) -> Option<QuotaId> {
        let place = self.rules.quotas.iter().position(|quota| quota.name == name)?;
        Some(QuotaId(place as u16))
    }

    /// As which of its settlements each quota counted a request, where the gate's own log says so of all of them.
    pub(super) fn sequences(&self, own: &NativeFields<'_>, standings: &[QuotaUsage], file: usize) -> Option<Sequences> {
        let turn = |standing: &QuotaUsage| {
            let name = &self.rules.quotas[usize::from(standing.quota.0)].name;
            let account = own.accounts.iter().find(|account| account.quota == **name)?;
            let turn = Sequence { settled: account.settled_turn?, again: account.again_turn };
            Some(((file, standing.quota), turn))
        };
        standings.iter().map(turn).collect()
    }

    /// Each quota settles its part of a bill in its own turn.
    pub(super) fn settle_in_sequence(&mut self, turns: &Sequences, bill: PendingCharge, now: Timestamp) {
        let PendingCharge { permit, class, costs, mut page, .. } = bill;
        for (&(account, Sequence { settled, again }), permit) in turns.iter().zip(permit.split_by_quota()) {
            let then_settled = again.map(|_| settled);
            let part = PendingCharge { permit, class, costs: costs.clone(), then_settled, page: page.take() };
            self.add_charge(account, again.unwrap_or(settled), part, now);
        }
    }

    /// The turn of a bill has come: it is settled, or charged a second time and settled later.
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

/// On each account of a request, when it was settled there.
pub(super) type Sequences = SmallVec<[(Account, Sequence); 2]>;

/// The numbers of a request's settlement on a quota, and of its second charge.
#[derive(Clone, Copy)]
pub(super) struct Sequence {
    settled: u64,
    again: Option<u64>,
}
