//! Proves that a goal cannot be met: even the best possible policy for one of its terms misses the term.
//!
//! The best policy for a class has no tiers for it and refuses all requests of other classes with tiers. The best
//! policy for the usage of a quota has no tiers, or refuses all requests of classes with tiers. An unsuccessful search
//! alone proves nothing.

use super::goal::{Bound, Goal, Term};
use super::measure::MeasureKind;
use super::rank::Rank;
use super::space::SearchSpace;
use super::tuner::Tuner;
use super::{summary, tiers};
use std::sync::Arc;
use tidegate_policy::ClassId;
use tidegate_policy::quota::ClassTiers;
use tidegate_policy::tier::TierSet;

/// The best possible policy for one term.
struct ExtremePolicy {
    /// Tuned classes whose requests are all refused.
    refused_classes: Vec<ClassId>,
}

/// Returns a reason for each term that the nearest policy misses and that no policy can meet.
pub(super) fn infeasible_terms(tuner: &Tuner<'_>, nearest: &Rank) -> Vec<String> {
    let Goal { terms } = tuner.goal;
    let missed = terms.iter().enumerate().filter(|(index, _)| nearest.is_missed(*index)).map(|(_, term)| term);
    missed.filter_map(|term| infeasibility_reason(tuner, term)).collect()
}

fn infeasibility_reason(tuner: &Tuner<'_>, term: &Term) -> Option<String> {
    let extreme = ExtremePolicy::for_term(term, tuner)?;
    let mut settings = tuner.policy.settings.clone();
    let quota = &mut Arc::make_mut(&mut settings.rules).quotas[tuner.space.quota().index()];
    quota.pacing = None;
    for class in tuner.space.classes() {
        let refuse_all = || ClassTiers { tiers: TierSet::new(tiers::refuse_all(), quota.limit), enforce: true };
        quota.class_tiers[class.index()] = extreme.refused_classes.contains(class).then(refuse_all);
    }
    let report = tuner.log.replay(tuner.policy.with_settings(settings), tuner.assumptions);
    let figure = term.measure.value(&report)?;
    let formatted = summary::format_figure(Some(figure), term.measure.is_share);
    (term.shortfall(Some(figure)) > 0.0)
        .then(|| format!("{}, {} is {formatted}", extreme.description(tuner), term.measure))
}

impl ExtremePolicy {
    fn for_term(term: &Term, tuner: &Tuner<'_>) -> Option<Self> {
        let (space, rules): (&SearchSpace, _) = (tuner.space, &tuner.policy.settings.rules);
        let is_tuned_quota = rules[space.quota()].name == term.measure.name;
        let all = || space.classes().to_vec();
        let refused_classes = match (term.measure.kind, term.bound) {
            (MeasureKind::Admitted, Bound::AtLeast) | (MeasureKind::Refused, Bound::AtMost) => {
                all().into_iter().filter(|class| rules[*class].name != term.measure.name).collect()
            }
            (MeasureKind::Used, Bound::AtLeast) | (MeasureKind::Unused, Bound::AtMost) if is_tuned_quota => Vec::new(),
            (MeasureKind::Used, Bound::AtMost) | (MeasureKind::Unused, Bound::AtLeast) if is_tuned_quota => all(),
            _ => return None,
        };
        Some(Self { refused_classes })
    }

    /// Describes the policy.
    fn description(&self, tuner: &Tuner<'_>) -> String {
        let rules = &tuner.policy.settings.rules;
        let names: Vec<&str> = self.refused_classes.iter().map(|class| rules[*class].name.as_str()).collect();
        match names.is_empty() {
            true => "even without tiers and pacing".to_owned(),
            false => format!("even with all requests of {} refused", names.join(" and ")),
        }
    }
}
