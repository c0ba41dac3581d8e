//! JSON output into a byte buffer, without a serializer: the access log writes one line per request.

use super::number_text::{self, HEX};
use std::time::Duration;
use tidegate_policy::Units;

/// Appends `text` as a JSON string.
pub(super) fn string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    content(out, text);
    out.push(b'"');
}

/// Appends the content of a JSON string that is a name. Names that the policy defines or the configuration checks contain
/// nothing to escape.
pub(super) fn name(out: &mut Vec<u8>, name: &str) {
    debug_assert!(is_plain(name.as_bytes()), "{name:?} is not checked like a name");
    out.extend_from_slice(name.as_bytes());
}

/// Appends a name as a JSON string, or `null`.
pub(super) fn name_or_null(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => {
            out.push(b'"');
            name(out, text);
            out.push(b'"');
        }
        None => out.extend_from_slice(b"null"),
    }
}

/// Appends the content of a JSON string, without quotes.
///
/// Text that needs no escaping is copied at once. Bytes that are not UTF-8 are read as Latin-1, one `\u00XX` each, so
/// that they remain distinguishable. The line is valid JSON whatever a client sends.
pub(super) fn content(out: &mut Vec<u8>, text: &[u8]) {
    match is_plain(text) {
        true => out.extend_from_slice(text),
        false => {
            for chunk in text.utf8_chunks() {
                escaped(out, chunk.valid().as_bytes());
                chunk.invalid().iter().for_each(|&byte| unicode(out, byte));
            }
        }
    }
}

/// Appends a JSON string, or `null`.
pub(super) fn string_or_null(out: &mut Vec<u8>, text: Option<&[u8]>) {
    match text {
        Some(text) => string(out, text),
        None => out.extend_from_slice(b"null"),
    }
}

/// Appends a whole number, or `null`.
pub(super) fn number_or_null(out: &mut Vec<u8>, number: Option<u64>) {
    match number {
        Some(number) => number_text::write_u64(out, number),
        None => out.extend_from_slice(b"null"),
    }
}

/// Appends `true`, `false` or `null`.
pub(super) fn bool_or_null(out: &mut Vec<u8>, value: Option<bool>) {
    out.extend_from_slice(match value {
        Some(true) => b"true",
        Some(false) => b"false",
        None => b"null",
    });
}

/// Appends units as a decimal: `12`, `12.25`.
pub(super) fn units(out: &mut Vec<u8>, units: Units) {
    number_text::decimal_milli(out, units.milli());
}

/// Appends a duration in milliseconds, exact to the microsecond.
pub(super) fn milliseconds(out: &mut Vec<u8>, duration: Duration) {
    number_text::decimal_milli(out, u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
}

/// Returns true if no byte needs escaping. Checks 16 bytes at once; the last 16 may overlap with the chunk before.
fn is_plain(text: &[u8]) -> bool {
    match (text.as_chunks(), text.last_chunk()) {
        ((chunks, _), Some(last)) => chunks.iter().all(are_plain::<16>) && are_plain::<16>(last),
        _ => match (text.first_chunk(), text.last_chunk()) {
            (Some(first), Some(last)) => are_plain::<8>(first) && are_plain::<8>(last),
            _ => text.iter().all(|byte| are_plain(&[*byte])),
        },
    }
}

fn are_plain<const N: usize>(bytes: &[u8; N]) -> bool {
    bytes.iter().fold(true, |plain, &byte| plain & (32..127).contains(&byte) & (byte != b'"') & (byte != b'\\'))
}

fn escaped(out: &mut Vec<u8>, text: &[u8]) {
    let mut rest = text;
    while let Some(position) = rest.iter().position(|&byte| NEEDS_ESCAPE[usize::from(byte)]) {
        out.extend_from_slice(&rest[..position]);
        match rest[position] {
            byte @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\t' => out.extend_from_slice(b"\\t"),
            byte => unicode(out, byte),
        }
        rest = &rest[position + 1..];
    }
    out.extend_from_slice(rest);
}

fn unicode(out: &mut Vec<u8>, byte: u8) {
    out.extend_from_slice(b"\\u00");
    out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
}

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

    fn round_trip(text: &[u8]) -> String {
        let mut out = Vec::new();
        string(&mut out, text);
        serde_json::from_slice(&out).expect("a JSON string")
    }

    #[test]
    fn non_utf8_bytes_are_decoded_as_latin_1() {
        assert_eq!(round_trip(b"caf\xe9"), "caf\u{e9}");
        assert_eq!(round_trip("café".as_bytes()), "café");
    }

    #[test]
    fn durations_and_units_omit_trailing_zeros() {
        let formatted = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            write(&mut out);
            String::from_utf8(out).expect("digits")
        };
        assert_eq!(formatted(&|out| milliseconds(out, Duration::from_micros(41_200))), "41.2");
        assert_eq!(formatted(&|out| milliseconds(out, Duration::ZERO)), "0");
        assert_eq!(formatted(&|out| milliseconds(out, Duration::from_micros(5))), "0.005");
        assert_eq!(formatted(&|out| units(out, Units::from_milli(12_250))), "12.25");
    }

    #[test]
    fn bytes_to_escape_are_found_at_any_position() {
        for length in 0..70 {
            let plain = vec![b'~'; length];
            assert!(is_plain(&plain));
            for (position, byte) in
                (0..length).flat_map(|position| [0, 31, 127, 128, 255, b'"', b'\\'].map(|byte| (position, byte)))
            {
                let mut text = plain.clone();
                text[position] = byte;
                assert!(!is_plain(&text), "{byte} at {position} of {length}");
            }
        }
    }

    proptest! {
        #[test]
        fn utf8_strings_round_trip(text in ".*") {
            prop_assert_eq!(round_trip(text.as_bytes()), text);
        }

        #[test]
        fn units_are_written_as_they_are_displayed(milli in 0..=Units::MAX.milli()) {
            let mut out = Vec::new();
            units(&mut out, Units::from_milli(milli));
            prop_assert_eq!(String::from_utf8(out).expect("digits"), Units::from_milli(milli).to_string());
        }
    }
}
