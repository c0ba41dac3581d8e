//! The connection to a client, shared by the loop that serves it and the body of the request at hand.

use super::super::body::BodyReader;
use super::super::buffer::ReadBuffer;
use super::super::chunked::BodyChunk;
use super::super::framing::{BodyLength, FramingInfo, Malformed};
use super::super::head::HeadReader;
use super::super::message::RequestHead;
use super::BodyError;
use bytes::BytesMut;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite};

/// So much may be read ahead of a client that asks again before it has its answer.
const MAX_PIPELINED: usize = 16 * 1024;
/// So much of a body that nobody wanted is read to keep the connection.
pub(super) const MAX_SKIPPED: u64 = 256 * 1024;
/// So much is read after the last answer, so that the client gets to read it.
const MAX_LINGER: usize = 256 * 1024;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A connection. Clones are the same one.
pub(super) struct SharedConn<IO>(Rc<RefCell<ConnState<IO>>>);

struct ConnState<IO> {
    io: IO,
    incoming: ReadBuffer,
    /// What of the request's body is still to come.
    body: BodyReader,
    /// What is still to be said of the leave to send a body that the client waits for.
    continue_response: &'static [u8],
    /// How much of the body has been read that nobody wanted.
    skipped: u64,
}

/// How much of a body was skipped.
pub(super) enum SkipResult {
    All,
    Partial,
}

impl<IO> Clone for SharedConn<IO> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<IO> SharedConn<IO> {
    pub(super) fn new(io: IO, first: BytesMut) -> Self {
        let body = BodyReader::new(BodyLength::Exact(0));
        Self(Rc::new(RefCell::new(ConnState {
            io,
            incoming: ReadBuffer::new(first),
            body,
            continue_response: b"",
            skipped: 0,
        })))
    }

    /// A request begins whose body is so long.
    pub(super) fn expect_body(&self, length: BodyLength, waits_for_leave: bool) {
        let mut state = self.0.borrow_mut();
        state.body = BodyReader::new(length);
        state.skipped = 0;
        state.continue_response = if waits_for_leave && !state.body.is_done() { CONTINUE } else { b"" };
    }

    /// What can be said of the body that is still to come.
    pub(super) fn with_body<T>(&self, look: impl FnOnce(&BodyReader) -> T) -> T {
        look(&self.0.borrow().body)
    }

    /// True if the client waits for leave to send its body, and has not been given it.
    pub(super) fn expects_continue(&self) -> bool {
        self.0.borrow().continue_response.len() == CONTINUE.len()
    }

