//! Copies a text while adding lines and replacing numbers. It stops when the copy exceeds the size limit.

/// Maximum size of the result. Crawlers read at least this much (RFC 9309 section 2.5), and some, such as Google's, no
/// more. Added lines must not move a rule of the origin beyond it.
const MAX_OUTPUT_BYTES: usize = 500 * 1024;

/// A copy in progress.
pub(super) struct RobotsWriter<'t> {
    text: &'t [u8],
    /// Number of bytes of the text copied or skipped.
    offset: usize,
    out: Vec<u8>,
}

impl<'t> RobotsWriter<'t> {
    pub(super) fn new(text: &'t [u8]) -> Self {
        Self { text, offset: 0, out: Vec::with_capacity(text.len() + 1024) }
    }

    /// Copies up to `position`.
    pub(super) fn copy_until(&mut self, position: usize) {
        self.out.extend_from_slice(&self.text[self.offset..position]);
        self.offset = position;
    }

    /// Skips the text before `position`.
    pub(super) fn skip_to(&mut self, position: usize) {
        self.offset = position;
    }

    /// Writes text within a line.
    pub(super) fn write(&mut self, text: &[u8]) {
        self.out.extend_from_slice(text);
    }

    /// Copies the rest.
    pub(super) fn copy_rest(&mut self) {
        self.copy_until(self.text.len());
    }

    /// Adds a line with the line ending of the line before: CR, LF or both.
    pub(super) fn write_line(&mut self, line: &[u8]) {
        if self.is_over_limit() {
            return;
        }
        let ending = line_ending(&self.out);
        let newline = ending.unwrap_or_else(|| self.first_ending());
        if ending.is_none() && !self.out.is_empty() {
            self.out.extend_from_slice(newline);
        }
        self.out.extend_from_slice(line);
        self.out.extend_from_slice(newline);
    }

    /// Returns true if the limit is exceeded; then no more lines are added and the copy is discarded.
    pub(super) fn is_over_limit(&self) -> bool {
        self.out.len() > MAX_OUTPUT_BYTES
    }

    /// Returns the copy, or `None` if it exceeds the limit.
    pub(super) fn finish(self) -> Option<Vec<u8>> {
        (!self.is_over_limit()).then_some(self.out)
    }

    fn first_ending(&self) -> &'static [u8] {
        let end = self.text.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or_default();
        line_ending(&self.text[..self.text.len().min(end + 2)]).unwrap_or(b"\n")
    }
}

/// Returns the line ending of the last line, if there is one.
fn line_ending(text: &[u8]) -> Option<&'static [u8]> {
    [&b"\r\n"[..], b"\n", b"\r"].into_iter().find(|ending| text.ends_with(ending))
}
