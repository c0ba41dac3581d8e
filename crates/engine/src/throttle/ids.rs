//! Ids of scope groups, partitions, instances, wait queues and waiters, and the slots granted by instance.

use crate::InlineVec;
use std::borrow::Cow;
use tidegate_policy::Timestamp;
use tidegate_policy::throttle::backoff::BackoffEpoch;
use tidegate_policy::throttle::overload::RequestSource;

/// Index of a scope group. Groups are never removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScopeGroupId(pub(super) usize);

/// Index of a scope instance. The index of an evicted instance is reused; requests and waiters prevent the eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct InstanceId(pub(super) usize);

/// Index of a wait queue. A queue exists as long as it has waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueId(pub(super) usize);

/// Identifies a waiter. A smaller id has waited longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaiterId(pub(super) u64);

/// Value of the partition key of an instance.
pub(super) struct PartitionValue<'a> {
    /// Keyed hash of the value, with a per-process key, so that clients cannot construct collisions.
    pub(super) hash: u64,
    pub(super) text: Cow<'a, [u8]>,
}

/// Slots held by a request, one per scope instance.
#[derive(Clone, Debug)]
pub(super) struct SlotGrant {
    pub(super) instances: InlineVec<(InstanceId, BackoffEpoch)>,
    pub(super) granted_at: Timestamp,
    pub(super) source: RequestSource,
}

impl SlotGrant {
    pub(super) fn instance_ids(&self) -> InlineVec<InstanceId> {
        self.instances.iter().map(|(instance, _)| *instance).collect()
    }
}
