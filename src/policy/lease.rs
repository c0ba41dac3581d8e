//! How much of a window a gate holds on to, so that it never has to ask for a single request.
//!
//! A gate leases units ahead of what it spends. What it holds when it dies may be lost, so a lease is never larger than
//! it must be: about a second of spending, and less and less as the limit nears.

use super::units::Units;
use super::window::Span;
use std::time::Duration;

/// Which window of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowKey {
    /// Its start in nanoseconds; for a window that opens at its first use, its ordinal.
    pub id: u64,
    /// When it is; `None` for one that opens at its first use and has not been opened yet.
    pub span: Option<Span>,
    /// So many spans of the same length before it weigh on it, too (sliding), else 0. Those after it weigh as well where
    /// they are known already, having been asked for ahead: it stands among what weighs on them.
    pub lookback: u32,
}

/// What a gate says of one window, and what it would like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The quota, by name.
    pub quota: String,
    /// Units that were bought for the window.
    pub limit: Units,
    /// Which window.
    pub window: WindowKey,
    /// Settled and reserved by this gate.
    pub taken: Units,
    /// Its lease so far.
    pub held: Units,
    /// What it would like to hold: more, or less to give back; never less than `taken`.
    pub wanted: Units,
    /// What it needs at once, on top of `taken`: a tenth of a second of spending, or a few of the dearest requests. A
    /// ledger that can tell small steps cheaply need not hand out more.
    pub urgent: Units,
    /// What its clients are expected to ask for until the window ends; nothing where it makes no plans.
    pub expected_demand: Units,
}

/// What a gate may take of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// What this gate may take in all.
    pub held: Units,
    /// What is leased to others: other gates, earlier lives, earlier sub-windows, corrections by hand.
    pub held_by_others: Units,
    /// How much of that is known to be taken.
    pub taken_by_others: Units,
    /// What may be taken on top when the ledger cannot be reached any more.
    pub fallback: Units,
    /// When the window is, where the ledger knows better than the gate that asked.
    pub span: Option<Span>,
    /// Units newly known to be lost to a crash.
    pub lost: Units,
    /// What gates hold that have gone: for this window nobody will have it.
    pub held_by_dead: Units,
    /// What the clients of other gates are expected to ask for until the window ends, as far as those gates are there.
    pub expected_by_others: Units,
}

impl WindowKey {
    /// True when what was taken of the window `id`, which is at `span`, weighs on this one as well: within reach of a
    /// sliding window, or under other rules at the same time.
    pub fn overlaps(&self, id: u64, span: Option<Span>) -> bool {
        let (Some(ours), Some(theirs)) = (self.span, span) else { return false };
        let reach = ours.length().saturating_mul(self.lookback);
        id != self.id && theirs.end > ours.start - reach && theirs.start < ours.end + reach
    }
}

/// How one gate spends a quota, as far as the size of its leases depends on it.
#[derive(Clone, Copy, Debug)]
pub struct SpendProfile {
    /// Units that were bought for the window.
    pub limit: Units,
    /// What is neither taken nor leased to others.
    pub left: Units,
    /// How long the window is.
    pub length: Duration,
    /// Units that were taken in the last second or so.
    pub per_second: Units,
    /// The most that one request is expected to cost.
    pub max_cost: Units,
    /// What requests that are waiting would have taken.
    pub shortfall: Units,
}

/// How much to hold beyond what is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseSize {
    /// For about a second.
    pub lease: Units,
    /// For about a tenth of one.
    pub urgent: Units,
}

/// Requests that come at once, as those for one page do, find this many of the dearest held.
const MIN_REQUESTS_HELD: u64 = 4;

/// A crowd that comes after a quiet time finds this many of the dearest held, if the limit is large enough; what more it
/// needs is there in milliseconds.
const BURST_REQUESTS: u64 = 256;

impl SpendProfile {
    /// Returns how much to hold: about a second of spending, and what is waited for, between a small floor and
    /// [`SpendProfile::max_size`]; never more than half of what is left, down to one request. Whole units, where requests cost
    /// whole units.
    pub fn size(&self) -> LeaseSize {
        let few = times(self.max_cost, MIN_REQUESTS_HELD);
        let tapered = part_of(self.left, 2).max(self.max_cost).min(self.left);
        let quiet = part_of(self.limit, 256).min(times(self.max_cost, BURST_REQUESTS * 4));
        let usual = self.per_second.max(quiet).max(few);
        let lease = self
            .floor_if_whole_costs(usual.max(self.shortfall).min(self.max_size()).min(tapered))
            .max(self.max_cost.min(self.left));
        let quiet = part_of(self.limit, 1024).min(times(self.max_cost, BURST_REQUESTS));
        let urgent = part_of(self.per_second, 10).max(quiet).max(few).max(self.shortfall).min(lease);
        LeaseSize { lease, urgent: self.floor_if_whole_costs(urgent).max(self.max_cost.min(self.left)) }
    }

