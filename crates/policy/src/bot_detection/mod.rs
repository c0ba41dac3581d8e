//! Behavioral bot detection: scores how far the behavior of a self-declared browser deviates from humans.
//!
//! Each request is a [`RequestFeatures`]. The [`ClientProfile`] of a client aggregates them in 88 bytes with
//! exponential decay. [`score()`] compares it with normal behavior on this site ([`SiteBaseline`]) and with the
//! client's network ([`NetworkProfile`]). No [`Signal`] suffices alone: a rare browser, a text browser, a reader
//! without images, one without referers or a proxy that rewrites headers shows one of them, rarely two.
//!
//! Unknown features (logs without headers, sites with external images) count as zero.

mod baseline;
mod browser;
mod client_profile;
mod distribution;
mod features;
mod network_profile;
mod request;
mod sample_limit;
mod score;
mod session_pages;
mod visit;

#[cfg(test)]
mod tests;

pub use baseline::{BaselineCounts, BaselineSample, ExpectedBehavior, LearnedBaseline, SiteBaseline};
pub use browser::{BrowserTraits, ClientHints, HintsBrand, UpgradeRequests};
pub use client_profile::{ClientProfile, Recorded};
pub use features::{FetchMode, FetchSite, HeadersSeen, Referer, RequestFeatures, ResourceKind, ResponseOutcome};
pub use network_profile::NetworkProfile;
pub use sample_limit::SampleLimit;
pub use score::{BotScore, ObservedSession, Signal, score};
pub use session_pages::{PagesBeyond, PagesChange, SessionPages, UsualPages};
pub use visit::{BareChange, VisitChanges};

use crate::Timestamp;
use std::time::Duration;

/// Settings of bot detection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BotDetection {
    /// Score from which on a client is suspected, in points.
    pub threshold: u16,
    /// Half-life of all counts.
    pub half_life: Duration,
    /// Maximum number of client profiles.
    pub max_clients: usize,
    /// Honeypot: a path that robots.txt forbids and no page links to.
    pub honeypot: Option<String>,
}

/// Returns the decay factor since second `since`, and sets it to `now`; `None` within the same second.
fn decay_since(since: &mut u32, now: Timestamp, half_life: Duration) -> Option<f32> {
    let now = u32::try_from(now.seconds()).unwrap_or(u32::MAX);
    let elapsed = now.saturating_sub(*since);
    (elapsed > 0).then(|| {
        *since = now;
        decay_factor(Duration::from_secs(elapsed.into()), half_life)
    })
}

/// Returns the decay factor after `elapsed`.
fn decay_factor(elapsed: Duration, half_life: Duration) -> f32 {
    (-elapsed.as_secs_f32() / half_life.as_secs_f32().max(1.0)).exp2()
}
