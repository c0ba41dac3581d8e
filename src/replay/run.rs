//! One pass over a log, for one or two policies.

use super::assumptions::Assumptions;
use super::comparison::Differences;
use super::decision::ReplayedDecision;
use super::log::{
    Counts, LineError, LinePosition, LogField, LogLine, LogReadError, MergedLog, MissingFields, OrderedLine,
};
use super::policy::Policy;
use super::report::{LineErrorReport, LogReport, MissingFieldReport, Report};
use super::request::ReplayRequest;
use super::simulator::Simulator;
use super::verdicts;
use crate::policy::Timestamp;
use crate::telemetry::rfc3339;
use std::io::{self, Write};
use std::time::Duration;

/// Input of a replay.
pub struct Replay {
    /// Names of the files.
    pub files: Vec<String>,
    /// Lines of the files in the order of time.
    pub lines: MergedLog,
    /// Maximum lateness of a line that is sorted.
    pub window: Duration,
    /// Values that replace facts missing from the log.
    pub assumptions: Assumptions,
}

/// Reason why a replay has no result.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A file cannot be read to its end.
    #[error(transparent)]
    Unreadable(#[from] LogReadError),
    /// The verdicts cannot be written.
    #[error("cannot write the verdicts: {0}")]
    Verdicts(#[from] io::Error),
    /// No file contains a request.
    #[error("no requests found in {lines} lines{hint}; expected an access log in combined, common or Tidegate format")]
    NoRequests {
        /// Number of lines.
        lines: u64,
        /// Most frequent error of the lines.
        hint: String,
    },
}

/// Callback for the progress of a replay.
pub type Watcher<'a> = dyn FnMut(&Counts) + 'a;

impl Replay {
    /// Replays the lines under `policy` and, for a comparison, under `other`. Writes the decisions to `verdicts`.
    pub fn run(
        mut self,
        policy: Policy,
        other: Option<Policy>,
        verdicts: Option<&mut dyn Write>,
        watch: &mut Watcher<'_>,
    ) -> Result<Report, ReplayError> {
        // A pass borrows everything for one lifetime; shorten that of `verdicts` to that of the files.
        let verdicts = verdicts.map(|out| out as &mut dyn Write);
        let mut pass = ReplayPass::new(&self.files, &self.assumptions, (policy, other), verdicts);
        loop {
            if self.lines.counts.lines.is_multiple_of(PROGRESS_INTERVAL_LINES) {
                watch(&self.lines.counts);
            }
            let Some(next) = self.lines.next_line()? else { break };
            let place = next.place;
            if let Err(broken) = pass.process_line(next) {
                self.lines.count_line_error(broken, place);
            }
            pass.check_writable()?;
        }
        watch(&self.lines.counts);
        pass.verdicts.as_mut().map_or(Ok(()), |out| out.flush())?;
        let ReplayPass { trials, differences, seen, .. } = pass;
        if seen.requests == 0 {
            return Err(ReplayError::no_requests(&self.lines.counts));
        }
        Ok(Report {
            log: self.log(&seen),
            assumptions: self.assumptions.report(),
            policies: trials.into_iter().map(Simulator::end).collect(),
            comparison: differences.map(Differences::report),
        })
    }

    fn log(&self, seen: &LogStats) -> LogReport {
        let counts = &self.lines.counts;
        let broken = |(kind, (lines, first)): (&LineError, &(u64, LinePosition))| {
            (kind.name(), LineErrorReport { lines: *lines, first: self.named(*first), what: kind.message() })
        };
        LogReport {
            files: self.files.clone(),
            lines: counts.lines,
            requests: seen.requests,
            empty: counts.empty,
            invalid_lines: counts.broken.iter().map(broken).collect(),
            non_requests: seen.not_requests,
            first_non_request: seen.first_not_request.map(|place| self.named(place)),
            out_of_order: counts.out_of_order,
            late: counts.late,
            window_s: self.window.as_secs(),
            first: Some(rfc3339(seen.first)),
            last: Some(rfc3339(seen.last)),
            span_s: seen.last.saturating_duration_since(seen.first).as_secs(),
            missing_fields: seen.missing_field_reports(&self.assumptions),
        }
    }

    /// Returns a position as FILE:LINE.
    fn named(&self, place: LinePosition) -> String {
        format!("{}:{}", self.files[place.file], place.number)
    }
}

/// State of one pass over the lines.
struct ReplayPass<'a> {
    files: &'a [String],
    assumptions: &'a Assumptions,
    /// Policies, until the first line defines their start time.
    waiting: Option<(Policy, Option<Policy>)>,
    trials: Vec<Simulator>,
    differences: Option<Differences>,
    seen: LogStats,
    verdicts: Option<&'a mut dyn Write>,
    written: io::Result<()>,
}

