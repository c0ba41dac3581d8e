//! `routes:` as written.

use crate::config::forms::{Named, OneOrMany};
use crate::config::words::{Price, Verb};
use schemars::JsonSchema;
use serde::Deserialize;

/// Requests that are treated alike.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Route {
    /// The path: `*` is anything within one segment, `**` at the end any rest, and before the last segment any folders, as in
    /// /**/*.css. Must be given.
    #[serde(rename = "match")]
    pub path: Option<String>,
    /// The host, without port: one, or a list; `*.example.com` is every host below it. Default any.
    pub host: OneOrMany<String>,
    /// The method: one, or a list. Default any.
    pub method: OneOrMany<Verb>,
    /// Query parameters that must be there: `name`, or `name=value`.
    pub query: OneOrMany<String>,
    /// What a request is expected to cost, by quota: an amount, or learned, which is what requests of the route have cost
    /// lately. Default nothing, but for 1 unit of each of its scopes' own quotas: it is never refused for another.
    pub cost: Named<Price>,
    /// The parts of the origin it touches: one, or a list. Default `default`.
    pub scopes: OneOrMany<String>,
    /// false: how long its answers take says nothing of the origin's load, so autothrottle and adaptive leave them out.
    /// Default true.
    pub measured: Option<bool>,
}
