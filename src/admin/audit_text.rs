//! Texts of administrators that the audit log and the status show.

use tidegate_policy::display::alters_display;

/// Checks that `text` fits into one line and shows as it is. Returns an error that begins with `key`.
pub(super) fn check(key: &str, text: Option<&str>, max_chars: usize) -> Result<(), String> {
    let is_valid = |text: &str| (1..=max_chars).contains(&text.chars().count()) && !text.contains(alters_display);
    match text.is_none_or(is_valid) {
        true => Ok(()),
        false => Err(format!(
            "{key}: empty, too long, or with characters that change the display; give 1 to {max_chars} printable ones"
        )),
    }
}

/// Maximum length of a name, in characters: longer than any user name.
pub(super) const MAX_NAME: usize = 64;