    /// A message is over.
    pub(super) fn reset(&self) {
        self.0.borrow_mut().incoming.shrink();
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> SharedConn<IO> {
    /// The next request's head; `None` when there will be none.
    pub(super) fn poll_head(
        &self,
        reader: &mut HeadReader,
        finish: &Cell<bool>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<(RequestHead, FramingInfo), Malformed>>> {
        let ConnState { io, incoming, .. } = &mut *self.0.borrow_mut();
        loop {
            if let Some(head) = reader.request(&mut incoming.buffer).transpose() {
                return Poll::Ready(Some(head));
            }
            if finish.get() && incoming.buffer.is_empty() {
                return Poll::Ready(None);
            }
            match ready!(incoming.poll_read(io, context, 0)) {
                Ok(0) | Err(_) => return Poll::Ready(None),
                Ok(_) => {}
            }
        }
    }

    /// The next piece of the body. Whoever asks for it gives the leave to send it.
    pub(super) fn poll_chunk(&self, context: &mut Context<'_>) -> Poll<Result<BodyChunk, BodyError>> {
        let ConnState { io, incoming, body, continue_response, .. } = &mut *self.0.borrow_mut();
        // Not to a client that has not waited; but what was begun is said to its end.
        if continue_response.len() == CONTINUE.len() && !incoming.buffer.is_empty() {
            *continue_response = b"";
        }
        ready!(poll_continue(io, continue_response, context))?;
        loop {
            match body.next(&mut incoming.buffer)? {
                BodyChunk::Pending => {}
                piece => return Poll::Ready(Ok(piece)),
            }
            // Only what comes makes the buffer grow: a client's word for it is not worth the memory.
            if ready!(incoming.poll_read(io, context, 0))? == 0 {
                return Poll::Ready(Err(BodyError::CutShort));
            }
        }
    }

    /// The final answer begins: the leave to send is not given any more.
    pub(super) fn poll_cancel_continue(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ConnState { io, continue_response, .. } = &mut *self.0.borrow_mut();
        if continue_response.len() == CONTINUE.len() {
            *continue_response = b"";
        }
        poll_continue(io, continue_response, context)
    }

    /// Ready when the client has left. What it sends meanwhile is kept, up to a bound.
    pub(super) fn poll_closed(&self, context: &mut Context<'_>) -> Poll<()> {
        let ConnState { io, incoming, body, .. } = &mut *self.0.borrow_mut();
        // While a body is still to come, whoever reads it finds out.
        while body.is_done() && incoming.buffer.len() < MAX_PIPELINED {
            match ready!(incoming.poll_read(io, context, 0)) {
                Ok(0) | Err(_) => return Poll::Ready(()),
                Ok(_) => {}
            }
        }
        Poll::Pending
    }

    /// Reads what nobody wanted of a body that its service has let go of: all if the connection is to be kept, else
    /// only what is at hand.
    pub(super) fn poll_skip_body(&self, kept: bool, context: &mut Context<'_>) -> Poll<SkipResult> {
        let ConnState { io, incoming, body, skipped, .. } = &mut *self.0.borrow_mut();
        if Rc::strong_count(&self.0) > 1 {
            return Poll::Ready(SkipResult::Partial);
        }
        while !body.is_done() {
            match body.next(&mut incoming.buffer) {
                Ok(BodyChunk::Data(data)) => *skipped += data.len() as u64,
                Ok(BodyChunk::Pending) if kept && *skipped + body.expected() <= MAX_SKIPPED => {
                    match ready!(incoming.poll_read(io, context, 0)) {
                        Ok(0) | Err(_) => return Poll::Ready(SkipResult::Partial),
                        Ok(_) => {}
                    }
                }
                Ok(BodyChunk::Trailers(_) | BodyChunk::End) => {}
                Ok(BodyChunk::Pending) | Err(_) => return Poll::Ready(SkipResult::Partial),
            }
        }
        // What a client goes on sending to a connection that is being closed would cut it off from its answer.
        Poll::Ready(if kept || incoming.buffer.is_empty() { SkipResult::All } else { SkipResult::Partial })
    }

    /// Closes the connection of a client that has sent all it had to send.
    pub(super) async fn close<T>(mut self) -> Option<T> {
        let _ = poll_fn(|context| Pin::new(&mut self).poll_shutdown(context)).await;
        None
    }
}

fn poll_continue<IO: AsyncWrite + Unpin>(
    io: &mut IO,
    continue_response: &mut &'static [u8],
    context: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while !continue_response.is_empty() {
        let written = ready!(Pin::new(&mut *io).poll_write(context, continue_response))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        *continue_response = &continue_response[written..];
    }
    Poll::Ready(Ok(()))
}

/// Writing borrows the connection only for as long as a write takes: the body that is written may read from it.
impl<IO: AsyncWrite + Unpin> AsyncWrite for SharedConn<IO> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0.borrow_mut().io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0.borrow_mut().io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.borrow().io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.borrow_mut().io).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.borrow_mut().io).poll_shutdown(context)
    }
}

/// A connection on which the last answer has been written while the client may still be sending. Closed at once, it
/// would be reset, and the client might lose the answer.
pub struct Lingering<IO>(SharedConn<IO>);

impl<IO: AsyncRead + AsyncWrite + Unpin> Lingering<IO> {
    pub(super) fn new(line: SharedConn<IO>) -> Self {
        Self(line)
    }

    /// Reads on until the client has closed its side, or has sent more than is borne.
    pub async fn until_closed(mut self) {
        let _ = poll_fn(|context| Pin::new(&mut self.0).poll_shutdown(context)).await;
        let mut read = 0;
        while read < MAX_LINGER {
            let more = poll_fn(|context| {
                let ConnState { io, incoming, .. } = &mut *self.0.0.borrow_mut();
                incoming.buffer.clear();
                incoming.poll_read(io, context, 0)
            });
            match more.await {
                Ok(0) | Err(_) => break,
                Ok(more) => read += more,
            }
        }
    }
}

impl<IO> fmt::Debug for Lingering<IO> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Lingering").finish_non_exhaustive()
    }
}
