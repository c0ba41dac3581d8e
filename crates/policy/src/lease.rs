//! Size of leases: the units of a window that an instance holds ahead of its usage, so that no request waits for the
//! ledger.
//!
//! A crash may lose the units held. Therefore [`SpendProfile::size`] keeps leases small: about one second of usage, and
//! less as the limit nears.

use super::units::Units;
use super::window::Span;
use std::time::Duration;

/// Identifies a window of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowKey {
    /// Start in nanoseconds; for a first-use window, its ordinal.
    pub id: u64,
    /// Time span; `None` for a first-use window that is not open yet.
    pub span: Option<Span>,
    /// Number of preceding spans of the same length that overlap this window (sliding), otherwise 0. Later
    /// windows that were prefetched overlap this window likewise.
    pub lookback: u32,
}

/// Report of an instance on one window, with the lease it requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// Name of the quota.
    pub quota: String,
    /// Limit of the window, in units.
    pub limit: Units,
    /// Window of the request.
    pub window: WindowKey,
    /// Units settled and reserved by this instance.
    pub taken: Units,
    /// Units currently leased to this instance.
    pub held: Units,
    /// Requested lease, at least `taken`; below `held` to return units.
    pub wanted: Units,
    /// Units needed until the next refresh, beyond `taken`. A ledger with cheap updates may grant no more.
    pub urgent: Units,
    /// Forecast demand of this instance's clients until the end of the window; zero without pacing.
    pub expected_demand: Units,
}

/// Lease of an instance for one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Units that this instance may take in total.
    pub held: Units,
    /// Units held by others: other instances, previous incarnations, earlier sub-windows, manual corrections.
    pub held_by_others: Units,
    /// Units of these that are known to be taken.
    pub taken_by_others: Units,
    /// Additional units that may be taken while the ledger is unavailable.
    pub fallback: Units,
    /// Span of the window, if the ledger corrects the requested one.
    pub span: Option<Span>,
    /// Units newly counted as lost in a crash.
    pub lost: Units,
    /// Units held by instances that have exited; unusable for this window.
    pub held_by_dead: Units,
    /// Forecast demand of other live instances' clients until the end of the window.
    pub expected_by_others: Units,
}

impl WindowKey {
    /// Returns true if usage of window `id` at `span` counts against this window too: within reach of a sliding window,
    /// or at the same time under another configuration.
    pub fn overlaps(&self, id: u64, span: Option<Span>) -> bool {
        let (Some(this), Some(other)) = (self.span, span) else { return false };
        let reach = this.length().saturating_mul(self.lookback);
        id != self.id && other.end > this.start - reach && other.start < this.end + reach
    }
}

/// Usage of a quota by one instance, as input for the size of its leases.
#[derive(Clone, Copy, Debug)]
pub struct SpendProfile {
    /// Limit of the window, in units.
    pub limit: Units,
    /// Units neither taken nor leased to others.
    pub left: Units,
    /// Length of the window.
    pub length: Duration,
    /// Units taken in about the last second.
    pub per_second: Units,
    /// Maximum expected cost of one request.
    pub max_cost: Units,
    /// Units that waiting requests are short of.
    pub shortfall: Units,
    /// Time that a refresh takes, with its syncs.
    pub refresh_time: Duration,
}

/// Units to hold beyond the units taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseSize {
    /// Units for about one second.
    pub lease: Units,
    /// Units for the time until the next refresh has ended, a few milliseconds.
    pub urgent: Units,
}

/// Number of most expensive requests that a lease always covers, as a page loads several at once.
pub(crate) const MIN_REQUESTS_HELD: u64 = 4;

/// Divisor of the limit that is the maximum of [`LeaseSize::urgent`] after a quiet time, unless the configured costs need more.
pub(crate) const IDLE_SHARE: u64 = 1024;

/// Number of most expensive requests that a lease covers after a quiet time, if the limit is large enough. A larger
/// burst receives more units within milliseconds.
const BURST_REQUESTS: u64 = 256;

