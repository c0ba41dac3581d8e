//! A value over time, in as many points as a chart needs.

use crate::report::PointReport;
use tidegate_policy::{Timestamp, Units};

/// Last value of each step. The steps double when there are too many.
pub(super) struct Series {
    step_s: u64,
    points: Vec<(u64, Units)>,
}

impl Default for Series {
    fn default() -> Self {
        Self { step_s: MIN_STEP_S, points: Vec::new() }
    }
}

impl Series {
    /// Sets the value from `now` on.
    pub(super) fn add(&mut self, now: Timestamp, value: Units) {
        let step = now.seconds() / self.step_s;
        match self.points.last_mut() {
            Some(last) if last.0 >= step => last.1 = value,
            _ => self.points.push((step, value)),
        }
        while self.points.len() > MAX_POINTS {
            self.step_s *= 2;
            self.points.iter_mut().for_each(|(step, _)| *step /= 2);
            // Of two points in one step, the later one is kept.
            self.points.reverse();
            self.points.dedup_by_key(|(step, _)| *step);
            self.points.reverse();
        }
    }

    /// Returns the length of a step in seconds, and the points.
    pub(super) fn report(&self) -> (u64, Vec<PointReport>) {
        let point = |&(step, value): &(u64, Units)| PointReport {
            time: Timestamp::from_seconds(step * self.step_s),
            units: value,
        };
        (self.step_s, self.points.iter().map(point).collect())
    }
}

/// A day has 288 steps.
const MIN_STEP_S: u64 = 300;

/// A week of the shortest steps; more than a chart is wide.
const MAX_POINTS: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sparse_points_are_merged_until_they_fit() {
        let mut series = Series::default();
        for index in 0..=MAX_POINTS as u64 {
            series.add(Timestamp::from_seconds(index * 10 * MIN_STEP_S), Units::from_whole(index));
        }
        let (step, points) = series.report();
        assert_eq!((step, points.len()), (16 * MIN_STEP_S, MAX_POINTS / 8 * 5 + 1));
    }

    proptest! {
        #[test]
        fn bounded_series_is_sorted_and_keeps_last_point(gaps in proptest::collection::vec(1..100_000_u64, 1..6000)) {
            let mut series = Series::default();
            let mut second = 0;
            for (index, gap) in gaps.iter().enumerate() {
                second += gap;
                series.add(Timestamp::from_seconds(second), Units::from_whole(index as u64));
            }
            let (step, points) = series.report();
            prop_assert!(points.len() <= MAX_POINTS && step.is_multiple_of(MIN_STEP_S));
            prop_assert!(points.is_sorted_by(|one, other| one.time < other.time));
            prop_assert_eq!(points.last().map(|point| point.units), Some(Units::from_whole(gaps.len() as u64 - 1)));
        }
    }
}
