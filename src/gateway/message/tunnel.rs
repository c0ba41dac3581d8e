//! Connections after an upgrade (RFC 9110 section 7.8), such as WebSockets: bytes pass in both directions, whatever they
//! mean.

use crate::gateway::exchange::journal::Journal;
use crate::gateway::transport::connection_memory::MemoryCharge;
use crate::gateway::transport::upgrade_slot::UpgradeSlot;
use crate::gateway::transport::websocket::{self, CloseStatus, FramePosition};
use crate::gateway::upstream::{Deadline, OriginStream};
use bytes::{Buf, BytesMut};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are read at once.
const READ_SIZE: usize = 16 * 1024;

thread_local! {
    /// What is read, until it is written: only what the receiver does not take at once is kept by a tunnel.
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_SIZE]);
}

/// A connection to the origin that is no longer HTTP, and its request.
pub(in crate::gateway) struct Tunnel {
    pub(in crate::gateway) origin: OriginStream,
    /// Sent by the origin after its response.
    pub(in crate::gateway) to_client: BytesMut,
    pub(in crate::gateway) journal: Box<Journal>,
    /// Expires while nothing passes.
    pub(in crate::gateway) idle: Deadline,
    /// Expires at the end of the longest time.
    pub(in crate::gateway) end: Deadline,
    /// Expires if the client does not take the end.
    pub(in crate::gateway) closing: Deadline,
    pub(in crate::gateway) slot: UpgradeSlot,
    /// Mask of the gateway's own frame toward the origin of a WebSocket; `None` for another protocol.
    pub(in crate::gateway) websocket_mask: Option<[u8; 4]>,
}

/// One direction.
#[derive(Default)]
struct Direction {
    /// Read, and not written yet.
    pending: BytesMut,
    /// The sender has ended.
    is_ended: bool,
    /// The receiver knows it.
    is_shut_down: bool,
    /// Bytes that passed.
    passed: u64,
    /// Position in the frames of a WebSocket.
    frames: Option<FramePosition>,
    /// Frame that ends the direction once the sender is between two frames.
    close: Option<Vec<u8>>,
}

