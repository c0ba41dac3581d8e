//! Synchronization with the origin's own count of a quota.
//!
//! [`reconcile`] derives the count from a response; it can only tighten the gateway's count.

use super::Timestamp;
use super::units::Units;
use super::window::Span;
use std::time::Duration;

/// Quota state that a response of the origin reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginReport {
    /// Remaining units.
    pub remaining: Option<Units>,
    /// Reset time.
    pub resets_at: Option<Timestamp>,
    /// Time of `Retry-After`: when a quota that is exhausted may be open again.
    pub retry_at: Option<Timestamp>,
    /// True if the request was refused because the quota is exhausted.
    pub exhausted: bool,
    /// Time at which the response was made, by its age in caches; `None` for now.
    pub made_at: Option<Timestamp>,
    /// Time at which the response was made, by the clock of the origin (`Date`).
    pub dated: Option<Timestamp>,
}

/// Local count of the same window.
#[derive(Clone, Copy, Debug)]
pub struct LocalCount {
    /// Limit of the window, in units.
    pub limit: Units,
    /// Settled units.
    pub used: Units,
    /// Units reserved for requests in flight; the origin may or may not have counted them yet.
    pub reserved: Units,
    /// Span of the window.
    pub span: Span,
    /// True if the window ends at one time; false for sliding windows.
    pub has_fixed_end: bool,
    /// Nominal window length; `span` of a sliding window is only a sub-window.
    pub length: Duration,
}

/// Result of [`reconcile`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncResult {
    /// Units that count as taken from now on, if more than the local count.
    pub taken: Units,
    /// Time until which all requests are refused, if the quota is exhausted and the time is not over.
    pub closed_until: Option<Timestamp>,
    /// Units that the origin counted beyond the local count, in milli-units; negative if it counted fewer. `None` if
    /// the report is for another window.
    pub drift: Option<i64>,
    /// Reset time of a count that is ignored, because it is neither of this window nor of the one before.
    pub other_window: Option<Timestamp>,
}

/// Event to log, derived from the origin's quota headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginQuotaEvent {
    /// The origin reports the quota as exhausted; requests are refused until this time.
    Exhausted {
        /// Reset time reported by the origin.
        until: Timestamp,
    },
    /// The origin counts more units than the gateway; fewer if negative.
    Drift {
        /// Drift, in milli-units.
        milli: i64,
    },
    /// The reported count is ignored, because its window resets at this time, which is not that of the quota.
    OtherWindow {
        /// Reset time reported by the origin.
        resets_at: Timestamp,
    },
}

/// Maximum offset between the window ends of origin and gateway, as a divisor of the window length.
const WINDOW_END_TOLERANCE_DIVISOR: u32 = 20;
/// Minimum of [`WINDOW_END_TOLERANCE_DIVISOR`] applied: origins report whole seconds, and clocks differ.
const MIN_TOLERANCE: Duration = Duration::from_secs(2);
/// Time after the start of a window during which a report without a reset time may be for the previous window.
const WINDOW_START_GRACE: Duration = Duration::from_secs(60);
/// Upper bound of [`WINDOW_START_GRACE`], as a divisor of the window length.
const GRACE_DIVISOR: u32 = 100;
/// A reset time is ignored if it lies further ahead than the window length plus this slack.
const RESET_TIME_SLACK: Duration = Duration::from_secs(3600);

/// A clock that differs more from that of the gateway is not that of an origin: a cache has kept the response.
pub const MAX_CLOCK_OFFSET: Duration = Duration::from_secs(600);
/// Length of a window up to which a `Date` before it may be one of a clock that is behind.
const MAX_OFFSET_WINDOW: Duration = Duration::from_secs(10 * MAX_CLOCK_OFFSET.as_secs());

