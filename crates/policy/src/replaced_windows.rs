//! Windows of a quota that a change of the configuration has replaced.

use std::ops::RangeInclusive;

/// Replaced windows, each with the one in which its usage counts now, for requests that were decided before. At most
/// [`MAX_REPLACED`], latest last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReplacedWindows(Vec<(RangeInclusive<u64>, u64)>);

/// Maximum number of changes of the window that a request in flight may see.
const MAX_REPLACED: usize = 8;

impl ReplacedWindows {
    /// Counts the windows `before` in the window `after` from now on.
    pub(super) fn add(&mut self, before: RangeInclusive<u64>, after: u64) {
        for (_, into) in self.0.iter_mut().filter(|(_, into)| before.contains(into)) {
            *into = after;
        }
        self.0.push((before, after));
        self.0.retain(|(windows, into)| *windows != (*into..=*into));
        self.0.drain(..self.0.len().saturating_sub(MAX_REPLACED));
    }

    /// Returns the window in which the usage of `window` counts now: another one if it was redefined.
    pub(super) fn current(&self, window: u64) -> u64 {
        let into = self.0.iter().find(|(before, _)| before.contains(&window)).map(|(_, after)| *after);
        into.unwrap_or(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_of_replacements_ends_at_the_latest_and_is_bounded() {
        let mut replaced = ReplacedWindows::default();
        (0..50).for_each(|window| replaced.add(window..=window, window + 1));
        assert_eq!([49, 50, 60].map(|window| replaced.current(window)), [50, 50, 60]);
        assert_eq!(replaced.0.len(), MAX_REPLACED);
        replaced.add(50..=50, 45);
        assert_eq!([45, 49].map(|window| replaced.current(window)), [45, 45]);
    }
}
