//! Server-sent events of the state, for the live page.

use super::auth::AccessControl;
use super::problem::Problem;
use super::session::Permission;
use super::state::document;
use super::{Corrections, DynGateway};
use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use parking_lot::Mutex;
use serde::Serialize;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};
use tracing::error;

/// The open streams, and the event that they share.
pub(super) struct StateEvents {
    /// Places for streams of readers.
    readers: Arc<Semaphore>,
    /// Places for streams of writers, which readers cannot take.
    writers: Arc<Semaphore>,
    latest: Mutex<Option<(Instant, Bytes)>>,
}

/// Body of one stream. It ends with its session, after [`MAX_EVENTS`], or without a state; the browser then connects again.
struct EventStream {
    access: Arc<AccessControl>,
    /// Headers of the request, with its token or session.
    headers: HeaderMap,
    events: Arc<StateEvents>,
    gateway: DynGateway,
    corrections: Arc<Corrections>,
    ticks: Interval,
    remaining: u32,
    _permit: OwnedSemaphorePermit,
}

impl Default for StateEvents {
    fn default() -> Self {
        let places = || Arc::new(Semaphore::new(MAX_STREAMS));
        Self { readers: places(), writers: places(), latest: Mutex::default() }
    }
}

impl StateEvents {
    /// Returns the state as an event, at the tick `now` of a stream: the event of a stream whose tick was less than half an
    /// interval before, or a new one. Returns `None` if the state cannot be written.
    fn latest(&self, gateway: &DynGateway, corrections: &Corrections, now: Instant) -> Option<Bytes> {
        let mut latest = self.latest.lock();
        if let Some((rendered_at, event)) = &*latest
            && now.saturating_duration_since(*rendered_at) < EVENT_INTERVAL / 2
        {
            return Some(event.clone());
        }
        let event = state_event(&document(gateway, corrections));
        let event =
            event.inspect_err(|error| error!("The live page gets no state, which cannot be written: {error}")).ok()?;
        *latest = Some((now, event.clone()));
        Some(event)
    }
}

fn state_event(state: &impl Serialize) -> Result<Bytes, serde_json::Error> {
    let state = serde_json::to_string(state)?;
    Ok(format!("retry: 1000\nevent: state\ndata: {state}\n\n").into())
}

/// Streams the state once a second.
pub(super) async fn stream(
    State(gateway): State<DynGateway>,
    State(corrections): State<Arc<Corrections>>,
    State(events): State<Arc<StateEvents>>,
    State(access): State<Arc<AccessControl>>,
    Extension(permission): Extension<Permission>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let too_many =
        |_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("{MAX_STREAMS} pages are open; close one."));
    let places = match permission {
        Permission::Read => &events.readers,
        Permission::Write => &events.writers,
    };
    let permit = Arc::clone(places).try_acquire_owned().map_err(too_many)?;
    let mut ticks = interval(EVENT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stream =
        EventStream { access, headers, events, gateway, corrections, ticks, remaining: MAX_EVENTS, _permit: permit };
    Ok(([(CONTENT_TYPE, "text/event-stream")], Body::new(stream)).into_response())
}

impl hyper::body::Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.remaining == 0 {
            return Poll::Ready(None);
        }
        let now = ready!(self.ticks.poll_tick(cx));
        if !self.access.permits_read(&self.headers) {
            return Poll::Ready(None);
        }
        self.remaining -= 1;
        let event = self.events.latest(&self.gateway, &self.corrections, now);
        Poll::Ready(event.map(|event| Ok(Frame::data(event))))
    }
}

/// Time between two events.
const EVENT_INTERVAL: Duration = Duration::from_secs(1);

/// Fewer than a connection of the admin listener lasts, so that it ends between two events.
const MAX_EVENTS: u32 = 50;

/// Maximum number of streams of readers, and of writers: both leave connections to scrapes and commands.
const MAX_STREAMS: usize = 12;

#[cfg(test)]
mod tests {
    use super::state_event;
    use std::collections::BTreeMap;

    #[test]
    fn state_that_cannot_be_written_is_no_event() {
        assert_eq!(state_event(&1).expect("a number"), "retry: 1000\nevent: state\ndata: 1\n\n");
        assert!(state_event(&BTreeMap::from([((1, 2), 3)])).is_err(), "a key that is no text");
    }
}
