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
    pub trickle: Duration,
    /// No page is refused to them for longer.
    pub max_refused_for: Duration,
    /// At most this share of a quota's limit goes to it in the length of a window.
    pub up_to: Share,
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
    pub passed: Share,
}

impl GuardState {
    /// Returns whether a request of `cost` is let through although its tier refuses it, of a quota of `limit`.
    pub fn lets_through(&self, cost: Units, limit: Units, now: Timestamp) -> bool {
        (self.is_overdue || self.trickles(now)) && self.has_left(cost, self.guard.up_to.of(limit))
    }

    /// Before how many requests of its class it goes that a plan would serve: they are refused in its place.
    pub fn goes_before(&self, now: Timestamp) -> u32 {
        match self.trickles(now) {
            true => 2,
            false => u32::from(self.is_overdue),
        }
    }

    /// Returns whether a request of `cost` is let through although a plan refuses it and its class has no turns left
    /// that it could take: as much in the beginning of a window as later, and none for a page alone, of which a site has
    /// more than the guard could spare.
    pub fn lets_through_beyond_plan(&self, cost: Units, limit: Units, now: Timestamp) -> bool {
        self.trickles(now) && self.has_left(cost, self.passed.of(self.guard.up_to.of(limit)))
    }

    fn trickles(&self, now: Timestamp) -> bool {
        now.since(self.last_admitted) >= self.guard.trickle
    }

    fn has_left(&self, cost: Units, most: Units) -> bool {
        self.spent.plus(cost) <= most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarded() -> GuardState {
        GuardState {
            guard: CrawlerGuard {
                trickle: Duration::from_secs(300),
                max_refused_for: Duration::from_secs(86_400),
                up_to: Share::from_millionths(20_000),
            },
            last_admitted: Timestamp::from_seconds(1000),
            is_overdue: false,
            spent: Units::ZERO,
            passed: Share::ALL,
        }
    }

    fn lets_through(guarded: GuardState, cost: u64, seconds: u64) -> bool {
        guarded.lets_through(Units::whole(cost), Units::whole(1000), Timestamp::from_seconds(seconds))
    }

    #[test]
    fn one_gets_through_every_so_often() {
        assert!(!lets_through(guarded(), 1, 1299));
        assert!(lets_through(guarded(), 1, 1300));
    }

    #[test]
    fn a_page_that_was_refused_for_too_long_does_not_wait_for_its_turn() {
        assert!(lets_through(GuardState { is_overdue: true, ..guarded() }, 1, 1001));
    }

    #[test]
    fn the_share_is_never_exceeded() {
        for is_overdue in [false, true] {
            let nearly_spent = GuardState { is_overdue, spent: Units::whole(19), ..guarded() };
            assert!(lets_through(nearly_spent, 1, 2000), "a fiftieth of a thousand is twenty");
            assert!(!lets_through(nearly_spent, 2, 2000));
        }
    }

    #[test]
    fn where_a_plan_holds_who_has_waited_longest_goes_first() {
        let at = Timestamp::from_seconds;
        assert_eq!(guarded().goes_before(at(1299)), 0);
        assert_eq!(GuardState { is_overdue: true, ..guarded() }.goes_before(at(1299)), 1);
        assert_eq!(GuardState { is_overdue: true, ..guarded() }.goes_before(at(1300)), 2);
    }

    #[test]
    fn beyond_a_plan_there_is_as_much_in_the_morning_as_in_the_evening_and_none_for_a_page_alone() {
        let lets_through = |guarded: GuardState, seconds| {
            guarded.lets_through_beyond_plan(Units::whole(1), Units::whole(1000), Timestamp::from_seconds(seconds))
        };
        let spent = |units, millionths| GuardState {
            spent: Units::whole(units),
            passed: Share::from_millionths(millionths),
            ..guarded()
        };
        assert!(lets_through(spent(4, 250_000), 1300), "five of twenty by a quarter of the window");
        assert!(!lets_through(spent(5, 250_000), 1300));
        assert!(!lets_through(GuardState { is_overdue: true, ..spent(0, 1_000_000) }, 1299));
    }
}
