//! Responses of the origin on their way to the client.
//!
//! While the client keeps up, its connection reads from the origin, part by part. A response that waits for its client
//! is received by a task of its own instead, into memory and then into a file, so that the origin finishes it and its
//! slots are free. If both are full, one that is stored goes on at the pace of the origin, because others may wait for it:
//! its client gets the rest from what is stored.

use super::compressor::Compressor;
use crate::gateway::cache::{CopyBody, Recorder};
use crate::gateway::exchange::charges::settle_late_cost;
use crate::gateway::exchange::journal::Journal;
use crate::gateway::exchange::reported_usage::scan_body;
use crate::gateway::exchange::scope_feedback::report_aborted_body;
use crate::gateway::transport::client_body::BodyError;
use crate::gateway::transport::connection_memory::{MAX_UNCHARGED, MemoryCharge};
use crate::gateway::transport::connection_timeouts::{TICK, is_slower_than};
use crate::gateway::transport::spool::{SpoolError, SpoolFile, SpoolWrite};
use crate::gateway::transport::sweep::Sweep;
use crate::gateway::upstream::{Deadline, OriginBody, PoolGuard};
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tidegate_access_log::ResponseCut;
use tidegate_http1::client;
use tidegate_policy::Timestamp;
use tokio::task::AbortHandle;

/// Maximum bytes read of a response whose client left. A larger one is aborted: the origin notices when it sends more.
const MAX_DRAINED_BYTES: usize = 256 * 1024;
/// Maximum time for which a response without slots is read after its client left.
const MAX_DRAIN_TIME: Duration = Duration::from_secs(5);
/// Maximum bytes read at once for a stream of HTTP/2, whose client may have no window for more than a byte.
const MAX_STREAM_READ: usize = 16 * 1024;
/// Maximum bytes in memory of a response that waits for its client, and maximum bytes that are read of it at once.
const MAX_MEMORY: usize = 64 * 1024;

type PolledFrame = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

/// A response of the origin on its way to the client. Its end completes the request.
pub(in crate::gateway) struct Relay(RefCell<Transfer>);

struct Transfer {
    /// Part of the body that was already read.
    prefix: Bytes,
    incoming: OriginBody,
    pool_guard: Option<PoolGuard>,
    deadline: Deadline,
    /// Stores the response; present until it is received or exceeds its limit.
    recorder: Option<Box<Recorder>>,
    /// Compresses what the client gets; present until its last part.
    compressor: Option<Box<Compressor>>,
    /// Present until the response is sent.
    journal: Option<Box<Journal>>,
    /// Time at which the client last took a part or waited for one.
    polled_at: Timestamp,
    is_waiting_for_origin: bool,
    /// Memory of the part that the client took last. The writer has it until the next one is asked for, or until the end.
    charge: MemoryCharge,
    /// Time since which the rest is read for a client that left.
    drained_since: Option<Timestamp>,
    /// The task that reads it, unless the response was received ahead of the client.
    drain: Option<AbortHandle>,
    /// What was received ahead of the client; `None` while the client's connection reads from the origin.
    ahead: Option<Box<ReceivedAhead>>,
}

/// The part of a response that was received and that the client has not taken: memory precedes the file, the file the
/// recorded rest, and that the trailers.
struct ReceivedAhead {
    /// Memory of the parts that are stored or about to be stored.
    charge: MemoryCharge,
    unstored: usize,
    /// Time since which parts wait for the client without a break; `None` while there are none.
    waiting_since: Option<Timestamp>,
    /// Bytes that the client took since then.
    taken: u64,
    memory: VecDeque<Bytes>,
    in_memory: usize,
    file: Option<SpoolFile>,
    rest: Option<RecordedRest>,
    trailers: Option<Frame<Bytes>>,
    /// End of the response, once the origin has sent it.
    end: Option<Result<(), BodyError>>,
    is_client_gone: bool,
    /// The task that receives; `None` once the gateway is closed.
    task: Option<AbortHandle>,
    /// The client, if it waits for a part.
    client: Option<Waker>,
    /// The task, if it waits for the client to take all parts.
    receiver: Option<Waker>,
}

