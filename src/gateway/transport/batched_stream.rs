//! The stream of an HTTP/2 connection. h2 writes and flushes each frame by itself; here, the frames of one poll of the
//! connection leave in one write, and over TLS in one record.

use super::connection_memory::{HTTP2_CONNECTION, MemoryCharge};
use bytes::BytesMut;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum bytes of a batch: the largest plaintext of a TLS record (RFC 8446 section 5.1).
const MAX_BATCH: usize = 16 * 1024;

thread_local! {
    /// Memory of the last batch of the thread, for the next one.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Stream that keeps what is written until [`BatchedStream::poll_write_batch`] or until the batch is full; flushing alone
/// writes nothing. Clones share it.
pub(in crate::gateway) struct BatchedStream<S>(Rc<RefCell<Batch<S>>>);

struct Batch<S> {
    io: S,
    /// Bytes that were read for protocol detection, and that are read first.
    prefix: BytesMut,
    /// The batch; without capacity while it is empty.
    batch: Vec<u8>,
    /// Bytes of it that are written.
    written: usize,
    charge: MemoryCharge,
}

impl<S: AsyncWrite + Unpin> BatchedStream<S> {
    /// Returns the stream, which first yields `prefix`. Its memory is added to `charge`.
    pub(in crate::gateway) fn new(io: S, prefix: BytesMut, charge: MemoryCharge) -> Self {
        Self(Rc::new(RefCell::new(Batch { io, prefix, batch: Vec::new(), written: 0, charge })))
    }

    /// Writes the batch to the client, and what TLS has of earlier ones.
    fn poll_write_batch(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_write_batch(cx)
    }
}

impl<S: AsyncWrite + Unpin> Batch<S> {
    fn poll_write_batch(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.batch.is_empty() {
            return Pin::new(&mut self.io).poll_flush(cx);
        }
        while self.written < self.batch.len() {
            let written = Pin::new(&mut self.io).poll_write(cx, &self.batch[self.written..]);
            if written.is_pending() {
                self.charge.set(HTTP2_CONNECTION + MAX_BATCH);
            }
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
        }
        self.batch.clear();
        self.written = 0;
        SPARE.set(std::mem::take(&mut self.batch));
        self.charge.set(HTTP2_CONNECTION);
        Pin::new(&mut self.io).poll_flush(cx)
    }

    /// Adds bytes of `slices` that have room in the batch, after a full one is written. What a batch of its own would
    /// hold is written at once.
    fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.batch.len() == MAX_BATCH {
            ready!(self.poll_write_batch(cx))?;
        }
        if self.batch.is_empty() {
            if slices.iter().map(|slice| slice.len()).sum::<usize>() >= MAX_BATCH {
                return Pin::new(&mut self.io).poll_write_vectored(cx, slices);
            }
            self.batch = SPARE.take();
            self.batch.reserve_exact(MAX_BATCH);
        }
        let before = self.batch.len();
        for slice in slices {
            let room = MAX_BATCH - self.batch.len();
            self.batch.extend_from_slice(&slice[..slice.len().min(room)]);
        }
        Poll::Ready(Ok(self.batch.len() - before))
    }
}

