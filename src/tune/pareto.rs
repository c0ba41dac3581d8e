//! What could be had for what: of all that was tried, those that nothing else beats in both of two measures.

use super::goal::Bound;
use super::measure::Measure;
use super::rank::Rank;
use super::search::Evaluated;
use std::collections::BTreeSet;

/// Something to be traded for something else: a measure, and which way is better.
#[derive(Clone, Debug)]
pub(super) struct Objective {
    pub(super) measure: Measure,
    pub(super) better: Bound,
}

/// A trade-off (Pareto front).
#[derive(Clone, Debug)]
pub(super) struct ParetoFront {
    /// What is traded, by place among the stakes.
    pub(super) stakes: [usize; 2],
    /// Places among those that were tried, in the order of the first measure.
    pub(super) points: Vec<usize>,
}

impl ParetoFront {
    /// The first two stakes of which more of one is less of the other, among policies that miss no other term of the goal by
    /// more than `chosen` does. The stakes that are terms come first, in their order.
    pub(super) fn of(stakes: &[Objective], tried: &[Evaluated], chosen: &Rank) -> Option<Self> {
        let pairs = || (0..stakes.len()).flat_map(|one| (one + 1..stakes.len()).map(move |other| [one, other]));
        let front = |pair: [usize; 2]| Self { stakes: pair, points: non_dominated(stakes, pair, tried, chosen) };
        let with = |least: usize| pairs().map(front).find(|front| front.points.len() >= least);
        with(MIN_POINTS).or_else(|| with(2))
    }
}

impl ParetoFront {
    /// Its points and those that are `marked`, along the curve: the better the one, the worse the other.
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
    // The less the better, in both.
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

/// To a tenth, as it is shown: points that look alike are one.
fn rounded(figure: f64) -> i64 {
    (figure * 10.0).round() as i64
}

/// So many points are a curve.
const MIN_POINTS: usize = 3;
