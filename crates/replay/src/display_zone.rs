//! Time zone in which reports show times: that of the first quota with calendar windows, else UTC.

use super::report::Report;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use tidegate_policy as policy;

/// A time zone for display.
pub(super) struct DisplayZone(TimeZone);

impl DisplayZone {
    /// Returns the zone in which the times of `report` are shown.
    pub(super) fn for_report(report: &Report) -> Self {
        let mut quotas = report.policies.iter().flat_map(|policy| &policy.quotas);
        Self::from_name(quotas.find_map(|quota| quota.zone.as_deref()).unwrap_or("UTC"))
    }

    pub(super) fn from_name(name: &str) -> Self {
        Self(TimeZoneDatabase::bundled().get(name).unwrap_or(TimeZone::UTC))
    }

    /// Returns the display name. `Etc/GMT` zones have inverted signs (POSIX), so their offset is shown.
    pub(super) fn name(&self) -> String {
        match self.0.iana_name() {
            Some(name) if name.starts_with("Etc/GMT") => self.format(0, "%:z"),
            Some(name) if !name.starts_with("Etc/") => name.to_owned(),
            _ => "UTC".to_owned(),
        }
    }

    /// Formats a time, in seconds since 1970, with a `strftime` format.
    pub(super) fn format(&self, seconds: i64, format: &str) -> String {
        timestamp(seconds).to_zoned_datetime(self.0.clone()).strftime(format).to_string()
    }

    /// Returns the local time at `seconds`, as seconds since the local start of 1970.
    pub(super) fn local_seconds(&self, seconds: i64) -> i64 {
        seconds + i64::from(self.0.to_offset(timestamp(seconds)).seconds())
    }

    /// Returns the first time at which the local time is `local` or later.
    pub(super) fn utc_seconds(&self, local: i64) -> i64 {
        let datetime: DateTime = TimeZone::UTC.to_datetime(timestamp(local));
        self.0.to_timestamp(datetime).map_or(local, Timestamp::as_second)
    }
}

/// Returns a time in seconds since 1970.
pub(super) fn seconds(time: policy::Timestamp) -> i64 {
    i64::try_from(time.seconds()).unwrap_or(i64::MAX)
}

fn timestamp(seconds: i64) -> Timestamp {
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
    fn fixed_offset_zones_are_shown_as_offsets() {
        for (zone, name) in [
            ("America/Los_Angeles", "America/Los_Angeles"),
            ("Etc/GMT-9", "+09:00"),
            ("Etc/UTC", "UTC"),
            ("UTC", "UTC"),
            ("Mars", "UTC"),
        ] {
            assert_eq!(DisplayZone::from_name(zone).name(), name);
        }
        assert_eq!(DisplayZone::from_name("Etc/GMT-9").format(0, "%-d %b %H:%M"), "1 Jan 09:00");
    }

    proptest! {
        #[test]
        fn local_time_round_trips(seconds in 0..4_000_000_000_i64) {
            let zone = DisplayZone::from_name("America/Los_Angeles");
            let back = zone.utc_seconds(zone.local_seconds(seconds));
            // A local time that occurs twice a year maps to its first occurrence.
            prop_assert!(back == seconds || back == seconds - 3600);
        }
    }
}
