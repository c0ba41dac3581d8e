//! Raw section `cache`, and the key `cache` of a route.

use crate::scalars::{Amount, Field, Size, Span};
use crate::section::{any, at_least, each, section, stored_as_written};
use crate::serde_forms::{NamedMap, OneOrMany, word_or_keys};
use crate::validate::credentials::own_cookie;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tidegate_policy::cache::query_filter::ParameterPattern;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const DAY: Duration = Duration::from_secs(86_400);
/// Most fields, cookies or parameters of a key.
pub(crate) const MAX_KEY_PARTS: usize = 16;

section! {
    /// Cache of responses (RFC 9111). Without this section nothing is stored; `cache: {}`, or `cache:` without a value,
    /// takes the defaults.
    ///
    /// A response is stored if its fields and its route allow it, and served to all clients: it costs no unit, and
    /// neither tiers, pacing nor quotas refuse it. Blocks and buckets still hold. A fetch whose response may be stored
    /// carries only what is part of the key: `User-Agent`, `Accept-Language`, `Referer` and similar fields are sent
    /// once `Vary` names them, or with `key`. Any other field is part of the key by its value. A response to a request
    /// with a cookie is not stored, unless it is `public`.
    pub(crate) struct Cache {
        /// Memory for stored responses, at least 1MiB.
        memory: u64 = 128 * MIB => Size, at_least(MIB, 128 * MIB);
        /// Disk for stored responses, which survive a restart there: { size }, or off for memory alone. Default { size:
        /// 10GiB }.
        disk: Disk;
        /// Use of units that would be left over at the end of a window: off, or surplus. The latter refreshes the stale
        /// responses that are requested most, in the last eighth of a window, with the units that no request is
        /// expected to need. It requires `pacing`, whose forecast says which these are.
        refresh: Refresh = Refresh::Surplus => Refresh, any;
        /// Largest body that is stored, at most an eighth of memory.
        max_object: u64 = 8 * MIB => Size, any;
        /// Query parameters that are no part of the key, and are not sent to the origin in a fetch whose response may
        /// be stored: one, or a list of names or beginnings such as `utm_*`. A star alone is refused: pages that differ
        /// in their query would be one.
        ignore_query: Vec<String> = default_ignored() => OneOrMany<String>, each(ignorable_parameter);
        /// Time past its freshness for which a stored response is served to a request that tiers, pacing, a quota, a
        /// client's share or a scope would refuse. 0s: never.
        stale_when_refused: Duration = 30 * DAY => Span, any;
        /// Time past its freshness for which a stored response is served if the origin fails, where its response did
        /// not say (stale-if-error). 0s: never.
        stale_if_error: Duration = DAY => Span, any;
        /// Time past its freshness for which a stored response is served while a crowd requests the page: while at least a
        /// fifth of people's costed requests in five minutes are for it, from eight networks or more. Neither one client nor
        /// one network makes a crowd. Responses with no-cache, must-revalidate, proxy-revalidate or s-maxage are not served
        /// stale, and `reload` holds. Default 0s: never.
        crowd_max_age: Duration = Duration::ZERO => Span, at_most_an_hour;
        /// Clients whose `Cache-Control: no-cache`, `max-age` and `min-fresh` count: people, all or none. For others
        /// the stored response is served while it is fresh.
        reload: Reload = Reload::People => Reload, any;
        /// Request fields that are sent to the origin although they are no part of the key: one, or a list, such as
        /// [traceparent, tracestate]. Name only such fields that change no response, and appear in none; cookie,
        /// authorization and host are refused. Default none.
        unkeyed_headers: OneOrMany<Field>;
    }
}

/// Disk of the cache: off, or keys.
#[derive(Clone, Debug)]
pub(crate) enum Disk {
    Off,
    Options(DiskOptions),
}

section! {
    /// Disk of the cache.
    pub(crate) struct DiskOptions {
        /// Size of the files in state_dir/cache, at least 16MiB. A body may be at most an eighth of it there.
        size: u64 = 10 * GIB => Size, at_least(16 * MIB, 10 * GIB);
    }
}

/// Use of units that would be left over.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Refresh {
    /// None.
    Off,
    /// Refreshes stored responses.
    Surplus,
}

