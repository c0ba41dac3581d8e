//! Header fields of a message, looked up by a number and kept as received.
//!
//! A map would hash every name on input and rebuild every line on output. A gateway forwards most fields unmodified, so
//! they stay in the buffer they were read into. Added fields follow in a second buffer, and a list has the valid lines.

mod block;
#[cfg(test)]
mod tests;

pub use block::FieldBlock;

use super::name::{Name, NameSet, SEPARATOR};
use super::scan::value_end;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::fmt;

/// Header fields in order, with the original spelling of their names.
///
/// Boxed, because messages are moved often on their way.
#[derive(Clone, Default)]
pub struct Fields(Box<FieldData>);

#[derive(Clone, Default)]
struct FieldData {
    head: Bytes,
    added: Vec<u8>,
    lines: FieldLines,
}

/// A header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Number of the name.
    pub name: Name,
    /// Name as spelled by the sender.
    pub text: &'a [u8],
    /// Value, without surrounding white space.
    pub value: &'a [u8],
}

/// Location of a field.
#[derive(Clone, Copy)]
pub(super) struct FieldLine {
    name: Name,
    source: Source,
    /// True if the line is exactly `name: value`, CR, LF: it is written unmodified.
    is_canonical: bool,
    start: u32,
    name_end: u32,
    value: u32,
    end: u32,
}

/// Lines in order, and the names that they have.
#[derive(Clone, Default)]
pub(super) struct FieldLines {
    lines: Vec<FieldLine>,
    names: NameSet,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Read,
    Added,
}

const LINE_END: &[u8] = b"\r\n";

/// Capacity for the fields that a gateway adds to a message, in bytes.
const ADDED_CAPACITY: usize = 320;

/// Bytes of a typical line.
const TYPICAL_LINE: usize = 32;

/// Lines that a gateway adds to a message.
pub(super) const LINES_ADDED: usize = 8;

impl FieldLine {
    /// Returns the line of a field in a head. `positions` are its start, the end of its name, and those of its value.
    pub(super) fn in_head(name: Name, is_canonical: bool, positions: [usize; 4]) -> Self {
        let [start, name_end, value, end] = positions.map(|position| position as u32);
        Self { name, source: Source::Read, is_canonical, start, name_end, value, end }
    }

    pub(super) fn name(&self) -> Name {
        self.name
    }

    fn text<'a>(&self, source: &'a [u8]) -> &'a [u8] {
        &source[self.start as usize..self.name_end as usize]
    }

    fn value<'a>(&self, source: &'a [u8]) -> &'a [u8] {
        &source[self.value as usize..self.end as usize]
    }

    pub(super) fn field<'a>(&self, source: &'a [u8]) -> Field<'a> {
        Field { name: self.name, text: self.text(source), value: self.value(source) }
    }
}

impl FieldLines {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { lines: Vec::with_capacity(capacity), names: NameSet::default() }
    }

    pub(super) fn push(&mut self, line: FieldLine) {
        self.names = self.names.with(line.name);
        self.lines.push(line);
    }

    fn retain(&mut self, keep: impl FnMut(&FieldLine) -> bool) {
        self.lines.retain(keep);
        self.names = self.lines.iter().map(|line| line.name).collect();
    }
}

impl Fields {
    /// Returns an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the fields at `lines` of `head`.
    pub(super) fn from_head(head: Bytes, lines: FieldLines) -> Self {
        Self(Box::new(FieldData { head, added: Vec::new(), lines }))
    }

    /// Returns the bytes of memory that the fields occupy.
    pub fn memory(&self) -> usize {
        self.0.head.len() + self.0.added.capacity() + self.0.lines.lines.capacity() * size_of::<FieldLine>()
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        self.0.lines.lines.len()
    }

    /// Returns true if there are no fields.
    pub fn is_empty(&self) -> bool {
        self.0.lines.lines.is_empty()
    }

