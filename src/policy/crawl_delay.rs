//! How long crawlers are asked, in robots.txt, to wait between two requests.

use super::address_lists::ListSet;
use super::class::{Class, ClassId, ClientKind};
use super::cost::Cost;
use super::facts::OperatorId;
use super::time::{Timestamp, ceil_seconds};
use super::{Rules, Units};
use std::time::Duration;

/// Bing reads whole seconds from 1 to 30; what is longer makes others skip the site.
pub const MIN_DELAY_S: u32 = 1;
/// The longest delay that is asked for.
pub const MAX_DELAY_S: u32 = 30;

/// What the settings ask of crawlers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrawlDelays {
    /// Of each operator's crawlers; no operator twice.
    pub per_operator: Vec<(OperatorId, CrawlDelay)>,
    /// Of bots that nobody knows.
    pub default: Option<CrawlDelay>,
}

/// One delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrawlDelay {
    /// So many seconds, from [`MIN_DELAY_S`] to [`MAX_DELAY_S`].
    Seconds(u32),
    /// What the budget of this class affords.
    Auto(ClassId),
}

/// What a class of crawlers may spend in one window of one quota.
#[derive(Clone, Copy, Debug)]
pub struct CrawlBudget {
    /// From this much used on, the class is refused wholly.
    pub ceiling: Units,
    /// What everybody else uses of it in a window.
    pub others: Units,
    /// How long the window lasts.
    pub window: Duration,
    /// What a page costs.
    pub page: Units,
    /// How many crawlers share it.
    pub crawlers: u32,
}

/// A delay that follows the budget, and since when it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvisedDelay {
    /// The delay.
    pub seconds: u32,
    /// Since when.
    pub since: Timestamp,
}

/// One operator's crawlers since the process began.
#[derive(Clone, Debug, PartialEq)]
pub struct ComplianceView {
    /// Whose.
    pub operator: OperatorId,
    /// The delay that is asked of them.
    pub advertised: Option<u32>,
    /// Their requests, robots.txt included.
    pub requests: u64,
    /// How many of them were for robots.txt.
    pub robots: u64,
    /// Times between one page and the next, pauses left out ...
    pub intervals: u64,
    /// ... how long they were together ...
    pub intervals_total: Duration,
    /// ... and how many were shorter than asked.
    pub violations: u64,
}

/// Crawlers keep a robots.txt for a day: what changes sooner is never seen by some.
const MIN_CHANGE_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Rounds up to whole seconds that crawlers understand.
pub fn clamp_to_seconds(delay: Duration) -> u32 {
    u32::try_from(ceil_seconds(delay)).unwrap_or(MAX_DELAY_S).clamp(MIN_DELAY_S, MAX_DELAY_S)
}

/// The class that a bot of this kind and operator falls into by these alone, whatever it asks for and from where.
pub fn class_of(classes: &[Class], kind: ClientKind, operator: Option<OperatorId>) -> Option<ClassId> {
    let fits = |class: &Class| {
        let when = &class.when;
        (when.kinds.is_empty() || when.kinds.contains(&kind))
            && (when.operators.is_empty() || operator.is_some_and(|operator| when.operators.contains(&operator)))
            && when.user_agents.is_empty()
            && when.addresses.is_empty()
            && when.lists == ListSet::default()
            && when.keys.is_none()
    };
    classes.iter().position(fits).and_then(|place| u16::try_from(place).ok()).map(ClassId)
}

/// What each quota leaves a class. `others` says what everybody else uses of a quota, by its place, in a window.
pub fn budgets<'r>(
    rules: &'r Rules,
    class: ClassId,
    others: impl Fn(usize) -> Units + 'r,
) -> impl Iterator<Item = CrawlBudget> + 'r {
    let crawlers = rules.classes.get(usize::from(class.0)).map_or(1, |class| class.when.operators.len().max(1));
    rules.quotas.iter().enumerate().filter_map(move |(place, quota)| {
        let costs = rules.routes.iter().flat_map(|route| &route.costs).filter(|(id, _)| usize::from(id.0) == place);
        let page = costs.map(|(_, cost)| expected_cost(*cost)).filter(|cost| !cost.is_zero()).min()?;
        Some(CrawlBudget {
            ceiling: quota.shutoff_level(class),
            others: others(place),
            window: quota.window.nominal_length(),
            page,
            crawlers: u32::try_from(crawlers).unwrap_or(u32::MAX),
        })
    })
}

