//! Rate-limit fields of responses: `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers), and
//! optionally the legacy families.

mod legacy;
mod partition;
mod preview;
mod snapshot;

pub use preview::{ResponsePreview, preview};
use snapshot::Announced;
pub use snapshot::RateLimitSnapshot;

use http::StatusCode;
use std::fmt::Write;
use tidegate_config::settings::{Headers, LegacyFamily, RateLimitDraft};
use tidegate_http1::{Fields, Name};
use tidegate_policy::bucket::Bucket;
use tidegate_policy::budget::BudgetKey;
use tidegate_policy::class::Class;
use tidegate_policy::quota::Quota;
use tidegate_policy::route::Route;
use tidegate_policy::time::ceil_seconds;
use tidegate_policy::{ClassId, QuotaId, Reason, Rules, Timestamp, Units};

/// Maximum of a structured-field integer (RFC 9651 section 3.3.1).
const MAX_SF_INTEGER: u64 = 999_999_999_999_999;

/// Header parts prebuilt for one version of the rules.
pub struct RateLimitHeaders {
    draft: RateLimitDraft,
    families: Vec<LegacyFamily>,
    /// `RateLimit-Policy` by class, then by route; `None` if there are no limits, or if keys have limits of their own.
    policies: Vec<Vec<Option<Box<str>>>>,
    /// `RateLimit-Partition` by class, then by route; `None` if no limit is that of one client. Empty before draft 12.
    partitions: Vec<Vec<Option<Box<str>>>>,
    /// `RateLimit` items of each bucket and each quota, up to the remaining number.
    buckets: Vec<String>,
    quotas: Vec<String>,
    /// `RateLimit` items of the client's share of each quota.
    client_shares: Vec<String>,
}

impl RateLimitHeaders {
    /// Builds the header parts of `rules`.
    pub fn new(headers: &Headers, rules: &Rules) -> Self {
        let policies_of = |(index, class)| {
            let policies_of =
                |route| policies(class, route, rules, |id| limit_of_class(ClassId::from_index(index), &rules[id]));
            let routes = rules.routes.iter();
            routes.map(|route| policies_of(route).filter(|_| !has_limits_of_keys(route, rules))).collect()
        };
        let partitions_of =
            |class| rules.routes.iter().map(|route| partition::partitions(class, route, rules)).collect();
        let is_draft_12 = headers.ratelimit == RateLimitDraft::Draft12;
        let remaining = if is_draft_12 { 'a' } else { 'r' };
        let prefix = |name: &str| format!("\"{name}\";{remaining}=");
        let partitioned = if is_draft_12 { &rules.classes[..] } else { &[] };
        Self {
            draft: headers.ratelimit,
            families: headers.legacy.clone(),
            policies: rules.classes.iter().enumerate().map(policies_of).collect(),
            partitions: partitioned.iter().map(partitions_of).collect(),
            buckets: rules.classes.iter().map(|class| prefix(&class.name)).collect(),
            quotas: rules.quotas.iter().map(|quota| prefix(&quota.name)).collect(),
            client_shares: rules.quotas.iter().map(|quota| prefix(&client_share_name(&quota.name))).collect(),
        }
    }

    /// Writes the fields for `snapshot` into a response with `status`. Replaces those of the origin.
    pub fn write(
        &self,
        rules: &Rules,
        snapshot: RateLimitSnapshot<'_>,
        now: Timestamp,
        status: StatusCode,
        fields: &mut Fields,
    ) {
        match &self.policies[snapshot.class.index()][snapshot.route.index()] {
            Some(policy) => self.write_all(policy, rules, snapshot, now, status, fields),
            None => self.write_of_key(rules, snapshot, now, status, fields),
        }
    }

