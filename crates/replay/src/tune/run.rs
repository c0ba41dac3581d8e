//! Runs a search and reports its result.

use super::error::TuneError;
use super::feasibility;
use super::goal::Bound;
use super::measure::{Measure, MeasureKind};
use super::pareto::{Objective, ParetoFront};
use super::report::{self, SearchOutcome, TuningReport};
use super::search::{self, Search};
use super::tuner::Tuner;
use tidegate_policy::ClassId;

/// Result of a search.
pub struct TuneResult {
    /// Report of the search.
    pub report: TuningReport,
    /// Text of the file with the found values.
    pub text: String,
}

impl Tuner<'_> {
    /// Runs the search. Proposes the policy nearest to the goal, or the point of the trade-off with the number
    /// `picked`. Calls `on_progress` with the number of policies tried.
    pub fn run(
        &self,
        search: Search,
        picked: Option<usize>,
        on_progress: &mut dyn FnMut(usize),
    ) -> Result<TuneResult, TuneError> {
        let objectives = self.objectives();
        let mut count = 0;
        let evaluated = search.run(self.space, &mut |candidates| {
            let evaluated = self.evaluate_all(&objectives, &candidates)?;
            count += evaluated.len();
            on_progress(count);
            Ok::<_, TuneError>(evaluated)
        })?;
        let best = search::best(&evaluated);
        let curve = ParetoFront::compute(&objectives, &evaluated, &evaluated[best].rank).map(|front| {
            let points = front.sorted_points(&objectives, &evaluated, [search::BASELINE, best]);
            (front, points)
        });
        let chosen = picked.map_or(Ok(best), |picked| select_point(curve.as_ref(), picked))?;
        let text = self.editor.apply_annotated(self.space, &evaluated[chosen].candidate)?;
        let present = self.replay(self.space.present())?;
        let impossible = feasibility::infeasible_terms(self, &evaluated[best].rank);
        let outcome = SearchOutcome {
            objectives: &objectives,
            evaluated: &evaluated,
            front: curve,
            picked,
            chosen,
            infeasible: impossible,
        };
        Ok(TuneResult { report: report::report(self, outcome, &present, &text), text })
    }

    /// Returns the measures: first the terms of the goal, then others that may conflict with them.
    fn objectives(&self) -> Vec<Objective> {
        let goal_objectives =
            self.goal.terms.iter().map(|term| Objective { measure: term.measure.clone(), direction: term.bound });
        let mut objectives: Vec<Objective> = goal_objectives.collect();
        let share = |kind, name: &str| Measure { kind, name: name.to_owned(), is_share: true };
        let rules = &self.policy.settings.rules;
        let admitted = self
            .space
            .classes()
            .iter()
            .map(|class| (share(MeasureKind::Admitted, &rules[*class].name), Bound::AtLeast));
        let others =
            (0..rules.classes.len()).map(ClassId::from_index).filter(|class| !self.space.classes().contains(class));
        let refused = others.map(|class| (share(MeasureKind::Refused, &rules[class].name), Bound::AtMost));
        for (measure, better) in admitted.chain(refused) {
            let is_new =
                |existing: &Objective| existing.measure.name != measure.name || existing.measure.kind != measure.kind;
            if objectives.iter().all(is_new) {
                objectives.push(Objective { measure, direction: better });
            }
        }
        objectives
    }
}

/// Returns the index of the point with this number among the tried policies.
fn select_point(curve: Option<&(ParetoFront, Vec<usize>)>, picked: usize) -> Result<usize, TuneError> {
    let points = curve.map_or(&[][..], |(_, points)| points);
    let index = picked.checked_sub(1).and_then(|index| points.get(index));
    index.copied().ok_or(TuneError::NoSuchPoint { picked, points: points.len() })
}
