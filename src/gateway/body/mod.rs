//! Request and response bodies: streamed in both directions, chunk by chunk, never buffered whole.

use super::connection::TrackedStream;
use super::connection_timeouts::ConnectionState;
use super::request_context::RequestContext;
use super::upstream::{Deadline, OriginBody, PoolGuard};
use crate::http1::{client, server};
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;

/// A request body as its connection reads it.
#[derive(Debug)]
pub(super) enum ClientBody {
    Http1(server::RequestBody<TrackedStream>),
    Http2(Incoming),
}

/// A request body on its way to the origin.
pub(super) struct RequestBody(Option<Box<Streaming>>);

struct Streaming {
    /// Removed only on drop.
    incoming: Option<ClientBody>,
    left: u64,
    watch: Rc<ConnectionState>,
    upload: Rc<Upload>,
    drain: mpsc::Sender<Incoming>,
}

/// Progress of a request body. Shared, because the origin may respond before the body is complete.
#[derive(Default)]
pub(super) struct Upload {
    state: Cell<UploadState>,
}

#[derive(Clone, Copy, Default)]
enum UploadState {
    #[default]
    InProgress,
    Done,
    Aborted(BodyAborted),
}

/// Error: the request body ended early.
#[derive(Clone, Copy)]
pub(super) struct BodyAborted {
    pub(super) too_large: bool,
}