/// What is not known yet counts as one unit.
fn expected_cost(cost: Cost) -> Units {
    match cost {
        Cost::Known(units) => units,
        Cost::Learned => super::cost::CostEstimate::INITIAL.0,
    }
}

impl CrawlBudget {
    /// The delay that makes the budget last for the window, as far as crawlers read it.
    pub fn affordable_delay(&self) -> u32 {
        self.required_delay_s().map_or(MAX_DELAY_S, |seconds| seconds.clamp(MIN_DELAY_S, MAX_DELAY_S))
    }

    /// The same in seconds, however many; none where nothing is left to last.
    pub fn required_delay_s(&self) -> Option<u32> {
        let left = u128::from(self.ceiling.saturating_sub(self.others).milli());
        let due = u128::from(self.window.as_secs()) * u128::from(self.page.milli()) * u128::from(self.crawlers);
        (left > 0).then(|| u32::try_from(due.div_ceil(left)).unwrap_or(u32::MAX))
    }
}

impl AdvisedDelay {
    /// The advice from now on, where the budget affords `seconds`: it changes once a day at most, and only by a quarter or
    /// more, or it would never come to rest.
    #[must_use]
    pub fn updated(self, seconds: u32, now: Timestamp) -> Self {
        let is_clear = self.seconds.abs_diff(seconds) * 4 >= self.seconds;
        match is_clear && now.saturating_duration_since(self.since) >= MIN_CHANGE_INTERVAL {
            true => Self { seconds, since: now },
            false => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_affords_what_lasts_the_day() {
        let day = Duration::from_secs(86_400);
        let affords = |ceiling, others, page_milli, crawlers| {
            let (ceiling, others, page) =
                (Units::from_whole(ceiling), Units::from_whole(others), Units::from_milli(page_milli));
            CrawlBudget { ceiling, others, window: day, page, crawlers }.affordable_delay()
        };
        for (ceiling, others, page_milli, crawlers, seconds) in [
            (9500, 0, 1000, 1, 10),     // 9.1 s, rounded up
            (9500, 0, 1000, 3, 28),     // three share it
            (9500, 4700, 1000, 1, 18),  // people take half
            (9500, 0, 250, 1, 3),       // cheap pages
            (1_000_000, 0, 1000, 1, 1), // more than anybody needs
            (100, 0, 12_000, 1, 30),    // never more than half a minute
            (9500, 9500, 1000, 1, 30),  // nothing is left
            (0, 0, 1000, 1, 30),
        ] {
            assert_eq!(
                affords(ceiling, others, page_milli, crawlers),
                seconds,
                "{ceiling} {others} {page_milli} {crawlers}"
            );
        }
    }

    #[test]
    fn what_a_budget_needs_may_be_more_than_crawlers_read() {
        let budget = |ceiling| CrawlBudget {
            ceiling: Units::from_whole(ceiling),
            others: Units::ZERO,
            window: Duration::from_secs(86_400),
            page: Units::from_whole(1),
            crawlers: 1,
        };
        assert_eq!(
            [1000, 0].map(|ceiling| (budget(ceiling).required_delay_s(), budget(ceiling).affordable_delay())),
            [(Some(87), 30), (None, 30)]
        );
    }

    #[test]
    fn advice_changes_once_a_day_and_by_a_clear_step() {
        let begin = Timestamp::from_seconds(1_000_000);
        let hours = |count: u64| begin + Duration::from_secs(count * 3600);
        let advice = AdvisedDelay { seconds: 10, since: begin };
        for (seconds, hour, after) in [(20, 23, 10), (20, 24, 20), (12, 24, 10), (13, 24, 13), (8, 48, 10), (7, 48, 7)]
        {
            assert_eq!(advice.updated(seconds, hours(hour)).seconds, after, "{seconds} after {hour} h");
        }
    }

    #[test]
    fn a_delay_is_a_number_of_seconds_that_crawlers_read() {
        let milliseconds = [1, 1000, 1001, 30_000, 3_600_000].map(|span| clamp_to_seconds(Duration::from_millis(span)));
        assert_eq!(milliseconds, [1, 1, 2, 30, 30]);
    }
}
