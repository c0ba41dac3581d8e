//! Strings and containers that no path leads to, skipped 64 bytes at once.
//!
//! As in Langdale and Lemire, "Parsing Gigabytes of JSON per Second", section 3.1: comparisons mark the quotes, backslashes and
//! brackets of a block in words of 64 bits, and arithmetic on these words finds escapes and strings. So the time does not
//! depend on how many of them a text has.

use wide::u8x16;

/// Bytes of a block.
const BLOCK: usize = u64::BITS as usize;
/// Bytes that are compared one by one before blocks are, because most skipped strings are shorter.
const NEAR: usize = 16;
/// Bits of the even positions.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// String that is skipped.
#[derive(Clone, Copy, Default)]
pub(crate) struct StringSkip {
    /// The last byte was a backslash that escapes the next one.
    is_escaped: bool,
}

impl StringSkip {
    /// Skips the next bytes. Returns how many belong to the string, with its closing quote; `None` if all do and more follow.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Option<usize> {
        let (near, far) = bytes.split_at(bytes.len().min(NEAR));
        for (position, &byte) in near.iter().enumerate() {
            if byte == b'"' && !self.is_escaped {
                return Some(position + 1);
            }
            self.is_escaped = byte == b'\\' && !self.is_escaped;
        }
        let mut is_escaped = self.is_escaped;
        let end = find_in_blocks(far, |block| {
            let quotes = block.quotes(&mut is_escaped);
            (quotes != 0).then(|| quotes.trailing_zeros() as usize + 1)
        });
        self.is_escaped = is_escaped;
        end.map(|end| near.len() + end)
    }
}

/// Object or array that is skipped.
///
/// Counts brackets of its own kind only: between matching ones, those of the other kind match, too. The count takes the place
/// of a stack, so any depth takes the same memory.
#[derive(Clone, Copy)]
pub(crate) struct ContainerSkip {
    opening: u8,
    closing: u8,
    depth: u64,
    is_in_string: bool,
    /// The last byte was a backslash that escapes the next one.
    is_escaped: bool,
}

impl ContainerSkip {
    /// Starts behind the opening bracket of an object.
    pub(crate) fn object() -> Self {
        Self { opening: b'{', closing: b'}', depth: 1, is_in_string: false, is_escaped: false }
    }

    /// Starts behind the opening bracket of an array.
    pub(crate) fn array() -> Self {
        Self { opening: b'[', closing: b']', ..Self::object() }
    }

    /// Returns true inside a string.
    pub(crate) fn is_in_string(&self) -> bool {
        self.is_in_string
    }

    /// Skips the next bytes. Returns how many belong to the container, with its closing bracket; `None` if all do and more
    /// follow.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Option<usize> {
        find_in_blocks(bytes, |block| self.skip(block).map(|position| position + 1))
    }

    /// Skips a block. Returns the position of the bracket that closes the container.
    fn skip(&mut self, block: &Block<'_>) -> Option<usize> {
        let quotes = block.quotes(&mut self.is_escaped);
        let strings = match (quotes, self.is_in_string) {
            (0, true) => return None,
            (0, false) => 0,
            (_, true) => !parity(quotes),
            (_, false) => parity(quotes),
        };
        self.is_in_string = strings >> (BLOCK - 1) != 0;
        let (openings, closings) = (block.marks(self.opening) & !strings, block.marks(self.closing) & !strings);
        if u64::from(closings.count_ones()) < self.depth {
            self.depth += u64::from(openings.count_ones());
            self.depth -= u64::from(closings.count_ones());
            return None;
        }
        self.find_end(openings, closings)
    }

    /// Counts brackets one by one. Returns the position of the one that closes the container.
    fn find_end(&mut self, openings: u64, closings: u64) -> Option<usize> {
        let mut brackets = openings | closings;
        while brackets != 0 {
            let position = brackets.trailing_zeros();
            if openings >> position & 1 == 1 {
                self.depth += 1;
            } else {
                self.depth -= 1;
            }
            if self.depth == 0 {
                return Some(position as usize);
            }
            brackets &= brackets - 1;
        }
        None
    }
}

/// Bytes of a text. Behind the last ones, zeros fill the block.
struct Block<'b> {
    length: usize,
    bytes: &'b [u8; BLOCK],
}

