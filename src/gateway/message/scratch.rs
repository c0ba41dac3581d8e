//! A buffer per worker from which small bodies are allocated; many share an allocation.

use bytes::{Bytes, BytesMut};
use std::fmt;

/// Capacity for the bodies of a few dozen refusals.
const BLOCK_CAPACITY: usize = 8192;

/// Free capacity before each write, so that the buffer rarely grows during one.
const MIN_FREE_CAPACITY: usize = 1024;

/// Buffer in which bodies are written.
pub(in crate::gateway) struct ScratchBuffer(BytesMut);

impl ScratchBuffer {
    pub(in crate::gateway) fn new() -> Self {
        Self(BytesMut::with_capacity(BLOCK_CAPACITY))
    }

    /// Returns the text that `write` writes.
    pub(in crate::gateway) fn bytes(&mut self, write: impl FnOnce(&mut Self) -> fmt::Result) -> Option<Bytes> {
        if self.0.capacity() - self.0.len() < MIN_FREE_CAPACITY {
            self.0.reserve(BLOCK_CAPACITY);
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
