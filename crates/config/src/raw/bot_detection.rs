//! Raw section `bot_detection`.

use crate::scalars::{Points, Span};
use schemars::JsonSchema;
use serde::Deserialize;

/// Detection of bots that send a browser's user agent, by their behavior. No single signal suffices at the default
/// threshold, so people with rare browsers are not affected. Profiles are kept in memory: a reload keeps them, a
/// restart clears them. After a restart the gateway needs some visits of people to learn what is normal on the site.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "keys with values; write bot_detection: { enabled: false } to disable it"
)]
pub(crate) struct BotDetection {
    /// false: disables behavioral bot detection. No client is a `suspected_bot`, and it costs nothing. Default true.
    pub enabled: Option<bool>,
    /// Bot score from which a client is a `suspected_bot`, 50 to 1000. Each signal adds 15 to 80 points; a lower
    /// threshold finds more bots, and sooner or later a person. 100 needs two signals of different kinds, 150 three or
    /// four; at 80 and below a single one suffices, and people are affected. `bot_score` in the access log shows the
    /// score of every client with a profile: compare before you change the threshold. Default 100.
    pub threshold: Option<Points>,
    /// Duration after which a recorded signal counts half. More than 0. Default 24h.
    pub half_life: Option<Span>,
    /// Maximum number of client profiles in memory, about 150 bytes each; beyond it, the longest idle ones are evicted.
    /// At least 1. Default 200000.
    pub max_clients: Option<u32>,
}
