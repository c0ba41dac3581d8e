//! Requests that the gateway makes itself to fill the cache. They pass through the same phases as those of clients.

use super::client_connection::{ClientConnection, Fill};
use super::lookup::PATIENCE_FACTOR;
use super::{handle, within};
use crate::gateway::cache::{FillOutcome, FillRequest};
use crate::gateway::message::site::Site;
use crate::gateway::transport::client_body::ClientBody;
use crate::gateway::transport::connection_timeouts::ConnectionState;
use crate::gateway::worker::Worker;
use http::{Method, Uri, Version};
use hyper::body::Body;
use std::future::poll_fn;
use std::pin::pin;
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
    let request = Site::from_url(&url).and_then(|site| Some((head(&url, &site, fields)?, site)));
    let outcome = match request {
        None => Err(format!(
            "found {:?}; give a URL with scheme and host, such as https://example.com/item/42",
            url.to_string()
        )),
        Some((head, site)) => {
            let settings = &worker.config().settings;
            let limit = PATIENCE_FACTOR * settings.response_timeout(site.route(&url, &settings.rules));
            let deadline = worker.upstream().new_deadline(limit);
            let (fill, outcome) = Fill::new(fill, class);
            let state = ConnectionState::new(worker.monotonic_tick(), worker.shared().clock.clone(), u32::MAX);
            let connection = ClientConnection::for_fill(Rc::clone(worker), state, fill);
            let work = async {
                let Response { status, body, .. } = handle(connection, Request { head, body: ClientBody::Empty }).await;
                match read_to_end(body).await {
                    Ok(()) => outcome.await.unwrap_or_else(|_| FillOutcome::undecided(status)),
                    Err(_) => FillOutcome::incomplete(),
                }
            };
            within(&deadline, work).await.ok_or_else(|| format!("no whole response within {limit:?}"))
        }
    };
    // Fails if the receiver is dropped.
    let _ = reply.send(outcome);
}

/// Returns the head of a request for `url` of `site`.
fn head(url: &Uri, site: &Site, mut fields: Fields) -> Option<RequestHead> {
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

/// Reads a body to its end: a response is stored once it is whole. Fails if the body ends before.
async fn read_to_end<E>(body: impl Body<Error = E>) -> Result<(), E> {
    let mut body = pin!(body);
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        frame?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::read_to_end;
    use bytes::Bytes;
    use hyper::body::{Body, Frame};
    use std::collections::VecDeque;
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    /// A body of these parts.
    struct PartsBody(VecDeque<Result<&'static str, &'static str>>);

    impl Body for PartsBody {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Poll::Ready(self.0.pop_front().map(|part| part.map(|data| Frame::data(data.into()))))
        }
    }

    #[test]
    fn body_that_breaks_off_is_not_read_to_its_end() {
        let read = |parts: &[Result<&'static str, &'static str>]| {
            let reading = pin!(read_to_end(PartsBody(parts.iter().copied().collect())));
            reading.poll(&mut Context::from_waker(Waker::noop()))
        };
        assert_eq!(read(&[Ok("a"), Ok("b")]), Poll::Ready(Ok(())));
        assert_eq!(read(&[Ok("a"), Err("closed"), Ok("b")]), Poll::Ready(Err("closed")));
    }
}