    /// Writes the fields of a response on a route whose limits depend on the key of the client; nothing if it has no limits.
    #[cold]
    fn write_of_key(
        &self,
        rules: &Rules,
        snapshot: RateLimitSnapshot<'_>,
        now: Timestamp,
        status: StatusCode,
        fields: &mut Fields,
    ) {
        let route = &rules[snapshot.route];
        if !has_limits_of_keys(route, rules) {
            return;
        }
        let limit = |id: QuotaId| {
            let usage = snapshot.usages.iter().find(|usage| usage.quota == id);
            usage.map_or_else(|| limit_of_class(snapshot.class, &rules[id]), |usage| usage.limit)
        };
        if let Some(policy) = policies(&rules[snapshot.class], route, rules, limit) {
            self.write_all(&policy, rules, snapshot, now, status, fields);
        }
    }

    fn write_all(
        &self,
        policy: &str,
        rules: &Rules,
        snapshot: RateLimitSnapshot<'_>,
        now: Timestamp,
        status: StatusCode,
        fields: &mut Fields,
    ) {
        let snapshot =
            RateLimitSnapshot { bucket: snapshot.bucket.filter(|_| rules[snapshot.class].enforce), ..snapshot };
        // robots.txt on a route with costs is not limited.
        if snapshot.usages.is_empty() && snapshot.bucket.is_none() {
            return;
        }
        match self.draft {
            RateLimitDraft::Draft11 => {
                fields.insert(Name::RateLimitPolicy, policy.as_bytes());
                fields.insert_with(Name::RateLimit, |text| self.ratelimit(text, ";t=", rules, snapshot, now));
            }
            RateLimitDraft::Draft12 => {
                fields.insert(Name::RateLimitPolicy, policy.as_bytes());
                match &self.partitions[snapshot.class.index()][snapshot.route.index()] {
                    Some(partition) => fields.insert(Name::RateLimitPartition, partition.as_bytes()),
                    None => fields.remove(Name::RateLimitPartition),
                }
                // A client that reads that nothing remains might not follow the redirect.
                match status.is_redirection() && status != StatusCode::NOT_MODIFIED {
                    true => fields.remove(Name::RateLimit),
                    false => {
                        fields.insert_with(Name::RateLimit, |text| self.ratelimit(text, ";w=", rules, snapshot, now));
                    }
                }
            }
            RateLimitDraft::Off => {}
        }
        legacy::write(&self.families, rules, snapshot, now, status, fields);
    }

    /// Writes the remaining amount of each policy, and its time as the parameter `window`. A policy that refused the request
    /// has zero remaining until the retry time.
    fn ratelimit(
        &self,
        text: &mut impl Write,
        window: &'static str,
        rules: &Rules,
        snapshot: RateLimitSnapshot<'_>,
        now: Timestamp,
    ) -> std::fmt::Result {
        let refused_wait = snapshot.refusal.map(|refusal| ceil_seconds(refusal.wait));
        if let Some(bucket) = snapshot.bucket {
            let is_violated = snapshot.refusal.is_some_and(|refusal| refusal.quotas.is_empty());
            let (remaining, wait) = match refused_wait.filter(|_| is_violated) {
                Some(wait) => (0, wait),
                None => (bucket.remaining.into(), ceil_seconds(bucket.full_after)),
            };
            write_item(text, &self.buckets[snapshot.class.index()], remaining, window, wait)?;
        }
        let mut separator = if snapshot.bucket.is_some() { ", " } else { "" };
        for Announced { index, usage, has_total } in snapshot.announced(rules) {
            let violation = snapshot.refusal.filter(|refusal| refusal.quotas.contains(index));
            let by_share = violation.is_some_and(|refusal| refusal.reason == Reason::ClientShare);
            let is_violated = violation.is_some() && !by_share;
            if has_total {
                let until_reset = ceil_seconds(usage.resets_at.saturating_duration_since(now));
                let (remaining, wait) = match refused_wait.filter(|_| is_violated) {
                    Some(wait) => (0, wait),
                    None => (usage.remaining.floor().min(MAX_SF_INTEGER), until_reset),
                };
                text.write_str(std::mem::replace(&mut separator, ", "))?;
                write_item(text, &self.quotas[usage.quota.index()], remaining, window, wait)?;
            }
            if let Some(remaining) = usage.client_remaining {
                let remaining = if by_share { 0 } else { remaining.floor().min(MAX_SF_INTEGER) };
                text.write_str(std::mem::replace(&mut separator, ", "))?;
                let wait = ceil_seconds(usage.client_resets_at.saturating_duration_since(now));
                write_item(text, &self.client_shares[usage.quota.index()], remaining, window, wait)?;
            }
        }
        Ok(())
    }
}

