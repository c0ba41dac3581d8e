//! Values of the paths in a JSON document that arrives in parts.
//!
//! Containers that a path may lead into are parsed; they are at most as deep as a path is long. All others are skipped: of
//! these, only strings and brackets are read, so mistakes inside them are not found. Strings are not checked for UTF-8 and
//! control characters.

pub(crate) mod number;
mod skip;
mod text;

use crate::path::MAX_SEGMENTS;
use crate::path_set::{CostPaths, PathMask};
use crate::readings::{Reading, Readings};
use number::NumberParser;
use skip::{ContainerSkip, StringSkip};
use text::{TextDecoder, TextProgress};

/// Scanner of one document at a time.
pub(crate) struct JsonScanner {
    expected: Expected,
    readings: Readings,
    /// Containers around this position that are parsed. Their number is the level.
    level: usize,
    containers: [Container; MAX_SEGMENTS],
    /// Paths whose first segments, as many as the level, lead to the value at this position.
    leading: PathMask,
    text: TextDecoder,
    number: NumberParser,
}

/// Container that is parsed.
#[derive(Clone, Copy, Default)]
struct Container {
    /// Paths that lead into it.
    paths: PathMask,
    is_array: bool,
    /// Index of the element at this position, if it is an array.
    index: u64,
}

/// What comes next in the document.
enum Expected {
    Value,
    FirstElementOrEnd,
    FirstKeyOrEnd,
    Key,
    RestOfKey,
    Colon,
    RestOfText,
    RestOfSkippedText(StringSkip),
    RestOfNumber,
    RestOfLiteral(&'static [u8]),
    RestOfSkippedContainer(ContainerSkip),
    CommaOrEnd,
    /// The document is complete; white space may follow.
    Nothing,
    /// The document is not JSON; all bytes are ignored.
    Malformed,
}

impl JsonScanner {
    /// Creates a scanner at the start of a document.
    pub(crate) fn new(paths: &CostPaths) -> Self {
        Self {
            expected: Expected::Value,
            readings: Readings::default(),
            level: 0,
            containers: [Container::default(); MAX_SEGMENTS],
            leading: paths.all(),
            text: TextDecoder::default(),
            number: NumberParser::default(),
        }
    }

    /// Starts the next document.
    pub(crate) fn start(&mut self, paths: &CostPaths) {
        self.expected = Expected::Value;
        self.readings.remove(paths.all());
        self.level = 0;
        self.leading = paths.all();
    }

    /// Returns the values so far. A later repeated key may replace them.
    pub(crate) fn readings(&self) -> &Readings {
        &self.readings
    }

    /// Returns true if the bytes so far begin no document.
    pub(crate) fn is_malformed(&self) -> bool {
        matches!(self.expected, Expected::Malformed)
    }

    /// Returns true if nothing but white space came since the start of the document.
    pub(crate) fn is_blank(&self) -> bool {
        matches!(self.expected, Expected::Value) && self.level == 0
    }

    /// Ends the document. Returns true if it is complete.
    pub(crate) fn finish(&mut self, paths: &CostPaths) -> bool {
        // White space ends a number.
        self.push(paths, b"\n");
        matches!(self.expected, Expected::Nothing)
    }

    /// Scans a line end between two parts of the document. Strings do not contain line ends.
    pub(crate) fn push_line_end(&mut self, paths: &CostPaths) {
        let is_in_string = match &self.expected {
            Expected::RestOfKey | Expected::RestOfText | Expected::RestOfSkippedText(_) => true,
            Expected::RestOfSkippedContainer(container) => container.is_in_string(),
            _ => false,
        };
        if is_in_string {
            self.expected = Expected::Malformed;
        }
        self.push(paths, b"\n");
    }

    /// Scans the next bytes of the document.
    pub(crate) fn push(&mut self, paths: &CostPaths, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let scanned = self.scan_some(paths, bytes);
            bytes = &bytes[scanned..];
        }
    }

    /// Scans some of the bytes, at least one unless the state changes. Returns how many.
    fn scan_some(&mut self, paths: &CostPaths, bytes: &[u8]) -> usize {
        match &mut self.expected {
            Expected::RestOfKey | Expected::RestOfText => self.scan_text(paths, bytes),
            Expected::RestOfNumber => self.scan_number(paths, bytes),
            Expected::RestOfSkippedText(string) => match string.push(bytes) {
                Some(length) => self.end_value(length),
                None => bytes.len(),
            },
            Expected::RestOfSkippedContainer(container) => match container.push(bytes) {
                Some(length) => self.end_value(length),
                None => bytes.len(),
            },
            Expected::RestOfLiteral(rest) => match rest {
                [next, more @ ..] if *next == bytes[0] => {
                    *rest = more;
                    if more.is_empty() { self.end_value(1) } else { 1 }
                }
                _ => self.fail(),
            },
            Expected::Malformed => bytes.len(),
            _ => {
                let spaces = bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
                spaces + bytes.get(spaces).map_or(0, |&byte| self.scan_token(paths, byte))
            }
        }
    }