    /// Rounded down, where a part of a unit would be of no use.
    fn floor_if_whole_costs(&self, units: Units) -> Units {
        match self.max_cost.milli() % 1000 {
            0 => Units::from_whole(units.floor()),
            _ => units,
        }
    }

    /// Returns the most that is ever held beyond what is taken: a 64th of the limit, or a few of the dearest requests.
    /// Of a window shorter than 16 s it is more, a quarter at most, so that it can be spent in time.
    pub fn max_size(&self) -> Units {
        let parts = self.length.as_secs().saturating_mul(4).clamp(4, 64);
        part_of(self.limit, parts).max(times(self.max_cost, MIN_REQUESTS_HELD))
    }
}

fn times(units: Units, count: u64) -> Units {
    Units::from_milli(units.milli().saturating_mul(count))
}

/// Rounded down to whole thousandths.
fn part_of(units: Units, parts: u64) -> Units {
    Units::from_milli(units.milli() / parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Timestamp;
    use proptest::prelude::*;

    fn spending(left: u64, per_second: u64) -> SpendProfile {
        SpendProfile {
            limit: Units::from_whole(10_000),
            left: Units::from_whole(left),
            length: Duration::from_secs(86_400),
            per_second: Units::from_whole(per_second),
            max_cost: Units::from_whole(1),
            shortfall: Units::ZERO,
        }
    }

    #[test]
    fn a_lease_follows_the_rate_and_shrinks_to_single_requests() {
        let lease = |left, per_second| spending(left, per_second).size().lease.floor();
        assert_eq!(lease(10_000, 0), 39, "the floor of a quiet quota");
        assert_eq!(lease(10_000, 100), 100, "a second of spending");
        assert_eq!(lease(10_000, 5000), 156, "a 64th at most");
        assert_eq!([100, 10, 3, 2, 1, 0].map(|left| lease(left, 100)), [50, 5, 1, 1, 1, 0]);
        assert_eq!(spending(10_000, 100).size().urgent.floor(), 10);
        let large = SpendProfile { limit: Units::from_whole(100_000_000), ..spending(100_000_000, 0) }.size();
        assert_eq!((large.lease.floor(), large.urgent.floor()), (1024, 256), "a crowd, however much was bought");
    }

    #[test]
    fn what_is_waited_for_is_leased_at_once() {
        let LeaseSize { lease, urgent } =
            SpendProfile { shortfall: Units::from_whole(100), ..spending(10_000, 0) }.size();
        assert_eq!((lease.floor(), urgent.floor()), (100, 100));
        let LeaseSize { lease, urgent: soon } =
            SpendProfile { shortfall: Units::from_whole(9000), ..spending(10_000, 0) }.size();
        assert_eq!((lease.floor(), soon.floor()), (156, 156), "a 64th at most");
    }

    #[test]
    fn a_window_of_a_second_can_be_spent_in_a_few_leases() {
        let spending = SpendProfile { length: Duration::from_secs(1), ..spending(10_000, 10_000) };
        assert_eq!(spending.size().lease, Units::from_whole(2500));
    }

    #[test]
    fn what_weighs_is_in_reach_on_either_side_or_overlaps() {
        let span = |start: u64| Span { start: Timestamp(start), end: Timestamp(start + 10) };
        let sliding = WindowKey { id: 100, span: Some(span(100)), lookback: 3 };
        let weighs = |key: WindowKey, start: u64| key.overlaps(start, Some(span(start)));
        assert_eq!(
            [60, 70, 90, 100, 110, 130, 140].map(|start| weighs(sliding, start)),
            [false, true, true, false, true, true, false]
        );
        let fixed = WindowKey { lookback: 0, ..sliding };
        assert_eq!([90, 95, 100, 105, 110].map(|start| weighs(fixed, start)), [false, true, false, true, false]);
    }

    proptest! {
        #[test]
        fn a_lease_is_never_more_than_what_is_left_nor_than_is_published(
            limit in 1u64..1_000_000_000, left in 0u64..1_000_000_000, seconds in 0u64..100_000,
            per_second in 0u64..1_000_000_000, dearest in 0u64..1_000_000, short in 0u64..1_000_000_000,
        ) {
            let spending = SpendProfile {
                limit: Units::from_milli(limit),
                left: Units::from_milli(left),
                length: Duration::from_secs(seconds),
                per_second: Units::from_milli(per_second),
                max_cost: Units::from_milli(dearest),
                shortfall: Units::from_milli(short),
            };
            let LeaseSize { lease, urgent: soon } = spending.size();
            prop_assert!(soon <= lease && lease <= spending.left && lease <= spending.max_size());
            prop_assert!(lease >= spending.max_cost.min(spending.left), "one request is never kept waiting for size");
        }
    }
}
