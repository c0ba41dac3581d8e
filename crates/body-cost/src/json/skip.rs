//! Strings and containers that no path leads to, skipped with vectorized search.

use memchr::{memchr, memchr3};

/// Bytes that are compared one by one before a vectorized search starts, because most keys and numbers are shorter.
const NEAR: usize = 16;

/// String that is skipped.
#[derive(Clone, Copy, Default)]
pub(crate) struct StringSkip {
    /// The last byte was a backslash that escapes the next one.
    is_escaped: bool,
}

impl StringSkip {
    /// Skips the next bytes. Returns how many belong to the string, with its closing quote; `None` if all do and more follow.
    ///
    /// Searches for quotes only: text is full of escapes, but few of them are `\"`.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Option<usize> {
        let start = usize::from(std::mem::take(&mut self.is_escaped) && !bytes.is_empty());
        let is_escaped_at = |end: usize| {
            let backslashes = bytes[start..end].iter().rev().take_while(|&&byte| byte == b'\\').count();
            backslashes % 2 == 1
        };
        let mut found = find_quote(&bytes[start..]).map(|distance| start + distance);
        while let Some(quote) = found {
            let behind = quote + 1;
            if !is_escaped_at(quote) {
                return Some(behind);
            }
            found = memchr(b'"', &bytes[behind..]).map(|distance| behind + distance);
        }
        self.is_escaped = is_escaped_at(bytes.len());
        None
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
    /// The string that is skipped, if one is.
    string: Option<StringSkip>,
}

impl ContainerSkip {
    /// Starts behind the opening bracket of an object.
    pub(crate) fn object() -> Self {
        Self { opening: b'{', closing: b'}', depth: 1, string: None }
    }

    /// Starts behind the opening bracket of an array.
    pub(crate) fn array() -> Self {
        Self { opening: b'[', closing: b']', depth: 1, string: None }
    }

    /// Returns true inside a string.
    pub(crate) fn is_in_string(&self) -> bool {
        self.string.is_some()
    }

    /// Skips the next bytes. Returns how many belong to the container, with its closing bracket; `None` if all do and more
    /// follow.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            if let Some(string) = &mut self.string {
                at += string.push(&bytes[at..])?;
                self.string = None;
            }
            at += self.find_token(&bytes[at..])? + 1;
            match bytes[at - 1] {
                b'"' => self.string = Some(StringSkip::default()),
                byte if byte == self.opening => self.depth += 1,
                _ => self.depth -= 1,
            }
            if self.depth == 0 {
                return Some(at);
            }
        }
    }

    /// Returns the position of the first quote or bracket that counts.
    fn find_token(&self, bytes: &[u8]) -> Option<usize> {
        let (near, far) = bytes.split_at(bytes.len().min(NEAR));
        let is_near = near.iter().position(|&byte| byte == b'"' || byte == self.opening || byte == self.closing);
        let find_far = || memchr3(b'"', self.opening, self.closing, far).map(|distance| near.len() + distance);
        is_near.or_else(find_far)
    }
}

/// Returns the position of the first quote.
fn find_quote(bytes: &[u8]) -> Option<usize> {
    let (near, far) = bytes.split_at(bytes.len().min(NEAR));
    let is_near = near.iter().position(|&byte| byte == b'"');
    is_near.or_else(|| memchr(b'"', far).map(|distance| near.len() + distance))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the length of a string without its opening quote, in parts of `part` bytes.
    fn string_length(text: &str, part: usize) -> Option<usize> {
        let mut skip = StringSkip::default();
        let mut parts = text.as_bytes().chunks(part).enumerate();
        parts.find_map(|(number, bytes)| skip.push(bytes).map(|length| number * part + length))
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
            for part in 1..=text.len().max(1) {
                assert_eq!(string_length(text, part), length, "{text} in parts of {part}");
            }
        }
    }

    #[test]
    fn containers_end_at_their_own_bracket() {
        for part in 1..40 {
            for (mut skip, text, end) in [
                (ContainerSkip::object(), r#""]}":[{"}\"":[]}]}, "x": {} }"#, 18),
                (ContainerSkip::array(), r#"{"]":[1,[]]},"\\"],[]"#, 18),
            ] {
                let mut parts = text.as_bytes().chunks(part).enumerate();
                let length = parts.find_map(|(number, bytes)| skip.push(bytes).map(|length| number * part + length));
                assert_eq!(length, Some(end), "{text} in parts of {part}");
            }
        }
    }
}
