//! Sends requests to the origins: connection, request, response head.
//!
//! [`tidegate_http1::client`] implements HTTP/1.1, and hyper HTTP/2 (`http2`); this module decides when a request is sent
//! and whether it is sent again.

mod client_resets;
mod connection;
mod deadline;
mod error;
mod forward_state;
mod go_duration;
mod health_check;
mod http2;
pub(in crate::gateway) mod origin_health;
mod pool;
pub(super) mod rate_limit;
mod request_body;
mod servers;
mod slots;
mod stream;
mod stream_failure;
mod tls;
pub(super) use connection::OriginBody;
pub(super) use deadline::Deadline;
use deadline::Deadlines;
pub(super) use error::{ClientBodyError, ForwardError};
pub(super) use forward_state::ForwardState;
pub(super) use pool::PoolGuard;
pub(super) use request_body::{ReceivedBody, RequestBody};
pub use servers::{OriginServerView, OriginServers, OriginView};
pub(super) use stream::OriginStream;

use crate::gateway::shared_count::SharedCount;
use crate::gateway::transport::proxy_protocol::ProxiedClient;
use client_resets::ClientResets;
use connection::Connection;
use http::Method;
use hyper::body::Body;
use pool::{Pool, Wanted};
use std::cell::Cell;
use std::fmt::Display;
use std::io::ErrorKind;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tidegate_config::settings::Origin;
use tidegate_engine::Permit;
use tidegate_engine::clock::Clock;
use tidegate_http1::client::OnInterim;
use tidegate_http1::{HeadLimits, Malformed, Name, RequestHead, Response, client};
use tidegate_policy::identity::ClientKey;
use tidegate_policy::{OriginId, Timestamp};

/// Maximum retries of an unsent request on other connections.
const MAX_UNSENT_RETRIES: usize = 4;

/// Maximum bytes of a response head.
pub(super) const MAX_RESPONSE_HEAD: usize = 128 * 1024;

/// Lengths of a field and of a head above which a request shares no connection of HTTP/2: nginx ends one for a field of
/// more than 8 KiB.
const LARGE_FIELD: usize = 7 * 1024;
const LARGE_HEAD: usize = 15 * 1024;

/// Why a new connection of HTTP/2 ends, most likely.
const NO_HTTP2: &str = "closed before any response over HTTP/2; does the server accept it (origin.http2)?";

/// Client of the origins, one per worker.
pub(super) struct Upstream {
    deadlines: Rc<Deadlines>,
    resets: Rc<ClientResets>,
    /// Connections to all origins, of all workers.
    open_connections: SharedCount,
}

/// Connections of one worker to the origins of its configuration, by [`OriginId`].
pub(super) struct OriginPools(Box<[Rc<Pool>]>);

/// Response head of the origin, with the resources its body needs.
pub(super) struct UpstreamResponse {
    pub(super) response: Response<OriginBody>,
    pub(super) pool_guard: PoolGuard,
    pub(super) deadline: Deadline,
}

/// An origin, its servers, and the connections to them.
pub(super) struct UpstreamTarget<'a> {
    pub(super) origin: &'a Origin,
    pub(super) pool: &'a Rc<Pool>,
    /// Client that each connection names; `None` without the PROXY protocol, and for requests of the gateway itself.
    pub(super) client: Option<ProxiedClient>,
    /// Client whose requests over HTTP/2 are kept apart if many are reset; `None` for one of the gateway itself.
    pub(super) requester: Option<ClientKey>,
    /// Monotonic time.
    pub(super) uptime: Timestamp,
    /// Wall clock, because time has passed before a retry.
    pub(super) clock: &'a Clock,
    /// Maximum time to the response head, and between parts of the body.
    pub(super) response_timeout: Duration,
    /// Handles interim responses; `None` if the client gets none.
    pub(super) on_interim: Option<OnInterim<'a>>,
    /// Limits of a response head on new connections.
    pub(super) head_limits: HeadLimits,
    /// Maximum connections of this worker.
    pub(super) max_connections: usize,
}

