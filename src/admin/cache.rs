//! The cache in the admin API: its state, and the removal of stored responses, which is logged (target `audit`).

use super::amount::Amount;
use super::listener::OptionalPeer;
use super::login::peer_name;
use super::problem::Problem;
use super::{AccessControl, DynGateway};
use crate::gateway::{CachePurge, CacheStats, CachedUrl, FillOutcome};
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use tidegate_http_cache::CacheResult;
use tidegate_policy::Units;
use tokio::task::spawn_blocking;
use tracing::info;

/// What the cache did since the start, as it is counted.
#[derive(Clone, Debug)]
pub(crate) struct CacheUsage {
    /// Number of requests by result, in the order of [`CacheResult::ALL`].
    pub(crate) requests: [u64; CacheResult::ALL.len()],
    /// Units that it saved: quota, class, units.
    pub(crate) saved: Vec<(String, String, Units)>,
    /// Surplus units that refreshed stored responses: quota, class, units.
    pub(crate) refreshed: Vec<(String, String, Units)>,
}

/// State of the cache: body of `GET /api/v1/cache`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct CacheDocument {
    /// Number of entries: responses, their compressed forms, and URLs with several responses.
    pub entries: u64,
    /// Bytes that they occupy.
    pub memory_bytes: u64,
    /// Bytes that they may occupy (`cache.memory`).
    pub memory_limit_bytes: u64,
    /// Number of entries removed from memory to make space, since the start.
    pub evictions: u64,
    /// What is in files; null with `cache: { disk: off }`, or if the directory cannot be used.
    pub disk: Option<DiskDocument>,
    /// Number of requests on cached routes since the start, by result.
    pub requests: CacheRequests,
    /// Share of the requests that copies answered without the origin: hit and stale. It is null without a request.
    pub hit_ratio: Option<f64>,
    /// Units that copies saved since the start: the expected costs of their requests.
    pub saved: Vec<SavedUnits>,
    /// Surplus units that refreshed copies since the start (`cache.refresh`), with the class that was last sent them.
    pub refreshed: Vec<SavedUnits>,
    /// URLs whose copies answered most requests, at most 20.
    pub most_requested: Vec<CachedUrlDocument>,
}

/// Stored responses on disk.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct DiskDocument {
    /// True once the files of the last run are known.
    pub is_loaded: bool,
    /// Number of entries in files. Those in memory are among them.
    pub entries: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Bytes that they may have (`cache.disk`).
    pub limit_bytes: u64,
    /// Number of entries removed from the files to make space, since the start.
    pub evictions: u64,
    /// Number of entries that were not written since the start, because the disk was too slow.
    pub dropped: u64,
    /// Number of failed reads and writes, and of damaged entries, since the start.
    pub errors: u64,
}

/// Number of requests by result.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct CacheRequests {
    /// A fresh copy was sent.
    pub hit: u64,
    /// A stale copy was sent, also in place of a refusal.
    pub stale: u64,
    /// The origin confirmed the copy.
    pub revalidated: u64,
    /// The origin responded, and the response may be stored.
    pub miss: u64,
    /// The origin responded, and the request did not use the cache.
    pub bypass: u64,
}

/// Units of a quota and a class.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct SavedUnits {
    /// Name of the quota.
    pub quota: String,
    /// Name of the class.
    pub class: String,
    /// Units.
    pub units: Amount,
}

/// A stored URL.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct CachedUrlDocument {
    /// URL, as far as it is part of the key.
    pub url: String,
    /// Number of requests that its copies answered.
    pub hits: u64,
    /// Units that they saved, of all quotas.
    pub saved: Amount,
    /// Bytes that they occupy.
    pub bytes: u64,
}

/// Query of `DELETE /api/v1/cache`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PurgeQuery {
    url: Option<String>,
    prefix: Option<String>,
    tag: Option<String>,
}

/// Body of `POST /api/v1/cache/warm`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WarmBody {
    url: String,
    class: String,
    /// Host of the sitemap that has the URL: a page of another host is not fetched, unless `hosts` has it.
    site: Option<String>,
}

/// Outcome of a request that warmed the cache: response to `POST /api/v1/cache/warm`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WarmDocument {
    pub(crate) status: u16,
    pub(crate) refused: bool,
    pub(crate) stored: bool,
    pub(crate) cache_status: String,
    pub(crate) retry_after_s: Option<u64>,
}

