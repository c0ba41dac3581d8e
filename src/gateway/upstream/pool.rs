//! Connection pool of one worker to the servers of an origin: last used first, bounded, without locks.
//!
//! A connection of HTTP/1.1 is in the pool while it is idle. Those of HTTP/2 stay in it as long as they take requests.

use super::UpstreamTarget;
use super::client_resets::ClientResets;
use super::connection::{Connection, Http1Connection};
use super::error::ForwardError;
use super::http2::{ConnectionOrder, Http2Connection, Http2Stream};
use super::servers::{Connected, OriginServers, ServerSet};
use super::slots::{Slot, Slots};
use crate::gateway::shared_count::{CountGuard, SharedCount};
use crate::gateway::transport::proxy_protocol::ProxiedClient;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::Timestamp;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Idle time after which the socket is checked for a close by the origin; also checked after a connection's first
/// request. For a connection in constant use the reactor's state is enough, which saves a system call.
const LIVENESS_CHECK_AFTER: Duration = Duration::from_millis(100);

/// Maximum idle connections of HTTP/2 that take one request at a time.
const MAX_IDLE_ALONE: usize = 8;

/// Pool of one worker's connections to an origin, and of one version of its servers.
pub(in crate::gateway) struct Pool {
    idle: RefCell<Vec<IdleConnection>>,
    http2: RefCell<Vec<SharedConnection>>,
    /// Order of the next connection of HTTP/2.
    next_order: Rc<Cell<u64>>,
    resets: Rc<ClientResets>,
    /// Connections to servers that are expected to take many requests.
    connecting: RefCell<Vec<(usize, Rc<Connecting>)>>,
    /// Servers that chose HTTP/1.1.
    http1_servers: Cell<ServerSet>,
    slots: Rc<Slots>,
    pub(super) servers: Arc<OriginServers>,
    /// True if only requests under previous settings use the pool: it keeps no connection.
    is_retired: Cell<bool>,
}

struct IdleConnection {
    connection: Http1Connection,
    slot: Slot,
    /// Client that it names.
    client: Option<ProxiedClient>,
    /// Index of its server.
    server: usize,
    since: Timestamp,
}

struct SharedConnection {
    connection: Rc<Http2Connection>,
    /// Index of its server.
    server: usize,
    /// Time at which it was last seen in use.
    used_at: Timestamp,
}

/// Which connections may take a request.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// Only those of HTTP/1.1.
    pub(super) needs_http1: bool,
    /// Only those of HTTP/2 that take one request at a time.
    pub(super) is_alone: bool,
    /// Only those of HTTP/2 from this one on, in the order in which they were opened.
    pub(super) from: u64,
}

impl Wanted {
    fn shares(self) -> bool {
        !self.needs_http1 && !self.is_alone
    }
}

/// A connection that others wait for.
#[derive(Default)]
struct Connecting {
    is_done: Notify,
    is_failed: Cell<bool>,
}

/// Ends the wait of others. Dropped early, the connection has failed.
struct ConnectingGuard {
    pool: Rc<Pool>,
    connecting: Rc<Connecting>,
    is_failed: bool,
}

/// A reserved connection slot for one request, or a stream of a connection of HTTP/2. Dropping it frees it;
/// [`PoolGuard::put_back`] keeps slot and connection for the next request.
pub(in crate::gateway) struct PoolGuard {
    pool: Rc<Pool>,
    /// Index of the server.
    pub(super) server: usize,
    /// Client that the connection names.
    client: Option<ProxiedClient>,
    _in_flight: Option<CountGuard>,
    /// Idle time of the connection before this request; `None` for a new connection.
    pub(super) idle_for: Option<Duration>,
    /// Slot of a connection of HTTP/1.1. One of HTTP/2 has its own.
    slot: Option<Slot>,
    stream: Option<Rc<Http2Stream>>,
}

