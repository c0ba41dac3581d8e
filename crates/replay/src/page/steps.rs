//! Hours of a policy, combined into steps: at most as many as a chart has room for.

use super::time::TimeAxis;
use crate::display_zone::seconds;
use crate::report::PolicyReport;
use std::collections::BTreeMap;

/// Results of every class by step.
pub(super) struct Steps {
    /// Length of a step, in seconds.
    pub(super) length: i64,
    /// Steps by class, then by start time.
    by_class: BTreeMap<String, BTreeMap<i64, StepCounts>>,
}

/// Results of one class in one step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepCounts {
    pub(super) admitted: u64,
    pub(super) refused: u64,
    /// Requests with a cost.
    pub(super) costly: u64,
    /// Admitted requests with a cost.
    pub(super) costly_admitted: u64,
}

impl Steps {
    /// Adds up the hours of `policy` by steps of the axis.
    pub(super) fn from_policy(policy: &PolicyReport, axis: TimeAxis<'_>) -> Self {
        let length = axis.step(MAX_STEPS);
        let mut by_class: BTreeMap<String, BTreeMap<i64, StepCounts>> = BTreeMap::new();
        for hour in &policy.hours {
            let [start, _] = axis.tick_span(seconds(hour.start), length);
            for class in &hour.classes {
                let step = by_class.entry(class.name.clone()).or_default().entry(start).or_default();
                step.admitted += class.admitted;
                step.refused += class.refused;
                step.costly += class.costly;
                step.costly_admitted += class.costly_admitted;
            }
        }
        Self { length, by_class }
    }

    /// Returns the start and end of the bar of a step, cut at the ends of the log.
    pub(super) fn step_bounds(&self, start: i64, axis: TimeAxis<'_>) -> [i64; 2] {
        let [_, end] = axis.tick_span(start, self.length);
        [start.max(axis.from), end.min(axis.to)]
    }

    /// Returns the steps in which a class sent requests, each with its start, in order.
    pub(super) fn for_class(&self, name: &str) -> impl DoubleEndedIterator<Item = (i64, StepCounts)> + '_ {
        self.by_class.get(name).into_iter().flatten().map(|(start, step)| (*start, *step))
    }
}

impl StepCounts {
    /// Returns the admitted ratio of requests with a cost; `None` if there were none.
    pub(super) fn admit_ratio(self) -> Option<f64> {
        (self.costly > 0).then(|| self.costly_admitted as f64 / self.costly as f64)
    }
}

/// Maximum number of bars that can be distinguished on a phone.
const MAX_STEPS: i64 = 84;
