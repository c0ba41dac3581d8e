//! Vectorized search for the keys of values.

use crate::path::CostPath;
use aho_corasick::packed::Searcher;

/// Beginning of the escapes of ASCII characters (RFC 8259, section 7), as which a key may be written, too.
const ASCII_ESCAPE: &str = r"\u00";

/// Search for the places where a path may have a value: its last key, in quotes, or an escape that such a key may contain.
#[derive(Clone, Debug)]
pub(crate) struct KeySearch {
    /// `None` where a key has other escapes, or the processor has no vectors for such a search.
    searcher: Option<Searcher>,
}

impl KeySearch {
    /// Prepares the search for the keys of some paths.
    pub(crate) fn new<'p>(paths: impl Iterator<Item = &'p CostPath>) -> Self {
        let quoted = |key: &str| format!("\"{key}\"");
        let keys: Option<Vec<_>> = paths.map(|path| path.last_key().filter(|key| is_plain(key)).map(quoted)).collect();
        let searcher = keys.and_then(|keys| Searcher::new(keys.iter().map(String::as_str).chain([ASCII_ESCAPE])));
        Self { searcher }
    }

    /// Returns the number of bytes in front of the first place where a path may have a value.
    pub(crate) fn valueless_length(&self, bytes: &[u8]) -> usize {
        let Some(searcher) = &self.searcher else { return 0 };
        searcher.find(bytes).map_or(bytes.len(), |found| found.start())
    }
}

/// Skips the documents of a chunk that have no value of any path.
#[derive(Default)]
pub(crate) struct Valueless {
    /// Bytes of the chunk that follow the last place that was found; `None` before the first search.
    ///
    /// Up to there no more document can be skipped, so that each byte is searched once.
    found_at: Option<usize>,
}

impl Valueless {
    /// Returns the rest of the chunk, which starts with a document, behind documents without values. `last_end` finds the
    /// position behind the last document that ends in some bytes.
    pub(crate) fn skip<'b>(
        &mut self,
        keys: &KeySearch,
        rest: &'b [u8],
        last_end: impl Fn(&[u8]) -> Option<usize>,
    ) -> &'b [u8] {
        if self.found_at.is_some_and(|found_at| rest.len() >= found_at) {
            return rest;
        }
        let valueless = keys.valueless_length(rest);
        self.found_at = Some(rest.len() - valueless);
        last_end(&rest[..valueless]).map_or(rest, |end| &rest[end..])
    }
}

/// Returns true if JSON writes the characters of a key as they are, or by [`ASCII_ESCAPE`].
fn is_plain(key: &str) -> bool {
    key.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\' | b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(texts: &[&str]) -> KeySearch {
        let paths: Vec<CostPath> = texts.iter().map(|text| text.parse().expect("path")).collect();
        KeySearch::new(paths.iter())
    }

    #[test]
    fn values_are_behind_their_last_key() {
        for (texts, chunk, expected) in [
            (&["usage.total"][..], r#"{"usage":null,"x":{"total":1}}"#, r#"{"usage":null,"x":{"#),
            (&["usage.total"], r#"{"text":"total \"total\" total"}"#, r#"{"text":"total \"total\" total"}"#),
            (&["usage.total"], r#"{"text":"a\u0020b"}"#, r#"{"text":"a"#),
            (&["usage.total", "meta.units"], r#"{"units":1,"total":2}"#, "{"),
            (&["totals.0"], r#"{"a":[0],"totals":[0]}"#, r#"{"a":[0],"#),
            // All of it may be indexes, or has other escapes.
            (&["0.1"], "{}", ""),
            (&["a", "b/c"], "{}", ""),
            (&["é"], "{}", ""),
        ] {
            assert_eq!(&chunk[..search(texts).valueless_length(chunk.as_bytes())], expected, "{texts:?}");
        }
    }

    #[test]
    fn each_byte_is_searched_once() {
        let (keys, chunk) = (search(&["total"]), br#"1;2;"total"3;4;5"#);
        let last_end = |bytes: &[u8]| memchr::memrchr(b';', bytes).map(|end| end + 1);
        let mut valueless = Valueless::default();
        assert_eq!(valueless.skip(&keys, chunk, last_end), br#""total"3;4;5"#);
        assert_eq!(valueless.skip(&keys, &chunk[4..], |_| unreachable!()), br#""total"3;4;5"#);
        assert_eq!(valueless.skip(&keys, &chunk[13..], last_end), b"5");
        assert_eq!(valueless.skip(&keys, &chunk[15..], |_| unreachable!()), b"5");
    }
}
