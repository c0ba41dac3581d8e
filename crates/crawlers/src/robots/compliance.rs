//! Compliance of crawlers with their crawl delay. Only counters, for the operators of the built-in and configured list.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tidegate_policy::crawl_delay::ComplianceView;
use tidegate_policy::{OperatorId, Timestamp};

/// Intervals longer than this are excluded: the crawler had nothing to fetch.
const MAX_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// Counters of each operator's crawlers.
pub struct CrawlCompliance(Box<[OperatorCompliance]>);

#[derive(Default)]
struct OperatorCompliance {
    requests: AtomicU64,
    robots: AtomicU64,
    /// Monotonic time of the last page request, in nanoseconds plus one; 0 for none.
    last_request: AtomicU64,
    intervals: AtomicU64,
    intervals_ms: AtomicU64,
    violations: AtomicU64,
    /// Advertised crawl delay in seconds; 0 for none.
    advertised_s: AtomicU32,
}

impl CrawlCompliance {
    /// Creates counters for `operators` operators.
    pub fn new(operators: usize) -> Self {
        Self((0..operators).map(|_| OperatorCompliance::default()).collect())
    }

    /// Sets the advertised crawl delay of each operator; operators that are not in `delays` have none.
    pub fn set_delays(&self, delays: &[(OperatorId, u32)]) {
        for (index, counts) in self.0.iter().enumerate() {
            let advertised_s = delays.iter().find(|(operator, _)| operator.index() == index);
            counts.advertised_s.store(advertised_s.map_or(0, |(_, seconds)| *seconds), Relaxed);
        }
    }

    /// Counts a request of one of the operator's crawlers.
    pub fn record_request(&self, operator: OperatorId, is_robots: bool, now: Timestamp) {
        let Some(counts) = self.0.get(operator.index()) else { return };
        counts.requests.fetch_add(1, Relaxed);
        if is_robots {
            counts.robots.fetch_add(1, Relaxed);
            return;
        }
        let last_request = counts.last_request.swap(now.0.saturating_add(1), Relaxed);
        let Some(interval) = last_request
            .checked_sub(1)
            .map(|last| now.saturating_duration_since(Timestamp(last)))
            .filter(|interval| *interval <= MAX_INTERVAL)
        else {
            return;
        };
        let advertised_s = Duration::from_secs(counts.advertised_s.load(Relaxed).into());
        counts.intervals.fetch_add(1, Relaxed);
        counts.intervals_ms.fetch_add(u64::try_from(interval.as_millis()).unwrap_or(u64::MAX), Relaxed);
        counts.violations.fetch_add(u64::from(interval < advertised_s), Relaxed);
    }

    /// Returns the counters of each operator that sent requests or has a crawl delay.
    pub fn views(&self) -> Vec<ComplianceView> {
        let view = |(counts, index): (&OperatorCompliance, usize)| {
            let advertised_s = counts.advertised_s.load(Relaxed);
            ComplianceView {
                operator: OperatorId::from_index(index),
                advertised: (advertised_s > 0).then_some(advertised_s),
                requests: counts.requests.load(Relaxed),
                robots_txt_requests: counts.robots.load(Relaxed),
                interval_count: counts.intervals.load(Relaxed),
                total_interval: Duration::from_millis(counts.intervals_ms.load(Relaxed)),
                violations: counts.violations.load(Relaxed),
            }
        };
        self.0.iter().zip(0..).map(view).filter(|view| view.advertised.is_some() || view.requests > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_intervals_are_counted_without_pauses() {
        let compliance = CrawlCompliance::new(2);
        let bing = OperatorId(1);
        compliance.set_delays(&[(bing, 10)]);
        for (second, is_robots) in
            [(0, true), (0, false), (4, false), (5, true), (16, false), (1000, false), (1010, false)]
        {
            compliance.record_request(bing, is_robots, Timestamp::from_seconds(50 + second));
        }
        compliance.record_request(OperatorId(9), false, Timestamp::from_seconds(1));
        let intervals_total = Duration::from_secs(4 + 12 + 10);
        let expected = ComplianceView {
            operator: bing,
            advertised: Some(10),
            requests: 7,
            robots_txt_requests: 2,
            interval_count: 3,
            total_interval: intervals_total,
            violations: 1,
        };
        assert_eq!(compliance.views(), [expected]);
    }
}
