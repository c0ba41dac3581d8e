//! Interface through which the admin listener reads and controls the gateway.

use super::cache::CacheDocument;
use super::state::{StateDocument, SwitchDocument};
use super::usage::{UsageDocument, UsageRecord};
use crate::gateway::{CachePurge, FillOutcome};
use std::io;
use std::time::Duration;
use tidegate_engine::UnknownQuota;
use tidegate_policy::switches::SwitchEffect;
use tidegate_policy::{Timestamp, Units};
use tidegate_replay::explain::Explanation;
use tokio::sync::oneshot;

/// The gateway as the admin API sees it. All methods read from memory, except [`Self::reload`] and
/// [`Self::usage_history`].
pub trait GatewayApi: Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
    /// Returns the state, without the corrections, which the admin listener keeps.
    fn state(&self) -> StateDocument;
    /// Returns the reasons why the gateway is not ready, as sentences; empty if it is ready. Part of the state, but read
    /// by health checks, which need no token.
    fn not_ready_reasons(&self) -> Vec<String>;
    /// Returns the state of the cache; `None` if nothing is stored.
    fn cache(&self) -> Option<CacheDocument>;
    /// Returns the metrics in the Prometheus text format.
    fn metrics(&self) -> String;
    /// Returns the access log line of a decision, or `None` if it is no longer stored.
    fn decision(&self, id: u64) -> Option<Vec<u8>>;
    /// Returns the access log lines of all decisions that are still stored.
    fn recent_decisions(&self) -> Vec<Vec<u8>>;
    /// Explains a decision by the current rules; returns `None` if it is no longer stored.
    fn explanation(&self, id: u64) -> Option<Explanation>;
    /// Returns the usage of each budget by each customer of a listed key.
    fn customer_usage(&self) -> Vec<UsageDocument>;
    /// Returns the recorded usage in the ended windows of a month such as `2026-11`, by default the current one, or an error of
    /// one line. May block.
    fn usage_history(&self, month: Option<&str>) -> Result<Vec<UsageRecord>, String>;
    /// Sets the usage of a quota; returns the usage before and after.
    fn set_used(&self, quota: &str, used: Units) -> Result<(Units, Units), UnknownQuota>;
    /// Changes a switch; returns the change, or an error of one line.
    fn change_switch(&self, change: SwitchChange) -> Result<SwitchDocument, String>;
    /// Removes stored responses; returns their number, or an error of one line.
    fn purge_cache(&self, purge: &CachePurge) -> Result<u64, String>;
    /// Fetches a URL into the cache within the limits of a class. Returns where the outcome arrives, or an error of one line.
    fn warm_cache(&self, url: &str, class: &str, site: Option<&str>) -> Result<WarmReceiver, String>;
    /// Reads the configuration again. Returns a summary, or all errors, one per line. May block.
    fn reload(&self) -> Result<String, String>;
    /// Records that the admin listener could not accept a connection, for the log.
    fn record_accept_failure(&self, error: &io::Error);
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

/// Where the outcome of a request arrives that warms the cache.
pub type WarmReceiver = oneshot::Receiver<Result<FillOutcome, String>>;
