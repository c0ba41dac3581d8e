//! The way to the origin: a connection, the request on it, the head of the answer.
//!
//! What speaks HTTP/1.1 here is [`crate::http1::client`]; what is sent when, and what may be sent twice, is decided here.

mod deadline;
mod pool;
pub(super) mod rate_limit;

pub(super) use deadline::{Deadline, Deadlines};
pub(super) use pool::PoolGuard;

use super::body::RequestBody;
use crate::clock::Clock;
use crate::config::settings::Origin;
use crate::engine::Permit;
use crate::http1::{RequestHead, Response, client};
use crate::policy::Timestamp;
use http::Method;
use hyper::body::Body;
use pool::Pool;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpStream;

/// A connection to the origin on which nothing is under way.
pub(super) type Connection = client::Connection<TcpStream>;
/// The origin's answer as it comes.
pub(super) type OriginBody = client::ResponseBody<TcpStream, RequestBody>;

/// How often a request that never left may be put on another connection.
const MAX_UNSENT_RETRIES: usize = 4;

/// One worker's way to the origin.
pub(super) struct Upstream {
    pool: Rc<Pool>,
    deadlines: Rc<Deadlines>,
}

/// The head of the origin's answer, and what its body still needs.
pub(super) struct UpstreamResponse {
    pub(super) response: Response<OriginBody>,
    pub(super) lease: PoolGuard,
    pub(super) deadline: Deadline,
}

/// Where the origin is, as settings and resolver have it now.
pub(super) struct UpstreamTarget<'a> {
    pub(super) origin: &'a Origin,
    pub(super) addresses: &'a [SocketAddr],
    /// How long the clock has been running.
    pub(super) uptime: Timestamp,
    /// Tells the time of day, which has gone on by a second try.
    pub(super) clock: &'a Clock,
    /// This worker's share of the connections.
    pub(super) most_connections: usize,
}

/// Why there is no answer, and whose doing it was.
#[derive(Debug, thiserror::Error)]
pub(super) enum ForwardError {
    /// All connections are busy, and none came free in time.
    #[error("all connections to the origin are busy")]
    PoolExhausted,
    /// The origin did not accept a connection in time.
    #[error("no connection to the origin within {after:?}")]
    ConnectTimedOut {
        /// How long it was given.
        after: Duration,
    },
    /// The origin refused the connection, or has no address.
    #[error("cannot connect to the origin: {source}")]
    ConnectFailed {
        /// The system's reason.
        source: std::io::Error,
    },
    /// The origin closed the connection, or said something that is not HTTP, before its answer.
    #[error("the origin gave no answer: {source}")]
    OriginClosed {
        /// The connection's reason.
        source: client::Error,
    },
    /// The origin did not answer in time.
    #[error("no answer from the origin within {after:?}")]
    TimedOut {
        /// How long it was given.
        after: Duration,
    },
    /// The origin fell silent in the middle of an answer that is read here.
    #[error("the origin fell silent in the middle of its answer")]
    BodyTimedOut,
    /// The client's body ended badly: it left, stalled, or sent too much.
    #[error("the request's body broke off")]
    ClientBody {
        /// It was longer than allowed.
        too_large: bool,
    },
}

impl Upstream {
    pub(super) fn new(deadlines: Rc<Deadlines>) -> Self {
        Self { pool: Pool::new(), deadlines }
    }

    /// Sends what `permit` allows and waits for the head of the answer.
    ///
    /// The permit is marked as sent as soon as the origin may have seen the request. A request that provably did not
    /// leave is tried again on another connection, whatever its method; one that may have arrived only if it is
    /// idempotent, has no body, was sent on a connection that had been idle, and a second charge can be reserved.
    pub(super) async fn send(
        &self,
        permit: &mut Permit,
        head: &RequestHead,
        mut body: RequestBody,
        route: &UpstreamTarget<'_>,
    ) -> Result<UpstreamResponse, ForwardError> {
        let after = route.origin.response_timeout;
        let deadline = self.deadlines.new_deadline(after);
        let upload = body.upload();
        let is_repeatable = is_idempotent(&head.method) && body.is_end_stream();
        let mut tries = 0;
        loop {
            let (lease, connection) = match tries {
                0 => self.pool.lease(route.origin, route.most_connections, route.addresses, route.uptime).await?,
                _ => self.pool.connect_new(route.origin, route.addresses).await?,
            };
            tries += 1;
            let may_repeat = is_repeatable && lease.idle_for.is_some();
            permit.mark_sent();
            let mut sending = pin!(connection.send(head, body));
            let sent = std::future::poll_fn(|context| match sending.as_mut().poll(context) {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending if upload.as_ref().is_some_and(|upload| upload.is_in_progress()) => {
                    deadline.reset();
                    Poll::Pending
                }
                Poll::Pending if deadline.poll_expired(context) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            })
            .await;
            let failed = match sent {
                None => return Err(ForwardError::TimedOut { after }),
                Some(Ok(response)) => {
                    deadline.reset();
                    return Ok(UpstreamResponse { response, lease, deadline });
                }
                Some(Err(failed)) => failed,
            };
            let nobody_answered = matches!(failed.error, client::Error::NoResponse);
            if let Some(unsent) = failed.unsent {
                permit.mark_unsent();
                if tries < MAX_UNSENT_RETRIES {
                    body = unsent;
                    continue;
                }
            } else if let Some(broke_off) = upload.as_ref().and_then(|upload| upload.aborted()) {
                return Err(ForwardError::ClientBody { too_large: broke_off.too_large });
            } else if may_repeat && nobody_answered && permit.reserve_retry(route.clock.now()) {
                body = RequestBody::none();
                continue;
            }
            return Err(ForwardError::OriginClosed { source: failed.error });
        }
    }

    /// Closes what has been idle too long, wakes what has waited too long.
    pub(super) fn sweep(&self, origin: &Origin, now: Timestamp) {
        self.pool.sweep(origin.idle_timeout, now);
        self.deadlines.sweep();
    }
}

/// True for what may be done twice as well as once, and does nothing (RFC 9110 section 9.2).
fn is_idempotent(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
}
