//! Connection state shared by the serving loop and the body of the current request.

use super::super::body::BodyReader;
use super::super::buffer::{ReadBuffer, ReadBufferState};
use super::super::chunked::BodyChunk;
use super::super::framing::{BodyLength, FramingInfo, Malformed};
use super::super::head::HeadReader;
use super::super::message::RequestHead;
use super::{Finish, InterimResponses};
use bytes::BytesMut;
use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite};

/// Error of a request body.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The client closed the connection.
    #[error("client closed the connection")]
    UnexpectedEof,
    /// The body violates HTTP/1.1.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The connection failed.
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
}

/// Maximum bytes read ahead from a client that sends the next request before its response.
const MAX_PIPELINED: usize = 16 * 1024;
/// Maximum bytes of an unused body that are read to keep the connection.
const MAX_SKIPPED: u64 = 256 * 1024;
/// Maximum bytes read after the last response, so that the client can read it.
const MAX_LINGER: usize = 256 * 1024;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A connection. Clones share it.
pub(super) struct SharedConn<IO>(Rc<RefCell<ConnState<IO>>>);

struct ConnState<IO> {
    io: IO,
    incoming: ReadBuffer,
    /// Reader of the current request body.
    body: BodyReader,
    /// Unwritten part of the 100 response that the client waits for.
    continue_response: &'static [u8],
    /// Number of skipped body bytes.
    skipped: u64,
}

/// Result of skipping a body.
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
    pub(super) fn new(io: IO, first: BytesMut, read_buffer: Rc<ReadBufferState>) -> Self {
        let body = BodyReader::new(BodyLength::Exact(0));
        Self(Rc::new(RefCell::new(ConnState {
            io,
            incoming: ReadBuffer::new(first, read_buffer),
            body,
            continue_response: b"",
            skipped: 0,
        })))
    }

    /// Starts a request with a body of `length`.
    pub(super) fn expect_body(&self, length: BodyLength, expects_continue: bool) {
        let mut state = self.0.borrow_mut();
        state.body = BodyReader::new(length);
        state.skipped = 0;
        state.continue_response = if expects_continue && !state.body.is_done() { CONTINUE } else { b"" };
    }

    /// Calls `inspect` with the reader of the current body.
    pub(super) fn with_body<T>(&self, inspect: impl FnOnce(&BodyReader) -> T) -> T {
        inspect(&self.0.borrow().body)
    }

    /// Skips the part of an unused body that has arrived. Returns true if the rest is known to be short enough to skip.
    pub(super) fn can_skip_body(&self) -> bool {
        let is_unused = Rc::strong_count(&self.0) == 1;
        let ConnState { incoming, body, skipped, .. } = &mut *self.0.borrow_mut();
        while is_unused && !body.is_done() {
            match body.next(&mut incoming.buffer) {
                Ok(BodyChunk::Data(data)) => *skipped += data.len() as u64,
                Ok(BodyChunk::Trailers(_) | BodyChunk::End) => {}
                Ok(BodyChunk::Pending) | Err(_) => break,
            }
        }
        body.is_done() || body.declared_rest().is_some_and(|rest| *skipped + rest <= MAX_SKIPPED)
    }

    /// Returns true if the client waits for a 100 response and has not received one.
    pub(super) fn expects_continue(&self) -> bool {
        self.0.borrow().continue_response.len() == CONTINUE.len()
    }

    /// Returns the stream, and what was read from it; `None` while a request body shares it.
    pub(super) fn into_parts(self) -> Option<(IO, BytesMut)> {
        let ConnState { io, incoming, .. } = Rc::into_inner(self.0)?.into_inner();
        Some((io, incoming.buffer))
    }

    /// Ends a message: releases grown buffers.
    pub(super) fn reset(&self) {
        self.0.borrow_mut().incoming.shrink();
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> SharedConn<IO> {
    /// Reads the head of the next request; `None` at the end of the connection.
    pub(super) fn poll_head(
        &self,
        reader: &mut HeadReader,
        finish: Finish,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<(RequestHead, FramingInfo), Malformed>>> {
        let ConnState { io, incoming, .. } = &mut *self.0.borrow_mut();
        loop {
            if let Some(head) = reader.request(&mut incoming.buffer).transpose() {
                return Poll::Ready(Some(head));
            }
            if finish == Finish::Now && incoming.buffer.is_empty() {
                return Poll::Ready(None);
            }
            incoming.expect_head();
            match incoming.poll_read(io, cx, 0) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(None),
                Poll::Ready(Ok(_)) => {}
                Poll::Pending => {
                    incoming.release();
                    return Poll::Pending;
                }
            }
        }
    }

    /// Reads the next chunk of the body. Sends the 100 response first, if the client waits for it.
    pub(super) fn poll_chunk(&self, cx: &mut Context<'_>) -> Poll<Result<BodyChunk, BodyError>> {
        let ConnState { io, incoming, body, continue_response, .. } = &mut *self.0.borrow_mut();
        // Not sent to a client that did not wait; but a partly written response is completed.
        if continue_response.len() == CONTINUE.len() && !incoming.buffer.is_empty() {
            *continue_response = b"";
        }
        ready!(poll_continue(io, continue_response, cx))?;
        loop {
            match body.next(&mut incoming.buffer)? {
                BodyChunk::Pending => {}
                chunk => return Poll::Ready(Ok(chunk)),
            }
            // Only received data grows the buffer: a declared length does not allocate memory.
            if ready!(incoming.poll_read(io, cx, 0))? == 0 {
                return Poll::Ready(Err(BodyError::UnexpectedEof));
            }
        }
    }

    /// Cancels the 100 response, because the final response begins. A partly written one is completed.
    pub(super) fn poll_cancel_continue(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ConnState { io, continue_response, .. } = &mut *self.0.borrow_mut();
        if continue_response.len() == CONTINUE.len() {
            *continue_response = b"";
        }
        poll_continue(io, continue_response, cx)
    }

    /// Sends the interim responses that wait. A partly written 100 response is completed before.
    pub(super) fn poll_interim(&self, interim: &InterimResponses, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if interim.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let ConnState { io, continue_response, .. } = &mut *self.0.borrow_mut();
        if continue_response.len() != CONTINUE.len() {
            ready!(poll_continue(io, continue_response, cx))?;
        }
        interim.poll_write(io, cx)
    }

    /// Completes when the client has disconnected. Data received meanwhile is buffered, up to a limit.
    pub(super) fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        let ConnState { io, incoming, body, .. } = &mut *self.0.borrow_mut();
        // While a body is incomplete, its reader detects the disconnect.
        while body.is_done() && incoming.buffer.len() < MAX_PIPELINED {
            match ready!(incoming.poll_read(io, cx, 0)) {
                Ok(0) | Err(_) => return Poll::Ready(()),
                Ok(_) => {}
            }
        }
        Poll::Pending
    }

    /// Skips an unused body that its service has dropped: all of it if the connection is kept, else only the buffered
    /// part.
    pub(super) fn poll_skip_body(&self, keep_alive: bool, cx: &mut Context<'_>) -> Poll<SkipResult> {
        let ConnState { io, incoming, body, skipped, .. } = &mut *self.0.borrow_mut();
        if Rc::strong_count(&self.0) > 1 {
            return Poll::Ready(SkipResult::Partial);
        }
        while !body.is_done() {
            match body.next(&mut incoming.buffer) {
                Ok(BodyChunk::Data(data)) => *skipped += data.len() as u64,
                Ok(BodyChunk::Pending) if keep_alive && *skipped + body.expected() <= MAX_SKIPPED => {
                    match ready!(incoming.poll_read(io, cx, 0)) {
                        Ok(0) | Err(_) => return Poll::Ready(SkipResult::Partial),
                        Ok(_) => {}
                    }
                }
                Ok(BodyChunk::Trailers(_) | BodyChunk::End) => {}
                Ok(BodyChunk::Pending) | Err(_) => return Poll::Ready(SkipResult::Partial),
            }
        }
        // Unread data on a closed connection would reset it before the client reads the response.
        Poll::Ready(if keep_alive || incoming.buffer.is_empty() { SkipResult::All } else { SkipResult::Partial })
    }

    /// Closes the connection to a client that has sent all its data.
    pub(super) async fn close<T>(mut self) -> Option<T> {
        let _ = poll_fn(|cx| Pin::new(&mut self).poll_shutdown(cx)).await;
        None
    }
}