impl Pool {
    /// Returns an empty pool. `open_connections` counts those of all workers.
    /// `resets` counts the requests of HTTP/2 that are reset.
    pub(super) fn new(
        servers: Arc<OriginServers>,
        open_connections: SharedCount,
        resets: Rc<ClientResets>,
    ) -> Rc<Self> {
        Rc::new(Self {
            idle: RefCell::default(),
            http2: RefCell::default(),
            next_order: Rc::default(),
            resets,
            connecting: RefCell::default(),
            http1_servers: Cell::default(),
            slots: Rc::new(Slots::new(open_connections)),
            servers,
            is_retired: Cell::new(false),
        })
    }

    /// Returns a connection that is ready to send: an idle one, one of HTTP/2 with a free stream, a new one, or the next
    /// that becomes free.
    pub(super) async fn acquire(
        self: &Rc<Self>,
        target: &UpstreamTarget<'_>,
        wanted: Wanted,
    ) -> Result<(PoolGuard, Connection), ForwardError> {
        // Yield to ready tasks first: the reactor detects connections that the origin closed, and requests are sent
        // back to back, so that a local origin is woken once for many of them.
        tokio::task::yield_now().await;
        let (mut tried, mut last_error) = (ServerSet::default(), ForwardError::PoolExhausted);
        let (mut waits_for_others, mut patience) = (wanted.shares(), None);
        loop {
            // Before the choice, which may take the turn of a server that is tried again.
            while self.slots.is_full(target.max_connections) && !self.has_free_connection(wanted) {
                let new_patience = || Box::pin(tokio::time::sleep(target.origin.connect_timeout));
                self.slots.wait(patience.get_or_insert_with(new_patience)).await?;
            }
            let Some(server) = self.servers.choose(tried, target.uptime) else { return Err(last_error) };
            if let Some(leased) = self.take_stream(server, target, wanted) {
                return Ok(leased);
            }
            if let Some(leased) = self.take_idle(server, target) {
                return Ok(leased);
            }
            if waits_for_others && let Some(connecting) = self.connecting(server) {
                connecting.is_done.notified().await;
                waits_for_others = !connecting.is_failed.get();
                continue;
            }
            if self.slots.is_full(target.max_connections) && !self.close_oldest_idle() {
                tried.insert(server);
                continue;
            }
            // Boxed to keep the future of requests on open connections small.
            match Box::pin(self.connect(server, target, wanted)).await {
                Err(error) => {
                    tried.insert(server);
                    last_error = error;
                }
                connected => return connected,
            }
        }
    }

    /// Opens connections for requests to come: `count`, or one of HTTP/2. Ends at the first failure.
    pub(super) async fn warm_up(self: &Rc<Self>, count: usize, target: &UpstreamTarget<'_>) {
        for _ in 0..count {
            if self.slots.is_full(target.max_connections) {
                return;
            }
            match self.connect_new(target, false).await {
                Ok((lease, Connection::Http1(connection))) => lease.put_back(connection, target.uptime),
                Ok((_, Connection::Http2(_))) | Err(_) => return,
            }
        }
    }

    /// Returns a new connection even if one is idle, for a retry.
    pub(super) async fn connect_new(
        self: &Rc<Self>,
        target: &UpstreamTarget<'_>,
        needs_http1: bool,
    ) -> Result<(PoolGuard, Connection), ForwardError> {
        let server = self.servers.choose(ServerSet::default(), target.uptime).unwrap_or_default();
        self.connect(server, target, Wanted { needs_http1, is_alone: false, from: 0 }).await
    }

