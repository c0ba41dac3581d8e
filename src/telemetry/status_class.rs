//! Status classes as exported in metrics: by first digit, with 429 and 503, which the gateway itself sends, apart.

/// A status class of a closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StatusClass(u8);

impl StatusClass {
    /// Label values, by index.
    pub(super) const NAMES: [&'static str; 8] = ["1xx", "2xx", "3xx", "4xx", "429", "5xx", "503", "error"];
    /// No response.
    pub(super) const ERROR: Self = Self(7);

    /// Returns the class of `status`; an invalid status counts as an error.
    pub(super) const fn from_status(status: u16) -> Self {
        Self(match status {
            429 => 4,
            503 => 6,
            100..=199 => 0,
            200..=299 => 1,
            300..=399 => 2,
            400..=499 => 3,
            500..=599 => 5,
            _ => 7,
        })
    }

    /// Returns the index in [`Self::NAMES`].
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}
