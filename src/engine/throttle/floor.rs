//! The state of all scopes and of all who wait, under the throttle's lock.

use super::book::{Book, Hindrance, ScopeState};
use super::lane::Lane;
use super::{Closed, Comer, Few, LaneId};
use crate::policy::Reason;
use crate::policy::throttle::backoff::Spell;
use crate::policy::throttle::{self, Outcome, Scope};
use crate::policy::time::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;
use std::time::Duration;

/// All scopes, all lanes, all who wait.
#[derive(Default)]
pub(super) struct Floor {
    /// The latest time that was told: whoever leaves without telling it does so now.
    now: Timestamp,
    scopes: Vec<Book>,
    lanes: Vec<Lane>,
    /// The lanes in which somebody waits.
    busy: BTreeSet<usize>,
    places: BTreeMap<PlaceId, Place>,
    next_place: u64,
    woken: Vec<Waker>,
}

/// Somebody's place in line; the smaller number has waited longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PlaceId(u64);

struct Place {
    lane: usize,
    comer: Comer,
    until: Timestamp,
    waker: Option<Waker>,
    standing: Standing,
}

enum Standing {
    Waits,
    /// Its turn has come; it holds its slots from then on.
    Started(Ticket),
    /// Somebody more important took its place.
    PushedOut(Closed),
}

/// What a request holds of its scopes.
#[derive(Clone, Debug)]
pub(super) struct Ticket {
    scopes: Few<(usize, Spell)>,
}

/// What becomes of one who arrives.
pub(super) enum Arrival {
    Starts(Ticket),
    Waits(PlaceId),
    TurnedAway(Closed),
}

/// What one who waits sees.
pub(super) enum Look {
    Starts(Ticket),
    Waits(Timestamp),
    Gone(Closed),
}

impl Floor {
    pub(super) fn follow(&mut self, scopes: &[Scope]) {
        for book in &mut self.scopes {
            book.rules = None;
        }
        for scope in scopes.iter().filter(|scope| scope.throttle.is_some()) {
            let number = self.number(&scope.name);
            self.scopes[number].follow(scope.throttle.clone());
        }
        self.let_go();
        // What they wait for may have changed.
        for place in self.places.values_mut() {
            self.woken.extend(place.waker.take());
        }
    }

    pub(super) fn lane(&mut self, names: &[&str]) -> LaneId {
        let mut scopes: Few<usize> = names.iter().map(|name| self.number(name)).collect();
        scopes.sort_unstable();
        let known = self.lanes.iter().position(|lane| lane.scopes == scopes);
        LaneId(known.unwrap_or_else(|| {
            self.lanes.push(Lane::of(scopes));
            self.lanes.len() - 1
        }))
    }

    fn number(&mut self, name: &str) -> usize {
        self.scopes.iter().position(|book| book.name == name).unwrap_or_else(|| {
            self.scopes.push(Book::new(name));
            self.scopes.len() - 1
        })
    }

