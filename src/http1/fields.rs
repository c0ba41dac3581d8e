//! The header fields of one message: read once, looked up by number, written on in the bytes in which they came.
//!
//! A map would have to hash every name on the way in and put every line together anew on the way out. A gate passes
//! most fields on as they are, so they stay where they were read; what is added stands behind them, and a list says
//! which lines count.

use super::name::{Name, SEPARATOR};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::fmt;

/// Header fields in their order, with the spelling of their names.
#[derive(Clone, Default)]
pub struct Fields {
    read: Bytes,
    added: Vec<u8>,
    lines: Vec<FieldLine>,
}

/// One field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Which it is.
    pub name: Name,
    /// The name as it was spelt.
    pub text: &'a [u8],
    /// The value, without white space around it.
    pub value: &'a [u8],
}

/// Where a field stands.
#[derive(Clone, Copy)]
pub(super) struct FieldLine {
    name: Name,
    source: Source,
    /// Exactly `name: value`, CR and LF: such lines are written on as they stand.
    is_canonical: bool,
    start: u32,
    name_end: u32,
    value: u32,
    end: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Read,
    Added,
}

const LINE_END: &[u8] = b"\r\n";

/// Room for what a gate adds to a message.
const ADDED_CAPACITY: usize = 320;

/// Lines a gate adds to a message.
pub(super) const LINES_ADDED: usize = 8;

impl FieldLine {
    /// A field of the head that begins with `head`, `name` and `value` being parts of it.
    pub(super) fn read(head: &[u8], name: &[u8], value: &[u8]) -> Self {
        let start = offset(head, name);
        let name_end = start + name.len();
        // An empty value is not sure to point anywhere.
        let from = if value.is_empty() { name_end } else { offset(head, value) };
        let end = from + value.len();
        let is_canonical = head.get(name_end..from) == Some(SEPARATOR.as_bytes()) && head[end..].starts_with(LINE_END);
        let [start, name_end, from, end] = [start, name_end, from, end].map(|place| place as u32);
        Self {
            name: Name::of(name),
            source: Source::Read,
            is_canonical: is_canonical,
            start,
            name_end,
            value: from,
            end,
        }
    }

    pub(super) fn name(&self) -> Name {
        self.name
    }

    pub(super) fn is_neat(&self) -> bool {
        self.is_canonical
    }

    fn text<'a>(&self, source: &'a [u8]) -> &'a [u8] {
        &source[self.start as usize..self.name_end as usize]
    }

    fn value<'a>(&self, source: &'a [u8]) -> &'a [u8] {
        &source[self.value as usize..self.end as usize]
    }

    fn field<'a>(&self, source: &'a [u8]) -> Field<'a> {
        Field { name: self.name, text: self.text(source), value: self.value(source) }
    }
}

/// Where `part` stands within `whole`.
pub(super) fn offset(whole: &[u8], part: &[u8]) -> usize {
    part.as_ptr() as usize - whole.as_ptr() as usize
}

impl Fields {
    /// No fields.
    pub const fn new() -> Self {
        Self { read: Bytes::new(), added: Vec::new(), lines: Vec::new() }
    }

    /// The fields that `lines` point out in `head`.
    pub(super) fn read(head: Bytes, lines: Vec<FieldLine>) -> Self {
        Self { read: head, added: Vec::new(), lines }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = Field<'_>> {
        self.lines.iter().map(|line| line.field(self.source(line)))
    }

    /// The names of all of them, in their order.
    pub fn names(&self) -> impl Iterator<Item = Name> {
        self.lines.iter().map(|line| line.name)
    }

