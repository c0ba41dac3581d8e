//! What may be changed: the tiers of a quota, for classes that have some.

use super::draft::{Changes, Draft};
use super::goal::Goal;
use super::ladder::{self, DRAWS};
use crate::chance::Chance;
use crate::config::Settings;
use crate::policy::quota::{ClassLadder, Quota};
use crate::policy::{Rules, Units};

/// What may be changed of one quota.
#[derive(Clone, Debug)]
pub struct Space {
    /// The quota, by its place.
    quota: usize,
    /// The classes whose tiers may be changed, by their places.
    classes: Vec<usize>,
    limit: Units,
    present: Draft,
}

impl Space {
    /// What may be changed of the quota at place `quota`, or why nothing may.
    ///
    /// A class that is refused everything from the first unit on stays out, unless the goal speaks of it: whoever shuts
    /// somebody out means it.
    pub fn of(settings: &Settings, quota: usize, goal: &Goal) -> Result<Self, String> {
        let Rules { quotas, classes, .. } = &*settings.rules;
        let wanted = |class: &str| {
            let of_class = |term: &super::goal::Term| term.measure.what.is_of_a_class() && term.measure.name == class;
            goal.terms.iter().any(of_class)
        };
        let is_open = |ladder: &ClassLadder| ladder.ladder.shuts_at().is_none_or(|mark| !mark.is_zero());
        let may_change = |(place, ladder): (usize, &Option<ClassLadder>)| {
            let ladder = ladder.as_ref().filter(|ladder| ladder.enforce)?;
            (is_open(ladder) || wanted(&classes[place].name)).then_some(place)
        };
        let Quota { name, limit, ladders, .. } = &quotas[quota];
        let tuned: Vec<usize> = ladders.iter().enumerate().filter_map(may_change).collect();
        if tuned.is_empty() {
            return Err(format!(
                "no class has tiers in {name} that may be changed; write some to begin with, such as \
                 search: [{{ above: 80%, shed: 50% }}]"
            ));
        }
        let mut space = Self { quota, classes: tuned, limit: *limit, present: Draft { ladders: Vec::new() } };
        space.present = space.draft(settings);
        Ok(space)
    }

    /// The draft that these settings are.
    pub(super) fn draft(&self, settings: &Settings) -> Draft {
        let ladders = &settings.rules.quotas[self.quota].ladders;
        let tiers = |class: &usize| {
            let of_class = ladders.get(*class).and_then(Option::as_ref);
            of_class.map_or(Vec::new(), |of_class| of_class.ladder.tiers().to_vec())
        };
        Draft { ladders: self.classes.iter().map(tiers).collect() }
    }

    /// What the file says now.
    pub(super) fn present(&self) -> &Draft {
        &self.present
    }

    /// The limit of the quota.
    pub(super) fn limit(&self) -> Units {
        self.limit
    }

    /// The quota, by its place.
    pub(super) fn quota(&self) -> usize {
        self.quota
    }

    /// The classes that are tuned, by their places, in the order of a draft's ladders.
    pub(super) fn classes(&self) -> &[usize] {
        &self.classes
    }

    /// How much a draft differs from what the file says now.
    pub(super) fn changes(&self, draft: &Draft) -> Changes {
        draft.changes(&self.present, self.limit)
    }

    /// `count` drafts spread over all that is possible: a Latin hypercube (McKay, Beckman and Conover 1979), in which each
    /// number that makes a draft falls into each of `count` equal parts once.
    pub(super) fn samples(&self, count: usize, chance: &mut Chance) -> Vec<Draft> {
        let numbers = self.classes.len() * DRAWS;
        let columns: Vec<Vec<f64>> = (0..numbers).map(|_| one_in_each_part(count, chance)).collect();
        let draft = |row: usize| {
            let ladder =
                |class: usize| ladder::drawn(std::array::from_fn(|at| columns[class * DRAWS + at][row]), self.limit);
            Draft { ladders: (0..self.classes.len()).map(ladder).collect() }
        };
        (0..count).map(draft).collect()
    }

    /// Drafts that differ from this one in one thing, by `reach` percent where it is a number; those that are nearer to what
    /// the file says come first.
    pub(super) fn neighbours(&self, draft: &Draft, reach: u32) -> Vec<Draft> {
        let mut all = Vec::new();
        for (place, (tiers, present)) in draft.ladders.iter().zip(&self.present.ladders).enumerate() {
            let back = ladder::back_towards(tiers, present);
            all.extend(back.into_iter().map(|ladder| draft.with_ladder(place, ladder)));
        }
        for (place, tiers) in draft.ladders.iter().enumerate() {
            let near = ladder::neighbours(tiers, reach, self.limit);
            all.extend(near.into_iter().map(|ladder| draft.with_ladder(place, ladder)));
        }
        all
    }
}

/// `count` numbers from 0 to 1, one in each `count`th of that, in any order.
fn one_in_each_part(count: usize, chance: &mut Chance) -> Vec<f64> {
    let mut parts: Vec<usize> = (0..count).collect();
    for place in (1..count).rev() {
        parts.swap(place, chance.below(place as u64 + 1) as usize);
    }
    parts.into_iter().map(|part| (part as f64 + chance.fraction()) / count as f64).collect()
}
