//! Telemetry of one worker: counters, the last decisions and a buffer of the access log, under one lock that only
//! scrapes contend for.

use super::access_log::LogBuffer;
use super::counters::WorkerCounters;
use super::decision_ring::DecisionRing;
use super::handshake_result::HandshakeResult;
use super::recent_spenders::RecentSpenders;
use parking_lot::Mutex;
use std::sync::Arc;
use tidegate_access_log::LineWriter;
use tidegate_access_log::{NameResolver, Record, RejectedRecord};
use tidegate_config::settings::AccessLogFormat;
use tidegate_policy::{ScopeId, Timestamp};
use tidegate_traces::{SpanQueue, Spans};

/// Handle of a worker's telemetry.
#[derive(Clone)]
pub struct WorkerTelemetry(pub(super) Arc<Mutex<WorkerState>>);

/// State of a worker's telemetry.
pub(super) struct WorkerState {
    pub(super) counters: WorkerCounters,
    pub(super) decisions: DecisionRing,
    pub(super) spenders: RecentSpenders,
    lines: LineWriter,
    log: Option<LogBuffer>,
    /// Buffer for a line that is not written to the access log.
    scratch: Vec<u8>,
    pub(super) spans: SpanQueue,
}

impl WorkerTelemetry {
    pub(super) fn new(log: Option<LogBuffer>, started: Timestamp) -> Self {
        let (counters, decisions) = (WorkerCounters::default(), DecisionRing::new(DECISION_RING_LEN));
        let (lines, spenders) = (LineWriter::starting_at(started), RecentSpenders::new(started));
        Self(Arc::new(Mutex::new(WorkerState {
            counters,
            decisions,
            spenders,
            lines,
            log,
            scratch: Vec::new(),
            spans: SpanQueue::default(),
        })))
    }

    /// Counts a finished request, stores its decision and writes its line.
    pub fn record(&self, record: &Record<'_>) {
        let state = &mut *self.0.lock();
        state.counters.record(record);
        state.spenders.record(record);
        // Decisions are stored as JSON, which has all that an explanation needs.
        let out = match &mut state.log {
            Some(log) if log.format == AccessLogFormat::Json => log.bytes(),
            _ => &mut state.scratch,
        };
        let start = out.len();
        state.lines.write_json(out, record);
        state.decisions.push(record.id, &out[start..]);
        if let Some(log) = &mut state.log {
            if log.format == AccessLogFormat::Combined {
                state.lines.write_combined(log.bytes(), record);
            }
            log.end_line();
        }
        state.scratch.clear();
    }

    /// Queues the spans of a finished request for their export.
    pub fn trace(&self, spans: Spans) {
        self.0.lock().spans.push(spans);
    }

    /// Stores the decision of a request that is not finished. [`Self::record`] replaces it.
    pub fn preview(&self, record: &Record<'_>) {
        let WorkerState { lines, scratch, decisions, .. } = &mut *self.0.lock();
        lines.write_json(scratch, record);
        decisions.push(record.id, scratch);
        scratch.clear();
    }

    /// Counts the response to a request that was rejected as invalid, and writes its line. It is no decision: a flood of invalid
    /// requests must not push out those that are explained.
    pub fn reject(&self, rejected: &RejectedRecord<'_>) {
        let WorkerState { counters, lines, log, .. } = &mut *self.0.lock();
        counters.response_without_class(rejected.status);
        if let Some(log) = log {
            match log.format {
                AccessLogFormat::Json => lines.write_rejected_json(log.bytes(), rejected),
                AccessLogFormat::Combined => lines.write_rejected_combined(log.bytes(), rejected),
            }
            log.end_line();
        }
    }

    /// Counts a response to a request that no rule has decided on, and that is not logged: one whose head could not be read, for
    /// example.
    pub fn response_without_class(&self, status: u16) {
        self.0.lock().counters.response_without_class(status);
    }

    /// Counts an accepted connection.
    pub fn connection_opened(&self) {
        self.0.lock().counters.connection_opened();
    }

    /// Counts a closed connection.
    pub fn connection_closed(&self) {
        self.0.lock().counters.connection_closed();
    }

    /// Counts a connection that was closed because a limit was reached.
    pub fn connection_refused(&self) {
        self.0.lock().counters.connection_refused();
    }

    /// Counts a TLS handshake.
    pub fn tls_handshake(&self, result: HandshakeResult) {
        self.0.lock().counters.tls_handshake(result);
    }

    /// Records the `bytes` that the open connections occupy, and counts connections `closed` to free memory.
    pub fn connection_memory(&self, bytes: u64, closed: u64) {
        self.0.lock().counters.connection_memory(bytes, closed);
    }

    /// Counts a request of `scopes` that is sent to the origin.
    pub fn upstream_started(&self, scopes: &[ScopeId], names: &dyn NameResolver) {
        self.0.lock().counters.each_scope(names, scopes, |scope| scope.inflight += 1);
    }

    /// Ends a request counted by [`Self::upstream_started`]. The scopes must be the same.
    pub fn upstream_finished(&self, scopes: &[ScopeId], names: &dyn NameResolver) {
        self.0.lock().counters.each_scope(names, scopes, |scope| scope.inflight = scope.inflight.saturating_sub(1));
    }

    /// Hands the buffered lines to the writer. Called at every tick and when the worker ends; never waits.
    pub fn flush(&self) {
        if let Some(log) = &mut self.0.lock().log {
            log.flush();
        }
    }
}

/// Number of decisions that each worker stores.
pub const DECISION_RING_LEN: usize = 1024;
