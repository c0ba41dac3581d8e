//! State of the gateway as JSON, for `GET /api/v1/state` and the quota endpoints: written here, read by `tidegate status`
//! and `tidegate quota`. [`fields`](super::fields) documents every field. A field that a gateway of another version does
//! not send has its default.

mod views;

pub(super) use views::{document, quota, show, switch};

use super::amount::Amount;
use super::cache::SavedUnits;
use super::corrections::CorrectionDocument;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The whole state; the data of `tidegate status`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StateDocument {
    pub(crate) time: String,
    pub(crate) started: String,
    pub(crate) uptime_s: u64,
    pub(crate) version: String,
    pub(crate) revision: String,
    pub(crate) listen: Vec<String>,
    pub(crate) admin: Option<String>,
    pub(crate) origin: OriginDocument,
    pub(crate) settings: SettingsDocument,
    pub(crate) not_ready_reasons: Vec<String>,
    pub(crate) ledger_error: Option<String>,
    pub(crate) untrusted_proxy: Option<String>,
    pub(crate) notes: Vec<String>,
    pub(crate) quotas: Vec<QuotaDocument>,
    pub(crate) path_costs: Vec<PathCostDocument>,
    pub(crate) classes: Vec<String>,
    pub(crate) traffic: Vec<TrafficDocument>,
    pub(crate) spenders: SpendersDocument,
    pub(crate) scopes: Vec<ScopeDocument>,
    pub(crate) crawlers: Vec<CrawlerDocument>,
    pub(crate) connections: u64,
    pub(crate) top_clients: Vec<ClientDocument>,
    pub(crate) log_lines_dropped: u64,
    pub(crate) corrections: Vec<CorrectionDocument>,
    pub(crate) switches: Vec<SwitchDocument>,
    pub(crate) cache: Option<CacheUsageDocument>,
}

/// Units that the origin reported for paths without a route cost.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PathCostDocument {
    pub(crate) path: String,
    pub(crate) quota: String,
    pub(crate) units: Amount,
    pub(crate) generalized_from: u64,
    pub(crate) examples: Vec<String>,
}

/// Counts of the cache since the process start.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CacheUsageDocument {
    pub(crate) requests: u64,
    pub(crate) answered: u64,
    pub(crate) hit_ratio: Option<f64>,
    pub(crate) saved: Vec<SavedUnits>,
}

/// A switch of an administrator.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SwitchDocument {
    pub(crate) target: String,
    pub(crate) effect: String,
    pub(crate) since: String,
    pub(crate) until: Option<String>,
    pub(crate) except: Vec<String>,
    pub(crate) why: Option<String>,
    pub(crate) by: Option<String>,
    pub(crate) peer: Option<String>,
}

/// The origin.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct OriginDocument {
    pub(crate) authority: String,
    pub(crate) resolved: bool,
    pub(crate) addresses: Vec<String>,
    pub(crate) servers: Vec<OriginServerDocument>,
    pub(crate) outage: Option<OutageDocument>,
}

/// Server of the origin.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct OriginServerDocument {
    pub(crate) url: String,
    pub(crate) healthy: bool,
    pub(crate) in_flight: usize,
    pub(crate) failures: u32,
    pub(crate) last_error: Option<String>,
}

/// Outage of the origin.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct OutageDocument {
    pub(crate) since: String,
    pub(crate) failed_requests: u64,
    pub(crate) last_error: String,
}

/// State of the configuration.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SettingsDocument {
    pub(crate) loaded_at: String,
    pub(crate) last_reload_failed: Option<ReloadFailureDocument>,
}

/// Failed reload.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ReloadFailureDocument {
    pub(crate) time: String,
    pub(crate) errors: String,
}

