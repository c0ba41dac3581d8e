//! Recognizes the format of each line.

use super::line::LogLine;
use super::{LineError, combined, native, normalized};
use tidegate_policy::Timestamp;

impl<'a> LogLine<'a> {
    /// Parses a line without its line break; returns `None` for an empty line.
    pub fn read(text: &'a [u8]) -> Result<Option<Self>, LineError> {
        match text.trim_ascii_start().first() {
            None => Ok(None),
            Some(b'{') => native::read(text).map(Some),
            Some(&normalized::MARK) => normalized::read(text).map(Some),
            Some(_) => combined::read(text).map(Some),
        }
    }
}

/// Returns the UTC offset of the time of a line, in seconds; 0 for the gateway's own log.
pub fn line_utc_offset(text: &[u8]) -> Option<i64> {
    match text.first() {
        Some(b'{') => Some(0),
        Some(&normalized::MARK) => normalized::utc_offset(text),
        _ => combined::utc_offset(text),
    }
}

/// Returns the time of a line of the formats that are read without their file, without parsing the rest.
pub(super) fn read_time(text: &[u8]) -> Option<Timestamp> {
    match text.first() {
        Some(b'{') => native::read_time(text),
        _ => combined::read_time(text),
    }
}