impl Tunnel {
    /// Passes on what `client` and the origin send, until both have ended, one fails, or the time is over. `received` was
    /// read from the client before. Closes a WebSocket with frames of its own if the gateway goes away, or if a switch of an
    /// administrator blocks the client; another protocol ends at once then.
    pub(in crate::gateway) async fn run(self, mut client: impl AsyncRead + AsyncWrite + Unpin, received: BytesMut) {
        let Self { mut origin, to_client, mut journal, idle, end, closing, slot, websocket_mask } = self;
        let mut upward = Direction::new(received, websocket_mask.is_some());
        let mut downward = Direction::new(to_client, websocket_mask.is_some());
        let mut charge = journal.client.charge_memory(0);
        let worker = Rc::clone(journal.worker());
        let mut goes_away = pin!(worker.upgrades_close());
        let mut blocked = pin!(worker.until_blocked(journal.known.switch_subject()));
        let (mut is_closing, mut is_blocked) = (false, false);
        poll_fn(|waker| {
            let begins_block = !is_blocked && blocked.as_mut().poll(waker).is_ready();
            is_blocked |= begins_block;
            if is_blocked && websocket_mask.is_none() {
                return Poll::Ready(());
            }
            if let Some(mask) = websocket_mask.filter(|_| !is_closing)
                && (is_blocked || goes_away.as_mut().poll(waker).is_ready())
            {
                is_closing = true;
                let status = if is_blocked { CloseStatus::PolicyViolation } else { CloseStatus::GoingAway };
                upward.close = Some(websocket::close_of_client(mask));
                downward.close = Some(websocket::close_of_server(status));
            }
            let before = (upward.passed, downward.passed);
            let results = [
                upward.poll_pass(&mut client, &mut origin, waker),
                downward.poll_pass(&mut origin, &mut client, waker),
            ];
            charge_pending(&mut charge, &upward, &downward);
            if (upward.passed, downward.passed) != before {
                journal.client.add_bytes(downward.passed - before.1);
                idle.reset();
            }
            let is_failed = results.iter().any(|result| matches!(result, Poll::Ready(Err(_))));
            let is_over = results.iter().all(Poll::is_ready);
            // A blocked client may stay within a frame, or not read.
            let is_overdue = is_blocked && closing.poll_expired(waker);
            match is_failed || is_over || is_overdue || idle.poll_expired(waker) || end.poll_expired(waker) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        drop((slot, upward, downward));
        journal.finish();
        if is_closing {
            // Otherwise, the close of a connection with unread data resets it, and the frame may be lost.
            poll_fn(|waker| match [poll_end(&mut client, waker), poll_end(&mut origin, waker)] {
                [Poll::Ready(()), Poll::Ready(())] => Poll::Ready(()),
                _ if closing.poll_expired(waker) => Poll::Ready(()),
                _ => Poll::Pending,
            })
            .await;
        }
        drop(origin);
        // What was written is sent before the end, unless the client does not read.
        poll_fn(|waker| match Pin::new(&mut client).poll_shutdown(waker) {
            Poll::Pending if closing.poll_expired(waker) => Poll::Ready(()),
            polled => polled.map(drop),
        })
        .await;
    }
}

fn charge_pending(charge: &mut MemoryCharge, upward: &Direction, downward: &Direction) {
    charge.set(upward.pending.capacity() + downward.pending.capacity());
}

/// Reads until the sender has ended.
fn poll_end(from: &mut (impl AsyncRead + Unpin), cx: &mut Context<'_>) -> Poll<()> {
    READ_BUFFER.with_borrow_mut(|buffer| {
        loop {
            let mut read = ReadBuf::new(buffer);
            match ready!(Pin::new(&mut *from).poll_read(cx, &mut read)) {
                Ok(()) if !read.filled().is_empty() => {}
                _ => return Poll::Ready(()),
            }
        }
    })
}

impl Direction {
    /// Returns the direction of a sender of which `pending` was read before.
    fn new(pending: BytesMut, is_websocket: bool) -> Self {
        let mut frames = is_websocket.then(FramePosition::default);
        frames.iter_mut().for_each(|frames| frames.advance(&pending));
        Self { pending, frames, ..Self::default() }
    }

    /// Passes on what `from` sends until it ends.
    fn poll_pass(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_shut_down {
            return Poll::Ready(Ok(()));
        }
        loop {
            while !self.pending.is_empty() {
                let written = ready!(Pin::new(&mut *to).poll_write(cx, &self.pending))?;
                self.advance(written)?;
            }
            self.pending = BytesMut::new();
            if self.is_ended {
                ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
                self.is_shut_down = true;
                return Poll::Ready(Ok(()));
            }
            if let Some(close) =
                self.close.take_if(|_| self.frames.as_ref().is_some_and(FramePosition::may_begin_frame))
            {
                self.pending.extend_from_slice(&close);
                self.is_ended = true;
                continue;
            }
            let read = READ_BUFFER.with_borrow_mut(|buffer| self.poll_read(from, to, buffer, cx))?;
            if read.is_pending() {
                ready!(Pin::new(&mut *to).poll_flush(cx))?;
                return Poll::Pending;
            }
        }
    }

    /// Reads once, and writes what `to` takes at once.
    fn poll_read(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        buffer: &mut [u8],
        cx: &mut Context<'_>,
    ) -> io::Result<Poll<()>> {
        let mut read = ReadBuf::new(buffer);
        match Pin::new(from).poll_read(cx, &mut read) {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(result) => result?,
        }
        let mut bytes = read.filled();
        self.is_ended = bytes.is_empty();
        self.frames.iter_mut().for_each(|frames| frames.advance(bytes));
        while !bytes.is_empty() {
            match Pin::new(&mut *to).poll_write(cx, bytes) {
                Poll::Ready(written) => {
                    let written = written?;
                    self.count(written)?;
                    bytes = &bytes[written..];
                }
                Poll::Pending => {
                    self.pending.extend_from_slice(bytes);
                    break;
                }
            }
        }
        Ok(Poll::Ready(()))
    }

    fn advance(&mut self, written: usize) -> io::Result<()> {
        self.count(written)?;
        self.pending.advance(written);
        Ok(())
    }

    fn count(&mut self, written: usize) -> io::Result<()> {
        self.passed += written as u64;
        if written == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) }
    }
}
