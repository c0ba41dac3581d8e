//! Customers of listed API keys: what they have used of their budgets.

use super::ServiceState;
use crate::admin::UsageDocument;
use tidegate_access_log::rfc3339;
use tidegate_policy::QuotaId;
use tidegate_policy::api_keys::customer;
use tidegate_policy::budget::{BudgetKey, CustomerSource};

impl ServiceState {
    /// Returns the usage of each budget by each customer of a listed key, by name and quota.
    pub(super) fn usage_of_customers(&self) -> Vec<UsageDocument> {
        let now = self.handle.now();
        let mut usage = self.handle.with_admission(|admission| {
            let rules = admission.rules();
            let quotas = (0..rules.quotas.len()).map(QuotaId::from_index).filter(|id| {
                rules.customer == Some(CustomerSource::ApiKey)
                    && rules[*id].budget.as_ref().is_some_and(|budget| budget.per == BudgetKey::Customer)
            });
            let mut documents = Vec::new();
            for quota in quotas {
                documents.extend(rules.api_keys.iter().filter_map(|(hash, key)| {
                    let usage = admission.budget_usage(quota, key.class, customer(hash), now)?;
                    Some(UsageDocument {
                        key: key.name.clone(),
                        class: rules[key.class].name.clone(),
                        valid: key.is_valid(now),
                        quota: rules[quota].name.clone(),
                        limit: usage.limit.into(),
                        used: usage.used.into(),
                        remaining: usage.limit.saturating_sub(usage.used).into(),
                        window_end: rfc3339(usage.window_end),
                    })
                }));
            }
            documents
        });
        usage.sort_by(|one, other| (&one.key, &one.quota).cmp(&(&other.key, &other.quota)));
        usage
    }
}
