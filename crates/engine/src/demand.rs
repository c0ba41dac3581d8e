//! Learned demand of all quotas, for storage across restarts.

use super::{Admission, Engine};
use tidegate_policy::pacing::demand::DemandModel;
use tidegate_policy::pacing::surge::OperatorProfile;
use tidegate_policy::pacing::week::{HOURS_PER_WEEK, HourProfile};
use tidegate_policy::{StableClassId, Timestamp};

/// Learned demand of one class for one quota.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnedDemand {
    /// Name of the quota.
    pub quota: String,
    /// Name of the class.
    pub class: String,
    /// Profile of each hour of the week, from Monday 00:00.
    pub week: [HourProfile; HOURS_PER_WEEK],
    /// Profiles of single operators, which are part of `week`; `None` if they are unknown.
    pub operators: Option<Vec<OperatorProfile>>,
}

impl Engine {
    /// Returns the learned demand of every class that ever requested a paced quota, by quota and class.
    pub fn learned_demand(&self) -> Vec<LearnedDemand> {
        let names = self.class_names.lock().clone();
        let mut learned = Vec::new();
        for counter in self.all_counters() {
            let state = counter.lock();
            let Some(pacer) = state.pacer() else { continue };
            for (class, paced) in names.iter().zip(pacer.classes()) {
                let week = *paced.demand.week().hours();
                if week.iter().any(|hour| hour.weeks > 0.0) {
                    let operators = Some(paced.demand.operators().profiles().collect());
                    learned.push(LearnedDemand {
                        quota: counter.name().to_owned(),
                        class: class.clone(),
                        week,
                        operators,
                    });
                }
            }
        }
        learned
    }

    /// Restores the demand learned by an earlier process. Drops the demand of quotas that no longer exist.
    pub fn restore_demand(&self, learned: &[LearnedDemand]) {
        let counters = self.all_counters();
        for LearnedDemand { quota, class, week, operators } in learned {
            if let Some(counter) = counters.iter().find(|counter| counter.name() == quota) {
                let class_id = self.class_id(class);
                counter.lock().restore_demand(class_id, DemandModel::restored(*week, operators.clone()));
            }
        }
    }
}

impl Admission {
    /// Makes the plans that are due at `now`, as a request for each paced quota would. Records the hours that have
    /// ended, also those without a request.
    pub fn plan_paced_quotas(&self, now: Timestamp) {
        let rules = self.rules();
        for (quota, counter) in rules.quotas.iter().zip(self.counters()) {
            if let Some(pacing) = &quota.pacing {
                let mut state = counter.lock_at(now);
                // The snapshot of one class; the plan holds all of them.
                let _ = state.plan_for(pacing, self.class_ids(), StableClassId::default());
                state.adopt_plan();
            }
        }
    }
}
