//! What the plans of all quotas have learned, to be kept beyond the life of the process.

use super::Engine;
use crate::policy::pacing::demand::DemandModel;
use crate::policy::pacing::week::{HOURS, HourProfile};

/// What is known of the demand of one class for one quota.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnedDemand {
    /// The quota, by name.
    pub quota: String,
    /// The class, by name.
    pub class: String,
    /// Each hour of the week, from Monday 00:00 on.
    pub week: [HourProfile; HOURS],
}

impl Engine {
    /// What has been learned of every class that ever asked for a quota with a plan, by quota and class.
    pub fn learned_demand(&self) -> Vec<LearnedDemand> {
        let names = self.class_names.lock().clone();
        let mut learned = Vec::new();
        for account in self.all_accounts() {
            let book = account.lock();
            let Some(pacer) = book.pacer() else { continue };
            for (class, paced) in names.iter().zip(pacer.classes()) {
                let week = *paced.demand.week().hours();
                if week.iter().any(|hour| hour.weeks > 0.0) {
                    learned.push(LearnedDemand { quota: account.name().to_owned(), class: class.clone(), week });
                }
            }
        }
        learned
    }

    /// Goes on from what was learned in an earlier life. What is told of quotas that there are no more is dropped.
    pub fn restore_demand(&self, learned: &[LearnedDemand]) {
        let accounts = self.all_accounts();
        for LearnedDemand { quota, class, week } in learned {
            if let Some(account) = accounts.iter().find(|account| account.name() == quota) {
                let slot = self.class_id(class);
                account.lock().pacer_or_default().class(usize::from(slot)).demand = DemandModel::of(*week);
            }
        }
    }
}
