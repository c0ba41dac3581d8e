//! Values of the paths in the events of a `text/event-stream` (WHATWG HTML, section 9.2.6).

use crate::json::JsonScanner;
use crate::key_search::Valueless;
use crate::path_set::CostPaths;
use crate::readings::Readings;
use memchr::{memchr2, memrchr_iter};

/// Field whose lines are the document, with its colon.
const DATA: &[u8; 5] = b"data:";

/// Scanner of an event stream. Each path keeps the value of the last complete event that has it.
pub(crate) struct EventScanner {
    readings: Readings,
    /// Scanner of the data of the event.
    json: JsonScanner,
    /// The event has data.
    has_data: bool,
    line: Line,
    /// The last byte was a CR, so that an LF belongs to the same line end.
    is_after_cr: bool,
}

/// Place in a line.
#[derive(Clone, Copy)]
enum Line {
    /// In the name of the field, of which so many bytes are those of [`DATA`].
    Name {
        matching: usize,
    },
    /// Behind the colon of `data:`; one space may follow.
    Space,
    Data,
    /// In a comment or another field.
    Ignored,
}

impl EventScanner {
    /// Creates a scanner at the start of a stream.
    pub(crate) fn new(paths: &CostPaths) -> Self {
        Self {
            readings: Readings::default(),
            json: JsonScanner::new(paths),
            has_data: false,
            line: Line::Name { matching: 0 },
            is_after_cr: false,
        }
    }

    /// Returns the values in the complete events so far.
    pub(crate) fn readings(&self) -> &Readings {
        &self.readings
    }

    /// Scans the next bytes of the stream.
    pub(crate) fn push(&mut self, paths: &CostPaths, mut bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if std::mem::take(&mut self.is_after_cr) {
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        let mut valueless = Valueless::default();
        loop {
            if self.is_between_events() {
                bytes = valueless.skip(paths.keys(), bytes, last_event_end);
            }
            let Some(end) = memchr2(b'\r', b'\n', bytes) else { break };
            self.scan_line_part(paths, &bytes[..end]);
            self.end_line(paths);
            let (line_end, rest) = bytes[end..].split_at(1);
            bytes = match line_end {
                b"\r" => rest.strip_prefix(b"\n").unwrap_or(rest),
                _ => rest,
            };
            self.is_after_cr = line_end == b"\r" && rest.is_empty();
        }
        self.scan_line_part(paths, bytes);
    }

    fn is_between_events(&self) -> bool {
        !self.has_data && matches!(self.line, Line::Name { matching: 0 })
    }

    fn scan_line_part(&mut self, paths: &CostPaths, mut bytes: &[u8]) {
        while let (Line::Name { matching }, [byte, rest @ ..]) = (self.line, bytes) {
            self.line = match matching + 1 {
                _ if DATA[matching] != *byte => Line::Ignored,
                matching if matching == DATA.len() => Line::Space,
                matching => Line::Name { matching },
            };
            bytes = rest;
        }
        if matches!(self.line, Line::Space) && !bytes.is_empty() {
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
            self.start_data_line(paths);
            self.line = Line::Data;
        }
        if matches!(self.line, Line::Data) {
            self.json.push(paths, bytes);
        }
    }

    fn end_line(&mut self, paths: &CostPaths) {
        match std::mem::replace(&mut self.line, Line::Name { matching: 0 }) {
            Line::Name { matching: 0 } => self.end_event(paths),
            // A field without a colon has an empty value.
            Line::Name { matching } if matching == DATA.len() - 1 => self.start_data_line(paths),
            Line::Space => self.start_data_line(paths),
            Line::Name { .. } | Line::Data | Line::Ignored => {}
        }
    }

    fn start_data_line(&mut self, paths: &CostPaths) {
        if std::mem::replace(&mut self.has_data, true) {
            self.json.push_line_end(paths);
        }
    }

    /// Ends an event at an empty line. Data that is not JSON, such as `[DONE]`, changes nothing.
    fn end_event(&mut self, paths: &CostPaths) {
        if std::mem::take(&mut self.has_data) {
            if self.json.finish(paths) {
                self.readings.update(self.json.readings());
            }
            self.json.start(paths);
        }
    }
}

/// Returns the position behind the last empty line after an LF.
fn last_event_end(bytes: &[u8]) -> Option<usize> {
    let is_empty_line = |&end: &usize| {
        let before = &bytes[..end];
        before.strip_suffix(b"\r").unwrap_or(before).ends_with(b"\n")
    };
    memrchr_iter(b'\n', bytes).find(is_empty_line).map(|end| end + 1)
}
