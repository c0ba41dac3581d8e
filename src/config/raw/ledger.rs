//! `ledger:` as written.

use crate::config::forms::Hidden;
use schemars::JsonSchema;
use serde::Deserialize;

/// Where the account of what has been spent is kept. Without this section: in `state_dir`, for this gate alone.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Ledger {
    /// Several gates share each quota through this Redis or Valkey.
    pub redis: Option<Redis>,
}

/// A Redis or Valkey that several gates share.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Redis {
    /// `redis://host`, `redis://:password@host:6379/0` or `redis://user:password@host`; never shown. Must be given.
    pub url: Option<Hidden>,
    /// What its keys begin with; gates with the same prefix share their quotas. Default tidegate.
    pub prefix: Option<String>,
    /// When it cannot be reached, and the units in hand are spent: refuse, or share, which spends the part that was put
    /// aside for this gate. Default refuse.
    pub when_lost: WhenLost,
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum WhenLost {
    #[default]
    Refuse,
    Share,
}
