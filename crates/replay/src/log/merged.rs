//! Merges the lines of several files in the order of time.
//!
//! Servers write a line when its request is complete, so a log is never quite in order. Lines are buffered until a line
//! has been read that is later by the reorder window. A line that is late by more takes the latest time returned
//! before.
//!
//! Lines of the gateway's own log with nearly the same time are returned in the order of their decisions.

use super::LineError;
use super::file_format::FileFormat;
use super::native::{self, LogSequenceDomain, Sequence};
use super::source::{LogReadError, LogSource, NumberedLine};
use serde::Serialize;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;
use tidegate_policy::Timestamp;

/// Returns the lines of several sources in the order of time.
pub struct MergedLog {
    reorder_window: Duration,
    streams: Vec<Stream>,
    buffer: VecDeque<BufferedLine>,
    buffer_bytes: usize,
    /// Sequence numbers of buffered decisions, one map per sequence domain of each file.
    sequences: Vec<BTreeMap<Sequence, SortKey>>,
    /// Indexes of these maps, by file and sequence domain.
    domain_indexes: HashMap<(usize, LogSequenceDomain), usize>,
    current: BufferedLine,
    latest: Timestamp,
    spare: Vec<Vec<u8>>,
    count: u64,
    /// Formats of the files.
    formats: BTreeMap<usize, FormatNotes>,
    /// Counts of the lines read.
    pub counts: LineCounts,
}

/// Counts of the lines read, and of those out of order.
#[derive(Clone, Debug, Default)]
pub struct LineCounts {
    /// All lines.
    pub lines: u64,
    /// Empty lines, lines that name columns, and parts of a line that a later one completes.
    pub empty: u64,
    /// Invalid lines by error, with the position of the first of each in the order of the files.
    pub invalid_lines: BTreeMap<LineError, (u64, LinePosition)>,
    /// Lines out of order that were sorted.
    pub out_of_order: u64,
    /// Lines that were too late to be sorted.
    pub late: u64,
}

/// How the lines of a log were read, and their clients found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClientNotes {
    /// Formats of the files, each with its columns.
    pub formats: Vec<String>,
    /// Columns, each as a phrase.
    pub columns: Vec<String>,
    /// Doubts, each as a sentence.
    pub warnings: Vec<String>,
}

/// What was found out about a file.
struct FormatNotes {
    format: String,
    client: String,
    warnings: Vec<String>,
}

/// Position of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinePosition {
    /// Index of the file on the command line.
    pub file: usize,
    /// Line number, from 1.
    pub number: u64,
}

/// A line in the order of time.
#[derive(Clone, Copy, Debug)]
pub struct OrderedLine<'a> {
    /// Time of the request; not before the previous line, except for lines ordered by their decisions.
    pub at: Timestamp,
    /// Position of the line.
    pub position: LinePosition,
    /// Text of the line.
    pub text: &'a [u8],
}

/// A file, and the latest time read from it.
struct Stream {
    source: LogSource,
    /// Format of its lines, once the first line is read.
    format: Option<FileFormat>,
    file: usize,
    latest: Timestamp,
}

/// Sort key of lines: time, then order of reading.
type SortKey = (Timestamp, u64);

#[derive(Default)]
struct BufferedLine {
    key: SortKey,
    position: LinePosition,
    /// Sequence numbers of its decision, by domain.
    sequences: SmallVec<[(usize, Sequence); 2]>,
    text: Vec<u8>,
}

impl MergedLog {
    /// Creates a merged log of `sources`. Sorts lines that are late by at most `window`.
    pub fn new(sources: Vec<LogSource>, reorder_window: Duration) -> Self {
        let stream = |(file, source)| Stream { source, format: None, file, latest: Timestamp::default() };
        Self {
            reorder_window,
            streams: sources.into_iter().enumerate().map(stream).collect(),
            buffer: VecDeque::new(),
            buffer_bytes: 0,
            sequences: Vec::new(),
            domain_indexes: HashMap::new(),
            current: BufferedLine::default(),
            latest: Timestamp::default(),
            spare: Vec::new(),
            count: 0,
            formats: BTreeMap::new(),
            counts: LineCounts::default(),
        }
    }

