//! Graded refusal: from a given usage of a quota on, refuses a given share of a class's requests.
//!
//! Shares are exact, not random. Each request adds the share to a carry; the request that fills the carry is refused
//! (error diffusion). Any run of n requests has n times the share refused, within one request.

use super::units::Units;
use std::fmt;

/// A share of requests, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    /// All requests.
    pub const ALL: Self = Self(1_000_000);
    /// No requests.
    pub const NONE: Self = Self(0);

    /// Creates a share of `millionths`, capped at all requests.
    pub const fn from_millionths(millionths: u32) -> Self {
        if millionths > Self::ALL.0 { Self::ALL } else { Self(millionths) }
    }

    /// Creates a share from `ratio`, rounded to millionths and clamped to 0..=1; zero for NaN.
    pub fn from_ratio(ratio: f64) -> Self {
        Self::from_millionths((ratio * f64::from(Self::ALL.0)).round() as u32)
    }

    /// Returns the complementary share.
    pub const fn complement(self) -> Self {
        Self(Self::ALL.0 - self.0)
    }

    /// Returns the share in millionths.
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// Returns this share of `units`, rounded down.
    pub fn of_units(self, units: Units) -> Units {
        let part = u128::from(units.milli()) * u128::from(self.0) / u128::from(Self::ALL.0);
        Units::from_milli(u64::try_from(part).unwrap_or(u64::MAX))
    }

    /// Returns the share as a ratio, 0 to 1.
    pub fn ratio(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ALL.0)
    }
}

impl fmt::Display for Share {
    /// Writes the share in percent, as in `12.5%`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}%", Units::from_milli(u64::from(self.0) / 10))
    }
}

/// A tier: a usage threshold and the share refused from there on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Usage from which on the tier applies, in units.
    pub threshold: Units,
    /// Share of requests refused in the tier.
    pub shed_share: Share,
}

/// The tiers of one class in one quota, lowest first; each refuses a larger share than the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierSet {
    tiers: Vec<Tier>,
    hysteresis: Units,
}

/// Tier state of a class in a quota, kept by the engine between requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShedState {
    /// Number of tiers entered; 0 if none.
    pub tier: u8,
    /// Carry towards the next refusal, in millionths.
    pub carry: u32,
}

impl TierSet {
    /// Creates the tiers for a quota of `limit`; the settings have sorted `tiers`.
    ///
    /// Hysteresis: a tier is left only when usage falls below its threshold by a twentieth of the limit (or half the
    /// threshold, if less), so that a released charge does not toggle it.
    pub fn new(tiers: Vec<Tier>, limit: Units) -> Self {
        Self { tiers, hysteresis: Units::from_milli(limit.milli() / 20) }
    }

    /// Returns the tiers, lowest first.
    pub fn tiers(&self) -> &[Tier] {
        &self.tiers
    }

    /// Returns the number of tiers entered at usage `taken` (settled and reserved), given the previous number `tier`.
    pub fn tier_at(&self, tier: u8, taken: Units) -> u8 {
        let entered = self.tiers.iter().take_while(|tier| taken >= tier.threshold).count();
        let held = self.tiers.iter().take(usize::from(tier)).take_while(|tier| taken >= self.exit_below(tier)).count();
        u8::try_from(entered.max(held)).unwrap_or(u8::MAX)
    }

    /// Returns the share refused in `tier`.
    pub fn shed_share(&self, tier: u8) -> Share {
        usize::from(tier)
            .checked_sub(1)
            .and_then(|index| self.tiers.get(index))
            .map_or(Share::NONE, |tier| tier.shed_share)
    }

    /// Returns the usage from which on all requests of the class are refused, if any.
    pub fn shutoff_at(&self) -> Option<Units> {
        self.tiers.iter().find(|tier| tier.shed_share == Share::ALL).map(|tier| tier.threshold)
    }

    fn exit_below(&self, tier: &Tier) -> Units {
        let half = Units::from_milli(tier.threshold.milli() / 2);
        tier.threshold.saturating_sub(self.hysteresis.min(half))
    }
}

