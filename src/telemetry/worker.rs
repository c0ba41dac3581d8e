//! One worker's end of telemetry: counts, the last decisions and a piece of the access log, under one lock that only
//! a scrape ever contends for.

use super::access_log::LogBuffer;
use super::counters::WorkerCounters;
use super::decision_ring::DecisionRing;
use super::line::LineWriter;
use super::record::{NameResolver, Record};
use crate::policy::{ScopeId, Timestamp};
use parking_lot::Mutex;
use std::sync::Arc;

/// What a worker tells about its requests.
#[derive(Clone)]
pub struct WorkerTelemetry(pub(super) Arc<Mutex<WorkerState>>);

/// Where a worker's notes lie.
pub(super) struct WorkerState {
    pub(super) cells: WorkerCounters,
    pub(super) recent: DecisionRing,
    lines: LineWriter,
    log: Option<LogBuffer>,
    /// Where a line is written when there is no log to write it to.
    scratch: Vec<u8>,
}

impl WorkerTelemetry {
    pub(super) fn new(log: Option<LogBuffer>, started: Timestamp) -> Self {
        let (cells, recent) = (WorkerCounters::default(), DecisionRing::new(DECISION_RING_LEN));
        let lines = LineWriter::starting_at(started);
        Self(Arc::new(Mutex::new(WorkerState { cells, recent, lines, log, scratch: Vec::new() })))
    }

    /// Counts a finished request, remembers it and writes its line.
    pub fn record(&self, record: &Record<'_>) {
        let desk = &mut *self.0.lock();
        desk.cells.record(record);
        let out = match &mut desk.log {
            Some(log) => log.bytes(),
            None => &mut desk.scratch,
        };
        let start = out.len();
        desk.lines.write_json(out, record);
        desk.recent.push(record.id, &out[start..]);
        match &mut desk.log {
            Some(log) => log.appended(),
            None => desk.scratch.clear(),
        }
    }

    /// Counts an answer to something that was turned away before it had a class, such as a bad `Host`.
    pub fn response_without_class(&self, status: u16) {
        self.0.lock().cells.response_without_class(status);
    }

    /// Counts a connection that was accepted.
    pub fn connection_opened(&self) {
        self.0.lock().cells.connection_opened();
    }

    /// Counts a connection that is over.
    pub fn connection_closed(&self) {
        self.0.lock().cells.connection_closed();
    }

    /// Counts a connection that was closed at once, for want of room.
    pub fn connection_refused(&self) {
        self.0.lock().cells.connection_refused();
    }

    /// Counts a request of `scopes` that goes to the origin now.
    pub fn upstream_started(&self, scopes: &[ScopeId], names: &dyn NameResolver) {
        self.0.lock().cells.each_scope(names, scopes, |scope| scope.inflight += 1);
    }

    /// Counts it out again. The scopes must be those that it went in with.
    pub fn upstream_finished(&self, scopes: &[ScopeId], names: &dyn NameResolver) {
        self.0.lock().cells.each_scope(names, scopes, |scope| scope.inflight = scope.inflight.saturating_sub(1));
    }

    /// Hands the lines so far to the writer; called at every tick and when the worker ends. Never waits.
    pub fn flush(&self) {
        if let Some(log) = &mut self.0.lock().log {
            log.flush();
        }
    }
}

/// Decisions that each worker can still explain, at most.
pub const DECISION_RING_LEN: usize = 1024;
