//! Connection pool of one worker to the servers of the origin: last used first, bounded, without locks.

use super::UpstreamTarget;
use super::connection::Connection;
use super::error::ForwardError;
use super::servers::{InFlight, OriginServers, ServerSet};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tidegate_http1::HeadLimits;
use tidegate_policy::Timestamp;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Maximum waiters for a connection, per worker.
const MAX_WAITERS: usize = 1024;

/// Idle time after which the socket is checked for a close by the origin; also checked after a connection's first
/// request. For a connection in constant use the reactor's state is enough, which saves a system call.
const LIVENESS_CHECK_AFTER: Duration = Duration::from_millis(100);

/// Limits of a response head; a larger one is invalid.
const LIMITS: HeadLimits = HeadLimits { size: 128 * 1024, fields: 100 };

/// Pool of one worker's connections to the origin.
pub(super) struct Pool {
    idle: RefCell<Vec<IdleConnection>>,
    open: Cell<usize>,
    waiters: RefCell<VecDeque<oneshot::Sender<()>>>,
    /// Current servers; connections to previous ones are not reused.
    servers: RefCell<Option<Arc<OriginServers>>>,
    pool_generation: Cell<u64>,
}

struct IdleConnection {
    connection: Connection,
    /// Index of its server.
    server: usize,
    since: Timestamp,
}

/// A reserved connection slot for one request. Dropping it frees the slot; [`PoolGuard::put_back`] keeps slot and
/// connection for the next request.
pub(in crate::gateway) struct PoolGuard {
    pool: Rc<Pool>,
    pool_generation: u64,
    /// Index of the server.
    pub(super) server: usize,
    in_flight: Option<InFlight>,
    /// Idle time of the connection before this request; `None` for a new connection.
    pub(super) idle_for: Option<Duration>,
}

