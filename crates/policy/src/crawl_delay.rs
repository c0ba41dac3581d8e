//! Crawl delays advertised in robots.txt: minimum seconds between two requests of a crawler.

use super::Timestamp;
use super::class::{Class, ClientKind};
use super::ids::{ClassId, OperatorId, QuotaId};
use super::purpose::Purpose;
use super::rules::Rules;
use super::time::ceil_seconds;
use super::units::Units;
use std::time::Duration;

/// Minimum advertised delay, in seconds. Bing reads whole seconds from 1 to 30; a longer delay makes other crawlers
/// skip the site.
pub const MIN_DELAY_S: u32 = 1;
/// Maximum advertised delay, in seconds.
pub const MAX_DELAY_S: u32 = 30;

/// Configured crawl delays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrawlDelays {
    /// Delay of each operator's crawlers; operators are unique.
    pub per_operator: Vec<(OperatorId, CrawlDelay)>,
    /// Delay of all other bots.
    pub default: Option<CrawlDelay>,
}

/// A configured crawl delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrawlDelay {
    /// Delay in seconds, from [`MIN_DELAY_S`] to [`MAX_DELAY_S`].
    Seconds(u32),
    /// Delay derived from the budget of this class.
    Auto(ClassId),
}

/// Units that a class of crawlers may use in one window of one quota.
#[derive(Clone, Copy, Debug)]
pub struct CrawlBudget {
    /// Usage from which on all requests of the class are refused.
    pub ceiling: Units,
    /// Units that all other classes use per window.
    pub used_by_others: Units,
    /// Length of the window.
    pub window: Duration,
    /// Cost of a page.
    pub page_cost: Units,
    /// Number of crawlers that share the budget.
    pub crawler_count: u32,
}

/// Advertised delay that follows the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvisedDelay {
    /// Delay in seconds.
    pub seconds: u32,
    /// Time of the last change.
    pub changed_at: Timestamp,
}

/// Crawl statistics of one operator since the process started.
#[derive(Clone, Debug, PartialEq)]
pub struct ComplianceView {
    /// Operator of the crawlers.
    pub operator: OperatorId,
    /// Delay advertised to them, in seconds.
    pub advertised: Option<u32>,
    /// Number of requests, including robots.txt.
    pub requests: u64,
    /// Number of robots.txt requests.
    pub robots_txt_requests: u64,
    /// Number of intervals between two page requests, without pauses.
    pub interval_count: u64,
    /// Sum of these intervals.
    pub total_interval: Duration,
    /// Number of intervals shorter than the advertised delay.
    pub violations: u64,
}

/// Minimum time between two changes. Crawlers cache robots.txt for a day, so they would miss faster changes.
const MIN_CHANGE_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Rounds `delay` up to whole seconds, within the range that crawlers support.
pub fn clamp_to_seconds(delay: Duration) -> u32 {
    u32::try_from(ceil_seconds(delay)).unwrap_or(MAX_DELAY_S).clamp(MIN_DELAY_S, MAX_DELAY_S)
}

/// Returns the class of a bot of `kind` and `operator`, which fetches pages for `purpose`. Skips classes with any other
/// condition.
pub fn find_bot_class(
    classes: &[Class],
    kind: ClientKind,
    operator: Option<OperatorId>,
    purpose: Option<Purpose>,
) -> Option<ClassId> {
    let matches = |class: &Class| {
        let matcher = &class.matcher;
        (matcher.kinds.is_empty() || matcher.kinds.contains(&kind))
            && (matcher.operators.is_empty() || operator.is_some_and(|operator| matcher.operators.contains(&operator)))
            && (matcher.purposes.is_empty() || purpose.is_some_and(|purpose| matcher.purposes.contains(&purpose)))
            && matcher.user_agents.is_empty()
            && matcher.depends_on_crawler_only()
    };
    classes.iter().position(matches).map(ClassId::from_index)
}

/// Returns the budget of `class` in each quota. `used_by_others` returns the units that other classes use per
/// window of a quota.
pub fn budgets<'r>(
    rules: &'r Rules,
    class: ClassId,
    used_by_others: impl Fn(QuotaId) -> Units + 'r,
) -> impl Iterator<Item = CrawlBudget> + 'r {
    let crawler_count = rules.classes.get(class.index()).map_or(1, |class| class.matcher.operators.len().max(1));
    rules.quotas.iter().enumerate().filter_map(move |(index, quota)| {
        let id = QuotaId::from_index(index);
        let costs = rules.routes.iter().flat_map(|route| &route.costs).filter(|(costed, _)| *costed == id);
        let page_cost = costs.map(|(_, cost)| cost.first_estimate()).filter(|cost| !cost.is_zero()).min()?;
        Some(CrawlBudget {
            ceiling: quota.shutoff_level(class),
            used_by_others: used_by_others(id),
            window: quota.window.nominal_length(),
            page_cost,
            crawler_count: u32::try_from(crawler_count).unwrap_or(u32::MAX),
        })
    })
}

