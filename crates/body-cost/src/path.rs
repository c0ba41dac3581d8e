//! Path of a number in a JSON document, such as `usage.total_tokens`.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Most segments of a path.
pub const MAX_SEGMENTS: usize = 16;
/// Most bytes of a segment.
pub const MAX_SEGMENT_LEN: usize = 128;

/// Path of a number in a JSON document: the keys of nested objects from the root on.
///
/// Dots separate the segments, `\.` is a dot and `\\` a backslash of a key. A segment such as `0` is also the index of an
/// array element; arrays are not searched otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CostPath {
    segments: Box<[Segment]>,
}

/// Key of an object, or index of an array.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Segment {
    key: Box<str>,
    /// The key as an index, if it is written as one.
    index: Option<u64>,
}

/// Error: the text is not a path.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseCostPathError {
    /// The text or a part between dots is empty.
    #[error("segment {position} is empty")]
    EmptySegment {
        /// Position of the segment, from 1.
        position: usize,
    },
    /// The path begins like one of JSON Pointer or JSONPath, or has an index in brackets.
    #[error("{found:?} does not separate keys and indexes by dots alone")]
    OtherSyntax {
        /// The path.
        found: String,
    },
    /// A segment is longer than [`MAX_SEGMENT_LEN`].
    #[error("segment {position} has {length} bytes, at most {MAX_SEGMENT_LEN} are possible")]
    LongSegment {
        /// Position of the segment, from 1.
        position: usize,
        /// Length of the key, in bytes.
        length: usize,
    },
    /// The path has more than [`MAX_SEGMENTS`].
    #[error("{found} segments, at most {MAX_SEGMENTS} are possible")]
    ManySegments {
        /// Number of segments.
        found: usize,
    },
    /// A backslash is not followed by a dot or a backslash.
    #[error("a backslash in segment {position} escapes neither a dot nor a backslash; write \\\\ for a backslash")]
    UnknownEscape {
        /// Position of the segment, from 1.
        position: usize,
    },
}

impl CostPath {
    /// Returns the number of segments.
    pub(crate) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Returns true if the segment at `level` is `key`.
    pub(crate) fn has_key(&self, level: usize, key: &[u8]) -> bool {
        self.segments.get(level).is_some_and(|segment| segment.key.as_bytes() == key)
    }

    /// Returns the key of the segment at `level`.
    pub(crate) fn key(&self, level: usize) -> Option<&str> {
        self.segments.get(level).map(|segment| &*segment.key)
    }

    /// Returns the last segment that is the key of an object, whatever the document is; `None` if all may be indexes.
    pub(crate) fn last_key(&self) -> Option<&str> {
        let key = self.segments.iter().rev().find(|segment| segment.index.is_none());
        key.map(|segment| &*segment.key)
    }

    /// Returns the array index that the segment at `level` is, if it is one.
    pub(crate) fn index(&self, level: usize) -> Option<u64> {
        self.segments.get(level)?.index
    }
}

impl FromStr for CostPath {
    type Err = ParseCostPathError;

    fn from_str(text: &str) -> Result<Self, ParseCostPathError> {
        if text.starts_with(['/', '$']) || text.contains('[') {
            return Err(ParseCostPathError::OtherSyntax { found: text.to_owned() });
        }
        let keys = split(text)?;
        if keys.len() > MAX_SEGMENTS {
            return Err(ParseCostPathError::ManySegments { found: keys.len() });
        }
        let segments: Result<_, _> = (1..).zip(keys).map(|(position, key)| Segment::new(position, key)).collect();
        Ok(Self { segments: segments? })
    }
}

/// Returns the keys between the dots of a path.
fn split(text: &str) -> Result<Vec<String>, ParseCostPathError> {
    let (mut keys, mut key) = (Vec::new(), String::new());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '.' => keys.push(std::mem::take(&mut key)),
            '\\' => match chars.next() {
                Some(escaped @ ('.' | '\\')) => key.push(escaped),
                _ => return Err(ParseCostPathError::UnknownEscape { position: keys.len() + 1 }),
            },
            _ => key.push(char),
        }
    }
    keys.push(key);
    Ok(keys)
}

impl Segment {
    fn new(position: usize, key: String) -> Result<Self, ParseCostPathError> {
        match key.len() {
            0 => Err(ParseCostPathError::EmptySegment { position }),
            length if length > MAX_SEGMENT_LEN => Err(ParseCostPathError::LongSegment { position, length }),
            _ => Ok(Self { index: array_index(&key), key: key.into() }),
        }
    }
}

/// Returns the index that `key` is: digits without leading zeros.
fn array_index(key: &str) -> Option<u64> {
    let is_index = key.bytes().all(|byte| byte.is_ascii_digit()) && (key == "0" || !key.starts_with('0'));
    key.parse().ok().filter(|_| is_index)
}

impl fmt::Display for CostPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.segments.iter().enumerate() {
            let separator = if position == 0 { "" } else { "." };
            write!(out, "{separator}{}", segment.key.replace('\\', r"\\").replace('.', r"\."))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(text: &str) -> Result<CostPath, ParseCostPathError> {
        text.parse()
    }

    #[test]
    fn dots_separate_segments_unless_escaped() {
        let keys = |text: &str| split(text).expect("path");
        assert_eq!(keys("usage.total_tokens"), ["usage", "total_tokens"]);
        assert_eq!(keys(r"a\.b.c\\d"), ["a.b", r"c\d"]);
        assert_eq!(path("choices.0.01.x").map(|path| [0, 1, 2].map(|at| path.index(at))), Ok([None, Some(0), None]));
    }

    #[test]
    fn errors_name_the_segment() {
        use ParseCostPathError::*;
        for other in ["/usage/total_tokens", "$.usage.total_tokens", "usage[0].tokens", "$['usage']"] {
            assert_eq!(path(other), Err(OtherSyntax { found: other.to_owned() }));
        }
        assert_eq!(path(""), Err(EmptySegment { position: 1 }));
        assert_eq!(path("a..b"), Err(EmptySegment { position: 2 }));
        assert_eq!(path("a."), Err(EmptySegment { position: 2 }));
        assert_eq!(path(r"a.b\c"), Err(UnknownEscape { position: 2 }));
        assert_eq!(path("a\\"), Err(UnknownEscape { position: 1 }));
        let long = "k".repeat(MAX_SEGMENT_LEN + 1);
        assert_eq!(path(&long), Err(LongSegment { position: 1, length: 129 }));
        assert!(path(&long[1..]).is_ok());
        assert_eq!(path(&["a"; 17].join(".")), Err(ManySegments { found: 17 }));
        assert!(path(&["a"; 16].join(".")).is_ok());
        assert_eq!(
            UnknownEscape { position: 2 }.to_string(),
            r"a backslash in segment 2 escapes neither a dot nor a backslash; write \\ for a backslash"
        );
    }

    proptest! {
        #[test]
        fn a_displayed_path_parses_to_the_same_path(text in r"[a-zé0.\\]{0,20}") {
            if let Ok(path) = text.parse::<CostPath>() {
                prop_assert_eq!(path.to_string().parse::<CostPath>(), Ok(path.clone()));
                prop_assert_eq!(path.to_string(), text);
            }
        }
    }
}
