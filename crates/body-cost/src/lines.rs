//! Values of the paths in the lines of a body, each of which is a document.

use crate::json::JsonScanner;
use crate::key_search::Valueless;
use crate::path_set::CostPaths;
use crate::readings::Readings;
use memchr::{memchr, memrchr};

/// Scanner of lines. Each path keeps the value of the last complete line that has it.
pub(crate) struct LineScanner {
    readings: Readings,
    /// Scanner of the line.
    json: JsonScanner,
}

impl LineScanner {
    /// Creates a scanner at the start of a body.
    pub(crate) fn new(paths: &CostPaths) -> Self {
        Self { readings: Readings::default(), json: JsonScanner::new(paths) }
    }

    /// Returns the values in the complete lines so far.
    pub(crate) fn readings(&self) -> &Readings {
        &self.readings
    }

    /// Scans the next bytes of the body.
    pub(crate) fn push(&mut self, paths: &CostPaths, mut bytes: &[u8]) {
        let mut valueless = Valueless::default();
        loop {
            if self.json.is_blank() {
                bytes = valueless.skip(paths.keys(), bytes, |bytes| memrchr(b'\n', bytes).map(|end| end + 1));
            }
            let Some(end) = memchr(b'\n', bytes) else { break };
            self.json.push(paths, &bytes[..end]);
            self.end_line(paths);
            bytes = &bytes[end + 1..];
        }
        self.json.push(paths, bytes);
    }

    /// Ends a line. One that is empty or not JSON changes nothing. The last line of a body needs no line end.
    pub(crate) fn end_line(&mut self, paths: &CostPaths) {
        if self.json.finish(paths) {
            self.readings.update(self.json.readings());
        }
        self.json.start(paths);
    }
}
