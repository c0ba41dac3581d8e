//! Quota amounts: integers in milli-units, so that a cost of 0.25 is exact.

use std::fmt;
use std::iter::Sum;
use std::str::FromStr;

/// An amount of a quota, in milli-units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Units(u64);

/// Error: the text is not a decimal amount; it is negative, too large or not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseUnitsError;

impl Units {
    /// Returns the word behind the amount: `unit` for 1.
    pub fn noun(self) -> &'static str {
        if self == Self::from_whole(1) { "unit" } else { "units" }
    }

    /// Zero units.
    pub const ZERO: Self = Self(0);
    /// Largest representable amount; beyond any real quota.
    pub const MAX: Self = Self(999_999_999_999_999_000);

    /// Creates an amount of `whole` units.
    pub const fn from_whole(whole: u64) -> Self {
        Self::from_milli(whole.saturating_mul(1000))
    }

    /// Creates an amount of `milli` milli-units, at most [`Units::MAX`].
    pub const fn from_milli(milli: u64) -> Self {
        if milli > Self::MAX.0 { Self::MAX } else { Self(milli) }
    }

    /// Returns the amount in milli-units.
    pub const fn milli(self) -> u64 {
        self.0
    }

    /// Returns the whole units, rounded down, so that clients are not promised too much.
    pub const fn floor(self) -> u64 {
        self.0 / 1000
    }

    /// Returns the whole units, rounded up.
    pub const fn ceil(self) -> u64 {
        self.0.div_ceil(1000)
    }

    /// Returns the amount as a float, for metrics and reports.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / 1000.0
    }

    /// Returns true if the amount is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns the least multiple of `step`, which is not zero, that is no less; at most [`Units::MAX`].
    pub const fn next_multiple_of(self, step: Self) -> Self {
        Self::from_milli(self.0.div_ceil(step.0).saturating_mul(step.0))
    }

    /// Returns the sum, at most [`Units::MAX`].
    pub const fn saturating_add(self, other: Self) -> Self {
        Self::from_milli(self.0.saturating_add(other.0))
    }

    /// Returns the difference, at least zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Sum for Units {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Self::saturating_add)
    }
}

impl FromStr for Units {
    type Err = ParseUnitsError;

    /// Parses `12`, `0.25` or `12.`. Rounds fractions finer than a milli-unit up, at the client's expense.
    fn from_str(text: &str) -> Result<Self, ParseUnitsError> {
        let text = text.trim();
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() + fraction.len() == 0 || whole.len() > 15 || !digits(whole) || !digits(fraction) {
            return Err(ParseUnitsError);
        }
        let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().map_err(|_| ParseUnitsError)? };
        let (milli, finer) = fraction.split_at(fraction.len().min(3));
        let milli = format!("{milli:0<3}").parse::<u64>().map_err(|_| ParseUnitsError)?;
        let round_up = u64::from(finer.bytes().any(|byte| byte != b'0'));
        Ok(Self::from_milli(whole * 1000 + milli + round_up))
    }
}

impl fmt::Display for Units {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, milli) = (self.0 / 1000, self.0 % 1000);
        match milli {
            0 => write!(out, "{whole}"),
            _ => write!(out, "{whole}.{}", format!("{milli:03}").trim_end_matches('0')),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decimals_parse_exactly_and_finer_ones_round_up() {
        let milli = |text: &str| text.parse::<Units>().map(Units::milli);
        assert_eq!(milli("12.25"), Ok(12_250));
        assert_eq!(milli("0"), Ok(0));
        assert_eq!(milli(".5"), Ok(500));
        assert_eq!(milli("1.0000"), Ok(1000));
        assert_eq!(milli("0.0001"), Ok(1));
        for invalid in ["", ".", "-1", "1e3", "+5", "1,5", "0x10", "1.2.3", "9999999999999999"] {
            assert_eq!(milli(invalid), Err(ParseUnitsError), "{invalid}");
        }
    }

    #[test]
    fn one_unit_is_no_plural() {
        assert_eq!(
            [0, 1, 500, 1000, 1001, 2000].map(|milli| Units::from_milli(milli).noun()),
            ["units", "units", "units", "unit", "units", "units"]
        );
    }

    #[test]
    fn units_round_and_add_up() {
        let units = [0, 1, 999, 1000, 1001].map(Units::from_milli);
        assert_eq!(units.map(Units::ceil), [0, 1, 1, 1, 2]);
        assert_eq!(units.map(Units::floor), [0, 0, 0, 1, 1]);
        assert_eq!(
            units.map(|units| units.next_multiple_of(Units::from_milli(500)).milli()),
            [0, 500, 1000, 1000, 1500]
        );
        assert_eq!(Units::MAX.next_multiple_of(Units::from_whole(1 << 40)), Units::MAX);
        assert_eq!(units.map(Units::is_zero), [true, false, false, false, false]);
        assert_eq!(units.into_iter().sum::<Units>(), Units::from_milli(3001));
        assert_eq!(units.map(|units| units.to_string()), ["0", "0.001", "0.999", "1", "1.001"]);
    }

    proptest! {
        #[test]
        fn units_display_round_trips(milli in 0..=Units::MAX.milli()) {
            let units = Units::from_milli(milli);
            prop_assert_eq!(units.to_string().parse::<Units>(), Ok(units));
        }
    }
}
