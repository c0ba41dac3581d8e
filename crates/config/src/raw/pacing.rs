//! Raw key `pacing` of a quota: a word, or keys.

use crate::scalars::Percent;
use crate::serde_forms::{NamedMap, word_or_keys};
use schemars::JsonSchema;
use serde::Deserialize;

/// Pacing of a quota.
#[derive(Clone, Default)]
pub(crate) struct Pacing(pub PacingOptions);

/// Keys of pacing.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PacingOptions {
    /// Forecast of demand. off: no pacing. even: equal units per hour. learned: by the demand of each class in each
    /// hour of the week, refused requests included, so that the admit share is the same in every hour; it needs a day
    /// to learn and is even until then. Default off.
    pub mode: Mode,
    /// Share of the limit that a class may use ahead of its plan, more than 0%. A class stays within this share of the
    /// limit of its allocation by weight. Default 5%.
    pub burst: Option<Percent>,
    /// Weight of a class, 1 to 1000, by class, if the units do not suffice for all paced classes. A class without tiers
    /// is paced if it has a weight. Default 1 each.
    pub weights: NamedMap<u32>,
    /// false: shadow mode. Refusals by the plan are counted and logged only, and the tiers hold as without pacing.
    /// Default true.
    pub enforce: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    #[default]
    Off,
    Even,
    Learned,
}

word_or_keys! {
    Pacing, "a pacing mode; use off, even, learned or { mode: learned, burst: 5% }":
    "off" => Self(PacingOptions { mode: Mode::Off, ..PacingOptions::default() }),
    "even" => Self(PacingOptions { mode: Mode::Even, ..PacingOptions::default() }),
    "learned" => Self(PacingOptions { mode: Mode::Learned, ..PacingOptions::default() }),
    PacingOptions => Self
}
