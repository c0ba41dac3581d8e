//! What a client can make wait is timed by a sweep: each connection notes what it is doing and since when, and one
//! walk every quarter of a second ends those that take too long. A timer a request would cost more than the request's
//! own parsing.

use super::worker::TICK;
use crate::config::settings::Limits;
use crate::policy::Timestamp;
use http::Version;
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

/// Resets by a client that are borne before its HTTP/2 connection counts as an attack.
const RESETS_BORNE: u32 = 100;

/// One client connection, as the sweep sees it.
pub(super) struct ConnectionState {
    clock: Rc<Cell<Timestamp>>,
    phase: Cell<Phase>,
    since: Cell<Timestamp>,
    /// Requests under way: more than one only on HTTP/2.
    active: Cell<u32>,
    /// When a write began to wait for the client to read.
    stalled: Cell<Option<Timestamp>>,
    /// When a request's body began to wait for the client to send.
    starved: Cell<Option<Timestamp>>,
    /// Answers under way over HTTP/2, and when each last moved. There a client stalls an answer by giving it no window,
    /// which no write to the connection waits for.
    answers: RefCell<Slab<Timestamp>>,
    served: Cell<u32>,
    /// It speaks HTTP/2, where not every byte that comes belongs to a request: pings and windows come at any time.
    framed: Cell<bool>,
    requests_allowed: u32,
    aborted: Cell<u32>,
    order: Cell<ConnectionCommand>,
    waker: RefCell<Option<Waker>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Connected, and nothing said yet.
    Silent,
    /// Between requests.
    Idle,
    /// A request's head has begun to arrive.
    Head,
}

/// What a connection is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConnectionCommand {
    /// Go on.
    Serve,
    /// Finish what is under way, then close.
    Finish,
    /// Close now.
    Close,
}

impl ConnectionState {
    pub(super) fn new(clock: Rc<Cell<Timestamp>>, requests_allowed: u32) -> Rc<Self> {
        let now = clock.get();
        Rc::new(Self {
            clock,
            phase: Cell::new(Phase::Silent),
            since: Cell::new(now),
            active: Cell::new(0),
            stalled: Cell::new(None),
            starved: Cell::new(None),
            answers: RefCell::default(),
            served: Cell::new(0),
            framed: Cell::new(false),
            requests_allowed,
            aborted: Cell::new(0),
            order: Cell::new(ConnectionCommand::Serve),
            waker: RefCell::new(None),
        })
    }

    /// Bytes came from the client.
    pub(super) fn heard(&self) {
        let between_requests = self.phase.get() == Phase::Idle && !self.framed.get();
        if self.active.get() == 0 && (self.phase.get() == Phase::Silent || between_requests) {
            self.enter(Phase::Head);
        }
    }

    /// A write waits for the client, or no longer does.
    pub(super) fn wrote(&self, waits: bool) {
        match (waits, self.stalled.get()) {
            (true, None) => self.stalled.set(Some(self.clock.get())),
            (false, Some(_)) => self.stalled.set(None),
            _ => {}
        }
    }

    /// A request's body waits for the client, or no longer does.
    pub(super) fn body_waits(&self, waits: bool) {
        match (waits, self.starved.get()) {
            (true, None) => self.starved.set(Some(self.clock.get())),
            (false, Some(_)) => self.starved.set(None),
            _ => {}
        }
    }

    /// A request has arrived whole, but for its body.
    pub(super) fn request_begins(&self, version: Version) {
        self.framed.set(version == Version::HTTP_2);
        self.active.set(self.active.get() + 1);
        self.served.set(self.served.get().saturating_add(1));
        if self.served.get() >= self.requests_allowed {
            self.give(ConnectionCommand::Finish);
        }
    }

    /// A request is over; `aborted` when the client left before its end.
    pub(super) fn request_ends(&self, aborted: bool) {
        self.active.set(self.active.get().saturating_sub(1));
        if aborted {
            self.aborted.set(self.aborted.get() + 1);
        }
        if self.active.get() == 0 {
            self.starved.set(None);
            self.enter(Phase::Idle);
        }
    }

