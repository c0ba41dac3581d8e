//! One pass over a log, for one or two policies.

use super::assumptions::Assumptions;
use super::comparison::Differences;
use super::decision::ReplayedDecision;
use super::log::{
    LineCounts, LineError, LinePosition, LogField, LogLine, LogReadError, MergedLog, MissingFields, OrderedLine,
    ProgressCallback,
};
use super::policy::Policy;
use super::report::{LineErrorReport, LogReport, MissingFieldReport, Report};
use super::request::ReplayRequest;
use super::simulator::Simulator;
use super::verdicts;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::time::Duration;
use tidegate_engine::LearnedDemand;
use tidegate_policy::Timestamp;
use tidegate_policy::bot_detection::LearnedBaseline;

/// Input of a replay.
pub struct Replay {
    /// Names of the files.
    pub files: Vec<String>,
    /// Lines of the files in the order of time.
    pub lines: MergedLog,
    /// Maximum lateness of a line that is sorted.
    pub reorder_window: Duration,
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
    #[error("no requests found in {lines} lines{hint}; expected an access log")]
    NoRequests {
        /// Number of lines.
        lines: u64,
        /// Most frequent error of the lines.
        hint: String,
    },
}

/// What a gateway would have learned from a log.
pub struct LogLearning {
    /// The log.
    pub log: LogReport,
    /// Start and end of the longest time without a line.
    pub longest_gap: (Timestamp, Timestamp),
    /// Demand by quota and class.
    pub demand: Vec<LearnedDemand>,
    /// Baseline of the site, for bot detection.
    pub baseline: LearnedBaseline,
}

impl Replay {
    /// Replays the lines under `policy` and, for a comparison, under `other`. Writes the decisions to `verdicts`.
    pub fn run(
        self,
        policy: Policy,
        other: Option<Policy>,
        verdicts: Option<&mut dyn Write>,
        watch: &mut ProgressCallback<'_>,
    ) -> Result<Report, ReplayError> {
        // A pass borrows everything for one lifetime; shorten that of `verdicts` to that of the files.
        let verdicts = verdicts.map(|out| out as &mut dyn Write);
        let mut pass = ReplayPass::new(&self.files, &self.assumptions, (policy, other), verdicts);
        let lines = pass.process_all(self.lines, watch)?;
        pass.verdicts.as_mut().map_or(Ok(()), |out| out.flush())?;
        let ReplayPass { simulators, differences, stats, .. } = pass;
        if stats.requests == 0 {
            return Err(ReplayError::no_requests(&lines.counts));
        }
        Ok(Report {
            log: log_report(&self.files, &lines, self.reorder_window, &stats, &self.assumptions),
            assumptions: self.assumptions,
            policies: simulators.into_iter().map(Simulator::finish).collect(),
            comparison: differences.map(Differences::report),
        })
    }

    /// Returns what a gateway with `policy` would have learned from the lines.
    pub fn learn(self, policy: Policy, watch: &mut ProgressCallback<'_>) -> Result<LogLearning, ReplayError> {
        let mut pass = ReplayPass::new(&self.files, &self.assumptions, (policy, None), None);
        pass.learns = true;
        let lines = pass.process_all(self.lines, watch)?;
        let ReplayPass { simulators, stats, .. } = pass;
        let Some(simulator) = simulators.into_iter().next() else {
            return Err(ReplayError::no_requests(&lines.counts));
        };
        let (demand, baseline) = simulator.learned(stats.last);
        let log = log_report(&self.files, &lines, self.reorder_window, &stats, &self.assumptions);
        Ok(LogLearning { log, longest_gap: stats.longest_gap, demand, baseline })
    }
}

fn log_report(
    files: &[String],
    lines: &MergedLog,
    reorder_window: Duration,
    stats: &LogStats,
    assumptions: &Assumptions,
) -> LogReport {
    let counts = &lines.counts;
    // FILE:LINE.
    let position_text = |position: LinePosition| format!("{}:{}", files[position.file], position.number);
    let error_report = |(kind, (lines, first)): (&LineError, &(u64, LinePosition))| {
        (kind.name(), LineErrorReport { lines: *lines, first: position_text(*first), what: kind.message() })
    };
    LogReport {
        files: files.to_vec(),
        lines: counts.lines,
        requests: stats.requests,
        clients: lines.client_notes(),
        empty: counts.empty,
        invalid_lines: counts.invalid_lines.iter().map(error_report).collect(),
        non_requests: stats.non_requests,
        first_non_request: stats.first_non_request.map(position_text),
        out_of_order: counts.out_of_order,
        late: counts.late,
        window_s: reorder_window.as_secs(),
        first: stats.first,
        last: stats.last,
        span_s: stats.last.saturating_duration_since(stats.first).as_secs(),
        missing_fields: stats.missing_field_reports(assumptions),
    }
}

/// State of one pass over the lines.
struct ReplayPass<'a> {
    files: &'a [String],
    assumptions: &'a Assumptions,
    /// Policies, until the first line defines their start time.
    pending_policies: Option<(Policy, Option<Policy>)>,
    simulators: Vec<Simulator>,
    differences: Option<Differences>,
    stats: LogStats,
    verdicts: Option<&'a mut dyn Write>,
    write_result: io::Result<()>,
    /// True if the hours are observed for what a gateway learns.
    learns: bool,
}

