//! Searches of bytes for delimiters, many at once.

use std::ops::Range;
use wide::u8x16;

const BLOCK: usize = size_of::<u8x16>();

/// Returns the position of the first `byte` from `from` on, or the length.
#[inline(always)]
pub(super) fn first_byte(bytes: &[u8], from: usize, byte: u8) -> usize {
    first_marked(bytes, from, |block| block.simd_eq(u8x16::splat(byte)))
}

/// Returns the position of the first control character but tab from `from` on, or the length (RFC 9110 section 5.5).
#[inline(always)]
pub(super) fn value_end(bytes: &[u8], from: usize) -> usize {
    let mark_control = |block: u8x16| block.min(u8x16::splat(0x1f)).simd_eq(block) | block.simd_eq(u8x16::splat(0x7f));
    let mut end = from;
    loop {
        end = first_marked(bytes, end, mark_control);
        if bytes.get(end) != Some(&b'\t') {
            return end;
        }
        end += 1;
    }
}

/// Returns true if all bytes of a range are letters, digits and dashes, and there is one; false also where the range ends too
/// close to the end of the bytes to tell.
#[inline(always)]
pub(super) fn is_word(bytes: &[u8], range: Range<usize>) -> bool {
    let is_between = |block: u8x16, first: u8, last: u8| {
        let (first, last) = (u8x16::splat(first), u8x16::splat(last));
        block.max(first).simd_eq(block) & block.min(last).simd_eq(block)
    };
    let mut position = range.start;
    while position < range.end {
        let Some(block) = bytes.get(position..).and_then(<[u8]>::first_chunk) else { return false };
        let block = u8x16::new(*block);
        let letters = is_between(block | u8x16::splat(b' '), b'a', b'z');
        let others = is_between(block, b'0', b'9') | block.simd_eq(u8x16::splat(b'-'));
        let length = (letters | others).to_bitmask().trailing_ones() as usize;
        if length < (range.end - position).min(BLOCK) {
            return false;
        }
        position += BLOCK;
    }
    !range.is_empty()
}

/// Returns the position of the first byte from `from` on that `mark` marks, by setting all its bits, or the length.
#[inline(always)]
fn first_marked(bytes: &[u8], from: usize, mark: impl Fn(u8x16) -> u8x16) -> usize {
    let marks = |block: &[u8; BLOCK]| mark(u8x16::new(*block)).to_bitmask();
    let mut position = from;
    while let Some(block) = bytes.get(position..).and_then(<[u8]>::first_chunk) {
        let marks = marks(block);
        if marks != 0 {
            return position + marks.trailing_zeros() as usize;
        }
        position += BLOCK;
    }
    let rest = bytes.get(position..).unwrap_or_default();
    let marks_of_rest = match bytes.last_chunk() {
        // Reads bytes before the rest, too, and drops their marks.
        Some(block) => marks(block) >> (BLOCK - rest.len()),
        None => {
            let mut block = [0; BLOCK];
            block[..rest.len()].copy_from_slice(rest);
            marks(&block)
        }
    };
    bytes.len() - rest.len() + rest.len().min(marks_of_rest.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_letters_digits_and_dashes_alone() {
        for length in 0..40 {
            for start in 0..3 {
                let mut bytes = [b'\0'; 64];
                let range = start..start + length;
                bytes[range.clone()].copy_from_slice(&b"X-Content-Type-Options-0-Strict-Transport9"[..length]);
                assert_eq!(is_word(&bytes, range.clone()), length > 0, "{range:?}");
                let has_whole_blocks = length > 0 && length % BLOCK == 0;
                assert_eq!(is_word(&bytes[..range.end], range.clone()), has_whole_blocks, "{range:?} at the end");
                for position in range.clone() {
                    let byte = bytes[position];
                    for other in 0..=u8::MAX {
                        bytes[position] = other;
                        let is_part = other.is_ascii_alphanumeric() || other == b'-';
                        assert_eq!(is_word(&bytes, range.clone()), is_part, "{other} at {position} of {range:?}");
                    }
                    bytes[position] = byte;
                }
            }
        }
    }

    #[test]
    fn end_of_a_value_is_found_at_each_position_of_each_length() {
        for length in 0..40 {
            for (from, position) in (0..=length + 1).flat_map(|from| (0..=length).map(move |position| (from, position)))
            {
                for control in [b'\r', 0, 0x1f, 0x7f] {
                    let mut bytes = vec![b'\t'; length];
                    bytes.iter_mut().skip(1).step_by(3).for_each(|byte| *byte = 0xff);
                    if let Some(byte) = bytes.get_mut(position) {
                        *byte = control;
                    }
                    let expected = if position >= from { position } else { length };
                    assert_eq!(value_end(&bytes, from), expected, "{control} at {position} of {length}, from {from}");
                }
            }
        }
    }
}
