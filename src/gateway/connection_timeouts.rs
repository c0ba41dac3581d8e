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
const MAX_STREAM_RESETS: u32 = 100;

/// One client connection, as the sweep sees it.
pub(super) struct ConnectionState {
    clock: Rc<Cell<Timestamp>>,
    phase: Cell<Phase>,
    since: Cell<Timestamp>,
    /// Requests under way: more than one only on HTTP/2.
    active: Cell<u32>,
    /// When a write began to wait for the client to read.
    write_blocked_since: Cell<Option<Timestamp>>,
    /// When a request's body began to wait for the client to send.
    body_wait_since: Cell<Option<Timestamp>>,
    /// Answers under way over HTTP/2, and when each last moved. There a client stalls an answer by giving it no window,
    /// which no write to the connection waits for.
    responses: RefCell<Slab<Timestamp>>,
    served: Cell<u32>,
    /// It speaks HTTP/2, where not every byte that comes belongs to a request: pings and windows come at any time.
    is_http2: Cell<bool>,
    requests_allowed: u32,
    aborted: Cell<u32>,
    order: Cell<ConnectionCommand>,
    waker: RefCell<Option<Waker>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Connected, and nothing said yet.
    AwaitingFirstByte,
    /// Between requests.
    Idle,
    /// A request's head has begun to arrive.
    ReadingHead,
}

/// What a connection is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConnectionCommand {
    /// Go on.
    Serve,
    /// Finish what is under way, then close.
    Drain,
    /// Close now.
    Close,
}

impl ConnectionState {
    pub(super) fn new(clock: Rc<Cell<Timestamp>>, requests_allowed: u32) -> Rc<Self> {
        let now = clock.get();
        Rc::new(Self {
            clock,
            phase: Cell::new(Phase::AwaitingFirstByte),
            since: Cell::new(now),
            active: Cell::new(0),
            write_blocked_since: Cell::new(None),
            body_wait_since: Cell::new(None),
            responses: RefCell::default(),
            served: Cell::new(0),
            is_http2: Cell::new(false),
            requests_allowed,
            aborted: Cell::new(0),
            order: Cell::new(ConnectionCommand::Serve),
            waker: RefCell::new(None),
        })
    }

    /// Bytes came from the client.
    pub(super) fn on_read(&self) {
        let between_requests = self.phase.get() == Phase::Idle && !self.is_http2.get();
        if self.active.get() == 0 && (self.phase.get() == Phase::AwaitingFirstByte || between_requests) {
            self.set_phase(Phase::ReadingHead);
        }
    }

    /// A write waits for the client, or no longer does.
    pub(super) fn on_write(&self, waits: bool) {
        match (waits, self.write_blocked_since.get()) {
            (true, None) => self.write_blocked_since.set(Some(self.clock.get())),
            (false, Some(_)) => self.write_blocked_since.set(None),
            _ => {}
        }
    }

    /// A request's body waits for the client, or no longer does.
    pub(super) fn on_body_wait(&self, waits: bool) {
        match (waits, self.body_wait_since.get()) {
            (true, None) => self.body_wait_since.set(Some(self.clock.get())),
            (false, Some(_)) => self.body_wait_since.set(None),
            _ => {}
        }
    }

    /// A request has arrived whole, but for its body.
    pub(super) fn on_request_start(&self, version: Version) {
        self.is_http2.set(version == Version::HTTP_2);
        self.active.set(self.active.get() + 1);
        self.served.set(self.served.get().saturating_add(1));
        if self.served.get() >= self.requests_allowed {
            self.command(ConnectionCommand::Drain);
        }
    }

    /// A request is over; `aborted` when the client left before its end.
    pub(super) fn on_request_end(&self, aborted: bool) {
        self.active.set(self.active.get().saturating_sub(1));
        if aborted {
            self.aborted.set(self.aborted.get() + 1);
        }
        if self.active.get() == 0 {
            self.body_wait_since.set(None);
            self.set_phase(Phase::Idle);
        }
    }

    /// An answer is about to be sent; a key for it, where the connection alone does not tell whether it moves.
    pub(super) fn on_response_start(&self) -> Option<usize> {
        self.is_http2.get().then(|| self.responses.borrow_mut().insert(self.clock.get()))
    }

    /// A piece of it has gone out.
    pub(super) fn on_response_progress(&self, key: usize) {
        self.responses.borrow_mut()[key] = self.clock.get();
    }

    /// It is over.
    pub(super) fn on_response_end(&self, key: usize) {
        self.responses.borrow_mut().remove(key);
    }

    /// What to do, asked on each poll of the connection; an order given later wakes it up.
    pub(super) fn poll_command(&self, context: &Context<'_>) -> ConnectionCommand {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
        self.order.get()
    }

    /// Gives an order; a stronger one given before stays.
    pub(super) fn command(&self, order: ConnectionCommand) {
        if order > self.order.get() {
            self.order.set(order);
            if let Some(waker) = self.waker.borrow().as_ref() {
                waker.wake_by_ref();
            }
        }
    }

    fn set_phase(&self, phase: Phase) {
        self.phase.set(phase);
        self.since.set(self.clock.get());
    }

    fn check_timeouts(&self, limits: &Limits, response_timeout: Duration) -> ConnectionCommand {
        let now = self.clock.get();
        let over = |since: Option<Timestamp>, limit: Duration| since.is_some_and(|since| is_overdue(since, limit, now));
        if over(self.write_blocked_since.get(), limits.response_write_timeout)
            || over(self.body_wait_since.get(), limits.request_body_timeout)
        {
            return ConnectionCommand::Close;
        }
        // Had it been the origin that was waited for, its own time would have run out before this.
        let longest = response_timeout + limits.response_write_timeout;
        if self.responses.borrow().iter().any(|(_, &moved)| over(Some(moved), longest)) {
            return ConnectionCommand::Close;
        }
        let aborted = self.aborted.get();
        if aborted > MAX_STREAM_RESETS && aborted > self.served.get() / 2 {
            return ConnectionCommand::Close;
        }
        if self.active.get() > 0 {
            return ConnectionCommand::Serve;
        }
        let since = Some(self.since.get());
        match self.phase.get() {
            Phase::AwaitingFirstByte if over(since, limits.first_byte_timeout) => ConnectionCommand::Close,
            Phase::ReadingHead if over(since, limits.head_timeout) => ConnectionCommand::Close,
            // An idle HTTP/2 client that does not answer the farewell is not waited for.
            Phase::Idle if over(since, limits.keep_alive_timeout * 2) => ConnectionCommand::Close,
            Phase::Idle if over(since, limits.keep_alive_timeout) => ConnectionCommand::Drain,
            _ => ConnectionCommand::Serve,
        }
    }
}

/// True when a wait that began at `since`, by a clock that is as much as a tick late, has certainly lasted `limit`:
/// timeouts come late by up to two ticks, never early.
pub(super) fn is_overdue(since: Timestamp, limit: Duration, now: Timestamp) -> bool {
    now.saturating_duration_since(since) >= limit + TICK
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
            watch.command(watch.check_timeouts(limits, response_timeout));
            true
        });
    }

    /// Gives all the same order.
    pub(super) fn command_all(&self, order: ConnectionCommand) {
        for watch in self.0.borrow().iter().filter_map(Weak::upgrade) {
            watch.command(order);
        }
    }

    /// Connections that are still open.
    pub(super) fn open(&self) -> usize {
        self.0.borrow().iter().filter(|watch| watch.strong_count() > 0).count()
    }
}
