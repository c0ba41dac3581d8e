//! Numbers as text: plain digits. A plus sign and leading zeros, which some programs read as octal, are errors.

use std::str::FromStr;
use tidegate_policy::units::Units;

/// Parses a whole number. Returns `None` if `text` is none, or exceeds `T`.
pub(super) fn whole<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok().filter(|_| is_plain(text))
}

/// Parses an amount such as `12`, `0.25` or `.5`. Returns `None` if `text` is none.
pub(super) fn decimal(text: &str) -> Option<Units> {
    let text = text.trim();
    let (whole, _) = text.split_once('.').unwrap_or((text, ""));
    text.parse().ok().filter(|_| whole.is_empty() || is_plain(whole))
}

/// Returns true for digits without a sign and leading zeros.
fn is_plain(text: &str) -> bool {
    let is_zero_led = text.len() > 1 && text.starts_with('0');
    !text.is_empty() && !is_zero_led && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns what is wrong with the spelling of a number in YAML, which `text` begins with; `None` if it is plain, or no number
/// is written there, such as at an alias.
pub(super) fn yaml_problem(text: &str) -> Option<&'static str> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut characters = digits.chars();
    if !characters.next()?.is_ascii_digit() && !digits.starts_with('.') {
        return None;
    }
    let is_zero_led =
        digits.starts_with('0') && characters.next().is_some_and(|next| next.is_ascii_digit() || "xob_".contains(next));
    match () {
        () if text.starts_with('+') => Some("a number with a plus sign"),
        () if is_zero_led => Some("a number with a leading zero"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_has_neither_sign_nor_leading_zeros() {
        for text in ["0", "7", "70", "4294967295"] {
            assert_eq!(whole::<u32>(text).map(|number| number.to_string()).as_deref(), Some(text));
            assert_eq!(decimal(text).map(|amount| amount.to_string()).as_deref(), Some(text));
        }
        for text in ["", "00", "07", "+7", "-7", "7 ", "0x7", "7e1", "٣", "4294967296"] {
            assert_eq!(whole::<u32>(text), None, "{text}");
        }
        for (text, milli) in [("0.5", 500), (".5", 500), ("5.", 5000), (" 5.050 ", 5050)] {
            assert_eq!(decimal(text), Some(Units::from_milli(milli)), "{text}");
        }
        for text in ["", ".", "00.5", "05", "+5", "-5", "+.5"] {
            assert_eq!(decimal(text), None, "{text}");
        }
    }

    #[test]
    fn spelling_of_yaml_is_checked_where_a_number_is() {
        for text in ["0", "-0", "0.5", "0e1", "10", "-5", ".5", "1e+3", ".inf", "*alias", "&a 5", "!!int \"05\"", ""] {
            assert_eq!(yaml_problem(text), None, "{text}");
        }
        for text in ["+5", "+.5", "+05"] {
            assert_eq!(yaml_problem(text), Some("a number with a plus sign"), "{text}");
        }
        for text in ["007", "00", "-05", "010.5", "0x10", "0o17", "0b11"] {
            assert_eq!(yaml_problem(text), Some("a number with a leading zero"), "{text}");
        }
    }
}
