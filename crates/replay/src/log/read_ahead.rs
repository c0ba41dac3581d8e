//! Reads and parses lines on a thread of its own, ahead of their use.

use super::{LinePosition, LogLine, LogReadError, MergedLog, OrderedLine};
use self_cell::self_cell;
use std::convert::Infallible;
use std::ops::{ControlFlow, Range};
use std::panic::resume_unwind;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use tidegate_policy::Timestamp;

/// Callback for the number of lines read so far.
pub type ProgressCallback<'a> = dyn FnMut(u64) + 'a;

/// Batches in the queue at most.
const BATCHES_AHEAD: usize = 4;
/// Lines of a batch at most.
const BATCH_LINES: usize = 512;
/// Bytes of the lines after which a batch ends.
const BATCH_BYTES: usize = 256 * 1024;

self_cell!(
    /// Lines in the order of time, with their parsed fields.
    struct LineBatch {
        owner: BatchText,
        #[not_covariant]
        dependent: ParsedLines,
    }
);

type ParsedLines<'a> = Vec<(OrderedLine<'a>, LogLine<'a>)>;

/// Text of the lines of a batch.
struct BatchText {
    bytes: Vec<u8>,
    lines: Vec<(Timestamp, LinePosition, Range<usize>)>,
    /// Number of lines read up to the end of the batch.
    lines_read: u64,
}

impl BatchText {
    fn push(&mut self, OrderedLine { at, position, text }: OrderedLine<'_>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(text);
        self.lines.push((at, position, start..self.bytes.len()));
    }
}

impl MergedLog {
    /// Calls `use_line` with each valid line in the order of time, as [`Self::try_for_each`] does. Returns the log at its end.
    pub fn for_each(self, mut use_line: impl FnMut(OrderedLine<'_>, &LogLine<'_>)) -> Result<Self, LogReadError> {
        let ended = self.try_for_each(&mut |_| {}, |next, line| {
            use_line(next, line);
            ControlFlow::<Infallible>::Continue(())
        })?;
        let ControlFlow::Continue(log) = ended;
        Ok(log)
    }

    /// Calls `use_line` with each valid line in the order of time, until it breaks. Invalid lines are counted. Empty ones are
    /// left out. Meanwhile, a thread reads and parses the next lines: as many as can be read without a wait, once the first
    /// block has shown the layout of the log. Returns the log at its end.
    pub fn try_for_each<B>(
        self,
        watch: &mut ProgressCallback<'_>,
        mut use_line: impl FnMut(OrderedLine<'_>, &LogLine<'_>) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B, Self>, LogReadError> {
        let (sender, receiver) = sync_channel(BATCHES_AHEAD);
        let reader = thread::Builder::new()
            .name("log-reader".to_owned())
            .spawn(move || self.read_batches(&sender))
            .map_err(|error| LogReadError::no_thread(&error))?;
        // If it breaks, the thread is not waited for: it may wait for a pipe, and ends when it has read a batch.
        for batch in receiver {
            let flow = batch?.with_dependent(|text, lines| {
                watch(text.lines_read);
                lines.iter().try_for_each(|(ordered, line)| use_line(*ordered, line))
            });
            if let ControlFlow::Break(result) = flow {
                return Ok(ControlFlow::Break(result));
            }
        }
        Ok(ControlFlow::Continue(reader.join().unwrap_or_else(|panic| resume_unwind(panic))))
    }

    /// Sends all lines, until the end or until the receiver is dropped.
    fn read_batches(mut self, sender: &SyncSender<Result<LineBatch, LogReadError>>) -> Self {
        while let Some(batch) = self.next_batch().transpose() {
            let has_failed = batch.is_err();
            if sender.send(batch).is_err() || has_failed {
                break;
            }
        }
        self
    }

    /// Returns the next lines, as many as can be read without a wait, but at least one; `None` at the end.
    fn next_batch(&mut self) -> Result<Option<LineBatch>, LogReadError> {
        let Some(first) = self.next_line()? else { return Ok(None) };
        let mut text = BatchText { bytes: Vec::new(), lines: Vec::new(), lines_read: 0 };
        text.push(first);
        while text.lines.len() < BATCH_LINES
            && text.bytes.len() < BATCH_BYTES
            && let Some(line) = self.next_buffered_line()?
        {
            text.push(line);
        }
        text.lines_read = self.counts.lines;
        Ok(Some(LineBatch::new(text, |text| self.parse(text))))
    }

    /// Parses the lines of a batch. Counts those that are invalid.
    fn parse<'a>(&mut self, text: &'a BatchText) -> ParsedLines<'a> {
        let mut lines = Vec::with_capacity(text.lines.len());
        for (at, position, range) in &text.lines {
            let ordered = OrderedLine { at: *at, position: *position, text: &text.bytes[range.clone()] };
            match LogLine::read(ordered.text) {
                Ok(line) => lines.extend(line.map(|line| (ordered, line))),
                Err(error) => self.count_line_error(error, *position),
            }
        }
        lines
    }
}
