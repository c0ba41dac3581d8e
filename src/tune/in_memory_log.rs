//! A log in memory, read once and replayed many times.
//!
//! Lines are stored as text and pass through the complete [`Simulator`] in each replay. Even the class of a client may
//! depend on earlier responses, so it differs between policies.

use super::tuner::TuneError;
use crate::policy::Timestamp;
use crate::replay::log::{LineError, LinePosition, LogLine, MergedLog, OrderedLine};
use crate::replay::report::{PolicyReport, WindowReport};
use crate::replay::{self, Assumptions, Policy, ReplayRequest, Simulator};

/// Requests of a log, in the order of time.
pub struct InMemoryLog {
    text: Vec<u8>,
    lines: Vec<LineIndex>,
}

/// A line of the text, which starts at the end of the previous line.
struct LineIndex {
    at: Timestamp,
    position: LinePosition,
    end: usize,
}

/// Time from the first to the last request of a log.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogSpan {
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

impl InMemoryLog {
    /// Reads all lines. Calls `on_progress` with the number of lines read.
    pub fn read(mut lines: MergedLog, on_progress: &mut dyn FnMut(u64)) -> Result<Self, TuneError> {
        let mut log = Self { text: Vec::new(), lines: Vec::new() };
        loop {
            if lines.counts.lines.is_multiple_of(PROGRESS_INTERVAL_LINES) {
                on_progress(lines.counts.lines);
            }
            let Some(next) = lines.next_line().map_err(replay::ReplayError::from)? else { break };
            let position = next.position;
            let result = log.push(next);
            if log.text.len() > MAX_BYTES {
                return Err(TuneError::TooLong { first: log.span().first, last: log.span().last });
            }
            if let Err(error) = result {
                lines.count_line_error(error, position);
            }
        }
        match log.lines.is_empty() {
            true => Err(replay::ReplayError::no_requests(&lines.counts).into()),
            false => Ok(log),
        }
    }

    fn push(&mut self, next: OrderedLine<'_>) -> Result<(), LineError> {
        if LogLine::read(next.text)?.as_ref().and_then(ReplayRequest::from_line).is_some() {
            self.text.extend_from_slice(next.text);
            self.lines.push(LineIndex { at: next.at, position: next.position, end: self.text.len() });
        }
        Ok(())
    }

    /// Returns the number of requests.
    pub fn request_count(&self) -> u64 {
        self.lines.len() as u64
    }

    /// Returns the times of the first and last request.
    pub(super) fn span(&self) -> LogSpan {
        let (first, last) = (self.lines.first(), self.lines.last());
        let at = |line: Option<&LineIndex>| line.map_or_else(Timestamp::default, |line| line.at);
        LogSpan { first: at(first), last: at(last) }
    }

    /// Replays the log under `policy`.
    pub(super) fn replay(&self, policy: Policy, assumptions: &Assumptions) -> PolicyReport {
        let mut simulator = Simulator::new(policy, assumptions, self.span().first);
        let mut begin = 0;
        for line in &self.lines {
            let text = &self.text[begin..line.end];
            begin = line.end;
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

impl LogSpan {
    /// Returns true if the log covers nearly all of a window; the usage of other windows is not representative.
    pub(super) fn covers(&self, window: &WindowReport) -> bool {
        let second = |text: &str| text.parse().map_or(0, jiff::Timestamp::as_second);
        let (start, end) = (second(&window.start), second(&window.end));
        let (first, last) = (self.first.seconds() as i64, self.last.seconds() as i64);
        let covered = end.min(last) - start.max(first);
        covered * 100 >= (end - start) * MIN_COVERAGE_PERCENT
    }
}

/// About four million lines of the combined format.
const MAX_BYTES: usize = 1 << 30;

/// Minimum share of a covered window; the first and last minutes of a day are often without requests.
const MIN_COVERAGE_PERCENT: i64 = 95;

/// Interval of progress callbacks, in lines: at most a hundredth of a second.
const PROGRESS_INTERVAL_LINES: u64 = 8192;
