//! JSON output into a byte buffer, without a serializer: the access log writes one line per request.

use super::number_text::{self, HEX};
use std::time::Duration;
use tidegate_policy::Units;
use tidegate_policy::display::alters_display;

/// Maximum length of a text in bytes. Clients choose most of them.
const MAX_TEXT: usize = 2048;
/// Mark at the end of a text that was cut.
const CUT: &str = "…";

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

/// Appends the content of a JSON string, without quotes. Text beyond [`MAX_TEXT`] bytes is cut, and ends in [`CUT`].
///
/// Text that needs no escaping is copied at once. Bytes that are not UTF-8 are read as Latin-1, one `\u00XX` each, so
/// that they remain distinguishable. The line is valid JSON whatever a client sends, and changes nothing in a terminal.
pub(super) fn content(out: &mut Vec<u8>, text: &[u8]) {
    let is_cut = text.len() > MAX_TEXT;
    let text = if is_cut { &text[..last_boundary(text)] } else { text };
    match is_plain(text) {
        true => out.extend_from_slice(text),
        false => {
            for chunk in text.utf8_chunks() {
                escaped(out, chunk.valid());
                chunk.invalid().iter().for_each(|&byte| unicode(out, byte.into()));
            }
        }
    }
    if is_cut {
        out.extend_from_slice(CUT.as_bytes());
    }
}

/// Returns the position of the last character that begins at [`MAX_TEXT`] or before it.
fn last_boundary(text: &[u8]) -> usize {
    let is_boundary = |position: &usize| text[*position] & 0b1100_0000 != 0b1000_0000;
    (MAX_TEXT - 3..=MAX_TEXT).rev().find(is_boundary).unwrap_or(MAX_TEXT)
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

fn escaped(out: &mut Vec<u8>, text: &str) {
    let mut rest = text;
    while let Some((position, character)) = rest.char_indices().find(|(_, character)| needs_escape(*character)) {
        out.extend_from_slice(&rest.as_bytes()[..position]);
        match character {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\t' => out.extend_from_slice(b"\\t"),
            other => unicode(out, other),
        }
        rest = &rest[position + character.len_utf8()..];
    }
    out.extend_from_slice(rest.as_bytes());
}

/// Appends the escape of a character below U+10000.
fn unicode(out: &mut Vec<u8>, character: char) {
    let code = character as usize;
    out.extend_from_slice(b"\\u");
    out.extend([12, 8, 4, 0].map(|shift| HEX[(code >> shift) & 15]));
}

fn needs_escape(character: char) -> bool {
    matches!(character, '"' | '\\') || alters_display(character)
}

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
    fn text_cannot_change_a_terminal() {
        let marks = "\u{9b}31m \u{85}\u{202e}txt.exe\u{2066}\u{200f}\u{61c}\u{2028}\u{7f}";
        let mut out = Vec::new();
        content(&mut out, marks.as_bytes());
        assert!(is_plain(&out.iter().copied().filter(|byte| *byte != b'\\').collect::<Vec<_>>()), "{out:?}");
        assert_eq!(round_trip(marks.as_bytes()), marks);
        let harmless = "Grüße, 日本 🦀 שלום";
        out.clear();
        content(&mut out, harmless.as_bytes());
        assert_eq!(out, harmless.as_bytes());
    }

    #[test]
    fn long_text_is_cut_at_a_character_and_marked() {
        assert_eq!(round_trip(&[b'a'; 2048]), "a".repeat(2048));
        assert_eq!(round_trip(&[b'a'; 2049]), "a".repeat(2048) + "…");
        for (character, length) in [("é", 2), ("日", 3), ("🦀", 4)] {
            let text = format!("a{}", character.repeat(1100));
            assert_eq!(round_trip(text.as_bytes()), format!("a{}…", character.repeat(2047 / length)), "{character}");
        }
        assert_eq!(round_trip(&[0xbf; 5000]).chars().count(), 2049, "not UTF-8");
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