/// Reconciles the local count with a report received at `now`.
pub fn reconcile(report: OriginReport, local: LocalCount, now: Timestamp) -> SyncResult {
    let remaining = if report.exhausted { Some(Units::ZERO) } else { report.remaining };
    let Some(remaining) = remaining.filter(|_| !is_stale(&report, local, now)) else { return SyncResult::default() };
    let stated = if report.exhausted { usable_reset(&report, local, now) } else { None };
    let resets_at = stated.or(report.resets_at);
    let closed_until = report.exhausted.then(|| stated.unwrap_or(local.span.end)).filter(|until| *until > now);
    let reported = local.limit.saturating_sub(remaining);
    if local.has_fixed_end && stated.is_some_and(|reset| reset + MIN_TOLERANCE < local.span.end) {
        // The origin accepts requests again before the window ends: another limit than that of the window was reached.
        return SyncResult { closed_until, ..SyncResult::default() };
    }
    match window_of(resets_at, reported, local, now) {
        ReportedWindow::Current => {}
        ReportedWindow::Previous => return SyncResult { closed_until, ..SyncResult::default() },
        ReportedWindow::Other => {
            let other_window = resets_at.filter(|_| !report.exhausted);
            return SyncResult { closed_until, other_window, ..SyncResult::default() };
        }
    }
    let taken = local.used.saturating_add(local.reserved);
    let drift = match reported.milli().checked_sub(taken.milli()) {
        Some(excess) => signed(excess),
        None => -signed(local.used.saturating_sub(reported).milli()),
    };
    SyncResult { taken: reported, closed_until, drift: Some(drift), other_window: None }
}

/// Window that a report is for.
enum ReportedWindow {
    Current,
    /// The one before, in a response that arrived late.
    Previous,
    Other,
}

/// Returns the window of a report of `used` units: the current one if both end at the same time, as far as known.
fn window_of(resets_at: Option<Timestamp>, used: Units, local: LocalCount, now: Timestamp) -> ReportedWindow {
    let (span, length) = (local.span, local.length);
    let tolerance = (length / WINDOW_END_TOLERANCE_DIVISOR).max(MIN_TOLERANCE);
    let is_near = |reset: Timestamp, end| {
        reset.saturating_duration_since(end).max(end.saturating_duration_since(reset)) <= tolerance
    };
    let is_late = || now.saturating_duration_since(span.start) < WINDOW_START_GRACE.min(length / GRACE_DIVISOR);
    match resets_at {
        Some(reset) if !local.has_fixed_end => {
            // The units of a sliding window, like those of a bucket, renew gradually: after twice the time until all have,
            // the window would be over. A much earlier or later time belongs to another limit.
            let share = used.as_f64() / local.limit.as_f64().max(f64::MIN_POSITIVE);
            let earliest = (length / 2).mul_f64(share.clamp(0.0, 1.0));
            let wait = reset.saturating_duration_since(now);
            match wait.saturating_add(MIN_TOLERANCE) >= earliest && wait <= length + RESET_TIME_SLACK {
                true => ReportedWindow::Current,
                false => ReportedWindow::Other,
            }
        }
        Some(reset) if is_near(reset, span.end) => ReportedWindow::Current,
        Some(reset) if is_near(reset, span.start) => ReportedWindow::Previous,
        Some(_) => ReportedWindow::Other,
        None if local.has_fixed_end && is_late() => ReportedWindow::Previous,
        None => ReportedWindow::Current,
    }
}

/// Returns true if a cache has kept the response since before the window, or since all units of a sliding window were others.
fn is_stale(report: &OriginReport, local: LocalCount, now: Timestamp) -> bool {
    let by_age = report.made_at.unwrap_or(now);
    let is_dated = |date: &Timestamp| {
        let offset = by_age.saturating_duration_since(*date);
        offset > MAX_CLOCK_OFFSET || local.length >= MAX_OFFSET_WINDOW
    };
    let made_at = report.dated.filter(is_dated).map_or(by_age, |date| by_age.min(date));
    match local.has_fixed_end {
        true => made_at < local.span.start,
        false => now.saturating_duration_since(made_at) >= local.length,
    }
}

