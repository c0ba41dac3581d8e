//! Times as logs write them: `07/Jun/2024:00:00:09 +0900` and RFC 3339, each with or without a fraction.

use jiff::civil::Date;
use tidegate_policy::Timestamp;

/// A time, and true if the log contained a fraction of the second.
pub(super) type ParsedTime = (Timestamp, bool);

/// Parses a time of either form; returns `None` if it is invalid, including dates that do not exist.
pub(super) fn read(text: &[u8]) -> Option<ParsedTime> {
    match text.get(2) {
        Some(b'/') => common(text),
        _ => rfc3339(text),
    }
}

/// Parses a time of either form without a zone as UTC.
pub(super) fn read_utc(text: &[u8]) -> Option<ParsedTime> {
    let mut zoned = [0; MAX_UNZONED_BYTES + 1];
    zoned.get_mut(..text.len()).filter(|_| text.len() <= MAX_UNZONED_BYTES)?.copy_from_slice(text);
    zoned[text.len()] = b'Z';
    read(&zoned[..=text.len()])
}

/// Returns the UTC offset of such a time, in seconds.
pub(super) fn utc_offset(text: &[u8]) -> Option<i64> {
    let clock_ends = if text.get(2) == Some(&b'/') { 20 } else { 19 };
    let (_, zone) = fraction(text.get(clock_ends..)?)?;
    offset(zone)
}

/// `07/Jun/2024:00:00:09.123 +0900`
fn common(text: &[u8]) -> Option<ParsedTime> {
    let (date, time) = text.split_first_chunk::<12>()?;
    let [_, _, b'/', month @ .., b'/', _, _, _, _, b':'] = date else { return None };
    let month = month.map(|letter| letter.to_ascii_lowercase());
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    combine_date_time(parse_digits(&date[7..11])?, month as u64, parse_digits(&date[..2])?, time)
}

/// `2024-06-07T00:00:09.123+09:00`
pub(super) fn rfc3339(text: &[u8]) -> Option<ParsedTime> {
    let (date, time) = text.split_first_chunk::<11>()?;
    let [_, _, _, _, b'-', _, _, b'-', _, _, b'T' | b't' | b' '] = date else { return None };
    combine_date_time(parse_digits(&date[..4])?, parse_digits(&date[5..7])?, parse_digits(&date[8..10])?, time)
}

/// Combines a date with a time such as `00:00:09.123 +0900`. A leap second becomes the next second.
fn combine_date_time(year: u64, month: u64, day: u64, time: &[u8]) -> Option<ParsedTime> {
    let (clock, rest) = time.split_first_chunk::<8>()?;
    let [_, _, b':', _, _, b':', _, _] = clock else { return None };
    let (hour, minute, second) = (parse_digits(&clock[..2])?, parse_digits(&clock[3..5])?, parse_digits(&clock[6..])?);
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (nanoseconds, zone) = fraction(rest)?;
    let date = Date::new(year as i16, month as i8, day as i8).ok()?;
    let days = days_since_1970(date);
    let seconds = days * 86_400 + (hour * 3600 + minute * 60 + second) as i64 - offset(zone)?;
    let since_1970 = u64::try_from(seconds).ok()?.checked_mul(1_000_000_000)?;
    Some((Timestamp(since_1970.checked_add(nanoseconds.unwrap_or(0))?), nanoseconds.is_some()))
}

/// Returns the days since 1970-01-01. Years start in March here, so that the leap day is the last of a year.
fn days_since_1970(date: Date) -> i64 {
    let (year, month, day) = (i64::from(date.year()), i64::from(date.month()), i64::from(date.day()));
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before_year = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let before_month = (153 * month + 2) / 5;
    before_year + before_month + day - UNIX_EPOCH_DAY
}

/// Parses the nanoseconds of `.123`, if present, and returns the rest.
fn fraction(text: &[u8]) -> Option<(Option<u64>, &[u8])> {
    let Some(digits) = text.strip_prefix(b".").or_else(|| text.strip_prefix(b",")) else { return Some((None, text)) };
    let length = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let significant = &digits[..length.min(9)];
    let scale = 10_u64.pow(9 - significant.len() as u32);
    Some((Some(parse_digits(significant)? * scale), &digits[length..]))
}

/// Parses a UTC offset in seconds: `Z`, `+0900`, `-05:30`.
fn offset(zone: &[u8]) -> Option<i64> {
    let (sign, hours, minutes) = match zone.trim_ascii_start() {
        b"Z" | b"z" => return Some(0),
        [sign, h1, h2, m1, m2] | [sign, h1, h2, b':', m1, m2] => (sign, [*h1, *h2], [*m1, *m2]),
        _ => return None,
    };
    let seconds = (parse_digits(&hours)? * 3600 + parse_digits(&minutes)? * 60) as i64;
    match sign {
        _ if seconds > MAX_OFFSET_S => None,
        b'+' => Some(seconds),
        b'-' => Some(-seconds),
        _ => None,
    }
}

/// Always inlined: with a constant length it takes a few instructions.
#[inline(always)]
fn parse_digits(digits: &[u8]) -> Option<u64> {
    let step = |number: u64, digit: &u8| digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0'));
    (!digits.is_empty() && digits.len() <= 9).then(|| digits.iter().try_fold(0, step))?
}

/// Largest UTC offset of a zone, in seconds. The largest in use is 14 hours.
const MAX_OFFSET_S: i64 = 15 * 3600;

/// Days since 1 March of the year 0, counted from 1.
const UNIX_EPOCH_DAY: i64 = 719_469;

/// Length of a time without a zone at most, with a fraction of nanoseconds.
const MAX_UNZONED_BYTES: usize = 32;

const MONTHS: [[u8; 3]; 12] =
    [*b"jan", *b"feb", *b"mar", *b"apr", *b"may", *b"jun", *b"jul", *b"aug", *b"sep", *b"oct", *b"nov", *b"dec"];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_times_are_rejected() {
        for text in [
            "",
            "29/Feb/2023:00:00:00 +0000",
            "07/Jun/2024:24:00:00 +0000",
            "07/Jun/2024:00:00:00",
            "31/Dec/1969:23:59:59 +0000",
        ] {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn time_formats_round_trip(second in 0..4_000_000_000_i64, micro in 0..1_000_000_i64, east in -14 * 60..=14 * 60_i32) {
            let time = jiff::Timestamp::from_microsecond(second * 1_000_000 + micro).expect("in range");
            let zoned = time.to_zoned_datetime(jiff::tz::Offset::from_seconds(east * 60).expect("in range").to_time_zone());
            let at = Timestamp((second * 1_000_000 + micro) as u64 * 1000);
            let common = zoned.strftime("%d/%b/%Y:%H:%M:%S.%6f %z").to_string();
            prop_assert_eq!(read(common.as_bytes()), Some((at, true)));
            prop_assert_eq!(super::utc_offset(common.as_bytes()), Some(i64::from(east) * 60));
            let iso = zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
            prop_assert_eq!(read(iso.as_bytes()), Some((Timestamp::from_seconds(second as u64), false)));
        }

        #[test]
        fn arbitrary_text_never_panics(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = (read(&text), super::utc_offset(&text));
        }
    }
}
