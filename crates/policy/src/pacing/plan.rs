//! Allocates the remaining units: first the forecast demand of unpaced classes, then the rest to the paced classes by
//! weight.

use super::demand::DemandForecast;
use crate::tier::Share;
use crate::units::Units;
use std::cmp::Reverse;

/// Input of the planner.
#[derive(Clone, Debug)]
pub struct PlanInput {
    /// Units available until the end of the window.
    pub left: Units,
    /// Limit of the quota.
    pub limit: Units,
    /// Forecast demand of the unpaced classes, in units.
    pub unpaced_demand: DemandForecast,
    /// True to plan constant admit shares, not only rates; a small remainder is then left unused to keep the shares
    /// constant.
    pub is_share_based: bool,
    /// Forecast demand of each paced class.
    pub paced_classes: Vec<ClassDemand>,
}

/// Forecast demand of a paced class.
#[derive(Clone, Copy, Debug)]
pub struct ClassDemand {
    /// Weight of the class.
    pub weight: f64,
    /// Priority: classes with a higher value keep their admit share longer.
    pub priority: u8,
    /// Forecast demand until the end of the window, in units.
    pub units: f64,
    /// Maximum deviation from the allocation by weight, in units, for the sake of a constant admit share.
    pub burst: f64,
    /// Admit share at the start of the window, if known.
    pub initial_share: Option<Share>,
}

/// Allocation of the remaining units.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Units earmarked for unpaced classes.
    pub earmarked: Units,
    /// Units that requests are expected to use until the end of the window, with a margin.
    pub expected: Units,
    /// Units that requests are expected to ask for, those that the plan refuses included, with a margin.
    pub demanded: Units,
    /// Allocation of each paced class, in the order of the input.
    pub allocations: Vec<ClassAllocation>,
}

/// Allocation of a class until the end of the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassAllocation {
    /// Admit share, 0 to 1.
    pub share: Share,
    /// Allocated units, including units without forecast demand.
    pub units: f64,
}

/// Safety margin for unpaced demand, in standard deviations. Paced classes cover it with up to [`YIELD_SHARE`] of their
/// allocation; only the excess is withheld.
const MARGIN_DEVIATIONS: f64 = 1.5;
/// Part of their allocation that paced classes can yield to unpaced demand, as a ratio.
const YIELD_SHARE: f64 = 0.5;
/// Maximum margin as a ratio of the limit; what is withheld is left unused at the end of the window.
const MAX_MARGIN: f64 = 0.006;
/// Target for the unused remainder, as a ratio of the limit.
const TARGET_UNUSED: f64 = 0.0045;
/// Tolerance of that target at the end of the window. Within it, admit shares stay as they were at its start, so that
/// noise does not change them from hour to hour.
const UNUSED_TOLERANCE: f64 = 0.0042;
/// Exponent with which the tolerance grows from 0 over the window: early, a small change of the share corrects a
/// deviation; late, it takes a large one.
const TOLERANCE_EXPONENT: i32 = 2;

impl PlanInput {
    /// Computes the plan.
    pub fn plan(&self) -> Plan {
        let limit = self.limit.as_f64();
        let for_paced = (self.left.as_f64() - self.unpaced_demand.units).max(0.0);
        let used = 1.0 - (self.left.as_f64() / limit.max(f64::MIN_POSITIVE)).min(1.0);
        let (unused_target, tolerance) = match self.is_share_based {
            true => (TARGET_UNUSED, UNUSED_TOLERANCE * used.powi(TOLERANCE_EXPONENT)),
            false => (0.0, 0.0),
        };
        let deviation = self.unpaced_demand.variance.max(0.0).sqrt();
        let unforeseen = MARGIN_DEVIATIONS * deviation - YIELD_SHARE * for_paced;
        let margin = unforeseen.clamp((unused_target - tolerance) * limit, MAX_MARGIN * limit);
        let earmarked = self.unpaced_demand.units + margin;
        let max_budget = (self.left.as_f64() - earmarked).max(0.0);
        let min_budget = (for_paced - (unused_target + tolerance) * limit).clamp(0.0, max_budget);
        let (by_weight, kept) = (self.divide_by_weight(max_budget), self.keep_shares(min_budget, max_budget));
        let demand: f64 = self.paced_classes.iter().map(|class| class.units).sum();
        let weights: f64 = self.paced_classes.iter().map(|class| class.weight).sum();
        let surplus = (max_budget - demand).max(0.0);
        let covering = self.covering_class();
        let allocate = |(index, (class, (by_weight, kept))): (usize, (&ClassDemand, (f64, f64)))| {
            let reserved = if covering == Some(index) { reserve(kept, class.units, deviation) } else { 0.0 };
            ClassAllocation {
                share: admit_share(kept - reserved, class.units),
                units: by_weight.max(kept) + surplus * class.weight / weights,
            }
        };
        let unpaced = self.unpaced_demand.units + MARGIN_DEVIATIONS * deviation;
        let (expected, demanded) = (unpaced + kept.iter().sum::<f64>(), unpaced + demand);
        let allocations =
            self.paced_classes.iter().zip(by_weight.into_iter().zip(kept)).enumerate().map(allocate).collect();
        let units = |amount: f64| Units::from_milli((amount * 1000.0) as u64);
        Plan { earmarked: units(earmarked), expected: units(expected), demanded: units(demanded), allocations }
    }