/// Returns the first time of a report of exhaustion that may be that of a reset. A time that is over, by less than a window, means
/// that the quota is open again.
fn usable_reset(report: &OriginReport, local: LocalCount, now: Timestamp) -> Option<Timestamp> {
    let (earliest, latest) = (now - local.length, now + local.length + RESET_TIME_SLACK);
    [report.resets_at, report.retry_at].into_iter().flatten().find(|reset| (earliest..=latest).contains(reset))
}

fn signed(milli: u64) -> i64 {
    i64::try_from(milli).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Span = Span { start: Timestamp::from_seconds(86_400), end: Timestamp::from_seconds(2 * 86_400) };
    const NOON: Timestamp = Timestamp::from_seconds(86_400 + 43_200);
    const NOON_BEFORE: Timestamp = Timestamp::from_seconds(43_200);

    fn local_count(used: u64, reserved: u64) -> LocalCount {
        let [limit, used, reserved] = [100, used, reserved].map(Units::from_whole);
        LocalCount { limit, used, reserved, span: DAY, has_fixed_end: true, length: DAY.length() }
    }

    fn reported_remaining(units: u64) -> OriginReport {
        OriginReport { remaining: Some(Units::from_whole(units)), ..OriginReport::default() }
    }

    fn drift(report: OriginReport, local: LocalCount) -> Option<i64> {
        reconcile(report, local, NOON).drift.map(|milli| milli / 1000)
    }

    #[test]
    fn in_flight_requests_explain_drift() {
        assert_eq!(drift(reported_remaining(60), local_count(40, 0)), Some(0));
        assert_eq!(
            drift(reported_remaining(58), local_count(40, 5)),
            Some(0),
            "the origin counted two of five in flight"
        );
        assert_eq!(drift(reported_remaining(50), local_count(40, 5)), Some(5), "five units were used elsewhere");
        assert_eq!(drift(reported_remaining(70), local_count(40, 5)), Some(-10));
        assert_eq!(drift(reported_remaining(500), local_count(40, 5)), Some(-40), "remaining exceeds the limit");
        assert_eq!(drift(OriginReport::default(), local_count(40, 5)), None, "empty report");
    }

    #[test]
    fn reported_usage_is_applied_when_higher() {
        assert_eq!(reconcile(reported_remaining(50), local_count(40, 5), NOON).taken, Units::from_whole(50));
        assert_eq!(reconcile(reported_remaining(0), local_count(40, 5), NOON).taken, Units::from_whole(100));
    }

    #[test]
    fn report_of_another_window_is_ignored() {
        let report_resetting =
            |at: u64| OriginReport { resets_at: Some(Timestamp::from_seconds(at)), ..reported_remaining(3) };
        assert_eq!(drift(report_resetting(2 * 86_400 + 600), local_count(40, 0)), Some(57), "ends 10 min apart match");
        assert_eq!(drift(report_resetting(2 * 86_400 - 600), local_count(40, 0)), Some(57));
        assert_eq!(drift(report_resetting(2 * 86_400 + 30_000), local_count(40, 0)), None);
        assert_eq!(drift(report_resetting(86_400 + 44_000), local_count(40, 0)), None);
        let result = reconcile(reported_remaining(3), local_count(0, 1), DAY.start + Duration::from_secs(30));
        assert_eq!(result, SyncResult::default(), "within the grace time");
        assert_eq!(
            reconcile(reported_remaining(3), local_count(0, 1), DAY.start + Duration::from_secs(60)).taken,
            Units::from_whole(97)
        );
        let sliding = LocalCount { has_fixed_end: false, ..local_count(40, 0) };
        assert_eq!(drift(report_resetting(86_400 + 43_200 + 44_000), sliding), Some(57));
        assert_eq!(drift(report_resetting(86_400 + 43_203), sliding), None, "a per-second limit");
        assert_eq!(drift(reported_remaining(3), sliding), Some(57));
    }

    #[test]
    fn exhausted_origin_closes_the_quota_until_reset() {
        let exhausted = |resets_at| OriginReport { exhausted: true, resets_at, ..reported_remaining(9) };
        let closed = |at: u64| {
            let result = reconcile(exhausted(Some(Timestamp::from_seconds(at))), local_count(40, 0), NOON);
            (result.closed_until.map(Timestamp::seconds), result.taken)
        };
        let end = Some(2 * 86_400);
        assert_eq!(reconcile(exhausted(None), local_count(40, 0), NOON).closed_until, Some(DAY.end));
        assert_eq!(closed(2 * 86_400 + 60), (Some(2 * 86_400 + 60), Units::from_whole(100)));
        assert_eq!(closed(86_400 + 43_260), (Some(86_400 + 43_260), Units::ZERO), "an earlier reset time");
        assert_eq!(closed(86_400 + 43_000), (None, Units::ZERO), "a time that is over closes nothing");
        assert_eq!(closed(40_000), (end, Units::ZERO), "a reset time before the last window is ignored");
        assert_eq!(closed(9_000_000), (end, Units::ZERO), "a far reset time is ignored");
    }

    #[test]
    fn sliding_window_matches_reports_that_reset_a_length_ahead() {
        let sliding = LocalCount { has_fixed_end: false, ..local_count(40, 0) };
        let report = OriginReport { resets_at: Some(NOON + DAY.length()), ..reported_remaining(3) };
        assert_eq!(drift(report, sliding), Some(57));
        assert_eq!(drift(report, local_count(40, 0)), None, "a window with a fixed end ends earlier");
        let at_start = reconcile(reported_remaining(3), sliding, DAY.start);
        assert_eq!(at_start.taken, Units::from_whole(97), "no grace time, because usage renews gradually");
    }

    #[test]
    fn sliding_window_matches_a_bucket_that_refills() {
        let minute = Duration::from_secs(60);
        let sliding = LocalCount { has_fixed_end: false, length: minute, ..local_count(0, 1) };
        let taken = |remaining: u64, wait_ms: u64| {
            let resets_at = Some(NOON + Duration::from_millis(wait_ms));
            let result = reconcile(OriginReport { resets_at, ..reported_remaining(remaining) }, sliding, NOON);
            assert_eq!(result.other_window, resets_at.filter(|_| result.drift.is_none()));
            result.drift.map(|_| result.taken.floor())
        };
        assert_eq!(taken(100, 0), Some(0), "full");
        assert_eq!(taken(99, 600), Some(1));
        assert_eq!(taken(50, 30_000), Some(50));
        assert_eq!(taken(50, 12_000), None, "a shorter limit");
        assert_eq!(taken(0, 60_000), Some(100));
        assert_eq!(taken(0, 360_000), Some(100), "a bucket that refills slowly");
        assert_eq!(taken(0, 1_000), None, "a limit of a second");
        assert_eq!(taken(0, 4_000_000), None, "a far time");
    }

    #[test]
    fn ignored_count_is_named_unless_it_is_late() {
        let other_window = |at: u64, exhausted| {
            let resets_at = Some(Timestamp::from_seconds(at));
            let report = OriginReport { resets_at, exhausted, ..reported_remaining(3) };
            reconcile(report, local_count(40, 0), NOON).other_window.map(Timestamp::seconds)
        };
        assert_eq!(other_window(2 * 86_400, false), None, "the same window");
        assert_eq!(other_window(86_400 + 10, false), None, "the window before");
        for at in [0, 86_400 + 50_000, 9_000_000] {
            assert_eq!(other_window(at, false), Some(at));
            assert_eq!(other_window(at, true), None, "a closure has a time of its own");
        }
    }

    #[test]
    fn grace_time_of_a_short_window_is_a_hundredth_of_it() {
        let span = Span { end: DAY.start + Duration::from_secs(100), ..DAY };
        let local = LocalCount { span, length: span.length(), ..local_count(0, 1) };
        let taken =
            |after: u64| reconcile(reported_remaining(3), local, DAY.start + Duration::from_millis(after)).taken;
        assert_eq!((taken(999), taken(1000)), (Units::ZERO, Units::from_whole(97)));
    }

    #[test]
    fn reset_time_is_after_now_and_within_a_window_and_an_hour() {
        let closed_until = |resets_at| {
            let report = OriginReport { exhausted: true, resets_at: Some(resets_at), ..OriginReport::default() };
            reconcile(report, local_count(40, 0), NOON).closed_until
        };
        let latest = NOON + DAY.length() + Duration::from_secs(3600);
        for valid in [NOON + Duration::from_millis(1), latest] {
            assert_eq!(closed_until(valid), Some(valid));
        }
        for over in [NOON, NOON_BEFORE] {
            assert_eq!(closed_until(over), None, "the quota is open again");
        }
        for invalid in [NOON_BEFORE - Duration::from_millis(1), latest + Duration::from_millis(1)] {
            assert_eq!(closed_until(invalid), Some(DAY.end));
        }
    }

    #[test]
    fn usable_retry_time_replaces_an_unusable_reset_time() {
        let closed_until = |resets_at: Option<u64>, retry_at: u64| {
            let at = Timestamp::from_seconds;
            let report = OriginReport {
                exhausted: true,
                resets_at: resets_at.map(at),
                retry_at: Some(at(retry_at)),
                ..OriginReport::default()
            };
            let result = reconcile(report, local_count(40, 0), NOON);
            (result.closed_until.map(Timestamp::seconds), result.taken)
        };
        let noon = NOON.seconds();
        for resets_at in [None, Some(9_000_000), Some(1)] {
            assert_eq!(closed_until(resets_at, noon + 60), (Some(noon + 60), Units::ZERO), "{resets_at:?}");
            assert_eq!(closed_until(resets_at, noon), (None, Units::ZERO), "{resets_at:?}");
        }
        assert_eq!(closed_until(Some(noon + 5), noon + 60).0, Some(noon + 5));
        assert_eq!(closed_until(Some(9_000_000), 1).0, Some(DAY.end.seconds()));
    }

    #[test]
    fn short_pause_near_the_end_of_a_window_uses_up_no_units() {
        let now = DAY.end - Duration::from_secs(600);
        let report = |wait| OriginReport {
            exhausted: true,
            retry_at: Some(now + Duration::from_secs(wait)),
            ..OriginReport::default()
        };
        for (wait, taken) in [(0, 0), (1, 0), (60, 0), (600, 100)] {
            assert_eq!(reconcile(report(wait), local_count(40, 0), now).taken, Units::from_whole(taken), "{wait}");
        }
    }

    #[test]
    fn response_that_a_cache_kept_since_before_the_window_is_no_count() {
        let before = DAY.start - Duration::from_secs(1);
        for exhausted in [false, true] {
            let report = OriginReport { exhausted, ..reported_remaining(0) };
            let taken = |made_at, dated| {
                let result = reconcile(OriginReport { made_at, dated, ..report }, local_count(40, 0), NOON);
                (result.taken.floor(), result.closed_until.is_some())
            };
            assert_eq!([taken(Some(before), None), taken(None, Some(before))], [(0, false); 2]);
            for kept in [taken(Some(DAY.start), None), taken(None, Some(DAY.start)), taken(None, Some(DAY.end))] {
                assert_eq!(kept, (100, exhausted), "it is of this window");
            }
            // A clock that is two minutes behind makes no report of a window of a minute one of the window before.
            let minute = Duration::from_secs(60);
            let span = Span { start: NOON - Duration::from_secs(30), end: NOON + Duration::from_secs(30) };
            for has_fixed_end in [true, false] {
                let local = LocalCount { span, length: minute, has_fixed_end, ..local_count(0, 0) };
                let taken = |age: u64| {
                    let dated = Some(NOON - Duration::from_secs(age));
                    reconcile(OriginReport { dated, ..report }, local, NOON).taken.floor()
                };
                assert_eq!([taken(120), taken(600), taken(601)], [100, 100, 0], "{has_fixed_end}");
            }
        }
    }
}
