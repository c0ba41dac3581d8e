//! Parses the lines of a head in one pass: bytes are validated, names numbered and line endings noted where they stand.
//!
//! Strict as RFC 9112: no white space before a colon, no folded lines, no control characters. Lenient only in what a sender
//! may do by section 2.2: empty lines before a start line, and LF in place of CRLF, which [`LineEnds`] reports.

use super::fields::FieldLine;
use super::framing::Malformed;
use super::name::{Name, SEPARATOR};
use http::{Method, StatusCode, Version};
use std::ops::Range;

/// Why a line has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The bytes end before the line.
    Incomplete,
    Malformed(Malformed),
}

const MALFORMED: Stop = Stop::Malformed(Malformed::Head);

impl From<Malformed> for Stop {
    fn from(error: Malformed) -> Self {
        Self::Malformed(error)
    }
}

type Result<T> = std::result::Result<T, Stop>;

/// Start line of a request.
pub(super) struct RequestLine {
    pub(super) method: Method,
    /// Position of the target in the head.
    pub(super) target: Range<usize>,
    pub(super) version: Version,
}

/// Line endings of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineEnds {
    /// CRLF on all lines.
    Crlf,
    /// LF only on all lines.
    Lf,
    /// CRLF on some lines, LF only on others.
    Mixed,
}

/// Position in the bytes of a head.
pub(super) struct Parser<'a> {
    bytes: &'a [u8],
    position: usize,
    has_crlf: bool,
    has_bare_lf: bool,
}

impl<'a> Parser<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0, has_crlf: false, has_bare_lf: false }
    }

    /// Returns the number of bytes parsed.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Returns all bytes, also those that are not parsed.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the endings of the lines parsed.
    pub(super) fn line_ends(&self) -> LineEnds {
        match (self.has_crlf, self.has_bare_lf) {
            (true, true) => LineEnds::Mixed,
            (false, true) => LineEnds::Lf,
            (_, false) => LineEnds::Crlf,
        }
    }

    /// Parses the start line of a request (RFC 9112 section 3).
    pub(super) fn request_line(&mut self) -> Result<RequestLine> {
        self.skip_empty_lines()?;
        let method = self.word(|bytes, from| first(bytes, from, |byte| !is_token(byte)))?;
        let method = Method::from_bytes(&self.bytes[method]).map_err(|_| MALFORMED)?;
        let target = self.word(first_below::<0x21>)?;
        std::str::from_utf8(&self.bytes[target.clone()]).map_err(|_| MALFORMED)?;
        let version = self.version()?;
        self.end_line()?;
        Ok(RequestLine { method, target, version })
    }

    /// Parses the start line of a response (RFC 9112 section 4).
    pub(super) fn status_line(&mut self) -> Result<(Version, StatusCode)> {
        self.skip_empty_lines()?;
        let version = self.version()?;
        self.expect(b' ')?;
        let digits = self.position;
        for _ in 0..3 {
            if !self.peek()?.is_ascii_digit() {
                return Err(MALFORMED);
            }
            self.position += 1;
        }
        let status = StatusCode::from_bytes(&self.bytes[digits..self.position]);
        if self.peek()? == b' ' {
            self.position = value_end(self.bytes, self.position);
        }
        self.end_line()?;
        Ok((version, status.map_err(|_| MALFORMED)?))
    }

    /// Parses the next field line, or the empty line that ends a section, for which it returns `None` (RFC 9112 section 5).
    pub(super) fn field_line(&mut self) -> Result<Option<FieldLine>> {
        let start = self.position;
        if matches!(self.peek()?, b'\r' | b'\n') {
            self.end_line()?;
            return Ok(None);
        }
        let (name_end, name) = self.name(start)?;
        let first_of_value = first(self.bytes, name_end + 1, |byte| !is_blank(byte));
        let line_end = value_end(self.bytes, first_of_value);
        self.position = line_end;
        let is_crlf = self.end_line()?;
        let mut end = line_end;
        while end > first_of_value && is_blank(self.bytes[end - 1]) {
            end -= 1;
        }
        let is_canonical = is_crlf
            && end == line_end
            && first_of_value == name_end + SEPARATOR.len()
            && self.bytes[name_end + 1] == b' ';
        Ok(Some(FieldLine::in_head(name, is_canonical, [start, name_end, first_of_value, end])))
    }

    /// Parses the name of a field up to its colon. Returns its end.
    fn name(&self, start: usize) -> Result<(usize, Name)> {
        let end = first_colon(self.bytes, start);
        let text = &self.bytes[start..end];
        let name = Name::from_bytes(text);
        // A known name is one by its spelling.
        if text.is_empty() || name == Name::Other && !text.iter().all(|&byte| is_token(byte)) {
            return Err(MALFORMED);
        }
        if end == self.bytes.len() { Err(Stop::Incomplete) } else { Ok((end, name)) }
    }

    /// Parses bytes up to a space. `end` returns the position of the first byte that is none of them.
    fn word(&mut self, end: impl FnOnce(&[u8], usize) -> usize) -> Result<Range<usize>> {
        let word = self.position..end(self.bytes, self.position);
        self.position = word.end;
        self.expect(b' ')?;
        if word.is_empty() { Err(MALFORMED) } else { Ok(word) }
    }

    fn version(&mut self) -> Result<Version> {
        const LENGTH: usize = b"HTTP/1.1".len();
        let rest = &self.bytes[self.position..];
        let version = match rest.first_chunk::<LENGTH>() {
            Some(b"HTTP/1.1") => Version::HTTP_11,
            Some(b"HTTP/1.0") => Version::HTTP_10,
            None if b"HTTP/1.".starts_with(rest) => return Err(Stop::Incomplete),
            _ => return Err(MALFORMED),
        };
        self.position += LENGTH;
        Ok(version)
    }

    fn skip_empty_lines(&mut self) -> Result<()> {
        while matches!(self.peek()?, b'\r' | b'\n') {
            self.end_line()?;
        }
        Ok(())
    }

    /// Parses the end of a line. Returns true for CRLF.
    fn end_line(&mut self) -> Result<bool> {
        let is_crlf = self.peek()? == b'\r';
        self.position += usize::from(is_crlf);
        self.expect(b'\n')?;
        self.has_crlf |= is_crlf;
        self.has_bare_lf |= !is_crlf;
        Ok(is_crlf)
    }

    fn expect(&mut self, byte: u8) -> Result<()> {
        if self.peek()? != byte {
            return Err(MALFORMED);
        }
        self.position += 1;
        Ok(())
    }

    fn peek(&self) -> Result<u8> {
        self.bytes.get(self.position).copied().ok_or(Stop::Incomplete)
    }
}

