//! Interface through which the admin listener reads and controls the gateway.

use crate::gateway::{CachePurge, CacheStats, CachedUrl, FillOutcome, OriginOutage, OriginServerView};
use crate::telemetry::ClassTraffic;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tidegate_config::admin_address::AdminAddress;
use tidegate_engine::spenders::TopSpenders;
use tidegate_engine::switch_store::SwitchEntry;
use tidegate_engine::{ClientView, PathCostView, QuotaView, ScopeState, UnknownQuota};
use tidegate_http_cache::CacheResult;
use tidegate_policy::crawl_delay::ComplianceView;
use tidegate_policy::switches::SwitchEffect;
use tidegate_policy::{Timestamp, Units};
use tidegate_replay::explain::Explanation;
use tokio::sync::oneshot;

/// The gateway as the admin API sees it. All methods read from memory, except [`Self::reload`].
pub trait GatewayApi: Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
    /// Returns the start time of the process.
    fn started_at(&self) -> Timestamp;
    /// Returns the version of the build.
    fn version(&self) -> &str;
    /// Returns the source revision of the build.
    fn revision(&self) -> &str;
    /// Returns the listen addresses and the address of the origin.
    fn addresses(&self) -> ListenAddresses;
    /// Returns the state of each server of the origin.
    fn origin_servers(&self) -> Vec<OriginServerView>;
    /// Returns the outage of the origin; `None` if it responded to the last request.
    fn origin_outage(&self) -> Option<OriginOutage>;
    /// Returns the load time of the current config, and the error of the last reload if it failed.
    fn settings(&self) -> SettingsView;
    /// Returns the reasons why the gateway is not ready, as sentences; empty if it is ready.
    fn not_ready_reasons(&self) -> Vec<String>;
    /// Returns the error of the ledger, if any.
    fn ledger_error(&self) -> Option<String>;
    /// Returns the warning about a proxy that `trusted_proxies` does not name, if one was seen.
    fn untrusted_proxy(&self) -> Option<String>;
    /// Returns warnings for the administrator, as sentences: keys that wait for a restart, stale address lists and
    /// range lists, lost switches, robots.txt served without directives.
    fn warnings(&self) -> Vec<String>;
    /// Returns the metrics in the Prometheus text format.
    fn metrics(&self) -> String;
    /// Returns the quotas of the current rules.
    fn quotas(&self) -> Vec<QuotaView>;
    /// Returns the units that the origin reported for paths without a route cost, most first.
    fn path_costs(&self) -> Vec<PathCostView>;
    /// Returns the class names of the current rules, in order.
    fn classes(&self) -> Vec<String>;
    /// Returns the scopes of the origin.
    fn scopes(&self) -> Vec<ScopeView>;
    /// Returns the crawl compliance of each operator's crawlers.
    fn crawlers(&self) -> Vec<(String, ComplianceView)>;
    /// Records that the admin listener could not accept a connection, for the log.
    fn record_accept_failure(&self, error: &io::Error);
    /// Returns the number of open client connections.
    fn connections(&self) -> usize;
    /// Returns the number of access log lines dropped.
    fn log_lines_dropped(&self) -> u64;
    /// Returns the `count` clients refused most often.
    fn top_clients(&self, count: usize) -> Vec<ClientView>;
    /// Returns the requests of each class since the start.
    fn class_traffic(&self) -> Vec<ClassTraffic>;
    /// Returns the start of the last hour, and the `count` largest spenders of each kind since then.
    fn top_spenders(&self, count: usize) -> (Timestamp, TopSpenders);
    /// Sets the usage of a quota; returns the usage before and after.
    fn set_used(&self, quota: &str, used: Units) -> Result<(Units, Units), UnknownQuota>;
    /// Returns the state of the cache; `None` if nothing is stored.
    fn cache(&self) -> Option<CacheView>;
    /// Returns what the cache did since the start; `None` if nothing is stored.
    fn cache_usage(&self) -> Option<CacheUsage>;
    /// Removes stored responses; returns their number, or an error of one line.
    fn purge_cache(&self, purge: &CachePurge) -> Result<u64, String>;
    /// Fetches a URL into the cache within the limits of a class. Returns where the outcome arrives, or an error of one line.
    fn warm_cache(&self, url: &str, class: &str, site: Option<&str>) -> Result<WarmReceiver, String>;
    /// Returns the switches in effect.
    fn switches(&self) -> Vec<SwitchEntry>;
    /// Changes a switch; returns the change, or an error of one line.
    fn change_switch(&self, change: SwitchChange) -> Result<SwitchEntry, String>;
    /// Returns the access log line of a decision, or `None` if it is no longer stored.
    fn decision(&self, id: u64) -> Option<Vec<u8>>;
    /// Returns the access log lines of all decisions that are still stored.
    fn recent_decisions(&self) -> Vec<Vec<u8>>;
    /// Explains a decision by the current rules; returns `None` if it is no longer stored.
    fn explanation(&self, id: u64) -> Option<Explanation>;
    /// Reads the configuration again. Returns a summary, or all errors, one per line. May block.
    fn reload(&self) -> Result<String, String>;
}

