//! Request bodies as clients send them, and the errors of all bodies.

use super::client_stream::ClientStream;
use super::connection_memory::MemoryCharge;
use bytes::Bytes;
use http::HeaderMap;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use tidegate_http1::{client, server};
use tokio::sync::mpsc;

/// Bytes of an HTTP/2 request body that a client may send before they are read.
pub(in crate::gateway) const HTTP2_STREAM_WINDOW: u32 = 256 * 1024;

/// A request body as its connection reads it.
#[derive(Debug)]
pub(in crate::gateway) enum ClientBody {
    Http1(server::RequestBody<ClientStream>),
    Http2(Incoming),
    /// One that the decision needed.
    Begun(Box<BegunBody>),
    /// None: a request of the gateway itself.
    Empty,
}

/// A request body whose beginning was received before the decision.
pub(in crate::gateway) struct BegunBody {
    received: Bytes,
    trailers: Option<HeaderMap>,
    /// Memory of what was received.
    charge: MemoryCharge,
    rest: ClientBody,
}

/// Error of a body.
#[derive(Debug, thiserror::Error)]
pub(in crate::gateway) enum BodyError {
    #[error("client aborted the request body: {0}")]
    Http1Client(#[from] server::BodyError),
    #[error("client aborted the request body: {0}")]
    Http2Client(#[from] hyper::Error),
    #[error("origin aborted the response body: {0}")]
    Origin(#[from] client::Error),
    #[error("request body too large")]
    TooLarge,
    #[error("request body cannot be read from its file: {0}")]
    File(std::io::Error),
    #[error("stored response cannot be read from its file: {0}")]
    StoredResponse(std::io::Error),
    #[error("response body cannot be compressed: {0}")]
    Compression(std::io::Error),
    #[error("origin response body timed out")]
    TimedOut,
    #[error("client leaves too many responses unread")]
    TooManyUnread,
}

impl BegunBody {
    /// Returns the body that begins with `received`, which `charge` is for, and goes on with `rest`, or ends with `trailers`.
    pub(in crate::gateway) fn new(
        received: Bytes,
        trailers: Option<HeaderMap>,
        charge: MemoryCharge,
        rest: ClientBody,
    ) -> Self {
        Self { received, trailers, charge, rest }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if !self.received.is_empty() {
            self.charge.set(0);
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.received)))));
        }
        if self.rest.is_end_stream() {
            return Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
        }
        Pin::new(&mut self.rest).poll_frame(cx)
    }

    fn size_hint(&self) -> SizeHint {
        let (received, rest) = (self.received.len() as u64, self.rest.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + received);
        rest.upper().into_iter().for_each(|upper| hint.set_upper(upper + received));
        hint
    }
}

impl fmt::Debug for BegunBody {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("BegunBody").field("received", &self.received.len()).field("rest", &self.rest).finish()
    }
}

impl ClientBody {
    /// Returns the bytes that may be received and not read, besides the read buffer of an HTTP/1.1 connection.
    pub(in crate::gateway) fn max_unread(&self) -> usize {
        match self {
            Self::Http1(_) | Self::Empty => 0,
            Self::Http2(_) => HTTP2_STREAM_WINDOW as usize,
            Self::Begun(begun) => begun.rest.max_unread(),
        }
    }

    /// Drains a body that is not forwarded. An HTTP/1.1 connection drains it by itself.
    pub(in crate::gateway) fn drain(self, drain: &mpsc::Sender<Incoming>) {
        match self {
            // If the queue is full, the client loses the stream, as it would without draining.
            Self::Http2(incoming) => _ = drain.try_send(incoming),
            Self::Begun(begun) => begun.rest.drain(drain),
            Self::Http1(_) | Self::Empty => {}
        }
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut *self {
            Self::Http1(body) => Pin::new(body).poll_frame(cx).map_err(BodyError::from),
            Self::Http2(body) => Pin::new(body).poll_frame(cx).map_err(BodyError::from),
            Self::Begun(begun) => begun.poll_frame(cx),
            Self::Empty => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
            Self::Begun(begun) => begun.received.is_empty() && begun.trailers.is_none() && begun.rest.is_end_stream(),
            Self::Empty => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Http2(body) => body.size_hint(),
            Self::Begun(begun) => begun.size_hint(),
            Self::Empty => SizeHint::with_exact(0),
        }
    }
}
