//! Text in JSON documents of the gateway.

use std::fmt::{self, Write};

/// Escapes untrusted text for a string of JSON (RFC 8259 section 7).
pub(in crate::gateway) struct JsonText<'a>(pub(in crate::gateway) &'a str);

impl fmt::Display for JsonText<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| match letter {
            '"' | '\\' => write!(out, "\\{letter}"),
            letter if letter.is_control() => write!(out, "\\u{:04x}", u32::from(letter)),
            letter => out.write_char(letter),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn escaped_text_is_read_as_it_was(text in any::<String>()) {
            let read: String = serde_json::from_str(&format!("\"{}\"", JsonText(&text))).expect("JSON");
            prop_assert_eq!(read, text);
        }
    }
}
