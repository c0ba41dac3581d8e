//! Comparison of the decisions of two policies, line by line.

use super::decision::ReplayedDecision;
use super::report::{ComparisonReport, DifferenceReport, ExampleReport};
use std::collections::BTreeMap;
use tidegate_policy::{Reason, Rules};

/// Counts of lines with the same and with different decisions under two policies.
#[derive(Default)]
pub(super) struct Differences {
    same: u64,
    only_first_admits: u64,
    only_second_admits: u64,
    other_reason: u64,
    other_class: u64,
    by_class: BTreeMap<String, DifferenceReport>,
    examples: Vec<ExampleReport>,
}

impl Differences {
    /// Adds the decisions of both policies on one line, each with its rules.
    pub(super) fn add(
        &mut self,
        (first, rules): (&ReplayedDecision, &Rules),
        (second, other_rules): (&ReplayedDecision, &Rules),
    ) {
        let class = &rules[first.classification.class].name;
        let second_class = &other_rules[second.classification.class].name;
        self.other_class += u64::from(class != second_class);
        if first.refusal_reason == second.refusal_reason {
            self.same += 1;
            return;
        }
        match (first.refusal_reason, second.refusal_reason) {
            (None, _) => {
                self.only_first_admits += 1;
                self.class_entry(second_class).only_first_admits += 1;
            }
            (_, None) => {
                self.only_second_admits += 1;
                self.class_entry(class).only_second_admits += 1;
            }
            _ => self.other_reason += 1,
        }
        if self.examples.len() < MAX_EXAMPLES {
            let label = |decision: &ReplayedDecision| decision.refusal_reason.map_or("admitted", Reason::name);
            self.examples.push(ExampleReport {
                place: first.position.into(),
                time: first.at,
                class: class.clone(),
                second_class: second_class.clone(),
                first: label(first),
                second: label(second),
            });
        }
    }

    fn class_entry(&mut self, class: &str) -> &mut DifferenceReport {
        if !self.by_class.contains_key(class) {
            self.by_class.insert(class.to_owned(), DifferenceReport::default());
        }
        self.by_class.get_mut(class).expect("inserted above")
    }

    pub(super) fn report(self) -> ComparisonReport {
        let Self { same, only_first_admits, only_second_admits, other_reason, other_class, by_class, examples } = self;
        ComparisonReport { same, only_first_admits, only_second_admits, other_reason, other_class, by_class, examples }
    }
}

/// Bounds the report; twenty show the kinds of differences.
const MAX_EXAMPLES: usize = 20;
