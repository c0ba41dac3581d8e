//! Pacing as a tunable value: its mode, and the weights of the tuned classes.

use super::changes::Changes;
use std::num::NonZeroU32;
use tidegate_policy::ClassId;
use tidegate_policy::pacing::{Pacing, PacingMode, PacingRole};

/// Pacing of a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PacingChoice {
    /// Mode; `None` if pacing is off.
    pub(super) mode: Option<PacingMode>,
    /// Weight of each tuned class; 1 by default.
    pub(super) weights: Vec<u32>,
}

/// Parts of the pacing that may be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TunableFields {
    pub(super) mode: bool,
    pub(super) weights: bool,
}

/// Number of random numbers per sample, without those for the weights.
pub(super) const DRAWS: usize = 1;

impl PacingChoice {
    /// Returns the pacing of a quota for `classes`.
    pub(super) fn from_pacing(pacing: Option<&Pacing>, classes: &[ClassId]) -> Self {
        let weight = |class: &ClassId| match pacing.and_then(|pacing| pacing.roles.get(class.index())) {
            Some(PacingRole::Paced(weight)) => weight.get(),
            _ => NonZeroU32::MIN.get(),
        };
        Self { mode: pacing.map(|pacing| pacing.forecast), weights: classes.iter().map(weight).collect() }
    }

    /// Returns a sample from numbers in [0, 1]: the mode, then the weights, assigned to classes in order of
    /// `priorities`.
    pub(super) fn with_sample(&self, draws: &[f64], tunable: TunableFields, priorities: &[u8]) -> Self {
        let mut pace = self.clone();
        if tunable.mode {
            pace.mode = MODES[(draws[0] * MODES.len() as f64) as usize];
        }
        if tunable.weights {
            let weight = |draw: &f64| 1 << (draw * f64::from(DOUBLINGS)) as u32;
            pace.weights = draws[DRAWS..].iter().map(weight).collect();
            pace = pace.with_ordered_weights(priorities);
        }
        pace
    }

    /// Reassigns the weights so that classes of higher `priorities` have larger ones.
    fn with_ordered_weights(mut self, priorities: &[u8]) -> Self {
        let mut order: Vec<usize> = (0..priorities.len()).collect();
        order.sort_by_key(|index| priorities[*index]);
        let mut weights = self.weights.clone();
        weights.sort_unstable();
        order.into_iter().zip(weights).for_each(|(index, weight)| self.weights[index] = weight);
        self
    }

    /// Returns each allowed mode, with weights of 1 if weights may be changed.
    pub(super) fn default_modes(&self, tunable: TunableFields) -> Vec<Self> {
        let weights = if tunable.weights { vec![1; self.weights.len()] } else { self.weights.clone() };
        let modes = MODES.into_iter().filter(|mode| tunable.mode || *mode == self.mode);
        modes.map(|forecast| Self { mode: forecast, weights: weights.clone() }).collect()
    }

    /// Returns copies in each of the other allowed modes.
    pub(super) fn other_modes(&self, tunable: TunableFields) -> Vec<Self> {
        let others = MODES.into_iter().filter(|mode| tunable.mode && *mode != self.mode);
        others.map(|forecast| Self { mode: forecast, ..self.clone() }).collect()
    }

    /// Returns copies of the same mode with one weight doubled or halved.
    pub(super) fn neighbors(&self, tunable: TunableFields) -> Vec<Self> {
        let mut all = Vec::new();
        if tunable.weights && self.mode.is_some() {
            for (index, weight) in self.weights.iter().enumerate() {
                let others = [weight * 2, weight / 2].into_iter().filter(|other| (1..=MAX_WEIGHT).contains(other));
                all.extend(others.map(|other| self.with_weight(index, other)));
            }
        }
        all
    }

    /// Removes values without effect: weights without pacing, and weights of classes that are refused entirely.
    pub(super) fn normalized(mut self, is_open: &[bool]) -> Self {
        if !is_open.contains(&true) {
            self.mode = None;
        }
        for (weight, is_open) in self.weights.iter_mut().zip(is_open) {
            if self.mode.is_none() || !is_open {
                *weight = 1;
            }
        }
        self
    }

    /// Returns the difference from the `present` pacing.
    pub(super) fn changes(&self, present: &Self) -> Changes {
        let mode = u32::from(self.mode != present.mode);
        let weights = self.weights.iter().zip(&present.weights);
        let differences: Vec<u32> = weights
            .map(|(weight, present_weight)| weight.abs_diff(*present_weight))
            .filter(|difference| *difference > 0)
            .collect();
        let distance = u64::from(mode) * UNIT_DISTANCE
            + differences.iter().map(|difference| u64::from(*difference) * UNIT_DISTANCE / 100).sum::<u64>();
        Changes { priority_inversions: 0, changed_values: mode + differences.len() as u32, distance }
    }

    /// Returns the mode as written in the file.
    pub(super) fn mode_name(&self) -> &'static str {
        self.mode.map_or("off", PacingMode::name)
    }

    fn with_weight(&self, index: usize, weight: u32) -> Self {
        let mut pace = self.clone();
        pace.weights[index] = weight;
        pace
    }
}

const MODES: [Option<PacingMode>; 3] = [None, Some(PacingMode::Even), Some(PacingMode::Learned)];

/// Random weights are 1, 2, 4 and 8.
const DOUBLINGS: u32 = 4;

/// A larger weight would leave the other classes almost nothing.
const MAX_WEIGHT: u32 = 64;

/// The unit of distances, in millionths.
const UNIT_DISTANCE: u64 = 1_000_000;
