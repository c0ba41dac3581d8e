//! Numbers of things in use: connections, requests in flight, slots.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of guards that exist. Clones share it, also between threads.
#[derive(Clone, Default)]
pub(super) struct SharedCount(Arc<AtomicUsize>);

/// One in a count, until dropped.
#[must_use]
pub(super) struct CountGuard(SharedCount);

impl SharedCount {
    /// Returns the number.
    pub(super) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts one more.
    pub(super) fn add(&self) -> CountGuard {
        self.add_to_previous().1
    }

    /// Counts one more; `None` if there are `max` already.
    pub(super) fn try_add(&self, max: usize) -> Option<CountGuard> {
        let (previous, guard) = self.add_to_previous();
        (previous < max).then_some(guard)
    }

    fn add_to_previous(&self) -> (usize, CountGuard) {
        (self.0.fetch_add(1, Ordering::Relaxed), CountGuard(self.clone()))
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_guards_make_room() {
        let count = SharedCount::default();
        let guards = [(); 3].map(|()| count.clone().try_add(2));
        assert_eq!(guards.each_ref().map(Option::is_some), [true, true, false]);
        assert_eq!(count.get(), 2, "a guard that is refused counts nothing");
        drop(guards);
        assert_eq!(count.get(), 0);
    }

    #[test]
    fn guards_without_a_maximum_count_too() {
        let count = SharedCount::default();
        let guards = [(); 3].map(|()| count.add());
        assert!(count.try_add(3).is_none());
        drop(guards);
        assert!(count.try_add(1).is_some());
    }
}
