//! Timeouts of client connections. Each connection records its state and the start of it; a sweep every quarter of a
//! second closes those that exceed a timeout. A timer per request would cost more than parsing the request.

use super::connection_memory::{ConnectionMemory, largest};
use super::shared_body::SharedBody;
use http::Version;
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate_config::settings::Limits;
use tidegate_engine::clock::Clock;
use tidegate_http1::server::InterimResponses;
use tidegate_policy::Timestamp;
use tidegate_policy::identity::ClientKey;

/// Interval of a worker's maintenance: timeouts, idle connections, access log.
pub(in crate::gateway) const TICK: Duration = Duration::from_millis(250);

/// Time for which a client may send or read a body more slowly than `limits.min_rate`.
pub(in crate::gateway) const MIN_RATE_GRACE: Duration = Duration::from_secs(10);

/// Bytes that a client may have read before that is seen: of the part that is being written, and of what the kernel holds.
pub(in crate::gateway) const MAX_UNSEEN: u64 = 128 * 1024;

/// Stream resets by a client above which an HTTP/2 connection can count as an attack.
const MAX_STREAM_RESETS: u32 = 100;

/// Activity of one client connection, as checked by the sweep.
pub(in crate::gateway) struct ConnectionState {
    clock: Rc<Cell<Timestamp>>,
    wall_clock: Clock,
    phase: Cell<Phase>,
    since: Cell<Timestamp>,
    /// Wall-clock time at which the first part of an incomplete request head arrived; `None` if the head arrived at once.
    head_started_at: Cell<Option<Timestamp>>,
    /// Requests in flight: more than one only on HTTP/2.
    requests_in_flight: Cell<u32>,
    /// Time since which a write waits for the client to read.
    write_blocked_since: Cell<Option<Timestamp>>,
    /// Bytes that the client took, TLS included.
    written: Cell<u64>,
    /// Time since which each sweep found a write that waits, and the bytes that were written by then.
    slow_since: Cell<Option<(Timestamp, u64)>>,
    /// Time since which a request body waits for the client to send.
    body_wait_since: Cell<Option<Timestamp>>,
    /// HTTP/2 responses until their last byte is written. A client can stall such a response by sending no window update,
    /// without blocking any write to the connection.
    responses: RefCell<Slab<StreamProgress>>,
    request_count: Cell<u32>,
    /// True for HTTP/2, where received bytes do not always belong to a request: pings and window updates arrive at any
    /// time.
    is_http2: Cell<bool>,
    max_requests: u32,
    aborted: Cell<u32>,
    /// Interim responses for the client of a connection of HTTP/1.1.
    interim: InterimResponses,
    memory: Rc<ConnectionMemory>,
    command: Cell<ConnectionCommand>,
    waker: RefCell<Option<Waker>>,
}

/// Progress of an HTTP/2 response.
pub(in crate::gateway) struct StreamProgress {
    /// Time of the last progress.
    last: Timestamp,
    waits_for_origin: bool,
    /// Time since which each sweep found that bytes wait for the client.
    slow_since: Option<Timestamp>,
    /// Bytes that the client took since then.
    taken: u64,
}

impl StreamProgress {
    /// Returns true if the client stalls the response, or reads it too slowly. A wait for the origin has a timeout of its
    /// own.
    fn is_overdue(&mut self, max_wait: Duration, min_rate: u64, now: Timestamp) -> bool {
        if self.waits_for_origin {
            self.slow_since = None;
            return false;
        }
        if self.slow_since.is_none() {
            (self.slow_since, self.taken) = (Some(now), 0);
        }
        is_overdue(self.last, max_wait, now)
            || self.slow_since.is_some_and(|since| is_slower_than(min_rate, self.taken, since, now))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Connected to a listener with the PROXY protocol, whose header is not complete.
    ReadingProxyHeader,
    /// Connected to a listener with TLS, whose handshake is not complete.
    Handshaking,
    /// Connected, no byte received.
    AwaitingFirstByte,
    /// Between requests.
    Idle,
    /// The head of a request has begun to arrive.
    ReadingHead,
}

/// Command to the task of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::gateway) enum ConnectionCommand {
    /// Continue.
    Continue,
    /// Announce the end of the connection with the next response; wait for its request.
    CloseAfterResponse,
    /// Complete the requests in flight, then close.
    Drain,
    /// Close immediately.
    Close,
}

