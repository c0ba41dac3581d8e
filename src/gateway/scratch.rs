//! One buffer a worker from which small bodies are cut: many share an allocation.

use bytes::{Bytes, BytesMut};
use std::fmt;

/// Enough for the bodies of a few dozen refusals.
const BLOCK: usize = 8192;

/// Room that there is before anything is written, so that it rarely has to be made in the midst of it.
const ROOM: usize = 1024;

/// Text that becomes bodies.
pub(super) struct ScratchBuffer(BytesMut);

impl ScratchBuffer {
    pub(super) fn new() -> Self {
        Self(BytesMut::with_capacity(BLOCK))
    }

    /// The text that `write` writes.
    pub(super) fn bytes(&mut self, write: impl FnOnce(&mut Self) -> fmt::Result) -> Option<Bytes> {
        if self.0.capacity() - self.0.len() < ROOM {
            self.0.reserve(BLOCK);
        }
        let written = write(self);
        let text = self.0.split().freeze();
        written.is_ok().then_some(text)
    }
}

impl fmt::Write for ScratchBuffer {
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
