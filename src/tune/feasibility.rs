//! Proves that a goal cannot be met: even the best possible policy for one of its terms misses the term.
//!
//! The best policy for a class has no tiers for it and refuses all requests of other classes with tiers. The best
//! policy for the usage of a quota has no tiers, or refuses all requests of classes with tiers. An unsuccessful search
//! alone proves nothing.

use super::goal::{Bound, Goal, Term};
use super::measure::MeasureKind;
use super::rank::Rank;
use super::space::SearchSpace;
use super::summary;
use super::tiers;
use super::tuner::Tuner;
use crate::policy::quota::ClassTiers;
use crate::policy::tier::TierSet;
use std::sync::Arc;

/// The best possible policy for one term.
struct ExtremePolicy {
    /// Tuned classes whose requests are all refused, by index.
    shut: Vec<usize>,
}

/// Returns a reason for each term that the nearest policy misses and that no policy can meet.
pub(super) fn infeasible_terms(tuning: &Tuner<'_>, nearest: &Rank) -> Vec<String> {
    let Goal { terms } = tuning.goal;
    let missed = terms.iter().enumerate().filter(|(place, _)| nearest.misses(*place)).map(|(_, term)| term);
    missed.filter_map(|term| infeasibility_reason(tuning, term)).collect()
}

fn infeasibility_reason(tuning: &Tuner<'_>, term: &Term) -> Option<String> {
    let extreme = ExtremePolicy::of(term, tuning)?;
    let mut settings = tuning.policy.settings.clone();
    let quota = &mut Arc::make_mut(&mut settings.rules).quotas[tuning.space.quota()];
    quota.pacing = None;
    for class in tuning.space.classes() {
        let shut = || ClassTiers { ladder: TierSet::new(tiers::refuse_all(), quota.limit), enforce: true };
        quota.class_tiers[*class] = extreme.shut.contains(class).then(shut);
    }
    let report = tuning.recording.replay(tuning.policy.with(settings), tuning.assumptions);
    let figure = term.measure.of(&report, &tuning.recording.span())?;
    let told = summary::format_figure(Some(figure), term.measure.is_share);
    (term.shortfall(Some(figure)) > 0.0).then(|| format!("{}, {} is {told}", extreme.description(tuning), term.measure))
}

impl ExtremePolicy {
    fn of(term: &Term, tuning: &Tuner<'_>) -> Option<Self> {
        let (space, rules): (&SearchSpace, _) = (tuning.space, &tuning.policy.settings.rules);
        let is_tuned_quota = rules.quotas[space.quota()].name == term.measure.name;
        let all = || space.classes().to_vec();
        let shut = match (term.measure.what, term.bound) {
            (MeasureKind::Admitted, Bound::AtLeast) | (MeasureKind::Refused, Bound::AtMost) => {
                all().into_iter().filter(|class| rules.classes[*class].name != term.measure.name).collect()
            }
            (MeasureKind::Used, Bound::AtLeast) | (MeasureKind::Unused, Bound::AtMost) if is_tuned_quota => Vec::new(),
            (MeasureKind::Used, Bound::AtMost) | (MeasureKind::Unused, Bound::AtLeast) if is_tuned_quota => all(),
            _ => return None,
        };
        Some(Self { shut })
    }

    /// Describes the policy.
    fn description(&self, tuning: &Tuner<'_>) -> String {
        let classes = &tuning.policy.settings.rules.classes;
        let names: Vec<&str> = self.shut.iter().map(|class| classes[*class].name.as_str()).collect();
        match names.is_empty() {
            true => "even without tiers and pacing".to_owned(),
            false => format!("even with all requests of {} refused", names.join(" and ")),
        }
    }
}