impl<'a> ReplayPass<'a> {
    fn new(
        files: &'a [String],
        assumptions: &'a Assumptions,
        policies: (Policy, Option<Policy>),
        verdicts: Option<&'a mut dyn Write>,
    ) -> Self {
        let differences = policies.1.is_some().then(Differences::default);
        let (simulators, stats) = (Vec::new(), LogStats::default());
        Self {
            files,
            assumptions,
            pending_policies: Some(policies),
            simulators,
            differences,
            stats,
            verdicts,
            write_result: Ok(()),
            learns: false,
        }
    }

    /// Processes all lines. Returns the log at its end.
    fn process_all(&mut self, lines: MergedLog, watch: &mut ProgressCallback<'_>) -> Result<MergedLog, ReplayError> {
        let processed = lines.try_for_each(watch, |next, line| {
            self.process_line(next, line);
            match std::mem::replace(&mut self.write_result, Ok(())) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            }
        })?;
        match processed {
            ControlFlow::Continue(lines) => Ok(lines),
            ControlFlow::Break(error) => Err(error.into()),
        }
    }

    fn process_line(&mut self, next: OrderedLine<'_>, line: &LogLine<'_>) {
        let Some(request) = ReplayRequest::from_line(line) else {
            self.stats.non_requests += 1;
            let first = self.stats.first_non_request.get_or_insert(next.position);
            *first = next.position.min(*first);
            return;
        };
        if let Some((policy, other)) = self.pending_policies.take() {
            let simulator = |policy| Simulator::new(policy, self.assumptions, next.at);
            self.simulators.extend([Some(policy), other].into_iter().flatten().map(simulator));
            if self.learns {
                self.simulators.iter_mut().for_each(|simulator| simulator.start_learning(next.at));
            }
            (self.stats.first, self.stats.last) = (next.at, next.at);
        }
        self.stats.add(next.at, line.missing);
        let Self { files, simulators, differences, verdicts, write_result, .. } = self;
        let mut decisions: [Option<ReplayedDecision>; 2] = [None, None];
        for (index, simulator) in simulators.iter_mut().enumerate() {
            simulator.process(next, line, &request, &mut |policy, decision| {
                if write_result.is_ok()
                    && let Some(out) = verdicts
                {
                    *write_result = verdicts::write(out, files, policy, decision, differences.is_some());
                }
                // Retries are excluded from the comparison.
                if differences.is_some() && decision.position == next.position {
                    decisions[index] = Some(decision.clone());
                }
            });
        }
        if let (Some(differences), [Some(first), Some(second)]) = (differences, &decisions) {
            differences.add((first, simulators[0].rules()), (second, simulators[1].rules()));
        }
    }
}

/// Counts of the lines read.
struct LogStats {
    requests: u64,
    non_requests: u64,
    first_non_request: Option<LinePosition>,
    first: Timestamp,
    last: Timestamp,
    /// Start and end of the longest time without a request.
    longest_gap: (Timestamp, Timestamp),
    /// Number of lines by their set of missing fields ([`MissingFields::bits`]).
    missing_field_counts: [u64; 256],
}

impl Default for LogStats {
    fn default() -> Self {
        let (first, last, longest_gap) = Default::default();
        Self {
            requests: 0,
            non_requests: 0,
            first_non_request: None,
            first,
            last,
            longest_gap,
            missing_field_counts: [0; 256],
        }
    }
}

impl LogStats {
    fn add(&mut self, at: Timestamp, missing: MissingFields) {
        self.requests += 1;
        if at.saturating_duration_since(self.last) > self.longest_gap.1.saturating_duration_since(self.longest_gap.0) {
            self.longest_gap = (self.last, at);
        }
        self.last = self.last.max(at);
        self.missing_field_counts[usize::from(missing.bits())] += 1;
    }

    fn missing_field_reports(&self, assumptions: &Assumptions) -> Vec<MissingFieldReport> {
        let lines = |fact: LogField| {
            let is_missing = |bits: &usize| MissingFields::from_bits(*bits as u8).contains(fact);
            (0..self.missing_field_counts.len()).filter(is_missing).map(|bits| self.missing_field_counts[bits]).sum()
        };
        let report = |fact: LogField| MissingFieldReport {
            fact: fact.name(),
            lines: lines(fact),
            instead: assumptions.substitute_for(fact),
        };
        LogField::ALL.into_iter().map(report).filter(|report| report.lines > 0).collect()
    }
}

impl ReplayError {
    /// Creates the error for a log without requests.
    pub fn no_requests(counts: &LineCounts) -> Self {
        let most_frequent = counts.invalid_lines.iter().max_by_key(|(_, (lines, _))| *lines);
        let hint =
            most_frequent.map_or(String::new(), |(kind, (lines, _))| format!(", {lines} of them {}", kind.message()));
        Self::NoRequests { lines: counts.lines, hint }
    }
}
