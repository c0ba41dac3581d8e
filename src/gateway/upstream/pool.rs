//! Connections to the origin that one worker keeps: last used first, bounded, no lock.

use super::{Connection, ForwardError};
use crate::config::settings::Origin;
use crate::http1::Limits;
use crate::policy::Timestamp;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Requests of one worker that may wait for a connection.
const MAX_WAITERS: usize = 1024;

/// A connection idle for so long, or one that has carried a single request, may have been closed a moment ago: the
/// system is asked. Of one that is in constant use the reactor knows enough, and a system call less is sent.
const LIVENESS_CHECK_AFTER: Duration = Duration::from_millis(100);

/// Heads of answers larger than this are not answers.
const LIMITS: Limits = Limits { size: 128 * 1024, fields: 100 };

/// One worker's connections to the origin.
pub(super) struct Pool {
    idle: RefCell<Vec<Idle>>,
    open: Cell<usize>,
    waiting: RefCell<VecDeque<oneshot::Sender<()>>>,
    /// Changes with the origin; connections of an earlier one are not used again.
    origin: RefCell<(String, u16)>,
    pool_generation: Cell<u64>,
}

struct Idle {
    connection: Connection,
    since: Timestamp,
}

/// The place of a connection for the length of one exchange. Dropped, it is free for another; [`PoolGuard::put_back`] keeps
/// it with its connection.
pub(in crate::gateway) struct PoolGuard {
    pool: Rc<Pool>,
    pool_generation: u64,
    /// How long it had been idle; `None` when it was made for this exchange.
    pub(super) idle_for: Option<Duration>,
}

impl Pool {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self {
            idle: RefCell::default(),
            open: Cell::new(0),
            waiting: RefCell::default(),
            origin: RefCell::default(),
            pool_generation: Cell::new(0),
        })
    }

    /// A connection that is ready to send: one that is idle, or a new one, or the next that comes free.
    pub(super) async fn lease(
        self: &Rc<Self>,
        origin: &Origin,
        most: usize,
        addresses: &[SocketAddr],
        now: Timestamp,
    ) -> Result<(PoolGuard, Connection), ForwardError> {
        self.set_origin(origin);
        // After all that is ready now: the reactor hears meanwhile what the origin has closed, and requests leave one
        // behind the other, so that an origin on this machine is woken once for many of them.
        tokio::task::yield_now().await;
        loop {
            if let Some(leased) = self.idle(now) {
                return Ok(leased);
            }
            if self.open.get() < most {
                return self.connect_new(origin, addresses).await;
            }
            self.wait(origin.connect_timeout).await?;
        }
    }

    /// A new connection even where one is idle, for a second try.
    pub(super) async fn connect_new(
        self: &Rc<Self>,
        origin: &Origin,
        addresses: &[SocketAddr],
    ) -> Result<(PoolGuard, Connection), ForwardError> {
        // Counted before it is there: the lease gives the place back if dialling fails or the client leaves.
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

    /// Closes what has been idle for longer than the origin is trusted to keep it, and forgets what the origin closed.
    pub(super) fn sweep(&self, idle_timeout: Duration, now: Timestamp) {
        let mut gone = 0;
        self.idle.borrow_mut().retain_mut(|idle| {
            let keep = idle.connection.is_idle() && now.saturating_duration_since(idle.since) < idle_timeout;
            gone += usize::from(!keep);
            keep
        });
        (0..gone).for_each(|_| self.release_slot());
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

    fn idle(self: &Rc<Self>, now: Timestamp) -> Option<(PoolGuard, Connection)> {
        loop {
            let Idle { mut connection, since } = self.idle.borrow_mut().pop()?;
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

    async fn wait(&self, at_most: Duration) -> Result<(), ForwardError> {
        let (free, freed) = oneshot::channel();
        {
            let mut waiting = self.waiting.borrow_mut();
            waiting.retain(|waiter| !waiter.is_closed());
            if waiting.len() >= MAX_WAITERS {
                return Err(ForwardError::PoolExhausted);
            }
            waiting.push_back(free);
        }
        match timeout(at_most, freed).await {
            Ok(_) => Ok(()),
            Err(_) => Err(ForwardError::PoolExhausted),
        }
    }

    fn release_slot(&self) {
        self.open.set(self.open.get() - 1);
        self.wake_one();
    }

    fn wake_one(&self) {
        let mut waiting = self.waiting.borrow_mut();
        while let Some(waiter) = waiting.pop_front() {
            if waiter.send(()).is_ok() {
                break;
            }
        }
    }
}

impl PoolGuard {
    /// Keeps the place with its connection for the next request.
    pub(in crate::gateway) fn put_back(mut self, connection: Connection, now: Timestamp) {
        if self.pool_generation == self.pool.pool_generation.get() {
            self.pool.idle.borrow_mut().push(Idle { connection, since: now });
            self.pool_generation = RETURNED;
            self.pool.wake_one();
        }
    }
}

/// Marks a lease whose connection went back to the pool: its place stays taken.
const RETURNED: u64 = u64::MAX;

impl Drop for PoolGuard {
    fn drop(&mut self) {
        if self.pool_generation != RETURNED {
            self.pool.release_slot();
        }
    }
}

async fn connect(addresses: &[SocketAddr]) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::new(std::io::ErrorKind::NotFound, "the origin's name has no address");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
