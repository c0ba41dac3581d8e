//! Fields that are kept and sent many times: their lines are searched for once.

use super::super::name::{Name, SEPARATOR};
use super::{FieldData, FieldLine, FieldLines, Fields, LINE_END, LINES_ADDED, Source};
use bytes::Bytes;

/// Header fields in one block of memory.
#[derive(Clone, Debug, Default)]
pub struct FieldBlock {
    text: Bytes,
    /// Lines of `text`; none if it is longer than their lengths can say.
    lines: Box<[BlockLine]>,
}

/// A line, which follows the one before it.
#[derive(Clone, Copy, Debug)]
struct BlockLine {
    name: Name,
    name_length: u16,
    value_length: u16,
}

impl FieldBlock {
    /// Returns the fields in `text`, as [`Fields::to_lines`] writes it. Returns `None` for other bytes.
    pub fn parse(text: Bytes) -> Option<Self> {
        let FieldData { head: text, lines, .. } = *Fields::from_lines(text)?.0;
        // No length of a part exceeds that of the whole.
        let has_lengths = u16::try_from(text.len()).is_ok();
        let lines = lines.lines.iter().filter(|_| has_lengths).map(BlockLine::new).collect();
        Some(Self { text, lines })
    }

    /// Returns the lines.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns the bytes of memory that the fields occupy.
    pub fn memory(&self) -> usize {
        self.text.len() + size_of_val(&*self.lines)
    }

    /// Returns the fields, with space for those that a gateway adds.
    pub fn to_fields(&self) -> Fields {
        if self.lines.is_empty() {
            return Fields::from_lines(self.text.clone()).unwrap_or_default();
        }
        let mut lines = FieldLines::with_capacity(self.lines.len() + LINES_ADDED);
        let mut start = 0;
        for line in &self.lines {
            let line = line.starting_at(start);
            start = line.end + LINE_END.len() as u32;
            lines.push(line);
        }
        Fields::from_head(self.text.clone(), lines)
    }
}

impl BlockLine {
    fn new(line: &FieldLine) -> Self {
        let name_length = (line.name_end - line.start) as u16;
        Self { name: line.name, name_length, value_length: (line.end - line.value) as u16 }
    }

    fn starting_at(self, start: u32) -> FieldLine {
        let name_end = start + u32::from(self.name_length);
        let value = name_end + SEPARATOR.len() as u32;
        let end = value + u32::from(self.value_length);
        FieldLine { name: self.name, source: Source::Read, is_canonical: true, start, name_end, value, end }
    }
}
