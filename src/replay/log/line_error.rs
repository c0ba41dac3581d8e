//! Why a line is passed over.

/// What is wrong with a line that is no request of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LineError {
    /// It is longer than any that a server writes.
    TooLong,
    /// It ends in the middle: the disk was full, or the file was rotated.
    Truncated,
    /// Its time is none, or of a day that never was.
    InvalidTime,
    /// Its status is none.
    InvalidStatus,
    /// It is JSON, but not as the gate writes it.
    ForeignJson,
    /// It has the form of no known log.
    UnknownFormat,
}

impl LineError {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::TooLong,
        Self::Truncated,
        Self::InvalidTime,
        Self::InvalidStatus,
        Self::ForeignJson,
        Self::UnknownFormat,
    ];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::Truncated => "cut",
            Self::InvalidTime => "time",
            Self::InvalidStatus => "status",
            Self::ForeignJson => "other_json",
            Self::UnknownFormat => "unknown",
        }
    }

    /// It, said to a person.
    pub const fn message(self) -> &'static str {
        match self {
            Self::TooLong => "longer than 64 KiB",
            Self::Truncated => "cut off in the middle",
            Self::InvalidTime => "no such time",
            Self::InvalidStatus => "no status",
            Self::ForeignJson => "JSON that is not the gate's own; log in the combined format, or as the gate does",
            Self::UnknownFormat => "in no known format",
        }
    }
}