/// Listen addresses, and the address of the origin.
#[derive(Clone, Debug)]
pub struct ListenAddresses {
    /// Addresses on which clients are served.
    pub listen: Vec<SocketAddr>,
    /// Address of the admin listener, if enabled.
    pub admin: Option<AdminAddress>,
    /// Host and port of the origin.
    pub origin: String,
    /// Addresses of the origin; empty until its name is resolved.
    pub origin_addresses: Vec<SocketAddr>,
}

/// State of the configuration.
#[derive(Clone, Debug)]
pub struct SettingsView {
    /// Load time of the current config.
    pub loaded_at: Timestamp,
    /// Time and errors of the last reload, if it failed.
    pub last_reload_error: Option<(Timestamp, String)>,
}

/// State of one scope of the origin.
#[derive(Clone, Debug)]
pub struct ScopeView {
    /// Name of the scope.
    pub name: String,
    /// Number of requests in flight to the origin.
    pub inflight: u64,
    /// State of the throttle, if the scope is throttled.
    pub throttle: Option<ScopeState>,
    /// The busiest partitions, each named by its partition key; empty if the scope is not partitioned.
    pub busiest: Vec<ScopeState>,
}

/// Change of a switch, as an administrator requests it.
#[derive(Clone, Debug)]
pub struct SwitchChange {
    /// Address, network, operator, class or `maintenance`.
    pub target: String,
    /// New effect; `None` ends the switch.
    pub effect: Option<SwitchEffect>,
    /// Duration of the switch; `None` without an end.
    pub lasts: Option<Duration>,
    /// Networks that are served during maintenance.
    pub except: Vec<String>,
    /// Reason that the administrator gives.
    pub why: Option<String>,
    /// Name that the request gives; it is not verified.
    pub by: Option<String>,
    /// Address or user that the request came from.
    pub peer: Option<String>,
}

/// State of the cache.
#[derive(Clone, Debug)]
pub struct CacheView {
    /// What it contains.
    pub stats: CacheStats,
    /// What it did.
    pub usage: CacheUsage,
    /// URLs that were requested most, in descending order.
    pub most_requested: Vec<CachedUrl>,
}

/// What the cache did since the start.
#[derive(Clone, Debug)]
pub struct CacheUsage {
    /// Number of requests by result, in the order of [`CacheResult::ALL`].
    pub requests: [u64; CacheResult::ALL.len()],
    /// Units that it saved: quota, class, units.
    pub saved: Vec<(String, String, Units)>,
    /// Surplus units that refreshed stored responses: quota, class, units.
    pub refreshed: Vec<(String, String, Units)>,
}

/// Where the outcome of a request arrives that warms the cache.
pub type WarmReceiver = oneshot::Receiver<Result<FillOutcome, String>>;