/// Bytes of which `first_below` compares all at once, as the compiler can with vectors.
const BLOCK: usize = 32;
/// Bytes of which the first that differs is found by one number.
const WORD: usize = 8;

const LOW_BITS: u64 = u64::from_ne_bytes([0x01; WORD]);
const HIGH_BITS: u64 = u64::from_ne_bytes([0x80; WORD]);

/// Returns the position of the first byte from `from` on for which `is_wanted` returns true, or the length.
fn first(bytes: &[u8], from: usize, is_wanted: impl Fn(u8) -> bool) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    from + rest.iter().position(|&byte| is_wanted(byte)).unwrap_or(rest.len())
}

/// Returns the position of the first byte from `from` on for which `mark` sets the highest bit, or the length. Of the bytes
/// of a word, only the first mark is exact.
fn first_marked(bytes: &[u8], mut from: usize, mark: impl Fn(u64) -> u64) -> usize {
    while let Some(word) = bytes.get(from..).and_then(<[u8]>::first_chunk::<WORD>) {
        let marks = mark(u64::from_le_bytes(*word)) & HIGH_BITS;
        if marks != 0 {
            return from + marks.trailing_zeros() as usize / 8;
        }
        from += WORD;
    }
    first(bytes, from, |byte| mark(u64::from(byte)) & 0x80 != 0)
}

/// Returns the position of the first colon from `from` on, or the length.
fn first_colon(bytes: &[u8], from: usize) -> usize {
    first_marked(bytes, from, |word| mark_zero(word ^ (LOW_BITS * b':' as u64)))
}

/// Returns the position of the first byte from `from` on that is below `LIMIT` or DEL, or the length.
fn first_below<const LIMIT: u8>(bytes: &[u8], mut from: usize) -> usize {
    let is_below = |found: bool, &byte: &u8| found | (byte < LIMIT) | (byte == 0x7f);
    while let Some(block) = bytes.get(from..).and_then(<[u8]>::first_chunk::<BLOCK>)
        && !block.iter().fold(false, is_below)
    {
        from += BLOCK;
    }
    let limits = LOW_BITS * u64::from(LIMIT);
    first_marked(bytes, from, |word| word.wrapping_sub(limits) & !word | mark_zero(word ^ (LOW_BITS * 0x7f)))
}

/// Marks the first zero byte.
fn mark_zero(word: u64) -> u64 {
    word.wrapping_sub(LOW_BITS) & !word
}

/// Returns the position of the first control character but tab from `from` on, or the length (RFC 9110 section 5.5).
fn value_end(bytes: &[u8], from: usize) -> usize {
    let mut end = first_below::<b' '>(bytes, from);
    while bytes.get(end) == Some(&b'\t') {
        end = first_below::<b' '>(bytes, end + 1);
    }
    end
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Returns true for a byte of a token (RFC 9110 section 5.6.2).
fn is_token(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let marks = b"!#$%&'*+-.^_`|~";
    let mut index = 0;
    while index < marks.len() {
        table[marks[index] as usize] = true;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests;
