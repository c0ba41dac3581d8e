//! Learned demand of all quotas, for storage across restarts.

use super::Engine;
use tidegate_policy::pacing::demand::DemandModel;
use tidegate_policy::pacing::week::{HOURS_PER_WEEK, HourProfile};

/// Learned demand of one class for one quota.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnedDemand {
    /// Name of the quota.
    pub quota: String,
    /// Name of the class.
    pub class: String,
    /// Profile of each hour of the week, from Monday 00:00.
    pub week: [HourProfile; HOURS_PER_WEEK],
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
                    learned.push(LearnedDemand { quota: counter.name().to_owned(), class: class.clone(), week });
                }
            }
        }
        learned
    }

    /// Restores the demand learned by an earlier process. Drops the demand of quotas that no longer exist.
    pub fn restore_demand(&self, learned: &[LearnedDemand]) {
        let counters = self.all_counters();
        for LearnedDemand { quota, class, week } in learned {
            if let Some(counter) = counters.iter().find(|counter| counter.name() == quota) {
                let class_id = self.class_id(class);
                counter.lock().restore_demand(class_id, DemandModel::from_hours(*week));
            }
        }
    }
}