    /// Connects to a server. Counts a failure of the server.
    async fn connect(
        self: &Rc<Self>,
        server: usize,
        target: &UpstreamTarget<'_>,
        wanted: Wanted,
    ) -> Result<(PoolGuard, Connection), ForwardError> {
        let (mut lease, mut slot) = (self.guard(server, target, None), Some(self.slots.take()));
        let is_shared = self.servers.http2 && wanted.shares() && !self.http1_servers.get().contains(server);
        let connecting = is_shared.then(|| self.begin_connecting(server));
        let after = target.origin.connect_timeout;
        let connected = timeout(after, async {
            match self.servers.connect(server, target.client, wanted.needs_http1).await? {
                Connected { stream, is_http2: false } => {
                    Ok(Connection::Http1(Http1Connection::new(stream, target.head_limits)))
                }
                Connected { stream, is_http2: true } => {
                    let host = self.servers.host(server);
                    let order = ConnectionOrder::take(&self.next_order);
                    let connection =
                        Http2Connection::new(stream, target.head_limits, host, slot.take(), order, wanted.is_alone)
                            .await?;
                    let stream = connection.begin_stream(target.requester, &self.resets);
                    self.share(connection, server, target);
                    Ok(Connection::Http2(stream))
                }
            }
        });
        let error = match connected.await {
            Ok(Ok(connection)) => {
                lease.slot = slot;
                match &connection {
                    Connection::Http1(_) if is_shared => self.http1_servers.set(self.http1_servers.get().with(server)),
                    Connection::Http1(_) => {}
                    Connection::Http2(stream) => lease.stream = Some(Rc::clone(stream)),
                }
                connecting.into_iter().for_each(ConnectingGuard::succeed);
                return Ok((lease, connection));
            }
            Ok(Err(source)) => ForwardError::connect_failed(source),
            Err(_) => ForwardError::ConnectTimedOut { after },
        };
        let error = if wanted.needs_http1 { error.of_upgrade() } else { error };
        if error.is_of_origin() {
            self.servers.record_failure(server, &error.to_string(), target.clock.monotonic_now());
        }
        Err(error)
    }

    /// Lets other requests use a connection, at once or one at a time.
    fn share(&self, connection: Rc<Http2Connection>, server: usize, target: &UpstreamTarget<'_>) {
        if !self.is_retired.get() {
            self.http2.borrow_mut().push(SharedConnection { connection, server, used_at: target.uptime });
            self.slots.wake_one();
        }
    }

    /// Returns the connection to a server that another request is making.
    fn connecting(&self, server: usize) -> Option<Rc<Connecting>> {
        let connecting = self.connecting.borrow();
        connecting.iter().find(|(index, _)| *index == server).map(|(_, connecting)| Rc::clone(connecting))
    }

    fn begin_connecting(self: &Rc<Self>, server: usize) -> ConnectingGuard {
        let connecting = Rc::<Connecting>::default();
        self.connecting.borrow_mut().push((server, Rc::clone(&connecting)));
        ConnectingGuard { pool: Rc::clone(self), connecting, is_failed: true }
    }

    fn guard(self: &Rc<Self>, server: usize, target: &UpstreamTarget<'_>, idle_for: Option<Duration>) -> PoolGuard {
        PoolGuard {
            pool: Rc::clone(self),
            server,
            client: target.client,
            _in_flight: self.servers.begin_request(server),
            idle_for,
            slot: None,
            stream: None,
        }
    }

    /// Closes connections that were idle longer than the origin keeps them, and drops those that the origin closed.
    pub(super) fn sweep(&self, idle_timeout: Duration, now: Timestamp) {
        self.http2.borrow_mut().retain_mut(|shared| {
            if !shared.connection.is_idle() {
                shared.used_at = now;
            }
            !shared.connection.is_closed() && now.saturating_duration_since(shared.used_at) < idle_timeout
        });
        self.close_excess_alone();
        self.idle
            .borrow_mut()
            .retain_mut(|idle| idle.connection.is_idle() && now.saturating_duration_since(idle.since) < idle_timeout);
    }

    /// Closes idle connections that take one request at a time, beyond a few: most are left by a burst.
    fn close_excess_alone(&self) {
        let mut kept = 0;
        self.http2.borrow_mut().retain(|shared| {
            let is_idle = shared.connection.is_alone() && shared.connection.is_idle();
            kept += usize::from(is_idle);
            !is_idle || kept <= MAX_IDLE_ALONE
        });
    }

    /// Closes the connections that are idle, and all others after their requests: the settings have other servers.
    pub(super) fn retire(&self) {
        self.is_retired.set(true);
        self.http2.take();
        self.idle.take();
    }

    fn take_idle(self: &Rc<Self>, server: usize, target: &UpstreamTarget<'_>) -> Option<(PoolGuard, Connection)> {
        loop {
            let IdleConnection { mut connection, slot, since, .. } = {
                let mut idle = self.idle.borrow_mut();
                let last = idle.iter().rposition(|idle| idle.server == server && idle.client == target.client)?;
                idle.remove(last)
            };
            let idle_for = target.uptime.saturating_duration_since(since);
            let mut lease = self.guard(server, target, Some(idle_for));
            lease.slot = Some(slot);
            let is_in_use = connection.requests_sent() > 1 && idle_for < LIVENESS_CHECK_AFTER;
            if connection.is_idle() && (is_in_use || connection.is_idle_now()) {
                return Some((lease, Connection::Http1(connection)));
            }
        }
    }

