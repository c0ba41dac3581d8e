//! The state of all scopes and of all who wait, under the throttle's lock.
//!
//! What happens concerns the doors that it touches: only the lanes before those are looked at, and only where such a
//! door is open. One thing reaches further. The last slot is kept for whoever has waited longest, unless that one waits for
//! something else than a slot; so where a door begins to rest, slots that other doors kept for those before it are free.

use super::limiter::{BlockedBy, ScopeState};
use super::instance::{ScopeInstance, InstanceId};
use super::group::ScopeGroup;
use super::wait_queue::{WaitQueue, QueueId};
use super::{ThrottleRejection, SlotRequest, Few, ScopeTarget, ResponseFeedback, ScopeRef};
use crate::policy::Reason;
use crate::policy::throttle::backoff::BackoffEpoch;
use crate::policy::throttle::{self, OriginOutcome, Scope};
use crate::policy::time::Timestamp;
use foldhash::fast::RandomState;
use slab::Slab;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// All scopes, all lanes, all who wait.
#[derive(Default)]
pub(super) struct Scheduler {
    /// The latest time that was told: whoever leaves without telling it does so now.
    now: Timestamp,
    families: Vec<ScopeGroup>,
    doors: Slab<ScopeInstance>,
    /// The lanes in which somebody waits.
    lanes: Slab<WaitQueue>,
    lane_before: HashMap<Few<InstanceId>, QueueId, RandomState>,
    places: BTreeMap<WaiterId, Waiter>,
    next_place: u64,
    woken: Vec<Waker>,
}

/// Somebody's place in line; the smaller number has waited longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaiterId(u64);

/// All scopes of one name, by its place on the floor. It is never forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScopeGroupId(usize);

/// A value that there is a scope for.
pub(super) struct PartitionValue<'a> {
    /// By which it is known: by a key of this process, so that nobody can find two values of one scope.
    pub(super) hash: u64,
    pub(super) text: Cow<'a, [u8]>,
}

struct Waiter {
    lane: QueueId,
    comer: SlotRequest,
    until: Timestamp,
    waker: Option<Waker>,
    standing: WaiterState,
}

enum WaiterState {
    Waits,
    /// Its turn has come; it holds its slots from then on.
    Started(SlotGrant),
    /// Somebody more important took its place.
    PushedOut(ThrottleRejection),
}

/// What a request holds of its scopes.
#[derive(Clone, Debug)]
pub(super) struct SlotGrant {
    doors: Few<(InstanceId, BackoffEpoch)>,
    started: Timestamp,
}

/// What becomes of one who arrives.
pub(super) enum ScheduleResult {
    Starts(SlotGrant),
    Waits(WaiterId),
    TurnedAway(ThrottleRejection),
}

/// What one who waits sees.
pub(super) enum WaiterPoll {
    Starts(SlotGrant),
    Waits(Timestamp),
    Gone(ThrottleRejection),
}

impl Scheduler {
    pub(super) fn follow(&mut self, scopes: &[Scope]) {
        self.families.iter_mut().for_each(ScopeGroup::retire);
        // Who waits at a door that is there no more goes on by its old rules, or all of them would go at once.
        let empty = self.doors.iter_mut().filter(|(_, door)| !door.is_waited_for());
        empty.for_each(|(_, door)| door.book.rules = None);
        for scope in scopes.iter().filter(|scope| scope.throttle.is_some()) {
            let ScopeGroupId(family) = self.family(&scope.name);
            self.families[family].follow(scope, &mut self.doors, self.now);
        }
        let all: Vec<InstanceId> = self.doors.iter().map(|(door, _)| InstanceId(door)).collect();
        self.let_go(&all);
        // What they wait for may have changed.
        for place in self.places.values_mut() {
            self.woken.extend(place.waker.take());
        }
    }