    /// Scans the first byte of a token.
    fn scan_token(&mut self, paths: &CostPaths, byte: u8) -> usize {
        match (&self.expected, byte) {
            (Expected::FirstElementOrEnd | Expected::CommaOrEnd, b']') => self.close(true),
            (Expected::FirstKeyOrEnd | Expected::CommaOrEnd, b'}') => self.close(false),
            (Expected::Value | Expected::FirstElementOrEnd, _) => self.start_value(paths, byte),
            (Expected::FirstKeyOrEnd | Expected::Key, b'"') => {
                self.text.start();
                self.expect(Expected::RestOfKey)
            }
            (Expected::Colon, b':') => self.expect(Expected::Value),
            (Expected::CommaOrEnd, b',') => self.start_member(paths),
            _ => self.fail(),
        }
    }

    fn start_value(&mut self, paths: &CostPaths, byte: u8) -> usize {
        match byte {
            b'"' if self.ending(paths).is_empty() => self.expect(Expected::RestOfSkippedText(StringSkip::default())),
            b'"' => {
                self.text.start();
                self.expect(Expected::RestOfText)
            }
            b'{' => self.open(paths, false),
            b'[' => self.open(paths, true),
            b'-' | b'0'..=b'9' => {
                self.number = NumberParser::default();
                self.number.push(byte);
                self.expect(Expected::RestOfNumber)
            }
            b'n' => self.expect(Expected::RestOfLiteral(b"ull")),
            b't' | b'f' => {
                self.readings.set(self.ending(paths), Reading::Invalid);
                self.expect(Expected::RestOfLiteral(if byte == b't' { b"rue" } else { b"alse" }))
            }
            _ => self.fail(),
        }
    }

    /// Opens a container. Parses it if a path leads into it, and skips it otherwise.
    fn open(&mut self, paths: &CostPaths, is_array: bool) -> usize {
        let ending = self.ending(paths);
        self.readings.set(ending, Reading::Invalid);
        let inside = self.leading & !ending;
        let inside = if is_array { paths.indexed(inside, self.level) } else { inside };
        if inside.is_empty() {
            let skip = if is_array { ContainerSkip::array() } else { ContainerSkip::object() };
            return self.expect(Expected::RestOfSkippedContainer(skip));
        }
        self.containers[self.level] = Container { paths: inside, is_array, index: 0 };
        if is_array {
            self.leading = paths.with_index(inside, self.level, 0);
        }
        self.level += 1;
        self.expect(if is_array { Expected::FirstElementOrEnd } else { Expected::FirstKeyOrEnd })
    }

    /// Closes the innermost container, if it is of this kind.
    fn close(&mut self, is_array: bool) -> usize {
        if self.containers[self.level - 1].is_array != is_array {
            return self.fail();
        }
        self.level -= 1;
        self.end_value(1)
    }

    /// Continues behind the comma in a container.
    fn start_member(&mut self, paths: &CostPaths) -> usize {
        let outer = self.level - 1;
        let container = &mut self.containers[outer];
        if !container.is_array {
            return self.expect(Expected::Key);
        }
        container.index += 1;
        self.leading = paths.with_index(container.paths, outer, container.index);
        self.expect(Expected::Value)
    }

    /// Scans a key, or a string that a path ends at.
    fn scan_text(&mut self, paths: &CostPaths, bytes: &[u8]) -> usize {
        let length = match self.text.push(bytes) {
            TextProgress::Unfinished => return bytes.len(),
            TextProgress::Malformed => return self.fail(),
            TextProgress::Ended { length } => length,
        };
        if matches!(self.expected, Expected::RestOfText) {
            let reading = self.text.text().and_then(NumberParser::parse).unwrap_or(Reading::Invalid);
            self.readings.set(self.ending(paths), reading);
            return self.end_value(length);
        }
        let outer = self.level - 1;
        let among = self.containers[outer].paths;
        self.leading = self.text.text().map_or(PathMask::NONE, |key| paths.with_key(among, outer, key));
        // Of a repeated key, the last value counts.
        self.readings.remove(self.leading);
        self.expected = Expected::Colon;
        length
    }

    fn scan_number(&mut self, paths: &CostPaths, bytes: &[u8]) -> usize {
        let length = NumberParser::span(bytes);
        bytes[..length].iter().for_each(|&byte| self.number.push(byte));
        if length < bytes.len() {
            let Some(reading) = self.number.finish() else { return self.fail() };
            self.readings.set(self.ending(paths), reading);
            self.end_value(0);
        }
        length
    }

    /// Returns the paths that end at the value at this position.
    fn ending(&self, paths: &CostPaths) -> PathMask {
        paths.ending(self.leading, self.level)
    }

    /// Continues behind a value, after `length` bytes.
    fn end_value(&mut self, length: usize) -> usize {
        self.expected = if self.level == 0 { Expected::Nothing } else { Expected::CommaOrEnd };
        length
    }

    /// Continues with `expected`, after one byte.
    fn expect(&mut self, expected: Expected) -> usize {
        self.expected = expected;
        1
    }

    fn fail(&mut self) -> usize {
        self.expect(Expected::Malformed)
    }
}
