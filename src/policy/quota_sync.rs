//! The origin keeps a count of its own, and its answers tell of it. What it says can only tighten ours.

use super::time::Timestamp;
use super::units::Units;
use super::window::Span;
use std::time::Duration;

/// What an answer says of a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginReport {
    /// Units that are left.
    pub remaining: Option<Units>,
    /// When they are renewed.
    pub resets_at: Option<Timestamp>,
    /// It was refused, because nothing is left.
    pub exhausted: bool,
}

/// Where our own count of the same window stands.
#[derive(Clone, Copy, Debug)]
pub struct LocalCount {
    /// Units that were bought for the window.
    pub limit: Units,
    /// Units that are settled.
    pub used: Units,
    /// Units that are set aside for requests under way: the origin may have counted them, or not yet.
    pub reserved: Units,
    /// When the window is.
    pub span: Span,
    /// It ends at one moment, as a sliding one does not.
    pub has_fixed_end: bool,
    /// How long a usual window is; of a sliding one `span` is but a part.
    pub length: Duration,
}

/// What follows from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncResult {
    /// So much counts as taken in all from now on, if it is more than what does already.
    pub taken: Units,
    /// Nothing is let through before this moment.
    pub closed_until: Option<Timestamp>,
    /// What the origin has counted beyond ours, in thousandths; below zero where it has counted less. `None` where it
    /// speaks of another window.
    pub drift: Option<i64>,
}

/// An origin's window may begin this part of ours later or earlier and still be the same.
const TOLERANCE: u32 = 20;
/// So long after our window began an origin that does not say when its own ends may still speak of the one before, ...
const GRACE: Duration = Duration::from_secs(60);
/// ... but no longer than this part of it.
const GRACE_PART: u32 = 100;
/// A time of renewal further away than our own window is long, and this, is not believed.
const SLACK: Duration = Duration::from_secs(3600);

/// Says what to make of an answer that was received at `now`.
pub fn reconcile(said: OriginReport, ours: LocalCount, now: Timestamp) -> SyncResult {
    let remaining = if said.exhausted { Some(Units::ZERO) } else { said.remaining };
    let closed_until = said.exhausted.then(|| reset_time(said.resets_at, ours, now));
    if !(is_same_window(said.resets_at, ours, now)) {
        return SyncResult { closed_until, ..SyncResult::default() };
    }
    let Some(remaining) = remaining else { return SyncResult::default() };
    let counted = ours.limit.saturating_sub(remaining);
    let taken = ours.used.saturating_add(ours.reserved);
    let drift = match counted.milli().checked_sub(taken.milli()) {
        Some(beyond) => signed(beyond),
        None => -signed(ours.used.saturating_sub(counted).milli()),
    };
    SyncResult { taken: counted, closed_until, drift: Some(drift) }
}

/// True when the origin's window can be taken for ours: they end together, as far as is known.
fn is_same_window(resets_at: Option<Timestamp>, ours: LocalCount, now: Timestamp) -> bool {
    let length = ours.length;
    match resets_at {
        None if !ours.has_fixed_end => true,
        // A sliding window is renewed bit by bit; what is renewed much sooner than it is another limit.
        Some(moment) if !ours.has_fixed_end => moment.saturating_duration_since(now) >= length / 2,
        Some(moment) => {
            let apart =
                moment.saturating_duration_since(ours.span.end).max(ours.span.end.saturating_duration_since(moment));
            apart <= (length / TOLERANCE).max(Duration::from_secs(2))
        }
        None => now.saturating_duration_since(ours.span.start) >= GRACE.min(length / GRACE_PART),
    }
}

fn reset_time(resets_at: Option<Timestamp>, ours: LocalCount, now: Timestamp) -> Timestamp {
    let latest = now + ours.length + SLACK;
    resets_at.filter(|moment| *moment > now && *moment <= latest).unwrap_or(ours.span.end)
}

