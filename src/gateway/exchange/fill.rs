//! Requests that the gateway makes itself to fill the cache. They pass through the same phases as those of clients.

use super::client_connection::{ClientConnection, Fill};
use super::{handle, within};
use crate::gateway::cache::{FillOutcome, FillRequest};
use crate::gateway::message::response_body::ResponseBody;
use crate::gateway::message::site::Site;
use crate::gateway::transport::client_body::ClientBody;
use crate::gateway::transport::connection_timeouts::ConnectionState;
use crate::gateway::worker::Worker;
use http::{Method, Uri, Version};
use hyper::body::Body;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_http1::{Fields, Name, Request, RequestHead, Response};
use tokio::sync::Semaphore;

/// User agent in the log. The origin is sent that of all fetches for the cache.
const USER_AGENT: &str = concat!("tidegate/", env!("CARGO_PKG_VERSION"), " (bot)");

/// Most requests of the gateway itself in flight on one worker.
const MAX_IN_FLIGHT: usize = 8;

/// Makes the gateway's own requests, until dropped.
pub(in crate::gateway) async fn run_fills(worker: Rc<Worker>) {
    let in_flight = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
    while let Ok(permit) = Arc::clone(&in_flight).acquire_owned().await {
        let Some(request) = worker.shared().cache.fills.next().await else { return };
        let for_request = Rc::clone(&worker);
        let _ = worker.run_detached(async move {
            fill(&for_request, request).await;
            drop(permit);
        });
    }
}

/// Makes one request and reads its response to the end.
async fn fill(worker: &Rc<Worker>, request: FillRequest) {
    let FillRequest { url, fields, class, fill, reply } = request;
    let outcome = match head(&url, fields) {
        None => Err(format!(
            "found {:?}; give a URL with scheme and host, such as https://example.com/item/42",
            url.to_string()
        )),
        Some(head) => {
            let connection_state =
                ConnectionState::new(worker.monotonic_tick(), worker.shared().clock.clone(), u32::MAX);
            let connection =
                ClientConnection::for_fill(Rc::clone(worker), connection_state, Fill { reason: fill, class });
            let limit = 2 * worker.config().settings.origin.response_timeout;
            let deadline = worker.upstream().new_deadline(limit);
            let work = async { outcome(handle(connection, Request { head, body: ClientBody::Empty }).await).await };
            within(&deadline, work).await.ok_or_else(|| format!("no whole response within {limit:?}"))
        }
    };
    // Fails if the receiver is dropped.
    let _ = reply.send(outcome);
}

/// Returns the head of a request for `url`; `None` without a scheme and a host.
fn head(url: &Uri, mut fields: Fields) -> Option<RequestHead> {
    let site = Site::from_url(url)?;
    fields.insert(Name::Host, site.host().as_bytes());
    fields.insert(Name::ForwardedProto, site.scheme().as_bytes());
    // A page that is selected by its user agent is refreshed with that of the clients who get it.
    if !fields.contains(Name::UserAgent) {
        fields.append(Name::UserAgent, USER_AGENT.as_bytes());
    }
    let target = url.path_and_query().map_or("/", |target| target.as_str());
    let target = Uri::try_from(target).ok()?;
    Some(RequestHead { method: Method::GET, target, version: Version::HTTP_11, fields })
}

async fn outcome(response: Response<ResponseBody>) -> FillOutcome {
    let Response { status, fields, mut body } = response;
    // Read to its end: the response is stored once it is whole.
    while let Some(Ok(_)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {}
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    // Caches between gateway and origin have written theirs before (RFC 9211 section 2).
    let cache_status = fields.all(Name::CacheStatus).last().map(text).unwrap_or_default();
    // A response of the gateway itself names its decision.
    let is_refused = matches!(status.as_u16(), 429 | 503) && fields.contains(Name::Decision);
    FillOutcome {
        status: status.as_u16(),
        // A stored response may be sent in place of a refusal.
        is_refused: is_refused || cache_status.contains("detail=refused"),
        cache_status,
        retry_after_s: fields.get(Name::RetryAfter).and_then(|value| text(value).parse().ok()),
    }
}