impl CrawlBudget {
    /// Returns the delay at which the budget lasts for the window, in seconds, clamped to the supported range.
    pub fn affordable_delay(&self) -> u32 {
        self.required_delay_s().map_or(MAX_DELAY_S, |seconds| seconds.clamp(MIN_DELAY_S, MAX_DELAY_S))
    }

    /// Returns the delay at which the budget lasts for the window, in seconds, unclamped; `None` if no budget is left.
    pub fn required_delay_s(&self) -> Option<u32> {
        let left = u128::from(self.ceiling.saturating_sub(self.used_by_others).milli());
        let cost_seconds =
            u128::from(self.window.as_secs()) * u128::from(self.page_cost.milli()) * u128::from(self.crawler_count);
        (left > 0).then(|| u32::try_from(cost_seconds.div_ceil(left)).unwrap_or(u32::MAX))
    }
}

impl AdvisedDelay {
    /// Returns the delay to advertise if the budget affords `seconds`. It changes at most once a day, and only by a
    /// quarter or more, to avoid constant fluctuation.
    #[must_use]
    pub fn updated(self, seconds: u32, now: Timestamp) -> Self {
        let is_significant = self.seconds.abs_diff(seconds) * 4 >= self.seconds;
        match is_significant && now.saturating_duration_since(self.changed_at) >= MIN_CHANGE_INTERVAL {
            true => Self { seconds, changed_at: now },
            false => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ListId;
    use crate::address_lists::ListSet;
    use crate::class::{ApiKeys, ClassMatcher, KeyCondition};
    use crate::cost::Cost;
    use crate::fixtures;
    use crate::identity::CredentialSource;
    use crate::network::IpPrefix;
    use crate::request_fields::FieldCondition;
    use crate::route::Route;
    use crate::session::Session;
    use crate::words::Words;

    #[test]
    fn affordable_delay_lasts_the_whole_window() {
        let day = Duration::from_secs(86_400);
        let delay = |ceiling, used_by_others, page_milli, crawler_count| {
            let (ceiling, others, page_cost) =
                (Units::from_whole(ceiling), Units::from_whole(used_by_others), Units::from_milli(page_milli));
            CrawlBudget { ceiling, used_by_others: others, window: day, page_cost, crawler_count }.affordable_delay()
        };
        for (ceiling, others, page_milli, crawlers, seconds) in [
            (9500, 0, 1000, 1, 10),     // 9.1 s, rounded up
            (9500, 0, 1000, 3, 28),     // three crawlers share it
            (9500, 4700, 1000, 1, 18),  // others use half
            (9500, 0, 250, 1, 3),       // cheap pages
            (1_000_000, 0, 1000, 1, 1), // more than needed
            (100, 0, 12_000, 1, 30),    // capped at 30 s
            (9500, 9500, 1000, 1, 30),  // no units left
            (0, 0, 1000, 1, 30),
        ] {
            assert_eq!(
                delay(ceiling, others, page_milli, crawlers),
                seconds,
                "{ceiling} {others} {page_milli} {crawlers}"
            );
        }
    }

    #[test]
    fn required_delay_can_exceed_the_advertised_maximum() {
        let budget = |ceiling| CrawlBudget {
            ceiling: Units::from_whole(ceiling),
            used_by_others: Units::ZERO,
            window: Duration::from_secs(86_400),
            page_cost: Units::from_whole(1),
            crawler_count: 1,
        };
        assert_eq!(
            [1000, 0].map(|ceiling| (budget(ceiling).required_delay_s(), budget(ceiling).affordable_delay())),
            [(Some(87), 30), (None, 30)]
        );
    }

    #[test]
    fn advised_delay_changes_daily_by_clear_steps() {
        let start = Timestamp::from_seconds(1_000_000);
        let hours = |count: u64| start + Duration::from_secs(count * 3600);
        let delay = AdvisedDelay { seconds: 10, changed_at: start };
        for (seconds, hour, expected) in
            [(20, 23, 10), (20, 24, 20), (12, 24, 10), (13, 24, 13), (8, 48, 10), (7, 48, 7)]
        {
            assert_eq!(delay.updated(seconds, hours(hour)).seconds, expected, "{seconds} after {hour} h");
        }
    }

    #[test]
    fn class_of_a_bot_has_no_condition_but_kind_operator_and_purpose() {
        const OPERATOR: OperatorId = OperatorId(1);
        let any = ClassMatcher::default;
        let source = CredentialSource::Header(http::HeaderName::from_static("x-api-key"));
        let find = |matcher: ClassMatcher, kind, operator| {
            let purpose = Some(Purpose::Search);
            find_bot_class(&[Class { matcher, ..fixtures::class("bot") }], kind, operator, purpose).is_some()
        };
        for matcher in [
            ClassMatcher { user_agents: Words::new(vec!["bot".into()]).expect("few words"), ..any() },
            ClassMatcher { addresses: IpPrefix::parse("::/0").into_iter().collect(), ..any() },
            ClassMatcher { lists: ListSet::from_ids([ListId(0)]), ..any() },
            ClassMatcher {
                keys: Some(KeyCondition::Given(ApiKeys { source: source.clone(), values: Vec::new() })),
                ..any()
            },
            ClassMatcher { kinds: vec![ClientKind::Human], ..any() },
            ClassMatcher { operators: vec![OperatorId(2)], ..any() },
            ClassMatcher { purposes: vec![Purpose::Training], ..any() },
            ClassMatcher { fields: vec![FieldCondition::new(source, Vec::new())], ..any() },
            ClassMatcher { sessions: vec![Session::New, Session::Known], ..any() },
            ClassMatcher { asns: vec![64496], ..any() },
            ClassMatcher { countries: "DE".parse().into_iter().collect(), ..any() },
            ClassMatcher { methods: vec![http::Method::GET], ..any() },
        ] {
            assert!(!find(matcher.clone(), ClientKind::VerifiedBot, Some(OPERATOR)), "{matcher:?}");
        }
        let verified = || ClassMatcher { kinds: vec![ClientKind::VerifiedBot], operators: vec![OPERATOR], ..any() };
        for (kind, operator, is_found) in [
            (ClientKind::VerifiedBot, Some(OPERATOR), true),
            (ClientKind::VerifiedBot, None, false),
            (ClientKind::DeclaredBot, Some(OPERATOR), false),
        ] {
            assert_eq!(find(verified(), kind, operator), is_found, "{kind:?} {operator:?}");
            assert!(find(any(), kind, operator));
        }
        for matcher in [
            ClassMatcher { purposes: vec![Purpose::Training, Purpose::Search], ..any() },
            ClassMatcher { sessions: vec![Session::None], ..any() },
        ] {
            assert!(find(matcher.clone(), ClientKind::DeclaredBot, None), "{matcher:?}");
        }
    }

    #[test]
    fn budget_of_a_class_is_that_of_each_quota_with_a_cost() {
        let operators = vec![OperatorId(0), OperatorId(1)];
        let matcher = ClassMatcher { operators, ..ClassMatcher::default() };
        let free = (QuotaId(2), Cost::Fixed(Units::ZERO));
        let learned = (QuotaId(2), Cost::Learned);
        let rules = Rules {
            classes: vec![Class { matcher, ..fixtures::class("bot") }],
            quotas: [100, 200, 300].map(|limit| fixtures::quota("api", limit)).to_vec(),
            routes: vec![
                fixtures::route(&[(0, 5), (2, 4)]),
                Route { costs: vec![free, learned], ..fixtures::route(&[]) },
                fixtures::route(&[(0, 3)]),
            ],
            ..fixtures::rules()
        };
        let used_by_others = |quota: QuotaId| Units::from_whole(u64::from(quota.0) + 7);
        let budgets: Vec<_> = budgets(&rules, ClassId(0), used_by_others)
            .map(|budget| {
                assert_eq!((budget.crawler_count, budget.window), (2, Duration::from_secs(86_400)));
                [budget.ceiling, budget.used_by_others, budget.page_cost].map(Units::floor)
            })
            .collect();
        assert_eq!(budgets, [[100, 7, 3], [300, 9, 1]], "the cheapest page, by quota");
    }

    #[test]
    fn delay_is_clamped_to_whole_readable_seconds() {
        let seconds = [1, 1000, 1001, 30_000, 3_600_000].map(|ms| clamp_to_seconds(Duration::from_millis(ms)));
        assert_eq!(seconds, [1, 1, 2, 30, 30]);
    }
}