    /// Returns a stream on a connection of HTTP/2 to the server.
    fn take_stream(
        self: &Rc<Self>,
        server: usize,
        target: &UpstreamTarget<'_>,
        wanted: Wanted,
    ) -> Option<(PoolGuard, Connection)> {
        let connection = {
            let mut http2 = self.http2.borrow_mut();
            let is_usable = |shared: &&mut SharedConnection| {
                shared.server == server && shared.takes(wanted) && !shared.connection.is_closed()
            };
            let shared = http2.iter_mut().find(is_usable)?;
            shared.used_at = target.uptime;
            Rc::clone(&shared.connection)
        };
        let mut lease = self.guard(server, target, Some(Duration::ZERO));
        let stream = connection.begin_stream(target.requester, &self.resets);
        lease.stream = Some(Rc::clone(&stream));
        if connection.has_free_stream() {
            // A request that waits may have missed that the connection was opened.
            self.slots.wake_one();
        }
        Some((lease, Connection::Http2(stream)))
    }

    /// Returns true if a request can be sent without a new connection, or in place of an idle one.
    fn has_free_connection(&self, wanted: Wanted) -> bool {
        self.http2.borrow_mut().retain(|shared| !shared.connection.is_closed());
        let is_free = |shared: &SharedConnection| shared.takes(wanted) || shared.connection.is_idle();
        !self.idle.borrow().is_empty() || self.http2.borrow().iter().any(is_free)
    }

    /// Closes an idle connection, which is to a server that is not wanted. Returns false if there is none.
    fn close_oldest_idle(&self) -> bool {
        let mut idle = self.idle.borrow_mut();
        if !idle.is_empty() {
            idle.remove(0);
            return true;
        }
        let mut http2 = self.http2.borrow_mut();
        let oldest = http2.iter().position(|shared| shared.connection.is_idle());
        oldest.map(|index| http2.remove(index)).is_some()
    }
}

impl SharedConnection {
    /// Returns true if it can take one more request of this kind.
    fn takes(&self, wanted: Wanted) -> bool {
        let connection = &self.connection;
        !wanted.needs_http1
            && connection.is_alone() == wanted.is_alone
            && connection.order() >= wanted.from
            && connection.has_free_stream()
    }
}

impl ConnectingGuard {
    fn succeed(mut self) {
        self.is_failed = false;
    }
}

impl Drop for ConnectingGuard {
    fn drop(&mut self) {
        self.pool.connecting.borrow_mut().retain(|(_, connecting)| !Rc::ptr_eq(connecting, &self.connecting));
        self.connecting.is_failed.set(self.is_failed);
        self.connecting.is_done.notify_waiters();
    }
}

impl PoolGuard {
    /// Returns true for a connection of HTTP/2 on which the origin has answered nothing yet.
    pub(super) fn is_unanswered_http2(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.is_unanswered())
    }

    /// Returns the order from which on connections of HTTP/2 may take the request, if the origin has refused this one.
    pub(super) fn replaced_from(&self) -> Option<u64> {
        self.stream.as_ref().and_then(|stream| stream.replaced_from())
    }

    /// Lets no other request use the connection of HTTP/2 if it has received nothing since this one.
    pub(super) fn retire_silent_connection(&self) {
        self.stream.iter().for_each(|stream| stream.retire_if_silent());
    }

    /// Returns the connection and its slot to the pool.
    pub(in crate::gateway) fn put_back(mut self, connection: Http1Connection, now: Timestamp) {
        let Some(slot) = self.slot.take() else { return };
        if !self.pool.is_retired.get() {
            let (server, client) = (self.server, self.client);
            self.pool.idle.borrow_mut().push(IdleConnection { connection, slot, client, server, since: now });
            self.pool.slots.wake_one();
        }
    }
}
