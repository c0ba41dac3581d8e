//! Request bodies as clients send them, and the errors of all bodies.

use super::client_stream::ClientStream;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
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
    /// None: a request of the gateway itself.
    Empty,
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

impl ClientBody {
    /// Returns the bytes that may be received and not read, besides the read buffer of an HTTP/1.1 connection.
    pub(in crate::gateway) fn max_unread(&self) -> usize {
        match self {
            Self::Http1(_) | Self::Empty => 0,
            Self::Http2(_) => HTTP2_STREAM_WINDOW as usize,
        }
    }

    /// Drains a body that is not forwarded. An HTTP/1.1 connection drains it by itself.
    pub(in crate::gateway) fn drain(self, drain: &mpsc::Sender<Incoming>) {
        if let Self::Http2(incoming) = self {
            // If the queue is full, the client loses the stream, as it would without draining.
            let _ = drain.try_send(incoming);
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
            Self::Empty => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
            Self::Empty => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Http2(body) => body.size_hint(),
            Self::Empty => SizeHint::with_exact(0),
        }
    }
}