/// The rest of a response that is stored, for a client that reads slower than the origin sends.
struct RecordedRest {
    /// A part for the client that had no space.
    first: Bytes,
    /// Length of the body that precedes the rest, as the origin sent it.
    start: u64,
    /// What follows, as the origin sent it; `None` while it is recorded.
    body: Option<CopyBody>,
}

impl Relay {
    /// Returns the relay of a response: `prefix`, already read, then `incoming`.
    pub(in crate::gateway) fn new(
        prefix: Bytes,
        mut incoming: OriginBody,
        pool_guard: PoolGuard,
        deadline: Deadline,
        recorder: Option<Box<Recorder>>,
        compressor: Option<Box<Compressor>>,
        journal: Box<Journal>,
    ) -> Rc<Self> {
        let (worker, polled_at) = (Rc::clone(journal.worker()), journal.worker().monotonic_tick().get());
        let charge = journal.client.charge_memory(prefix.len());
        if journal.client.is_http2() {
            incoming.set_max_read(MAX_STREAM_READ);
        }
        let mut transfer = Transfer {
            prefix,
            incoming,
            pool_guard: Some(pool_guard),
            deadline,
            recorder,
            compressor,
            journal: Some(journal),
            polled_at,
            is_waiting_for_origin: false,
            charge,
            drained_since: None,
            drain: None,
            ahead: None,
        };
        // A response without a body (to HEAD, or a 304) is never polled.
        if transfer.prefix.is_empty() && transfer.incoming.is_end_stream() {
            transfer.compressor = None;
            transfer.end_recording();
            transfer.finish();
        }
        let is_complete = transfer.journal.is_none();
        let relay = Rc::new(Self(RefCell::new(transfer)));
        if !is_complete {
            worker.sweep_list().add(&relay);
        }
        relay
    }

    /// Polls for the next frame, on behalf of the client.
    pub(in crate::gateway) fn poll_frame(&self, cx: &mut Context<'_>) -> PolledFrame {
        self.0.borrow_mut().poll_frame(cx)
    }

    pub(in crate::gateway) fn is_end_stream(&self) -> bool {
        let transfer = self.0.borrow();
        match &transfer.ahead {
            Some(ahead) => transfer.prefix.is_empty() && ahead.is_at_end() && transfer.compressor.is_none(),
            None => transfer.is_received(),
        }
    }

    pub(in crate::gateway) fn size_hint(&self) -> SizeHint {
        let transfer = self.0.borrow();
        if transfer.compressor.is_some() {
            return SizeHint::default();
        }
        let recorded = transfer.recorder.as_ref().map_or(0, |recorder| recorder.length());
        let ahead = transfer.ahead.as_ref().map_or(0, |ahead| ahead.unread(recorded));
        let (known, rest) = (transfer.prefix.len() as u64 + ahead, transfer.incoming.size_hint());
        let mut total = SizeHint::new();
        total.set_lower(rest.lower() + known);
        rest.upper().into_iter().for_each(|upper| total.set_upper(upper + known));
        total
    }

    /// Handles a client that left. The rest of the response is drained, if it holds slots until the origin has sent it.
    pub(in crate::gateway) fn on_client_left(self: &Rc<Self>) {
        let mut transfer = self.0.borrow_mut();
        let Transfer { journal: Some(journal), recorder, incoming, .. } = &mut *transfer else { return };
        let worker = Rc::clone(journal.worker());
        // Some origins count a stream that is reset against its connection, which others share.
        let ends_soon = incoming.is_stream_of_http2() && incoming.size_hint().lower() <= MAX_DRAINED_BYTES as u64;
        // Others may wait for a response that is stored, and it is paid for.
        let is_drained = recorder.is_some()
            || journal.holds_slots_without_client()
            // Its end says what it costs.
            || journal.origin.late_cost.is_some()
            || (ends_soon && journal.client.forwarding.outlives_client());
        match is_drained {
            true => journal.client.disconnect(true),
            false => transfer.journal = None,
        }
        transfer.drained_since = is_drained.then_some(worker.monotonic_tick().get());
        match &mut transfer.ahead {
            Some(ahead) if is_drained => ahead.on_client_left(),
            Some(ahead) => ahead.task.take().into_iter().for_each(|task| task.abort()),
            None if is_drained => {
                drop(transfer);
                let drain = worker.run_detached(Rc::clone(self).drain());
                self.0.borrow_mut().drain = drain;
            }
            None => {}
        }
    }