/// Time for which the units of [`LeaseSize::urgent`] last if a refresh takes none: until the thread that refreshes has
/// been woken at their half, on a busy machine.
const WAKE_TIME: Duration = Duration::from_millis(8);

/// Maximum time for which the units of [`LeaseSize::urgent`] last.
const MAX_URGENT_TIME: Duration = Duration::from_millis(100);

impl SpendProfile {
    /// Returns the size to hold: about one second of usage or the shortfall, between a small minimum and
    /// [`SpendProfile::max_size`]. Never more than half of the units left, down to one request. Rounded to whole units
    /// if costs are whole units.
    pub fn size(&self) -> LeaseSize {
        let min_units = multiply(self.max_cost, MIN_REQUESTS_HELD);
        let max_units = divide(self.left, 2).max(self.max_cost).min(self.left);
        let idle_units = divide(self.limit, 256).min(multiply(self.max_cost, BURST_REQUESTS * 4));
        let target = self.per_second.max(idle_units).max(min_units);
        let lease = self
            .floor_if_whole_costs(target.max(self.shortfall).min(self.max_size()).min(max_units))
            .max(self.max_cost.min(self.left));
        let idle_units = divide(self.limit, IDLE_SHARE).min(multiply(self.max_cost, BURST_REQUESTS));
        let urgent = self.spent_in(self.urgent_time()).max(idle_units).max(min_units).max(self.shortfall).min(lease);
        LeaseSize { lease, urgent: self.floor_if_whole_costs(urgent).max(self.max_cost.min(self.left)) }
    }

    /// Returns the time for which urgent units last. A refresh begins at their half, so they last for two of them.
    fn urgent_time(&self) -> Duration {
        self.refresh_time.saturating_mul(2).saturating_add(WAKE_TIME).min(MAX_URGENT_TIME)
    }

    fn spent_in(&self, time: Duration) -> Units {
        let milli = u128::from(self.per_second.milli()) * time.as_micros() / 1_000_000;
        Units::from_milli(u64::try_from(milli).unwrap_or(u64::MAX))
    }

    /// Rounds down to whole units if costs are whole units.
    fn floor_if_whole_costs(&self, units: Units) -> Units {
        match self.max_cost.milli() % 1000 {
            0 => Units::from_whole(units.floor()),
            _ => units,
        }
    }

    /// Returns the maximum to hold beyond the units taken: a 64th of the limit, or a few of the most expensive
    /// requests. Windows under 16 s allow more, up to a quarter of the limit, so that they can be used in time.
    pub fn max_size(&self) -> Units {
        let parts = self.length.as_secs().saturating_mul(4).clamp(4, 64);
        divide(self.limit, parts).max(multiply(self.max_cost, MIN_REQUESTS_HELD))
    }
}

fn multiply(units: Units, count: u64) -> Units {
    Units::from_milli(units.milli().saturating_mul(count))
}