impl ConnectionState {
    pub(in crate::gateway) fn new(clock: Rc<Cell<Timestamp>>, wall_clock: Clock, max_requests: u32) -> Rc<Self> {
        let now = clock.get();
        Rc::new(Self {
            clock,
            wall_clock,
            phase: Cell::new(Phase::AwaitingFirstByte),
            since: Cell::new(now),
            head_started_at: Cell::new(None),
            requests_in_flight: Cell::new(0),
            write_blocked_since: Cell::new(None),
            written: Cell::new(0),
            slow_since: Cell::new(None),
            body_wait_since: Cell::new(None),
            responses: RefCell::default(),
            request_count: Cell::new(0),
            is_http2: Cell::new(false),
            max_requests,
            aborted: Cell::new(0),
            interim: InterimResponses::default(),
            memory: Rc::default(),
            command: Cell::new(ConnectionCommand::Continue),
            waker: RefCell::new(None),
        })
    }

    pub(in crate::gateway) fn is_http2(&self) -> bool {
        self.is_http2.get()
    }

    pub(in crate::gateway) fn interim(&self) -> &InterimResponses {
        &self.interim
    }

    pub(in crate::gateway) fn memory(&self) -> &Rc<ConnectionMemory> {
        &self.memory
    }

    /// Records that a header of the PROXY protocol is awaited.
    pub(in crate::gateway) fn on_proxy_header_start(&self) {
        self.set_phase(Phase::ReadingProxyHeader);
    }

    /// Records that a TLS handshake is awaited.
    pub(in crate::gateway) fn on_handshake_start(&self) {
        self.set_phase(Phase::Handshaking);
    }

    /// Records that the first request is awaited: what precedes it is complete.
    pub(in crate::gateway) fn on_established(&self) {
        self.set_phase(Phase::AwaitingFirstByte);
    }

    /// Records bytes received from the client.
    pub(in crate::gateway) fn on_read(&self) {
        let between_requests = self.phase.get() == Phase::Idle && !self.is_http2.get();
        if self.requests_in_flight.get() == 0 && (self.phase.get() == Phase::AwaitingFirstByte || between_requests) {
            self.set_phase(Phase::ReadingHead);
        }
    }

    /// Records that all bytes that the client has sent are read. The clock is read only for a head that is incomplete.
    pub(in crate::gateway) fn on_read_wait(&self) {
        let is_in_head = self.phase.get() == Phase::ReadingHead && self.requests_in_flight.get() == 0;
        if is_in_head && self.head_started_at.get().is_none() {
            self.head_started_at.set(Some(self.wall_clock.now()));
        }
    }