fn poll_continue<IO: AsyncWrite + Unpin>(
    io: &mut IO,
    continue_response: &mut &'static [u8],
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while !continue_response.is_empty() {
        let written = ready!(Pin::new(&mut *io).poll_write(cx, continue_response))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        *continue_response = &continue_response[written..];
    }
    Pin::new(io).poll_flush(cx)
}

/// Borrows the connection only during a write: the body being written may read from it.
impl<IO: AsyncWrite + Unpin> AsyncWrite for SharedConn<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0.borrow_mut().io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0.borrow_mut().io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.borrow().io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.borrow_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.borrow_mut().io).poll_shutdown(cx)
    }
}

/// A connection after its last response, while the client may still be sending. Closing it at once would reset it, and
/// the client could lose the response.
pub struct Lingering<IO>(SharedConn<IO>);

impl<IO: AsyncRead + AsyncWrite + Unpin> Lingering<IO> {
    pub(super) fn new(conn: SharedConn<IO>) -> Self {
        Self(conn)
    }

    /// Reads until the client closes its side, or exceeds the limit.
    pub async fn until_closed(mut self) {
        let _ = poll_fn(|cx| Pin::new(&mut self.0).poll_shutdown(cx)).await;
        let mut read = 0;
        while read < MAX_LINGER {
            let more = poll_fn(|cx| {
                let ConnState { io, incoming, .. } = &mut *self.0.0.borrow_mut();
                incoming.buffer.clear();
                incoming.poll_read(io, cx, 0)
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
