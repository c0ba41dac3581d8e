//! Cached `Date` field value (RFC 9110 section 5.6.7), formatted once per second.

use std::cell::Cell;
use std::time::{Duration, UNIX_EPOCH};

/// The second of the last request, and its text.
#[derive(Debug)]
pub struct DateCache(Cell<(u64, [u8; 29])>);

impl DateCache {
    /// Returns an empty cache.
    pub fn new() -> Self {
        Self(Cell::new((0, *b"Thu, 01 Jan 1970 00:00:00 GMT")))
    }

    /// Formats the time `second`, in seconds since 1970.
    pub fn text(&self, second: u64) -> [u8; 29] {
        let (cached, text) = self.0.get();
        if cached == second {
            return text;
        }
        let formatted = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
        let text = formatted.as_bytes().try_into().unwrap_or(text);
        self.0.set((second, text));
        text
    }
}

impl Default for DateCache {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_changes_with_the_second() {
        let dates = DateCache::new();
        assert_eq!(&dates.text(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&dates.text(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&dates.text(784_111_778), b"Sun, 06 Nov 1994 08:49:38 GMT");
    }
}