    /// Records whether a write waits for the client, or how many bytes it took.
    pub(in crate::gateway) fn on_write(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.written.set(self.written.get() + *bytes as u64);
        }
        match (written.is_pending(), self.write_blocked_since.get()) {
            (true, None) => self.write_blocked_since.set(Some(self.clock.get())),
            (false, Some(_)) => self.write_blocked_since.set(None),
            _ => {}
        }
    }

    /// Records whether a request body waits for the client.
    pub(in crate::gateway) fn on_body_wait(&self, is_waiting: bool) {
        match (is_waiting, self.body_wait_since.get()) {
            (true, None) => self.body_wait_since.set(Some(self.clock.get())),
            (false, Some(_)) => self.body_wait_since.set(None),
            _ => {}
        }
    }

    /// Records a complete request head. Returns the time at which it began to arrive, if that was earlier. Over HTTP/2, a
    /// request begins with its complete head: other frames arrive at any time.
    pub(in crate::gateway) fn on_request_start(&self, version: Version) -> Option<Timestamp> {
        self.is_http2.set(version == Version::HTTP_2);
        self.requests_in_flight.set(self.requests_in_flight.get() + 1);
        self.request_count.set(self.request_count.get().saturating_add(1));
        if self.request_count.get() >= self.max_requests {
            self.command(ConnectionCommand::Drain);
        }
        self.head_started_at.take().filter(|_| version != Version::HTTP_2)
    }

    /// Records the end of a request; `aborted` if the client disconnected before it.
    pub(in crate::gateway) fn on_request_end(&self, aborted: bool) {
        self.requests_in_flight.set(self.requests_in_flight.get().saturating_sub(1));
        if aborted {
            self.aborted.set(self.aborted.get() + 1);
        }
        if self.requests_in_flight.get() == 0 {
            self.body_wait_since.set(None);
            self.set_phase(Phase::Idle);
        }
    }

    /// Records the start of an HTTP/2 response. Returns a key for its progress; HTTP/1.1 writes show it themselves.
    pub(in crate::gateway) fn on_response_start(&self) -> usize {
        let last = self.clock.get();
        self.responses.borrow_mut().insert(StreamProgress { last, waits_for_origin: false, slow_since: None, taken: 0 })
    }

    /// Records that the client took `bytes` of the response, or that it can take more.
    pub(in crate::gateway) fn on_response_progress(&self, key: usize, bytes: usize) {
        let progress = &mut self.responses.borrow_mut()[key];
        progress.last = self.clock.get();
        progress.taken += bytes as u64;
    }

    /// Records whether the client waits for more of the response.
    pub(in crate::gateway) fn on_origin_wait(&self, key: usize, is_waiting: bool) {
        self.responses.borrow_mut()[key].waits_for_origin = is_waiting;
    }

    /// Records the end of the response.
    pub(in crate::gateway) fn on_response_end(&self, key: usize) {
        self.responses.borrow_mut().remove(key);
    }

    /// Returns the current command. Registers the task, to be woken by a later command.
    pub(in crate::gateway) fn poll_command(&self, cx: &Context<'_>) -> ConnectionCommand {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        self.command.get()
    }

    /// Returns the strongest command that was sent.
    pub(in crate::gateway) fn command_sent(&self) -> ConnectionCommand {
        self.command.get()
    }

    /// Sends a command, unless a stronger one was sent before.
    pub(in crate::gateway) fn command(&self, command: ConnectionCommand) {
        if command > self.command.get() {
            self.command.set(command);
            if let Some(waker) = self.waker.borrow().as_ref() {
                waker.wake_by_ref();
            }
        }
    }

    fn set_phase(&self, phase: Phase) {
        self.phase.set(phase);
        self.since.set(self.clock.get());
    }

    /// Returns true if the client reads fewer than `min_rate` bytes per second while writes wait for it.
    fn is_slower_than(&self, min_rate: u64, now: Timestamp) -> bool {
        let written = self.written.get();
        let is_blocked = self.write_blocked_since.get().is_some();
        self.slow_since.set(is_blocked.then(|| self.slow_since.get().unwrap_or((now, written))));
        self.slow_since.get().is_some_and(|(since, before)| is_slower_than(min_rate, written - before, since, now))
    }

    fn check_timeouts(&self, limits: &Limits) -> ConnectionCommand {
        let now = self.clock.get();
        let exceeds =
            |since: Option<Timestamp>, limit: Duration| since.is_some_and(|since| is_overdue(since, limit, now));
        if exceeds(self.write_blocked_since.get(), limits.response_write_timeout)
            || exceeds(self.body_wait_since.get(), limits.request_body_timeout)
        {
            return ConnectionCommand::Close;
        }
        if self.is_slower_than(limits.min_rate, now) {
            return ConnectionCommand::Close;
        }
        let responses = &mut *self.responses.borrow_mut();
        // Other streams of the connection may do well: a browser that pauses a video reads none of it for a while.
        let max_stall = limits.response_write_timeout * 2;
        // All of them: each look is one of the sweeps between which the rate is measured.
        let overdue =
            responses.iter_mut().filter_map(|(_, it)| it.is_overdue(max_stall, limits.min_rate, now).then_some(()));
        if overdue.count() > 0 {
            return ConnectionCommand::Close;
        }
        let aborted = self.aborted.get();
        if aborted > MAX_STREAM_RESETS && aborted > self.request_count.get() / 2 {
            return ConnectionCommand::Close;
        }
        if self.requests_in_flight.get() > 0 {
            return ConnectionCommand::Continue;
        }
        // The last bytes of a response may wait long after its request has ended.
        if self.phase.get() == Phase::Idle && !(responses.is_empty() && self.write_blocked_since.get().is_none()) {
            self.since.set(now);
        }
        let since = Some(self.since.get());
        match self.phase.get() {
            Phase::ReadingProxyHeader if exceeds(since, limits.proxy_header_timeout) => ConnectionCommand::Close,
            Phase::Handshaking if exceeds(since, limits.handshake_timeout) => ConnectionCommand::Close,
            Phase::AwaitingFirstByte if exceeds(since, limits.first_byte_timeout) => ConnectionCommand::Close,
            Phase::ReadingHead if exceeds(since, limits.head_timeout) => ConnectionCommand::Close,
            // A part of the next head arrived before the last response was sent.
            Phase::Idle if self.memory.read_buffer().has_partial_head() && exceeds(since, limits.head_timeout) => {
                ConnectionCommand::Close
            }
            // An idle HTTP/2 client that does not respond to GOAWAY is disconnected.
            Phase::Idle if exceeds(since, limits.keep_alive_timeout * 2) => ConnectionCommand::Close,
            Phase::Idle if exceeds(since, limits.keep_alive_timeout) => ConnectionCommand::Drain,
            _ => ConnectionCommand::Continue,
        }
    }
}