impl Pool {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self {
            idle: RefCell::default(),
            open: Cell::new(0),
            waiters: RefCell::default(),
            servers: RefCell::default(),
            pool_generation: Cell::new(0),
        })
    }

    /// Returns a connection that is ready to send: an idle one, a new one, or the next that becomes free.
    pub(super) async fn acquire(
        self: &Rc<Self>,
        target: &UpstreamTarget<'_>,
    ) -> Result<(PoolGuard, Connection), ForwardError> {
        self.set_servers(target.servers);
        // Yield to ready tasks first: the reactor detects connections that the origin closed, and requests are sent
        // back to back, so that a local origin is woken once for many of them.
        tokio::task::yield_now().await;
        let (mut tried, mut last_error) = (ServerSet::default(), ForwardError::PoolExhausted);
        loop {
            // Before the choice, which may take the turn of a server that is tried again.
            while self.open.get() >= target.max_connections && self.idle.borrow().is_empty() {
                self.wait(target.origin.connect_timeout).await?;
            }
            let Some(server) = target.servers.choose(tried, target.uptime) else { return Err(last_error) };
            if let Some(leased) = self.take_idle(server, target) {
                return Ok(leased);
            }
            if self.open.get() >= target.max_connections {
                self.close_oldest_idle();
            }
            match self.connect(server, target).await {
                Err(error) => {
                    tried.insert(server);
                    last_error = error;
                }
                connected => return connected,
            }
        }
    }

    /// Returns a new connection even if one is idle, for a retry.
    pub(super) async fn connect_new(
        self: &Rc<Self>,
        target: &UpstreamTarget<'_>,
    ) -> Result<(PoolGuard, Connection), ForwardError> {
        let server = target.servers.choose(ServerSet::default(), target.uptime).unwrap_or_default();
        self.connect(server, target).await
    }

    /// Connects to a server. Counts a failure of the server.
    async fn connect(
        self: &Rc<Self>,
        server: usize,
        target: &UpstreamTarget<'_>,
    ) -> Result<(PoolGuard, Connection), ForwardError> {
        // Counted before it exists: the guard releases the slot if connecting fails or the client disconnects.
        self.open.set(self.open.get() + 1);
        let lease = self.guard(server, target, None);
        let after = target.origin.connect_timeout;
        let error = match timeout(after, target.servers.connect(server)).await {
            Ok(Ok(stream)) => return Ok((lease, Connection::new(stream, LIMITS))),
            Ok(Err(source)) => ForwardError::ConnectFailed { source },
            Err(_) => ForwardError::ConnectTimedOut { after },
        };
        target.servers.record_failure(server, &error.to_string(), target.clock.monotonic_now());
        Err(error)
    }

    fn guard(self: &Rc<Self>, server: usize, target: &UpstreamTarget<'_>, idle_for: Option<Duration>) -> PoolGuard {
        PoolGuard {
            pool: Rc::clone(self),
            pool_generation: self.pool_generation.get(),
            server,
            in_flight: target.servers.begin_request(server),
            idle_for,
        }
    }

    /// Closes connections that were idle longer than the origin keeps them, and drops those that the origin closed.
    pub(super) fn sweep(&self, idle_timeout: Duration, now: Timestamp) {
        let mut removed = 0;
        self.idle.borrow_mut().retain_mut(|idle| {
            let keep = idle.connection.is_idle() && now.saturating_duration_since(idle.since) < idle_timeout;
            removed += usize::from(!keep);
            keep
        });
        (0..removed).for_each(|_| self.release_slot());
    }

    fn set_servers(&self, servers: &Arc<OriginServers>) {
        let mut current = self.servers.borrow_mut();
        if !current.as_ref().is_some_and(|current| Arc::ptr_eq(current, servers)) {
            *current = Some(Arc::clone(servers));
            drop(current);
            self.pool_generation.set(self.pool_generation.get() + 1);
            let dropped = self.idle.take().len();
            (0..dropped).for_each(|_| self.release_slot());
        }
    }

    fn take_idle(self: &Rc<Self>, server: usize, target: &UpstreamTarget<'_>) -> Option<(PoolGuard, Connection)> {
        loop {
            let IdleConnection { mut connection, since, .. } = {
                let mut idle = self.idle.borrow_mut();
                let last = idle.iter().rposition(|idle| idle.server == server)?;
                idle.remove(last)
            };
            let idle_for = target.uptime.saturating_duration_since(since);
            let lease = self.guard(server, target, Some(idle_for));
            let is_in_use = connection.requests_sent() > 1 && idle_for < LIVENESS_CHECK_AFTER;
            if connection.is_idle() && (is_in_use || connection.is_idle_now()) {
                return Some((lease, connection));
            }
        }
    }

    /// Closes an idle connection, which is to a server that is not wanted.
    fn close_oldest_idle(&self) {
        let mut idle = self.idle.borrow_mut();
        if !idle.is_empty() {
            idle.remove(0);
            self.open.set(self.open.get() - 1);
        }
    }

    async fn wait(&self, max_wait: Duration) -> Result<(), ForwardError> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut waiters = self.waiters.borrow_mut();
            waiters.retain(|waiter| !waiter.is_closed());
            if waiters.len() >= MAX_WAITERS {
                return Err(ForwardError::PoolExhausted);
            }
            waiters.push_back(sender);
        }
        match timeout(max_wait, receiver).await {
            Ok(_) => Ok(()),
            Err(_) => Err(ForwardError::PoolExhausted),
        }
    }

    fn release_slot(&self) {
        self.open.set(self.open.get() - 1);
        self.wake_one();
    }

    fn wake_one(&self) {
        let mut waiters = self.waiters.borrow_mut();
        while let Some(waiter) = waiters.pop_front() {
            if waiter.send(()).is_ok() {
                break;
            }
        }
    }
}

impl PoolGuard {
    /// Returns the connection and its slot to the pool.
    pub(in crate::gateway) fn put_back(mut self, connection: Connection, now: Timestamp) {
        if self.pool_generation == self.pool.pool_generation.get() {
            self.pool.idle.borrow_mut().push(IdleConnection { connection, server: self.server, since: now });
            self.in_flight = None;
            self.pool_generation = RETURNED;
            self.pool.wake_one();
        }
    }
}

/// Marks a guard whose connection was returned to the pool: its slot stays taken.
const RETURNED: u64 = u64::MAX;

impl Drop for PoolGuard {
    fn drop(&mut self) {
        if self.pool_generation != RETURNED {
            self.pool.release_slot();
        }
    }
}
