//! Customers of listed API keys: what they have used of their budgets.

use super::ServiceState;
use crate::admin::UsageDocument;
use tidegate_access_log::rfc3339;
use tidegate_engine::Admission;
use tidegate_policy::api_keys::customer;
use tidegate_policy::budget::{BudgetKey, CustomerSource};
use tidegate_policy::{QuotaId, Timestamp};

impl ServiceState {
    /// Returns the problem that usage by key cannot be written; `None` if there is none.
    pub(super) fn key_usage_error(&self) -> Option<String> {
        let now = self.handle.now();
        let budgets = self.handle.with_admission(|admission| admission.budgets(now));
        let unrecorded = budgets.into_iter().find(|budget| !budget.is_recorded)?;
        Some(format!("The usage of {} cannot be written to state_dir, and its requests are refused", unrecorded.name))
    }

    /// Returns the usage of each budget by each customer of a listed key, by name and quota.
    pub(super) fn usage_of_customers(&self) -> Vec<UsageDocument> {
        let now = self.handle.now();
        self.handle.with_admission(|admission| usage_of_customers(admission, now))
    }
}

/// Returns the usage of each budget by each customer of a listed key, by name and quota.
pub(super) fn usage_of_customers(admission: &Admission, now: Timestamp) -> Vec<UsageDocument> {
    let rules = admission.rules();
    if rules.customer != Some(CustomerSource::ApiKey) {
        return Vec::new();
    }
    let is_of_customers =
        |id: &QuotaId| rules[*id].budget.as_ref().is_some_and(|budget| budget.per == BudgetKey::Customer);
    let mut usage = Vec::new();
    for quota in (0..rules.quotas.len()).map(QuotaId::from_index).filter(is_of_customers) {
        usage.extend(rules.api_keys.iter().filter_map(|(_, key)| {
            let budget = admission.budget_usage(quota, key.class, customer(&key.name), now)?;
            Some(UsageDocument {
                key: key.name.clone(),
                class: rules[key.class].name.clone(),
                valid: key.is_valid(now),
                quota: rules[quota].name.clone(),
                limit: budget.limit.into(),
                used: budget.used.into(),
                remaining: budget.limit.saturating_sub(budget.used).into(),
                window_end: rfc3339(budget.window_end),
            })
        }));
    }
    usage.sort_by(|one, other| (&one.key, &one.quota).cmp(&(&other.key, &other.quota)));
    usage
}
