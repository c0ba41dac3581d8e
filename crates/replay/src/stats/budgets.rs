//! Budgets of a quota: what all keys use together, and how many of them meet a limit.

use crate::report::BudgetReport;
use std::collections::HashMap;
use tidegate_engine::QuotaUsage;
use tidegate_policy::budget::{Budget, Payer};
use tidegate_policy::identity::ClientKey;
use tidegate_policy::quota::Quota;
use tidegate_policy::{ClassId, Timestamp, Units};

/// Budgets of one quota.
#[derive(Default)]
pub(super) struct Budgets {
    /// By key, true if a request of it was refused or found the limit reached.
    limited: HashMap<ClientKey, bool>,
    used: Units,
    first_refused: Option<Timestamp>,
}

impl Budgets {
    /// Records a decision at `now` on a request of `class`. Keys beyond `max_keys` are not counted.
    pub(super) fn add(
        &mut self,
        budget: &Budget,
        usage: &QuotaUsage,
        (class, payer): (ClassId, Payer),
        is_refused: bool,
        now: Timestamp,
    ) {
        if is_refused {
            self.first_refused.get_or_insert(now);
        }
        let key = budget.key(class, payer);
        if self.limited.len() < budget.max_keys || self.limited.contains_key(&key) {
            *self.limited.entry(key).or_default() |= is_refused || usage.used >= usage.limit;
        }
    }

    /// Records a settled request.
    pub(super) fn charge(&mut self, settled: Units) {
        self.used = self.used.saturating_add(settled);
    }

    pub(super) fn report(&self, quota: &Quota) -> BudgetReport {
        BudgetReport {
            name: quota.name.clone(),
            keys: self.limited.len() as u64,
            limited: self.limited.values().filter(|is_limited| **is_limited).count() as u64,
            used: self.used,
            first_refused: self.first_refused,
        }
    }
}
