//! How crawlers keep to what robots.txt asks of them. Counters only, for the few operators that are known.

use crate::policy::crawl_delay::ComplianceView;
use crate::policy::{OperatorId, Timestamp};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A longer silence is a crawler that had nothing to do, not one that waited.
const PAUSE: Duration = Duration::from_secs(10 * 60);

/// What the crawlers of each operator did.
pub struct CrawlCompliance(Box<[OperatorCompliance]>);

#[derive(Default)]
struct OperatorCompliance {
    requests: AtomicU64,
    robots: AtomicU64,
    /// When the last page was asked for, in nanoseconds of the clock that nobody can set, plus one; 0 is never.
    last: AtomicU64,
    gaps: AtomicU64,
    gaps_ms: AtomicU64,
    early: AtomicU64,
    /// The seconds that are asked for; 0 is none.
    asked: AtomicU32,
}

impl CrawlCompliance {
    /// Counts for so many operators.
    pub fn of(operators: usize) -> Self {
        Self((0..operators).map(|_| OperatorCompliance::default()).collect())
    }

    /// Notes what each operator is asked; the others are asked nothing.
    pub fn asks(&self, delays: &[(OperatorId, u32)]) {
        for (place, counts) in self.0.iter().enumerate() {
            let asked = delays.iter().find(|(operator, _)| usize::from(operator.0) == place);
            counts.asked.store(asked.map_or(0, |(_, seconds)| *seconds), Relaxed);
        }
    }

    /// Counts a request of one of the operator's crawlers.
    pub fn saw(&self, operator: OperatorId, is_robots: bool, now: Timestamp) {
        let Some(counts) = self.0.get(usize::from(operator.0)) else { return };
        counts.requests.fetch_add(1, Relaxed);
        if is_robots {
            counts.robots.fetch_add(1, Relaxed);
            return;
        }
        let last = counts.last.swap(now.0.saturating_add(1), Relaxed);
        let Some(gap) = last.checked_sub(1).map(|last| now.since(Timestamp(last))).filter(|gap| *gap <= PAUSE) else {
            return;
        };
        let asked = Duration::from_secs(counts.asked.load(Relaxed).into());
        counts.gaps.fetch_add(1, Relaxed);
        counts.gaps_ms.fetch_add(u64::try_from(gap.as_millis()).unwrap_or(u64::MAX), Relaxed);
        counts.early.fetch_add(u64::from(gap < asked), Relaxed);
    }

    /// Every operator that was seen or is asked for a delay.
    pub fn views(&self) -> Vec<ComplianceView> {
        let view = |(counts, place): (&OperatorCompliance, u16)| {
            let asked = counts.asked.load(Relaxed);
            ComplianceView {
                operator: OperatorId(place),
                asked: (asked > 0).then_some(asked),
                requests: counts.requests.load(Relaxed),
                robots: counts.robots.load(Relaxed),
                gaps: counts.gaps.load(Relaxed),
                gaps_took: Duration::from_millis(counts.gaps_ms.load(Relaxed)),
                early: counts.early.load(Relaxed),
            }
        };
        self.0.iter().zip(0..).map(view).filter(|view| view.asked.is_some() || view.requests > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spacing_is_counted_between_pages_and_pauses_are_not() {
        let conduct = CrawlCompliance::of(2);
        let bing = OperatorId(1);
        conduct.asks(&[(bing, 10)]);
        for (second, is_robots) in
            [(0, true), (0, false), (4, false), (5, true), (16, false), (1000, false), (1010, false)]
        {
            conduct.saw(bing, is_robots, Timestamp::from_seconds(50 + second));
        }
        conduct.saw(OperatorId(9), false, Timestamp::from_seconds(1));
        let gaps_took = Duration::from_secs(4 + 12 + 10);
        let seen =
            ComplianceView { operator: bing, asked: Some(10), requests: 7, robots: 2, gaps: 3, gaps_took, early: 1 };
        assert_eq!(conduct.views(), [seen]);
    }
}