impl<'a> ReplayPass<'a> {
    fn new(
        files: &'a [String],
        assumptions: &'a Assumptions,
        policies: (Policy, Option<Policy>),
        verdicts: Option<&'a mut dyn Write>,
    ) -> Self {
        let differences = policies.1.is_some().then(Differences::default);
        let (trials, seen) = (Vec::new(), LogStats::default());
        Self { files, assumptions, waiting: Some(policies), trials, differences, seen, verdicts, written: Ok(()) }
    }

    fn process_line(&mut self, next: OrderedLine<'_>) -> Result<(), LineError> {
        // Parsed in place: a line is expensive to move.
        let read = LogLine::read(next.text);
        let line = match &read {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(()),
            Err(broken) => return Err(*broken),
        };
        let Some(request) = ReplayRequest::of(line) else {
            self.seen.not_requests += 1;
            self.seen.first_not_request.get_or_insert(next.place);
            return Ok(());
        };
        if let Some((policy, other)) = self.waiting.take() {
            let trial = |policy| Simulator::new(policy, self.assumptions, next.at);
            self.trials.extend([Some(policy), other].into_iter().flatten().map(trial));
            self.seen.first = next.at;
        }
        self.seen.add(next.at, line.missing);
        let Self { files, trials, differences, verdicts, written, .. } = self;
        let mut said: [Option<ReplayedDecision>; 2] = [None, None];
        for (number, trial) in trials.iter_mut().enumerate() {
            trial.process(next, line, &request, &mut |trial, decided| {
                if written.is_ok()
                    && let Some(out) = verdicts
                {
                    let policy = differences.is_some().then(|| trial.name());
                    *written = verdicts::write(out, files, trial, decided, policy);
                }
                // Retries are excluded from the comparison.
                if differences.is_some() && decided.place == next.place {
                    said[number] = Some(decided.clone());
                }
            });
        }
        if let (Some(differences), [Some(first), Some(second)]) = (differences, &said) {
            differences.add((first, trials[0].rules()), (second, trials[1].rules()));
        }
        Ok(())
    }

    /// Returns the error of the last write of verdicts.
    fn check_writable(&mut self) -> io::Result<()> {
        std::mem::replace(&mut self.written, Ok(()))
    }
}

/// Counts of the lines read.
struct LogStats {
    requests: u64,
    not_requests: u64,
    first_not_request: Option<LinePosition>,
    first: Timestamp,
    last: Timestamp,
    /// Number of lines by their set of missing fields ([`MissingFields::bits`]).
    lacks: [u64; 256],
}

impl Default for LogStats {
    fn default() -> Self {
        let (first, last) = Default::default();
        Self { requests: 0, not_requests: 0, first_not_request: None, first, last, lacks: [0; 256] }
    }
}

impl LogStats {
    fn add(&mut self, at: Timestamp, lacks: MissingFields) {
        self.requests += 1;
        self.last = self.last.max(at);
        self.lacks[usize::from(lacks.bits())] += 1;
    }

    fn missing_field_reports(&self, assumptions: &Assumptions) -> Vec<MissingFieldReport> {
        let lines = |fact: LogField| {
            let lacks = |number: &usize| MissingFields::from_bits(*number as u8).contains(fact);
            (0..self.lacks.len()).filter(lacks).map(|number| self.lacks[number]).sum()
        };
        let lack = |fact: LogField| MissingFieldReport {
            fact: fact.name(),
            lines: lines(fact),
            instead: assumptions.substitute_for(fact),
        };
        LogField::ALL.into_iter().map(lack).filter(|lack| lack.lines > 0).collect()
    }
}

impl ReplayError {
    /// Creates the error for a log without requests.
    pub fn no_requests(counts: &Counts) -> Self {
        let most = counts.broken.iter().max_by_key(|(_, (lines, _))| *lines);
        let hint = most.map_or(String::new(), |(kind, (lines, _))| format!(", {lines} of them {}", kind.message()));
        Self::NoRequests { lines: counts.lines, hint }
    }
}

/// Interval of progress callbacks, in lines: at most a hundredth of a second.
pub(super) const PROGRESS_INTERVAL_LINES: u64 = 8192;
