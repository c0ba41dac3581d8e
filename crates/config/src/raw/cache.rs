//! Raw section `cache`, and the key `cache` of a route.

use crate::scalars::{Amount, Field, Size, Span};
use crate::serde_forms::{NamedMap, OneOrMany, word_or_keys};
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// Cache of responses (RFC 9111). Without this section nothing is stored; `cache: {}`, or `cache:` without a value, takes
/// the defaults.
///
/// A response is stored if its fields and its route allow it, and served to all clients: it costs no unit, and neither
/// tiers, pacing nor quotas refuse it. Blocks and buckets still hold. A fetch whose response may be stored carries only
/// what is part of the key: `User-Agent`, `Accept-Language`, `Referer` and similar fields are sent once `Vary` names them,
/// or with `key`. Any other field is part of the key by its value. A response to a request with a cookie is not stored, unless it
/// is `public`.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Cache {
    /// Memory for stored responses, at least 1MiB. Default 128MiB.
    pub memory: Option<Size>,
    /// Disk for stored responses, which survive a restart there: { size }, or off for memory alone. Default { size: 10GiB }.
    pub disk: Option<Disk>,
    /// Use of units that would be left over at the end of a window: off, or surplus. The latter refreshes the stale
    /// responses that are requested most, in the last eighth of a window, with the units that no request is expected to
    /// need. It requires `pacing`, whose forecast says which these are. Default surplus.
    pub refresh: Option<Refresh>,
    /// Largest body that is stored, at most an eighth of memory. Default 8MiB.
    pub max_object: Option<Size>,
    /// Query parameters that are no part of the key, and are not sent to the origin in a fetch whose response may be
    /// stored: one, or a list of names or beginnings such as `utm_*`. A star alone is refused: pages that differ in their query would be one. Default [utm_*, gclid, fbclid].
    pub ignore_query: Option<OneOrMany<String>>,
    /// Time past its freshness for which a stored response is served to a request that tiers, pacing, a quota, a
    /// client's share or a scope would refuse. 0s: never. Default 30d.
    pub stale_when_refused: Option<Span>,
    /// Time past its freshness for which a stored response is served if the origin fails, where its response did not
    /// say (stale-if-error). 0s: never. Default 1d.
    pub stale_if_error: Option<Span>,
    /// Clients whose `Cache-Control: no-cache`, `max-age` and `min-fresh` count: people, all or none. For others the
    /// stored response is served while it is fresh. Default people.
    pub reload: Reload,
    /// Request fields that are sent to the origin although they are no part of the key: one, or a list, such as
    /// [traceparent, tracestate]. Name only such fields that change no response, and appear in none; cookie, authorization
    /// and host are refused. Default none.
    pub unkeyed_headers: Option<OneOrMany<Field>>,
}

/// Deserializes the section. Without a value, it has the defaults.
pub(crate) fn section<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Cache>, D::Error> {
    deserializer.deserialize_any(CacheVisitor)
}

struct CacheVisitor;

impl<'de> Visitor<'de> for CacheVisitor {
    type Value = Option<Cache>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("keys; write cache: {} to cache with the defaults, or leave the section out for no cache")
    }

    fn visit_unit<E>(self) -> Result<Option<Cache>, E> {
        Ok(Some(Cache::default()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Option<Cache>, A::Error> {
        Cache::deserialize(MapAccessDeserializer::new(map)).map(Some)
    }
}

/// Disk of the cache: off, or keys.
#[derive(Clone)]
pub(crate) enum Disk {
    Off,
    Options(DiskOptions),
}

/// Disk of the cache.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DiskOptions {
    /// Size of the files in state_dir/cache, at least 16MiB. Default 10GiB. A body may be at most an eighth of it there.
    pub size: Option<Size>,
}

/// Use of units that would be left over.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Refresh {
    /// None.
    Off,
    /// Refreshes stored responses.
    Surplus,
}

word_or_keys! {
    Disk, "off or keys; use off or { size: 10GiB }":
    "off" => Self::Off,
    DiskOptions => Self::Options
}

/// Clients that may ask for a fresher response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reload {
    /// People.
    #[default]
    People,
    /// All clients.
    All,
    /// No client.
    None,
}

/// Caching of a route: off, or keys.
#[derive(Clone)]
pub(crate) enum RouteCache {
    Off,
    Options(RouteCacheOptions),
}

/// Caching of a route.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RouteCacheOptions {
    /// Freshness lifetime of responses of which the origin states none, more than 0s. Default none: they are fetched for each
    /// request, and served only in place of a refusal or an error.
    pub ttl: Option<Span>,
    /// Cost of a validation that finds the stored response unchanged (304), by quota, to a thousandth. A cost_header of
    /// the quota overrides it. Default the cost of the route.
    pub revalidation_cost: NamedMap<Amount>,
    /// What is part of the key besides scheme, host, path and query.
    pub key: RouteKey,
}

/// Parts of the key of a route.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RouteKey {
    /// Request fields that are part of the key, and are sent: one, or a list of at most 16. Default none, besides those
    /// that `Vary` names.
    pub headers: OneOrMany<Field>,
    /// Cookies that are part of the key, and the only ones that are sent: one, or a list of at most 16; [] sends none.
    /// Default: requests with cookies neither take nor leave stored responses, unless these are `public`.
    pub cookies: Option<OneOrMany<String>>,
    /// Query parameters that are part of the key, and the only ones that are sent: one, or a list of names or
    /// beginnings such as `filter_*`; [] is none. Default all but ignore_query.
    pub query: Option<OneOrMany<String>>,
}

word_or_keys! {
    RouteCache, "off or keys; use off or { ttl: 10m }":
    "off" => Self::Off,
    RouteCacheOptions => Self::Options
}