impl ShedState {
    /// Counts one request against `share`. Returns true if it is refused, and the new state.
    pub fn record(self, share: Share) -> (bool, Self) {
        self.record_borrowing(share, 0)
    }

    /// Like [`Self::record`], for a request that may borrow turns: it is refused only if more than `max_deferred`
    /// refusals would be deferred. Later requests are refused instead, so the share stays exact.
    pub fn record_borrowing(self, share: Share, max_deferred: u32) -> (bool, Self) {
        let carry = self.carry + share.millionths();
        let is_refused = carry >= Share::ALL.millionths() * (1 + max_deferred);
        (is_refused, Self { carry: if is_refused { carry - Share::ALL.millionths() } else { carry }, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tier_set(thresholds: &[(u64, u32)]) -> TierSet {
        let tiers = thresholds
            .iter()
            .map(|&(threshold, percent)| Tier {
                threshold: Units::from_whole(threshold),
                shed_share: Share::from_millionths(percent * 10_000),
            })
            .collect();
        TierSet::new(tiers, Units::from_whole(1000))
    }

    #[test]
    fn tiers_shed_half_then_three_quarters_then_all() {
        let tiers = tier_set(&[(600, 50), (800, 75), (950, 100)]);
        let share = |taken| tiers.shed_share(tiers.tier_at(0, Units::from_whole(taken))).millionths() / 10_000;
        assert_eq!([0, 599, 600, 799, 800, 949, 950, 1000].map(share), [0, 0, 50, 50, 75, 75, 100, 100]);
        assert_eq!(tiers.shutoff_at(), Some(Units::from_whole(950)));
    }

    #[test]
    fn released_charge_does_not_toggle_the_tier() {
        let tiers = tier_set(&[(600, 50)]);
        let entered = tiers.tier_at(0, Units::from_whole(600));
        assert_eq!(tiers.tier_at(entered, Units::from_whole(599)), 1, "still held just below the threshold");
        assert_eq!(tiers.tier_at(entered, Units::from_whole(550)), 1);
        assert_eq!(
            tiers.tier_at(entered, Units::from_whole(549)),
            0,
            "left a twentieth of the limit below the threshold"
        );
        assert_eq!(tiers.tier_at(0, Units::from_whole(599)), 0);
    }

    #[test]
    fn zero_tier_always_holds_low_tier_can_end() {
        assert_eq!(tier_set(&[(0, 100)]).tier_at(0, Units::ZERO), 1);
        assert_eq!(tier_set(&[(30, 100)]).tier_at(1, Units::ZERO), 0);
    }

    #[test]
    fn share_is_at_most_all_and_shown_in_percent() {
        let millionths = [0, 125_000, 999_999, 1_000_000, 1_000_001, u32::MAX];
        let shares = millionths.map(Share::from_millionths);
        assert_eq!(shares.map(Share::millionths), [0, 125_000, 999_999, 1_000_000, 1_000_000, 1_000_000]);
        assert_eq!(shares.map(|share| share.to_string())[1..4], ["12.5%", "99.999%", "100%"]);
        assert_eq!(tier_set(&[(600, 50), (800, 75)]).tiers().len(), 2);
    }

    proptest! {
        #[test]
        fn refused_share_is_exact_within_one_request(
            millionths in 0u32..=1_000_000, carry in 0u32..1_000_000, length in 1usize..2000,
        ) {
            let share = Share::from_millionths(millionths);
            let mut state = ShedState { tier: 1, carry };
            let mut refused = 0u64;
            for _ in 0..length {
                let (is_refused, next) = state.record(share);
                refused += u64::from(is_refused);
                state = next;
            }
            let exact = length as f64 * share.ratio();
            prop_assert!((refused as f64 - exact).abs() <= 1.0, "refused {refused} of {length}, expected {exact}");
        }

        #[test]
        fn more_taken_never_means_a_lower_tier(taken in 0u64..1200, more in 0u64..200, tier in 0u8..=3) {
            let tiers = tier_set(&[(100, 10), (400, 60), (900, 100)]);
            prop_assert!(tiers.tier_at(tier, Units::from_whole(taken + more)) >= tiers.tier_at(tier, Units::from_whole(taken)));
        }
    }
}
