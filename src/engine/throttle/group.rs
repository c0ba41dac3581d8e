//! The scopes of one name: one, or one for each value.
//!
//! A value's scope is made when a request first asks for it, and forgotten once that changes nothing, or nobody has
//! asked for long. As many as there may be are each in use? Then newcomers share one more, which holds them all to what
//! one may have: a flood of made-up values is throttled like one value, and nobody is turned away for it.

use super::limiter::{ScopeLimiter, ScopeState};
use super::instance::{ScopeInstance, InstanceId};
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
    sole: Option<InstanceId>,
    /// The most values that have scopes of their own; none, where the scope is there once.
    most: Option<usize>,
    of_value: HashMap<u64, InstanceId, RandomState>,
    /// All of those values, the one to be looked at next first.
    round: VecDeque<u64>,
    /// The scope of values that found no place.
    others: Option<InstanceId>,
}

/// So many are looked at for one that can be forgotten when a new one is made.
const LOOKS: usize = 8;

impl ScopeGroup {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            rules: None,
            sole: None,
            most: None,
            of_value: HashMap::default(),
            round: VecDeque::new(),
            others: None,
        }
    }

    /// Takes over the rules of `scope`, in all its doors.
    pub(super) fn follow(&mut self, scope: &Scope, doors: &mut Slab<ScopeInstance>, now: Timestamp) {
        self.rules = scope.throttle.clone().map(Arc::new);
        self.most = scope.by_value.as_ref().map(|by_value| by_value.most.get());
        let one = self.sole.filter(|_| self.most.is_none());
        let each = self.of_value.values().chain(&self.others).filter(|_| self.most.is_some());
        for door in each.copied().chain(one) {
            doors[door.0].book.follow(self.rules.clone(), now);
        }
    }

    /// The settings name it no more.
    pub(super) fn retire(&mut self) {
        (self.rules, self.most) = (None, None);
    }

    /// All of it taken together, while it is in force.
    pub(super) fn state(&self, doors: &Slab<ScopeInstance>, now: Timestamp) -> Option<ScopeState> {
        let mut fresh = ScopeLimiter::new(&self.name);
        fresh.follow(self.rules.clone(), now);
        let fresh = fresh.state(now)?;
        let state = |door: &InstanceId| doors[door.0].book.state(now);
        let Some(_) = self.most else { return self.sole.as_ref().and_then(state).or(Some(fresh)) };
        let each = self.of_value.values().chain(&self.others).filter_map(state);
        let together = each.reduce(|one, other| one.and(&other)).unwrap_or_else(|| fresh.clone());
        Some(ScopeState { name: fresh.name, values: Some(self.of_value.len()), ..together })
    }

    /// Its `count` busiest values.
    pub(super) fn busiest(&self, count: usize, doors: &Slab<ScopeInstance>, now: Timestamp) -> Vec<ScopeState> {
        let each = self.of_value.values().chain(&self.others);
        let mut states: Vec<ScopeState> = each.filter_map(|door| doors[door.0].book.state(now)).collect();
        let business = |of: &ScopeState| (of.in_flight + of.waiting, of.rests_for);
        states.sort_by(|one, other| business(other).cmp(&business(one)).then_with(|| one.name.cmp(&other.name)));
        states.truncate(count);
        states
    }

    pub(super) fn sole(&mut self, doors: &mut Slab<ScopeInstance>, now: Timestamp) -> InstanceId {
        let Self { name, rules, most, .. } = self;
        let rules = rules.clone().filter(|_| most.is_none());
        *self.sole.get_or_insert_with(|| InstanceId(doors.insert(ScopeInstance::new(name, name, rules, now))))
    }

    /// The scope of `value`, made if there is none.
    pub(super) fn of(&mut self, value: &PartitionValue<'_>, doors: &mut Slab<ScopeInstance>, now: Timestamp) -> InstanceId {
        let door = match self.of_value.get(&value.hash) {
            Some(known) => *known,
            None => self.newcomer(value, doors, now),
        };
        doors[door.0].asked(now);
        door
    }

    fn newcomer(&mut self, value: &PartitionValue<'_>, doors: &mut Slab<ScopeInstance>, now: Timestamp) -> InstanceId {
        self.forget_one(doors, now);
        let (scope, rules) = (&self.name, &self.rules);
        let mut make = |name: &str| InstanceId(doors.insert(ScopeInstance::new(scope, name, rules.clone(), now)));
        if self.of_value.len() >= self.most.unwrap_or(0) {
            return *self.others.get_or_insert_with(|| make(OTHERS));
        }
        let door = make(&partition::shown(&value.text));
        self.of_value.insert(value.hash, door);
        self.round.push_back(value.hash);
        door
    }

    /// Forgets one of the next few, if one is idle: who floods the gate with values makes room for them by that.
    fn forget_one(&mut self, doors: &mut Slab<ScopeInstance>, now: Timestamp) {
        for _ in 0..LOOKS.min(self.round.len()) {
            let Some(value) = self.round.pop_front() else { return };
            if self.forget_if_idle(value, doors, now) {
                return;
            }
            self.round.push_back(value);
        }
    }

    /// Forgets all that are idle.
    pub(super) fn forget_idle(&mut self, doors: &mut Slab<ScopeInstance>, now: Timestamp) {
        let mut round = std::mem::take(&mut self.round);
        round.retain(|&value| !self.forget_if_idle(value, doors, now));
        self.round = round;
    }

    fn forget_if_idle(&mut self, value: u64, doors: &mut Slab<ScopeInstance>, now: Timestamp) -> bool {
        let idle = self.of_value.get(&value).copied().filter(|door| doors[door.0].is_idle(now));
        if let Some(door) = idle {
            self.of_value.remove(&value);
            doors.remove(door.0);
        }
        idle.is_some()
    }
}

/// What the scope of values that found no place is called.
const OTHERS: &str = "(others)";
