//! Usage of quotas and buckets after a decision, as reported to clients and in logs.

use std::time::Duration;
use tidegate_policy::bucket::{Bucket, BucketState};
use tidegate_policy::decide::{DecisionRequest, QuotaSnapshot};
use tidegate_policy::{QuotaId, Timestamp, Units};

/// Usage of one quota after a decision.
#[derive(Clone, Copy, Debug)]
pub struct QuotaUsage {
    /// Id of the quota.
    pub quota: QuotaId,
    /// Expected cost of the request, in units.
    pub cost: Units,
    /// Settled plus reserved units, including this request's cost if it was admitted.
    pub used: Units,
    /// Limit of the quota, in units; of a budget, that of the key that pays.
    pub limit: Units,
    /// Units left for the client's class.
    pub remaining: Units,
    /// Units left of the client's share; `None` without a limit per client.
    pub client_remaining: Option<Units>,
    /// Number of tiers that the class has reached.
    pub tier: u8,
    /// True if a tier refused the request and the crawler guard admitted it.
    pub guard_admitted: bool,
    /// End of the window.
    pub resets_at: Timestamp,
    /// Time at which the client has units of its share again.
    pub client_resets_at: Timestamp,
    /// Id of the window that is charged.
    pub window: u64,
    /// Sequence number of the decision on this quota. Orders decisions as they were made.
    pub sequence: u64,
}

/// State of one bucket after a decision.
#[derive(Clone, Copy, Debug)]
pub struct BucketUsage {
    /// Tokens available now.
    pub remaining: u32,
    /// Time until the next token is refilled.
    pub next_token_after: Duration,
    /// Time until the bucket is full again.
    pub full_after: Duration,
    /// Sequence number of the decision within its shard. Of two numbers that are equal modulo
    /// [`BucketUsage::SEQUENCE_SHARDS`], the smaller was assigned first.
    pub sequence: u64,
}

impl BucketUsage {
    /// Number of shards that count decisions on buckets.
    pub const SEQUENCE_SHARDS: u64 = 64;

    /// Creates the usage of a bucket in state `level`, with sequence number 0.
    pub fn new(bucket: &Bucket, level: BucketState, now: Timestamp) -> Self {
        Self {
            remaining: bucket.remaining(level, now),
            next_token_after: bucket.next_token_at(level, now).saturating_duration_since(now),
            full_after: bucket.full_at(level).saturating_duration_since(now),
            sequence: 0,
        }
    }
}

impl QuotaUsage {
    /// Creates the usage of a quota of which `used` is taken, with window and sequence number 0. In shadow mode, tiers
    /// do not limit the remaining units of the class.
    pub fn new(request: &DecisionRequest<'_>, snapshot: &QuotaSnapshot<'_>, used: Units) -> Self {
        let limit = if snapshot.quota.budget.is_some() { snapshot.limit } else { snapshot.quota.limit };
        let ceiling = match snapshot.quota.budget.is_none() && request.class_rules.enforce {
            true => snapshot.quota.shutoff_level(request.class),
            false => limit,
        };
        let own_cost = used.saturating_sub(snapshot.taken);
        let client_used = snapshot.client_used.map(|used| used.saturating_add(own_cost));
        let client_limit = snapshot.quota.client_limit_of(request.class_rules);
        Self {
            quota: snapshot.id,
            cost: snapshot.cost,
            used,
            limit,
            remaining: ceiling.min(snapshot.limit).saturating_sub(used),
            client_remaining: client_limit.zip(client_used).map(|(limit, used)| limit.saturating_sub(used)),
            tier: snapshot.shedding.tier,
            guard_admitted: snapshot.guard_admitted,
            resets_at: snapshot.resets_at,
            client_resets_at: snapshot.client_resets_at,
            window: 0,
            sequence: 0,
        }
    }
}