impl Upstream {
    /// Returns a client without connections. `clock` is the monotonic time; `open_connections` counts those of all workers.
    pub(super) fn new(clock: Rc<Cell<Timestamp>>, open_connections: SharedCount) -> Self {
        let resets = ClientResets::new(Rc::clone(&clock));
        Self { deadlines: Deadlines::new(clock), resets, open_connections }
    }

    /// Returns the pools of `servers`. Those that `previous` has, too, keep their connections; the others are retired.
    pub(super) fn pools(&self, servers: &[Arc<OriginServers>], previous: &OriginPools) -> OriginPools {
        let is_of = |pool: &&Rc<Pool>, servers: &Arc<OriginServers>| Arc::ptr_eq(&pool.servers, servers);
        let pool = |servers: &Arc<OriginServers>| match previous.0.iter().find(|pool| is_of(pool, servers)) {
            Some(pool) => Rc::clone(pool),
            None => Pool::new(Arc::clone(servers), self.open_connections.clone(), Rc::clone(&self.resets)),
        };
        let is_gone = |pool: &&Rc<Pool>| !servers.iter().any(|servers| is_of(pool, servers));
        previous.0.iter().filter(is_gone).for_each(|pool| pool.retire());
        OriginPools(servers.iter().map(pool).collect())
    }

    /// Opens connections for requests to come: `count`, or one of HTTP/2. Ends at the first failure.
    pub(super) async fn warm_up(&self, count: usize, target: &UpstreamTarget<'_>) {
        target.pool.warm_up(count, target).await;
    }

    /// Returns a deadline for a wait of at most `limit`.
    pub(super) fn new_deadline(&self, limit: Duration) -> Deadline {
        self.deadlines.new_deadline(limit)
    }

