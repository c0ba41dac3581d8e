//! Strings of JSON, decoded into a buffer of fixed size.

use crate::path::MAX_SEGMENT_LEN;
use memchr::memchr2;

/// Decoder of a key, or of a string that may be a number.
pub(crate) struct TextDecoder {
    bytes: [u8; MAX_SEGMENT_LEN],
    length: usize,
    /// The text is too long, or has a surrogate without its other half. It then equals no key.
    is_unusable: bool,
    escape: Escape,
    /// First half of a surrogate pair, if the second one must follow.
    high_surrogate: Option<u16>,
}

/// Part of an escape sequence that was decoded.
#[derive(Clone, Copy)]
enum Escape {
    None,
    Backslash,
    Unicode { digits: u8, value: u16 },
}

/// How far a string was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextProgress {
    /// The string goes on behind the bytes.
    Unfinished,
    /// The string ends, and so many bytes belong to it, with its closing quote.
    Ended { length: usize },
    /// An escape sequence that JSON does not have.
    Malformed,
}

impl Default for TextDecoder {
    fn default() -> Self {
        Self { bytes: [0; MAX_SEGMENT_LEN], length: 0, is_unusable: false, escape: Escape::None, high_surrogate: None }
    }
}

impl TextDecoder {
    /// Starts another string, behind its opening quote.
    pub(crate) fn start(&mut self) {
        self.length = 0;
        self.is_unusable = false;
        self.escape = Escape::None;
        self.high_surrogate = None;
    }

    /// Returns the decoded string; `None` if it is too long or not Unicode.
    pub(crate) fn text(&self) -> Option<&[u8]> {
        (!self.is_unusable && self.high_surrogate.is_none()).then(|| &self.bytes[..self.length])
    }

    /// Decodes the next bytes, up to the closing quote.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> TextProgress {
        let mut at = 0;
        while at < bytes.len() {
            if !matches!(self.escape, Escape::None) {
                if !self.push_escaped(bytes[at]) {
                    return TextProgress::Malformed;
                }
                at += 1;
                continue;
            }
            let run = plain_length(&bytes[at..]);
            self.append_plain(&bytes[at..at + run]);
            at += run;
            match bytes.get(at) {
                Some(b'"') => return TextProgress::Ended { length: at + 1 },
                Some(_) => self.escape = Escape::Backslash,
                None => {}
            }
            at += 1;
        }
        TextProgress::Unfinished
    }

    /// Decodes a byte of an escape sequence. Returns false if JSON has no such sequence.
    fn push_escaped(&mut self, byte: u8) -> bool {
        if let Escape::Unicode { digits, value } = self.escape {
            let Some(digit) = char::from(byte).to_digit(16) else { return false };
            let value = value << 4 | digit as u16;
            self.escape = if digits < 3 { Escape::Unicode { digits: digits + 1, value } } else { Escape::None };
            if digits == 3 {
                self.append_code_unit(value);
            }
            return true;
        }
        self.escape = Escape::None;
        let decoded = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                self.escape = Escape::Unicode { digits: 0, value: 0 };
                return true;
            }
            _ => return false,
        };
        self.append_plain(&[decoded]);
        true
    }

    /// Appends a UTF-16 code unit, as `\u` writes it.
    fn append_code_unit(&mut self, unit: u16) {
        let first_half = self.high_surrogate.take();
        if (0xd800..0xdc00).contains(&unit) {
            self.is_unusable |= first_half.is_some();
            self.high_surrogate = Some(unit);
            return;
        }
        for char in char::decode_utf16(first_half.into_iter().chain([unit])) {
            match char {
                Ok(char) => self.append(char.encode_utf8(&mut [0; 4]).as_bytes()),
                Err(_) => self.is_unusable = true,
            }
        }
    }

    /// Appends bytes that are not a surrogate.
    fn append_plain(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.is_unusable |= self.high_surrogate.take().is_some();
            self.append(bytes);
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        match self.bytes.get_mut(self.length..self.length + bytes.len()) {
            Some(free) => {
                free.copy_from_slice(bytes);
                self.length += bytes.len();
            }
            None => self.is_unusable = true,
        }
    }
}

/// Returns the number of bytes before the first quote or backslash.
fn plain_length(bytes: &[u8]) -> usize {
    // Most keys are short, so some bytes are compared before the vectorized search starts.
    let (near, far) = bytes.split_at(bytes.len().min(16));
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\');
    let far_length = || near.len() + memchr2(b'"', b'\\', far).unwrap_or(far.len());
    near.iter().position(is_special).unwrap_or_else(far_length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Decodes a string without its opening quote, in parts of `part` bytes.
    fn decode(text: &str, part: usize) -> Option<Vec<u8>> {
        let mut decoder = TextDecoder::default();
        for bytes in text.as_bytes().chunks(part) {
            match decoder.push(bytes) {
                TextProgress::Unfinished => {}
                TextProgress::Ended { length } if length == bytes.len() => return decoder.text().map(<[u8]>::to_vec),
                TextProgress::Ended { .. } | TextProgress::Malformed => return None,
            }
        }
        None
    }

    #[test]
    fn escapes_are_decoded() {
        for (text, expected) in [
            (r#"usage""#, Some("usage")),
            (r#"\u0075sage""#, Some("usage")),
            (r#"\"\\\/\b\f\n\r\t""#, Some("\"\\/\u{8}\u{c}\n\r\t")),
            (r#"\ud83D\uDE00""#, Some("😀")),
            (r#"\uD83D""#, None),
            (r#"\uDE00""#, None),
            (r#"\uD83D\uD83D\uDE00""#, None),
            (r#"\uD83Dx""#, None),
            (r#"\uD83D\n""#, None),
            (r#"\q""#, None),
            (r#"\u12g4""#, None),
        ] {
            for part in 1..=text.len() {
                assert_eq!(decode(text, part).as_deref(), expected.map(str::as_bytes), "{text} in parts of {part}");
            }
        }
    }

    #[test]
    fn longer_text_than_any_key_is_unusable() {
        let text = |length: usize| format!("{}\"", "k".repeat(length));
        assert_eq!(decode(&text(MAX_SEGMENT_LEN), 7).map(|text| text.len()), Some(MAX_SEGMENT_LEN));
        assert_eq!(decode(&text(MAX_SEGMENT_LEN + 1), 7), None);
    }

    proptest! {
        #[test]
        fn decoded_strings_are_those_of_serde_json(text in any::<String>(), part in 1_usize..9) {
            let encoded = serde_json::to_string(&text).expect("string");
            let expected = (text.len() <= MAX_SEGMENT_LEN).then(|| text.into_bytes());
            prop_assert_eq!(decode(&encoded[1..], part), expected);
        }
    }
}
