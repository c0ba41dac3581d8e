//! Customers of listed API keys: what they have used of their budgets.

use super::ServiceState;
use crate::admin::UsageDocument;
use crate::admin::state::{BudgetDocument, BudgetKeyDocument};
use tidegate_access_log::rfc3339;
use tidegate_engine::{Admission, BudgetEntries};
use tidegate_policy::api_keys::customer;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::key_usage::KeyEntry;
use tidegate_policy::quota::Quota;
use tidegate_policy::{ClassId, Rules, Timestamp, Units};

/// Number of keys that the state shows of each budget.
const TOP_KEYS: usize = 5;

impl ServiceState {
    /// Returns the problem that usage by key cannot be written; `None` if there is none.
    pub(super) fn key_usage_error(&self) -> Option<String> {
        let now = self.handle.now();
        self.handle.with_admission(|admission| {
            let quota = admission.unrecorded_budget(now)?;
            Some(format!("The usage of {quota} cannot be written to state_dir, and its requests are refused"))
        })
    }

    /// Returns the budgets, each with the keys that have used most.
    pub(super) fn budgets(&self) -> Vec<BudgetDocument> {
        let now = self.handle.now();
        self.handle.with_admission(|admission| {
            let budgets = admission.budget_entries(TOP_KEYS, now).into_iter();
            budgets.map(|entries| self.budget(admission, &entries)).collect()
        })
    }

    fn budget(&self, admission: &Admission, entries: &BudgetEntries) -> BudgetDocument {
        let quota = &admission.rules()[entries.quota];
        let top = |entry: &KeyEntry| {
            let (key, limit) = self.key_of_budget(admission.rules(), quota, entry.key);
            BudgetKeyDocument { key, used: entry.used.into(), limit: limit.map(Into::into) }
        };
        BudgetDocument {
            name: quota.name.clone(),
            enforce: quota.enforce,
            keys: entries.keys,
            max_keys: quota.budget.as_ref().map_or(0, |budget| budget.max_keys),
            replaced: entries.replaced,
            used: entries.used.into(),
            window_end: entries.window_end.map(rfc3339),
            top: entries.top.iter().map(top).collect(),
        }
    }

    /// Returns the name of a key, and its limit if it is known without the class of a request.
    fn key_of_budget(&self, rules: &Rules, quota: &Quota, key: ClientKey) -> (String, Option<Units>) {
        let limit = |class| quota.budget.as_ref().map(|budget| budget.limit(class, key, quota.limit));
        if let Some((_, listed)) = rules.api_keys.iter().find(|(_, listed)| customer(&listed.name) == key) {
            return (listed.name.clone(), limit(listed.class));
        }
        let classes = (0..rules.classes.len()).map(ClassId::from_index);
        let is_class = |class: &ClassId| quota.budget.as_ref().is_some_and(|it| it.class_keys[class.index()] == key);
        match classes.into_iter().find(is_class) {
            Some(class) => (rules[class].name.clone(), limit(class)),
            None => (key.display(|operator| self.operators.name(operator)).to_string(), None),
        }
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
    let mut usage = Vec::new();
    for quota in admission.customer_budgets() {
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