fn signed(milli: u64) -> i64 {
    i64::try_from(milli).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Span = Span { start: Timestamp::from_seconds(86_400), end: Timestamp::from_seconds(2 * 86_400) };
    const NOON: Timestamp = Timestamp::from_seconds(86_400 + 43_200);

    fn ours(used: u64, reserved: u64) -> LocalCount {
        let [limit, used, reserved] = [100, used, reserved].map(Units::from_whole);
        LocalCount { limit, used, reserved, span: DAY, has_fixed_end: true, length: DAY.length() }
    }

    fn left(units: u64) -> OriginReport {
        OriginReport { remaining: Some(Units::from_whole(units)), ..OriginReport::default() }
    }

    fn drift(said: OriginReport, ours: LocalCount) -> Option<i64> {
        reconcile(said, ours, NOON).drift.map(|milli| milli / 1000)
    }

    #[test]
    fn what_is_under_way_explains_a_difference() {
        assert_eq!(drift(left(60), ours(40, 0)), Some(0));
        assert_eq!(drift(left(58), ours(40, 5)), Some(0), "two of the five have arrived");
        assert_eq!(drift(left(50), ours(40, 5)), Some(5), "five that nobody here has sent");
        assert_eq!(drift(left(70), ours(40, 5)), Some(-10));
        assert_eq!(drift(left(500), ours(40, 5)), Some(-40), "more than was bought");
        assert_eq!(drift(OriginReport::default(), ours(40, 5)), None, "it says nothing");
    }

    #[test]
    fn its_count_is_taken_where_it_is_higher() {
        assert_eq!(reconcile(left(50), ours(40, 5), NOON).taken, Units::from_whole(50));
        assert_eq!(reconcile(left(0), ours(40, 5), NOON).taken, Units::from_whole(100));
    }

    #[test]
    fn a_count_of_another_window_is_none_of_ours() {
        let resetting = |at: u64| OriginReport { resets_at: Some(Timestamp::from_seconds(at)), ..left(3) };
        assert_eq!(drift(resetting(2 * 86_400 + 600), ours(40, 0)), Some(57), "ten minutes apart are one window");
        assert_eq!(drift(resetting(2 * 86_400 - 600), ours(40, 0)), Some(57));
        assert_eq!(drift(resetting(2 * 86_400 + 30_000), ours(40, 0)), None);
        assert_eq!(drift(resetting(86_400 + 44_000), ours(40, 0)), None);
        let just_begun = reconcile(left(3), ours(0, 1), DAY.start + Duration::from_secs(30));
        assert_eq!(just_begun, SyncResult::default(), "it may still speak of yesterday");
        assert_eq!(reconcile(left(3), ours(0, 1), DAY.start + Duration::from_secs(60)).taken, Units::from_whole(97));
        let sliding = LocalCount { has_fixed_end: false, ..ours(40, 0) };
        assert_eq!(drift(resetting(86_400 + 43_200 + 44_000), sliding), Some(57));
        assert_eq!(drift(resetting(86_400 + 43_201), sliding), None, "a limit of a second, not of a day");
        assert_eq!(drift(left(3), sliding), Some(57));
    }

    #[test]
    fn an_exhausted_origin_closes_until_it_is_renewed() {
        let exhausted = |resets_at| OriginReport { exhausted: true, resets_at, remaining: Some(Units::from_whole(9)) };
        let closed = |at: u64| {
            let calibration = reconcile(exhausted(Some(Timestamp::from_seconds(at))), ours(40, 0), NOON);
            (calibration.closed_until.map(Timestamp::seconds), calibration.taken)
        };
        let end = Some(2 * 86_400);
        assert_eq!(reconcile(exhausted(None), ours(40, 0), NOON).closed_until, Some(DAY.end));
        assert_eq!(closed(2 * 86_400 + 60), (Some(2 * 86_400 + 60), Units::from_whole(100)));
        assert_eq!(closed(86_400 + 43_260), (Some(86_400 + 43_260), Units::ZERO), "a shorter limit of its own");
        assert_eq!(closed(40_000), (end, Units::ZERO), "a moment that is past says nothing");
        assert_eq!(closed(9_000_000), (end, Units::ZERO), "nor one that cannot be");
    }
}
