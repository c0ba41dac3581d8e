//! Spenders of the current and the last hour, of one worker.

use tidegate_access_log::{Record, RecordedOutcome};
use tidegate_engine::spenders::{Spenders, SpendingRequest};
use tidegate_policy::Timestamp;

/// Demand by client, network, path and user agent, since the start of the last hour.
#[derive(Debug)]
pub(super) struct RecentSpenders {
    /// Number of the current hour since 1970.
    hour: u64,
    current: Spenders,
    last: Spenders,
}

impl RecentSpenders {
    /// Creates empty tables for the hour of `now`.
    pub(super) fn new(now: Timestamp) -> Self {
        Self { hour: hour(now), current: Spenders::new(MAX_ENTRIES), last: Spenders::new(MAX_ENTRIES) }
    }

    /// Adds a finished request that costs units or was charged. It counts with the first of its quotas: units of different
    /// quotas, such as those of a day and of a month, cannot be added.
    pub(super) fn record(&mut self, record: &Record<'_>) {
        let expected = record.units.charges.first().map(|charge| (charge.cost, charge.charged));
        let unexpected = || record.units.unexpected_costs.first().map(|cost| (cost.charged, cost.charged));
        let Some((cost, charged)) = expected.or_else(unexpected).filter(|(cost, _)| !cost.is_zero()) else { return };
        self.advance_to(record.settled_at);
        self.current.add(&SpendingRequest {
            // The gateway's own requests have a user agent of their own, and no client.
            client: record.request.fill.is_none().then_some(record.client.address),
            key: Some(record.client.key),
            kind: record.client.kind,
            path: record.request.path,
            user_agent: record.request.user_agent,
            cost,
            charged,
            is_refused: matches!(record.decision.outcome, RecordedOutcome::Refused(_)),
            decision: record.id,
        });
    }

    /// Adds the demand of the current and the last hour to `total`.
    pub(super) fn add_to(&mut self, total: &mut Spenders, now: Timestamp) {
        self.advance_to(now);
        total.merge(&self.last);
        total.merge(&self.current);
    }

    fn advance_to(&mut self, now: Timestamp) {
        let passed = hour(now).saturating_sub(self.hour);
        if passed == 0 {
            return;
        }
        self.hour += passed;
        let finished = std::mem::replace(&mut self.current, Spenders::new(MAX_ENTRIES));
        self.last = if passed == 1 { finished } else { Spenders::new(MAX_ENTRIES) };
    }
}

/// Returns the start of the hour before that of `now`.
pub(super) fn covered_since(now: Timestamp) -> Timestamp {
    Timestamp::from_seconds(hour(now).saturating_sub(1) * SECONDS_PER_HOUR)
}

/// Creates tables for the demand of all workers.
pub(super) fn totals() -> Spenders {
    Spenders::new(MAX_ENTRIES)
}

fn hour(time: Timestamp) -> u64 {
    time.seconds() / SECONDS_PER_HOUR
}

const SECONDS_PER_HOUR: u64 = 3600;

/// Entries of each table. A worker has four tables of two hours, about 1.5 MiB if all names are long.
const MAX_ENTRIES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_access_log::sample::{sample_record, sample_with};
    use tidegate_access_log::{QuotaCharge, UnexpectedCost};
    use tidegate_policy::Units;
    use tidegate_policy::cache::CacheFill;

    #[test]
    fn requests_of_the_gateway_itself_have_no_client() {
        let mut spenders = RecentSpenders::new(sample_record().settled_at);
        spenders.record(&sample_with(|it| it.request.fill = Some(CacheFill::Warm)));
        let mut total = totals();
        spenders.add_to(&mut total, sample_record().settled_at);
        let top = total.top(9);
        assert_eq!((top.clients.len(), top.networks.len(), top.user_agents.len()), (0, 0, 1));
    }

    #[test]
    fn units_of_different_quotas_are_not_added() {
        let (record, now) = (sample_record(), sample_record().settled_at);
        let of = |quota_name| QuotaCharge { quota_name, charged: Units::from_whole(3), ..record.units.charges[0] };
        let unexpected = UnexpectedCost { quota_name: "month", charged: Units::from_whole(7), settle_sequence: 1 };
        let charged = |charges: &[QuotaCharge<'_>], unexpected_costs: &[UnexpectedCost<'_>]| {
            let mut spenders = RecentSpenders::new(now);
            spenders.record(&sample_with(|it| {
                it.units.charges = charges;
                it.units.unexpected_costs = unexpected_costs;
            }));
            let mut total = totals();
            spenders.add_to(&mut total, now);
            total.top(9).clients.iter().map(|client| client.demand.units).sum::<Units>()
        };
        assert_eq!(charged(&[of("day"), of("month")], &[]), Units::from_whole(3));
        assert_eq!(charged(&[of("day")], &[unexpected]), Units::from_whole(3));
        assert_eq!(charged(&[], &[unexpected]), Units::from_whole(7));
    }

    #[test]
    fn two_hours_are_kept() {
        let start = sample_record().settled_at;
        let later = |hours: u64| Timestamp(start.0 + hours * SECONDS_PER_HOUR * 1_000_000_000);
        let mut spenders = RecentSpenders::new(start);
        let requests = |spenders: &mut RecentSpenders, now| {
            let mut total = totals();
            spenders.add_to(&mut total, now);
            total.top(9).clients.iter().map(|client| client.demand.requests).sum::<u64>()
        };
        spenders.record(&sample_record());
        spenders.record(&sample_with(|it| it.units.charges = &[]));
        spenders.record(&sample_with(|it| it.settled_at = later(1)));
        assert_eq!(requests(&mut spenders, later(1)), 2, "a free request does not count");
        spenders.record(&sample_record());
        assert_eq!(requests(&mut spenders, later(1)), 3, "a clock that goes back changes nothing");
        assert_eq!(requests(&mut spenders, later(2)), 2);
        assert_eq!(requests(&mut spenders, later(9)), 0);
        assert!(covered_since(later(1)) <= start);
    }
}
