//! Timestamps as text: RFC 3339 in UTC, to the microsecond.

use super::number_text;
use crate::policy::Timestamp;

/// Writes timestamps. Caches the text of the last second, because most lines share it.
#[derive(Clone, Debug, Default)]
pub(super) struct TimestampWriter {
    second: Option<u64>,
    /// Text up to and including the decimal point.
    prefix: [u8; 20],
}

impl TimestampWriter {
    /// Appends `moment`, as `2026-11-21T09:14:03.123456Z`.
    pub(super) fn write(&mut self, out: &mut Vec<u8>, moment: Timestamp) {
        if self.second != Some(moment.seconds()) {
            self.second = Some(moment.seconds());
            let text = second_text(moment) + ".";
            // A timestamp ends in the year 2554, so every year has four digits.
            self.prefix = *text.as_bytes().first_chunk().expect("a year of four digits and a time");
        }
        out.extend_from_slice(&self.prefix);
        let [a, b, c, d, e, f] = number_text::to_6_digits((moment.0 % 1_000_000_000 / 1000) as u32);
        out.extend_from_slice(&[a, b, c, d, e, f, b'Z']);
    }
}

/// Returns `moment` to the second, as `2026-11-21T09:14:03Z`.
pub fn rfc3339(moment: Timestamp) -> String {
    second_text(moment) + "Z"
}

/// Returns `moment` to the microsecond, as in the access log.
pub fn rfc3339_exact(moment: Timestamp) -> String {
    let mut text = Vec::new();
    TimestampWriter::default().write(&mut text, moment);
    String::from_utf8(text).expect("digits and signs")
}

fn second_text(moment: Timestamp) -> String {
    let second = i64::try_from(moment.seconds()).unwrap_or(i64::MAX);
    let text = jiff::Timestamp::from_second(second).unwrap_or(jiff::Timestamp::MAX).to_string();
    text.split(['.', 'Z']).next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn timestamp_is_written_to_the_microsecond(moments in proptest::collection::vec(any::<u64>(), 1..5)) {
            let mut text = TimestampWriter::default();
            for nanoseconds in moments {
                let mut out = Vec::new();
                text.write(&mut out, Timestamp(nanoseconds));
                let read: jiff::Timestamp = String::from_utf8(out).expect("ASCII").parse().expect("RFC 3339");
                prop_assert_eq!(read.as_microsecond(), (nanoseconds / 1000) as i64);
            }
        }
    }
}