    /// Sends the request that `permit` allows and waits for the response head.
    ///
    /// The permit is marked as sent as soon as the origin may have received the request. A request that was certainly
    /// not sent is retried on another connection, whatever its method. One that the origin refused is retried once, on a
    /// connection opened after the refusal. A request that may have arrived is retried once, and only if it is idempotent,
    /// has no body, was refused or sent on a connection that was open before, and a second charge can be reserved. `state` records whether the origin may have received the whole request.
    pub(super) async fn send(
        &self,
        permit: &mut Permit,
        head: &RequestHead,
        mut body: RequestBody,
        target: &UpstreamTarget<'_>,
        state: &ForwardState,
    ) -> Result<UpstreamResponse, ForwardError> {
        let after = target.response_timeout;
        let deadline = self.deadlines.new_deadline(after);
        let upload = body.upload();
        let is_repeatable = is_safe(&head.method) && body.is_end_stream();
        // Upgrades are those of HTTP/1.1.
        let needs_http1 = head.fields.contains(Name::Upgrade);
        let is_alone = target.servers().http2 && (is_large(head) || self.has_frequent_resets(target));
        let mut wanted = Wanted { needs_http1, is_alone, from: 0 };
        let (mut tries, mut is_http2, mut has_repeated, mut parts_before) = (0, false, false, 0);
        let mut was_refused = false;
        loop {
            let (pool_guard, connection) = match tries == 0 || is_http2 {
                true => target.pool.acquire(target, wanted).await?,
                // Boxed to keep the future of other requests small.
                false => Box::pin(target.pool.connect_new(target, needs_http1)).await?,
            };
            tries += 1;
            is_http2 = matches!(connection, Connection::Http2(_));
            permit.mark_sent();
            let mut sending = pin!(connection.send(head, body, target.on_interim));
            let sent = std::future::poll_fn(|cx| match sending.as_mut().poll(cx) {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending => {
                    match upload.as_ref().filter(|upload| upload.is_in_progress()) {
                        Some(upload) if upload.is_stalled(&mut parts_before) => {}
                        Some(_) => deadline.reset(),
                        None => state.set_sent(true),
                    }
                    match deadline.poll_expired(cx) {
                        true => Poll::Ready(None),
                        false => Poll::Pending,
                    }
                }
            })
            .await;
            let record_no_response = |error: &dyn Display| {
                // [`ForwardError::of_upgrade`] has the reason.
                if needs_http1 {
                    return;
                }
                target.servers().record_no_response(
                    pool_guard.server,
                    &error.to_string(),
                    target.clock.monotonic_now(),
                );
            };
            let failed = match sent {
                None => {
                    let error = ForwardError::TimedOut { after };
                    pool_guard.retire_silent_connection();
                    record_no_response(&error);
                    return Err(error);
                }
                Some(Ok(response)) => {
                    target.servers().record_response(pool_guard.server);
                    state.set_sent(!upload.as_ref().is_some_and(|upload| upload.is_in_progress()));
                    deadline.reset();
                    return Ok(UpstreamResponse { response, pool_guard, deadline });
                }
                Some(Err(failed)) => failed,
            };
            state.set_sent(false);
            let is_unanswered = matches!(failed.error, client::Error::NoResponse);
            let is_unsendable =
                matches!(&failed.error, client::Error::Io(error) if error.kind() == ErrorKind::InvalidInput);
            let is_refused = matches!(failed.error, client::Error::Refused { .. });
            let is_unsent =
                matches!(failed.error, client::Error::Unsent | client::Error::Refused { is_unprocessed: true, .. });
            let may_move = !is_refused || !std::mem::replace(&mut was_refused, is_refused);
            wanted.from = pool_guard.replaced_from().unwrap_or(wanted.from);
            let may_repeat =
                is_repeatable && !has_repeated && (is_refused || is_unanswered && pool_guard.idle_for.is_some());
            if is_unsent || is_unsendable {
                permit.mark_unsent();
            }
            if is_unsendable {
                return Err(ForwardError::OriginClosed { source: failed.error });
            }
            if let Some(unsent) = failed.unsent {
                if tries < MAX_UNSENT_RETRIES && may_move {
                    body = unsent;
                    continue;
                }
            } else if let Some(aborted) = upload.as_ref().and_then(|upload| upload.aborted()) {
                return Err(ForwardError::ClientBody(aborted));
            } else if may_repeat && may_move && permit.reserve_retry(target.clock.now()) {
                has_repeated = true;
                body = RequestBody::Empty;
                continue;
            }
            let source = match is_unanswered && pool_guard.is_unanswered_http2() {
                true => client::Error::Io(std::io::Error::other(NO_HTTP2)),
                false => failed.error,
            };
            // A refused stream is an answer.
            if !is_unsent || tries == MAX_UNSENT_RETRIES || !may_move {
                record_no_response(&source);
            }
            return Err(match source {
                client::Error::Malformed(Malformed::HeadTooLarge) => {
                    ForwardError::ResponseHeadTooLarge { max_fields: target.head_limits.fields }
                }
                source => ForwardError::OriginClosed { source },
            });
        }
    }

    /// Closes connections that were idle for too long, and wakes expired waits.
    pub(super) fn sweep(&self, pools: &OriginPools, origins: &[Origin], now: Timestamp) {
        for (pool, origin) in pools.0.iter().zip(origins) {
            pool.sweep(origin.idle_timeout, now);
        }
        self.deadlines.sweep();
    }
}

impl OriginPools {
    /// Returns no pools.
    pub(super) fn none() -> Self {
        Self(Box::default())
    }

    /// Returns the pool of an origin.
    #[inline]
    pub(super) fn of_origin(&self, id: OriginId) -> &Rc<Pool> {
        &self.0[id.index()]
    }
}

impl UpstreamTarget<'_> {
    /// Returns the servers.
    pub(super) fn servers(&self) -> &OriginServers {
        &self.pool.servers
    }
}

impl Upstream {
    fn has_frequent_resets(&self, target: &UpstreamTarget<'_>) -> bool {
        target.requester.is_some_and(|client| self.resets.are_frequent(client))
    }
}

/// Returns true for a head that some servers answer by the end of the connection, with the requests of others.
fn is_large(head: &RequestHead) -> bool {
    let mut length = 0;
    head.fields.iter().any(|field| {
        length += field.text.len() + field.value.len();
        field.value.len() > LARGE_FIELD || length > LARGE_HEAD
    })
}

/// Returns true for safe methods, which may be repeated (RFC 9110 section 9.2.1).
fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
}
