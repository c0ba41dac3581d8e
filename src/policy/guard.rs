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
pub struct Guard {
    /// None of them goes for longer without a request that is let through, as long as they ask.
    pub trickle: Duration,
    /// No page is refused to them for longer.
    pub max_refused_for: Duration,
    /// At most this share of a quota's limit goes to it in the length of a window.
    pub up_to: Share,
}

/// A guarded crawler's request, and how its operator has fared with one quota.
#[derive(Clone, Copy, Debug)]
pub struct Guarded {
    /// What the settings say.
    pub guard: Guard,
    /// When a request of the operator was last let through.
    pub last_admitted: Timestamp,
    /// Its page has been refused to it for too long.
    pub is_overdue: bool,
    /// Units that the guard has let through of late, for all operators of the class.
    pub spent: Units,
}

impl Guarded {
    /// Returns whether a request of `cost` is let through although its tier refuses it, of a quota of `limit`.
    pub fn lets_through(&self, cost: Units, limit: Units, now: Timestamp) -> bool {
        let is_due = self.is_overdue || now.since(self.last_admitted) >= self.guard.trickle;
        is_due && self.spent.plus(cost) <= self.guard.up_to.of(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarded() -> Guarded {
        Guarded {
            guard: Guard {
                trickle: Duration::from_secs(300),
                max_refused_for: Duration::from_secs(86_400),
                up_to: Share::from_millionths(20_000),
            },
            last_admitted: Timestamp::from_seconds(1000),
            is_overdue: false,
            spent: Units::ZERO,
        }
    }

    fn lets_through(guarded: Guarded, cost: u64, seconds: u64) -> bool {
        guarded.lets_through(Units::whole(cost), Units::whole(1000), Timestamp::from_seconds(seconds))
    }

    #[test]
    fn one_gets_through_every_so_often() {
        assert!(!lets_through(guarded(), 1, 1299));
        assert!(lets_through(guarded(), 1, 1300));
    }

    #[test]
    fn a_page_that_was_refused_for_too_long_does_not_wait_for_its_turn() {
        assert!(lets_through(Guarded { is_overdue: true, ..guarded() }, 1, 1001));
    }

    #[test]
    fn the_share_is_never_exceeded() {
        for is_overdue in [false, true] {
            let nearly_spent = Guarded { is_overdue, spent: Units::whole(19), ..guarded() };
            assert!(lets_through(nearly_spent, 1, 2000), "a fiftieth of a thousand is twenty");
            assert!(!lets_through(nearly_spent, 2, 2000));
        }
    }
}