impl Default for Disk {
    fn default() -> Self {
        Self::Options(DiskOptions::default())
    }
}

word_or_keys! {
    Disk, "off or keys; use off or { size: 10GiB }":
    "off" => Self::Off,
    DiskOptions => Self::Options
}

/// Clients that may ask for a fresher response.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reload {
    /// People.
    People,
    /// All clients.
    All,
    /// No client.
    None,
}

stored_as_written!(Refresh, Reload);

fn default_ignored() -> Vec<String> {
    ["utm_*", "gclid", "fbclid"].map(str::to_owned).into()
}

fn at_most_an_hour(written: &Span, _: Option<&Span>) -> Option<String> {
    let is_long = written.0 > Duration::from_secs(3600);
    is_long.then(|| {
        format!("found {written}; write at most 1h, such as 60s: for so long all readers of a page see an old one")
    })
}

fn ignorable_parameter(name: &str) -> Option<String> {
    let problem = "found \"*\", with which all searches and numbered pages of a path would be one copy; name parameters \
                   that change no page, such as utm_*, or write cache: { key: { query: [] } } at routes without a query";
    if name == "*" { Some(problem.to_owned()) } else { parameter(name) }
}

fn parameter(name: &str) -> Option<String> {
    let is_valid = ParameterPattern::parse(name).is_some();
    (!is_valid).then(|| format!("invalid parameter {name:?}; write a name such as gclid, or utm_*"))
}

/// Caching of a route: off, or keys.
#[derive(Clone, Debug)]
pub(crate) enum RouteCache {
    Off,
    Options(RouteCacheOptions),
}

section! {
    /// Caching of a route.
    pub(crate) struct RouteCacheOptions {
        /// Freshness lifetime of responses of which the origin states none, more than 0s. Default none: they are
        /// fetched for each request, and served only in place of a refusal or an error.
        ttl: Option<Duration> = None => Span, more_than_zero;
        /// Cost of a validation that finds the stored response unchanged (304), by quota, to a thousandth. A
        /// cost_header of the quota overrides it. Default the cost of the route.
        revalidation_cost: NamedMap<Amount>;
        /// What is part of the key besides scheme, host, path and query.
        key: RouteKey;
    }
}

section! {
    /// Parts of the key of a route.
    pub(crate) struct RouteKey {
        /// Request fields that are part of the key, and are sent: one, or a list of at most 16. Default none, besides
        /// those that `Vary` names.
        headers: OneOrMany<Field>;
        /// Cookies that are part of the key, and the only ones that are sent: one, or a list of at most 16; [] sends
        /// none. Default: requests with cookies neither take nor leave stored responses, unless these are `public`.
        cookies: Option<Vec<String>> = None => OneOrMany<String>, cookie_names;
        /// Query parameters that are part of the key, and the only ones that are sent: one, or a list of names or
        /// beginnings such as `filter_*`; [] is none. Default all but ignore_query.
        query: Option<Vec<String>> = None => OneOrMany<String>, each(parameter);
    }
}

word_or_keys! {
    RouteCache, "off or keys; use off or { ttl: 10m }":
    "off" => Self::Off,
    RouteCacheOptions => Self::Options
}

fn more_than_zero(Span(ttl): &Span, _: Option<&Span>) -> Option<String> {
    let problem = "found 0s, with which each request would fetch the page; write a duration such as 10m, or cache: off to \
                   store nothing, or leave it out to keep copies for refusals alone";
    ttl.is_zero().then(|| problem.to_owned())
}

fn cookie_names(OneOrMany(names): &OneOrMany<String>, _: Option<&OneOrMany<String>>) -> Option<String> {
    if names.len() > MAX_KEY_PARTS {
        return Some(format!("found {} cookies, maximum {MAX_KEY_PARTS}; name fewer", names.len()));
    }
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"=;,\"\\".contains(&byte);
    if let Some(problem) = names.iter().find_map(|name| own_cookie(name)) {
        return Some(format!("{problem}; name a cookie of the site"));
    }
    let invalid = names.iter().find(|name| name.is_empty() || !name.bytes().all(is_plain));
    invalid.map(|name| format!("invalid cookie name {name:?}; write the name alone, such as lang"))
}
