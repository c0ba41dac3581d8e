//! A value of a log line, as text or as a number of JSON.

use super::field::{Encoding, Meaning, SECOND};
use crate::log::timestamp;
use std::borrow::Cow;
use std::time::Duration;
use tidegate_policy::Timestamp;

/// A value of a field.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::log) enum Value<'a> {
    /// Text, with its encoding.
    Text(Cow<'a, [u8]>),
    /// Number of JSON.
    Number(f64),
    /// Number of JSON without a fraction.
    Integer(u64),
}

/// Time of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::log) struct LineTime {
    pub(in crate::log) at: Timestamp,
    pub(in crate::log) has_fraction: bool,
    /// UTC offset, in seconds.
    pub(in crate::log) utc_offset: i64,
}

impl<'a> Value<'a> {
    /// Returns the value as text; `None` if it is empty, a dash, or a number.
    pub(in crate::log) fn text(&self) -> Option<&[u8]> {
        match self {
            Self::Text(text) if !matches!(&**text, b"" | b"-") => Some(text),
            _ => None,
        }
    }

    /// Returns the decoded text; `None` if it is empty, a dash, or a number.
    pub(in crate::log) fn into_text(self, encoding: Encoding) -> Option<Cow<'a, [u8]>> {
        self.text()?;
        let Self::Text(text) = self else { return None };
        Some(match encoding {
            Encoding::Plain => text,
            Encoding::Backslash => crate::log::quoted::unescape(text),
            Encoding::AnyBackslash => without_backslashes(text),
            Encoding::Percent => decode(text, b'%'),
            Encoding::Hash => decode(text, b'#'),
            Encoding::Plus => Cow::Owned(text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect()),
        })
    }

    /// Returns the value as a number without a fraction.
    pub(in crate::log) fn unsigned(&self) -> Option<u64> {
        match self {
            Self::Integer(number) => Some(*number),
            Self::Number(number) if *number >= 0.0 && number.fract() == 0.0 && *number < MAX_EXACT => {
                Some(*number as u64)
            }
            Self::Number(_) => None,
            Self::Text(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        }
    }

    /// Returns the value as a duration; several numbers, as of several attempts of nginx, are added.
    pub(in crate::log) fn duration(&self, meaning: Meaning) -> Option<Duration> {
        let nanoseconds = |number: f64| {
            let product = number * meaning.unit_ns as f64;
            (0.0..MAX_EXACT * 64.0).contains(&product).then(|| Duration::from_nanos(product.round() as u64))
        };
        match self {
            Self::Integer(number) => number.checked_mul(meaning.unit_ns).map(Duration::from_nanos),
            Self::Number(number) => nanoseconds(*number),
            Self::Text(text) => {
                let text = std::str::from_utf8(text).ok()?;
                if let Some(duration) = with_unit(text) {
                    return Some(duration);
                }
                let numbers = text.split([',', ':', ' ']).filter(|number| !matches!(*number, "" | "-"));
                let mut sum = None;
                for number in numbers.take(MAX_ATTEMPTS) {
                    sum = Some(sum.unwrap_or(Duration::ZERO) + nanoseconds(number.parse().ok()?)?);
                }
                sum
            }
        }
    }

    /// Returns true for a time without a zone.
    pub(in crate::log) fn is_time_without_zone(&self) -> bool {
        self.text().is_some_and(|text| timestamp::read(text).is_none() && timestamp::read_utc(text).is_some())
    }

    /// Returns the value as a time: RFC 3339, that of Apache and nginx, or the time since 1970 in any unit. Without a zone
    /// it is in UTC.
    pub(in crate::log) fn time(&self) -> Option<LineTime> {
        match self {
            Self::Integer(number) => since_1970(*number, 0, false),
            Self::Number(number) => {
                let seconds = (0.0..MAX_EPOCH_SECONDS as f64).contains(number);
                // The digits that a double of this size has.
                let micros = seconds.then(|| (number * 1e6).round() as u64)?;
                since_1970(micros / 1_000_000, micros % 1_000_000 * 1000, true)
            }
            Self::Text(text) => {
                let text = text.strip_prefix(b"[").and_then(|inner| inner.strip_suffix(b"]")).unwrap_or(text);
                if text.first()?.is_ascii_digit() && text.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.') {
                    return epoch_text(std::str::from_utf8(text).ok()?);
                }
                let ((at, has_fraction), utc_offset) = match timestamp::read(text) {
                    Some(time) => (time, timestamp::utc_offset(text)?),
                    None => (timestamp::read_utc(text)?, 0),
                };
                Some(LineTime { at, has_fraction, utc_offset })
            }
        }
    }
}

/// Parses a decimal of the seconds since 1970, or an integer in a smaller unit.
fn epoch_text(text: &str) -> Option<LineTime> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole = whole.parse().ok()?;
    if fraction.is_empty() {
        return since_1970(whole, 0, false);
    }
    let digits = &fraction[..fraction.len().min(9)];
    let nanoseconds = digits.parse::<u64>().ok()? * 10_u64.pow(9 - digits.len() as u32);
    (whole < MAX_EPOCH_SECONDS).then(|| since_1970(whole, nanoseconds, true))?
}

/// Returns the time of a number since 1970. Its size shows its unit: seconds, or thousandths of them.
fn since_1970(number: u64, nanoseconds: u64, has_fraction: bool) -> Option<LineTime> {
    let unit_ns = match number {
        0..MAX_EPOCH_SECONDS => SECOND,
        MAX_EPOCH_SECONDS..100_000_000_000_000 => SECOND / 1000,
        100_000_000_000_000..100_000_000_000_000_000 => 1000,
        _ => 1,
    };
    let at = number.checked_mul(unit_ns)?.checked_add(nanoseconds)?;
    Some(LineTime { at: Timestamp(at), has_fraction: has_fraction || unit_ns < SECOND, utc_offset: 0 })
}

