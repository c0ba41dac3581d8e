//! Timestamps as text: RFC 3339 in UTC, to the microsecond.

use super::number_text;
use tidegate_policy::Timestamp;

/// Writes timestamps. Caches the text of the last second, because most lines share it.
#[derive(Clone, Debug, Default)]
pub(super) struct TimestampWriter {
    second: Option<u64>,
    /// Text up to and including the decimal point.
    prefix: [u8; 20],
}

impl TimestampWriter {
    /// Appends `timestamp`, as `2026-11-21T09:14:03.123456Z`.
    pub(super) fn write(&mut self, out: &mut Vec<u8>, timestamp: Timestamp) {
        if self.second != Some(timestamp.seconds()) {
            self.second = Some(timestamp.seconds());
            let text = second_text(timestamp) + ".";
            // A timestamp ends in the year 2554, so every year has four digits.
            self.prefix = *text.as_bytes().first_chunk().expect("a year of four digits and a time");
        }
        out.extend_from_slice(&self.prefix);
        let [a, b, c, d, e, f] = number_text::to_6_digits((timestamp.0 % 1_000_000_000 / 1000) as u32);
        out.extend_from_slice(&[a, b, c, d, e, f, b'Z']);
    }
}

/// Returns `timestamp` to the second, as `2026-11-21T09:14:03Z`.
pub fn rfc3339(timestamp: Timestamp) -> String {
    second_text(timestamp) + "Z"
}

/// Returns `timestamp` to the microsecond, as in the access log.
pub fn rfc3339_exact(timestamp: Timestamp) -> String {
    let mut text = Vec::new();
    TimestampWriter::default().write(&mut text, timestamp);
    String::from_utf8(text).expect("digits and signs")
}

fn second_text(timestamp: Timestamp) -> String {
    let second = i64::try_from(timestamp.seconds()).unwrap_or(i64::MAX);
    let text = jiff::Timestamp::from_second(second).unwrap_or(jiff::Timestamp::MAX).to_string();
    text.split(['.', 'Z']).next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn timestamp_is_written_to_the_microsecond(timestamps in proptest::collection::vec(any::<u64>(), 1..5)) {
            let mut writer = TimestampWriter::default();
            for nanoseconds in timestamps {
                let mut out = Vec::new();
                writer.write(&mut out, Timestamp(nanoseconds));
                let parsed: jiff::Timestamp = String::from_utf8(out).expect("ASCII").parse().expect("RFC 3339");
                prop_assert_eq!(parsed.as_microsecond(), (nanoseconds / 1000) as i64);
            }
        }
    }
}
