//! Connection pool of one worker to the origin: last used first, bounded, without locks.

use super::connection::Connection;
use super::error::ForwardError;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tidegate_config::settings::Origin;
use tidegate_http1::HeadLimits;
use tidegate_policy::Timestamp;
use tokio::net::TcpStream;
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
    /// Current origin; connections to a previous one are not reused.
    origin: RefCell<(String, u16)>,
    pool_generation: Cell<u64>,
}

struct IdleConnection {
    connection: Connection,
    since: Timestamp,
}

/// A reserved connection slot for one request. Dropping it frees the slot; [`PoolGuard::put_back`] keeps slot and
/// connection for the next request.
pub(in crate::gateway) struct PoolGuard {
    pool: Rc<Pool>,
    pool_generation: u64,
    /// Idle time of the connection before this request; `None` for a new connection.
    pub(super) idle_for: Option<Duration>,
}

impl Pool {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self {
            idle: RefCell::default(),
            open: Cell::new(0),
            waiters: RefCell::default(),
            origin: RefCell::default(),
            pool_generation: Cell::new(0),
        })
    }

    /// Returns a connection that is ready to send: an idle one, a new one, or the next that becomes free.
    pub(super) async fn acquire(
        self: &Rc<Self>,
        origin: &Origin,
        max_connections: usize,
        addresses: &[SocketAddr],
        now: Timestamp,
    ) -> Result<(PoolGuard, Connection), ForwardError> {
        self.set_origin(origin);
        // Yield to ready tasks first: the reactor detects connections that the origin closed, and requests are sent
        // back to back, so that a local origin is woken once for many of them.
        tokio::task::yield_now().await;
        loop {
            if let Some(leased) = self.take_idle(now) {
                return Ok(leased);
            }
            if self.open.get() < max_connections {
                return self.connect_new(origin, addresses).await;
            }
            self.wait(origin.connect_timeout).await?;
        }
    }

    /// Returns a new connection even if one is idle, for a retry.
    pub(super) async fn connect_new(
        self: &Rc<Self>,
        origin: &Origin,
        addresses: &[SocketAddr],
    ) -> Result<(PoolGuard, Connection), ForwardError> {
        // Counted before it exists: the guard releases the slot if connecting fails or the client disconnects.
        self.open.set(self.open.get() + 1);
        let lease = PoolGuard { pool: Rc::clone(self), pool_generation: self.pool_generation.get(), idle_for: None };
        let stream = match timeout(origin.connect_timeout, connect(addresses)).await {
            Err(_) => return Err(ForwardError::ConnectTimedOut { after: origin.connect_timeout }),
            Ok(Err(source)) => return Err(ForwardError::ConnectFailed { source }),
            Ok(Ok(stream)) => stream,
        };
        let _ = stream.set_nodelay(true);
        Ok((lease, Connection::new(stream, LIMITS)))
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

    fn set_origin(&self, origin: &Origin) {
        let mut current = self.origin.borrow_mut();
        if (current.0.as_str(), current.1) != (origin.host.as_str(), origin.port) {
            *current = (origin.host.clone(), origin.port);
            drop(current);
            self.pool_generation.set(self.pool_generation.get() + 1);
            let dropped = self.idle.take().len();
            (0..dropped).for_each(|_| self.release_slot());
        }
    }

    fn take_idle(self: &Rc<Self>, now: Timestamp) -> Option<(PoolGuard, Connection)> {
        loop {
            let IdleConnection { mut connection, since } = self.idle.borrow_mut().pop()?;
            let idle_for = now.saturating_duration_since(since);
            let lease = PoolGuard {
                pool: Rc::clone(self),
                pool_generation: self.pool_generation.get(),
                idle_for: Some(idle_for),
            };
            let is_in_use = connection.requests_sent() > 1 && idle_for < LIVENESS_CHECK_AFTER;
            if connection.is_idle() && (is_in_use || connection.is_idle_now()) {
                return Some((lease, connection));
            }
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
            self.pool.idle.borrow_mut().push(IdleConnection { connection, since: now });
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

async fn connect(addresses: &[SocketAddr]) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::new(std::io::ErrorKind::NotFound, "origin has no address records");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
