//! Quoted fields with the escapes of servers: `\"` and `\\` (Apache), `\xNN` (both), and unescaped quotes.

use std::borrow::Cow;

/// Returns the field at the start of `text` without its quotes, and the rest. Only a quote before a space or the end
/// closes the field: some servers write quotes without escaping them.
pub(super) fn field(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let inner = text.strip_prefix(b"\"")?;
    let (mut end, mut has_escapes) = (0, false);
    loop {
        end += memchr::memchr2(b'"', b'\\', inner.get(end..)?)?;
        match (inner[end], inner.get(end + 1)) {
            (b'"', None | Some(b' ')) => break,
            (b'"', _) => end += 1,
            _ => (end, has_escapes) = (end + 2, true),
        }
    }
    let (field, rest) = (&inner[..end], &inner[end + 1..]);
    Some((if has_escapes { Cow::Owned(without_escapes(field)) } else { Cow::Borrowed(field) }, rest))
}

/// Returns the field; `None` if it is empty or a dash.
pub(super) fn unless_dash(field: Cow<'_, [u8]>) -> Option<Cow<'_, [u8]>> {
    Some(field).filter(|field| !matches!(&**field, b"-" | b""))
}

/// Converts a field to text; invalid UTF-8 becomes replacement characters.
pub(super) fn text(field: Cow<'_, [u8]>) -> Cow<'_, str> {
    match field {
        Cow::Borrowed(bytes) => {
            std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
        }
        Cow::Owned(bytes) => Cow::Owned(
            String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
        ),
    }
}

/// Returns a field without its escapes.
pub(super) fn unescape(field: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    match memchr::memchr(b'\\', &field) {
        Some(_) => Cow::Owned(without_escapes(&field)),
        None => field,
    }
}

fn without_escapes(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        let (byte, length) = escape(&rest[at..]);
        out.push(byte);
        rest = &rest[at + length..];
    }
    out.extend_from_slice(rest);
    out
}

/// Returns the byte of the escape at the start of `text`, and its length. Any other backslash stands for itself.
fn escape(text: &[u8]) -> (u8, usize) {
    match text {
        [_, byte @ (b'"' | b'\\'), ..] => (*byte, 2),
        [_, b'n', ..] => (b'\n', 2),
        [_, b't', ..] => (b'\t', 2),
        [_, b'r', ..] => (b'\r', 2),
        [_, b'x', high, low, ..] => match (hex(*high), hex(*low)) {
            (Some(high), Some(low)) => (high << 4 | low, 4),
            _ => (b'\\', 1),
        },
        _ => (b'\\', 1),
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn unescaped_quote_does_not_end_a_field() {
        let (value, rest) = field(b"\"http://a/\"b\" \"x\"").expect("a field");
        assert_eq!((&*value, rest), (&b"http://a/\"b"[..], &b" \"x\""[..]));
    }

    #[test]
    fn escaped_backslash_does_not_escape_the_quote() {
        let (value, rest) = field(b"\"a\\\\\" b").expect("a field");
        assert_eq!((&*value, rest), (&b"a\\"[..], &b" b"[..]));
    }

    proptest! {
        #[test]
        fn escaped_bytes_round_trip(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let nginx = bytes.iter().flat_map(|byte| match byte {
                b'"' | b'\\' | 0..32 | 127.. => format!("\\x{byte:02X}").into_bytes(),
                plain => vec![*plain],
            });
            let encoded: Vec<u8> = [b'"'].into_iter().chain(nginx).chain([b'"']).collect();
            let (read, rest) = field(&encoded).expect("a field");
            prop_assert_eq!(&*read, &*bytes);
            prop_assert!(rest.is_empty());
        }
    }
}
