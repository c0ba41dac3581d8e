//! Crawler guard: admits a few requests of verified crawlers although a tier or the pacing plan refuses them.
//!
//! A search engine that receives only refusals crawls more slowly for days, and drops a page after about two days of
//! refusals. Therefore one of its requests is admitted per interval, and no page is refused for longer than a limit.
//! Both stay within a small share of the quota: a high request rate gains nothing, and the quota limit always holds.

use super::Timestamp;
use super::tier::Share;
use super::units::Units;
use std::time::Duration;

/// Settings of the crawler guard of a class, applied to each verified operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrawlerGuard {
    /// Maximum time between two admitted requests of an operator that keeps sending requests.
    pub admit_interval: Duration,
    /// Maximum time for which one page is refused to an operator.
    pub max_refused_for: Duration,
    /// Maximum units per window length, as a share of the quota's limit.
    pub budget: Share,
}

/// Guard state of an operator in one quota, at the decision on a request.
#[derive(Clone, Copy, Debug)]
pub struct GuardState {
    /// Settings of the guard.
    pub guard: CrawlerGuard,
    /// Time of the operator's last admitted request.
    pub last_admitted: Timestamp,
    /// True if the requested page has been refused to the operator for too long.
    pub is_overdue: bool,
    /// Units that the guard admitted recently, for all operators of the class.
    pub spent: Units,
    /// Elapsed part of the window length in which these units were admitted.
    pub window_elapsed: Share,
}

impl GuardState {
    /// Returns true if the guard admits a request of `cost` that a tier refused, for a quota of `limit`.
    pub fn admits(&self, cost: Units, limit: Units, now: Timestamp) -> bool {
        (self.is_overdue || self.is_interval_due(now)) && self.within_budget(cost, self.guard.budget.of_units(limit))
    }

    /// Returns the number of turns that the request may borrow from later requests of its class under a pacing plan.
    pub fn borrowable_turns(&self, now: Timestamp) -> u32 {
        match self.is_interval_due(now) {
            true => 2,
            false => u32::from(self.is_overdue),
        }
    }

    /// Returns true if the guard admits a request of `cost` that the plan refused and whose class has no turn to
    /// borrow. The budget grows evenly over the window. An overdue page alone does not qualify: a site has more pages
    /// than the budget covers.
    pub fn admits_beyond_plan(&self, cost: Units, limit: Units, now: Timestamp) -> bool {
        self.is_interval_due(now)
            && self.within_budget(cost, self.window_elapsed.of_units(self.guard.budget.of_units(limit)))
    }

    fn is_interval_due(&self, now: Timestamp) -> bool {
        now.saturating_duration_since(self.last_admitted) >= self.guard.admit_interval
    }

    fn within_budget(&self, cost: Units, budget: Units) -> bool {
        self.spent.saturating_add(cost) <= budget
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard_state() -> GuardState {
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

    fn admits(state: GuardState, cost: u64, seconds: u64) -> bool {
        state.admits(Units::from_whole(cost), Units::from_whole(1000), Timestamp::from_seconds(seconds))
    }

    #[test]
    fn one_request_per_interval_is_admitted() {
        assert!(!admits(guard_state(), 1, 1299));
        assert!(admits(guard_state(), 1, 1300));
    }

    #[test]
    fn overdue_page_skips_the_interval() {
        assert!(admits(GuardState { is_overdue: true, ..guard_state() }, 1, 1001));
    }

    #[test]
    fn guard_budget_is_never_exceeded() {
        for is_overdue in [false, true] {
            let nearly_spent = GuardState { is_overdue, spent: Units::from_whole(19), ..guard_state() };
            assert!(admits(nearly_spent, 1, 2000), "the budget is 2 % of 1000 units");
            assert!(!admits(nearly_spent, 2, 2000));
        }
    }

    #[test]
    fn due_and_overdue_pages_borrow_pacing_turns() {
        let at = Timestamp::from_seconds;
        assert_eq!(guard_state().borrowable_turns(at(1299)), 0);
        assert_eq!(GuardState { is_overdue: true, ..guard_state() }.borrowable_turns(at(1299)), 1);
        assert_eq!(GuardState { is_overdue: true, ..guard_state() }.borrowable_turns(at(1300)), 2);
    }

    #[test]
    fn budget_beyond_plan_is_prorated_over_the_window() {
        let admits_beyond_plan = |state: GuardState, seconds| {
            state.admits_beyond_plan(Units::from_whole(1), Units::from_whole(1000), Timestamp::from_seconds(seconds))
        };
        let state = |units, millionths| GuardState {
            spent: Units::from_whole(units),
            window_elapsed: Share::from_millionths(millionths),
            ..guard_state()
        };
        assert!(admits_beyond_plan(state(4, 250_000), 1300), "5 of 20 units after a quarter of the window");
        assert!(!admits_beyond_plan(state(5, 250_000), 1300));
        assert!(!admits_beyond_plan(GuardState { is_overdue: true, ..state(0, 1_000_000) }, 1299));
    }
}
