//! Search space: the tiers of a quota, for classes that have some, and its pacing.

use super::candidate::Candidate;
use super::changes::Changes;
use super::goal::Goal;
use super::pacing::{self, PacingChoice, TunableFields};
use super::tiers;
use tidegate_config::{SettingPath, Settings};
use tidegate_policy::quota::{ClassTiers, Quota};
use tidegate_policy::{ClassId, QuotaId, Units};

use tidegate_policy::rng::Rng;

/// Values of one quota that may be changed.
#[derive(Clone, Debug)]
pub struct SearchSpace {
    quota: QuotaId,
    /// Classes whose tiers may be changed.
    classes: Vec<ClassId>,
    /// Priorities of these classes.
    priorities: Vec<u8>,
    limit: Units,
    tunable: TunableFields,
    present: Candidate,
}

impl SearchSpace {
    /// Creates the space of `quota`, or returns why nothing may be changed.
    ///
    /// A class that is refused from the first unit is excluded, unless the goal names it: such tiers are intentional.
    pub fn new(settings: &Settings, quota: QuotaId, goal: &Goal) -> Result<Self, String> {
        let rules = &*settings.rules;
        let is_named = |class: &str| {
            let is_about_class =
                |term: &super::goal::Term| term.measure.kind.is_per_class() && term.measure.name == class;
            goal.terms.iter().any(is_about_class)
        };
        let is_open = |tiers: &ClassTiers| tiers.tiers.shutoff_at().is_none_or(|mark| !mark.is_zero());
        let may_change = |(index, tiers): (usize, &Option<ClassTiers>)| {
            let tiers = tiers.as_ref().filter(|tiers| tiers.enforce)?;
            let class = ClassId::from_index(index);
            (is_open(tiers) || is_named(&rules[class].name)).then_some(class)
        };
        let Quota { name, limit, class_tiers, enforce, .. } = &rules[quota];
        if !enforce {
            return Err(format!(
                "{name} refuses no request (`enforce: false`), so there is nothing to tune; remove that line first"
            ));
        }
        let tuned: Vec<ClassId> = class_tiers.iter().enumerate().filter_map(may_change).collect();
        if tuned.is_empty() {
            return Err(format!(
                "no class has tunable tiers in {name}; add initial tiers such as \
                 search: [{{ above: 80%, shed: 50% }}]"
            ));
        }
        let (tunable, present) =
            (tunable_fields(settings, &rules[quota], &tuned), candidate_from_settings(settings, quota, &tuned));
        let priorities = tuned.iter().map(|class| rules[*class].priority).collect();
        Ok(Self { quota, classes: tuned, priorities, limit: *limit, tunable, present })
    }

    /// Returns the candidate that `settings` contain.
    pub(super) fn candidate(&self, settings: &Settings) -> Candidate {
        candidate_from_settings(settings, self.quota, &self.classes)
    }

    /// Returns the candidate of the present file.
    pub(super) fn present(&self) -> &Candidate {
        &self.present
    }

    /// Returns the limit of the quota.
    pub(super) fn limit(&self) -> Units {
        self.limit
    }

    /// Returns the quota.
    pub(super) fn quota(&self) -> QuotaId {
        self.quota
    }

    /// Returns the tuned classes, in the order of a candidate's tiers.
    pub(super) fn classes(&self) -> &[ClassId] {
        &self.classes
    }

    /// Returns the difference of a candidate from the present file.
    pub(super) fn changes(&self, candidate: &Candidate) -> Changes {
        candidate.changes(&self.present, &self.priorities, self.limit)
    }

    /// Returns `count` candidates spread over the whole space: a Latin hypercube (McKay, Beckman and Conover 1979).
    /// Each random number of a candidate falls into each of `count` equal parts once.
    pub(super) fn samples(&self, count: usize, rng: &mut Rng) -> Vec<Candidate> {
        let tier_columns = self.classes.len() * tiers::DRAWS;
        let pace_columns = pacing::DRAWS + self.classes.len();
        let columns: Vec<Vec<f64>> = (0..tier_columns + pace_columns).map(|_| stratified_samples(count, rng)).collect();
        let candidate = |row: usize| {
            let numbers: Vec<f64> = columns.iter().map(|column| column[row]).collect();
            let (tier_sets, pace) = numbers.split_at(tier_columns);
            let tier_sets = tier_sets.as_chunks().0.iter().map(|draws| tiers::from_sample(*draws, self.limit));
            Candidate::new(tier_sets.collect(), self.present.pacing.with_sample(pace, self.tunable, &self.priorities))
        };
        (0..count).map(candidate).collect()
    }

