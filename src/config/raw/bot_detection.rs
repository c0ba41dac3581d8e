//! `behaviour:` as written.

use crate::config::scalars::{Points, Span};
use schemars::JsonSchema;
use serde::Deserialize;

/// How bots are found that say they are browsers. People with rare browsers are left alone: no sign is enough alone.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "keys with values; write behaviour: { enabled: false } to suspect nobody"
)]
pub(in crate::config) struct Behaviour {
    /// false: nobody is watched, and nobody is a `suspected_bot`. Default true.
    pub enabled: Option<bool>,
    /// From this many points on a client is suspected, 50 to 1000. Each sign of a program is worth 15 to 80 points; fewer
    /// points find more bots, and sooner or later a person. Default 100.
    pub threshold: Option<Points>,
    /// After this long what was noticed of a client counts half. Default 24h.
    pub half_life: Option<Span>,
    /// The most clients whose behaviour is remembered, about 150 bytes each; beyond it those that have been idle longest are
    /// forgotten. Default 200000.
    pub max_clients: Option<u32>,
}
