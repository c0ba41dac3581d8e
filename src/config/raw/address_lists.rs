//! `lists:` as written.

use schemars::JsonSchema;
use serde::Deserialize;

/// A list of addresses.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "keys with values; write { file: ./hosting.txt }")]
pub(in crate::config) struct List {
    /// The file: one address or network a line, `#` begins a comment. It is read again when it changes. Must be given.
    pub file: Option<String>,
}
