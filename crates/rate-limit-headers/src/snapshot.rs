//! What the rate-limit fields of one response show.

use super::{has_own_budgets, is_announced, is_own_budget};
use tidegate_engine::{BucketUsage, QuotaUsage};
use tidegate_policy::{ClassId, Refusal, RouteId, Rules};

/// Quota and bucket usage at one decision.
#[derive(Clone, Copy)]
pub struct RateLimitSnapshot<'a> {
    /// Class of the client.
    pub class: ClassId,
    /// Route.
    pub route: RouteId,
    /// Usage of the route's quotas.
    pub usages: &'a [QuotaUsage],
    /// Usage of the client's bucket.
    pub bucket: Option<BucketUsage>,
    /// Reason of the refusal, if refused.
    pub refusal: Option<&'a Refusal>,
}

/// Quota that is announced.
pub(super) struct Announced<'a> {
    /// Index among the quotas of the route.
    pub(super) index: usize,
    pub(super) usage: &'a QuotaUsage,
    /// What remains in the quota is announced, not only what remains of the client's share of it.
    pub(super) has_total: bool,
}

impl<'a> RateLimitSnapshot<'a> {
    /// Returns the quotas that are announced.
    pub(super) fn announced(self, rules: &'a Rules) -> impl Iterator<Item = Announced<'a>> {
        let class = &rules[self.class];
        let has_own_budgets = has_own_budgets(&rules[self.route], rules);
        let usages = self.usages.iter().enumerate().filter(|(_, usage)| is_announced(class, &rules[usage.quota]));
        usages.map(move |(index, usage)| {
            let has_total = !has_own_budgets || is_own_budget(&rules[usage.quota]);
            Announced { index, usage, has_total }
        })
    }
}
