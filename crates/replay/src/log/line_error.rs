//! Errors of log lines that are skipped.

/// Reason why a line is not a valid log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LineError {
    /// Line longer than any that a server writes.
    TooLong,
    /// Line that ends in the middle: the disk was full, or the file was rotated.
    Truncated,
    /// Time that is invalid, including dates that do not exist.
    InvalidTime,
    /// Missing or invalid status.
    InvalidStatus,
    /// JSON of another program.
    ForeignJson,
    /// Line of an unknown format.
    UnknownFormat,
}

impl LineError {
    /// All errors.
    pub const ALL: [Self; 6] = [
        Self::TooLong,
        Self::Truncated,
        Self::InvalidTime,
        Self::InvalidStatus,
        Self::ForeignJson,
        Self::UnknownFormat,
    ];

    /// Returns the name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::Truncated => "truncated",
            Self::InvalidTime => "invalid_time",
            Self::InvalidStatus => "invalid_status",
            Self::ForeignJson => "foreign_json",
            Self::UnknownFormat => "unknown_format",
        }
    }

    /// Returns the description, such as `truncated`.
    pub const fn message(self) -> &'static str {
        match self {
            Self::TooLong => "longer than 64 KiB",
            Self::Truncated => "truncated",
            Self::InvalidTime => "without a valid time",
            Self::InvalidStatus => "without a valid status",
            Self::ForeignJson => "JSON that the gateway did not write",
            Self::UnknownFormat => "in no known format",
        }
    }
}