    /// An answer is about to be sent; a key for it, where the connection alone does not tell whether it moves.
    pub(super) fn answer_begins(&self) -> Option<usize> {
        self.framed.get().then(|| self.answers.borrow_mut().insert(self.clock.get()))
    }

    /// A piece of it has gone out.
    pub(super) fn answer_moves(&self, key: usize) {
        self.answers.borrow_mut()[key] = self.clock.get();
    }

    /// It is over.
    pub(super) fn answer_ends(&self, key: usize) {
        self.answers.borrow_mut().remove(key);
    }

    /// What to do, asked on each poll of the connection; an order given later wakes it up.
    pub(super) fn order(&self, context: &Context<'_>) -> ConnectionCommand {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
        self.order.get()
    }

    /// Gives an order; a stronger one given before stays.
    pub(super) fn give(&self, order: ConnectionCommand) {
        if order > self.order.get() {
            self.order.set(order);
            if let Some(waker) = self.waker.borrow().as_ref() {
                waker.wake_by_ref();
            }
        }
    }

    fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.since.set(self.clock.get());
    }

    fn verdict(&self, limits: &Limits, response_timeout: Duration) -> ConnectionCommand {
        let now = self.clock.get();
        let over = |since: Option<Timestamp>, limit: Duration| since.is_some_and(|since| overdue(since, limit, now));
        if over(self.stalled.get(), limits.response_write_timeout)
            || over(self.starved.get(), limits.request_body_timeout)
        {
            return ConnectionCommand::Close;
        }
        // Had it been the origin that was waited for, its own time would have run out before this.
        let longest = response_timeout + limits.response_write_timeout;
        if self.answers.borrow().iter().any(|(_, &moved)| over(Some(moved), longest)) {
            return ConnectionCommand::Close;
        }
        let aborted = self.aborted.get();
        if aborted > RESETS_BORNE && aborted > self.served.get() / 2 {
            return ConnectionCommand::Close;
        }
        if self.active.get() > 0 {
            return ConnectionCommand::Serve;
        }
        let since = Some(self.since.get());
        match self.phase.get() {
            Phase::Silent if over(since, limits.first_byte_timeout) => ConnectionCommand::Close,
            Phase::Head if over(since, limits.head_timeout) => ConnectionCommand::Close,
            // An idle HTTP/2 client that does not answer the farewell is not waited for.
            Phase::Idle if over(since, limits.keep_alive_timeout * 2) => ConnectionCommand::Close,
            Phase::Idle if over(since, limits.keep_alive_timeout) => ConnectionCommand::Finish,
            _ => ConnectionCommand::Serve,
        }
    }
}

/// True when a wait that began at `since`, by a clock that is as much as a tick late, has certainly lasted `limit`:
/// timeouts come late by up to two ticks, never early.
pub(super) fn overdue(since: Timestamp, limit: Duration, now: Timestamp) -> bool {
    now.since(since) >= limit + TICK
}

/// All connections of one worker.
#[derive(Default)]
pub(super) struct ConnectionRegistry(RefCell<Vec<Weak<ConnectionState>>>);

impl ConnectionRegistry {
    pub(super) fn add(&self, watch: &Rc<ConnectionState>) {
        self.0.borrow_mut().push(Rc::downgrade(watch));
    }

    /// Ends what has taken too long and forgets connections that are gone.
    pub(super) fn sweep(&self, limits: &Limits, response_timeout: Duration) {
        self.0.borrow_mut().retain(|watch| {
            let Some(watch) = watch.upgrade() else { return false };
            watch.give(watch.verdict(limits, response_timeout));
            true
        });
    }

    /// Gives all the same order.
    pub(super) fn give_all(&self, order: ConnectionCommand) {
        for watch in self.0.borrow().iter().filter_map(Weak::upgrade) {
            watch.give(order);
        }
    }

    /// Connections that are still open.
    pub(super) fn open(&self) -> usize {
        self.0.borrow().iter().filter(|watch| watch.strong_count() > 0).count()
    }
}
