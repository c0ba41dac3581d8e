//! What the rate-limit fields of one response show.

use super::is_announced;
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
    /// Returns the quotas that are announced, each with its index among the quotas of the route.
    pub(super) fn announced(self, rules: &'a Rules) -> impl Iterator<Item = (usize, &'a QuotaUsage)> {
        let class = &rules[self.class];
        self.usages.iter().enumerate().filter(|(_, usage)| is_announced(class, &rules[usage.quota]))
    }
}