impl<S> Clone for BatchedStream<S> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BatchedStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Batch { io, prefix, .. } = &mut *self.0.borrow_mut();
        if prefix.is_empty() {
            return Pin::new(io).poll_read(cx, buffer);
        }
        let length = prefix.len().min(buffer.remaining());
        buffer.put_slice(&prefix.split_to(length));
        if prefix.is_empty() {
            *prefix = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BatchedStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_write(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_write(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Leaves the batch to the end of the poll.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Batch { io, batch, .. } = &mut *self.0.borrow_mut();
        match batch.is_empty() {
            true => Pin::new(io).poll_flush(cx),
            false => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_batch(cx))?;
        Pin::new(&mut self.0.borrow_mut().io).poll_shutdown(cx)
    }
}

/// A connection over a [`BatchedStream`], which writes the batch after each poll.
pub(in crate::gateway) struct BatchedConnection<C, S> {
    pub(in crate::gateway) connection: Pin<Box<C>>,
    pub(in crate::gateway) stream: BatchedStream<S>,
}

impl<C: Future, S: AsyncWrite + Unpin> Future for BatchedConnection<C, S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let is_ended = self.connection.as_mut().poll(cx).is_ready();
        match self.stream.poll_write_batch(cx) {
            _ if is_ended => Poll::Ready(()),
            Poll::Ready(Err(_)) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::transport::connection_memory::ConnectionMemory;
    use proptest::prelude::*;
    use std::future::poll_fn;
    use std::task::Waker;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    /// Returns a stream to a client that lets `window` bytes wait, the client, and the memory of the connection.
    fn stream(window: usize) -> (BatchedStream<DuplexStream>, DuplexStream, Rc<ConnectionMemory>) {
        let (io, client) = duplex(window);
        let memory = Rc::<ConnectionMemory>::default();
        let charge = MemoryCharge::new(&memory, HTTP2_CONNECTION);
        (BatchedStream::new(io, BytesMut::from("prefix"), charge), client, memory)
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(work)
    }

    #[test]
    fn frames_leave_together_after_the_poll() {
        let (mut stream, mut client, _) = stream(MAX_BATCH);
        run(async {
            for frame in ["head", "body"] {
                stream.write_all(frame.as_bytes()).await.expect("room");
                stream.flush().await.expect("no error");
            }
            let mut received = [0; 16];
            let mut buffer = ReadBuf::new(&mut received);
            let mut cx = Context::from_waker(Waker::noop());
            assert!(Pin::new(&mut client).poll_read(&mut cx, &mut buffer).is_pending(), "written before the end");
            let connection = Box::pin(std::future::pending::<()>());
            let mut batched = BatchedConnection { connection, stream };
            assert!(Pin::new(&mut batched).poll(&mut cx).is_pending());
            let length = client.read(&mut received).await.expect("no error");
            assert_eq!(&received[..length], b"headbody");
        });
    }

    #[test]
    fn client_that_does_not_read_holds_one_charged_batch() {
        let (mut stream, _client, memory) = stream(10);
        let idle = memory.total();
        let mut cx = Context::from_waker(Waker::noop());
        let mut accepted = 0;
        while let Poll::Ready(written) = Pin::new(&mut stream).poll_write(&mut cx, &[0; 1000]) {
            accepted += written.expect("no error");
        }
        assert_eq!((accepted, memory.total() - idle), (MAX_BATCH, MAX_BATCH as u64));
    }

    #[test]
    fn last_frames_leave_when_the_connection_ends() {
        let (mut stream, mut client, _) = stream(MAX_BATCH);
        run(async {
            stream.write_all(b"SETTINGS").await.expect("room");
            // h2 does not shut down after an invalid preface.
            BatchedConnection { connection: Box::pin(async {}), stream }.await;
            let mut received = String::new();
            client.read_to_string(&mut received).await.expect("no error");
            assert_eq!(received, "SETTINGS");
        });
    }

    #[test]
    fn client_that_left_ends_the_connection() {
        let (mut stream, client, _) = stream(10);
        drop(client);
        run(async {
            stream.write_all(b"frame").await.expect("room");
            BatchedConnection { connection: Box::pin(std::future::pending::<()>()), stream }.await;
        });
    }

    proptest! {
        /// Whatever is written, and however slowly it is read: the client receives it in its order, all of it before the end.
        #[test]
        fn bytes_arrive_in_order(
            frames in prop::collection::vec((0..40_000_usize, 0..3_usize), 1..12),
            window in 1..20_000_usize,
        ) {
            let (mut stream, mut client, memory) = stream(window);
            let idle = memory.total();
            let total = frames.iter().map(|(length, _)| length).sum::<usize>();
            let sent: Vec<u8> = (0..total).map(|number| (number % 251) as u8).collect();
            let write = async {
                let mut rest = &sent[..];
                for (length, after) in frames {
                    let (mut frame, others) = rest.split_at(length);
                    rest = others;
                    while !frame.is_empty() {
                        let (first, second) = frame.split_at(frame.len() / 3);
                        let slices = [IoSlice::new(first), IoSlice::new(second)];
                        let written = stream.write_vectored(&slices).await.expect("no error");
                        frame = &frame[written..];
                    }
                    match after {
                        0 => {}
                        1 => stream.flush().await.expect("no error"),
                        _ => poll_fn(|context| stream.poll_write_batch(context)).await.expect("no error"),
                    }
                }
                stream.shutdown().await.expect("no error");
            };
            let mut received = Vec::new();
            run(async { tokio::join!(write, client.read_to_end(&mut received)).1 }).expect("no error");
            prop_assert!(received == sent);
            prop_assert_eq!(memory.total(), idle);
        }

        #[test]
        fn prefix_is_read_first(lengths in prop::collection::vec(1..5_usize, 1..20)) {
            let (mut stream, mut client, _) = stream(100);
            run(async {
                client.write_all(b" and the rest").await.expect("room");
                client.shutdown().await.expect("no error");
                let mut received = Vec::new();
                for length in lengths.into_iter().chain(std::iter::repeat(3)) {
                    let mut part = vec![0; length];
                    match stream.read(&mut part).await.expect("no error") {
                        0 => break,
                        count => received.extend_from_slice(&part[..count]),
                    }
                }
                assert_eq!(received, b"prefix and the rest");
            });
        }
    }
}
