//! Cost that a body reports, or why there is none.

/// Cost that a body reports, or why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundCost {
    /// Weighted sum of the numbers. Paths without a number count zero.
    Amount {
        /// Cost in milli-units, rounded up.
        milli: u64,
    },
    /// No path leads to a value other than null, or the body is empty.
    Missing,
    /// The value of a path is negative or not a number, or the sum exceeds what 64 bits of milli-units can hold.
    Invalid,
    /// The body is not JSON or ends early, it cannot be decoded, or it exceeds [`MAX_DECODED`](crate::MAX_DECODED).
    ///
    /// Events and lines that are not JSON do not count: they are skipped.
    Malformed,
}

impl FoundCost {
    /// Returns the cost in milli-units; `None` if there is none.
    pub fn milli(self) -> Option<u64> {
        match self {
            Self::Amount { milli } => Some(milli),
            Self::Missing | Self::Invalid | Self::Malformed => None,
        }
    }
}