/// Parses a duration with a unit, such as `1.5ms`, as Go writes it.
fn with_unit(text: &str) -> Option<Duration> {
    let unit_at = text.find(|letter: char| letter.is_alphabetic() || letter == 'µ')?;
    let (number, unit) = text.split_at(unit_at);
    let unit_ns = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    let product = number.parse::<f64>().ok()? * unit_ns;
    (0.0..MAX_EXACT * 64.0).contains(&product).then(|| Duration::from_nanos(product.round() as u64))
}

/// Removes the backslash in front of each byte that has one.
fn without_backslashes(text: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\\', &text).is_none() {
        return text;
    }
    let mut is_escaped = false;
    let mut keep = |byte: &u8| {
        is_escaped = *byte == b'\\' && !is_escaped;
        !is_escaped
    };
    Cow::Owned(text.iter().copied().filter(|byte| keep(byte)).collect())
}

/// Replaces `mark` with two hexadecimal digits by its byte.
fn decode(text: Cow<'_, [u8]>, mark: u8) -> Cow<'_, [u8]> {
    if memchr::memchr(mark, &text).is_none() {
        return text;
    }
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16)).map(|digit| digit as u8);
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(&byte) = text.get(at) {
        let code = (byte == mark).then(|| Some(digit(text.get(at + 1))? << 4 | digit(text.get(at + 2))?)).flatten();
        out.push(code.unwrap_or(byte));
        at += if code.is_some() { 3 } else { 1 };
    }
    Cow::Owned(out)
}

/// Integers below it are exact as a double.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Seconds since 1970 up to the year 5138: larger numbers have a smaller unit.
const MAX_EPOCH_SECONDS: u64 = 100_000_000_000;

/// Attempts of a request at most.
const MAX_ATTEMPTS: usize = 32;

#[cfg(test)]
mod tests {
    use super::super::field::{Field, MILLISECOND};
    use super::*;

    fn text(text: &str) -> Value<'_> {
        Value::Text(Cow::Borrowed(text.as_bytes()))
    }

    #[test]
    fn times_of_all_forms_are_one_instant() {
        let instant = 1_717_718_409_u64;
        for (value, fraction_ns, utc_offset) in [
            (text("2024-06-07T00:00:09Z"), None, 0),
            (text("2024-06-07T09:00:09+09:00"), None, 32_400),
            (text("2024-06-07T00:00:09"), None, 0),
            (text("2024-06-07 00:00:09.5"), Some(500_000_000), 0),
            (text("[07/Jun/2024:00:00:09 +0000]"), None, 0),
            (text("07/Jun/2024:00:00:09.655"), Some(655_000_000), 0),
            (text("1717718409"), None, 0),
            (text("1717718409.123"), Some(123_000_000), 0),
            (text("1717718409123"), Some(123_000_000), 0),
            (Value::Integer(instant), None, 0),
            (Value::Integer(1_717_718_409_123_456_789), Some(123_456_789), 0),
            (Value::Integer(1_717_718_409_123_456), Some(123_456_000), 0),
            (Value::Number(1_717_718_409.25), Some(250_000_000), 0),
        ] {
            let at = Timestamp(instant * SECOND + fraction_ns.unwrap_or(0));
            let expected = LineTime { at, has_fraction: fraction_ns.is_some(), utc_offset };
            assert_eq!(value.time(), Some(expected), "{value:?}");
        }
        for invalid in
            [text(""), text("-"), text("yesterday"), text("1.2.3"), Value::Number(-1.0), Value::Number(f64::NAN)]
        {
            assert_eq!(invalid.time(), None, "{invalid:?}");
        }
    }

    #[test]
    fn durations_have_their_unit() {
        let seconds = Meaning::of(Field::Latency);
        let milliseconds = Meaning::latency(MILLISECOND);
        for (value, meaning, expected) in [
            (text("0.250"), seconds, Some(250)),
            (text("0.100, 0.200 : -"), seconds, Some(300)),
            (text("15"), milliseconds, Some(15)),
            (text("1.5s"), milliseconds, Some(1500)),
            (Value::Number(0.125), seconds, Some(125)),
            (Value::Integer(7), milliseconds, Some(7)),
            (text("-1"), milliseconds, None),
            (text("-"), seconds, None),
            (Value::Number(f64::INFINITY), seconds, None),
            (Value::Integer(u64::MAX), seconds, None),
        ] {
            assert_eq!(value.duration(meaning), expected.map(Duration::from_millis), "{value:?}");
        }
    }

    #[test]
    fn text_is_decoded_as_it_was_written() {
        for (value, encoding, expected) in [
            ("a%20b%2", Encoding::Percent, "a b%2"),
            ("a+b%20", Encoding::Plus, "a b%20"),
            ("#22a#7d#", Encoding::Hash, "\"a}#"),
            ("\\x22\\\\a", Encoding::Backslash, "\"\\a"),
            ("a\\\"b\\]\\\\", Encoding::AnyBackslash, "a\"b]\\"),
            ("a%20+#22\\", Encoding::Plain, "a%20+#22\\"),
        ] {
            let decoded = text(value).into_text(encoding).expect("a text");
            assert_eq!(String::from_utf8_lossy(&decoded), expected);
        }
    }
}
