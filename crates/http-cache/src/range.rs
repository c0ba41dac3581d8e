//! A range of a stored body (RFC 9110 section 14). One range is answered; several are answered by the whole.

/// Part of a body that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedRange {
    /// All of it.
    Whole,
    /// The bytes from `first` to `last`, both included.
    Part {
        /// First byte.
        first: u64,
        /// Last byte.
        last: u64,
    },
    /// Bytes beyond its end.
    Unsatisfiable,
}

/// Returns the part of a body of `length` bytes that the value of `Range` asks for. An invalid value, another unit or
/// several ranges ask for the whole.
pub fn requested_range(value: &[u8], length: u64) -> RequestedRange {
    parse(value, length).unwrap_or(RequestedRange::Whole)
}

/// Returns false if a server ignores the value of `Range`: one without a unit and an equals sign, or an invalid range of
/// bytes. Another unit may be one of the origin.
pub fn may_be_range(value: &[u8]) -> bool {
    let Some(equals) = value.iter().position(|byte| *byte == b'=') else { return false };
    let is_bytes = value[..equals].trim_ascii().eq_ignore_ascii_case(b"bytes");
    let is_several = value.contains(&b',');
    !is_bytes || is_several || parse(value, u64::MAX).is_some()
}

fn parse(value: &[u8], length: u64) -> Option<RequestedRange> {
    let text = std::str::from_utf8(value).ok()?;
    let (unit, range) = text.split_once('=')?;
    let mut ranges = range.split(',').map(str::trim).filter(|range| !range.is_empty());
    let (Some(range), None) = (ranges.next(), ranges.next()) else { return None };
    let (first, last) = range.split_once('-')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u64>().ok())?;
    let (first, last) = match (first, last) {
        ("", "") => return None,
        ("", suffix) => match number(suffix)? {
            0 => return Some(RequestedRange::Unsatisfiable),
            suffix => (length.saturating_sub(suffix), u64::MAX),
        },
        (first, "") => (number(first)?, u64::MAX),
        (first, last) => (number(first)?, number(last)?),
    };
    if last < first {
        return None;
    }
    Some(match first < length {
        true => RequestedRange::Part { first, last: last.min(length - 1) },
        false => RequestedRange::Unsatisfiable,
    })
}
