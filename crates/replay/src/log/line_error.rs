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
    /// Line of an Amazon load balancer or of CloudFront.
    AmazonLog,
    /// Line of HAProxy's own format.
    HaProxyLog,
    /// Line of the W3C format, as IIS writes it.
    W3cLog,
    /// Line of an unknown format.
    UnknownFormat,
}

impl LineError {
    /// All errors.
    pub const ALL: [Self; 9] = [
        Self::TooLong,
        Self::Truncated,
        Self::InvalidTime,
        Self::InvalidStatus,
        Self::ForeignJson,
        Self::AmazonLog,
        Self::HaProxyLog,
        Self::W3cLog,
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
            Self::AmazonLog => "amazon_log",
            Self::HaProxyLog => "haproxy_log",
            Self::W3cLog => "w3c_log",
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
            Self::AmazonLog => {
                "in the format of an Amazon load balancer or CloudFront; replay the log of the server behind it"
            }
            Self::HaProxyLog => "in HAProxy's own format; log with `option httplog clf` and captured user agents",
            Self::W3cLog => "in the W3C format (IIS, CloudFront); use a log in combined format",
            Self::UnknownFormat => "in no known format: no client before the time in brackets",
        }
    }
}

/// Returns the error of a line that no reader understands, by its format if that is known.
pub(super) fn of_foreign_line(text: &[u8]) -> LineError {
    of_other_format(text).unwrap_or_else(|| match memchr::memchr(b'[', text) {
        Some(_) if memchr::memmem::find(text, b"] \"").is_some() || memchr::memchr(b']', text).is_none() => {
            LineError::Truncated
        }
        _ => LineError::UnknownFormat,
    })
}

/// Returns the error of a line in a format of another server that is not read; `None` if it has no mark of one.
pub(super) fn of_other_format(text: &[u8]) -> Option<LineError> {
    let contains = |mark: &[u8]| memchr::memmem::find(text, mark).is_some();
    let starts = |marks: &[&[u8]]| marks.iter().any(|mark| text.starts_with(mark));
    let words = || text.split(|byte| byte.is_ascii_whitespace());
    let is_day = |word: &[u8]| word.len() == 10 && word[4] == b'-' && word[7] == b'-';
    let is_clock = |word: &[u8]| word.len() == 8 && word[2] == b':' && word[5] == b':';
    if starts(&[b"#Version:", b"#Fields:", b"#Software:", b"#Date:"])
        || words().next().is_some_and(is_day) && words().nth(1).is_some_and(is_clock) && !contains(b"\"")
    {
        return Some(LineError::W3cLog);
    }
    if starts(&[b"http ", b"https ", b"h2 ", b"ws ", b"wss ", b"grpcs "]) && contains(b"\"") {
        return Some(LineError::AmazonLog);
    }
    if contains(b"haproxy[") || contains(b" {") && contains(b"} \"") && contains(b"---- ") {
        return Some(LineError::HaProxyLog);
    }
    None
}