/// One quota with the usage of each class.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct QuotaDocument {
    pub(crate) name: String,
    pub(crate) limit: Amount,
    #[serde(default = "default_true")]
    pub(crate) enforce: bool,
    pub(crate) used: Amount,
    pub(crate) reserved: Amount,
    pub(crate) remaining: Amount,
    pub(crate) overrun: Amount,
    pub(crate) drift: Amount,
    pub(crate) closed_until: Option<String>,
    pub(crate) lost: Amount,
    pub(crate) window_start: String,
    pub(crate) window_end: String,
    pub(crate) window_ends_in_s: u64,
    pub(crate) pacing: Option<PacingDocument>,
    pub(crate) classes: Vec<ClassDocument>,
}

/// Pacing plan of a quota.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PacingDocument {
    pub(crate) mode: String,
    pub(crate) planned: Amount,
    pub(crate) earmarked: Amount,
    pub(crate) unpaced_demand_ratio: Option<f64>,
}

/// Usage of a quota by one class.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ClassDocument {
    pub(crate) class: String,
    pub(crate) charged: Amount,
    pub(crate) shed: f64,
    pub(crate) tier: u8,
    pub(crate) guard_units: Amount,
    pub(crate) plan: Option<ClassPlanDocument>,
}

/// Pacing plan of a class.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ClassPlanDocument {
    pub(crate) admit_share: Option<f64>,
    pub(crate) tokens: Option<Amount>,
    pub(crate) refill_per_hour: Option<Amount>,
    pub(crate) forecast_24h: Vec<f64>,
}

/// Requests of one class.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TrafficDocument {
    pub(crate) class: String,
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    pub(crate) refused_by: BTreeMap<String, u64>,
    pub(crate) shadow_refused: u64,
    pub(crate) shadow_refused_by: BTreeMap<String, u64>,
}

/// The largest spenders.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SpendersDocument {
    pub(crate) since: String,
    pub(crate) clients: Vec<SpenderDocument>,
    pub(crate) networks: Vec<SpenderDocument>,
    pub(crate) paths: Vec<SpenderDocument>,
    pub(crate) user_agents: Vec<SpenderDocument>,
}

/// Demand of one client, network, path or user agent.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SpenderDocument {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    pub(crate) requests: u64,
    pub(crate) refused: u64,
    pub(crate) units: Amount,
    pub(crate) units_asked: Amount,
    pub(crate) latest_decision: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) evidence: Vec<String>,
}

/// One scope of the origin.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ScopeDocument {
    pub(crate) name: String,
    pub(crate) inflight: u64,
    #[serde(flatten)]
    pub(crate) throttle: Option<ThrottleDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) partitions: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) busiest_partitions: Option<Vec<PartitionDocument>>,
}

/// One partition of a scope.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PartitionDocument {
    pub(crate) partition: String,
    pub(crate) inflight: u64,
    #[serde(flatten)]
    pub(crate) throttle: ThrottleDocument,
}

/// State of the throttle of a scope or partition.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ThrottleDocument {
    pub(crate) queue_length: u64,
    pub(crate) limit: Option<u64>,
    pub(crate) delay_s: f64,
    pub(crate) backoff_s: f64,
    pub(crate) backoff_level: u32,
    #[serde(default)]
    pub(crate) backoff_parts: u64,
    pub(crate) controller: String,
}

/// Crawl compliance of one operator.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CrawlerDocument {
    pub(crate) operator: String,
    pub(crate) crawl_delay_s: Option<u32>,
    pub(crate) requests: u64,
    pub(crate) robots_share: Option<f64>,
    pub(crate) mean_interval_s: Option<f64>,
    pub(crate) violations: u64,
    pub(crate) violation_ratio: Option<f64>,
}

/// One refused client.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ClientDocument {
    pub(crate) key: String,
    pub(crate) class: String,
    pub(crate) refused: u64,
    pub(crate) bucket_remaining: Option<u64>,
    pub(crate) limited_by: Option<String>,
    pub(crate) limited_for_s: Option<u64>,
}

fn default_true() -> bool {
    true
}