    /// Iterates over all fields, in order.
    pub fn iter(&self) -> impl Iterator<Item = Field<'_>> {
        self.0.lines.lines.iter().map(|line| line.field(self.source(line)))
    }

    /// Iterates over the names of all fields, in order.
    pub fn names(&self) -> impl Iterator<Item = Name> {
        self.0.lines.lines.iter().map(|line| line.name)
    }

    /// Returns true if a field has one of the names.
    pub fn contains_any(&self, names: NameSet) -> bool {
        self.0.lines.names.intersects(names)
    }

    /// Iterates over the fields with one of the names, in order.
    pub fn with_names(&self, names: NameSet) -> impl Iterator<Item = Field<'_>> {
        let lines: &[FieldLine] = if self.contains_any(names) { &self.0.lines.lines } else { &[] };
        lines.iter().filter(move |line| names.contains(line.name)).map(|line| line.field(self.source(line)))
    }

    /// Returns the value of the first field with that name.
    pub fn get(&self, name: Name) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// Iterates over the values of all fields with that name.
    pub fn all(&self, name: Name) -> impl Iterator<Item = &[u8]> {
        let lines: &[FieldLine] = if self.contains(name) { &self.0.lines.lines } else { &[] };
        lines.iter().filter(move |line| line.name == name).map(|line| line.value(self.source(line)))
    }

    /// Iterates over the values of all fields named `text`, in any case.
    pub fn get_all_by_text<'a>(&'a self, text: &str) -> impl Iterator<Item = &'a [u8]> {
        let name = Name::from_bytes(text.as_bytes());
        let is_match = move |field: &Field<'_>| name != Name::Other || field.text.eq_ignore_ascii_case(text.as_bytes());
        self.with_names(NameSet::of(&[name])).filter(is_match).map(|field| field.value)
    }

    /// Returns true if there is a field with that name.
    pub fn contains(&self, name: Name) -> bool {
        self.0.lines.names.contains(name)
    }

    /// Keeps the fields for which `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(Field<'_>) -> bool) {
        let FieldData { head, added, lines } = &mut *self.0;
        lines.retain(|line| keep(line.field(if line.source == Source::Read { head } else { added })));
    }

    /// Removes all fields with that name.
    pub fn remove(&mut self, name: Name) {
        self.remove_any(NameSet::of(&[name]));
    }

    /// Removes all fields with one of the names.
    pub fn remove_any(&mut self, names: NameSet) {
        if self.contains_any(names) {
            let FieldLines { lines, names: left } = &mut self.0.lines;
            lines.retain(|line| !names.contains(line.name));
            *left = left.without(names);
        }
    }

    /// Appends a field. A value with control characters is invalid and not appended.
    pub fn append(&mut self, name: Name, value: &[u8]) {
        self.append_with(name, |text| {
            text.0.extend_from_slice(value);
            Ok(())
        });
    }

    /// Replaces all fields with that name by one.
    pub fn insert(&mut self, name: Name, value: &[u8]) {
        self.remove(name);
        self.append(name, value);
    }

    /// Appends a field whose value `write` writes. Appends nothing if that fails or the value is invalid.
    pub fn append_with(&mut self, name: Name, write: impl FnOnce(&mut Value<'_>) -> fmt::Result) {
        self.append_line(name, [name.line_prefix(), ""], write);
    }

    /// Replaces all fields with that name by one whose value `write` writes.
    pub fn insert_with(&mut self, name: Name, write: impl FnOnce(&mut Value<'_>) -> fmt::Result) {
        self.remove(name);
        self.append_with(name, write);
    }

    /// Returns the lines of the fields for which `keep` returns true, as [`Self::from_lines`] reads them.
    pub fn to_lines(&self, mut keep: impl FnMut(Field<'_>) -> bool) -> Vec<u8> {
        let mut lines = Vec::new();
        for field in self.iter().filter(|field| keep(*field)) {
            write_field(&mut lines, field.text, field.value);
        }
        lines
    }

    /// Returns the fields in `head`: lines of a name, colon, space, value, CR and LF. Returns `None` for other bytes.
    pub fn from_lines(head: Bytes) -> Option<Self> {
        let mut lines = FieldLines::with_capacity(head.len() / TYPICAL_LINE + LINES_ADDED);
        let mut start = 0;
        while start < head.len() {
            let rest = &head[start..];
            let name_end = memchr::memchr(b':', rest).filter(|end| *end > 0)?;
            let end = memchr::memmem::find(rest, LINE_END)?;
            let value = rest
                .get(name_end..end)?
                .strip_prefix(SEPARATOR.as_bytes())
                .filter(|value| value_end(value, 0) == value.len())?;
            let positions = [0, name_end, end - value.len(), end].map(|position| start + position);
            lines.push(FieldLine::in_head(Name::from_bytes(&rest[..name_end]), true, positions));
            start += end + LINE_END.len();
        }
        Some(Self::from_head(head, lines))
    }

    /// Appends a field with any name.
    pub fn append_text(&mut self, name: &str, value: &[u8]) {
        self.append_line(Name::from_bytes(name.as_bytes()), [name, SEPARATOR], |text| {
            text.0.extend_from_slice(value);
            Ok(())
        });
    }

    /// Appends a line that begins with `opening`: a name and the separator.
    fn append_line(&mut self, name: Name, opening: [&str; 2], write: impl FnOnce(&mut Value<'_>) -> fmt::Result) {
        let FieldData { added, lines, .. } = &mut *self.0;
        if added.capacity() == 0 {
            added.reserve(ADDED_CAPACITY);
            lines.lines.reserve(LINES_ADDED);
        }
        let start = added.len();
        opening.iter().for_each(|part| added.extend_from_slice(part.as_bytes()));
        let value = added.len();
        let name_end = value.saturating_sub(SEPARATOR.len());
        let written = write(&mut Value(added));
        let end = added.len();
        if written.is_err() || name_end <= start || value_end(added, value) != end {
            return added.truncate(start);
        }
        added.extend_from_slice(LINE_END);
        let [start, name_end, value, end] = [start, name_end, value, end].map(|position| position as u32);
        lines.push(FieldLine { name, source: Source::Added, is_canonical: true, start, name_end, value, end });
    }

    /// Writes the fields for which `keep` returns true. Adjacent fields are written together.
    pub(super) fn write(&self, out: &mut Vec<u8>, mut keep: impl FnMut(Name) -> bool) {
        let mut run: Option<(Source, u32, u32)> = None;
        for line in self.0.lines.lines.iter().filter(|line| keep(line.name)) {
            let next_start = line.end + LINE_END.len() as u32;
            match &mut run {
                Some((source, _, end)) if line.is_canonical && *source == line.source && *end == line.start => {
                    *end = next_start;
                }
                _ => {
                    self.write_run(out, run.take());
                    match line.is_canonical {
                        true => run = Some((line.source, line.start, next_start)),
                        false => write_field(out, line.text(self.source(line)), line.value(self.source(line))),
                    }
                }
            }
        }
        self.write_run(out, run);
    }

    fn write_run(&self, out: &mut Vec<u8>, run: Option<(Source, u32, u32)>) {
        let Some((source, start, end)) = run else { return };
        let bytes = if source == Source::Read { &self.0.head[..] } else { &self.0.added };
        out.extend_from_slice(&bytes[start as usize..end as usize]);
    }

    fn source(&self, line: &FieldLine) -> &[u8] {
        if line.source == Source::Read { &self.0.head } else { &self.0.added }
    }

    /// Converts the fields to a map for HTTP/2, with names in lower case.
    pub fn to_map(&self) -> HeaderMap {
        let mut map = HeaderMap::with_capacity(self.len());
        for line in &self.0.lines.lines {
            let field = line.field(self.source(line));
            let value = match line.source {
                Source::Read => {
                    HeaderValue::from_maybe_shared(self.0.head.slice(line.value as usize..line.end as usize))
                }
                Source::Added => HeaderValue::from_bytes(field.value),
            };
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(field.text), value) {
                map.append(name, value);
            }
        }
        map
    }
}

/// Converts the fields of an HTTP/2 message.
impl From<&HeaderMap> for Fields {
    fn from(map: &HeaderMap) -> Self {
        let mut fields = Self::from_head(Bytes::new(), FieldLines::with_capacity(map.len() + LINES_ADDED));
        let text = map.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum::<usize>();
        fields.0.added.reserve(text + ADDED_CAPACITY);
        for (name, value) in map {
            fields.append_text(name.as_str(), value.as_bytes());
        }
        fields
    }
}

/// Buffer for the value of a header field.
pub struct Value<'a>(&'a mut Vec<u8>);

impl fmt::Write for Value<'_> {
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Writes one field.
pub(super) fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(SEPARATOR.as_bytes());
    out.extend_from_slice(value);
    out.extend_from_slice(LINE_END);
}

/// Iterates over the items of a comma-separated value, without empty ones (RFC 9110 section 5.6.1.2).
pub fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|item| !item.is_empty())
}

impl fmt::Debug for Fields {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes| String::from_utf8_lossy(bytes);
        out.debug_list().entries(self.iter().map(|field| (text(field.text), text(field.value)))).finish()
    }
}

/// Compares names case-insensitively.
impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        let same = |(left, right): (Field<'_>, Field<'_>)| {
            left.text.eq_ignore_ascii_case(right.text) && left.value == right.value
        };
        self.len() == other.len() && self.iter().zip(other.iter()).all(same)
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Fields {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(iter: I) -> Self {
        let mut fields = Self::new();
        for (name, value) in iter {
            fields.append_text(name, value.as_bytes());
        }
        fields
    }
}
