//! Read and write buffers, one of each per connection, reused for all messages.

use bytes::{Buf, Bytes, BytesMut};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

/// Capacity for a head and a small body.
pub(super) const SMALL_CAPACITY: usize = 8 * 1024;
/// Capacity for one read of a large body: few system calls per megabyte, and within a core's cache.
pub(super) const LARGE_CAPACITY: usize = 256 * 1024;
/// Chunks up to this size are copied to the pending bytes, which costs less than a slice of their own.
const MAX_COPY: usize = 4 * 1024;
/// Pending bytes above which the buffer is flushed.
const MAX_PENDING: usize = 16 * 1024;

thread_local! {
    static SMALL_SPARE: SpareBuffers = const { SpareBuffers::new(64) };
    static LARGE_SPARE: SpareBuffers = const { SpareBuffers::new(8) };
}

/// Unused buffers of a thread. Recently touched memory is much cheaper than new memory.
struct SpareBuffers {
    buffers: RefCell<Vec<BytesMut>>,
    max: usize,
}

impl SpareBuffers {
    const fn new(max: usize) -> Self {
        Self { buffers: RefCell::new(Vec::new()), max }
    }

    fn push(&self, buffer: BytesMut) {
        let mut buffers = self.buffers.borrow_mut();
        if buffers.len() < self.max {
            buffers.push(buffer);
        }
    }

    /// Returns an empty buffer with the capacity, if the last one has it and nothing else shares it.
    fn pop(&self, capacity: usize) -> Option<BytesMut> {
        let mut buffer = self.buffers.borrow_mut().pop().filter(|buffer| buffer.is_empty())?;
        buffer.try_reclaim(capacity).then_some(buffer)
    }
}

/// Bytes that were read and not yet parsed.
#[derive(Debug)]
pub(super) struct ReadBuffer {
    pub(super) buffer: BytesMut,
    /// Capacity of the next read; grows while reads fill it.
    read_capacity: usize,
    /// Maximum capacity of the reads of this message.
    max_read: usize,
    is_grown: bool,
    state: Rc<ReadBufferState>,
}

/// State of a connection's read buffer, for its limits and timeouts.
#[derive(Debug, Default)]
pub struct ReadBufferState {
    allocated: Cell<usize>,
    has_partial_head: Cell<bool>,
}

impl ReadBufferState {
    /// Returns the bytes of the buffer; 0 while a connection waits without one.
    pub fn allocated(&self) -> usize {
        self.allocated.get()
    }

    /// Returns true if the connection waits for the rest of a head.
    pub fn has_partial_head(&self) -> bool {
        self.has_partial_head.get()
    }
}

impl ReadBuffer {
    pub(super) fn new(first: BytesMut, state: Rc<ReadBufferState>) -> Self {
        state.allocated.set(first.capacity());
        Self { buffer: first, read_capacity: SMALL_CAPACITY, max_read: LARGE_CAPACITY, is_grown: false, state }
    }

    /// Reads once; 0 is the end of the stream. `expected` is the number of bytes certain to follow, if known.
    ///
    /// A read that does not fill its capacity marks the socket as drained, which saves a read that would find nothing.
    pub(super) fn poll_read<IO: AsyncRead + Unpin>(
        &mut self,
        io: &mut IO,
        cx: &mut Context<'_>,
        expected: u64,
    ) -> Poll<io::Result<usize>> {
        let expected = usize::try_from(expected).unwrap_or(LARGE_CAPACITY);
        let read_capacity = expected.clamp(self.read_capacity, LARGE_CAPACITY).min(self.max_read);
        if self.spare_capacity() < read_capacity
            && !self.buffer.try_reclaim(read_capacity)
            && self.spare_capacity() < read_capacity / 4
        {
            self.reserve(read_capacity);
        }
        let spare = self.spare_capacity();
        let read = ready!(pin!(io.read_buf(&mut self.buffer)).poll(cx))?;
        if read == spare {
            self.read_capacity = (self.read_capacity * 2).min(LARGE_CAPACITY);
        }
        Poll::Ready(Ok(read))
    }

    /// Limits each read of this message to about `bytes`.
    pub(super) fn set_max_read(&mut self, bytes: usize) {
        self.max_read = bytes;
    }

    /// Records that the next read is for a head, of which the buffer may have a part.
    pub(super) fn expect_head(&self) {
        self.state.has_partial_head.set(!self.buffer.is_empty());
    }

