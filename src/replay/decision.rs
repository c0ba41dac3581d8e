//! What became of one request under one policy.

use super::log::LinePosition;
use crate::engine::QuotaUsage;
use crate::policy::{BotId, Classification, QuotaId, Reason, Timestamp, Units};
use smallvec::SmallVec;

/// One decision, with all that a report tells of it.
#[derive(Clone, Debug)]
pub struct ReplayedDecision {
    /// Where the line stands.
    pub place: LinePosition,
    /// When it was decided.
    pub at: Timestamp,
    /// Who asked.
    pub classified: Classification,
    /// Which bot the user agent names, if it is one of the list.
    pub bot: Option<BotId>,
    /// The place of its route.
    pub route: usize,
    /// What said no; none where it was admitted.
    pub refused: Option<Reason>,
    /// The first rule in shadow mode that said no.
    pub shadow: Option<Reason>,
    /// Which of its quotas said no, by position: bit 0 is the first.
    pub refused_by: u8,
    /// The `Retry-After` that it was told.
    pub retry_after_s: Option<u64>,
    /// Where each of its quotas stood.
    pub standings: SmallVec<[QuotaUsage; 2]>,
    /// What each of them was charged in the end; what it would have been, where it was refused.
    pub costs: SmallVec<[(QuotaId, Units); 2]>,
}

impl ReplayedDecision {
    /// True where it costs something.
    pub fn is_costly(&self) -> bool {
        !self.standings.is_empty()
    }

    /// What was used of a quota, as the request found it.
    pub fn used_before(&self, standing: &QuotaUsage) -> Units {
        let had_a_share = matches!(self.refused, None | Some(Reason::Throttle | Reason::Backoff));
        if had_a_share { standing.used.saturating_sub(standing.cost) } else { standing.used }
    }

    /// True where the refusal came from how the origin was, or how far the ledger had come: a log tells it, and nobody can
    /// work it out again.
    pub fn is_copied_from_log(&self) -> bool {
        matches!(self.refused, Some(Reason::Throttle | Reason::Backoff | Reason::Ledger))
    }
}
