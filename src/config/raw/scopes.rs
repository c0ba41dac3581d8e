//! `scopes:` as written.

use crate::config::words::{Percent, Span};
use schemars::JsonSchema;
use serde::Deserialize;

/// How hard the gate may press on a part of the origin. A request waits for its turn in all of its route's scopes.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Scope {
    /// The most requests at once, until their answers have gone out. Without it: as many as come.
    pub concurrency: Option<u32>,
    /// The least time between any two requests. Default none.
    pub delay: Option<Span>,
    /// The least time between two requests of one slot. Not carried out in this version.
    pub delay_per_slot: Option<Span>,
    /// By up to how much the time between two requests is longer, by chance. Default 0%.
    pub jitter: Option<Percent>,
    /// Lets the time between two requests follow the origin's latency. Without it: it is always delay.
    pub autothrottle: Option<Autothrottle>,
    /// Leaves the origin alone for a while when it complains; an answer of 429 is then never passed on, clients are
    /// told to come back after that while. Without it: nothing is done.
    pub backoff: Option<Backoff>,
    /// Who may wait for a turn. The class of the highest priority goes first, clients of one priority take turns, and
    /// every eighth is the one that has waited longest. Default: 256, for 2s each.
    pub queue: Option<Queue>,
}

/// The time between two requests follows the latency, from delay to max_delay: down half-way at each good answer, up at
/// once.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Autothrottle {
    /// How many requests it aims to have under way. Default 2.
    pub target_concurrency: Option<u32>,
    /// The time between two to begin with. Default 0s.
    pub start_delay: Option<Span>,
    /// The longest time between two. Default 5s.
    pub max_delay: Option<Span>,
}

/// The scope rests after answers that say the origin has trouble, then tries with one request, then lets one more in
/// with each success.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Backoff {
    /// Which statuses say so; timeouts and broken connections always do. Default 429, 502, 503, 504 and 520 to 524.
    pub statuses: Vec<u16>,
    /// By what each rest is longer than the one before. Default 2.
    pub factor: Option<u32>,
    /// The first rest. Default 1s.
    pub min_delay: Option<Span>,
    /// The longest rest, even where the origin asks for more: by Retry-After, or by RateLimit or X-RateLimit headers that
    /// say that nothing is left. Default 300s.
    pub max_delay: Option<Span>,
    /// By up to how much rests are longer, by chance. Default 10%.
    pub jitter: Option<Percent>,
    /// How long it must be quiet for the next rest to be a step shorter. Default 60s.
    pub window: Option<Span>,
}

/// The waiting line.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Queue {
    /// The longest wait; who would wait longer is refused at once. 0s: nobody waits. Default 2s.
    pub max_wait: Option<Span>,
    /// The most who wait. Default 256.
    pub max_length: Option<u32>,
}
