//! Reads the origin's own limits from its response head, in common formats: `Retry-After`, the `RateLimit` of several
//! IETF drafts, `RateLimit-Remaining` and related fields, and `X-RateLimit-*`.

use super::go_duration;
use std::time::{Duration, UNIX_EPOCH};
use tidegate_http_cache::quoted;
use tidegate_http1::{Fields, Name};
use tidegate_policy::quota_sync::MAX_CLOCK_OFFSET;
use tidegate_policy::{Timestamp, Units};

/// Upper bound of a retry time; a longer one is an error or has another meaning.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Remaining units of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct RemainingQuota {
    pub(in crate::gateway) units: Units,
    pub(in crate::gateway) resets_at: Option<Timestamp>,
}

/// Returns the retry time that the origin requests: `Retry-After`, or else the time until an exhausted limit resets.
pub(in crate::gateway) fn retry_after(fields: &Fields, now: Timestamp) -> Option<Duration> {
    let retry_after = fields.get(Name::RetryAfter).and_then(|value| match is_overflow(value) {
        true => Some(MAX_RETRY_AFTER),
        false => time_until(value, fields, now),
    });
    retry_after.or_else(|| exhausted_for(fields, now))
}

/// Returns true for a whole number that overflows, and is therefore certainly long.
fn is_overflow(value: &[u8]) -> bool {
    let digits = value.trim_ascii();
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) && parse_reset_value(digits).is_none()
}

/// Returns the time until an exhausted limit resets.
pub(in crate::gateway) fn exhausted_for(fields: &Fields, now: Timestamp) -> Option<Duration> {
    if let Some(left) = most_restrictive(fields, now) {
        return left
            .resets_at
            .filter(|_| left.units.is_zero())
            .and_then(|reset| nonzero(reset.saturating_duration_since(now)));
    }
    let reset_if_exhausted = |remaining, reset_names: &[Name]| {
        fields.get(remaining).and_then(parse_units).filter(|left| left.is_zero())?;
        reset_names.iter().find_map(|name| time_until(fields.get(*name)?, fields, now))
    };
    reset_if_exhausted(Name::RateLimitRemaining, &[Name::RateLimitReset])
        // Buckets that are refilled in batches report the interval, not the next time.
        .or_else(|| {
            reset_if_exhausted(Name::XRateLimitRemaining, &[Name::XRateLimitReset, Name::XRateLimitIntervalSeconds])
        })
}

/// Returns what the policy `name` of `RateLimit` has left, without regard to case; if there is none, that of the
/// [`most_restrictive`] one.
pub(in crate::gateway) fn of_policy(fields: &Fields, name: &str, now: Timestamp) -> Option<RemainingQuota> {
    let has_name = |item: &[u8]| {
        let found = quoted::split(item, b';').next().unwrap_or_default().trim_ascii();
        let found = found.strip_prefix(b"\"").and_then(|found| found.strip_suffix(b"\"")).unwrap_or(found);
        found.eq_ignore_ascii_case(name.as_bytes())
    };
    most_restrictive_of(fields, has_name, now).or_else(|| most_restrictive(fields, now))
}

/// Returns the policy with the fewest units left, among equals the last one to reset. Accepts all formats of
/// `RateLimit`: `"burst";r=50;t=30, "daily";r=100`, `"burst";a=50;w=30`, `limit=100, remaining=50, reset=30`
/// (draft-ietf-httpapi-ratelimit-headers).
fn most_restrictive(fields: &Fields, now: Timestamp) -> Option<RemainingQuota> {
    most_restrictive_of(fields, |_| true, now)
}