    /// How requests find their way to `scope`.
    pub(super) fn step(&mut self, scope: &Scope) -> ScopeRef {
        let ScopeGroupId(family) = self.family(&scope.name);
        match &scope.by_value {
            None => ScopeRef::One(self.families[family].sole(&mut self.doors, self.now)),
            Some(by_value) => ScopeRef::OfValue(ScopeGroupId(family), by_value.from.clone()),
        }
    }

    fn family(&mut self, name: &str) -> ScopeGroupId {
        ScopeGroupId(self.families.iter().position(|family| *family.name == *name).unwrap_or_else(|| {
            self.families.push(ScopeGroup::new(name));
            self.families.len() - 1
        }))
    }

    /// The doors that lead to `goals`, in order; the scope of a value is made if there is none.
    pub(super) fn doors(&mut self, goals: &[ScopeTarget<'_>], now: Timestamp) -> Few<InstanceId> {
        self.now = self.now.max(now);
        let door = |goal: &ScopeTarget<'_>| match goal {
            ScopeTarget::One(door) => *door,
            ScopeTarget::OfValue(ScopeGroupId(family), value) => self.families[*family].of(value, &mut self.doors, self.now),
        };
        let mut doors: Few<InstanceId> = goals.iter().map(door).collect();
        doors.sort_unstable();
        doors
    }

