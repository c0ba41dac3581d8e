//! The scopes of one name: one, or one for each value.
//!
//! A value's scope is made when a request first asks for it, and forgotten once that changes nothing, or nobody has
//! asked for long. As many as there may be are each in use? Then newcomers share one more, which holds them all to what
//! one may have: a flood of made-up values is throttled like one value, and nobody is turned away for it.

use super::instance::{InstanceId, ScopeInstance};
use super::limiter::{ScopeLimiter, ScopeState};
use super::scheduler::PartitionValue;
use crate::policy::throttle::{Scope, ThrottleConfig, partition};
use crate::policy::time::Timestamp;
use foldhash::fast::RandomState;
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The scopes of one name.
pub(super) struct ScopeGroup {
    pub(super) name: Arc<str>,
    rules: Option<Arc<ThrottleConfig>>,
    /// The scope that is there once, if it ever was.
    single: Option<InstanceId>,
    /// The most values that have scopes of their own; none, where the scope is there once.
    max_partitions: Option<usize>,
    partitions: HashMap<u64, InstanceId, RandomState>,
    /// All of those values, the one to be looked at next first.
    eviction_order: VecDeque<u64>,
    /// The scope of values that found no place.
    overflow: Option<InstanceId>,
}

/// So many are looked at for one that can be forgotten when a new one is made.
const EVICTION_SCAN: usize = 8;

impl ScopeGroup {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            rules: None,
            single: None,
            max_partitions: None,
            partitions: HashMap::default(),
            eviction_order: VecDeque::new(),
            overflow: None,
        }
    }

    /// Takes over the rules of `scope`, in all its doors.
    pub(super) fn update_config(&mut self, scope: &Scope, doors: &mut Slab<ScopeInstance>, now: Timestamp) {
        self.rules = scope.throttle.clone().map(Arc::new);
        self.max_partitions = scope.partitioning.as_ref().map(|by_value| by_value.max_partitions.get());
        let one = self.single.filter(|_| self.max_partitions.is_none());
        let each = self.partitions.values().chain(&self.overflow).filter(|_| self.max_partitions.is_some());
        for door in each.copied().chain(one) {
            doors[door.0].limiter.update_config(self.rules.clone(), now);
        }
    }

    /// The settings name it no more.
    pub(super) fn remove_config(&mut self) {
        (self.rules, self.max_partitions) = (None, None);
    }

    /// All of it taken together, while it is in force.
    pub(super) fn state(&self, doors: &Slab<ScopeInstance>, now: Timestamp) -> Option<ScopeState> {
        let mut fresh = ScopeLimiter::new(&self.name);
        fresh.update_config(self.rules.clone(), now);
        let fresh = fresh.state(now)?;
        let state = |door: &InstanceId| doors[door.0].limiter.state(now);
        let Some(_) = self.max_partitions else { return self.single.as_ref().and_then(state).or(Some(fresh)) };
        let each = self.partitions.values().chain(&self.overflow).filter_map(state);
        let together = each.reduce(|one, other| one.merge(&other)).unwrap_or_else(|| fresh.clone());
        Some(ScopeState { name: fresh.name, partitions: Some(self.partitions.len()), ..together })
    }

    /// Its `count` busiest values.
    pub(super) fn busiest(&self, count: usize, doors: &Slab<ScopeInstance>, now: Timestamp) -> Vec<ScopeState> {
        let each = self.partitions.values().chain(&self.overflow);
        let mut states: Vec<ScopeState> = each.filter_map(|door| doors[door.0].limiter.state(now)).collect();
        let business = |of: &ScopeState| (of.in_flight + of.queue_length, of.backoff_remaining);
        states.sort_by(|one, other| business(other).cmp(&business(one)).then_with(|| one.name.cmp(&other.name)));
        states.truncate(count);
        states
    }

    pub(super) fn single(&mut self, doors: &mut Slab<ScopeInstance>, now: Timestamp) -> InstanceId {
        let Self { name, rules, max_partitions, .. } = self;
        let rules = rules.clone().filter(|_| max_partitions.is_none());
        *self.single.get_or_insert_with(|| InstanceId(doors.insert(ScopeInstance::new(name, name, rules, now))))
    }

    /// The scope of `value`, made if there is none.
    pub(super) fn instance_for(
        &mut self,
        value: &PartitionValue<'_>,
        doors: &mut Slab<ScopeInstance>,
        now: Timestamp,
    ) -> InstanceId {
        let door = match self.partitions.get(&value.hash) {
            Some(known) => *known,
            None => self.create_partition(value, doors, now),
        };
        doors[door.0].touch(now);
        door
    }

    fn create_partition(
        &mut self,
        value: &PartitionValue<'_>,
        doors: &mut Slab<ScopeInstance>,
        now: Timestamp,
    ) -> InstanceId {
        self.evict_one_idle(doors, now);
        let (scope, rules) = (&self.name, &self.rules);
        let mut make = |name: &str| InstanceId(doors.insert(ScopeInstance::new(scope, name, rules.clone(), now)));
        if self.partitions.len() >= self.max_partitions.unwrap_or(0) {
            return *self.overflow.get_or_insert_with(|| make(OVERFLOW_NAME));
        }
        let door = make(&partition::display_value(&value.text));
        self.partitions.insert(value.hash, door);
        self.eviction_order.push_back(value.hash);
        door
    }

    /// Forgets one of the next few, if one is idle: who floods the gate with values makes room for them by that.
    fn evict_one_idle(&mut self, doors: &mut Slab<ScopeInstance>, now: Timestamp) {
        for _ in 0..EVICTION_SCAN.min(self.eviction_order.len()) {
            let Some(value) = self.eviction_order.pop_front() else { return };
            if self.evict_if_idle(value, doors, now) {
                return;
            }
            self.eviction_order.push_back(value);
        }
    }

    /// Forgets all that are idle.
    pub(super) fn evict_idle(&mut self, doors: &mut Slab<ScopeInstance>, now: Timestamp) {
        let mut eviction_order = std::mem::take(&mut self.eviction_order);
        eviction_order.retain(|&value| !self.evict_if_idle(value, doors, now));
        self.eviction_order = eviction_order;
    }

    fn evict_if_idle(&mut self, value: u64, doors: &mut Slab<ScopeInstance>, now: Timestamp) -> bool {
        let idle = self.partitions.get(&value).copied().filter(|door| doors[door.0].is_idle(now));
        if let Some(door) = idle {
            self.partitions.remove(&value);
            doors.remove(door.0);
        }
        idle.is_some()
    }
}

/// What the scope of values that found no place is called.
const OVERFLOW_NAME: &str = "(others)";