fn most_restrictive_of(fields: &Fields, is_wanted: impl Fn(&[u8]) -> bool, now: Timestamp) -> Option<RemainingQuota> {
    let lines = || fields.all(Name::RateLimit);
    let items = lines().flat_map(|line| quoted::split(line, b',')).filter(|item| is_wanted(item));
    let parse_item = |item| {
        let parameters = || quoted::split(item, b';').skip(1);
        Some((parse_parameter(parameters(), &["r=", "a="])?, parse_parameter(parameters(), &["t=", "w="])))
    };
    let parse_line = |line| {
        let members = || quoted::split(line, b',');
        Some((parse_parameter(members(), &["remaining="])?, parse_parameter(members(), &["reset="])))
    };
    let limits = items.filter_map(parse_item).chain(lines().filter(|line| is_wanted(line)).filter_map(parse_line));
    let (left, reset) = limits.min_by_key(|&(left, reset)| (left, std::cmp::Reverse(reset)))?;
    let resets_at = reset.map(|seconds| now + Duration::from_secs(seconds));
    Some(RemainingQuota { units: Units::from_whole(left), resets_at })
}

fn parse_parameter<'a>(mut members: impl Iterator<Item = &'a [u8]>, keys: &[&str]) -> Option<u64> {
    let digits = members.find_map(|member| {
        let member = member.trim_ascii();
        keys.iter().find_map(|key| member.strip_prefix(key.as_bytes()))
    });
    std::str::from_utf8(digits?).ok()?.parse().ok()
}

/// Parses units such as `12` or `0.25`; a negative value is zero.
pub(in crate::gateway) fn parse_units(value: &[u8]) -> Option<Units> {
    let text = std::str::from_utf8(value).ok()?.trim();
    match text.strip_prefix('-') {
        Some(magnitude) => magnitude.parse::<Units>().ok().map(|_| Units::ZERO),
        None => text.parse().ok(),
    }
}

/// Returns the time until the reset `value`. An absolute time is relative to the origin's clock, given by `Date`.
/// Returns `None` if it has already passed.
fn time_until(value: &[u8], fields: &Fields, now: Timestamp) -> Option<Duration> {
    match parse_reset_value(value)? {
        ResetValue::Delta(wait) => nonzero(wait),
        ResetValue::At(reset) => {
            let origin_now = fields.get(Name::Date).and_then(|value| parse_date(std::str::from_utf8(value).ok()?));
            nonzero(reset.saturating_duration_since(origin_now.unwrap_or(now)))
        }
    }
}

fn nonzero(wait: Duration) -> Option<Duration> {
    (!wait.is_zero()).then(|| wait.min(MAX_RETRY_AFTER))
}

/// Time at which a response was made.
#[derive(Clone, Copy, Debug)]
pub(in crate::gateway) struct ResponseTime {
    /// Time by the clock of the gateway.
    pub(in crate::gateway) made_at: Timestamp,
    /// Time by the clock of the origin.
    pub(in crate::gateway) dated: Option<Timestamp>,
}

impl ResponseTime {
    /// Returns the time at which a response that was received at `now`, with `age` in caches, was made.
    pub(in crate::gateway) fn new(fields: &Fields, age: Duration, now: Timestamp) -> Self {
        let dated = fields.get(Name::Date).and_then(|value| parse_date(std::str::from_utf8(value).ok()?));
        Self { made_at: now - age, dated }
    }

    /// Returns a time of the origin's clock by that of the gateway. A `Date` that is far off is not that of a clock.
    fn by_own_clock(self, time: Timestamp) -> Timestamp {
        let Some(dated) = self.dated else { return time };
        let ahead = dated.saturating_duration_since(self.made_at);
        let behind = self.made_at.saturating_duration_since(dated);
        // `Date` has whole seconds.
        match ahead.max(behind) {
            offset if offset < Duration::from_secs(1) || offset > MAX_CLOCK_OFFSET => time,
            _ => time - ahead + behind,
        }
    }
}

/// Parses a reset time in any common format: seconds from the time of the response, a duration such as `6m0s`, seconds or
/// milliseconds since 1970, an HTTP date (RFC 9110 section 5.6.7), RFC 3339.
pub(in crate::gateway) fn parse_reset(value: &[u8], response: ResponseTime) -> Option<Timestamp> {
    Some(match parse_reset_value(value)? {
        ResetValue::Delta(wait) => response.made_at + wait,
        ResetValue::At(reset) => response.by_own_clock(reset),
    })
}

