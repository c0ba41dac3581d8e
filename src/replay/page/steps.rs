//! The hours of a policy, put together to as many steps as a chart has room for.

use super::time::TimeAxis;
use crate::replay::display_zone::seconds;
use crate::replay::report::PolicyReport;
use std::collections::BTreeMap;

/// What became of every class, step by step.
pub(super) struct Steps {
    /// How long one is.
    pub(super) length: i64,
    /// By class, then by the beginning of the step.
    of_classes: BTreeMap<String, BTreeMap<i64, StepCounts>>,
}

/// One class in one step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepCounts {
    pub(super) admitted: u64,
    pub(super) refused: u64,
    /// Requests that cost something ...
    pub(super) costly: u64,
    /// ... and were let through.
    pub(super) costly_admitted: u64,
}

impl Steps {
    pub(super) fn of(policy: &PolicyReport, span: TimeAxis<'_>) -> Self {
        let length = span.step(MAX_STEPS);
        let mut of_classes: BTreeMap<String, BTreeMap<i64, StepCounts>> = BTreeMap::new();
        for hour in &policy.hours {
            let [start, _] = span.tick_span(seconds(&hour.start), length);
            for class in &hour.classes {
                let step = of_classes.entry(class.name.clone()).or_default().entry(start).or_default();
                step.admitted += class.admitted;
                step.refused += class.refused;
                step.costly += class.costly;
                step.costly_admitted += class.costly_admitted;
            }
        }
        Self { length, of_classes }
    }

    /// From when to when the bar of a step goes: not beyond the log.
    pub(super) fn step_bounds(&self, start: i64, span: TimeAxis<'_>) -> [i64; 2] {
        let [_, end] = span.tick_span(start, self.length);
        [start.max(span.from), end.min(span.to)]
    }

    /// The steps of a class in which it asked for something.
    pub(super) fn of_class(&self, name: &str) -> impl DoubleEndedIterator<Item = (i64, StepCounts)> + '_ {
        self.of_classes.get(name).into_iter().flatten().map(|(start, step)| (*start, *step))
    }
}

impl StepCounts {
    /// Of what costs something, the share that was let through; nothing where nobody asked for any.
    pub(super) fn served(self) -> Option<f64> {
        (self.costly > 0).then(|| self.costly_admitted as f64 / self.costly as f64)
    }
}

/// As many bars as can be told apart on a phone.
const MAX_STEPS: i64 = 84;
