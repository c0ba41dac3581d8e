//! What the admin listener needs of the gate.

use crate::engine::{ClientView, QuotaView, UnknownQuota};
use crate::policy::{Timestamp, Units};

/// The gate, as those see it who run it. Every answer comes from memory, but for a reload.
pub trait Operations: Send + Sync + 'static {
    /// What time it is.
    fn now(&self) -> Timestamp;
    /// When the process began.
    fn started(&self) -> Timestamp;
    /// Which build this is.
    fn version(&self) -> &str;
    /// What keeps the gate from serving, in sentences; nothing when it is ready.
    fn missing(&self) -> Vec<String>;
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
    /// The clients that were refused most often.
    fn top_clients(&self, count: usize) -> Vec<ClientView>;
    /// Corrects what a quota has used; what it was and what it is now.
    fn set_used(&self, quota: &str, used: Units) -> Result<(Units, Units), UnknownQuota>;
    /// The access-log line of a decision that is still remembered.
    fn decision(&self, id: u64) -> Option<Vec<u8>>;
    /// Reads the settings again; a summary, or every mistake. May block.
    fn reload(&self) -> Result<String, String>;
}

/// One scope of the origin.
#[derive(Clone, Debug)]
pub struct ScopeView {
    /// Its name.
    pub name: String,
    /// Requests that the origin is working on.
    pub inflight: u64,
}