    /// Returns the next line; `None` at the end.
    pub fn next_line(&mut self) -> Result<Option<OrderedLine<'_>>, LogReadError> {
        while let Some(stream) = self.next_stream() {
            self.read(stream)?;
        }
        Ok(self.next_ready_line())
    }

    /// Returns the next line; `None` at the end, or if a file has to be read first, which may take long for a pipe.
    pub(super) fn next_buffered_line(&mut self) -> Result<Option<OrderedLine<'_>>, LogReadError> {
        while let Some(stream) = self.next_stream() {
            if !self.streams[stream].source.has_line() {
                return Ok(None);
            }
            self.read(stream)?;
        }
        Ok(self.next_ready_line())
    }

    /// Returns the index of the stream whose next line may precede the first buffered one; `None` if there is none.
    fn next_stream(&self) -> Option<usize> {
        let earliest = || (0..self.streams.len()).min_by_key(|&index| self.streams[index].latest);
        if self.is_ready() { None } else { earliest() }
    }

    fn next_ready_line(&mut self) -> Option<OrderedLine<'_>> {
        let index = self.next_index()?;
        self.emit(index);
        let BufferedLine { key: (at, _), position, text, .. } = &self.current;
        Some(OrderedLine { at: *at, position: *position, text })
    }

    /// Returns how the lines of the files read so far were read, and their clients found: each distinct way, and each
    /// warning.
    pub fn client_notes(&self) -> ClientNotes {
        let columns: BTreeSet<String> = self.formats.values().map(|notes| notes.client.clone()).collect();
        let warnings: BTreeSet<String> = self.formats.values().flat_map(|notes| notes.warnings.clone()).collect();
        ClientNotes {
            formats: self.formats(),
            columns: columns.into_iter().collect(),
            warnings: warnings.into_iter().collect(),
        }
    }

    /// Returns the formats of the files read so far, each distinct one with its columns.
    fn formats(&self) -> Vec<String> {
        let formats: BTreeSet<&String> = self.formats.values().map(|notes| &notes.format).collect();
        formats.into_iter().filter(|format| !format.is_empty()).cloned().collect()
    }

    /// Counts a line as invalid.
    pub(super) fn count_line_error(&mut self, error: LineError, position: LinePosition) {
        let (count, first) = self.counts.invalid_lines.entry(error).or_insert((0, position));
        (*count, *first) = (*count + 1, position.min(*first));
    }

    /// Returns true if no line before the first buffered one can follow, or the buffer is full.
    fn is_ready(&self) -> bool {
        let Some(first) = self.buffer.front() else { return false };
        let is_full = self.buffer.len() >= MAX_BUFFERED_LINES || self.buffer_bytes >= MAX_BUFFERED_BYTES;
        let read_up_to = self.streams.iter().map(|stream| stream.latest).min();
        is_full || read_up_to.is_some_and(|read| read.saturating_duration_since(first.key.0) >= self.reorder_window)
    }

    /// Reads a line of the stream at `index`; removes the stream at its end.
    fn read(&mut self, index: usize) -> Result<(), LogReadError> {
        let Stream { source, format, file, latest } = &mut self.streams[index];
        let format = match format {
            Some(format) => format,
            None => {
                let options = source.options.clone();
                let detected = FileFormat::detect(source.first_lines()?, &options);
                let (name, client) = (detected.describe(), detected.describe_client());
                self.formats.insert(*file, FormatNotes { format: name, client, warnings: detected.warnings() });
                format.insert(detected)
            }
        };
        let Some(NumberedLine { number, text }) = source.next_line()? else {
            self.streams.remove(index);
            return Ok(());
        };
        self.counts.lines += 1;
        let position = LinePosition { file: *file, number };
        let text = match text {
            Ok(text) => text,
            Err(error) => {
                self.count_line_error(error, position);
                return Ok(());
            }
        };
        let mut normalized = self.spare.pop().unwrap_or_default();
        let at = match format.write_line(text, &mut normalized) {
            Ok(Some(at)) => at,
            skipped => {
                normalized.clear();
                self.spare.push(normalized);
                match skipped {
                    Err(error) => self.count_line_error(error, position),
                    Ok(_) => self.counts.empty += 1,
                }
                return Ok(());
            }
        };
        if at < *latest {
            match at < self.latest {
                true => self.counts.late += 1,
                false => self.counts.out_of_order += 1,
            }
        }
        *latest = at.max(*latest);
        self.count += 1;
        let mut buffered = BufferedLine {
            key: (at.max(self.latest), self.count),
            position,
            sequences: SmallVec::new(),
            text: normalized,
        };
        if buffered.text.starts_with(b"{") {
            buffered.sequences = native::decision_sequences(&buffered.text)
                .filter_map(|(domain, sequence)| {
                    Some((domain_index(&mut self.domain_indexes, (position.file, domain))?, sequence))
                })
                .collect();
            self.sequences.resize_with(self.domain_indexes.len(), BTreeMap::new);
            for &(account, sequence) in &buffered.sequences {
                self.sequences[account].insert(sequence, buffered.key);
            }
        }
        self.buffer_line(buffered);
        Ok(())
    }

    fn buffer_line(&mut self, buffered: BufferedLine) {
        self.buffer_bytes += buffered.text.len();
        match self.buffer.back().is_some_and(|last| last.key > buffered.key) {
            true => self.buffer.insert(self.buffer_index(buffered.key), buffered),
            false => self.buffer.push_back(buffered),
        }
    }

    fn buffer_index(&self, key: SortKey) -> usize {
        self.buffer.partition_point(|other| other.key < key)
    }

    /// Returns the index of the next line: the earliest, or one whose decision precedes it.
    fn next_index(&self) -> Option<usize> {
        let mut index = 0;
        let mut line = self.buffer.front()?;
        // A log that contradicts itself must not cause an endless loop.
        for _ in 0..MAX_REORDER_STEPS {
            let preceding = line.sequences.iter().find_map(|&(account, sequence)| {
                let (&first, &key) = self.sequences[account].first_key_value()?;
                (first < sequence && key.0.saturating_duration_since(line.key.0) <= MAX_DECISION_SKEW).then_some(key)
            });
            let Some(preceding) = preceding else { break };
            index = self.buffer_index(preceding);
            line = &self.buffer[index];
        }
        Some(index)
    }

    fn emit(&mut self, index: usize) {
        let Some(current) = self.buffer.remove(index) else { return };
        self.buffer_bytes -= current.text.len();
        for (account, sequence) in &current.sequences {
            self.sequences[*account].remove(sequence);
        }
        self.latest = self.latest.max(current.key.0);
        let mut spare = std::mem::replace(&mut self.current, current).text;
        if spare.capacity() <= MAX_SPARE_BYTES {
            spare.clear();
            self.spare.push(spare);
        }
    }
}

/// Returns the index of a sequence domain of a file; instances count separately.
fn domain_index(
    domain_indexes: &mut HashMap<(usize, LogSequenceDomain), usize>,
    account: (usize, LogSequenceDomain),
) -> Option<usize> {
    let next = domain_indexes.len();
    match domain_indexes.get(&account) {
        Some(index) => Some(*index),
        None => (next < MAX_SEQUENCE_DOMAINS).then(|| *domain_indexes.entry(account).or_insert(next)),
    }
}

/// Maximum number of buffered lines: one minute of a site with a thousand requests per second.
const MAX_BUFFERED_LINES: usize = 65_536;
/// Maximum size of the buffered lines.
const MAX_BUFFERED_BYTES: usize = 64 << 20;

/// Maximum capacity of a buffer that is reused for later lines.
const MAX_SPARE_BYTES: usize = 4096;

/// A request is decided at most this long after its time is taken, unless the machine stalls.
const MAX_DECISION_SKEW: Duration = Duration::from_secs(1);

/// Maximum number of steps through decisions that precede each other in a cycle.
const MAX_REORDER_STEPS: usize = 64;

/// More quotas than any configuration has; decisions of forged lines beyond it are not ordered.
const MAX_SEQUENCE_DOMAINS: usize = 1024;
