//! Which requests are exported, and the queue of those that are.

use super::context::{Parent, TraceContext};
use super::spans::Spans;
use tidegate_access_log::{Record, RecordedOutcome};
use tidegate_config::settings::Traces;

/// Choice of the requests that are exported.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a>(pub &'a Traces);

impl Choice<'_> {
    /// Returns true if a request is exported whatever becomes of it: as a trusted sender has chosen, or by `random`, a number
    /// in [0, 1] that its client cannot choose.
    pub fn samples(self, trusted: Option<Parent>, random: f64) -> bool {
        trusted.map_or_else(|| random < self.0.sample.ratio(), |parent| parent.is_sampled)
    }

    /// Returns true if a finished request is exported: a sampled one, a refusal, a failure, or one that waited long for its
    /// turn and the origin. A client that reads slowly does not make its requests slow ones.
    pub fn keeps(self, context: &TraceContext, record: &Record<'_>) -> bool {
        let wait = record.decision.scope_wait + record.response.origin.map(|call| call.duration).unwrap_or_default();
        context.is_sampled
            || matches!(record.decision.outcome, RecordedOutcome::Refused(_))
            || record.response.status >= 500
            || wait >= self.0.slow
    }
}

/// Maximum number of requests that wait for their export.
pub const QUEUE_LENGTH: usize = 1024;

/// Finished requests that wait for their export.
#[derive(Debug, Default)]
pub struct SpanQueue {
    spans: Vec<Spans>,
    dropped: u64,
}

impl SpanQueue {
    /// Adds a request. It is dropped if the queue is full, or half full for a refusal that is not sampled: one client can be
    /// refused any number of times, and would displace what is rare.
    pub fn push(&mut self, spans: Spans) {
        let is_common = spans.refusal.is_some() && !spans.context.is_sampled;
        let length = if is_common { QUEUE_LENGTH / 2 } else { QUEUE_LENGTH };
        match self.spans.len() < length {
            true => self.spans.push(spans),
            false => self.dropped += 1,
        }
    }

    /// Removes all requests, and appends them to `out`. Returns the number of those dropped since the last call.
    pub fn drain_into(&mut self, out: &mut Vec<Spans>) -> u64 {
        out.append(&mut self.spans);
        std::mem::take(&mut self.dropped)
    }
}