    pub(super) fn take_woken(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.woken)
    }

    pub(super) fn arrive(&mut self, LaneId(lane): LaneId, comer: Comer, now: Timestamp) -> Arrival {
        self.goes_on(now);
        let Some(hindrance) = self.hindrance(lane) else { return Arrival::Starts(self.start(lane, comer.chance)) };
        let max_wait = self.rules(lane).map(|rules| rules.queue.max_wait).min().unwrap_or_default();
        let until = self.now + max_wait;
        if hindrance.lasts_beyond(until) || max_wait.is_zero() || self.earliest_start(lane, comer) > until {
            return Arrival::TurnedAway(self.closed(lane));
        }
        while let Some(full) = self.full_scope(lane) {
            match self.last_in_line(full).filter(|(priority, _)| *priority < comer.priority) {
                Some((_, place)) => self.push_out(place),
                None => return Arrival::TurnedAway(self.closed(lane)),
            }
        }
        let place = PlaceId(self.next_place);
        self.next_place += 1;
        self.places.insert(place, Place { lane, comer, until, waker: None, standing: Standing::Waits });
        self.lanes[lane].join(place, comer.client, comer.priority);
        self.busy.insert(lane);
        self.each_scope(lane, |book| book.waiting += 1);
        Arrival::Waits(place)
    }

    /// When the comer would start if it got in line.
    fn earliest_start(&self, lane: usize, comer: Comer) -> Timestamp {
        let it = &self.lanes[lane];
        let ahead = u32::try_from(it.ahead_of(comer.client, comer.priority)).unwrap_or(u32::MAX);
        let starts = it.scopes.iter().map(|&scope| self.scopes[scope].starts_after(ahead, self.now));
        starts.max().unwrap_or(self.now)
    }

    pub(super) fn look(&mut self, id: PlaceId, waker: &Waker, now: Timestamp) -> Look {
        self.goes_on(now);
        let Some(place) = self.places.get(&id) else {
            return Look::Gone(Closed { reason: Reason::Throttle, wait: Duration::ZERO });
        };
        let (lane, until) = (place.lane, place.until);
        match &place.standing {
            Standing::Started(ticket) => {
                let ticket = ticket.clone();
                self.places.remove(&id);
                return Look::Starts(ticket);
            }
            Standing::PushedOut(closed) => {
                let closed = *closed;
                self.places.remove(&id);
                return Look::Gone(closed);
            }
            Standing::Waits => {}
        }
        let hindrance = self.hindrance(lane);
        if until <= self.now || hindrance.is_some_and(|hindrance| hindrance.lasts_beyond(until)) {
            self.take_out(id);
            self.places.remove(&id);
            self.let_go();
            return Look::Gone(self.closed(lane));
        }
        let watchman = &mut self.lanes[lane].watchman;
        let opens = hindrance.and_then(Hindrance::until).filter(|_| watchman.is_none_or(|known| known == id));
        match opens {
            Some(_) => *watchman = Some(id),
            None if *watchman == Some(id) => *watchman = None,
            None => {}
        }
        if let Some(place) = self.places.get_mut(&id) {
            place.waker = Some(waker.clone());
        }
        Look::Waits(opens.map_or(until, |opens| opens.min(until)))
    }

    pub(super) fn give_up(&mut self, id: PlaceId) {
        match self.places.get(&id).map(|place| &place.standing) {
            None => {}
            Some(Standing::Waits) => {
                self.take_out(id);
                self.places.remove(&id);
                self.let_go();
            }
            Some(Standing::PushedOut(_)) => {
                self.places.remove(&id);
            }
            Some(Standing::Started(ticket)) => {
                let ticket = ticket.clone();
                self.places.remove(&id);
                self.leave(&ticket);
            }
        }
    }

    pub(super) fn hear(&mut self, ticket: &Ticket, outcome: &Outcome, chance: f64, now: Timestamp) -> Option<Closed> {
        self.now = self.now.max(now);
        let mut rest = None;
        for &(number, spell) in &ticket.scopes {
            let now = self.now;
            rest = rest.max(self.scopes[number].hear(spell, outcome, chance, now));
        }
        self.let_go();
        rest.map(|wait| Closed { reason: Reason::Backoff, wait })
    }

    pub(super) fn leave(&mut self, ticket: &Ticket) {
        for &(number, spell) in &ticket.scopes {
            let book = &mut self.scopes[number];
            book.in_flight = book.in_flight.saturating_sub(1);
            book.pressure = book.pressure.over(spell);
        }
        self.let_go();
    }

    pub(super) fn states(&self, now: Timestamp) -> Vec<ScopeState> {
        self.scopes.iter().filter_map(|book| book.state(self.now.max(now))).collect()
    }

    fn goes_on(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        self.let_go();
    }

    /// Starts whoever may go, in order.
    fn let_go(&mut self) {
        if self.busy.is_empty() {
            return;
        }
        while let Some((lane, id)) = self.next() {
            self.take_out(id);
            let chance = self.places.get(&id).map_or(0.0, |place| place.comer.chance);
            let ticket = self.start(lane, chance);
            if let Some(place) = self.places.get_mut(&id) {
                place.standing = Standing::Started(ticket);
                self.woken.extend(place.waker.take());
            }
        }
        self.post_watchmen();
    }

    /// Where only time is waited for, somebody has to look when it has passed.
    fn post_watchmen(&mut self) {
        for &number in &self.busy {
            let lane = &self.lanes[number];
            if lane.watchman.is_none()
                && self.hindrance_of_scopes(number).and_then(Hindrance::until).is_some()
                && let Some(place) = lane.oldest().and_then(|oldest| self.places.get_mut(&oldest))
            {
                self.woken.extend(place.waker.take());
            }
        }
    }

    /// The next to start, of all who can.
    fn next(&self) -> Option<(usize, PlaceId)> {
        let can_go = self.busy.iter().filter(|&&lane| self.hindrance(lane).is_none());
        let first = |&lane: &usize| {
            let it = &self.lanes[lane];
            let is_oldest = it.scopes.iter().any(|&scope| self.scopes[scope].turn_is_of_the_oldest());
            let (priority, place) = if is_oldest { (u8::MAX, it.oldest()?) } else { it.next()? };
            Some(((is_oldest, priority, Reverse(place)), lane, place))
        };
        can_go.filter_map(first).max_by_key(|(rank, ..)| *rank).map(|(_, lane, place)| (lane, place))
    }

    /// What keeps the lane from going now; of several things, the one that lasts.
    fn hindrance(&self, lane: usize) -> Option<Hindrance> {
        let is_kept = || self.lanes[lane].scopes.iter().any(|&scope| self.is_kept_from(scope, lane));
        self.hindrance_of_scopes(lane).or_else(|| is_kept().then_some(Hindrance::Slot))
    }

    fn hindrance_of_scopes(&self, lane: usize) -> Option<Hindrance> {
        self.lanes[lane].scopes.iter().filter_map(|&scope| self.scopes[scope].hindrance(self.now)).max()
    }

    /// True when the scope's next start is of somebody in another lane, who waits for nothing but a slot.
    fn is_kept_from(&self, scope: usize, lane: usize) -> bool {
        if self.busy.is_empty() || !self.scopes[scope].turn_is_of_the_oldest() {
            return false;
        }
        let is_ready = |&other: &usize| matches!(self.hindrance_of_scopes(other), None | Some(Hindrance::Slot));
        let wants_it = |&&other: &&usize| self.lanes[other].scopes.contains(&scope) && is_ready(&other);
        let oldest = self.busy.iter().filter(wants_it).min_by_key(|&&other| self.lanes[other].oldest());
        oldest.is_some_and(|&other| other != lane)
    }

    fn start(&mut self, lane: usize, chance: f64) -> Ticket {
        let now = self.now;
        let scopes = self.lanes[lane].scopes.clone();
        Ticket { scopes: scopes.into_iter().map(|scope| (scope, self.scopes[scope].start(chance, now))).collect() }
    }

    fn take_out(&mut self, id: PlaceId) {
        let Some(&Place { lane: number, comer, .. }) = self.places.get(&id) else { return };
        let lane = &mut self.lanes[number];
        lane.leave(id, comer.client, comer.priority);
        if lane.watchman == Some(id) {
            lane.watchman = None;
        }
        if lane.is_empty() {
            self.busy.remove(&number);
        }
        self.each_scope(number, |book| book.waiting = book.waiting.saturating_sub(1));
    }

    fn push_out(&mut self, id: PlaceId) {
        self.take_out(id);
        let Some(place) = self.places.get(&id) else { return };
        let closed = self.closed(place.lane);
        if let Some(place) = self.places.get_mut(&id) {
            place.standing = Standing::PushedOut(closed);
            self.woken.extend(place.waker.take());
        }
    }

    fn full_scope(&self, lane: usize) -> Option<usize> {
        let is_full = |scope: &usize| {
            let book = &self.scopes[*scope];
            book.rules.as_ref().is_some_and(|rules| book.waiting >= rules.queue.max_length)
        };
        self.lanes[lane].scopes.iter().copied().find(is_full)
    }

    fn last_in_line(&self, scope: usize) -> Option<(u8, PlaceId)> {
        let lanes = self.busy.iter().map(|&lane| &self.lanes[lane]).filter(|lane| lane.scopes.contains(&scope));
        lanes.filter_map(Lane::last).min_by_key(|&(priority, place)| (priority, Reverse(place)))
    }

    /// What is told to who cannot be served in time. Whoever waits now goes before who comes back, whatever the priority.
    fn closed(&self, lane: usize) -> Closed {
        let wait = self.lanes[lane].scopes.iter().map(|&scope| self.scopes[scope].expects(self.now)).max();
        let hindrance = self.hindrance(lane);
        let rests = matches!(hindrance, Some(Hindrance::Rest(_) | Hindrance::Probe));
        let reason = if rests { Reason::Backoff } else { Reason::Throttle };
        Closed { reason, wait: wait.unwrap_or_default() }
    }

    fn rules(&self, lane: usize) -> impl Iterator<Item = &throttle::Throttle> {
        self.lanes[lane].scopes.iter().filter_map(|&scope| self.scopes[scope].rules.as_ref())
    }

    fn each_scope(&mut self, lane: usize, mut each: impl FnMut(&mut Book)) {
        for &scope in &self.lanes[lane].scopes {
            each(&mut self.scopes[scope]);
        }
    }
}
