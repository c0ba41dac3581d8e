//! Where the log is the gate's own: the books are kept as it kept them.

use super::Trial;
use crate::engine::Standing;
use crate::policy::{QuotaId, Units};
use crate::replay::log::{Next, Own};
use crate::replay::under_way::Turns;

impl Trial {
    /// Brings the books to where the gate found them that logged this: what was settled before its decision is settled,
    /// and what was used before the log began is used.
    pub(super) fn follow(&mut self, own: &Own<'_>, next: Next<'_>) {
        for account in &own.accounts {
            let Some(quota) = self.quota(&account.quota) else { continue };
            while let Some(bill) = self.under_way.settled_before((next.place.file, quota), account.turn) {
                self.pay(bill, next.at);
            }
            let own_share = if own.reason.is_none() { account.cost } else { Units::ZERO };
            let used = account.used.minus(own_share);
            if !std::mem::replace(&mut self.begun[usize::from(quota.0)], true) && !used.is_zero() {
                let known = self.admission.set_used(&account.quota, used, next.at);
                self.tally.begins_with(quota, known.map_or(Units::ZERO, |(_, used)| used));
            }
        }
    }

    /// The quota of that name.
    fn quota(&self, name: &str) -> Option<QuotaId> {
        let place = self.rules.quotas.iter().position(|quota| quota.name == name)?;
        Some(QuotaId(place as u16))
    }

    /// Between which decisions a request was settled, where the gate's own log says so of all its quotas.
    pub(super) fn turns(&self, own: &Own<'_>, standings: &[Standing], file: usize) -> Option<Turns> {
        let turn = |standing: &Standing| {
            let name = &self.rules.quotas[usize::from(standing.quota.0)].name;
            let account = own.accounts.iter().find(|account| account.quota == **name)?;
            Some(((file, standing.quota), account.settled_turn?))
        };
        standings.iter().map(turn).collect()
    }
}
