//! The same day without a gateway: when the quota is used up, and whom the closed site turns away.

use super::origin::OriginCounters;
use super::scoreboard::ClientGroup;
use super::traffic::{DemoRequest, UnitsByHour, hour};
use std::time::Duration;

/// Outcome of the day without a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnprotectedDay {
    /// Time at which the quota is used up; `None` if it lasts.
    pub(super) closed_at: Option<Duration>,
    /// Number of people's requests for pages with a cost after that.
    pub(super) people_refused: u64,
    pub(super) units_by_hour: UnitsByHour,
}

impl UnprotectedDay {
    /// Serves `day` in order until `limit` units are used.
    pub(super) fn new(day: &[DemoRequest], limit: u64) -> Self {
        let mut origin = OriginCounters::default();
        let mut outcome = Self { closed_at: None, people_refused: 0, units_by_hour: [0; 24] };
        for request in day {
            if outcome.closed_at.is_none() {
                outcome.units_by_hour[hour(request.at)] += origin.record(&request.path);
                outcome.closed_at = (origin.units() >= limit).then_some(request.at);
            } else if request.cost > 0 && ClientGroup::from_request(request) == ClientGroup::People {
                outcome.people_refused += 1;
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::super::day;
    use super::*;

    #[test]
    fn site_closes_once_the_units_are_used_up() {
        let day = day::generate(1, 0.25);
        let outcome = UnprotectedDay::new(&day, 2000);
        let closed_at = outcome.closed_at.expect("crawlers use up 2,000 units");
        let (before, after) = outcome.units_by_hour.split_at(hour(closed_at) + 1);
        assert!((2000..2010).contains(&before.iter().sum::<u64>()) && after.iter().all(|units| *units == 0));
        let costly_requests_of_people = day
            .iter()
            .filter(|request| request.at > closed_at && request.cost > 0 && request.actor == "people")
            .count() as u64;
        assert!(outcome.people_refused > 0 && outcome.people_refused >= costly_requests_of_people);
        let rich = UnprotectedDay::new(&day, u64::MAX);
        assert_eq!((rich.closed_at, rich.people_refused), (None, 0));
    }
}
