//! A log in memory, read once and replayed many times.
//!
//! Lines are stored as text and pass through the complete [`Simulator`] in each replay. Even the class of a client may
//! depend on earlier responses, so it differs between policies.

use super::error::TuneError;
use crate::log::{ClientNotes, LinePosition, LogLine, MergedLog, OrderedLine, ProgressCallback};
use crate::log_span::LogSpan;
use crate::report::PolicyReport;
use crate::{self as replay, Assumptions, Policy, ReplayRequest, Simulator};
use std::ops::ControlFlow;
use tidegate_policy::Timestamp;

/// Requests of a log, in the order of time.
pub struct InMemoryLog {
    /// Texts of all lines, without separators.
    text: Vec<u8>,
    lines: Vec<LineIndex>,
    /// How the clients were found.
    pub(super) clients: ClientNotes,
}

/// Location of a line in the text. A line starts where the previous one ends.
struct LineIndex {
    at: Timestamp,
    position: LinePosition,
    /// End of the line in the text, in bytes.
    end: usize,
}

impl InMemoryLog {
    /// Reads all lines. Calls `watch` with the number of lines read.
    pub fn read(lines: MergedLog, watch: &mut ProgressCallback<'_>) -> Result<Self, TuneError> {
        let mut log = Self { text: Vec::new(), lines: Vec::new(), clients: ClientNotes::default() };
        let read = lines.try_for_each(watch, |next, line| {
            log.push(next, line);
            if log.text.len() > MAX_BYTES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let ControlFlow::Continue(lines) = read.map_err(replay::ReplayError::from)? else {
            let LogSpan { first, last } = log.span();
            return Err(TuneError::TooLong { first, last });
        };
        log.clients = lines.client_notes();
        match log.lines.is_empty() {
            true => Err(replay::ReplayError::no_requests(&lines.counts).into()),
            false => Ok(log),
        }
    }

    /// Stores a line, unless it contains no request.
    fn push(&mut self, next: OrderedLine<'_>, line: &LogLine<'_>) {
        if ReplayRequest::from_line(line).is_some() {
            self.text.extend_from_slice(next.text);
            self.lines.push(LineIndex { at: next.at, position: next.position, end: self.text.len() });
        }
    }

    /// Returns the number of requests.
    pub fn request_count(&self) -> u64 {
        self.lines.len() as u64
    }

    /// Returns the times of the first and last request.
    pub(super) fn span(&self) -> LogSpan {
        let time_of = |line: Option<&LineIndex>| line.map_or_else(Timestamp::default, |line| line.at);
        LogSpan { first: time_of(self.lines.first()), last: time_of(self.lines.last()) }
    }

    /// Replays the log under `policy`.
    pub(super) fn replay(&self, policy: Policy, assumptions: &Assumptions) -> PolicyReport {
        let mut simulator = Simulator::new(policy, assumptions, self.span().first);
        let mut start = 0;
        for line in &self.lines {
            let text = &self.text[start..line.end];
            start = line.end;
            // Every stored line passed both checks in `push`.
            let Ok(Some(log_line)) = LogLine::read(text) else { continue };
            let Some(request) = ReplayRequest::from_line(&log_line) else { continue };
            simulator.process(
                OrderedLine { at: line.at, position: line.position, text },
                &log_line,
                &request,
                &mut |_, _| {},
            );
        }
        simulator.finish()
    }
}

/// Maximum size of the stored lines, as in the message of [`TuneError::TooLong`]: about four million lines of the
/// combined format.
const MAX_BYTES: usize = 1 << 30;
