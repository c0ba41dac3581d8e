//! What the admin listener needs of the gate.

use crate::engine::{ClientView, QuotaView, ScopeState, UnknownQuota};
use crate::explain::Explanation;
use crate::policy::crawl_delay::ComplianceView;
use crate::policy::{Timestamp, Units};
use std::net::SocketAddr;

/// The gate, as those see it who run it. Every answer comes from memory, but for a reload.
pub trait GatewayApi: Send + Sync + 'static {
    /// What time it is.
    fn now(&self) -> Timestamp;
    /// When the process began.
    fn started(&self) -> Timestamp;
    /// Which build this is.
    fn version(&self) -> &str;
    /// Which state of the source it was made of.
    fn revision(&self) -> &str;
    /// Who listens where, and who is behind it.
    fn addresses(&self) -> ListenAddresses;
    /// Since when the settings are in force, and whether newer ones were wrong.
    fn settings(&self) -> SettingsView;
    /// What keeps the gate from serving, in sentences; nothing when it is ready.
    fn not_ready_reasons(&self) -> Vec<String>;
    /// What is wrong with the ledger, if anything is.
    fn ledger_error(&self) -> Option<String>;
    /// The warning of a proxy in front that the settings do not name, if one was seen.
    fn untrusted_proxy(&self) -> Option<String>;
    /// What somebody who runs the gate should know, in sentences.
    fn notes(&self) -> Vec<String>;
    /// The text for Prometheus.
    fn metrics(&self) -> String;
    /// The quotas of the rules in force.
    fn quotas(&self) -> Vec<QuotaView>;
    /// The names of the classes of the rules in force, in their order.
    fn classes(&self) -> Vec<String>;
    /// The scopes of the origin.
    fn scopes(&self) -> Vec<ScopeView>;
    /// How crawlers keep to what robots.txt asks of them, by operator.
    fn crawlers(&self) -> Vec<(String, ComplianceView)>;
    /// Connections that clients have open.
    fn connections(&self) -> usize;
    /// Lines of the access log that were thrown away.
    fn log_lines_dropped(&self) -> u64;
    /// The clients that were refused most often.
    fn top_clients(&self, count: usize) -> Vec<ClientView>;
    /// Corrects what a quota has used; what it was and what it is now.
    fn set_used(&self, quota: &str, used: Units) -> Result<(Units, Units), UnknownQuota>;
    /// The access-log line of a decision that is still remembered.
    fn decision(&self, id: u64) -> Option<Vec<u8>>;
    /// Why a decision that is still remembered was made, by the rules in force.
    fn explanation(&self, id: u64) -> Option<Explanation>;
    /// Reads the settings again; a summary, or every mistake. May block.
    fn reload(&self) -> Result<String, String>;
}

/// Who listens where, and who is behind it.
#[derive(Clone, Debug)]
pub struct ListenAddresses {
    /// Where clients are served.
    pub listen: Vec<SocketAddr>,
    /// Where operators are, if anywhere.
    pub admin: Option<SocketAddr>,
    /// The origin's host and port.
    pub origin: String,
    /// Where the origin is; empty until it has been looked up.
    pub origin_addresses: Vec<SocketAddr>,
}

/// The settings in force.
#[derive(Clone, Debug)]
pub struct SettingsView {
    /// Since when they are.
    pub loaded: Timestamp,
    /// When newer ones were found wrong since, and every mistake in them.
    pub last_reload_error: Option<(Timestamp, String)>,
}

/// One scope of the origin.
#[derive(Clone, Debug)]
pub struct ScopeView {
    /// Its name.
    pub name: String,
    /// Requests that the origin is working on.
    pub inflight: u64,
    /// How it is throttled, if it is.
    pub throttle: Option<ScopeState>,
    /// The busiest of its values, each named by its value; none, where it is there once.
    pub busiest: Vec<ScopeState>,
}
