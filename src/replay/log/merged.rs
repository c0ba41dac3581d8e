//! The lines of several files in the order of time.
//!
//! Servers write a line when its request is over, so a log is never quite in order. Lines wait until nothing earlier is
//! to be expected: until a line has been read that is later by the window. What comes later still is taken at the latest
//! time that was given out.
//!
//! Where the gate wrote the log, lines of nearly the same moment are put in the order in which they were decided.

use super::native::{self, Sequence, SequenceDomain};
use super::source::{LogReadError, LogSource, Numbered};
use super::{LineError, LogLine, line};
use crate::policy::Timestamp;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

/// Gives out lines in the order of time.
pub struct MergedLog {
    window: Duration,
    streams: Vec<Stream>,
    waiting: VecDeque<BufferedLine>,
    waiting_bytes: usize,
    /// Decisions that wait, by their number, for each quota of each file and for its buckets.
    sequences: Vec<BTreeMap<Sequence, Key>>,
    /// The places of these.
    accounts: HashMap<(usize, SequenceDomain), usize>,
    current: BufferedLine,
    latest: Timestamp,
    spare: Vec<Vec<u8>>,
    count: u64,
    /// What was read.
    pub counts: Counts,
}

/// What was read, and what of it was out of order.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// All lines.
    pub lines: u64,
    /// Those with nothing in them.
    pub empty: u64,
    /// Those with something in them that is no request of a log, and the first of each kind.
    pub broken: BTreeMap<LineError, (u64, LinePosition)>,
    /// Those that were put in order.
    pub out_of_order: u64,
    /// Those that came too late for that.
    pub late: u64,
}

/// Where a line stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinePosition {
    /// The file, by its place among those that were named.
    pub file: usize,
    /// The line's number, from 1.
    pub number: u64,
}

/// A line, as it is given out.
#[derive(Clone, Copy, Debug)]
pub struct OrderedLine<'a> {
    /// When it came: at the earliest when the one before did, but for those of one moment.
    pub at: Timestamp,
    /// Where it stands.
    pub place: LinePosition,
    /// Its text.
    pub text: &'a [u8],
}

/// One file, and the latest time that was read in it.
struct Stream {
    source: LogSource,
    file: usize,
    latest: Timestamp,
}

/// What lines are ordered by: their time, then their turn to be read.
type Key = (Timestamp, u64);

#[derive(Default)]
struct BufferedLine {
    key: Key,
    place: LinePosition,
    /// Its decision's number on each account.
    sequences: SmallVec<[(usize, Sequence); 2]>,
    text: Vec<u8>,
}

impl MergedLog {
    /// The lines of `sources`; those that are out of order by no more than `window` are put in order.
    pub fn new(sources: Vec<LogSource>, window: Duration) -> Self {
        let stream = |(file, source)| Stream { source, file, latest: Timestamp::default() };
        Self {
            window,
            streams: sources.into_iter().enumerate().map(stream).collect(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            sequences: Vec::new(),
            accounts: HashMap::new(),
            current: BufferedLine::default(),
            latest: Timestamp::default(),
            spare: Vec::new(),
            count: 0,
            counts: Counts::default(),
        }
    }

    /// The next line; nothing at the end.
    pub fn next_line(&mut self) -> Result<Option<OrderedLine<'_>>, LogReadError> {
        while !self.is_ready() {
            let Some(least) = (0..self.streams.len()).min_by_key(|&place| self.streams[place].latest) else { break };
            self.read(least)?;
        }
        let Some(place) = self.first() else { return Ok(None) };
        self.emit(place);
        let BufferedLine { key: (at, _), place, text, .. } = &self.current;
        Ok(Some(OrderedLine { at: *at, place: *place, text }))
    }

    /// Counts the line that was given out last, or another, among the broken.
    pub fn count_line_error(&mut self, broken: LineError, place: LinePosition) {
        self.counts.broken.entry(broken).or_insert((0, place)).0 += 1;
    }

    /// True when nothing earlier is to be expected than the first line that waits, or there is no room for more.
    fn is_ready(&self) -> bool {
        let Some(first) = self.waiting.front() else { return false };
        let is_full = self.waiting.len() >= MAX_BUFFERED_LINES || self.waiting_bytes >= MAX_BUFFERED_BYTES;
        let read_up_to = self.streams.iter().map(|stream| stream.latest).min();
        is_full || read_up_to.is_some_and(|read| read.saturating_duration_since(first.key.0) >= self.window)
    }

