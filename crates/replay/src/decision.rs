//! The decision on one request under one policy.

use super::log::LinePosition;
use smallvec::SmallVec;
use tidegate_engine::QuotaUsage;
use tidegate_http_cache::CacheResult;
use tidegate_policy::budget::Payer;
use tidegate_policy::{BotId, Classification, QuotaId, Reason, RefusedQuotas, RouteId, Timestamp, Units};

/// Decision on one request, with everything that a report shows of it.
#[derive(Clone, Debug)]
pub struct ReplayedDecision {
    /// Position of the line in the log.
    pub position: LinePosition,
    /// Time of the decision.
    pub at: Timestamp,
    /// Class of the client, with the evidence.
    pub classification: Classification,
    /// Who pays for the request.
    pub payer: Payer,
    /// Bot that the user agent names, if it is in the built-in list.
    pub bot: Option<BotId>,
    /// Route.
    pub route: RouteId,
    /// Reason of the refusal; `None` if the request was admitted.
    pub refusal_reason: Option<Reason>,
    /// True if the refusal asks a browser to come back at once with a session.
    pub asks_back: bool,
    /// Reason of the first rule in shadow mode that would have refused the request.
    pub shadow: Option<Reason>,
    /// Quotas that refused the request, by position in `quota_usage`.
    pub refusing_quotas: RefusedQuotas,
    /// `Retry-After` sent with the response, in seconds.
    pub retry_after_s: Option<u64>,
    /// Usage of each quota of the route at the decision.
    pub quota_usage: SmallVec<[QuotaUsage; 2]>,
    /// Units charged to each quota in the end; for a refused request, the units it would have been charged.
    pub costs: SmallVec<[(QuotaId, Units); 2]>,
    /// What the cache did, as logged or simulated; `None` if it did nothing.
    pub cache: Option<CacheResult>,
    /// Units of each quota that a stored response saved.
    pub saved: SmallVec<[(QuotaId, Units); 2]>,
}

impl ReplayedDecision {
    /// Returns true if the request has a cost.
    pub fn is_costly(&self) -> bool {
        !self.quota_usage.is_empty()
    }

    /// Returns true if a stored response was sent in place of a refusal.
    pub fn is_replaced_refusal(&self) -> bool {
        self.refusal_reason.is_some() && self.cache.is_some()
    }

    /// Returns the usage of a quota before the request.
    pub fn used_before(&self, usage: &QuotaUsage) -> Units {
        let is_included = self.refusal_reason.is_none_or(Reason::is_of_scope);
        if is_included { usage.used.saturating_sub(usage.cost) } else { usage.used }
    }

    /// Returns true if the refusal followed from the state of the origin or of the ledger. It cannot be reproduced, so
    /// it is copied from the log.
    pub fn is_copied_from_log(&self) -> bool {
        self.refusal_reason.is_some_and(|reason| reason.is_of_scope() || reason == Reason::Ledger)
    }
}
