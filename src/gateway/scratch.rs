//! One buffer a worker from which header values and small bodies are cut: many share an allocation.

use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use std::fmt;

/// Enough for the headers of a few dozen answers.
const BLOCK: usize = 8192;

/// Text that becomes header values.
pub(super) struct Scratch(BytesMut);

impl Scratch {
    pub(super) fn new() -> Self {
        Self(BytesMut::with_capacity(BLOCK))
    }

    /// The text that `write` writes, as a header value; `None` if it cannot be one.
    pub(super) fn value(&mut self, write: impl FnOnce(&mut Self) -> fmt::Result) -> Option<HeaderValue> {
        HeaderValue::from_maybe_shared(self.bytes(write)?).ok()
    }

    /// The text that `write` writes.
    pub(super) fn bytes(&mut self, write: impl FnOnce(&mut Self) -> fmt::Result) -> Option<Bytes> {
        let written = write(self);
        let text = self.0.split().freeze();
        written.is_ok().then_some(text)
    }
}

impl fmt::Write for Scratch {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.capacity() - self.0.len() < text.len() {
            self.0.reserve(BLOCK.max(text.len()));
        }
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