    /// Reads the rest of a response whose client left, within bounds of bytes and of time.
    async fn drain(self: Rc<Self>) {
        self.0.borrow().deadline.reset();
        let mut drained = 0;
        while (drained <= MAX_DRAINED_BYTES && !self.0.borrow().is_drained_for_too_long())
            || self.0.borrow().recorder.is_some()
        {
            let frame = self.next_from_origin().await;
            let mut transfer = self.0.borrow_mut();
            match frame {
                Some(Ok(frame)) => drained += frame.data_ref().map_or(0, Bytes::len),
                Some(Err(_)) => return,
                None if !transfer.incoming.is_end_stream() => return,
                None => {}
            }
            if transfer.incoming.is_end_stream() {
                return transfer.finish();
            }
        }
    }

    /// Receives the response ahead of the client, until the origin has sent it.
    async fn receive(self: Rc<Self>) {
        let mut is_last = self.0.borrow().is_received();
        let end = loop {
            if is_last {
                break Ok(());
            }
            let is_recorded = self.0.borrow().is_left_to_recorder();
            let frame = match is_recorded {
                true => self.next_from_origin().await,
                false => self.next_for_client().await,
            };
            let frame = match frame {
                None => break Ok(()),
                Some(Err(error)) => break Err(error),
                Some(Ok(frame)) => frame,
            };
            let is_client_gone = {
                let transfer = self.0.borrow();
                is_last = if is_recorded { transfer.incoming.is_end_stream() } else { transfer.is_received() };
                transfer.is_client_gone()
            };
            if is_client_gone {
                return self.drain().await;
            }
            match frame.into_data() {
                Ok(_) if is_recorded => {
                    // What is not stored after all is received at the pace of the client.
                    if !is_last && !self.0.borrow().is_left_to_recorder() {
                        poll_fn(|cx| self.0.borrow_mut().poll_all_taken(cx)).await;
                    }
                }
                Ok(data) => {
                    if let Err(error) = self.store(data).await {
                        break Err(error);
                    }
                }
                // They may describe the body, which the client gets compressed.
                Err(_) if self.0.borrow().compressor.is_some() => {}
                Err(trailers) => {
                    if let Some(ahead) = &mut self.0.borrow_mut().ahead {
                        ahead.trailers = Some(trailers);
                    }
                }
            }
        };
        self.0.borrow_mut().end_reception(end);
    }

    async fn next_from_origin(&self) -> Option<Result<Frame<Bytes>, BodyError>> {
        poll_fn(|cx| self.0.borrow_mut().poll_recorded(cx)).await
    }

    async fn next_for_client(&self) -> Option<Result<Frame<Bytes>, BodyError>> {
        poll_fn(|cx| self.0.borrow_mut().poll_for_client(cx)).await
    }

    /// Stores a part in memory or in the file. If both are full, leaves the rest to the recorder, or else waits until the
    /// client has taken all other parts. Fails if the client has as many files as it may have: one that reads none of them
    /// would hold a connection to the origin for each further response.
    async fn store(&self, data: Bytes) -> Result<(), BodyError> {
        let write = {
            let mut transfer = self.0.borrow_mut();
            // A body that is to have a file takes no memory beside it.
            let rest = transfer.incoming.size_hint().lower() as usize;
            let Some(ahead) = &mut transfer.ahead else { return Ok(()) };
            if ahead.fits_in_memory(data.len().saturating_add(rest)) {
                ahead.push(&data);
                return Ok(());
            }
            transfer.start_write(data.clone())
        };
        let written = match write {
            Ok(write) => write.await.map_err(SpoolError::from),
            Err(error) => Err(error),
        };
        match written {
            Ok(length) => {
                if let Some(ahead) = &mut self.0.borrow_mut().ahead {
                    ahead.finish_write(length);
                }
            }
            Err(error) => {
                if let Some(journal) = &self.0.borrow().journal {
                    journal.worker().shared().record_spool_failure(&error);
                }
                if let Some(ahead) = &mut self.0.borrow_mut().ahead
                    && ahead.fits_in_memory(data.len())
                {
                    ahead.push(&data);
                    return Ok(());
                }
                let left_data = self.0.borrow_mut().leave_to_recorder(data);
                let Err(data) = left_data else { return Ok(()) };
                if matches!(error, SpoolError::TooManyFiles) {
                    if let Some(journal) = &mut self.0.borrow_mut().journal {
                        journal.client.cut = Some(ResponseCut::TooManyUnread);
                    }
                    return Err(BodyError::TooManyUnread);
                }
                poll_fn(|cx| self.0.borrow_mut().poll_all_taken(cx)).await;
                if let Some(ahead) = &mut self.0.borrow_mut().ahead {
                    ahead.push(&data);
                }
            }
        }
        Ok(())
    }
}

