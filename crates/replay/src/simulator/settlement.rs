//! Settlement of simulated requests that have completed, and eviction of idle clients.

use super::Simulator;
use crate::in_flight::{Completion, PendingCharge};
use std::time::Duration;
use tidegate_policy::Timestamp;

impl Simulator {
    /// Settles the requests that completed by `now`, updates bot detection, and evicts idle clients.
    pub(super) fn advance_to(&mut self, now: Timestamp) {
        while let Some(completion) = self.in_flight.pop_completed(now) {
            self.settle(completion);
        }
        if now.saturating_duration_since(self.last_evicted_at) >= EVICTION_INTERVAL {
            self.admission.evict_idle(now);
            self.last_evicted_at = now;
        }
        self.learn_until(now);
    }

    /// Settles all requests in flight.
    pub(super) fn settle_all(&mut self, now: Timestamp) {
        while let Some(completion) = self.in_flight.pop_completed(Timestamp(u64::MAX)) {
            self.settle(completion);
        }
        while let Some(charge) = self.in_flight.pop_any() {
            self.settle_charge(charge, now);
        }
    }

    fn settle(&mut self, completion: Completion) {
        let Completion { due, charge, observation } = completion;
        if let Some(charge) = charge {
            self.settle_charge(*charge, due);
        }
        if let Some((observation, status)) = observation {
            observation.finish(status, &self.admission);
        }
    }

    pub(super) fn settle_charge(&mut self, charge: PendingCharge, now: Timestamp) {
        let PendingCharge { permit, class, costs, page, .. } = charge;
        let receipt = match costs {
            Some(costs) => permit.settle_total(|quota, expected| {
                costs.iter().find(|(id, _)| *id == quota).map_or(expected, |(_, cost)| *cost)
            }),
            None => permit.settle_unknown(),
        };
        self.stats.record_settlement(class, &receipt, now);
        if let Some((cache, page)) = self.origin_cache.as_mut().zip(page) {
            cache.insert(page, now);
        }
    }

    pub(super) fn schedule_completion(&mut self, completion: Completion) {
        if completion.charge.is_none() && completion.observation.is_none() {
            return;
        }
        if let Some(first) = self.in_flight.add(completion) {
            self.settle(first);
        }
    }
}

/// Interval of evicting idle clients. Eviction does not change decisions and visits every client.
const EVICTION_INTERVAL: Duration = Duration::from_secs(3600);
