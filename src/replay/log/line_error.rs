//! Why a line is passed over.

/// What is wrong with a line that is no request of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LineError {
    /// It is longer than any that a server writes.
    TooLong,
    /// It ends in the middle: the disk was full, or the file was rotated.
    Cut,
    /// Its time is none, or of a day that never was.
    Time,
    /// Its status is none.
    Status,
    /// It is JSON, but not as the gate writes it.
    OtherJson,
    /// It has the form of no known log.
    Unknown,
}

impl LineError {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::TooLong, Self::Cut, Self::Time, Self::Status, Self::OtherJson, Self::Unknown];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::Cut => "cut",
            Self::Time => "time",
            Self::Status => "status",
            Self::OtherJson => "other_json",
            Self::Unknown => "unknown",
        }
    }

    /// It, said to a person.
    pub const fn said(self) -> &'static str {
        match self {
            Self::TooLong => "longer than 64 KiB",
            Self::Cut => "cut off in the middle",
            Self::Time => "no such time",
            Self::Status => "no status",
            Self::OtherJson => "JSON that is not the gate's own; log in the combined format, or as the gate does",
            Self::Unknown => "in no known format",
        }
    }
}
