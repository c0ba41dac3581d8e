//! Durations as Go writes them, such as `6m0s`, `17ms` and `1h2m3.5s`. Model APIs send the time until a limit resets in
//! this form.

use std::time::Duration;

/// Units, with their nanoseconds. A unit stands before those that it begins with.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Returns the duration that `text` states: decimal numbers, each with its unit, which add up. `None` for a sign, a number
/// without a unit, other text, and more than 584 years.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let (mut rest, mut sum) = (text, 0u64);
    while !rest.is_empty() {
        let (nanoseconds, after) = parse_part(rest)?;
        sum = sum.checked_add(nanoseconds)?;
        rest = after;
    }
    (!text.is_empty()).then(|| Duration::from_nanos(sum))
}

/// Returns the nanoseconds of the number and unit at the start of `text`, and the rest.
fn parse_part(text: &str) -> Option<(u64, &str)> {
    let (whole, rest) = split_digits(text);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), split_digits);
    let (unit, rest) = UNITS.iter().find_map(|(name, unit)| Some((*unit, rest.strip_prefix(name)?)))?;
    if whole.is_empty() {
        return None;
    }
    let mut nanoseconds = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.bytes() {
        place /= 10;
        nanoseconds = nanoseconds.checked_add(place * u64::from(digit - b'0'))?;
    }
    Some((nanoseconds, rest))
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_unit_is_read() {
        for (text, nanoseconds) in [
            ("1s", 1_000_000_000),
            ("17ms", 17_000_000),
            ("6m0s", 360_000_000_000),
            ("1h2m3.5s", 3_723_500_000_000),
            ("2m59.56s", 179_560_000_000),
            ("0s", 0),
            ("250us", 250_000),
            ("1.5\u{b5}s", 1_500),
            ("9\u{3bc}s", 9_000),
            ("3ns", 3),
            ("1.s", 1_000_000_000),
            ("0.0000000019s", 1),
            ("18446744073709551615ns", u64::MAX),
        ] {
            assert_eq!(parse(text), Some(Duration::from_nanos(nanoseconds)), "{text}");
        }
    }

    #[test]
    fn other_text_and_overflow_are_no_duration() {
        for text in [
            "",
            "6",
            "-6m0s",
            "+1s",
            "6m0",
            "s",
            ".5s",
            "1 s",
            "1d",
            "1e3s",
            "1h2m3.5.1s",
            "18446744073709551616ns",
            "5124096h",
            "9999999999999999999999s",
            "18446744073709551615ns1ns",
            "6M",
            "\u{661}s",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    /// Writes a duration as Go does.
    fn written(duration: Duration) -> String {
        let decimal = |value: u64, digits: u32| {
            let (scale, digits) = (10u64.pow(digits), digits as usize);
            let text = format!("{}.{:0digits$}", value / scale, value % scale);
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        let nanoseconds = u64::try_from(duration.as_nanos()).expect("less than 584 years");
        match nanoseconds {
            0 => return "0s".into(),
            1..1_000 => return format!("{nanoseconds}ns"),
            1_000..1_000_000 => return decimal(nanoseconds, 3) + "\u{b5}s",
            1_000_000..1_000_000_000 => return decimal(nanoseconds, 6) + "ms",
            _ => {}
        }
        let (minutes, rest) = (nanoseconds / 60_000_000_000, nanoseconds % 60_000_000_000);
        let seconds = decimal(rest, 9) + "s";
        match (minutes / 60, minutes % 60) {
            (0, 0) => seconds,
            (0, minutes) => format!("{minutes}m{seconds}"),
            (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
        }
    }

    proptest! {
        #[test]
        fn written_duration_is_read_back(shift in 0u32..64, nanoseconds in any::<u64>()) {
            let duration = Duration::from_nanos(nanoseconds >> shift);
            prop_assert_eq!(parse(&written(duration)), Some(duration));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}|[0-9.hmsnu\u{b5}+-]{0,40}") {
            let _ = parse(&text);
        }
    }
}
