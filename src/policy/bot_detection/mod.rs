//! How a client that says it is a browser behaves, and whether a person behaves so.
//!
//! Each request is a [`RequestFeatures`]; what is kept of all of a client's is its [`ClientProfile`], 64 bytes that forget by half-life.
//! [`score`] weighs them against what people do on this site ([`SiteBaseline`]) and what the rest of the client's network
//! does ([`NetworkProfile`]). No [`Signal`] is enough alone: a rare browser, a text browser, a reader without images, one
//! that hides where it comes from or a proxy that rewrites headers shows one of them, seldom two.
//!
//! What is not known (a log without headers, a site that keeps its pictures elsewhere) counts for nothing.

mod baseline;
mod browser;
mod client_profile;
mod features;
mod network_profile;
mod score;

#[cfg(test)]
mod tests;

pub use baseline::{BaselineSample, ExpectedBehavior, SiteBaseline};
pub use browser::{BrowserTraits, ClientHints};
pub use client_profile::ClientProfile;
pub use features::{HeadersSeen, Referer, RequestFeatures, ResourceKind, ResponseOutcome};
pub use network_profile::NetworkProfile;
pub use score::{BotScore, Signal, score};

use crate::policy::Timestamp;
use std::time::Duration;

/// How behaviour is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BotDetection {
    /// From this many points on a client is suspected.
    pub threshold: u16,
    /// After this long without anything new, what was noticed counts half.
    pub half_life: Duration,
    /// The most clients that are remembered.
    pub max_clients: usize,
    /// A path that robots.txt forbids and nothing links to.
    pub honeypot: Option<String>,
}

/// What is left of counts that were last looked at in the second `since`, which becomes that of `now`; none within a second.
fn decay_since(since: &mut u32, now: Timestamp, half_life: Duration) -> Option<f32> {
    let now = u32::try_from(now.seconds()).unwrap_or(u32::MAX);
    let elapsed = now.saturating_sub(*since);
    (elapsed > 0).then(|| {
        *since = now;
        decay_factor(Duration::from_secs(elapsed.into()), half_life)
    })
}

/// What is left of something after `elapsed`.
fn decay_factor(elapsed: Duration, half_life: Duration) -> f32 {
    (-elapsed.as_secs_f32() / half_life.as_secs_f32().max(1.0)).exp2()
}
