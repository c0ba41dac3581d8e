//! What a quota is counted in: whole thousandths of a unit, so that a cost of 0.25 is exact.

use std::fmt;
use std::str::FromStr;

/// An amount of a quota, in milli-units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Units(u64);

/// A decimal that is not an amount: negative, too fine, too large or not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseUnitsError;

impl Units {
    /// Nothing at all.
    pub const ZERO: Self = Self(0);
    /// The largest amount that can be written; beyond any real quota.
    pub const MAX: Self = Self(999_999_999_999_999_000);

    /// `whole` units.
    pub const fn from_whole(whole: u64) -> Self {
        Self::from_milli(whole.saturating_mul(1000))
    }

    /// `milli` thousandths of a unit, at most [`Units::MAX`].
    pub const fn from_milli(milli: u64) -> Self {
        if milli > Self::MAX.0 { Self::MAX } else { Self(milli) }
    }

    /// Thousandths of a unit.
    pub const fn milli(self) -> u64 {
        self.0
    }

    /// Whole units, rounded down: what may be promised to a client.
    pub const fn floor(self) -> u64 {
        self.0 / 1000
    }

    /// As a float, for metrics and reports.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / 1000.0
    }

    /// True when it is nothing.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum, at most [`Units::MAX`].
    pub const fn saturating_add(self, other: Self) -> Self {
        Self::from_milli(self.0.saturating_add(other.0))
    }

    /// The difference, at least nothing.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl FromStr for Units {
    type Err = ParseUnitsError;

    /// Reads `12`, `0.25` or `12.`; a finer fraction than a thousandth is rounded up, against the client.
    fn from_str(text: &str) -> Result<Self, ParseUnitsError> {
        let text = text.trim();
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() + fraction.len() == 0 || whole.len() > 15 || !digits(whole) || !digits(fraction) {
            return Err(ParseUnitsError);
        }
        let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().map_err(|_| ParseUnitsError)? };
        let (kept, finer) = fraction.split_at(fraction.len().min(3));
        let kept = format!("{kept:0<3}").parse::<u64>().map_err(|_| ParseUnitsError)?;
        let round_up = u64::from(finer.bytes().any(|byte| byte != b'0'));
        Ok(Self::from_milli(whole * 1000 + kept + round_up))
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
    fn decimals_are_read_exactly_and_finer_ones_are_rounded_up() {
        let milli = |text: &str| text.parse::<Units>().map(Units::milli);
        assert_eq!(milli("12.25"), Ok(12_250));
        assert_eq!(milli("0"), Ok(0));
        assert_eq!(milli(".5"), Ok(500));
        assert_eq!(milli("1.0000"), Ok(1000));
        assert_eq!(milli("0.0001"), Ok(1));
        for junk in ["", ".", "-1", "1e3", "+5", "1,5", "0x10", "1.2.3", "9999999999999999"] {
            assert_eq!(milli(junk), Err(ParseUnitsError), "{junk}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(milli in 0..=Units::MAX.milli()) {
            let units = Units::from_milli(milli);
            prop_assert_eq!(units.to_string().parse::<Units>(), Ok(units));
        }
    }
}