/// Returns the first end that `find` finds in the blocks of a text.
#[inline(always)]
fn find_in_blocks(text: &[u8], mut find: impl FnMut(&Block<'_>) -> Option<usize>) -> Option<usize> {
    let (whole, rest) = text.as_chunks();
    for (number, bytes) in whole.iter().enumerate() {
        if let Some(position) = find(&Block { length: BLOCK, bytes }) {
            return Some(number * BLOCK + position);
        }
    }
    if rest.is_empty() {
        return None;
    }
    let mut padded = [0; BLOCK];
    padded[..rest.len()].copy_from_slice(rest);
    let start = text.len() - rest.len();
    find(&Block { length: rest.len(), bytes: &padded }).map(|position| start + position)
}

impl Block<'_> {
    /// Marks each `byte` by the bit at its position.
    #[inline(always)]
    fn marks(&self, byte: u8) -> u64 {
        let (parts, _) = self.bytes.as_chunks();
        let marks = |part: usize| u64::from(u8x16::new(parts[part]).simd_eq(u8x16::splat(byte)).to_bitmask());
        marks(0) | marks(1) << 16 | marks(2) << 32 | marks(3) << 48
    }

    /// Marks the quotes that no backslash escapes. `is_escaped` is of the first byte before, and of the first byte behind after.
    #[inline(always)]
    fn quotes(&self, is_escaped: &mut bool) -> u64 {
        let (quotes, backslashes) = (self.marks(b'"'), self.marks(b'\\'));
        if backslashes == 0 && !*is_escaped {
            return quotes;
        }
        let first = u64::from(*is_escaped);
        let backslashes = backslashes & !first;
        let escaped = behind_odd_runs(backslashes);
        *is_escaped = escaped >> self.length & 1 == 1;
        quotes & !(escaped as u64 | first)
    }
}

/// Marks the bits behind runs of an odd number of ones.
fn behind_odd_runs(ones: u64) -> u128 {
    let starts = ones & !(ones << 1);
    // The sum carries a one from the start of a run to the bit behind it.
    let behind = |starts: u64| (u128::from(ones) + u128::from(starts)) & !u128::from(ones);
    let even = u128::from(EVEN) | u128::from(EVEN) << BLOCK;
    behind(starts & EVEN) & !even | behind(starts & !EVEN) & even
}

/// Returns the bits up to which, with themselves, the number of ones is odd.
fn parity(ones: u64) -> u64 {
    [1, 2, 4, 8, 16, 32].into_iter().fold(ones, |bits, distance| bits ^ bits << distance)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the length of a string without its opening quote, in parts of `part` bytes.
    fn string_length(text: &str, part: usize) -> Option<usize> {
        let mut skip = StringSkip::default();
        let mut parts = text.as_bytes().chunks(part).enumerate();
        parts.find_map(|(number, bytes)| skip.push(bytes).map(|length| number * part + length))
    }

    /// Returns the length of a container without its opening bracket, in parts of `part` bytes.
    fn container_length(mut skip: ContainerSkip, text: &str, part: usize) -> Option<usize> {
        let mut parts = text.as_bytes().chunks(part).enumerate();
        parts.find_map(|(number, bytes)| skip.push(bytes).map(|length| number * part + length))
    }

    /// Returns the length of a container without its opening bracket, byte by byte.
    fn reference_length(opening: char, closing: char, text: &str) -> Option<usize> {
        let (mut depth, mut is_in_string, mut is_escaped) = (1, false, false);
        for (position, char) in text.char_indices() {
            match char {
                '"' if !is_escaped => is_in_string = !is_in_string,
                _ if is_in_string => {}
                _ if char == opening => depth += 1,
                _ if char == closing => depth -= 1,
                _ => {}
            }
            // A backslash outside a string is no JSON. It escapes a quote all the same.
            is_escaped = char == '\\' && !is_escaped;
            if depth == 0 {
                return Some(position + 1);
            }
        }
        None
    }

    #[test]
    fn strings_end_at_the_first_quote_that_is_not_escaped() {
        for (text, length) in [
            (r#"""#, Some(1)),
            (r#"abc" "d""#, Some(4)),
            (r#"\"" ""#, Some(3)),
            (r#"\\" ""#, Some(3)),
            (r#"\\\"\\" ""#, Some(7)),
            (r#"a\\\"b\"\\\\" ""#, Some(13)),
            (r#"\u0022" ""#, Some(7)),
            (r#"\""#, None),
            (r#"\"#, None),
            ("", None),
        ] {
            for before in 0..=2 * BLOCK {
                let text = format!("{}{text}", "x".repeat(before));
                for part in [1, 2, 3, BLOCK - 1, BLOCK, usize::MAX] {
                    let length = length.map(|length| before + length);
                    assert_eq!(string_length(&text, part), length, "{text} in parts of {part}");
                }
            }
        }
    }

    #[test]
    fn containers_end_at_their_own_bracket() {
        for part in 1..40 {
            for (skip, text, end) in [
                (ContainerSkip::object(), r#""]}":[{"}\"":[]}]}, "x": {} }"#, 18),
                (ContainerSkip::array(), r#"{"]":[1,[]]},"\\"],[]"#, 18),
            ] {
                assert_eq!(container_length(skip, text, part), Some(end), "{text} in parts of {part}");
            }
        }
    }

    proptest! {
        #[test]
        fn containers_end_where_reading_byte_by_byte_ends(
            pieces in prop::collection::vec(
                prop::sample::select(vec!["{", "}", "[", "]", "\"", "\"", "\\", "\\\\", "\\\"", "x", "a longer text of 30 bytes, say"]),
                0..60,
            ),
            part in 1..200_usize,
        ) {
            let text = pieces.concat();
            prop_assert_eq!(container_length(ContainerSkip::object(), &text, part), reference_length('{', '}', &text));
            prop_assert_eq!(container_length(ContainerSkip::array(), &text, part), reference_length('[', ']', &text));
        }
    }
}