enum ResetValue {
    Delta(Duration),
    At(Timestamp),
}

/// Minimum of a number that is an absolute time; a smaller one is in seconds from now, because thirty years are no
/// wait.
const MIN_EPOCH_SECONDS: f64 = 1e9;
/// Minimum of a number in milliseconds since 1970.
const MIN_EPOCH_MILLIS: f64 = 1e11;

fn parse_reset_value(value: &[u8]) -> Option<ResetValue> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let since_1970 = |seconds| ResetValue::At(Timestamp::default() + Duration::from_secs_f64(seconds));
    match text.parse::<f64>() {
        Ok(seconds) if !(0.0..1e15).contains(&seconds) => None,
        Ok(seconds) if seconds < MIN_EPOCH_SECONDS => Some(ResetValue::Delta(Duration::from_secs_f64(seconds))),
        Ok(seconds) if seconds < MIN_EPOCH_MILLIS => Some(since_1970(seconds)),
        Ok(milliseconds) => Some(since_1970(milliseconds / 1e3)),
        Err(_) => go_duration::parse(text).map(ResetValue::Delta).or_else(|| parse_date(text).map(ResetValue::At)),
    }
}

fn parse_date(text: &str) -> Option<Timestamp> {
    if let Ok(time) = httpdate::parse_http_date(text) {
        return Some(Timestamp::default() + time.duration_since(UNIX_EPOCH).ok()?);
    }
    let nanoseconds = text.parse::<jiff::Timestamp>().ok()?.as_nanosecond();
    Some(Timestamp(u64::try_from(nanoseconds).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

    fn requested_backoff_s(fields: &[(&'static str, &'static str)]) -> Option<u64> {
        retry_after(&fields.iter().copied().collect(), NOW).map(|wait| wait.as_secs())
    }

    #[test]
    fn absurd_numbers_request_no_more_than_a_week() {
        for fields in [
            &[("retry-after", "999999999999999")][..],
            &[("retry-after", "99999999999999999999999999")],
            &[("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT")],
            &[("ratelimit", "\"a\";r=0;t=18446744073709551615")],
            &[("ratelimit-remaining", "0"), ("ratelimit-reset", "999999999")],
            &[("x-ratelimit-remaining", "-9"), ("x-ratelimit-reset", "99999999999999")],
        ] {
            assert_eq!(requested_backoff_s(fields), Some(7 * 86_400), "{fields:?}");
        }
        for fields in [&[("retry-after", "1e300")][..], &[("retry-after", "-1")], &[("retry-after", "NaN")]] {
            assert_eq!(requested_backoff_s(fields), None, "{fields:?}");
        }
    }

    #[test]
    fn retry_after_is_parsed_in_every_form() {
        for (value, seconds) in [
            ("5", Some(5)),
            ("2.0", Some(2)),
            (" 7 ", Some(7)),
            ("Fri, 15 Jan 2027 08:01:00 GMT", Some(60)),
            ("Friday, 15-Jan-27 08:01:00 GMT", Some(60)),
            ("Fri Jan 15 08:01:00 2027", Some(60)),
            ("2027-01-15T08:01:00Z", Some(60)),
            ("2027-01-15T09:01Z", Some(3660)),
            ("2027-01-15T09:01:00+01:00", Some(60)),
            ("1800000030", Some(30)),
            ("1800000030.5", Some(30)),
            ("1800000030000", Some(30)),
            ("6m0s", Some(360)),
            ("-6m0s", None),
            ("99999999", Some(7 * 86_400)),
            ("0", None),
            ("Fri, 15 Jan 2021 08:01:00 GMT", None),
            ("soon", None),
            ("-5", None),
            ("+-5", None),
            ("NaN", None),
            ("1e300", None),
            ("99999999999999999999", Some(7 * 86_400)),
            (" 99999999999999999999999999 ", Some(7 * 86_400)),
            ("00000000000000000000", None),
            ("-99999999999999999999", None),
            ("", None),
        ] {
            assert_eq!(requested_backoff_s(&[("Retry-After", value)]), seconds, "{value:?}");
        }
    }

    #[test]
    fn retry_after_date_is_relative_to_origin_date() {
        let date = ("Date", "Fri, 15 Jan 2027 09:00:00 GMT");
        assert_eq!(requested_backoff_s(&[date, ("Retry-After", "Fri, 15 Jan 2027 09:00:09 GMT")]), Some(9));
        assert_eq!(requested_backoff_s(&[date, ("Retry-After", "9")]), Some(9));
        assert_eq!(
            requested_backoff_s(&[("Date", "today"), ("Retry-After", "Fri, 15 Jan 2027 08:00:09 GMT")]),
            Some(9)
        );
    }

    #[test]
    fn exhausted_limit_requests_backoff_until_its_reset() {
        for (fields, seconds) in [
            (&[("RateLimit", "\"a\";r=0;t=7")][..], Some(7)),
            (&[("RateLimit", "\"a\";r=0;t=7, \"b\";r=3;t=90, \"c;r=0;t=99\";r=0;t=20")], Some(20)),
            (&[("RateLimit", "\"a\";r=5;t=7"), ("RateLimit", "\"b\";r=0;t=9")], Some(9)),
            (&[("RateLimit", "\"a\";r=1;t=7")], None),
            (&[("RateLimit", "\"a\";r=0")], None),
            (&[("RateLimit", "\"a\";a=0;w=8")], Some(8)),
            (&[("RateLimit", "limit=100, remaining=0, reset=5")], Some(5)),
            (&[("RateLimit", "limit=100, remaining=50, reset=5")], None),
            (&[("RateLimit-Remaining", "0"), ("RateLimit-Reset", "17")], Some(17)),
            (&[("RateLimit-Remaining", "1"), ("RateLimit-Reset", "17")], None),
            (&[("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "1800000030")], Some(30)),
            (&[("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "30")], Some(30)),
            (&[("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "2027-01-15T08:00:30Z")], Some(30)),
            (&[("X-RateLimit-Remaining", "-2"), ("X-RateLimit-Reset", "1800000030000")], Some(30)),
            (&[("X-RateLimit-Remaining", "0"), ("X-RateLimit-Interval-Seconds", "10")], Some(10)),
            (&[("X-RateLimit-Remaining", "4"), ("X-RateLimit-Interval-Seconds", "10")], None),
            (&[("X-RateLimit-Remaining", "none"), ("X-RateLimit-Reset", "30")], None),
            (&[("X-RateLimit-Reset", "30")], None),
        ] {
            assert_eq!(requested_backoff_s(fields), seconds, "{fields:?}");
            assert_eq!(exhausted_for(&fields.iter().copied().collect(), NOW).map(|wait| wait.as_secs()), seconds);
        }
    }

    #[test]
    fn retry_after_and_newer_header_forms_take_precedence() {
        let exhausted = ("RateLimit", "\"a\";r=0;t=7");
        assert_eq!(requested_backoff_s(&[exhausted, ("Retry-After", "5")]), Some(5));
        assert_eq!(requested_backoff_s(&[exhausted, ("Retry-After", "0")]), Some(7), "a wait of zero is ignored");
        let legacy = [("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "30")];
        assert_eq!(requested_backoff_s(&[legacy[0], legacy[1], exhausted]), Some(7));
        assert_eq!(requested_backoff_s(&[legacy[0], legacy[1], ("RateLimit", "\"a\";r=1;t=7")]), None);
        let fields: Fields = [("Retry-After", "5")].into_iter().collect();
        assert_eq!(exhausted_for(&fields, NOW), None, "Retry-After is not a limit");
    }
}
