//! `routes:` as written.

use crate::config::scalars::{Price, Verb};
use crate::config::serde_forms::{NamedMap, OneOrMany};
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
    /// ignore: ASCII letters of the path match in either case. exact: only as they are written. Default ignore where the route
    /// costs something or names scopes, exact where it only makes requests free.
    pub case: Option<Comparison>,
    /// ignore: /a and /a/ are one path. exact: only as it is written. Default as for case.
    pub trailing_slash: Option<Comparison>,
    /// The host, without port: one, or a list; `*.example.com` is every host below it. Default any.
    pub host: OneOrMany<String>,
    /// The method: one, or a list; GET includes HEAD. Default any.
    pub method: OneOrMany<Verb>,
    /// Query parameters that must be there: `name`, or `name=value`. Those of a request are percent-decoded before they are
    /// compared.
    pub query: OneOrMany<String>,
    /// What a request is expected to cost, by quota: an amount, or learned, which is what requests of the route have cost
    /// lately. Default nothing, but for 1 unit of each of its scopes' own quotas: it is never refused for another.
    pub cost: NamedMap<Price>,
    /// The parts of the origin it touches: one, or a list. Default `default`.
    pub scopes: OneOrMany<String>,
    /// false: how long its answers take says nothing of the origin's load, so autothrottle and adaptive leave them out.
    /// Default true.
    pub measured: Option<bool>,
}

/// Whether a difference in spelling counts.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum Comparison {
    /// It counts.
    Exact,
    /// It does not count.
    Ignore,
}
