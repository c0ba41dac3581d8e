//! Instances of one configured scope: a single one, or one per partition.
//!
//! A partition is created on its first request. It is evicted once it equals a new one, or after a long idle time.
//! Beyond the maximum number of partitions, new values share one overflow instance, which enforces the limits of a
//! single partition. So a flood of synthetic values is throttled like one value, and the number of values causes no
//! rejection.

use super::ids::{InstanceId, PartitionValue};
use super::instance::ScopeInstance;
use super::limiter::{ScopeLimiter, ScopeState};
use foldhash::fast::RandomState;
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tidegate_policy::Timestamp;
use tidegate_policy::throttle::{Scope, ThrottleConfig, partition};

/// Instances of one configured scope.
pub(super) struct ScopeGroup {
    pub(super) name: Arc<str>,
    config: Option<Arc<ThrottleConfig>>,
    /// Instance of the unpartitioned scope, once it has been used.
    single: Option<InstanceId>,
    /// Maximum number of partitions; `None` if the scope is not partitioned.
    max_partitions: Option<usize>,
    partitions: HashMap<u64, InstanceId, RandomState>,
    /// All partition values; the front is the next candidate for eviction.
    eviction_order: VecDeque<u64>,
    /// Instance that serves the values beyond the maximum.
    overflow: Option<InstanceId>,
}

/// Maximum number of partitions examined to evict one when another is created.
const EVICTION_SCAN: usize = 8;

impl ScopeGroup {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            config: None,
            single: None,
            max_partitions: None,
            partitions: HashMap::default(),
            eviction_order: VecDeque::new(),
            overflow: None,
        }
    }

    /// Applies the configuration of `scope` to all of its instances.
    pub(super) fn update_config(&mut self, scope: &Scope, instances: &mut Slab<ScopeInstance>, now: Timestamp) {
        self.config = scope.throttle.clone().map(Arc::new);
        self.max_partitions = scope.partitioning.as_ref().map(|partitioning| partitioning.max_partitions.get());
        let single = self.single.filter(|_| self.max_partitions.is_none());
        let each = self.partitions.values().chain(&self.overflow).filter(|_| self.max_partitions.is_some());
        for instance in each.copied().chain(single) {
            instances[instance.0].limiter.update_config(self.config.clone(), now);
        }
    }

    /// Removes the configuration: the settings no longer contain the scope.
    pub(super) fn remove_config(&mut self) {
        (self.config, self.max_partitions) = (None, None);
    }

    /// Returns the merged snapshot of all instances, or `None` if the scope is not configured.
    pub(super) fn state(&self, instances: &Slab<ScopeInstance>, now: Timestamp) -> Option<ScopeState> {
        let mut fresh = ScopeLimiter::new(Arc::clone(&self.name));
        fresh.update_config(self.config.clone(), now);
        let fresh = fresh.state(now)?;
        let state = |instance: &InstanceId| instances[instance.0].state(instances, now);
        let Some(_) = self.max_partitions else { return self.single.as_ref().and_then(state).or(Some(fresh)) };
        let each = self.partitions.values().chain(&self.overflow).filter_map(state);
        let merged = each.reduce(|one, other| one.merge(&other)).unwrap_or_else(|| fresh.clone());
        Some(ScopeState { name: fresh.name, partitions: Some(self.partitions.len()), ..merged })
    }

    /// Returns snapshots of the `count` busiest partitions.
    pub(super) fn busiest(&self, count: usize, instances: &Slab<ScopeInstance>, now: Timestamp) -> Vec<ScopeState> {
        let each = self.partitions.values().chain(&self.overflow);
        let mut states: Vec<ScopeState> =
            each.filter_map(|instance| instances[instance.0].state(instances, now)).collect();
        let load = |state: &ScopeState| (state.in_flight + state.queue_length, state.backoff_remaining);
        states.sort_by(|one, other| load(other).cmp(&load(one)).then_with(|| one.name.cmp(&other.name)));
        states.truncate(count);
        states
    }

    pub(super) fn single(&mut self, instances: &mut Slab<ScopeInstance>, now: Timestamp) -> InstanceId {
        let Self { name, config, max_partitions, .. } = self;
        let config = config.clone().filter(|_| max_partitions.is_none());
        let make = || ScopeInstance::new(name, Arc::clone(name), config, now);
        *self.single.get_or_insert_with(|| InstanceId(instances.insert(make())))
    }

    /// Returns the instance for `value`, and creates a missing one.
    pub(super) fn instance_for(
        &mut self,
        value: &PartitionValue<'_>,
        instances: &mut Slab<ScopeInstance>,
        now: Timestamp,
    ) -> InstanceId {
        let instance = match self.partitions.get(&value.hash) {
            Some(instance) => *instance,
            None => self.create_partition(value, instances, now),
        };
        instances[instance.0].touch(now);
        instance
    }

    fn create_partition(
        &mut self,
        value: &PartitionValue<'_>,
        instances: &mut Slab<ScopeInstance>,
        now: Timestamp,
    ) -> InstanceId {
        self.evict_one_idle(instances, now);
        let (scope, config) = (&self.name, &self.config);
        let mut make =
            |name: &str| InstanceId(instances.insert(ScopeInstance::new(scope, name.into(), config.clone(), now)));
        if self.partitions.len() >= self.max_partitions.unwrap_or(0) {
            return *self.overflow.get_or_insert_with(|| make(OVERFLOW_NAME));
        }
        let instance = make(&partition::display_value(&value.text));
        self.partitions.insert(value.hash, instance);
        self.eviction_order.push_back(value.hash);
        instance
    }

    /// Evicts at most one idle partition among the next few. So a flood of new values makes room for itself.
    fn evict_one_idle(&mut self, instances: &mut Slab<ScopeInstance>, now: Timestamp) {
        for _ in 0..EVICTION_SCAN.min(self.eviction_order.len()) {
            let Some(value) = self.eviction_order.pop_front() else { return };
            if self.evict_if_idle(value, instances, now) {
                return;
            }
            self.eviction_order.push_back(value);
        }
    }

    /// Evicts all idle partitions.
    pub(super) fn evict_idle(&mut self, instances: &mut Slab<ScopeInstance>, now: Timestamp) {
        let mut eviction_order = std::mem::take(&mut self.eviction_order);
        eviction_order.retain(|&value| !self.evict_if_idle(value, instances, now));
        self.eviction_order = eviction_order;
    }

    fn evict_if_idle(&mut self, value: u64, instances: &mut Slab<ScopeInstance>, now: Timestamp) -> bool {
        let idle = self.partitions.get(&value).copied().filter(|instance| instances[instance.0].is_idle(now));
        if let Some(instance) = idle {
            self.partitions.remove(&value);
            instances.remove(instance.0);
        }
        idle.is_some()
    }
}

/// Name of the overflow instance.
const OVERFLOW_NAME: &str = "(others)";
