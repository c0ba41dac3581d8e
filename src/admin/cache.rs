//! The cache in the admin API: its state, and the removal of stored responses, which is logged (target `audit`).

use super::amount::Amount;
use super::listener::OptionalPeer;
use super::login::peer_name;
use super::problem::Problem;
use super::{AccessControl, CacheUsage, CacheView, DynGateway};
use crate::gateway::{CachePurge, CachedUrl, FillOutcome};
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use tidegate_http_cache::CacheResult;
use tidegate_policy::Units;
use tokio::task::spawn_blocking;
use tracing::info;

/// State of the cache: body of `GET /api/v1/cache`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CacheDocument {
    pub(crate) entries: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) memory_limit_bytes: u64,
    pub(crate) evictions: u64,
    pub(crate) disk: Option<DiskDocument>,
    pub(crate) requests: CacheRequests,
    pub(crate) hit_ratio: Option<f64>,
    pub(crate) saved: Vec<SavedUnits>,
    pub(crate) refreshed: Vec<SavedUnits>,
    pub(crate) most_requested: Vec<CachedUrlDocument>,
}

/// Stored responses on disk.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DiskDocument {
    pub(crate) is_loaded: bool,
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
    pub(crate) limit_bytes: u64,
    pub(crate) evictions: u64,
    pub(crate) dropped: u64,
    pub(crate) errors: u64,
}

/// Number of requests by result.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CacheRequests {
    pub(crate) hit: u64,
    pub(crate) stale: u64,
    pub(crate) revalidated: u64,
    pub(crate) miss: u64,
    pub(crate) bypass: u64,
}

/// Units of a quota and a class.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedUnits {
    pub(crate) quota: String,
    pub(crate) class: String,
    pub(crate) units: Amount,
}

/// A stored URL.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CachedUrlDocument {
    pub(crate) url: String,
    pub(crate) hits: u64,
    pub(crate) saved: Amount,
    pub(crate) bytes: u64,
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
    let FillOutcome { status, is_refused, cache_status, retry_after_s } = outcome;
    Ok(Json(WarmDocument { status, refused: is_refused, cache_status, retry_after_s }))
}

/// Shows the state of the cache.
pub(super) async fn show(State(gateway): State<DynGateway>) -> Result<Json<CacheDocument>, Problem> {
    Ok(Json(document(&gateway.cache().ok_or_else(no_cache)?)))
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

fn document(view: &CacheView) -> CacheDocument {
    let usage = &view.usage;
    let of = |result: CacheResult| usage.requests[result as usize];
    let cached_url = |url: &CachedUrl| CachedUrlDocument {
        url: url.url.clone(),
        hits: url.hits,
        saved: url.saved.into(),
        bytes: url.bytes,
    };
    CacheDocument {
        entries: view.stats.entries,
        memory_bytes: view.stats.memory_bytes,
        memory_limit_bytes: view.stats.memory_limit,
        evictions: view.stats.evictions,
        disk: view.stats.disk.map(|disk| DiskDocument {
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
        most_requested: view.most_requested.iter().map(cached_url).collect(),
    }
}
