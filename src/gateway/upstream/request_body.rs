//! Request bodies on their way to the origin: streamed chunk by chunk, never buffered whole.

use crate::gateway::client_body::{BodyError, ClientBody};
use crate::gateway::connection_timeouts::ConnectionState;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;

/// A request body on its way to the origin.
pub(in crate::gateway) struct RequestBody(Option<Box<Streaming>>);

struct Streaming {
    /// Removed only on drop.
    incoming: Option<ClientBody>,
    remaining_bytes: u64,
    connection_state: Rc<ConnectionState>,
    upload: Rc<Upload>,
    drain: mpsc::Sender<Incoming>,
}

/// Progress of a request body. Shared, because the origin may respond before the body is complete.
#[derive(Default)]
pub(in crate::gateway) struct Upload {
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
pub(in crate::gateway) struct BodyAborted {
    pub(in crate::gateway) too_large: bool,
}

impl RequestBody {
    /// Returns an empty body.
    pub(in crate::gateway) fn empty() -> Self {
        Self(None)
    }

    /// Forwards `incoming`, at most `limit` bytes. A body that is not read to its end is drained through `drain`, so
    /// that the client can read an early response.
    pub(in crate::gateway) fn streaming(
        incoming: ClientBody,
        limit: u64,
        connection_state: Rc<ConnectionState>,
        drain: impl FnOnce() -> mpsc::Sender<Incoming>,
    ) -> Self {
        if incoming.is_end_stream() {
            return Self::empty();
        }
        let (upload, drain) = (Rc::default(), drain());
        Self(Some(Box::new(Streaming {
            incoming: Some(incoming),
            remaining_bytes: limit,
            connection_state,
            upload,
            drain,
        })))
    }

    /// Returns the progress of the body, for the task that waits for the response.
    pub(in crate::gateway) fn upload(&self) -> Option<Rc<Upload>> {
        self.0.as_ref().map(|streaming| Rc::clone(&streaming.upload))
    }
}

impl Upload {
    pub(in crate::gateway) fn is_in_progress(&self) -> bool {
        matches!(self.state.get(), UploadState::InProgress)
    }

    pub(in crate::gateway) fn aborted(&self) -> Option<BodyAborted> {
        match self.state.get() {
            UploadState::Aborted(aborted) => Some(aborted),
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
        streaming.connection_state.on_body_wait(polled.is_pending());
        let abort = |too_large| streaming.upload.state.set(UploadState::Aborted(BodyAborted { too_large }));
        match ready!(polled) {
            None => {
                streaming.upload.state.set(UploadState::Done);
                Poll::Ready(None)
            }
            Some(Err(error)) => {
                abort(false);
                Poll::Ready(Some(Err(error)))
            }
            Some(Ok(frame)) => {
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                let Some(remaining_bytes) = streaming.remaining_bytes.checked_sub(length) else {
                    abort(true);
                    return Poll::Ready(Some(Err(BodyError::TooLarge)));
                };
                streaming.remaining_bytes = remaining_bytes;
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
        self.connection_state.on_body_wait(false);
        if self.upload.is_in_progress() {
            self.upload.state.set(UploadState::Aborted(BodyAborted { too_large: false }));
            if let Some(incoming) = self.incoming.take() {
                incoming.drain(&self.drain);
            }
        }
    }
}
