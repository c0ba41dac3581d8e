//! `scopes:` as written. Read and checked; this version does not throttle yet.

use crate::config::words::{Percent, Span};
use schemars::JsonSchema;
use serde::Deserialize;

/// How hard the gate may press on a part of the origin.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Scope {
    /// The most requests at once. Not carried out in this version.
    pub concurrency: Option<u32>,
    /// The least time between any two requests. Not carried out in this version.
    pub delay: Option<Span>,
    /// The least time between two requests of one slot. Not carried out in this version.
    pub delay_per_slot: Option<Span>,
    /// By how much delays are varied. Not carried out in this version.
    pub jitter: Option<Percent>,
    /// The delay follows the latency. Not carried out in this version.
    pub autothrottle: Option<Autothrottle>,
    /// What is done when the origin complains. Not carried out in this version.
    pub backoff: Option<Backoff>,
    /// Who may wait for a slot. Not carried out in this version.
    pub queue: Option<Queue>,
}

/// The delay follows the latency of the origin.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Autothrottle {
    /// How many requests it aims to have under way.
    pub target_concurrency: Option<u32>,
    /// The delay to begin with.
    pub start_delay: Option<Span>,
    /// The longest delay.
    pub max_delay: Option<Span>,
}

/// Pressing less hard after answers that say the origin has trouble.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Backoff {
    /// Which statuses say so.
    pub statuses: Vec<u16>,
    /// By what the delay is multiplied each time.
    pub factor: Option<u32>,
    /// The first delay.
    pub min_delay: Option<Span>,
    /// The longest delay.
    pub max_delay: Option<Span>,
    /// By how much delays are varied.
    pub jitter: Option<Percent>,
    /// How long it must be quiet before the delay steps down.
    pub window: Option<Span>,
}

/// The waiting line.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Queue {
    /// The longest wait.
    pub max_wait: Option<Span>,
    /// The most who wait.
    pub max_length: Option<u32>,
}