/// Fetches a URL within the limits of a class. Responds with the outcome.
pub(super) async fn warm(State(gateway): State<DynGateway>, body: Bytes) -> Result<Json<WarmDocument>, Problem> {
    let WarmBody { url, class, site } = serde_json::from_slice(&body).map_err(|error| {
        invalid(format!(r#"body: {error}; send {{"url": "https://example.com/item/42", "class": "CLASS"}}"#))
    })?;
    gateway.cache().ok_or_else(no_cache)?;
    let outcome = gateway.warm_cache(&url, &class, site.as_deref()).map_err(invalid)?.await;
    let outcome = outcome.map_err(|_| invalid("the gateway shuts down".to_owned()))?.map_err(invalid)?;
    let FillOutcome { status, is_refused, is_stored, cache_status, retry_after_s } = outcome;
    Ok(Json(WarmDocument { status, refused: is_refused, stored: is_stored, cache_status, retry_after_s }))
}

/// Shows the state of the cache.
pub(super) async fn show(State(gateway): State<DynGateway>) -> Result<Json<CacheDocument>, Problem> {
    gateway.cache().map(Json).ok_or_else(no_cache)
}

/// Removes stored responses. Responds with their number.
pub(super) async fn purge(
    State(gateway): State<DynGateway>,
    State(access): State<Arc<AccessControl>>,
    peer: OptionalPeer,
    query: Result<Query<PurgeQuery>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let Query(query) = query.map_err(|error| invalid(format!("query: {error}; give one of url, prefix and tag")))?;
    let purge = query.check().map_err(invalid)?;
    gateway.cache().ok_or_else(no_cache)?;
    let (purged, what_to_purge) = (DynGateway::clone(&gateway), purge.clone());
    let removed = spawn_blocking(move || purged.purge_cache(&what_to_purge)).await;
    let removed = removed.map_err(|error| invalid(error.to_string()))?.map_err(invalid)?;
    let (kind, what) = match &purge {
        CachePurge::Url(url) => ("url", url),
        CachePurge::Prefix(prefix) => ("prefix", prefix),
        CachePurge::Tag(tag) => ("tag", tag),
    };
    info!(
        target: "audit",
        purge = kind, what, removed, peer = peer_name(peer), token = access.token.is_some(),
        "Cache: {removed} stored responses removed, {kind} {what:?}"
    );
    Ok(Json(json!({ "removed": removed })))
}

impl PurgeQuery {
    fn check(self) -> Result<CachePurge, String> {
        match (self.url, self.prefix, self.tag) {
            (Some(url), None, None) => Ok(CachePurge::Url(url)),
            (None, Some(prefix), None) => Ok(CachePurge::Prefix(prefix)),
            (None, None, Some(tag)) => Ok(CachePurge::Tag(tag)),
            _ => Err("query: give one of url, prefix and tag".to_owned()),
        }
    }
}

fn invalid(detail: String) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
}

fn no_cache() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "Nothing is stored; add the section cache to the configuration.")
}

/// Returns the number of requests on cached routes, and of those that stored responses answered.
pub(super) fn answered(usage: &CacheUsage) -> (u64, u64) {
    let of = |result: CacheResult| usage.requests[result as usize];
    (usage.requests.iter().sum(), of(CacheResult::Hit) + of(CacheResult::Stale))
}

/// Returns the share of the requests on cached routes that stored responses answered; `None` without requests.
pub(super) fn hit_ratio(usage: &CacheUsage) -> Option<f64> {
    let (total, answered) = answered(usage);
    (total > 0).then(|| answered as f64 / total as f64)
}

/// Returns units by quota and class.
pub(super) fn units(units: &[(String, String, Units)]) -> Vec<SavedUnits> {
    let entry = |(quota, class, units): &(String, String, Units)| SavedUnits {
        quota: quota.clone(),
        class: class.clone(),
        units: (*units).into(),
    };
    units.iter().map(entry).collect()
}

/// Returns the state of the cache.
pub(crate) fn document(stats: &CacheStats, usage: &CacheUsage, most_requested: &[CachedUrl]) -> CacheDocument {
    let of = |result: CacheResult| usage.requests[result as usize];
    let cached_url = |url: &CachedUrl| CachedUrlDocument {
        url: url.url.clone(),
        hits: url.hits,
        saved: url.saved.into(),
        bytes: url.bytes,
    };
    CacheDocument {
        entries: stats.entries,
        memory_bytes: stats.memory_bytes,
        memory_limit_bytes: stats.memory_limit,
        evictions: stats.evictions,
        disk: stats.disk.map(|disk| DiskDocument {
            is_loaded: disk.is_loaded,
            entries: disk.entries,
            bytes: disk.bytes,
            limit_bytes: disk.limit,
            evictions: disk.evictions,
            dropped: disk.dropped,
            errors: disk.errors,
        }),
        requests: CacheRequests {
            hit: of(CacheResult::Hit),
            stale: of(CacheResult::Stale),
            revalidated: of(CacheResult::Revalidated),
            miss: of(CacheResult::Miss),
            bypass: of(CacheResult::Bypass),
        },
        hit_ratio: hit_ratio(usage),
        saved: units(&usage.saved),
        refreshed: units(&usage.refreshed),
        most_requested: most_requested.iter().map(cached_url).collect(),
    }
}
