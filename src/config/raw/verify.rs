//! `verify:` as written.

use crate::config::forms::{Named, OneOrMany};
use crate::config::words::Span;
use schemars::JsonSchema;
use serde::Deserialize;

/// How crawlers are proven to be whose they say they are.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Verify {
    /// By signatures on their requests (Web Bot Auth).
    pub signatures: Signatures,
}

/// Signed requests. The keys of an agent are fetched by HTTPS from where it publishes them, once a request names it.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Signatures {
    /// false: signatures are not looked at, and no keys are fetched. Default true.
    pub enabled: Option<bool>,
    /// true: the keys of agents that no known operator has are fetched too, of 256 at most. They stay declared bots; the log
    /// says that they sign. Strangers then decide which addresses the gate asks. Default false.
    pub unlisted_agents: bool,
    /// More addresses by which an operator's agents sign, one or a list for each operator: the origin, or where their keys
    /// are.
    pub agents: Named<OneOrMany<String>>,
    /// Signatures that hold for longer than this are not believed: who gets hold of one can use it for as long. Default 24h.
    pub max_lifetime: Option<Span>,
}
