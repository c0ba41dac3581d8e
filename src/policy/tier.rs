//! Graded refusal: from this much of a quota on, refuse this share of a class.
//!
//! Shares are exact, not drawn by lot: each request adds the share to a carry, and the one that fills it up is
//! refused (error diffusion). So any run of n requests has n times the share refused, give or take one.

use super::units::Units;

/// A share of requests, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    /// Every request.
    pub const ALL: Self = Self(1_000_000);
    /// No request.
    pub const NONE: Self = Self(0);

    /// `millionths` of all, at most all.
    pub const fn from_millionths(millionths: u32) -> Self {
        if millionths > Self::ALL.0 { Self::ALL } else { Self(millionths) }
    }

    /// So much of all, rounded to millionths; none where it is no number.
    pub fn from_ratio(ratio: f64) -> Self {
        // A float that is too large, below zero or no number becomes the nearest integer, or 0.
        Self::from_millionths((ratio * f64::from(Self::ALL.0)).round() as u32)
    }

    /// What is not of this share.
    pub const fn complement(self) -> Self {
        Self(Self::ALL.0 - self.0)
    }

    /// In millionths.
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// This share of `units`, rounded down.
    pub fn of_units(self, units: Units) -> Units {
        let part = u128::from(units.milli()) * u128::from(self.0) / u128::from(Self::ALL.0);
        Units::from_milli(u64::try_from(part).unwrap_or(u64::MAX))
    }

    /// Between 0 and 1.
    pub fn ratio(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ALL.0)
    }
}

/// One step of a ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// From this much taken on ...
    pub above: Units,
    /// ... refuse this share.
    pub shed: Share,
}

/// The tiers of one class in one quota, lowest first, each shedding more than the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierSet {
    tiers: Vec<Tier>,
    slack: Units,
}

/// Where a class stands on its ladder: what the engine keeps from one request to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShedState {
    /// How many tiers have been entered; 0 is none.
    pub tier: u8,
    /// What has been added up towards the next refusal, in millionths.
    pub carry: u32,
}

impl TierSet {
    /// A ladder of `tiers`, which the settings have sorted, for a quota of `limit`.
    ///
    /// A tier is left again only when the quota has fallen a twentieth of the limit below its mark (or half the
    /// mark, where that is less), so that a charge given back does not make it flap.
    pub fn new(tiers: Vec<Tier>, limit: Units) -> Self {
        Self { tiers, slack: Units::from_milli(limit.milli() / 20) }
    }

    /// The tiers, lowest first.
    pub fn tiers(&self) -> &[Tier] {
        &self.tiers
    }

    /// How many tiers count as entered once `taken` has been spent or promised, coming from `tier`.
    pub fn tier_at(&self, tier: u8, taken: Units) -> u8 {
        let entered = self.tiers.iter().take_while(|step| taken >= step.above).count();
        let held = self.tiers.iter().take(usize::from(tier)).take_while(|step| taken >= self.exit_below(step)).count();
        u8::try_from(entered.max(held)).unwrap_or(u8::MAX)
    }

    /// The share refused in `tier`.
    pub fn shed_share(&self, tier: u8) -> Share {
        usize::from(tier).checked_sub(1).and_then(|index| self.tiers.get(index)).map_or(Share::NONE, |step| step.shed)
    }

    /// From this much taken on nothing of the class is let through, if there is such a mark.
    pub fn shutoff_at(&self) -> Option<Units> {
        self.tiers.iter().find(|step| step.shed == Share::ALL).map(|step| step.above)
    }

    fn exit_below(&self, step: &Tier) -> Units {
        let half = Units::from_milli(step.above.milli() / 2);
        step.above.saturating_sub(self.slack.min(half))
    }
}

impl ShedState {
    /// Counts one request against `share`: whether it is the one to be refused, and where that leaves the count.
    pub fn record(self, share: Share) -> (bool, Self) {
        self.record_borrowing(share, 0)
    }

    /// The same, for a request that may go before its turn, as long as no more than `owed` refusals are put off by that:
    /// later ones are refused in its place, and the share stays what it is.
    pub fn record_borrowing(self, share: Share, owed: u32) -> (bool, Self) {
        let carry = self.carry + share.millionths();
        let refuse = carry >= Share::ALL.millionths() * (1 + owed);
        (refuse, Self { carry: if refuse { carry - Share::ALL.millionths() } else { carry }, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ladder(steps: &[(u64, u32)]) -> TierSet {
        let tiers = steps
            .iter()
            .map(|&(above, percent)| Tier {
                above: Units::from_whole(above),
                shed: Share::from_millionths(percent * 10_000),
            })
            .collect();
        TierSet::new(tiers, Units::from_whole(1000))
    }

    #[test]
    fn the_usual_ladder_sheds_half_then_three_quarters_then_all() {
        let ladder = ladder(&[(600, 50), (800, 75), (950, 100)]);
        let share = |taken| ladder.shed_share(ladder.tier_at(0, Units::from_whole(taken))).millionths() / 10_000;
        assert_eq!([0, 599, 600, 799, 800, 949, 950, 1000].map(share), [0, 0, 50, 50, 75, 75, 100, 100]);
        assert_eq!(ladder.shutoff_at(), Some(Units::from_whole(950)));
    }

    #[test]
    fn a_charge_given_back_does_not_make_a_tier_flap() {
        let ladder = ladder(&[(600, 50)]);
        let entered = ladder.tier_at(0, Units::from_whole(600));
        assert_eq!(ladder.tier_at(entered, Units::from_whole(599)), 1, "just below the mark it holds");
        assert_eq!(ladder.tier_at(entered, Units::from_whole(550)), 1);
        assert_eq!(ladder.tier_at(entered, Units::from_whole(549)), 0, "a twentieth of the limit below it lets go");
        assert_eq!(ladder.tier_at(0, Units::from_whole(599)), 0);
    }

    #[test]
    fn a_tier_from_nothing_on_always_holds_and_a_low_one_can_be_left() {
        assert_eq!(ladder(&[(0, 100)]).tier_at(0, Units::ZERO), 1);
        assert_eq!(ladder(&[(30, 100)]).tier_at(1, Units::ZERO), 0);
    }

    proptest! {
        #[test]
        fn any_run_has_its_share_refused_give_or_take_one(
            millionths in 0u32..=1_000_000, carry in 0u32..1_000_000, length in 1usize..2000,
        ) {
            let share = Share::from_millionths(millionths);
            let mut shedding = ShedState { tier: 1, carry };
            let mut refused = 0u64;
            for _ in 0..length {
                let (refuse, next) = shedding.record(share);
                refused += u64::from(refuse);
                shedding = next;
            }
            let exact = length as f64 * share.ratio();
            prop_assert!((refused as f64 - exact).abs() <= 1.0, "{refused} of {length}, {exact} due");
        }

        #[test]
        fn more_taken_never_means_a_lower_tier(taken in 0u64..1200, more in 0u64..200, tier in 0u8..=3) {
            let ladder = ladder(&[(100, 10), (400, 60), (900, 100)]);
            prop_assert!(ladder.tier_at(tier, Units::from_whole(taken + more)) >= ladder.tier_at(tier, Units::from_whole(taken)));
        }
    }
}
