//! Exact decimal numbers of JSON, parsed byte by byte.

use crate::readings::Reading;

/// Mantissas from here on take no further digit, so that 128 bits hold all of them.
const FULL_MANTISSA: u128 = 10_u128.pow(37);
/// Bound of a written exponent, far beyond all that matters.
const MAX_EXPONENT: i64 = 1_000_000_000_000;
/// Decimal places of [`Reading::Number`].
const PLACES: i64 = 9;

/// Parser of one number. It holds no text, so a number may have any length.
#[derive(Default)]
pub(crate) struct NumberParser {
    part: Part,
    is_negative: bool,
    mantissa: u128,
    /// Exponent of the mantissa by the digits before and behind the point.
    shift: i64,
    exponent: i64,
    is_exponent_negative: bool,
}

/// Part of a number that was parsed last.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Start,
    Minus,
    /// A zero before the point, which no digit follows.
    Zero,
    Integer,
    Point,
    Fraction,
    ExponentMark,
    ExponentSign,
    Exponent,
    /// The text is no number.
    Malformed,
}

impl NumberParser {
    /// Parses a whole text. `None` if it is no number. Leading zeros are allowed.
    pub(crate) fn parse(text: &[u8]) -> Option<Reading> {
        let zeros = text.iter().take_while(|&&byte| byte == b'0').count();
        let has_more_digits = text.get(zeros).is_some_and(u8::is_ascii_digit);
        let kept = if has_more_digits { zeros } else { zeros.saturating_sub(1) };
        let mut parser = Self::default();
        text[kept..].iter().for_each(|&byte| parser.push(byte));
        parser.finish()
    }

    /// Returns the length of the part of `bytes` that may belong to a number.
    pub(crate) fn span(bytes: &[u8]) -> usize {
        let belongs = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E');
        bytes.iter().take_while(|byte| belongs(byte)).count()
    }

    /// Parses the next byte.
    pub(crate) fn push(&mut self, byte: u8) {
        self.part = match (self.part, byte) {
            (Part::Start, b'-') => {
                self.is_negative = true;
                Part::Minus
            }
            (Part::Start | Part::Minus, b'0') => Part::Zero,
            (Part::Start | Part::Minus | Part::Integer, b'0'..=b'9') => self.push_digit(byte, Part::Integer),
            (Part::Zero | Part::Integer, b'.') => Part::Point,
            (Part::Point | Part::Fraction, b'0'..=b'9') => self.push_digit(byte, Part::Fraction),
            (Part::Zero | Part::Integer | Part::Fraction, b'e' | b'E') => Part::ExponentMark,
            (Part::ExponentMark, b'+' | b'-') => {
                self.is_exponent_negative = byte == b'-';
                Part::ExponentSign
            }
            (Part::ExponentMark | Part::ExponentSign | Part::Exponent, b'0'..=b'9') => {
                self.exponent = (self.exponent * 10 + i64::from(byte - b'0')).min(MAX_EXPONENT);
                Part::Exponent
            }
            _ => Part::Malformed,
        };
    }

    fn push_digit(&mut self, digit: u8, part: Part) -> Part {
        let is_integer = part == Part::Integer;
        if self.mantissa < FULL_MANTISSA {
            self.mantissa = self.mantissa * 10 + u128::from(digit - b'0');
            self.shift -= i64::from(!is_integer);
        } else {
            self.shift += i64::from(is_integer);
        }
        part
    }

    /// Returns the number; `None` if the text is no number.
    pub(crate) fn finish(&self) -> Option<Reading> {
        if !matches!(self.part, Part::Zero | Part::Integer | Part::Fraction | Part::Exponent) {
            return None;
        }
        let exponent = if self.is_exponent_negative { -self.exponent } else { self.exponent };
        let is_below_zero = self.is_negative && self.mantissa != 0;
        let number = (!is_below_zero).then(|| scaled(self.mantissa, exponent + self.shift + PLACES)).flatten();
        Some(number.map_or(Reading::Invalid, Reading::Number))
    }
}

/// Returns `mantissa` times ten to the power of `exponent`, rounded down; `None` if 128 bits cannot hold it.
fn scaled(mantissa: u128, exponent: i64) -> Option<u128> {
    let power = u32::try_from(exponent.unsigned_abs()).ok().and_then(|exponent| 10_u128.checked_pow(exponent));
    match power {
        _ if mantissa == 0 => Some(0),
        Some(power) if exponent >= 0 => mantissa.checked_mul(power),
        Some(power) => Some(mantissa / power),
        None => (exponent < 0).then_some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Option<Reading> {
        NumberParser::parse(text.as_bytes())
    }

    #[test]
    fn numbers_are_exact_to_nine_places() {
        for (text, billionths) in [
            ("0", 0),
            ("-0", 0),
            ("-0.0e5", 0),
            ("7", 7_000_000_000),
            ("007", 7_000_000_000),
            ("1.5", 1_500_000_000),
            ("0.000000001", 1),
            ("0.0000000019", 1),
            ("0.30000000000000004", 300_000_000),
            ("12e2", 1_200_000_000_000),
            ("12E-2", 120_000_000),
            ("1e-400", 0),
            ("0e999999999999999999", 0),
            ("18446744073709551.615", 18_446_744_073_709_551_615_000_000),
        ] {
            assert_eq!(parse(text), Some(Reading::Number(billionths)), "{text}");
        }
    }

    #[test]
    fn numbers_of_any_length_keep_their_value() {
        let one = Some(Reading::Number(1_000_000_000));
        assert_eq!(parse(&format!("1.{}", "0".repeat(10_000))), one);
        assert_eq!(parse(&format!("0.{}1e501", "0".repeat(500))), one);
        assert_eq!(parse(&format!("1{}e-500", "0".repeat(500))), one);
        assert_eq!(parse(&"9".repeat(10_000)), Some(Reading::Invalid));
    }

    #[test]
    fn negative_and_huge_numbers_are_invalid() {
        for text in ["-1", "-0.1", "-1e-400", "1e400", "1e30", "9e99999999999999999999"] {
            assert_eq!(parse(text), Some(Reading::Invalid), "{text}");
        }
    }

    #[test]
    fn other_text_is_no_number() {
        for text in
            ["", "-", "+1", "1.", ".5", "1e", "1e+", "NaN", "Infinity", "1 ", " 1", "0x10", "1_000", "1,5", "--1"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn numbers_agree_with_floats(number in 0.0..1e12_f64) {
            let Some(Reading::Number(billionths)) = parse(&number.to_string()) else { panic!("no number: {number}") };
            prop_assert!((billionths as f64 / 1e9 - number).abs() <= number * 1e-12 + 1e-9);
        }
    }
}