    /// Ends a message: releases a buffer that grew for it.
    pub(super) fn shrink(&mut self) {
        self.read_capacity = SMALL_CAPACITY;
        self.max_read = LARGE_CAPACITY;
        if self.state.allocated.get() > SMALL_CAPACITY {
            self.release();
        }
    }

    /// Releases the buffer, unless it has unparsed bytes: a connection may wait long for the next message.
    pub(super) fn release(&mut self) {
        if !self.buffer.is_empty() {
            return;
        }
        let buffer = std::mem::take(&mut self.buffer);
        let is_grown = std::mem::take(&mut self.is_grown);
        if (1..=SMALL_CAPACITY).contains(&self.state.allocated.replace(0)) || is_grown {
            let spare = if is_grown { &LARGE_SPARE } else { &SMALL_SPARE };
            spare.with(|spare| spare.push(buffer));
        }
    }

    /// Returns the bytes of the buffer, also of those parts that were extracted from it.
    pub(super) fn allocated(&self) -> usize {
        self.state.allocated()
    }

    fn spare_capacity(&self) -> usize {
        self.buffer.capacity() - self.buffer.len()
    }

    fn reserve(&mut self, read_capacity: usize) {
        self.is_grown = read_capacity == LARGE_CAPACITY;
        let spare = if self.is_grown { &LARGE_SPARE } else { &SMALL_SPARE };
        match spare.with(|spare| spare.pop(read_capacity + self.buffer.len())) {
            Some(mut spare) => {
                spare.extend_from_slice(&self.buffer);
                self.buffer = spare;
            }
            None if self.is_grown => self.buffer.reserve(2 * LARGE_CAPACITY),
            None => self.buffer.reserve(read_capacity),
        }
        self.state.allocated.set(self.buffer.capacity());
    }
}

/// Bytes to be written: copied bytes, at most one chunk that is not copied, and the bytes after it.
#[derive(Debug, Default)]
pub(super) struct WriteBuffer {
    front: Vec<u8>,
    written: usize,
    chunk: Bytes,
    back: Vec<u8>,
}

impl WriteBuffer {
    /// Returns the buffer to which the next copied bytes are appended.
    pub(super) fn front_mut(&mut self) -> &mut Vec<u8> {
        if self.chunk.is_empty() { &mut self.front } else { &mut self.back }
    }

    /// Appends `bytes`. Requires that there [is room](Self::has_capacity).
    pub(super) fn push(&mut self, bytes: Bytes) {
        if bytes.len() <= MAX_COPY || !self.chunk.is_empty() {
            self.front_mut().extend_from_slice(&bytes);
        } else {
            self.chunk = bytes;
        }
    }

    /// Returns true if more can be appended before a flush.
    pub(super) fn has_capacity(&self) -> bool {
        self.chunk.is_empty() && self.front.len() < MAX_PENDING
    }

    /// Writes until the buffer is empty, and what the stream has buffered is written, too.
    pub(super) fn poll_flush<IO: AsyncWrite + Unpin>(
        &mut self,
        io: &mut IO,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let front = &self.front[self.written..];
            let io = Pin::new(&mut *io);
            let written = if self.chunk.is_empty() {
                ready!(io.poll_write(cx, front))?
            } else {
                let slices = [IoSlice::new(front), IoSlice::new(&self.chunk), IoSlice::new(&self.back)];
                let begin = usize::from(front.is_empty());
                let end = 3 - usize::from(self.back.is_empty());
                ready!(io.poll_write_vectored(cx, &slices[begin..end]))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(written);
        }
        // A TLS stream accepts more than it can send at once.
        Pin::new(io).poll_flush(cx)
    }

    /// Returns true if the buffer is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.written == self.front.len() && self.chunk.is_empty()
    }

    /// Returns true if none of the bytes were written.
    pub(super) fn is_unwritten(&self) -> bool {
        self.written == 0
    }

    fn advance(&mut self, written: usize) {
        let from_front = written.min(self.front.len() - self.written);
        self.written += from_front;
        let rest = written - from_front;
        if self.written == self.front.len() {
            self.front.clear();
            self.written = 0;
            if !self.chunk.is_empty() {
                let from_piece = rest.min(self.chunk.len());
                self.chunk.advance(from_piece);
                if self.chunk.is_empty() {
                    // Releases the reader's buffer, which is then reused.
                    self.chunk = Bytes::new();
                    std::mem::swap(&mut self.front, &mut self.back);
                    self.written = rest - from_piece;
                }
            }
        }
        if self.written == self.front.len() {
            self.front.clear();
            self.written = 0;
        }
    }
}
