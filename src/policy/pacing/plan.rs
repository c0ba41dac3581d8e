//! Divides what remains: first what people will ask for, then to each paced class its part.

use super::demand::DemandForecast;
use crate::policy::tier::Share;
use crate::policy::units::Units;
use std::cmp::Reverse;

/// What is to be divided, and among whom.
#[derive(Clone, Debug)]
pub struct PlanInput {
    /// What may be taken until the window ends.
    pub left: Units,
    /// What was bought for the window.
    pub limit: Units,
    /// What those served first will ask for.
    pub unpaced_demand: DemandForecast,
    /// Shares are planned, not rates alone: then a little is left over, so that they can stay.
    pub by_share: bool,
    /// So far what a class gets may be off its part by weight, for the sake of a share that stays.
    pub burst: Units,
    /// The paced classes.
    pub paced: Vec<ClassDemand>,
}

/// What a paced class will ask for.
#[derive(Clone, Copy, Debug)]
pub struct ClassDemand {
    /// How much it counts against the others.
    pub weight: f64,
    /// The higher, the longer its share stays when more is asked for than was expected.
    pub priority: u8,
    /// Units until the window ends.
    pub units: f64,
    /// The share of its requests that was planned when the window began, if one was.
    pub share: Option<Share>,
}

/// How what remains is divided.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Units that are put aside for those served first.
    pub earmarked: Units,
    /// What each paced class gets, in the order of the outlook.
    pub parts: Vec<ClassAllocation>,
}

/// What a paced class gets until the window ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassAllocation {
    /// The share of its requests that can be served with it.
    pub share: Share,
    /// Units, with what nobody has asked for: those are for whoever does.
    pub units: f64,
}

/// People may come by this many deviations more than expected. What the paced classes could give up serves for that, up to
/// [`YIELD_SHARE`]; only what goes beyond is kept back ...
const MARGIN_DEVIATIONS: f64 = 1.5;
/// ... this part of what is left for them ...
const YIELD_SHARE: f64 = 0.5;
/// ... and never more than this part of the limit: at the window's end it would be left over.
const MAX_MARGIN: f64 = 0.006;
/// So much of the limit is planned to be left over, ...
const TARGET_UNUSED: f64 = 0.0045;
/// ... give or take this in the end. As long as that is so, shares stay as they were when the window began: chance alone
/// should not make one hour different from the next.
const UNUSED_TOLERANCE: f64 = 0.0042;
/// How that opens, from nothing, with the part of the limit that is gone. Early, a share that is a little different makes up
/// for what came unlooked-for; late, it would have to be very different.
const TOLERANCE_EXPONENT: i32 = 2;

impl PlanInput {
    /// The plan.
    pub fn plan(&self) -> Plan {
        let limit = self.limit.as_f64();
        let for_paced = (self.left.as_f64() - self.unpaced_demand.units).max(0.0);
        let gone = 1.0 - (self.left.as_f64() / limit.max(f64::MIN_POSITIVE)).min(1.0);
        let (left_over, give_or_take) = match self.by_share {
            true => (TARGET_UNUSED, UNUSED_TOLERANCE * gone.powi(TOLERANCE_EXPONENT)),
            false => (0.0, 0.0),
        };
        let unlooked_for = MARGIN_DEVIATIONS * self.unpaced_demand.variance.max(0.0).sqrt() - YIELD_SHARE * for_paced;
        let margin = unlooked_for.clamp((left_over - give_or_take) * limit, MAX_MARGIN * limit);
        let earmarked = self.unpaced_demand.units + margin;
        let most = (self.left.as_f64() - earmarked).max(0.0);
        let least = (for_paced - (left_over + give_or_take) * limit).clamp(0.0, most);
        let (by_weight, kept) = (self.divide_by_weight(most), self.keep_shares(least, most));
        let asked: f64 = self.paced.iter().map(|class| class.units).sum();
        let weights: f64 = self.paced.iter().map(|class| class.weight).sum();
        let surplus = (most - asked).max(0.0);
        let part = |(class, (by_weight, kept)): (&ClassDemand, (f64, f64))| ClassAllocation {
            share: admit_share(kept, class.units),
            units: by_weight.max(kept) + surplus * class.weight / weights,
        };
        let parts = self.paced.iter().zip(by_weight.into_iter().zip(kept)).map(part).collect();
        Plan { earmarked: Units::from_milli((earmarked * 1000.0) as u64), parts }
    }

    /// What each class gets of a budget from `least` to `most`, with shares that are those of the window's beginning, where
    /// they can be.
    ///
    /// What chance takes and gives, the last in rank bears: the others keep their shares as long as the last have
    /// something to give, and nobody is further than the burst from the part that weights give.
    fn keep_shares(&self, mut least: f64, mut most: f64) -> Vec<f64> {
        let (upper, lower) = (self.divide_by_weight(most), self.divide_by_weight(least));
        let burst = self.burst.as_f64();
        let mut others: f64 = self.paced.iter().map(|class| class.units).sum();
        let mut kept = vec![0.0; self.paced.len()];
        for place in self.by_rank() {
            let class = &self.paced[place];
            others -= class.units;
            let by_weight = (lower[place] + upper[place]) / 2.0;
            let as_it_began = class.share.map_or(by_weight, |share| share.ratio() * class.units);
            let can_have = class.units.min(most);
            // The others cannot use more than they ask for.
            let must_have = (least - others).clamp(0.0, can_have);
            kept[place] = as_it_began.max(lower[place] - burst).min(upper[place] + burst).clamp(must_have, can_have);
            least = (least - kept[place]).max(0.0);
            most = (most - kept[place]).max(0.0);
        }
        kept
    }

    /// The places of the classes: first whose share stays the longest. Of one priority the earlier in the file is that.
    fn by_rank(&self) -> Vec<usize> {
        let mut places: Vec<usize> = (0..self.paced.len()).collect();
        places.sort_by_key(|place| Reverse(self.paced[*place].priority));
        places
    }

    /// Divides `budget` by weight: nobody gets more than is asked for, and what one leaves the others share.
    fn divide_by_weight(&self, budget: f64) -> Vec<f64> {
        let mut parts = vec![0.0; self.paced.len()];
        let mut by_need: Vec<usize> = (0..self.paced.len()).collect();
        let need = |place: &usize| self.paced[*place].units / self.paced[*place].weight;
        by_need.sort_by(|one, other| need(one).total_cmp(&need(other)));
        let mut left = budget;
        let mut weights: f64 = self.paced.iter().map(|class| class.weight).sum();
        for place in by_need {
            let ClassDemand { weight, units, .. } = self.paced[place];
            parts[place] = units.min(left * weight / weights);
            left -= parts[place];
            weights -= weight;
        }
        parts
    }
}

/// The share of what is `asked` that `units` can serve: everything, where nothing is asked.
fn admit_share(units: f64, asked: f64) -> Share {
    match asked > 0.0 {
        true => Share::from_ratio(units / asked),
        false => Share::ALL,
    }
}
