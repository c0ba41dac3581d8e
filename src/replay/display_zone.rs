//! By whose clocks people are shown times: those of the first quota whose windows go by a calendar, else UTC.

use super::report::Report;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{TimeZone, TimeZoneDatabase};

/// The clocks of one zone.
pub(super) struct DisplayZone(TimeZone);

impl DisplayZone {
    /// The one that a report is told in.
    pub(super) fn of(report: &Report) -> Self {
        let mut quotas = report.policies.iter().flat_map(|policy| &policy.quotas);
        Self::named(quotas.find_map(|quota| quota.zone.as_deref()).unwrap_or("UTC"))
    }

    pub(super) fn named(name: &str) -> Self {
        Self(TimeZoneDatabase::bundled().get(name).unwrap_or(TimeZone::UTC))
    }

    /// What people call it: those of `Etc` count to the west, so they are told by what their clocks show.
    pub(super) fn name(&self) -> String {
        match self.0.iana_name() {
            Some(name) if name.starts_with("Etc/GMT") => self.format(0, "%:z"),
            Some(name) if !name.starts_with("Etc/") => name.to_owned(),
            _ => "UTC".to_owned(),
        }
    }

    /// A moment in seconds since 1970, in the form of `strftime`.
    pub(super) fn format(&self, seconds: i64, form: &str) -> String {
        moment(seconds).to_zoned(self.0.clone()).strftime(form).to_string()
    }

    /// What its clocks show, in seconds since they showed the beginning of 1970 ...
    pub(super) fn local(&self, seconds: i64) -> i64 {
        seconds + i64::from(self.0.to_offset(moment(seconds)).seconds())
    }

    /// ... and the first moment at which they show that, or something later.
    pub(super) fn moment_of(&self, local: i64) -> i64 {
        let shown: DateTime = TimeZone::UTC.to_datetime(moment(local));
        self.0.to_timestamp(shown).map_or(local, Timestamp::as_second)
    }
}

/// Seconds since 1970 of a time of the report.
pub(super) fn seconds(time: &str) -> i64 {
    time.parse::<Timestamp>().map_or(0, Timestamp::as_second)
}

fn moment(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap_or_default()
}

impl Default for DisplayZone {
    fn default() -> Self {
        Self(TimeZone::UTC)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_zone_is_called_as_people_call_it() {
        for (zone, name) in [
            ("America/Los_Angeles", "America/Los_Angeles"),
            ("Etc/GMT-9", "+09:00"),
            ("Etc/UTC", "UTC"),
            ("UTC", "UTC"),
            ("Mars", "UTC"),
        ] {
            assert_eq!(DisplayZone::named(zone).name(), name);
        }
        assert_eq!(DisplayZone::named("Etc/GMT-9").format(0, "%-d %b %H:%M"), "1 Jan 09:00");
    }

    proptest! {
        #[test]
        fn what_clocks_show_leads_back_to_the_moment(seconds in 0..4_000_000_000_i64) {
            let zone = DisplayZone::named("America/Los_Angeles");
            let back = zone.moment_of(zone.local(seconds));
            // What is shown twice a year leads to the first time.
            prop_assert!(back == seconds || back == seconds - 3600);
        }
    }
}
