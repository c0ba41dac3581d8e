//! Observers of the decisions of a replay.

use super::decision::ReplayedDecision;
use super::log::{LinePosition, LogLine};
use super::policy::Policy;
use super::response_cache::CacheRole;
use tidegate_engine::{Admission, DryRun, QuotaView};
use tidegate_policy::budget::CustomerSource;
use tidegate_policy::identity::{ClientKey, CredentialSource};
use tidegate_policy::{Facts, QuotaId, Timestamp, Units};

/// Observer of every decision.
pub(super) trait Observer {
    /// Called before a request is decided.
    fn before_decision(&mut self, _request: &PendingRequest<'_, '_>) {}

    /// Called after a request was decided under `policy`.
    fn after_decision(&mut self, _policy: &Policy, _decision: &ReplayedDecision) {}
}

/// Observer that calls a closure after each decision.
pub(super) struct FnObserver<T>(pub(super) T);

impl<T: FnMut(&Policy, &ReplayedDecision)> Observer for FnObserver<T> {
    fn after_decision(&mut self, policy: &Policy, decision: &ReplayedDecision) {
        self.0(policy, decision);
    }
}

/// A request of a log before its decision, with all facts that the rules use.
pub struct PendingRequest<'a, 'text> {
    /// Position of the line in the log.
    pub position: LinePosition,
    /// Time of the request.
    pub at: Timestamp,
    /// Parsed log line.
    pub line: &'a LogLine<'text>,
    /// Facts of the request.
    pub facts: &'a Facts<'a>,
    /// Fraction of `retry_after_spread` added to the `Retry-After` of the request.
    pub spread: f64,
    pub(super) role: CacheRole,
    pub(super) credential_hash: Option<u64>,
    pub(super) customer: Option<ClientKey>,
    /// Expected costs in quotas in which the route has none.
    pub(super) learned: &'a [(QuotaId, Units)],
    pub(super) admission: &'a Admission,
}

/// Returns the hash of a credential that a log has: of the one that names the customer, or of the one that keys the bucket.
pub(super) fn logged_hash(
    source: &CredentialSource,
    customer_source: &Option<CustomerSource>,
    customer: Option<ClientKey>,
    credential_hash: Option<u64>,
) -> Option<u64> {
    match customer_source {
        Some(CustomerSource::Credential(customer_source)) if source == customer_source => {
            customer.map(ClientKey::to_u64).or(credential_hash)
        }
        _ => credential_hash,
    }
}

impl PendingRequest<'_, '_> {
    /// Evaluates the request without changing any state.
    pub fn dry_run(&self) -> DryRun<'_> {
        let customer_source = &self.admission.rules().customer;
        let hash =
            |source: &CredentialSource| logged_hash(source, customer_source, self.customer, self.credential_hash);
        self.admission.dry_run(self.facts, self.learned, hash, self.at)
    }

    /// Returns snapshots of all quotas.
    pub fn quotas(&self) -> Vec<QuotaView> {
        self.admission.quotas(self.at)
    }
}
