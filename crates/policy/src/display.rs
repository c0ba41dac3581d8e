//! Characters that a text for people may not contain.

/// Returns true for characters that change how a terminal shows the rest: control characters, and marks of direction and
/// of lines.
pub fn alters_display(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}')
        || matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
