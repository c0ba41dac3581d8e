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
    pub(super) direction: Bound,
}

/// Trade-off between two measures (Pareto front).
#[derive(Clone, Debug)]
pub(super) struct ParetoFront {
    /// Indexes of the two measures among the objectives.
    pub(super) axes: [usize; 2],
    /// Indexes of the tried policies on the front, in the order of the first measure.
    pub(super) points: Vec<usize>,
}

impl ParetoFront {
    /// Returns the front of the first two objectives that conflict. Considers only policies that miss no other term by
    /// more than `chosen`. Objectives that are terms of the goal come first, in their order.
    pub(super) fn compute(objectives: &[Objective], evaluated: &[Evaluated], chosen: &Rank) -> Option<Self> {
        let pairs = || (0..objectives.len()).flat_map(|one| (one + 1..objectives.len()).map(move |other| [one, other]));
        let front = |pair: [usize; 2]| Self { axes: pair, points: non_dominated(objectives, pair, evaluated, chosen) };
        let with_points = |min_points: usize| pairs().map(front).find(|front| front.points.len() >= min_points);
        with_points(MIN_POINTS).or_else(|| with_points(2))
    }
}

impl ParetoFront {
    /// Returns the points of the front and those in `marked`, from the best to the worst in the first measure.
    pub(super) fn sorted_points(
        &self,
        objectives: &[Objective],
        evaluated: &[Evaluated],
        marked: [usize; 2],
    ) -> Vec<usize> {
        let loss = |index: usize, objective: usize| {
            let figure = evaluated[index].figures[objective]?;
            Some(if objectives[objective].direction == Bound::AtMost { figure } else { -figure })
        };
        let [x, y] = self.axes;
        let indices: BTreeSet<usize> = self.points.iter().copied().chain(marked).collect();
        let point = |index: usize| Some((loss(index, x)?, loss(index, y)?, index));
        let mut points: Vec<(f64, f64, usize)> = indices.into_iter().filter_map(point).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0).then(other.1.total_cmp(&one.1)));
        points.into_iter().map(|(_, _, index)| index).collect()
    }
}

fn non_dominated(objectives: &[Objective], pair: [usize; 2], evaluated: &[Evaluated], chosen: &Rank) -> Vec<usize> {
    // In both, lower is better.
    let figure = |evaluated: &Evaluated, objective: usize| {
        let value = rounded(evaluated.figures[objective]?);
        Some(if objectives[objective].direction == Bound::AtMost { value } else { -value })
    };
    let is_eligible = |evaluated: &Evaluated| evaluated.rank.dominates_except(chosen, pair);
    let eligible = evaluated.iter().enumerate().filter(|(_, evaluated)| is_eligible(evaluated));
    let mut all: Vec<(i64, i64, &Rank, usize)> = eligible
        .filter_map(|(index, evaluated)| {
            Some((figure(evaluated, pair[0])?, figure(evaluated, pair[1])?, &evaluated.rank, index))
        })
        .collect();
    all.sort();
    let mut min = i64::MAX;
    all.retain(|&(_, other, _, _)| {
        let is_better = other < min;
        min = min.min(other);
        is_better
    });
    all.into_iter().map(|(_, _, _, index)| index).collect()
}

/// Rounds to a tenth, the displayed precision, so that points with equal labels count as one.
fn rounded(figure: f64) -> i64 {
    (figure * 10.0).round() as i64
}

/// Minimum number of points of a meaningful front.
const MIN_POINTS: usize = 3;