    /// Returns the extremes of the space, which no sample would hit: all classes refused; the least important classes
    /// refused and the others as they are; and in every pacing mode without weights, the present tiers and tiers that
    /// refuse almost nothing.
    pub(super) fn extreme_candidates(&self) -> Vec<Candidate> {
        let mut by_priority: Vec<usize> = (0..self.classes.len()).collect();
        by_priority.sort_by_key(|index| self.priorities[*index]);
        // A class that is refused entirely is not paced, so all of them can be refused only if pacing may be changed.
        let can_refuse_all = self.tunable.mode || self.present.pacing.mode.is_none();
        let max_count = if can_refuse_all { by_priority.len() } else { by_priority.len() - 1 };
        let refuse_lowest = |count: &usize| {
            let lowest = &by_priority[..*count];
            lowest
                .iter()
                .fold(self.present.clone(), |candidate, index| candidate.with_tiers(*index, tiers::refuse_all()))
        };
        let open = Candidate::new(vec![tiers::minimal(self.limit); self.classes.len()], self.present.pacing.clone());
        let paces = self.present.pacing.default_modes(self.tunable);
        let paced = |candidate: Candidate| paces.iter().map(move |pace| candidate.with_pacing(pace.clone()));
        let counts: Vec<usize> = (1..=max_count).rev().collect();
        counts.iter().map(refuse_lowest).chain(paced(self.present.clone())).chain(paced(open)).collect()
    }

    /// Returns the present file in each of the other pacing modes.
    pub(super) fn with_other_pacing(&self) -> Vec<Candidate> {
        let others = self.present.pacing.other_modes(self.tunable);
        others
            .into_iter()
            .map(|pace| self.present.with_pacing(pace))
            .filter(|candidate| *candidate != self.present)
            .collect()
    }

    /// Returns candidates that differ from `candidate` in one value other than the pacing mode, by `step` percent if it
    /// is a number. Candidates nearer to the present file come first.
    pub(super) fn neighbors(&self, candidate: &Candidate, step: u32) -> Vec<Candidate> {
        let mut all = Vec::new();
        for (index, (tiers, present)) in candidate.tier_sets.iter().zip(&self.present.tier_sets).enumerate() {
            let restored = tiers::towards_present(tiers, present, step, self.limit);
            all.extend(restored.into_iter().map(|tiers| candidate.with_tiers(index, tiers)));
        }
        let restored = (candidate.pacing != self.present.pacing).then(|| self.present.pacing.clone());
        all.extend(
            restored
                .into_iter()
                .chain(candidate.pacing.neighbors(self.tunable))
                .map(|pace| candidate.with_pacing(pace)),
        );
        for (index, tiers) in candidate.tier_sets.iter().enumerate() {
            let neighbors = tiers::neighbors(tiers, step, self.limit);
            all.extend(neighbors.into_iter().map(|tiers| candidate.with_tiers(index, tiers)));
        }
        all
    }
}

fn candidate_from_settings(settings: &Settings, quota: QuotaId, classes: &[ClassId]) -> Candidate {
    let Quota { class_tiers, pacing, .. } = &settings.rules[quota];
    let tiers = |class: &ClassId| {
        let entry = class_tiers.get(class.index()).and_then(Option::as_ref);
        entry.map_or(Vec::new(), |entry| entry.tiers.tiers().to_vec())
    };
    Candidate::new(classes.iter().map(tiers).collect(), PacingChoice::from_pacing(pacing.as_ref(), classes))
}

/// Returns the parts of the pacing that may be changed. A sliding window cannot be paced, and pacing in shadow mode is
/// only observed. If pacing is written with keys, only existing keys are changed.
fn tunable_fields(settings: &Settings, quota: &Quota, tuned: &[ClassId]) -> TunableFields {
    let path = settings.source_map.quota_path(&quota.name).pacing();
    let is_written = |path: &SettingPath| settings.source_map.position(path).is_some();
    let has_keys = [path.mode(), path.burst(), path.weights(), path.enforce()].iter().any(is_written);
    let is_effective = match &quota.pacing {
        Some(pacing) => pacing.enforce && (!has_keys || is_written(&path.mode())),
        None => !has_keys,
    };
    let mode = !quota.window.is_sliding() && is_effective;
    let has_weight = |class: &ClassId| is_written(&path.weights().entry(&settings.rules[*class].name));
    TunableFields { mode, weights: mode && tuned.len() > 1 && (!has_keys || tuned.iter().all(has_weight)) }
}

/// Returns `count` numbers in [0, 1), one in each of `count` equal parts, in random order.
fn stratified_samples(count: usize, rng: &mut Rng) -> Vec<f64> {
    let mut parts: Vec<usize> = (0..count).collect();
    for index in (1..count).rev() {
        parts.swap(index, rng.gen_below(index as u64 + 1) as usize);
    }
    parts.into_iter().map(|part| (part as f64 + rng.gen_f64()) / count as f64).collect()
}
