//! Settlement of simulated requests that have completed, and eviction of idle clients.

use super::Simulator;
use crate::policy::Timestamp;
use crate::replay::in_flight::{Completion, PendingCharge};
use std::time::Duration;

impl Simulator {
    /// Settles the requests that completed by `now`, updates bot detection, and evicts idle clients.
    pub(super) fn advance_to(&mut self, now: Timestamp) {
        while let Some(ending) = self.in_flight.pop_completed(now) {
            self.settle(ending);
        }
        if now.saturating_duration_since(self.last_evicted) >= EVICTION_INTERVAL {
            self.admission.evict_idle(now);
            self.last_evicted = now;
        }
    }

    /// Settles all requests in flight.
    pub(super) fn settle_all(&mut self, now: Timestamp) {
        while let Some(ending) = self.in_flight.pop_completed(Timestamp(u64::MAX)) {
            self.settle(ending);
        }
        while let Some(bill) = self.in_flight.pop_any() {
            self.settle_charge(bill, now);
        }
    }

    fn settle(&mut self, ending: Completion) {
        let Completion { due, charge: bill, observation: lesson } = ending;
        if let Some(bill) = bill {
            self.settle_charge(*bill, due);
        }
        if let Some((observation, status)) = lesson {
            observation.finish(status, &self.admission);
        }
    }

    pub(super) fn settle_charge(&mut self, bill: PendingCharge, now: Timestamp) {
        let PendingCharge { permit, class, costs, page, .. } = bill;
        let receipt = match costs {
            Some(costs) => permit.settle_total(|quota, expected| {
                costs.iter().find(|(known, _)| *known == quota).map_or(expected, |(_, cost)| *cost)
            }),
            None => permit.settle_unknown(),
        };
        self.tally.record_settlement(class, &receipt, now);
        if let Some((cache, page)) = self.cache.as_mut().zip(page) {
            cache.insert(page, now);
        }
    }

    pub(super) fn schedule_completion(&mut self, ending: Completion) {
        if ending.charge.is_none() && ending.observation.is_none() {
            return;
        }
        if let Some(first) = self.in_flight.add(ending) {
            self.settle(first);
        }
    }
}

/// Interval of evicting idle clients. Eviction does not change decisions and visits every client.
const EVICTION_INTERVAL: Duration = Duration::from_secs(3600);
