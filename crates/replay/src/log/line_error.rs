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
    /// Client that is missing or no address.
    InvalidClient,
    /// JSON with names that are not known.
    UnknownJson,
    /// Event of the server that is no request.
    NotRequest,
    /// Line in front of the line that names its columns.
    NoColumnNames,
    /// Line in another format than the first ones of its file.
    OtherFormat,
    /// Line of an unknown format.
    UnknownFormat,
}

impl LineError {
    /// All errors.
    pub const ALL: [Self; 10] = [
        Self::TooLong,
        Self::Truncated,
        Self::InvalidTime,
        Self::InvalidStatus,
        Self::InvalidClient,
        Self::UnknownJson,
        Self::NotRequest,
        Self::NoColumnNames,
        Self::OtherFormat,
        Self::UnknownFormat,
    ];

    /// Returns the name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::Truncated => "truncated",
            Self::InvalidTime => "invalid_time",
            Self::InvalidStatus => "invalid_status",
            Self::InvalidClient => "invalid_client",
            Self::UnknownJson => "unknown_json",
            Self::NotRequest => "not_request",
            Self::NoColumnNames => "no_column_names",
            Self::OtherFormat => "other_format",
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
            Self::InvalidClient => "without a valid address of the client",
            Self::UnknownJson => {
                "JSON with unknown names; name the fields of the log, such as --field client=remote_addr"
            }
            Self::NotRequest => "events of the server that are no requests",
            Self::NoColumnNames => {
                "before a line #Fields: that names the columns; give its text, such as --format '#Fields: date time ...'"
            }
            Self::OtherFormat => "in another format than the first lines of the file, or with other columns",
            Self::UnknownFormat => "in no known format; --format takes the format string of the server",
        }
    }
}

/// Returns the error of a line that no reader understands.
pub(super) fn of_unknown_line(text: &[u8]) -> LineError {
    match memchr::memchr(b'[', text) {
        Some(_) if memchr::memmem::find(text, b"] \"").is_some() || memchr::memchr(b']', text).is_none() => {
            LineError::Truncated
        }
        _ => LineError::UnknownFormat,
    }
}