/// Error of a body.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("client aborted the request body: {0}")]
    Http1Client(#[from] server::BodyError),
    #[error("client aborted the request body: {0}")]
    Http2Client(#[from] hyper::Error),
    #[error("origin aborted the response body: {0}")]
    Origin(#[from] client::Error),
    #[error("request body too large")]
    TooLarge,
    #[error("origin response body timed out")]
    TimedOut,
}

impl ClientBody {
    /// Drains a body that is not forwarded. An HTTP/1.1 connection drains it by itself.
    pub(super) fn drain(self, drain: &mpsc::Sender<Incoming>) {
        if let Self::Http2(incoming) = self {
            // If the queue is full, the client loses the stream, as it would without draining.
            let _ = drain.try_send(incoming);
        }
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut *self {
            Self::Http1(body) => Pin::new(body).poll_frame(context).map_err(BodyError::from),
            Self::Http2(body) => Pin::new(body).poll_frame(context).map_err(BodyError::from),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Http2(body) => body.size_hint(),
        }
    }
}

impl RequestBody {
    /// Returns an empty body.
    pub(super) fn none() -> Self {
        Self(None)
    }

    /// Forwards `incoming`, at most `limit` bytes. A body that is not read to its end is drained through `drain`, so
    /// that the client can read an early response.
    pub(super) fn streaming(
        incoming: ClientBody,
        limit: u64,
        watch: Rc<ConnectionState>,
        drain: impl FnOnce() -> mpsc::Sender<Incoming>,
    ) -> Self {
        if incoming.is_end_stream() {
            return Self::none();
        }
        let (upload, drain) = (Rc::default(), drain());
        Self(Some(Box::new(Streaming { incoming: Some(incoming), left: limit, watch, upload, drain })))
    }

    /// Returns the progress of the body, for the task that waits for the response.
    pub(super) fn upload(&self) -> Option<Rc<Upload>> {
        self.0.as_ref().map(|streaming| Rc::clone(&streaming.upload))
    }
}

impl Upload {
    pub(super) fn is_in_progress(&self) -> bool {
        matches!(self.state.get(), UploadState::InProgress)
    }

    pub(super) fn aborted(&self) -> Option<BodyAborted> {
        match self.state.get() {
            UploadState::Aborted(broke_off) => Some(broke_off),
            _ => None,
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(streaming) = &mut self.0 else { return Poll::Ready(None) };
        let Some(incoming) = &mut streaming.incoming else { return Poll::Ready(None) };
        let polled = Pin::new(&mut *incoming).poll_frame(context);
        streaming.watch.on_body_wait(polled.is_pending());
        let broke_off = |too_large| streaming.upload.state.set(UploadState::Aborted(BodyAborted { too_large }));
        match ready!(polled) {
            None => {
                streaming.upload.state.set(UploadState::Done);
                Poll::Ready(None)
            }
            Some(Err(error)) => {
                broke_off(false);
                Poll::Ready(Some(Err(error)))
            }
            Some(Ok(frame)) => {
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                let Some(left) = streaming.left.checked_sub(length) else {
                    broke_off(true);
                    return Poll::Ready(Some(Err(BodyError::TooLarge)));
                };
                streaming.left = left;
                if incoming.is_end_stream() {
                    streaming.upload.state.set(UploadState::Done);
                }
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().and_then(|streaming| streaming.incoming.as_ref()).is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let incoming = self.0.as_ref().and_then(|streaming| streaming.incoming.as_ref());
        incoming.map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        self.watch.on_body_wait(false);
        if self.upload.is_in_progress() {
            self.upload.state.set(UploadState::Aborted(BodyAborted { too_large: false }));
            if let Some(incoming) = self.incoming.take() {
                incoming.drain(&self.drain);
            }
        }
    }
}

/// A response body.
pub(super) enum ResponseBody {
    /// Generated by the gateway, in one chunk.
    Full(Option<Bytes>),
    /// Streamed from the origin.
    Streamed(Box<Streamed>),
}

/// The origin's body on its way to the client. Its end completes the request.
pub(super) struct Streamed {
    /// Part of the body that was already read.
    beginning: Bytes,
    incoming: OriginBody,
    lease: Option<PoolGuard>,
    deadline: Deadline,
    /// Present until the end of the body.
    visit: Option<Box<RequestContext>>,
}

impl ResponseBody {
    /// Returns a body of one chunk.
    pub(super) fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self::Full((!bytes.is_empty()).then_some(bytes))
    }

    /// Returns a body of `beginning`, already read, followed by `incoming`. Its end completes `visit`.
    pub(super) fn streamed(
        beginning: Bytes,
        incoming: OriginBody,
        lease: PoolGuard,
        deadline: Deadline,
        visit: Box<RequestContext>,
    ) -> Self {
        let (lease, visit) = (Some(lease), Some(visit));
        let mut streamed = Box::new(Streamed { beginning, incoming, lease, deadline, visit });
        // A response without a body (to HEAD, or a 304) is never polled.
        if streamed.beginning.is_empty() && streamed.incoming.is_end_stream() {
            streamed.on_complete();
        }
        Self::Streamed(streamed)
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut *self {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Streamed(streamed) => streamed.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_none(),
            Self::Streamed(streamed) => streamed.beginning.is_empty() && streamed.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Streamed(streamed) => streamed.size_hint(),
        }
    }
}

/// Reads a response that is not forwarded, while its body is scanned for quota usage. The whole body has the time limit
/// of a single chunk.
pub(super) async fn scan_to_end(mut answer: OriginBody, deadline: &Deadline, visit: &mut RequestContext) {
    while visit.is_scanning_body() {
        let piece = poll_fn(|context| match Pin::new(&mut answer).poll_frame(context) {
            Poll::Pending if deadline.poll_expired(context) => Poll::Ready(None),
            polled => polled.map(|frame| frame?.ok()),
        });
        let Some(piece) = piece.await else { return };
        piece.data_ref().into_iter().for_each(|data| visit.scan_body(data));
    }
}

impl Streamed {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if !self.beginning.is_empty() {
            let data = std::mem::take(&mut self.beginning);
            self.visit.iter_mut().for_each(|visit| visit.add_body_bytes(data.len() as u64));
            if self.incoming.is_end_stream() {
                self.on_complete();
            }
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let polled = Pin::new(&mut self.incoming).poll_frame(context);
        let Poll::Ready(next) = polled else {
            return match self.deadline.poll_expired(context) {
                true => {
                    self.on_abort();
                    Poll::Ready(Some(Err(BodyError::TimedOut)))
                }
                false => Poll::Pending,
            };
        };
        self.deadline.reset();
        match next {
            None => {
                self.on_complete();
                Poll::Ready(None)
            }
            Some(Err(error)) => {
                if !matches!(error, client::Error::Body(_) | client::Error::BodyLength) {
                    self.on_abort();
                }
                Poll::Ready(Some(Err(error.into())))
            }
            Some(Ok(frame)) => {
                if let (Some(visit), Some(data)) = (&mut self.visit, frame.data_ref()) {
                    visit.add_body_bytes(data.len() as u64);
                    visit.scan_body(data);
                }
                if self.incoming.is_end_stream() {
                    self.on_complete();
                }
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        let (beginning, rest) = (self.beginning.len() as u64, self.incoming.size_hint());
        let mut whole = SizeHint::new();
        whole.set_lower(rest.lower() + beginning);
        rest.upper().into_iter().for_each(|upper| whole.set_upper(upper + beginning));
        whole
    }

    /// Handles a body that was aborted or timed out.
    fn on_abort(&mut self) {
        self.visit.iter_mut().for_each(|visit| visit.upstream_body_aborted());
    }

    /// Handles the end of the body. The connection is reusable, unless the request is still being sent on it. The
    /// request is recorded now, so that it is counted before the client sees the end of the response.
    fn on_complete(&mut self) {
        let Some(visit) = self.visit.take() else { return };
        if let Some((lease, connection)) = self.lease.take().zip(self.incoming.take_connection()) {
            lease.put_back(connection, visit.uptime());
        }
        visit.finish();
    }
}
