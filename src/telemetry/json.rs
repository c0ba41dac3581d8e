//! Writes JSON straight into a byte buffer: the access log has no time for a serializer.

use crate::policy::Units;
use std::time::Duration;

/// Appends `text` as a JSON string.
///
/// What needs no escaping is copied whole. Bytes that are not UTF-8 are read as Latin-1, one `\u00XX` each, so
/// that they can still be told apart; the line stays valid JSON whatever a client sends.
pub(super) fn string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    match is_plain(text) {
        true => out.extend_from_slice(text),
        false => {
            for chunk in text.utf8_chunks() {
                escaped(out, chunk.valid().as_bytes());
                chunk.invalid().iter().for_each(|&byte| unicode(out, byte));
            }
        }
    }
    out.push(b'"');
}

/// Appends a JSON string, or `null`.
pub(super) fn string_or_null(out: &mut Vec<u8>, text: Option<&[u8]>) {
    match text {
        Some(text) => string(out, text),
        None => out.extend_from_slice(b"null"),
    }
}

/// Appends a whole number.
pub(super) fn number(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a whole number, or `null`.
pub(super) fn number_or_null(out: &mut Vec<u8>, value: Option<impl itoa::Integer>) {
    match value {
        Some(value) => number(out, value),
        None => out.extend_from_slice(b"null"),
    }
}

/// Appends units as a decimal: `12`, `12.25`.
pub(super) fn units(out: &mut Vec<u8>, units: Units) {
    thousandths(out, units.milli());
}

/// Appends a span in milliseconds, exact to the microsecond.
pub(super) fn milliseconds(out: &mut Vec<u8>, span: Duration) {
    thousandths(out, u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
}

fn thousandths(out: &mut Vec<u8>, value: u64) {
    number(out, value / 1000);
    let fraction = value % 1000;
    if fraction > 0 {
        let digits = [fraction / 100, fraction / 10 % 10, fraction % 10].map(|digit| b'0' + digit as u8);
        let kept = digits.iter().rposition(|&digit| digit != b'0').map_or(0, |last| last + 1);
        out.push(b'.');
        out.extend_from_slice(&digits[..kept]);
    }
}

/// True when nothing has to be escaped. Looks at every byte whatever it finds, so that the compiler may look at
/// sixteen at once.
fn is_plain(text: &[u8]) -> bool {
    text.iter().fold(true, |plain, &byte| plain & (32..127).contains(&byte) & (byte != b'"') & (byte != b'\\'))
}

fn escaped(out: &mut Vec<u8>, text: &[u8]) {
    let mut rest = text;
    while let Some(place) = rest.iter().position(|&byte| NEEDS_ESCAPE[usize::from(byte)]) {
        out.extend_from_slice(&rest[..place]);
        match rest[place] {
            byte @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\t' => out.extend_from_slice(b"\\t"),
            byte => unicode(out, byte),
        }
        rest = &rest[place + 1..];
    }
    out.extend_from_slice(rest);
}

fn unicode(out: &mut Vec<u8>, byte: u8) {
    out.extend_from_slice(b"\\u00");
    out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
}

/// The digits of hexadecimal numbers.
pub(super) const HEX: &[u8; 16] = b"0123456789abcdef";

/// Control characters, the quote and the backslash. DEL is harmless in JSON but not in a terminal.
const NEEDS_ESCAPE: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 32 {
        table[byte] = true;
        byte += 1;
    }
    table[127] = true;
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(text: &[u8]) -> String {
        let mut out = Vec::new();
        string(&mut out, text);
        serde_json::from_slice(&out).expect("a JSON string")
    }

    #[test]
    fn bytes_that_are_not_utf8_are_read_as_latin_1() {
        assert_eq!(written(b"caf\xe9"), "caf\u{e9}");
        assert_eq!(written("café".as_bytes()), "café");
    }

    #[test]
    fn spans_and_units_are_decimals_without_idle_zeros() {
        let shown = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            write(&mut out);
            String::from_utf8(out).expect("digits")
        };
        assert_eq!(shown(&|out| milliseconds(out, Duration::from_micros(41_200))), "41.2");
        assert_eq!(shown(&|out| milliseconds(out, Duration::ZERO)), "0");
        assert_eq!(shown(&|out| milliseconds(out, Duration::from_micros(5))), "0.005");
        assert_eq!(shown(&|out| units(out, Units::from_milli(12_250))), "12.25");
    }

    proptest! {
        #[test]
        fn any_utf8_is_read_back_as_it_was(text in ".*") {
            prop_assert_eq!(written(text.as_bytes()), text);
        }

        #[test]
        fn units_are_written_as_they_are_displayed(milli in 0..=Units::MAX.milli()) {
            let mut out = Vec::new();
            units(&mut out, Units::from_milli(milli));
            prop_assert_eq!(String::from_utf8(out).expect("digits"), Units::from_milli(milli).to_string());
        }
    }
}