    /// The fields whose names `is_wanted` accepts, in their order.
    pub fn with_names(&self, is_wanted: impl Fn(Name) -> bool) -> impl Iterator<Item = Field<'_>> {
        self.lines.iter().filter(move |line| is_wanted(line.name)).map(|line| line.field(self.source(line)))
    }

    /// The value of the first field of that name.
    pub fn get(&self, name: Name) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// The values of all fields of that name.
    pub fn all(&self, name: Name) -> impl Iterator<Item = &[u8]> {
        self.lines.iter().filter(move |line| line.name == name).map(|line| line.value(self.source(line)))
    }

    /// The values of all fields whose name is `text`, in any case.
    pub fn get_all_by_text<'a>(&'a self, text: &str) -> impl Iterator<Item = &'a [u8]> {
        let name = Name::of(text.as_bytes());
        let wanted = move |field: &Field<'_>| match name {
            Name::Other => field.name == name && field.text.eq_ignore_ascii_case(text.as_bytes()),
            known => field.name == known,
        };
        self.iter().filter(wanted).map(|field| field.value)
    }

    /// True if there is a field of that name.
    pub fn contains(&self, name: Name) -> bool {
        self.names().any(|known| known == name)
    }

    /// Keeps the fields of which `keep` says so.
    pub fn retain(&mut self, mut keep: impl FnMut(Field<'_>) -> bool) {
        let Self { read, added, lines } = self;
        lines.retain(|line| keep(line.field(if line.source == Source::Read { read } else { added })));
    }

    /// Takes all fields of that name away.
    pub fn remove(&mut self, name: Name) {
        if self.contains(name) {
            self.lines.retain(|line| line.name != name);
        }
    }

    /// Adds a field behind the others. A value with control characters is none, and nothing is added.
    pub fn append(&mut self, name: Name, value: &[u8]) {
        self.append_with(name, |text| {
            text.0.extend_from_slice(value);
            Ok(())
        });
    }

    /// Puts one field in the place of all of that name.
    pub fn insert(&mut self, name: Name, value: &[u8]) {
        self.remove(name);
        self.append(name, value);
    }

    /// Adds a field whose value is what `write` writes; nothing if that fails or is no value.
    pub fn append_with(&mut self, name: Name, write: impl FnOnce(&mut Value<'_>) -> fmt::Result) {
        self.append_line(name, [name.line_prefix(), ""], write);
    }

    /// Puts one field, whose value is what `write` writes, in the place of all of that name.
    pub fn insert_with(&mut self, name: Name, write: impl FnOnce(&mut Value<'_>) -> fmt::Result) {
        self.remove(name);
        self.append_with(name, write);
    }

    /// Adds a field of any name behind the others.
    fn append_raw(&mut self, name: &str, value: &[u8]) {
        self.append_line(Name::of(name.as_bytes()), [name, SEPARATOR], |text| {
            text.0.extend_from_slice(value);
            Ok(())
        });
    }

    /// Adds a line that begins with `opening`: a name and what parts it from its value.
    fn append_line(&mut self, name: Name, opening: [&str; 2], write: impl FnOnce(&mut Value<'_>) -> fmt::Result) {
        let added = &mut self.added;
        if added.capacity() == 0 {
            added.reserve(ADDED_CAPACITY);
            self.lines.reserve(LINES_ADDED);
        }
        let start = added.len();
        opening.iter().for_each(|part| added.extend_from_slice(part.as_bytes()));
        let value = added.len();
        let name_end = value.saturating_sub(SEPARATOR.len());
        let written = write(&mut Value(added));
        let end = added.len();
        if written.is_err() || name_end <= start || !is_value(&added[value..]) {
            return added.truncate(start);
        }
        added.extend_from_slice(LINE_END);
        let [start, name_end, value, end] = [start, name_end, value, end].map(|place| place as u32);
        self.lines.push(FieldLine { name, source: Source::Added, is_canonical: true, start, name_end, value, end });
    }

    /// Writes the fields of which `keep` says so. Neighbours are written together.
    pub(super) fn write(&self, out: &mut Vec<u8>, mut keep: impl FnMut(Name) -> bool) {
        let mut run: Option<(Source, u32, u32)> = None;
        for line in self.lines.iter().filter(|line| keep(line.name)) {
            let behind = line.end + LINE_END.len() as u32;
            match &mut run {
                Some((source, _, end)) if line.is_canonical && *source == line.source && *end == line.start => {
                    *end = behind
                }
                _ => {
                    self.write_run(out, run.take());
                    match line.is_canonical {
                        true => run = Some((line.source, line.start, behind)),
                        false => write_field(out, line.text(self.source(line)), line.value(self.source(line))),
                    }
                }
            }
        }
        self.write_run(out, run);
    }

    fn write_run(&self, out: &mut Vec<u8>, run: Option<(Source, u32, u32)>) {
        let Some((source, start, end)) = run else { return };
        let bytes = if source == Source::Read { &self.read[..] } else { &self.added };
        out.extend_from_slice(&bytes[start as usize..end as usize]);
    }

    fn source(&self, line: &FieldLine) -> &[u8] {
        if line.source == Source::Read { &self.read } else { &self.added }
    }

    /// The same as a map, for HTTP/2: names in lower case.
    pub fn to_map(&self) -> HeaderMap {
        let mut map = HeaderMap::with_capacity(self.lines.len());
        for line in &self.lines {
            let field = line.field(self.source(line));
            let value = match line.source {
                Source::Read => HeaderValue::from_maybe_shared(self.read.slice(line.value as usize..line.end as usize)),
                Source::Added => HeaderValue::from_bytes(field.value),
            };
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(field.text), value) {
                map.append(name, value);
            }
        }
        map
    }
}

/// As they came by HTTP/2.
impl From<&HeaderMap> for Fields {
    fn from(map: &HeaderMap) -> Self {
        let mut fields = Self { lines: Vec::with_capacity(map.len() + LINES_ADDED), ..Self::new() };
        let text = map.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum::<usize>();
        fields.added.reserve(text + ADDED_CAPACITY);
        for (name, value) in map {
            fields.append_raw(name.as_str(), value.as_bytes());
        }
        fields
    }
}

/// A header field's value while it is written.
pub struct Value<'a>(&'a mut Vec<u8>);

impl fmt::Write for Value<'_> {
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// RFC 9110 section 5.5: no control character but the tab. Looks at all of it, which is faster than byte by byte.
fn is_value(bytes: &[u8]) -> bool {
    let is_control = |byte: u8| (byte < b' ' && byte != b'\t') || byte == 0x7f;
    !bytes.iter().fold(false, |found, &byte| found | is_control(byte))
}

/// Writes one field.
pub(super) fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(SEPARATOR.as_bytes());
    out.extend_from_slice(value);
    out.extend_from_slice(LINE_END);
}

/// The items of a comma-separated value.
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

impl fmt::Debug for Fields {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes| String::from_utf8_lossy(bytes);
        out.debug_list().entries(self.iter().map(|field| (text(field.text), text(field.value)))).finish()
    }
}

/// Names in any case.
impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        let same = |(ours, theirs): (Field<'_>, Field<'_>)| {
            ours.text.eq_ignore_ascii_case(theirs.text) && ours.value == theirs.value
        };
        self.len() == other.len() && self.iter().zip(other.iter()).all(same)
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Fields {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(given: I) -> Self {
        let mut fields = Self::new();
        for (name, value) in given {
            fields.append_raw(name, value.as_bytes());
        }
        fields
    }
}

#[cfg(test)]
mod tests;