/// Writes an item such as `"places_api";r=12;t=3600`.
fn write_item(
    text: &mut impl Write,
    prefix: &str,
    remaining: u64,
    window: &'static str,
    wait: u64,
) -> std::fmt::Result {
    text.write_str(prefix)?;
    text.write_str(itoa::Buffer::new().format(remaining))?;
    text.write_str(window)?;
    text.write_str(itoa::Buffer::new().format(wait))
}

/// Returns the policy name of a client's share of `quota`. No quota can have this name.
fn client_share_name(quota: &str) -> String {
    format!("{quota}/client")
}

/// Returns true if responses to clients of `class` announce `quota`. A quota in shadow mode is never announced, and clients of a
/// blocked class, such as those without a key, have no budgets.
fn is_announced(class: &Class, quota: &Quota) -> bool {
    quota.enforce && !(quota.budget.is_some() && class.blocked && class.enforce)
}

/// Returns true if a client on `route` has a budget of its own. What remains in the other quotas is then not for it to know.
fn has_own_budgets(route: &Route, rules: &Rules) -> bool {
    route.costs.iter().any(|(quota, _)| rules[*quota].enforce && is_own_budget(&rules[*quota]))
}

/// Returns true if `quota` counts each client or customer apart.
fn is_own_budget(quota: &Quota) -> bool {
    quota.budget.as_ref().is_some_and(|budget| budget.per != BudgetKey::Class)
}

/// Returns true if a key has a limit of its own in a quota of the route.
fn has_limits_of_keys(route: &Route, rules: &Rules) -> bool {
    let mut budgets = route.costs.iter().filter_map(|(quota, _)| rules[*quota].budget.as_ref());
    budgets.any(|budget| !budget.key_limits.is_empty())
}

/// Returns the limit of a class in a quota, unless its keys have others.
fn limit_of_class(class: ClassId, quota: &Quota) -> Units {
    let of_class = quota.budget.as_ref().and_then(|budget| budget.class_limits.get(&class));
    of_class.copied().unwrap_or(quota.limit)
}

/// Returns the policies of a route. `limit` returns the limit of a quota.
fn policies(class: &Class, route: &Route, rules: &Rules, limit: impl Fn(QuotaId) -> Units) -> Option<Box<str>> {
    let mut text = String::new();
    let applies = |bucket: &&Bucket| class.enforce && !(bucket.costed_only && route.is_free());
    if let Some(bucket) = class.bucket.as_ref().filter(applies) {
        let _ = write!(text, "\"{}\";q={};w={}", class.name, bucket.capacity, seconds_to_fill(bucket));
    }
    let has_own_budgets = has_own_budgets(route, rules);
    let quotas = route.costs.iter().map(|(id, _)| (*id, &rules[*id]));
    for (id, quota) in quotas.filter(|(_, quota)| is_announced(class, quota)) {
        let total = (!has_own_budgets || is_own_budget(quota)).then(|| (quota.name.clone(), limit(id)));
        let share = quota.client_limit_of(class).filter(|_| class.enforce);
        let share = share.map(|limit| (client_share_name(&quota.name), limit));
        let window = ceil_seconds(quota.window.nominal_length()).max(1);
        for (name, limit) in total.into_iter().chain(share) {
            let separator = if text.is_empty() { "" } else { ", " };
            let _ = write!(text, "{separator}\"{name}\";q={};w={window}", limit.floor().min(MAX_SF_INTEGER));
        }
    }
    (!text.is_empty()).then(|| text.into())
}

/// Returns the seconds in which the bucket refills completely, the window of its policy.
fn seconds_to_fill(bucket: &Bucket) -> u64 {
    let refills = bucket.capacity.div_ceil(bucket.fill.max(1));
    ceil_seconds(bucket.interval.saturating_mul(refills)).max(1)
}

#[cfg(test)]
mod tests;