impl Sweep for Relay {
    /// Lets a task receive a response whose client has not taken the next part for a tick, or that others wait for. Closes
    /// the connection of a client that then reads fewer than `min_rate` bytes per second.
    fn sweep(self: Rc<Self>, now: Timestamp, min_rate: u64) -> bool {
        let mut transfer = self.0.borrow_mut();
        if transfer.is_drained_for_too_long() {
            transfer.abort_drain();
        }
        let is_stalled = transfer.is_stalled(now);
        let Transfer { journal: Some(journal), incoming, ahead, .. } = &mut *transfer else { return false };
        if let Some(ahead) = ahead {
            if ahead.is_slower_than(min_rate, now) {
                journal.client.close_connection();
            }
        // The rest for a client that left is already being read.
        } else if is_stalled && !journal.client.has_left() {
            incoming.set_max_read(MAX_MEMORY);
            let task = journal.worker().run_detached(Rc::clone(&self).receive());
            *ahead = Some(Box::new(ReceivedAhead::new(journal.client.charge_memory(0), task)));
        }
        true
    }
}

impl Transfer {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        if let Some(journal) = &self.journal {
            self.polled_at = journal.worker().monotonic_tick().get();
        }
        if !self.prefix.is_empty() && self.compressor.is_none() {
            let data = std::mem::take(&mut self.prefix);
            self.on_taken(data.len(), true);
            if self.ahead.is_none() && self.is_received() {
                self.finish();
            }
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if self.ahead.is_some() {
            return self.poll_ahead(cx);
        }
        let polled = self.poll_for_client(cx);
        self.is_waiting_for_origin = polled.is_pending();
        let frame = ready!(polled);
        match &frame {
            None => self.finish(),
            Some(Err(_)) => {}
            Some(Ok(frame)) => {
                self.on_taken(frame.data_ref().map_or(0, Bytes::len), true);
                if self.is_received() {
                    self.finish();
                }
            }
        }
        Poll::Ready(frame)
    }

    /// Returns true if the response holds no slots and is read without its client for too long.
    fn is_drained_for_too_long(&self) -> bool {
        let holds_slots = || self.journal.as_ref().is_some_and(|journal| journal.holds_slots_without_client());
        self.drained_since.is_some_and(|since| self.uptime().saturating_duration_since(since) >= MAX_DRAIN_TIME)
            && !holds_slots()
    }

    /// Aborts the response, unless others wait for it. The request ends with the task that reads it.
    fn abort_drain(&mut self) {
        if self.recorder.is_none() {
            let of_ahead = self.ahead.as_mut().and_then(|ahead| ahead.task.take());
            self.drain.take().or(of_ahead).into_iter().for_each(|task| task.abort());
        }
    }

    fn uptime(&self) -> Timestamp {
        self.journal.as_ref().map_or(self.polled_at, |journal| journal.worker().monotonic_tick().get())
    }

    /// Returns true once the client was or can be sent all that the origin sends.
    fn is_received(&self) -> bool {
        self.prefix.is_empty() && self.incoming.is_end_stream() && self.compressor.is_none()
    }

    /// Polls for the next frame for the client, compressed if it is to be. Trailers, which may describe the body, are left
    /// out then.
    fn poll_for_client(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let Some(mut compressor) = self.compressor.take() else { return self.poll_recorded(cx) };
        let waker = cx.waker().clone();
        let polled = compressor.poll_next(&waker, || {
            if !self.prefix.is_empty() {
                return Poll::Ready(Some(Ok(std::mem::take(&mut self.prefix))));
            }
            self.poll_recorded(cx).map_ok(|frame| frame.into_data().unwrap_or_default())
        });
        self.compressor = Some(compressor).filter(|compressor| !compressor.is_complete());
        polled.map_ok(Frame::data)
    }

