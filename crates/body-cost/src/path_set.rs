//! Paths whose numbers add up to a cost, each with a weight.

use crate::key_search::KeySearch;
use crate::path::CostPath;
use std::ops::{BitAnd, BitOr, Not};
use std::sync::Arc;
use thiserror::Error;

/// Most paths of a [`CostPaths`].
pub const MAX_PATHS: usize = 16;

/// Path of a number, and what one unit of this number costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedPath {
    /// Path of the number.
    pub path: CostPath,
    /// Cost of one unit of the number, in milli-units: 1000 if the number is the cost.
    pub weight_milli: u64,
}

/// Up to [`MAX_PATHS`] paths, shared by the scanners of all bodies.
#[derive(Clone, Debug)]
pub struct CostPaths {
    paths: Arc<[WeightedPath]>,
    keys: Arc<KeySearch>,
}

impl PartialEq for CostPaths {
    fn eq(&self, other: &Self) -> bool {
        self.paths == other.paths
    }
}

impl Eq for CostPaths {}

/// Error: too few or too many paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CostPathsError {
    /// There is no path.
    #[error("no path, at least one is needed")]
    NoPath,
    /// There are more than [`MAX_PATHS`].
    #[error("{found} paths, at most {MAX_PATHS} are possible")]
    ManyPaths {
        /// Number of paths.
        found: usize,
    },
}

impl CostPaths {
    /// Creates a set of `paths`. The numbers of a path that occurs twice count twice.
    pub fn new(paths: Vec<WeightedPath>) -> Result<Self, CostPathsError> {
        match paths.len() {
            0 => Err(CostPathsError::NoPath),
            found if found > MAX_PATHS => Err(CostPathsError::ManyPaths { found }),
            _ => {
                let keys = KeySearch::new(paths.iter().map(|weighted| &weighted.path)).into();
                Ok(Self { paths: paths.into(), keys })
            }
        }
    }

    /// Returns the search for places where a path may have a value.
    pub(crate) fn keys(&self) -> &KeySearch {
        &self.keys
    }

    /// Returns the weight of the path at `position`, in milli-units.
    pub(crate) fn weight_milli(&self, position: usize) -> u64 {
        self.paths[position].weight_milli
    }

    /// Returns all paths.
    pub(crate) fn all(&self) -> PathMask {
        PathMask(u16::MAX >> (MAX_PATHS - self.paths.len()))
    }

    /// Returns those of `among` that end before `level`, so that a value at this level is their number.
    pub(crate) fn ending(&self, among: PathMask, level: usize) -> PathMask {
        self.select(among, |path| path.len() == level)
    }

    /// Returns those of `among` whose segment at `level` is `key`.
    pub(crate) fn with_key(&self, among: PathMask, level: usize, key: &[u8]) -> PathMask {
        self.select(among, |path| path.has_key(level, key))
    }

    /// Returns those of `among` whose segment at `level` is the index `index`.
    pub(crate) fn with_index(&self, among: PathMask, level: usize, index: u64) -> PathMask {
        self.select(among, |path| path.index(level) == Some(index))
    }

    /// Returns those of `among` whose segment at `level` is any index.
    pub(crate) fn indexed(&self, among: PathMask, level: usize) -> PathMask {
        self.select(among, |path| path.index(level).is_some())
    }

    fn select(&self, among: PathMask, matches: impl Fn(&CostPath) -> bool) -> PathMask {
        let matching = among.positions().filter(|&position| matches(&self.paths[position].path));
        PathMask(matching.fold(0, |bits, position| bits | 1 << position))
    }
}

/// Some of the paths of a [`CostPaths`], by their positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathMask(u16);

impl PathMask {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the positions in ascending order.
    pub(crate) fn positions(self) -> impl Iterator<Item = usize> {
        let rests = std::iter::successors(Some(self.0), |bits| Some(bits & bits.wrapping_sub(1)));
        rests.take_while(|&bits| bits != 0).map(|bits| bits.trailing_zeros() as usize)
    }
}

impl BitAnd for PathMask {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for PathMask {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Not for PathMask {
    type Output = Self;

    fn not(self) -> Self {
        Self(!self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: usize) -> Result<CostPaths, CostPathsError> {
        let path = WeightedPath { path: "a.1".parse().expect("path"), weight_milli: 1 };
        CostPaths::new(vec![path; count])
    }

    #[test]
    fn one_to_sixteen_paths_are_possible() {
        assert_eq!(of(0), Err(CostPathsError::NoPath));
        assert_eq!(of(17), Err(CostPathsError::ManyPaths { found: 17 }));
        assert_eq!(of(1).map(|paths| paths.all()), Ok(PathMask(1)));
        assert_eq!(of(16).map(|paths| paths.all()), Ok(PathMask(u16::MAX)));
    }

    #[test]
    fn paths_are_selected_by_position() {
        let paths = of(3).expect("paths");
        let some = PathMask(0b101);
        assert_eq!(some.positions().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(paths.with_key(some, 0, b"a"), some);
        assert_eq!(paths.with_key(some, 1, b"a"), PathMask::NONE);
        assert_eq!(paths.with_index(some, 1, 1), some);
        assert_eq!((paths.ending(some, 2), paths.ending(some, 1)), (some, PathMask::NONE));
    }
}
