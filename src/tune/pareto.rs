//! Pareto front: the tried policies that no other policy beats in both of two measures.

use super::goal::Bound;
use super::measure::Measure;
use super::rank::Rank;
use super::search::Evaluated;
use std::collections::BTreeSet;

/// A measure with its better direction.
#[derive(Clone, Debug)]
pub(super) struct Objective {
    pub(super) measure: Measure,
    pub(super) better: Bound,
}

/// Trade-off between two measures (Pareto front).
#[derive(Clone, Debug)]
pub(super) struct ParetoFront {
    /// Indexes of the two measures among the objectives.
    pub(super) stakes: [usize; 2],
    /// Indexes of the tried policies on the front, in the order of the first measure.
    pub(super) points: Vec<usize>,
}

impl ParetoFront {
    /// Returns the front of the first two objectives that conflict. Considers only policies that miss no other term by
    /// more than `chosen`. Objectives that are terms of the goal come first, in their order.
    pub(super) fn of(stakes: &[Objective], tried: &[Evaluated], chosen: &Rank) -> Option<Self> {
        let pairs = || (0..stakes.len()).flat_map(|one| (one + 1..stakes.len()).map(move |other| [one, other]));
        let front = |pair: [usize; 2]| Self { stakes: pair, points: non_dominated(stakes, pair, tried, chosen) };
        let with = |least: usize| pairs().map(front).find(|front| front.points.len() >= least);
        with(MIN_POINTS).or_else(|| with(2))
    }
}

impl ParetoFront {
    /// Returns the points of the front and those in `marked`, from the best to the worst in the first measure.
    pub(super) fn along(&self, stakes: &[Objective], tried: &[Evaluated], marked: [usize; 2]) -> Vec<usize> {
        let badness = |place: usize, stake: usize| {
            let figure = tried[place].figures[stake]?;
            Some(if stakes[stake].better == Bound::AtMost { figure } else { -figure })
        };
        let [x, y] = self.stakes;
        let places: BTreeSet<usize> = self.points.iter().copied().chain(marked).collect();
        let point = |place: usize| Some((badness(place, x)?, badness(place, y)?, place));
        let mut points: Vec<(f64, f64, usize)> = places.into_iter().filter_map(point).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0).then(other.1.total_cmp(&one.1)));
        points.into_iter().map(|(_, _, place)| place).collect()
    }
}

fn non_dominated(stakes: &[Objective], pair: [usize; 2], tried: &[Evaluated], chosen: &Rank) -> Vec<usize> {
    // In both, lower is better.
    let figure = |tried: &Evaluated, stake: usize| {
        let value = rounded(tried.figures[stake]?);
        Some(if stakes[stake].better == Bound::AtMost { value } else { -value })
    };
    let fits = |tried: &Evaluated| tried.rank.dominates_except(chosen, pair);
    let eligible = tried.iter().enumerate().filter(|(_, tried)| fits(tried));
    let mut all: Vec<(i64, i64, &Rank, usize)> = eligible
        .filter_map(|(place, tried)| Some((figure(tried, pair[0])?, figure(tried, pair[1])?, &tried.rank, place)))
        .collect();
    all.sort();
    let mut least = i64::MAX;
    all.retain(|&(_, other, _, _)| {
        let is_better = other < least;
        least = least.min(other);
        is_better
    });
    all.into_iter().map(|(_, _, _, place)| place).collect()
}

/// Rounds to a tenth, the displayed precision, so that points with equal labels count as one.
fn rounded(figure: f64) -> i64 {
    (figure * 10.0).round() as i64
}

/// Minimum number of points of a meaningful front.
const MIN_POINTS: usize = 3;
