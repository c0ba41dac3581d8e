//! Request bodies on their way to the origin: received whole, or streamed part by part.

use super::error::ClientBodyError;
use crate::gateway::transport::client_body::{BodyError, ClientBody};
use crate::gateway::transport::connection_memory::MemoryCharge;
use crate::gateway::transport::connection_timeouts::ConnectionState;
use crate::gateway::transport::spool::SpoolFile;
use bytes::Bytes;
use http::HeaderMap;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;

/// A request body on its way to the origin.
pub(in crate::gateway) enum RequestBody {
    Empty,
    Received(Box<ReceivedBody>),
    Streaming(Box<Streaming>),
}

/// A request body that was received: its beginning in memory, the rest in a file.
pub(in crate::gateway) struct ReceivedBody {
    memory: Bytes,
    _charge: Rc<MemoryCharge>,
    file: Option<SpoolFile>,
    trailers: Option<HeaderMap>,
    /// Progress of a body in a file; one in memory is written at once.
    upload: Option<Rc<Upload>>,
}

pub(in crate::gateway) struct Streaming {
    /// Removed only on drop.
    incoming: Option<ClientBody>,
    /// Memory of what was received and not read.
    _charge: MemoryCharge,
    remaining_bytes: u64,
    connection_state: Rc<ConnectionState>,
    upload: Rc<Upload>,
    drain: mpsc::Sender<Incoming>,
}

/// Progress of a request body. Shared, because the origin may respond before the body is complete.
#[derive(Default)]
pub(in crate::gateway) struct Upload {
    state: Cell<UploadState>,
    /// Number of parts that were asked for.
    parts: Cell<u64>,
    waits_for_client: Cell<bool>,
}

#[derive(Clone, Copy, Default)]
enum UploadState {
    #[default]
    InProgress,
    Done,
    Aborted(ClientBodyError),
    /// Not sent to its end, because of the origin.
    Dropped,
}

impl ReceivedBody {
    /// Returns the body that begins with `memory`, which is charged to its connection, and goes on in `file`.
    pub(in crate::gateway) fn new(
        memory: Bytes,
        charge: MemoryCharge,
        file: Option<SpoolFile>,
        trailers: Option<HeaderMap>,
    ) -> Self {
        let upload = file.as_ref().map(|_| Rc::default());
        Self { memory, _charge: Rc::new(charge), file, trailers, upload }
    }

    fn remaining(&self) -> u64 {
        self.memory.len() as u64 + self.file.as_ref().map_or(0, SpoolFile::unread)
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if !self.memory.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.memory)))));
        }
        if let Some(file) = self.file.as_mut().filter(|file| file.unread() > 0) {
            let part = ready!(file.poll_read(cx)).map_err(BodyError::File);
            if part.is_err() {
                self.end_upload(UploadState::Aborted(ClientBodyError::NoSpace));
            }
            return Poll::Ready(Some(part.map(Frame::data)));
        }
        self.end_upload(UploadState::Done);
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn end_upload(&self, end: UploadState) {
        if let Some(upload) = &self.upload {
            upload.state.set(end);
        }
    }
}

impl From<ReceivedBody> for RequestBody {
    fn from(body: ReceivedBody) -> Self {
        if body.remaining() == 0 && body.trailers.is_none() { Self::Empty } else { Self::Received(Box::new(body)) }
    }
}

impl RequestBody {
    /// Forwards `incoming`, at most `limit` bytes. A body that is not read to its end is drained through `drain`, so
    /// that the client can read an early response.
    pub(in crate::gateway) fn streaming(
        incoming: ClientBody,
        limit: u64,
        connection_state: Rc<ConnectionState>,
        drain: impl FnOnce() -> mpsc::Sender<Incoming>,
    ) -> Self {
        if incoming.is_end_stream() {
            return Self::Empty;
        }
        let charge = MemoryCharge::new(connection_state.memory(), incoming.max_unread());
        let (upload, drain) = (Rc::default(), drain());
        Self::Streaming(Box::new(Streaming {
            incoming: Some(incoming),
            _charge: charge,
            remaining_bytes: limit,
            connection_state,
            upload,
            drain,
        }))
    }

    /// Returns another body with the same content; `None` unless all of it is in memory.
    pub(super) fn copy(&self) -> Option<Self> {
        match self {
            Self::Empty => Some(Self::Empty),
            Self::Received(body) if body.file.is_none() => Some(Self::Received(Box::new(ReceivedBody {
                memory: body.memory.clone(),
                _charge: Rc::clone(&body._charge),
                file: None,
                trailers: body.trailers.clone(),
                upload: None,
            }))),
            Self::Received(_) | Self::Streaming(_) => None,
        }
    }

    /// Returns the progress of the body, for the task that waits for the response.
    pub(in crate::gateway) fn upload(&self) -> Option<Rc<Upload>> {
        match self {
            Self::Empty => None,
            Self::Received(body) => body.upload.clone(),
            Self::Streaming(streaming) => Some(Rc::clone(&streaming.upload)),
        }
    }
}

impl Upload {
    pub(in crate::gateway) fn is_in_progress(&self) -> bool {
        matches!(self.state.get(), UploadState::InProgress)
    }

    /// Returns true if the origin has asked for no part since the last call, although there is one.
    pub(super) fn is_stalled(&self, parts_before: &mut u64) -> bool {
        std::mem::replace(parts_before, self.parts.get()) == self.parts.get() && !self.waits_for_client.get()
    }

    pub(in crate::gateway) fn aborted(&self) -> Option<ClientBodyError> {
        match self.state.get() {
            UploadState::Aborted(aborted) => Some(aborted),
            _ => None,
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let streaming = match &mut *self {
            Self::Empty => return Poll::Ready(None),
            Self::Received(body) => {
                body.upload.iter().for_each(|upload| upload.parts.set(upload.parts.get() + 1));
                return body.poll_frame(cx);
            }
            Self::Streaming(streaming) => streaming,
        };
        streaming.upload.parts.set(streaming.upload.parts.get() + 1);
        let Some(incoming) = &mut streaming.incoming else { return Poll::Ready(None) };
        let polled = Pin::new(&mut *incoming).poll_frame(cx);
        streaming.connection_state.on_body_wait(polled.is_pending());
        streaming.upload.waits_for_client.set(polled.is_pending());
        let abort = |error| streaming.upload.state.set(UploadState::Aborted(error));
        match ready!(polled) {
            None => {
                streaming.upload.state.set(UploadState::Done);
                Poll::Ready(None)
            }
            Some(Err(error)) => {
                abort(ClientBodyError::Aborted);
                Poll::Ready(Some(Err(error)))
            }
            Some(Ok(frame)) => {
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                let Some(remaining_bytes) = streaming.remaining_bytes.checked_sub(length) else {
                    abort(ClientBodyError::TooLarge);
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
        match self {
            Self::Empty => true,
            Self::Received(body) => body.remaining() == 0 && body.trailers.is_none(),
            Self::Streaming(streaming) => streaming.incoming.as_ref().is_none_or(Body::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            // A body with trailers is chunked.
            Self::Received(body) if body.trailers.is_some() => SizeHint::default(),
            Self::Received(body) => SizeHint::with_exact(body.remaining()),
            Self::Streaming(streaming) => streaming.incoming.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint),
        }
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        self.connection_state.on_body_wait(false);
        if self.upload.is_in_progress() {
            self.upload.state.set(UploadState::Dropped);
            if let Some(incoming) = self.incoming.take() {
                incoming.drain(&self.drain);
            }
        }
    }
}
