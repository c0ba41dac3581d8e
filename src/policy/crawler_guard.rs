//! The crawler guard: what a verified crawler is let through although its tier refuses it.
//!
//! A search engine that meets nothing but refusals slows down for days, and drops a page that it has been refused for
//! about two. So one of its requests gets through every so often, and no page is refused to it for longer than a day.
//! Both within a small share of the quota: who hammers gains nothing, and the limit itself is never touched.

use super::tier::Share;
use super::time::Timestamp;
use super::units::Units;
use std::time::Duration;

/// What a class lets through of each verified operator's crawlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrawlerGuard {
    /// None of them goes for longer without a request that is let through, as long as they ask.
    pub admit_interval: Duration,
    /// No page is refused to them for longer.
    pub max_refused_for: Duration,
    /// At most this share of a quota's limit goes to it in the length of a window.
    pub budget: Share,
}

/// A guarded crawler's request, and how its operator has fared with one quota.
#[derive(Clone, Copy, Debug)]
pub struct GuardState {
    /// What the settings say.
    pub guard: CrawlerGuard,
    /// When a request of the operator was last let through.
    pub last_admitted: Timestamp,
    /// Its page has been refused to it for too long.
    pub is_overdue: bool,
    /// Units that the guard has let through of late, for all operators of the class ...
    pub spent: Units,
    /// ... in so much of the length of a window.
    pub window_elapsed: Share,
}

impl GuardState {
    /// Returns whether a request of `cost` is let through although its tier refuses it, of a quota of `limit`.
    pub fn admits(&self, cost: Units, limit: Units, now: Timestamp) -> bool {
        (self.is_overdue || self.is_interval_due(now)) && self.within_budget(cost, self.guard.budget.of_units(limit))
    }

    /// Before how many requests of its class it goes that a plan would serve: they are refused in its place.
    pub fn borrowable_turns(&self, now: Timestamp) -> u32 {
        match self.is_interval_due(now) {
            true => 2,
            false => u32::from(self.is_overdue),
        }
    }

    /// Returns whether a request of `cost` is let through although a plan refuses it and its class has no turns left
    /// that it could take: as much in the beginning of a window as later, and none for a page alone, of which a site has
    /// more than the guard could spare.
    pub fn admits_beyond_plan(&self, cost: Units, limit: Units, now: Timestamp) -> bool {
        self.is_interval_due(now)
            && self.within_budget(cost, self.window_elapsed.of_units(self.guard.budget.of_units(limit)))
    }

    fn is_interval_due(&self, now: Timestamp) -> bool {
        now.saturating_duration_since(self.last_admitted) >= self.guard.admit_interval
    }

    fn within_budget(&self, cost: Units, most: Units) -> bool {
        self.spent.saturating_add(cost) <= most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarded() -> GuardState {
        GuardState {
            guard: CrawlerGuard {
                admit_interval: Duration::from_secs(300),
                max_refused_for: Duration::from_secs(86_400),
                budget: Share::from_millionths(20_000),
            },
            last_admitted: Timestamp::from_seconds(1000),
            is_overdue: false,
            spent: Units::ZERO,
            window_elapsed: Share::ALL,
        }
    }

    fn admits(guarded: GuardState, cost: u64, seconds: u64) -> bool {
        guarded.admits(Units::from_whole(cost), Units::from_whole(1000), Timestamp::from_seconds(seconds))
    }

    #[test]
    fn one_gets_through_every_so_often() {
        assert!(!admits(guarded(), 1, 1299));
        assert!(admits(guarded(), 1, 1300));
    }

    #[test]
    fn a_page_that_was_refused_for_too_long_does_not_wait_for_its_turn() {
        assert!(admits(GuardState { is_overdue: true, ..guarded() }, 1, 1001));
    }

    #[test]
    fn the_share_is_never_exceeded() {
        for is_overdue in [false, true] {
            let nearly_spent = GuardState { is_overdue, spent: Units::from_whole(19), ..guarded() };
            assert!(admits(nearly_spent, 1, 2000), "a fiftieth of a thousand is twenty");
            assert!(!admits(nearly_spent, 2, 2000));
        }
    }

    #[test]
    fn where_a_plan_holds_who_has_waited_longest_goes_first() {
        let at = Timestamp::from_seconds;
        assert_eq!(guarded().borrowable_turns(at(1299)), 0);
        assert_eq!(GuardState { is_overdue: true, ..guarded() }.borrowable_turns(at(1299)), 1);
        assert_eq!(GuardState { is_overdue: true, ..guarded() }.borrowable_turns(at(1300)), 2);
    }

    #[test]
    fn beyond_a_plan_there_is_as_much_in_the_morning_as_in_the_evening_and_none_for_a_page_alone() {
        let lets_through = |guarded: GuardState, seconds| {
            guarded.admits_beyond_plan(Units::from_whole(1), Units::from_whole(1000), Timestamp::from_seconds(seconds))
        };
        let spent = |units, millionths| GuardState {
            spent: Units::from_whole(units),
            window_elapsed: Share::from_millionths(millionths),
            ..guarded()
        };
        assert!(lets_through(spent(4, 250_000), 1300), "five of twenty by a quarter of the window");
        assert!(!lets_through(spent(5, 250_000), 1300));
        assert!(!lets_through(GuardState { is_overdue: true, ..spent(0, 1_000_000) }, 1299));
    }
}
