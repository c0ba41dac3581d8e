//! A text that is copied, with lines added and numbers changed on the way. It is full when it becomes too long.

/// The longest text that is made: crawlers read so much (RFC 9309 section 2.5), and some, Google's among them, no more. What
/// we add must not push a rule of the origin's beyond it.
const MAX_OUTPUT_BYTES: usize = 500 * 1024;

/// A copy in the making.
pub(super) struct RobotsWriter<'t> {
    text: &'t [u8],
    /// How much of it has been copied, or left out.
    copied: usize,
    out: Vec<u8>,
}

impl<'t> RobotsWriter<'t> {
    pub(super) fn of(text: &'t [u8]) -> Self {
        Self { text, copied: 0, out: Vec::with_capacity(text.len() + 1024) }
    }

    /// Copies up to `place`.
    pub(super) fn copy_until(&mut self, place: usize) {
        self.out.extend_from_slice(&self.text[self.copied..place]);
        self.copied = place;
    }

    /// Leaves out what stands before `place`.
    pub(super) fn skip_to(&mut self, place: usize) {
        self.copied = place;
    }

    /// Writes within a line.
    pub(super) fn write(&mut self, text: &[u8]) {
        self.out.extend_from_slice(text);
    }

    /// Copies the rest.
    pub(super) fn copy_rest(&mut self) {
        self.copy_until(self.text.len());
    }

    /// Adds a line. It ends as the one before it: CR, LF or both.
    pub(super) fn write_line(&mut self, line: &[u8]) {
        if self.is_over_limit() {
            return;
        }
        let ended = line_ending(&self.out);
        let newline = ended.unwrap_or_else(|| self.first_ending());
        if ended.is_none() && !self.out.is_empty() {
            self.out.extend_from_slice(newline);
        }
        self.out.extend_from_slice(line);
        self.out.extend_from_slice(newline);
    }

    /// Nothing is added any more: the copy will not be used.
    pub(super) fn is_over_limit(&self) -> bool {
        self.out.len() > MAX_OUTPUT_BYTES
    }

    /// The copy, unless it became too long.
    pub(super) fn finish(self) -> Option<Vec<u8>> {
        (!self.is_over_limit()).then_some(self.out)
    }

    fn first_ending(&self) -> &'static [u8] {
        let end = self.text.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or_default();
        line_ending(&self.text[..self.text.len().min(end + 2)]).unwrap_or(b"\n")
    }
}

/// How a text ends its last line, if it does.
fn line_ending(text: &[u8]) -> Option<&'static [u8]> {
    [&b"\r\n"[..], b"\n", b"\r"].into_iter().find(|ending| text.ends_with(ending))
}
