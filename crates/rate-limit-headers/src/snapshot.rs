//! What the rate-limit fields of one response show.

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

impl<'a> RateLimitSnapshot<'a> {
    /// Returns the enforced quotas, each with its index among the quotas of the route. Quotas in shadow mode are never
    /// announced.
    pub(super) fn enforced(self, rules: &'a Rules) -> impl Iterator<Item = (usize, &'a QuotaUsage)> {
        let is_enforced = |(_, usage): &(usize, &QuotaUsage)| rules[usage.quota].enforce;
        self.usages.iter().enumerate().filter(is_enforced)
    }
}