    /// Returns the units of each class out of a budget from `min_budget` to `max_budget`, with the admit shares of the
    /// window's start where possible.
    ///
    /// The class of lowest rank absorbs deviations; the others keep their shares while it has units to yield. No class
    /// deviates from its allocation by weight by more than the burst.
    fn keep_shares(&self, mut min_budget: f64, mut max_budget: f64) -> Vec<f64> {
        let (upper, lower) = (self.divide_by_weight(max_budget), self.divide_by_weight(min_budget));
        let mut others: f64 = self.paced_classes.iter().map(|class| class.units).sum();
        let mut kept = vec![0.0; self.paced_classes.len()];
        for index in self.indexes_by_priority() {
            let class = &self.paced_classes[index];
            others -= class.units;
            let by_weight = (lower[index] + upper[index]) / 2.0;
            let initial = class.initial_share.map_or(by_weight, |initial_share| initial_share.ratio() * class.units);
            let max_units = class.units.min(max_budget);
            // The other classes cannot use more than their demand.
            let min_units = (min_budget - others).clamp(0.0, max_units);
            kept[index] =
                initial.max(lower[index] - class.burst).min(upper[index] + class.burst).clamp(min_units, max_units);
            min_budget = (min_budget - kept[index]).max(0.0);
            max_budget = (max_budget - kept[index]).max(0.0);
        }
        kept
    }

    /// Returns the class that covers what the others and unpaced classes use beyond their forecast: that of the lowest priority,
    /// if another class has a higher one.
    pub(super) fn covering_class(&self) -> Option<usize> {
        let highest = self.paced_classes.iter().filter(|class| class.units > 0.0).map(|class| class.priority).max();
        let lowest = self.indexes_by_priority().pop().filter(|_| self.is_share_based);
        lowest.filter(|index| Some(self.paced_classes[*index].priority) < highest)
    }

    /// Returns the indexes of the classes by priority, highest first; on a tie, in the order of the file.
    fn indexes_by_priority(&self) -> Vec<usize> {
        let mut indexes: Vec<usize> = (0..self.paced_classes.len()).collect();
        indexes.sort_by_key(|index| Reverse(self.paced_classes[*index].priority));
        indexes
    }

    /// Divides `budget` by weight, capped at each class's demand; redistributes the excess (weighted max-min fairness).
    fn divide_by_weight(&self, budget: f64) -> Vec<f64> {
        let mut allocations = vec![0.0; self.paced_classes.len()];
        let mut by_need: Vec<usize> = (0..self.paced_classes.len()).collect();
        let need = |index: &usize| self.paced_classes[*index].units / self.paced_classes[*index].weight;
        by_need.sort_by(|a, b| need(a).total_cmp(&need(b)));
        let mut left = budget;
        let mut weights: f64 = self.paced_classes.iter().map(|class| class.weight).sum();
        for index in by_need {
            let ClassDemand { weight, units, .. } = self.paced_classes[index];
            allocations[index] = units.min(left * weight / weights);
            left -= allocations[index];
            weights -= weight;
        }
        allocations
    }
}

/// Returns the part of the `units` of a class that is reserved to cover for others: the standard `deviation` of the unpaced demand
/// ahead, and half of them at least, but not more than the demand that is refused anyway.
///
/// What is left of its units then falls with the square root of the time, like that variation. Only its admit share has this
/// limit: the units are planned.
fn reserve(units: f64, demand: f64, deviation: f64) -> f64 {
    deviation.clamp(units / 2.0, units).min((demand - units).max(0.0))
}

/// Returns `units / demand`, at most 1; 1 if `demand` is zero.
fn admit_share(units: f64, demand: f64) -> Share {
    match demand > 0.0 {
        true => Share::from_ratio(units / demand),
        false => Share::ALL,
    }
}
