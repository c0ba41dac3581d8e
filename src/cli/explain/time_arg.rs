//! Parser of times on the command line.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use tidegate_policy::Timestamp;

/// Parses `2026-11-21T14:00:00Z`, `2026-11-21T14:00` in `zone`, or `14:00` for today.
pub(super) fn read(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Timestamp, String> {
    let error = || format!("{text:?} is not a time; write 2026-11-21T14:00, 2026-11-21T14:00:00Z or 14:00");
    let today = i64::try_from(now.seconds()).ok().and_then(|second| jiff::Timestamp::from_second(second).ok());
    let of_today = |time: Time| Some(today?.to_zoned_datetime(zone.clone()).date().to_datetime(time));
    let local = || {
        let civil = text.parse::<DateTime>().ok().filter(|_| text.contains(':'));
        let civil = civil.or_else(|| text.parse::<Time>().ok().and_then(of_today))?;
        Some(civil.to_zoned_datetime(zone.clone()).ok()?.timestamp())
    };
    let timestamp = text.parse::<jiff::Timestamp>().ok().or_else(local).ok_or_else(error)?;
    u64::try_from(timestamp.as_nanosecond()).map(Timestamp).map_err(|_| error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_defaults_to_local_zone_and_today() {
        let zone = TimeZone::get("America/Los_Angeles").expect("known time zone");
        let now = Timestamp::from_seconds(1_795_294_800); // 2026-11-21T21:00:00Z
        for (text, seconds) in [
            ("2026-11-21T22:00:00Z", 1_795_298_400),
            ("2026-11-21T14:00:00-08:00", 1_795_298_400),
            ("2026-11-21T14:00", 1_795_298_400),
            ("2026-11-21 14:00:00", 1_795_298_400),
            ("14:00", 1_795_298_400),
        ] {
            assert_eq!(read(text, now, &zone), Ok(Timestamp::from_seconds(seconds)), "{text}");
        }
        for text in ["", "noon", "25:00", "2026-11-21", "2026-13-01T00:00", "1969-12-31T23:59:59Z"] {
            assert!(read(text, now, &zone).is_err(), "{text}");
        }
    }
}