    /// Polls the origin for the next frame, and records it.
    fn poll_recorded(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let polled = self.poll_incoming(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.on_received(frame);
        }
        polled
    }

    /// Polls for the next part that was received ahead.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let Self { ahead: Some(ahead), compressor, .. } = self else { return Poll::Ready(None) };
        let polled = ready!(ahead.poll(compressor, cx));
        match &polled {
            Some(Ok(frame)) => {
                let length = frame.data_ref().map_or(0, Bytes::len);
                ahead.taken += length as u64;
                let is_end = ahead.is_at_end() && compressor.is_none();
                self.on_taken(length, false);
                if is_end {
                    self.finish();
                }
            }
            Some(Err(_)) => {}
            None => self.finish(),
        }
        Poll::Ready(polled)
    }

    /// Polls the origin for the next frame.
    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let Poll::Ready(next) = Pin::new(&mut self.incoming).poll_frame(cx) else {
            return match self.deadline.poll_expired(cx) {
                true => {
                    self.abandon_recording();
                    self.on_abort(ResponseCut::ResponseTimeout);
                    Poll::Ready(Some(Err(BodyError::TimedOut)))
                }
                false => Poll::Pending,
            };
        };
        self.deadline.reset();
        match &next {
            Some(Ok(_)) => {}
            None if self.incoming.is_end_stream() => {
                self.end_recording();
                if let Some(journal) = &mut self.journal {
                    settle_late_cost(&journal.known, &mut journal.origin, true);
                }
            }
            // A body that failed is not whole, and ends without its end.
            None => self.abandon_recording(),
            Some(Err(error)) => {
                self.abandon_recording();
                match error {
                    client::Error::Body(_) | client::Error::BodyLength => {}
                    _ => self.on_abort(ResponseCut::Origin),
                }
            }
        }
        Poll::Ready(next.map(|frame| frame.map_err(BodyError::from)))
    }

    /// Waits until the client has taken all parts, or left.
    fn poll_all_taken(&mut self, cx: &Context<'_>) -> Poll<()> {
        match &mut self.ahead {
            Some(ahead) if !ahead.is_empty() && !ahead.is_client_gone => {
                ahead.receiver = Some(cx.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }

    fn is_client_gone(&self) -> bool {
        self.ahead.as_ref().is_none_or(|ahead| ahead.is_client_gone)
    }

    /// Returns true if the client has not taken the next part for a tick, or others wait for it, and the origin is not the
    /// cause.
    fn is_stalled(&self, now: Timestamp) -> bool {
        let has_waiters = || self.recorder.as_ref().is_some_and(|recorder| recorder.has_waiters());
        !self.is_waiting_for_origin && (now.saturating_duration_since(self.polled_at) >= TICK || has_waiters())
    }

    /// Returns true while the recorder alone receives, and the client gets the rest from it later.
    fn is_left_to_recorder(&self) -> bool {
        self.recorder.is_some() && self.ahead.as_ref().is_some_and(|ahead| ahead.rest.is_some())
    }

    /// Leaves what follows `data`, which the client gets first, to the recorder. Returns `data` if there is none.
    fn leave_to_recorder(&mut self, data: Bytes) -> Result<(), Bytes> {
        let (Some(ahead), Some(recorder)) = (&mut self.ahead, &self.recorder) else { return Err(data) };
        ahead.rest = Some(RecordedRest { first: data, start: recorder.length(), body: None });
        ahead.wake_client();
        Ok(())
    }

    /// Starts to write a part into the file, which is created for the first one.
    fn start_write(&mut self, data: Bytes) -> Result<SpoolWrite, SpoolError> {
        let (Some(ahead), Some(journal)) = (&mut self.ahead, &self.journal) else {
            return Err(SpoolError::Full);
        };
        ahead.charge_unstored(data.len().max(self.incoming.buffer_capacity()));
        let settings = &journal.known.config.settings;
        if ahead.file.is_none() {
            let worker = Rc::clone(journal.worker());
            let usage = &worker.shared().spool_usage;
            ahead.file = Some(SpoolFile::create(&settings.state_dir, journal.known.address_key(), usage)?);
        }
        ahead.file.as_mut().ok_or(SpoolError::Full)?.start_write(data, settings.limits.buffer_disk)
    }

    /// Handles the end of the response ahead of the client: the connection to the origin and the slots are free.
    fn end_reception(&mut self, end: Result<(), BodyError>) {
        self.put_back_connection();
        if let Some(journal) = &mut self.journal {
            journal.end_at_origin();
        }
        if let Some(ahead) = &mut self.ahead {
            ahead.end = Some(end);
            ahead.wake_client();
        }
        if self.is_client_gone() {
            self.finish();
        }
    }

    /// Handles a part that the origin sent.
    fn on_received(&mut self, frame: &Frame<Bytes>) {
        let is_end = self.incoming.is_end_stream();
        if let Some((recorder, data)) = self.recorder.as_mut().zip(frame.data_ref())
            && !recorder.push(data)
        {
            self.abandon_recording();
        }
        if is_end {
            self.end_recording();
        }
        if let Some(journal) = &mut self.journal {
            read_usage(journal, frame, is_end);
        }
    }

    /// Stores the response, which was received whole.
    fn end_recording(&mut self) {
        if let Some(recorder) = self.recorder.take() {
            let (is_stored, rest) = recorder.finish(self.rest_start());
            if let Some(journal) = &mut self.journal {
                journal.cache.is_stored = is_stored;
            }
            self.give_rest(rest);
        }
    }

    /// Stores nothing of the response, which is too large.
    fn abandon_recording(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.cache.give_up_storage();
        }
        if let Some(recorder) = self.recorder.take() {
            let rest = self.rest_start().map(|start| recorder.abandon(start));
            self.give_rest(rest);
        }
    }

    fn rest_start(&self) -> Option<u64> {
        self.ahead.as_ref()?.rest.as_ref().map(|rest| rest.start)
    }

    /// Lets the client read the rest, if it was left to the recorder.
    fn give_rest(&mut self, body: Option<CopyBody>) {
        if let Some(ahead) = &mut self.ahead
            && let Some(rest) = &mut ahead.rest
        {
            rest.body = body;
            if let (Some(body), Some(journal)) = (&mut rest.body, &self.journal) {
                body.charge(journal.client.memory(), journal.known.address_key());
            }
            ahead.update_charge();
            ahead.wake_client();
        }
    }

    /// Handles a part that the client took, and that may keep the buffer in which it was received.
    fn on_taken(&mut self, length: usize, keeps_buffer: bool) {
        let capacity = || if keeps_buffer { self.incoming.buffer_capacity() } else { 0 };
        // A stream of HTTP/2 copies a part, and charges the copy.
        let is_copied = || length <= MAX_STREAM_READ && self.journal.as_ref().is_some_and(|it| it.client.is_http2());
        let memory = if length > MAX_UNCHARGED && !is_copied() { length.max(capacity()) } else { 0 };
        self.charge.set(memory);
        if let Some(journal) = &mut self.journal {
            journal.client.add_bytes(length as u64);
        }
    }

    /// Handles a body that was aborted or timed out.
    fn on_abort(&mut self, cut: ResponseCut) {
        if let Some(journal) = &mut self.journal {
            journal.client.cut = Some(cut);
            report_aborted_body(&journal.known, &mut journal.origin);
        }
    }

    /// Handles the end of the response. The request is recorded now, so that it is counted before the client sees the
    /// end.
    fn finish(&mut self) {
        self.put_back_connection();
        if let Some(journal) = self.journal.take() {
            journal.finish();
        }
    }

    /// Returns the connection to the pool, unless the request is still being sent on it.
    fn put_back_connection(&mut self) {
        let Some(journal) = &self.journal else { return };
        if let Some((pool_guard, connection)) = self.pool_guard.take().zip(self.incoming.take_connection()) {
            pool_guard.put_back(connection, journal.worker().monotonic_tick().get());
        }
    }
}

/// Reads what a part of the response says of usage and costs, and charges the costs at its end.
fn read_usage(journal: &mut Journal, frame: &Frame<Bytes>, is_end: bool) {
    if let Some(data) = frame.data_ref() {
        scan_body(&journal.known, &mut journal.origin, data);
    }
    if let Some(late) = &mut journal.origin.late_cost {
        frame.data_ref().into_iter().for_each(|data| late.scan(data));
        frame.trailers_ref().into_iter().for_each(|trailers| late.read_trailers(&journal.known, trailers));
    }
    if is_end {
        settle_late_cost(&journal.known, &mut journal.origin, true);
    }
}

impl ReceivedAhead {
    fn new(charge: MemoryCharge, task: Option<AbortHandle>) -> Self {
        Self {
            charge,
            unstored: 0,
            waiting_since: None,
            taken: 0,
            memory: VecDeque::new(),
            in_memory: 0,
            file: None,
            rest: None,
            trailers: None,
            end: None,
            is_client_gone: false,
            task,
            client: None,
            receiver: None,
        }
    }

    /// Returns the bytes that the client has not taken; `recorded` is the length of what the recorder has.
    fn unread(&self, recorded: u64) -> u64 {
        self.stored() + self.rest.as_ref().map_or(0, |rest| rest.length(recorded))
    }

    /// Returns the bytes in memory and in the file.
    fn stored(&self) -> u64 {
        self.in_memory as u64 + self.file.as_ref().map_or(0, SpoolFile::unread)
    }

    fn is_empty(&self) -> bool {
        self.stored() == 0 && self.rest.is_none()
    }

    /// Returns true once the client has taken the whole response.
    fn is_at_end(&self) -> bool {
        self.is_empty() && self.trailers.is_none() && matches!(self.end, Some(Ok(())))
    }

    /// Returns true if a part may follow those in memory: the file, which they precede, has none.
    fn fits_in_memory(&self, length: usize) -> bool {
        self.stored() == self.in_memory as u64 && self.in_memory + length <= MAX_MEMORY
    }

    /// Stores a part in memory. Copied, because a part keeps the read buffer that it arrived in.
    fn push(&mut self, data: &[u8]) {
        self.unstored = 0;
        self.in_memory += data.len();
        self.memory.push_back(Bytes::copy_from_slice(data));
        self.update_charge();
        self.wake_client();
    }

    fn update_charge(&mut self) {
        let rest = self.rest.as_ref().and_then(|rest| rest.body.as_ref()).map_or(0, CopyBody::small_len);
        self.charge.set(self.in_memory + self.unstored + rest);
    }

    /// Charges a part that occupies `memory` bytes while it is written, or waits for space.
    fn charge_unstored(&mut self, memory: usize) {
        self.unstored = memory;
        self.update_charge();
    }

    fn finish_write(&mut self, length: u64) {
        self.unstored = 0;
        self.update_charge();
        if let Some(file) = &mut self.file {
            file.finish_write(length);
        }
        self.wake_client();
    }

    /// Polls for the next part. The recorded rest passes through the compressor, if there is one.
    fn poll(&mut self, compressor: &mut Option<Box<Compressor>>, cx: &mut Context<'_>) -> PolledFrame {
        if let Some(data) = self.memory.pop_front() {
            self.in_memory -= data.len();
            self.update_charge();
            self.wake_receiver_if_empty();
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let Some(file) = self.file.as_mut().filter(|file| file.unread() > 0) {
            let part = ready!(file.poll_read(cx)).map_err(BodyError::File);
            self.wake_receiver_if_empty();
            return Poll::Ready(Some(part.map(Frame::data)));
        }
        if let Some(rest) = &mut self.rest {
            let is_whole = matches!(self.end, Some(Ok(())));
            let polled = rest.poll(is_whole, compressor, cx);
            // Those bytes waited as a part that has no space.
            self.unstored = 0;
            if let Poll::Ready(Some(part)) = polled {
                return Poll::Ready(Some(part.map(Frame::data)));
            }
            let is_compressing = is_whole && compressor.is_some();
            if rest.body.as_ref().is_none_or(|body| body.len() > 0) || is_compressing {
                self.client = Some(cx.waker().clone());
                return Poll::Pending;
            }
            self.rest = None;
            self.wake_receiver_if_empty();
        }
        match (&mut self.end, self.trailers.take()) {
            (_, Some(trailers)) => Poll::Ready(Some(Ok(trailers))),
            (Some(Ok(())), None) => Poll::Ready(None),
            (end @ Some(Err(_)), None) => {
                Poll::Ready(end.replace(Ok(())).map(|end| Err(end.err().unwrap_or(BodyError::TimedOut))))
            }
            (None, None) => {
                self.client = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Drops what the client did not take.
    fn on_client_left(&mut self) {
        self.is_client_gone = true;
        self.memory.clear();
        self.in_memory = 0;
        self.rest = None;
        self.update_charge();
        // A file that is being written is dropped with the relay.
        self.receiver.take().into_iter().for_each(Waker::wake);
    }

    /// Returns true if the client takes fewer than `min_rate` bytes per second while parts wait for it. Pauses of the
    /// origin do not count.
    fn is_slower_than(&mut self, min_rate: u64, now: Timestamp) -> bool {
        let has_rest = || self.rest.as_ref().is_some_and(|rest| rest.length(rest.start) > 0);
        if self.stored() == 0 && !has_rest() {
            (self.waiting_since, self.taken) = (None, 0);
            return false;
        }
        let since = *self.waiting_since.get_or_insert(now);
        is_slower_than(min_rate, self.taken, since, now)
    }

    fn wake_client(&mut self) {
        self.client.take().into_iter().for_each(Waker::wake);
    }

    fn wake_receiver_if_empty(&mut self) {
        if self.is_empty() {
            (self.waiting_since, self.taken) = (None, 0);
            self.receiver.take().into_iter().for_each(Waker::wake);
        }
    }
}

impl RecordedRest {
    /// Returns the bytes that are left; `recorded` is the length of what the recorder has.
    fn length(&self, recorded: u64) -> u64 {
        let following = self.body.as_ref().map_or(recorded.saturating_sub(self.start), CopyBody::len);
        self.first.len() as u64 + following
    }

    /// Polls for the next part. `None` is the end of what is left; it is the end of the response if `is_whole`.
    fn poll(
        &mut self,
        is_whole: bool,
        compressor: &mut Option<Box<Compressor>>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        if !self.first.is_empty() {
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.first))));
        }
        let Some(body) = &mut self.body else { return Poll::Pending };
        let waker = cx.waker().clone();
        let mut poll_body = || body.poll_next(cx).map_err(BodyError::StoredResponse);
        let Some(encoder) = compressor else { return poll_body() };
        let polled = encoder.poll_next(&waker, || match poll_body() {
            Poll::Ready(None) if !is_whole => Poll::Pending,
            polled => polled,
        });
        if encoder.is_complete() {
            *compressor = None;
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::transport::connection_memory::ConnectionMemory;
    use crate::gateway::transport::connection_timeouts::MAX_UNSEEN;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_seconds(1000 + second)
    }

    fn take(ahead: &mut ReceivedAhead) {
        assert!(ahead.poll(&mut None, &mut Context::from_waker(Waker::noop())).is_ready());
    }

    #[test]
    fn rate_of_a_client_is_measured_while_parts_wait_for_it() {
        let memory = Rc::<ConnectionMemory>::default();
        let mut ahead = ReceivedAhead::new(MemoryCharge::new(&memory, 0), None);
        // At this rate, the bytes that the kernel may hold unseen last for 9 to 10 seconds.
        let rate = MAX_UNSEEN / 10 + 100;
        assert!(!ahead.is_slower_than(rate, at(0)), "the origin is waited for");
        ahead.push(&[0; 50]);
        assert!(!ahead.is_slower_than(rate, at(60)), "parts have waited from now on");
        assert!(!ahead.is_slower_than(rate, at(79)));
        assert!(ahead.is_slower_than(rate, at(80)));
        take(&mut ahead);
        assert!(!ahead.is_slower_than(rate, at(81)), "the client has taken everything");
        ahead.push(&[0; 50]);
        assert!(!ahead.is_slower_than(rate, at(200)), "a pause of the origin is not one of the client");
        ahead.push(&[0; 50]);
        take(&mut ahead);
        assert!(ahead.is_slower_than(rate, at(220)), "50 bytes in ten seconds after the grace period");
    }
}
