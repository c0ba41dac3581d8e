//! Requests of the synthetic day, and the distribution of their times.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;
use tidegate_policy::rng::Rng;
use tidegate_policy::{ClientKind, Timestamp};

/// Start of the day: an arbitrary midnight in UTC.
pub const DAY_START: Timestamp = Timestamp::from_seconds(20_700 * 24 * 60 * 60);
/// Length of the day.
pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);
pub(super) const LAST_INSTANT: Duration = DAY.saturating_sub(Duration::from_millis(1));

/// One request of the day.
#[derive(Clone, Debug, PartialEq)]
pub struct DemoRequest {
    /// Time since the start of the day.
    pub at: Duration,
    /// Address of the client.
    pub client: IpAddr,
    /// Request method.
    pub method: http::Method,
    /// Request path with query.
    pub path: String,
    /// User agent; empty if none is sent.
    pub user_agent: Cow<'static, str>,
    /// URL of the referring page.
    pub referer: Option<String>,
    /// True kind of the client.
    pub label: ClientKind,
    /// Name of the actor, for the summary.
    pub actor: &'static str,
    /// Cost of the response in units, if the origin has not cached it.
    pub cost: u64,
}

/// Relative weight of each hour of the day.
pub(super) type HourWeights = [u32; 24];

/// Units that were used in each hour.
pub(super) type UnitsByHour = [u64; 24];

/// Weights of people in one country: lowest at four, a peak at noon, highest in the evening.
pub(super) const HUMAN_HOURS: HourWeights =
    [28, 16, 10, 7, 7, 10, 20, 36, 44, 50, 54, 58, 70, 60, 54, 52, 56, 62, 70, 80, 92, 96, 84, 54];

/// Scales `count` of a full-size day, to at least 1, so that every actor appears.
pub(super) fn scaled(count: f64, scale: f64) -> u64 {
    (count * scale).round().max(1.0) as u64
}

/// Returns a random time of the day, distributed by the weights of `hours`.
pub(super) fn random_time(rng: &mut Rng, hours: &HourWeights) -> Duration {
    let mut left = rng.gen_below(hours.iter().map(|&weight| u64::from(weight)).sum());
    let mut hour = 0;
    while hour < 23 && left >= u64::from(hours[hour]) {
        left -= u64::from(hours[hour]);
        hour += 1;
    }
    Duration::from_secs(hour as u64 * 3600) + Duration::from_millis(rng.gen_below(3_600_000))
}

/// Returns the hour of a time of the day.
pub(super) fn hour(at: Duration) -> usize {
    usize::try_from(at.as_secs() / 3600).unwrap_or(23).min(23)
}