/// Divides, rounding down to milli-units.
fn divide(units: Units, parts: u64) -> Units {
    Units::from_milli(units.milli() / parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;
    use proptest::prelude::*;

    fn spend_profile(left: u64, per_second: u64) -> SpendProfile {
        SpendProfile {
            limit: Units::from_whole(10_000),
            left: Units::from_whole(left),
            length: Duration::from_secs(86_400),
            per_second: Units::from_whole(per_second),
            max_cost: Units::from_whole(1),
            shortfall: Units::ZERO,
            refresh_time: Duration::from_millis(1),
        }
    }

    #[test]
    fn lease_follows_the_rate_and_shrinks_near_exhaustion() {
        let lease = |left, per_second| spend_profile(left, per_second).size().lease.floor();
        assert_eq!(lease(10_000, 0), 39, "minimum of an idle quota");
        assert_eq!(lease(10_000, 100), 100, "one second of usage");
        assert_eq!(lease(10_000, 5000), 156, "at most a 64th of the limit");
        assert_eq!([100, 10, 3, 2, 1, 0].map(|left| lease(left, 100)), [50, 5, 1, 1, 1, 0]);
        assert_eq!(spend_profile(10_000, 100).size().urgent.floor(), 9, "minimum of an idle quota");
        let large = SpendProfile { limit: Units::from_whole(100_000_000), ..spend_profile(100_000_000, 0) }.size();
        assert_eq!((large.lease.floor(), large.urgent.floor()), (1024, 256), "one burst, for any limit");
    }

    #[test]
    fn urgent_units_last_for_two_refreshes() {
        let urgent = |refresh_ms| {
            let refresh_time = Duration::from_millis(refresh_ms);
            SpendProfile { limit: Units::from_whole(30_000), refresh_time, ..spend_profile(30_000, 2500) }.size().urgent
        };
        assert_eq!([0, 1, 5, 20].map(|ms| urgent(ms).floor()), [29, 29, 45, 120], "29 is the minimum of an idle quota");
        assert_eq!([50, 1000].map(|ms| urgent(ms).floor()), [250, 250], "a tenth of a second at most");
    }

    #[test]
    fn shortfall_is_leased_immediately() {
        let LeaseSize { lease, urgent } =
            SpendProfile { shortfall: Units::from_whole(100), ..spend_profile(10_000, 0) }.size();
        assert_eq!((lease.floor(), urgent.floor()), (100, 100));
        let LeaseSize { lease, urgent } =
            SpendProfile { shortfall: Units::from_whole(9000), ..spend_profile(10_000, 0) }.size();
        assert_eq!((lease.floor(), urgent.floor()), (156, 156), "at most a 64th of the limit");
    }

    #[test]
    fn one_second_window_needs_few_leases() {
        let profile = SpendProfile { length: Duration::from_secs(1), ..spend_profile(10_000, 10_000) };
        assert_eq!(profile.size().lease, Units::from_whole(2500));
    }

    #[test]
    fn windows_within_lookback_or_overlapping_count() {
        let span = |start: u64| Span { start: Timestamp(start), end: Timestamp(start + 10) };
        let sliding = WindowKey { id: 100, span: Some(span(100)), lookback: 3 };
        let overlaps = |key: WindowKey, start: u64| key.overlaps(start, Some(span(start)));
        assert_eq!(
            [60, 70, 90, 100, 110, 130, 140].map(|start| overlaps(sliding, start)),
            [false, true, true, false, true, true, false]
        );
        let fixed = WindowKey { lookback: 0, ..sliding };
        assert_eq!([90, 95, 100, 105, 110].map(|start| overlaps(fixed, start)), [false, true, false, true, false]);
    }

    #[test]
    fn lease_is_whole_units_only_if_costs_are() {
        for (max_cost, lease, urgent) in [(1000, 39_000, 9000), (500, 39_062, 9765), (1500, 39_062, 9765)] {
            let size = SpendProfile { max_cost: Units::from_milli(max_cost), ..spend_profile(10_000, 0) }.size();
            assert_eq!((size.lease.milli(), size.urgent.milli()), (lease, urgent), "{max_cost}");
        }
    }

    proptest! {
        #[test]
        fn lease_never_exceeds_remaining_units_or_max_size(
            limit in 1u64..1_000_000_000, left in 0u64..1_000_000_000, seconds in 0u64..100_000,
            per_second in 0u64..1_000_000_000, max_cost in 0u64..1_000_000, shortfall in 0u64..1_000_000_000,
            refresh_ms in 0u64..10_000,
        ) {
            let profile = SpendProfile {
                limit: Units::from_milli(limit),
                left: Units::from_milli(left),
                length: Duration::from_secs(seconds),
                per_second: Units::from_milli(per_second),
                max_cost: Units::from_milli(max_cost),
                shortfall: Units::from_milli(shortfall),
                refresh_time: Duration::from_millis(refresh_ms),
            };
            let LeaseSize { lease, urgent } = profile.size();
            prop_assert!(urgent <= lease && lease <= profile.left && lease <= profile.max_size());
            prop_assert!(lease >= profile.max_cost.min(profile.left), "a lease always covers one request");
        }
    }
}
