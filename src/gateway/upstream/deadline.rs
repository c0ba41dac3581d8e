//! Timeouts of the origin, checked by the worker's sweep instead of one timer per request.

use crate::gateway::transport::connection_timeouts::is_overdue;
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;
use tidegate_policy::Timestamp;

/// All waits for the origin on one worker.
pub(in crate::gateway) struct Deadlines {
    clock: Rc<Cell<Timestamp>>,
    waits: RefCell<Slab<DeadlineState>>,
}

/// The wait of one request: for the response head, then for each chunk of its body.
pub(in crate::gateway) struct Deadline {
    deadlines: Rc<Deadlines>,
    key: usize,
}

struct DeadlineState {
    limit: Duration,
    since: Option<Timestamp>,
    waker: Option<Waker>,
    expired: bool,
}

impl Deadlines {
    pub(in crate::gateway) fn new(clock: Rc<Cell<Timestamp>>) -> Rc<Self> {
        Rc::new(Self { clock, waits: RefCell::default() })
    }

    /// Returns a deadline that allows `limit` for each wait.
    pub(super) fn new_deadline(self: &Rc<Self>, limit: Duration) -> Deadline {
        let key = self.waits.borrow_mut().insert(DeadlineState { limit, since: None, waker: None, expired: false });
        Deadline { deadlines: Rc::clone(self), key }
    }

    /// Wakes the tasks of expired waits.
    pub(in crate::gateway) fn sweep(&self) {
        let now = self.clock.get();
        let mut expired = Vec::new();
        for (_, wait) in self.waits.borrow_mut().iter_mut() {
            if wait.since.is_some_and(|since| is_overdue(since, wait.limit, now)) {
                wait.expired = true;
                expired.extend(wait.waker.take());
            }
        }
        expired.into_iter().for_each(Waker::wake);
    }
}

impl Deadline {
    /// Starts or continues a wait for the origin. Returns true if it has expired.
    pub(in crate::gateway) fn poll_expired(&self, cx: &Context<'_>) -> bool {
        let mut waits = self.deadlines.waits.borrow_mut();
        let wait = &mut waits[self.key];
        wait.since.get_or_insert(self.deadlines.clock.get());
        if !wait.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            wait.waker = Some(cx.waker().clone());
        }
        wait.expired
    }

    /// Changes the limit of the following waits.
    pub(in crate::gateway) fn set_limit(&self, limit: Duration) {
        self.deadlines.waits.borrow_mut()[self.key].limit = limit;
    }

    /// Ends the wait: data arrived, or the client is waited for.
    pub(in crate::gateway) fn reset(&self) {
        let wait = &mut self.deadlines.waits.borrow_mut()[self.key];
        wait.since = None;
        wait.expired = false;
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.deadlines.waits.borrow_mut().remove(self.key);
    }
}