    pub(super) fn take_woken(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.woken)
    }

    pub(super) fn arrive(&mut self, doors: Few<InstanceId>, comer: SlotRequest, now: Timestamp) -> ScheduleResult {
        self.now = self.now.max(now);
        self.let_go(&doors);
        let Some(hindrance) = self.hindrance(&doors) else {
            let ticket = self.start(None, &doors, comer.chance);
            self.let_go_beyond(&doors);
            return ScheduleResult::Starts(ticket);
        };
        let max_wait = self.rules(&doors).map(|rules| rules.queue.max_wait).min().unwrap_or_default();
        let until = self.now + max_wait;
        if hindrance.lasts_beyond(until) || max_wait.is_zero() || self.earliest_start(&doors, comer) > until {
            return ScheduleResult::TurnedAway(self.closed(&doors));
        }
        while let Some(full) = self.full_door(&doors) {
            match self.last_in_line(full, comer.priority) {
                Some(place) => self.push_out(place),
                None => return ScheduleResult::TurnedAway(self.closed(&doors)),
            }
        }
        ScheduleResult::Waits(self.join(doors, comer, until))
    }

    /// When the comer would start at the earliest if it got in line.
    fn earliest_start(&self, doors: &[InstanceId], comer: SlotRequest) -> Timestamp {
        let lane = self.lane_before.get(doors).map(|lane| &self.lanes[lane.0]);
        let ahead = lane.map_or(0, |lane| lane.ahead_of(comer.client, comer.priority));
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
        let starts = doors.iter().map(|door| self.doors[door.0].book.starts_after(ahead, self.now));
        starts.max().unwrap_or(self.now)
    }

    pub(super) fn look(&mut self, id: WaiterId, waker: &Waker, now: Timestamp) -> WaiterPoll {
        self.now = self.now.max(now);
        if let Some(Waiter { lane, standing: WaiterState::Waits, .. }) = self.places.get(&id) {
            let doors = self.lanes[lane.0].doors.clone();
            self.let_go(&doors);
        }
        let Some(place) = self.places.get(&id) else {
            return WaiterPoll::Gone(ThrottleRejection { scope: "".into(), reason: Reason::Throttle, wait: Duration::ZERO });
        };
        let (lane, until) = (place.lane, place.until);
        match &place.standing {
            WaiterState::Started(ticket) => {
                let ticket = ticket.clone();
                self.places.remove(&id);
                return WaiterPoll::Starts(ticket);
            }
            WaiterState::PushedOut(closed) => {
                let closed = closed.clone();
                self.places.remove(&id);
                return WaiterPoll::Gone(closed);
            }
            WaiterState::Waits => {}
        }
        let doors = self.lanes[lane.0].doors.clone();
        if until <= self.now || self.hindrance(&doors).is_some_and(|hindrance| hindrance.lasts_beyond(until)) {
            self.take_out(id);
            self.places.remove(&id);
            self.let_go(&doors);
            return WaiterPoll::Gone(self.closed(&doors));
        }
        let opens = self.watch(id, &doors);
        if let Some(place) = self.places.get_mut(&id) {
            place.waker = Some(waker.clone());
        }
        WaiterPoll::Waits(opens.map_or(until, |opens| opens.min(until)))
    }

    pub(super) fn give_up(&mut self, id: WaiterId) {
        match self.places.get(&id).map(|place| &place.standing) {
            None => {}
            Some(WaiterState::Waits) => {
                let doors = self.take_out(id);
                self.places.remove(&id);
                self.let_go(&doors);
            }
            Some(WaiterState::PushedOut(_)) => {
                self.places.remove(&id);
            }
            Some(WaiterState::Started(ticket)) => {
                let ticket = ticket.clone();
                self.places.remove(&id);
                self.leave(&ticket);
            }
        }
    }

    pub(super) fn hear(&mut self, ticket: &SlotGrant, outcome: &OriginOutcome, chance: f64, now: Timestamp) -> ResponseFeedback {
        self.now = self.now.max(now);
        let mut heard = ResponseFeedback::default();
        for &(InstanceId(door), spell) in &ticket.doors {
            let ScopeInstance { scope, book, .. } = &mut self.doors[door];
            let rested = book.pressure.rest_left(self.now);
            let lesson = book.hear(spell, outcome, chance, ticket.started, self.now);
            if let Some(wait) = lesson.rest {
                if rested.is_zero() && !wait.is_zero() {
                    heard.begin_to_rest.push((Arc::clone(scope), wait));
                }
                if heard.rest.as_ref().is_none_or(|longest| longest.wait < wait) {
                    heard.rest = Some(ThrottleRejection { scope: Arc::clone(scope), reason: Reason::Backoff, wait });
                }
            }
            heard.adjusted.extend(lesson.adjustment.map(|adjustment| (Arc::clone(&book.name), adjustment)));
        }
        self.let_go_beyond(&ticket.doors());
        heard
    }

    pub(super) fn leave(&mut self, ticket: &SlotGrant) {
        for &(InstanceId(door), spell) in &ticket.doors {
            self.doors[door].book.over(spell, ticket.started, self.now);
        }
        self.let_go_beyond(&ticket.doors());
    }

    /// The scopes of the settings, by name; forgets, as it goes over them all, what nobody needs.
    pub(super) fn states(&mut self, now: Timestamp) -> Vec<ScopeState> {
        self.now = self.now.max(now);
        let (now, doors) = (self.now, &mut self.doors);
        let states = self.families.iter_mut().filter_map(|family| {
            family.forget_idle(doors, now);
            family.state(doors, now)
        });
        states.collect()
    }

    /// The `count` busiest values of the scope of that name.
    pub(super) fn busiest(&self, name: &str, count: usize, now: Timestamp) -> Vec<ScopeState> {
        let family = self.families.iter().find(|family| *family.name == *name);
        family.map_or_else(Vec::new, |family| family.busiest(count, &self.doors, self.now.max(now)))
    }

    /// Starts whoever may go now that something has changed at `doors`, in order.
    fn let_go(&mut self, doors: &[InstanceId]) {
        if !doors.iter().any(|door| self.doors[door.0].is_waited_for()) {
            return;
        }
        let mut changed: Few<InstanceId> = doors.into();
        while let Some(id) = self.next(&changed) {
            let Some(&Waiter { lane, comer: SlotRequest { chance, .. }, .. }) = self.places.get(&id) else { break };
            let doors = self.lanes[lane.0].doors.clone();
            let ticket = self.start(Some(id), &doors, chance);
            self.take_out(id);
            if let Some(place) = self.places.get_mut(&id) {
                place.standing = WaiterState::Started(ticket);
                self.woken.extend(place.waker.take());
            }
            for door in self.released_by(&doors).into_iter().chain(doors) {
                if !changed.contains(&door) {
                    changed.push(door);
                }
            }
        }
        self.post_watchmen(&changed);
    }

    /// The same where `doors` may have begun to rest.
    fn let_go_beyond(&mut self, doors: &[InstanceId]) {
        let mut changed: Few<InstanceId> = doors.into();
        changed.extend(self.released_by(doors));
        self.let_go(&changed);
    }

    /// The doors that no longer keep a slot for somebody who waits at `doors`, because there it is not a slot that is
    /// waited for.
    fn released_by(&self, doors: &[InstanceId]) -> Few<InstanceId> {
        let rests = |door: &&InstanceId| !self.waits_for_slots(**door);
        let lanes = doors.iter().filter(rests).flat_map(|door| self.doors[door.0].lanes());
        let others = lanes.flat_map(|lane| &self.lanes[lane.0].doors).copied();
        let mut released: Few<InstanceId> = others.filter(|door| self.doors[door.0].book.turn_is_of_the_oldest()).collect();
        released.sort_unstable();
        released.dedup();
        released
    }

    /// Where only time is waited for, somebody has to look when it has passed; and whoever was told to look later than
    /// that, has to be told anew.
    fn post_watchmen(&mut self, doors: &[InstanceId]) {
        for door in doors.iter().map(|door| &self.doors[door.0]) {
            let Some(oldest) = door.oldest() else { continue };
            let Some(opens) = door.book.hindrance(self.now).and_then(BlockedBy::until) else { continue };
            let sleeper = match door.watchman {
                None => oldest,
                Some((watchman, told)) if told > opens => watchman,
                Some(_) => continue,
            };
            if let Some(place) = self.places.get_mut(&sleeper) {
                self.woken.extend(place.waker.take());
            }
        }
    }

    /// Makes the one at `id` the watchman of those of its `doors` that time alone opens and nobody watches. Returns when
    /// the first of them opens.
    fn watch(&mut self, id: WaiterId, doors: &[InstanceId]) -> Option<Timestamp> {
        let mut first: Option<Timestamp> = None;
        for door in doors {
            let door = &mut self.doors[door.0];
            if door.watchman.is_some_and(|(known, _)| known != id) {
                continue;
            }
            let opens = door.book.hindrance(self.now).and_then(BlockedBy::until);
            door.watchman = opens.map(|opens| (id, opens));
            first = opens.into_iter().chain(first).min();
        }
        first
    }

    /// The next to start, of all who can, in the lanes before `doors`.
    fn next(&self, doors: &[InstanceId]) -> Option<WaiterId> {
        let is_open = |door: &&InstanceId| self.doors[door.0].book.hindrance(self.now).is_none();
        let lanes = doors.iter().filter(is_open).flat_map(|&door| {
            // Where the only slot is kept for one, nobody else needs to be asked.
            let kept = self.kept_for(door).filter(|_| self.doors[door.0].book.has_one_slot_left(self.now));
            let kept = kept.and_then(|place| self.places.get(&place)).map(|place| place.lane);
            self.doors[door.0].lanes().filter(move |lane| kept.is_none_or(|kept| kept == *lane))
        });
        let can_go = lanes.filter(|&lane| self.hindrance_of(lane).is_none());
        let first = |lane: QueueId| {
            let it = &self.lanes[lane.0];
            let oldest = it.oldest()?;
            let is_its_turn = it.doors.iter().any(|door| self.kept_for(*door) == Some(oldest));
            let (priority, place) = if is_its_turn { (u8::MAX, oldest) } else { it.next()? };
            Some((is_its_turn, priority, Reverse(place)))
        };
        can_go.filter_map(first).max().map(|(.., Reverse(place))| place)
    }

    /// Whose turn it is at a door where the next start is of whoever has waited longest: of those who wait for nothing but
    /// slots.
    fn kept_for(&self, InstanceId(door): InstanceId) -> Option<WaiterId> {
        let door = &self.doors[door];
        if !door.is_waited_for() || !door.book.turn_is_of_the_oldest() {
            return None;
        }
        door.lanes().find(|lane| self.is_ready(*lane)).and_then(|lane| self.lanes[lane.0].oldest())
    }

    /// What keeps whoever comes to `doors` from going now; of several things, the one that lasts.
    fn hindrance(&self, doors: &[InstanceId]) -> Option<BlockedBy> {
        let lane = || self.lane_before.get(doors).copied();
        self.hindrance_of_scopes(doors).or_else(|| self.is_kept_from(doors, lane).then_some(BlockedBy::Slot))
    }

    fn hindrance_of(&self, lane: QueueId) -> Option<BlockedBy> {
        let doors = &self.lanes[lane.0].doors;
        self.hindrance_of_scopes(doors).or_else(|| self.is_kept_from(doors, || Some(lane)).then_some(BlockedBy::Slot))
    }

    fn hindrance_of_scopes(&self, doors: &[InstanceId]) -> Option<BlockedBy> {
        doors.iter().filter_map(|door| self.doors[door.0].book.hindrance(self.now)).max()
    }

    /// True when the last slot at one of `doors` is kept for somebody in another lane, who waits for nothing but slots.
    fn is_kept_from(&self, doors: &[InstanceId], lane: impl Fn() -> Option<QueueId>) -> bool {
        let mut last = doors.iter().filter(|door| self.doors[door.0].book.has_one_slot_left(self.now));
        let is_of_another = |place: WaiterId| self.places.get(&place).is_some_and(|place| Some(place.lane) != lane());
        last.any(|door| self.kept_for(*door).is_some_and(is_of_another))
    }

    /// True when whoever waits there waits for nothing but slots.
    fn is_ready(&self, QueueId(lane): QueueId) -> bool {
        self.lanes[lane].doors.iter().all(|door| self.waits_for_slots(*door))
    }

    fn waits_for_slots(&self, InstanceId(door): InstanceId) -> bool {
        self.doors[door].book.hindrance(self.now).is_none_or(BlockedBy::is_slot)
    }

    /// One starts at `doors`: who had the place `id` there, or just came.
    fn start(&mut self, id: Option<WaiterId>, doors: &[InstanceId], chance: f64) -> SlotGrant {
        let now = self.now;
        let started = |&door: &InstanceId| {
            let takes_turn = self.kept_for(door).is_none_or(|kept| Some(kept) == id);
            (door, takes_turn)
        };
        let turns: Few<(InstanceId, bool)> = doors.iter().map(started).collect();
        let start = |(door, takes_turn): (InstanceId, bool)| (door, self.doors[door.0].book.start(takes_turn, chance, now));
        SlotGrant { doors: turns.into_iter().map(start).collect(), started: now }
    }

    fn join(&mut self, doors: Few<InstanceId>, comer: SlotRequest, until: Timestamp) -> WaiterId {
        let id = WaiterId(self.next_place);
        self.next_place += 1;
        let lane = self.lane_before.get(&doors).copied().unwrap_or_else(|| {
            let lane = QueueId(self.lanes.insert(WaitQueue::before(doors.clone())));
            self.lane_before.insert(doors.clone(), lane);
            lane
        });
        self.places.insert(id, Waiter { lane, comer, until, waker: None, standing: WaiterState::Waits });
        let it = &mut self.lanes[lane.0];
        let before = it.oldest();
        it.join(id, comer.client, comer.priority);
        let oldest = it.oldest();
        for InstanceId(door) in doors {
            self.doors[door].joined(comer.priority);
            self.doors[door].stands(lane, before, oldest);
        }
        id
    }

    /// Takes somebody out of its lane. Returns before which doors that was.
    fn take_out(&mut self, id: WaiterId) -> Few<InstanceId> {
        let Some(&Waiter { lane, comer, .. }) = self.places.get(&id) else { return Few::new() };
        let it = &mut self.lanes[lane.0];
        let (doors, before) = (it.doors.clone(), it.oldest());
        it.leave(id, comer.client, comer.priority);
        let oldest = it.oldest();
        for door in &doors {
            self.doors[door.0].left(id, comer.priority);
            self.doors[door.0].stands(lane, before, oldest);
        }
        if oldest.is_none() {
            self.lanes.remove(lane.0);
            self.lane_before.remove(&doors);
        }
        doors
    }

    fn push_out(&mut self, id: WaiterId) {
        let doors = self.take_out(id);
        let closed = self.closed(&doors);
        if let Some(place) = self.places.get_mut(&id) {
            place.standing = WaiterState::PushedOut(closed);
            self.woken.extend(place.waker.take());
        }
        self.let_go(&doors);
    }

    fn full_door(&self, doors: &[InstanceId]) -> Option<InstanceId> {
        let is_full = |door: &InstanceId| {
            let book = &self.doors[door.0].book;
            book.rules.as_ref().is_some_and(|rules| book.waiting >= rules.queue.max_length)
        };
        doors.iter().copied().find(is_full)
    }

    /// Who goes last of those who wait at a door, if somebody of `priority` goes before.
    fn last_in_line(&self, InstanceId(door): InstanceId, priority: u8) -> Option<WaiterId> {
        let door = &self.doors[door];
        door.lowest().filter(|lowest| *lowest < priority)?;
        let last = door.lanes().filter_map(|lane| self.lanes[lane.0].last());
        last.min_by_key(|&(priority, place)| (priority, Reverse(place))).map(|(_, place)| place)
    }

    /// What is told to who cannot be served in time. Whoever waits now goes before who comes back, whatever the priority.
    fn closed(&self, doors: &[InstanceId]) -> ThrottleRejection {
        let all = || doors.iter().map(|door| &self.doors[door.0]);
        let wait = all().map(|door| door.book.expects(self.now)).max();
        let worst = all().max_by_key(|door| (door.book.hindrance(self.now), door.book.expects(self.now)));
        let scope = worst.map_or_else(|| "".into(), |door| Arc::clone(&door.scope));
        let rests = matches!(self.hindrance(doors), Some(BlockedBy::Rest(_) | BlockedBy::Probe));
        let reason = if rests { Reason::Backoff } else { Reason::Throttle };
        ThrottleRejection { scope, reason, wait: wait.unwrap_or_default() }
    }

    fn rules(&self, doors: &[InstanceId]) -> impl Iterator<Item = &throttle::ThrottleConfig> {
        doors.iter().filter_map(|door| self.doors[door.0].book.rules.as_deref())
    }
}

#[cfg(test)]
impl Scheduler {
    /// Looks at everything there is: whether anybody waits who could go at `now`.
    pub(super) fn has_left_somebody(&mut self, now: Timestamp) -> bool {
        self.now = self.now.max(now);
        self.lanes.iter().any(|(lane, _)| self.hindrance_of(QueueId(lane)).is_none())
    }

    /// Whether there is nobody, and nothing left of anybody.
    pub(super) fn is_bare(&self) -> bool {
        let is_bare = |door: &ScopeInstance| !door.is_waited_for() && door.lowest().is_none() && door.watchman.is_none();
        self.places.is_empty()
            && self.lanes.is_empty()
            && self.lane_before.is_empty()
            && self.doors.iter().all(|(_, door)| is_bare(door))
    }
}

impl SlotGrant {
    fn doors(&self) -> Few<InstanceId> {
        self.doors.iter().map(|(door, _)| *door).collect()
    }
}