/// Returns true if a wait since `since` has certainly lasted `limit`. The clock is up to one tick late, so timeouts
/// expire up to two ticks late, never early.
pub(in crate::gateway) fn is_overdue(since: Timestamp, limit: Duration, now: Timestamp) -> bool {
    now.saturating_duration_since(since) >= limit + TICK
}

/// Returns true if a client that took `bytes` since `since` takes fewer than `min_rate` bytes per second, besides
/// [`MAX_UNSEEN`] and after [`MIN_RATE_GRACE`].
pub(in crate::gateway) fn is_slower_than(min_rate: u64, bytes: u64, since: Timestamp, now: Timestamp) -> bool {
    let elapsed = now.saturating_duration_since(since).saturating_sub(MIN_RATE_GRACE);
    ((bytes + MAX_UNSEEN) as f64) < elapsed.as_secs_f64() * min_rate as f64
}

/// All connections of one worker.
#[derive(Default)]
pub(in crate::gateway) struct ConnectionRegistry(RefCell<Vec<Weak<ConnectionState>>>);

impl ConnectionRegistry {
    pub(in crate::gateway) fn add(&self, connection: &Rc<ConnectionState>) {
        self.0.borrow_mut().push(Rc::downgrade(connection));
    }

    /// Commands connections that exceed a timeout to end, and drops closed ones. Returns the bytes of memory that the
    /// others occupy.
    pub(in crate::gateway) fn sweep(&self, limits: &Limits) -> u64 {
        let mut memory = 0;
        self.0.borrow_mut().retain(|connection| {
            let Some(connection) = connection.upgrade() else { return false };
            connection.command(connection.check_timeouts(limits));
            memory += connection.memory.total();
            true
        });
        memory
    }

    /// Returns the stored bodies that others displaced while connections send them, each once, with the address of a client.
    pub(in crate::gateway) fn displaced_bodies(&self) -> Vec<(Arc<SharedBody>, ClientKey)> {
        let connections = self.0.borrow();
        connections.iter().filter_map(Weak::upgrade).flat_map(|open| open.memory.begin_moves()).collect()
    }

    /// Closes the connections that occupy most memory, together at least `excess` bytes. Returns their number.
    pub(in crate::gateway) fn close_largest(&self, excess: u64) -> u64 {
        let open = self.0.borrow();
        let open = open.iter().filter_map(Weak::upgrade).filter(|open| open.command.get() != ConnectionCommand::Close);
        let closed = largest(open.map(|connection| (connection.memory.total(), connection)).collect(), excess);
        closed.map(|connection| connection.command(ConnectionCommand::Close)).count() as u64
    }

    /// Sends a command to all connections.
    pub(in crate::gateway) fn command_all(&self, command: ConnectionCommand) {
        for connection in self.0.borrow().iter().filter_map(Weak::upgrade) {
            connection.command(command);
        }
    }

    /// Returns the number of open connections.
    pub(in crate::gateway) fn open_count(&self) -> usize {
        self.0.borrow().iter().filter(|connection| connection.strong_count() > 0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_WAIT: Duration = Duration::from_secs(60);

    fn at(second: u64) -> Timestamp {
        Timestamp::from_seconds(1000 + second)
    }

    fn new_stream() -> StreamProgress {
        StreamProgress { last: at(0), waits_for_origin: false, slow_since: None, taken: 0 }
    }

    #[test]
    fn stream_that_a_client_stalls_is_overdue_and_one_that_waits_for_the_origin_is_not() {
        let mut stream = new_stream();
        assert!(!stream.is_overdue(MAX_WAIT, 0, at(60)));
        assert!(stream.is_overdue(MAX_WAIT, 0, at(61)));
        stream.waits_for_origin = true;
        assert!(!stream.is_overdue(MAX_WAIT, 0, at(100_000)), "the origin has a timeout of its own");
    }

    #[test]
    fn stream_of_a_client_that_reads_a_byte_a_second_is_overdue() {
        let mut stream = new_stream();
        let end = (0..1000).find(|&second| {
            (stream.last, stream.taken) = (at(second), stream.taken + 1);
            stream.is_overdue(MAX_WAIT, 1024, at(second))
        });
        assert_eq!(end, Some(139), "128 KiB may be unseen, and ten seconds are given");
    }
}