    /// Reads a line of the stream at `place`; the stream goes at its end.
    fn read(&mut self, place: usize) -> Result<(), LogReadError> {
        let Stream { source, file, latest } = &mut self.streams[place];
        let Some(Numbered { number, text }) = source.next_line()? else {
            self.streams.remove(place);
            return Ok(());
        };
        self.counts.lines += 1;
        let place = LinePosition { file: *file, number };
        let text = match text {
            Ok(text) => text,
            Err(broken) => {
                self.count_line_error(broken, place);
                return Ok(());
            }
        };
        let Some(at) = line::moment(text) else {
            match LogLine::read(text).err() {
                Some(broken) => self.count_line_error(broken, place),
                None => self.counts.empty += 1,
            }
            return Ok(());
        };
        if at < *latest {
            match at < self.latest {
                true => self.counts.late += 1,
                false => self.counts.out_of_order += 1,
            }
        }
        *latest = at.max(*latest);
        self.count += 1;
        let mut waiting = BufferedLine {
            key: (at.max(self.latest), self.count),
            place,
            sequences: SmallVec::new(),
            text: self.spare.pop().unwrap_or_default(),
        };
        waiting.text.extend_from_slice(text);
        if text.starts_with(b"{") {
            waiting.sequences = native::turns(&waiting.text)
                .filter_map(|(by, turn)| Some((account(&mut self.accounts, (place.file, by))?, turn)))
                .collect();
            self.sequences.resize_with(self.accounts.len(), BTreeMap::new);
            for &(account, turn) in &waiting.sequences {
                self.sequences[account].insert(turn, waiting.key);
            }
        }
        self.wait(waiting);
        Ok(())
    }

    fn wait(&mut self, waiting: BufferedLine) {
        self.waiting_bytes += waiting.text.len();
        match self.waiting.back().is_some_and(|last| last.key > waiting.key) {
            true => self.waiting.insert(self.place_of(waiting.key), waiting),
            false => self.waiting.push_back(waiting),
        }
    }

    fn place_of(&self, key: Key) -> usize {
        self.waiting.partition_point(|other| other.key < key)
    }

    /// The place of the line that is to be given out: the earliest, or one that was decided before it.
    fn first(&self) -> Option<usize> {
        let mut place = 0;
        let mut line = self.waiting.front()?;
        // Logs that contradict themselves must not lead in a circle.
        for _ in 0..MAX_REORDER_STEPS {
            let before = line.sequences.iter().find_map(|&(account, turn)| {
                let (&first, &key) = self.sequences[account].first_key_value()?;
                (first < turn && key.0.saturating_duration_since(line.key.0) <= MAX_DECISION_SKEW).then_some(key)
            });
            let Some(before) = before else { break };
            place = self.place_of(before);
            line = &self.waiting[place];
        }
        Some(place)
    }

    fn emit(&mut self, place: usize) {
        let Some(current) = self.waiting.remove(place) else { return };
        self.waiting_bytes -= current.text.len();
        for (account, turn) in &current.sequences {
            self.sequences[*account].remove(turn);
        }
        self.latest = self.latest.max(current.key.0);
        let mut spare = std::mem::replace(&mut self.current, current).text;
        if spare.capacity() <= SPARE_BYTES {
            spare.clear();
            self.spare.push(spare);
        }
    }
}

/// The place of what decisions of a file are counted by: two gates count on their own.
fn account(known: &mut HashMap<(usize, SequenceDomain), usize>, account: (usize, SequenceDomain)) -> Option<usize> {
    let next = known.len();
    match known.get(&account) {
        Some(place) => Some(*place),
        None => (next < MAX_SEQUENCE_DOMAINS).then(|| *known.entry(account).or_insert(next)),
    }
}

/// Lines that may wait: a minute of a site with a thousand requests a second ...
const MAX_BUFFERED_LINES: usize = 65_536;
/// ... and the bytes of them.
const MAX_BUFFERED_BYTES: usize = 64 << 20;

/// Room that is kept for the next line.
const SPARE_BYTES: usize = 4096;

/// A request is decided this soon after it was looked at, or the machine stands still.
const MAX_DECISION_SKEW: Duration = Duration::from_secs(1);

/// How many decisions may stand before one another in circles.
const MAX_REORDER_STEPS: usize = 64;

/// More quotas than anybody has; what made-up lines name beyond is not put in order.
const MAX_SEQUENCE_DOMAINS: usize = 1024;
