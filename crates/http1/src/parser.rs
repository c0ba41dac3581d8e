//! Parses the lines of a head in one pass: bytes are validated, names numbered and line endings noted where they stand.
//!
//! Strict as RFC 9112: no white space before a colon, no folded lines, no control characters. Lenient only in what a sender
//! may do by section 2.2: empty lines before a start line, and LF in place of CRLF, which [`LineEnds`] reports.

use super::fields::FieldLine;
use super::framing::Malformed;
use super::name::{Name, SEPARATOR};
use super::scan::{first_byte, is_word, value_end};
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
        let method = self.word(is_token)?;
        let method = Method::from_bytes(&self.bytes[method]).map_err(|_| MALFORMED)?;
        let target = self.word(is_target)?;
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
    // Inlined, because most of the time of a head is spent here.
    #[inline(always)]
    pub(super) fn field_line(&mut self) -> Result<Option<FieldLine>> {
        let (bytes, start) = (self.bytes, self.position);
        if let Some(b'\r' | b'\n') = bytes.get(start) {
            self.end_line()?;
            return Ok(None);
        }
        let name_end = first_byte(bytes, start, b':');
        let name_text = &bytes[start..name_end];
        let name = Name::from_bytes(name_text);
        // A known name is one by its spelling.
        if name == Name::Other && !(is_word(bytes, start..name_end) || is_name(name_text)) {
            return Err(if start == bytes.len() { Stop::Incomplete } else { MALFORMED });
        }
        let separator = &bytes[name_end..];
        let value = name_end
            + match separator {
                [b':', b' ', first, ..] if !is_blank(*first) => SEPARATOR.len(),
                _ => value_start(separator),
            };
        let line_end = value_end(bytes, value);
        let (is_crlf, next_line) = match bytes.get(line_end..) {
            Some([b'\r', b'\n', ..]) => (true, line_end + 2),
            Some([b'\n', ..]) => (false, line_end + 1),
            None | Some([] | [b'\r']) => return Err(Stop::Incomplete),
            Some(_) => return Err(MALFORMED),
        };
        let end = match bytes[line_end - 1] {
            last if is_blank(last) => value + bytes[value..line_end].trim_ascii_end().len(),
            _ => line_end,
        };
        self.position = next_line;
        self.has_crlf |= is_crlf;
        self.has_bare_lf |= !is_crlf;
        let is_canonical = is_crlf
            && end == line_end
            && separator.starts_with(SEPARATOR.as_bytes())
            && value == name_end + SEPARATOR.len();
        Ok(Some(FieldLine::in_head(name, is_canonical, [start, name_end, value, end])))
    }

    /// Parses one or more bytes that `is_part` accepts, up to a space.
    fn word(&mut self, is_part: impl Fn(u8) -> bool) -> Result<Range<usize>> {
        let rest = &self.bytes[self.position..];
        let length = rest.iter().position(|&byte| !is_part(byte)).unwrap_or(rest.len());
        let word = self.position..self.position + length;
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

/// Returns the position of the first byte that is not blank after a colon, or the length.
fn value_start(bytes: &[u8]) -> usize {
    1 + bytes.iter().skip(1).take_while(|&&byte| is_blank(byte)).count()
}

fn is_name(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| is_token(byte))
}

/// Returns true for a byte of a request target: none that is blank or a control character.
fn is_target(byte: u8) -> bool {
    byte > b' ' && byte != 0x7f
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
