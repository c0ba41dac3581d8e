//! Values of the paths in a document, and the cost that they add up to.

use crate::found_cost::FoundCost;
use crate::path_set::{CostPaths, MAX_PATHS, PathMask};

/// Billionths of a unit.
pub(crate) const NANO: u128 = 1_000_000_000;

/// Value of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// A number that is not negative, in billionths. Finer fractions are dropped, because they are errors of binary
    /// floating-point numbers.
    Number(u128),
    /// A negative number, one beyond 128 bits of billionths, or a value that is not a number.
    Invalid,
}

/// Values of all paths. A path without a value is absent.
#[derive(Clone, Default)]
pub(crate) struct Readings {
    present: PathMask,
    invalid: PathMask,
    /// Numbers of the paths that are present and not invalid, in billionths.
    numbers: [u128; MAX_PATHS],
}

impl Readings {
    /// Removes the values of `paths`.
    pub(crate) fn remove(&mut self, paths: PathMask) {
        self.present = self.present & !paths;
    }

    /// Replaces the values of `paths`.
    pub(crate) fn set(&mut self, paths: PathMask, reading: Reading) {
        self.present = self.present | paths;
        match reading {
            Reading::Invalid => self.invalid = self.invalid | paths,
            Reading::Number(number) => {
                self.invalid = self.invalid & !paths;
                paths.positions().for_each(|position| self.numbers[position] = number);
            }
        }
    }

    /// Replaces the values of those paths that `later` has.
    pub(crate) fn update(&mut self, later: &Self) {
        for position in later.present.positions() {
            self.numbers[position] = later.numbers[position];
        }
        self.invalid = (self.invalid & !later.present) | (later.invalid & later.present);
        self.present = self.present | later.present;
    }

    /// Returns the weighted sum of the values.
    pub(crate) fn cost(&self, paths: &CostPaths) -> FoundCost {
        if self.present.is_empty() {
            return FoundCost::Missing;
        }
        if !(self.present & self.invalid).is_empty() {
            return FoundCost::Invalid;
        }
        let sum = self.present.positions().try_fold(0_u128, |sum, position| {
            sum.checked_add(self.numbers[position].checked_mul(paths.weight_milli(position).into())?)
        });
        let milli = sum.and_then(|sum| u64::try_from(sum.div_ceil(NANO)).ok());
        milli.map_or(FoundCost::Invalid, |milli| FoundCost::Amount { milli })
    }
}
