//! Status codes as metrics show them: by their first digit, with the two that the gate itself gives apart.

/// A closed list of codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StatusClass(u8);

impl StatusClass {
    /// All labels, by place.
    pub(super) const NAMES: [&'static str; 8] = ["1xx", "2xx", "3xx", "4xx", "429", "5xx", "503", "error"];
    /// No answer at all.
    pub(super) const ERROR: Self = Self(7);

    /// The code of `status`; what is no status at all counts as an error.
    pub(super) const fn of(status: u16) -> Self {
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

    /// Its place among the names.
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}
