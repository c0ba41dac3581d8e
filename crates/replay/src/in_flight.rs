//! Admitted requests in flight. A request holds its reservation until its response is complete.
//!
//! The gateway's own log records between which decisions a request was settled; for other logs its time decides.

use super::page_hash::PageHash;
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};
use tidegate_engine::{Observation, Permit};
use tidegate_policy::{ClassId, QuotaId, Timestamp, Units};

/// Requests in flight, by the time of their completion.
#[derive(Default)]
pub(super) struct InFlight {
    by_time: VecDeque<Completion>,
    /// Charges of one quota each, by sequence number on it and order of insertion.
    by_sequence: BTreeMap<(SequenceDomain, u64, u64), PendingCharge>,
    count: u64,
}

/// A quota as counted by one instance: index of the instance's log file, and the quota.
pub(super) type SequenceDomain = (usize, QuotaId);

/// Completion of a request.
pub(super) struct Completion {
    /// Time of the completion.
    pub(super) due: Timestamp,
    /// Charge that is settled at the completion. Boxed because most requests have none and completions are moved often.
    pub(super) charge: Option<Box<PendingCharge>>,
    /// Observation for bot detection, with the response status if there was a response.
    pub(super) observation: Option<(Observation, Option<u16>)>,
}

/// Charge of a request that is not settled yet.
pub(super) struct PendingCharge {
    pub(super) permit: Permit,
    pub(super) class: ClassId,
    /// Actual cost by quota; `None` if the request was never sent.
    pub(super) costs: Option<SmallVec<[(QuotaId, Units); 2]>>,
    /// Sequence number of the settlement, if the request is charged a second time first.
    pub(super) settle_sequence: Option<u64>,
    /// Page that is cached once the request completes.
    pub(super) page: Option<PageHash>,
}

impl InFlight {
    /// Adds a request. Returns the earliest completion if there is no room for both; it must be settled now.
    pub(super) fn add(&mut self, completion: Completion) -> Option<Completion> {
        let queue = &mut self.by_time;
        let first = if queue.len() >= MAX_IN_FLIGHT { queue.pop_front() } else { None };
        match queue.back().is_some_and(|last| last.due > completion.due) {
            true => queue.insert(queue.partition_point(|other| other.due <= completion.due), completion),
            false => queue.push_back(completion),
        }
        first
    }

    /// Removes and returns the next request that completes by `now`.
    pub(super) fn pop_completed(&mut self, now: Timestamp) -> Option<Completion> {
        if self.by_time.front()?.due > now { None } else { self.by_time.pop_front() }
    }

    /// Adds a charge with a sequence number on `account`. Returns another charge if there is no room for both; it must
    /// be settled now.
    pub(super) fn add_charge(
        &mut self,
        account: SequenceDomain,
        sequence: u64,
        charge: PendingCharge,
    ) -> Option<PendingCharge> {
        let first = if self.by_sequence.len() >= MAX_IN_FLIGHT { self.pop_any() } else { None };
        self.count += 1;
        self.by_sequence.insert((account, sequence, self.count), charge);
        first
    }

    /// Removes and returns the next charge that was settled before a sequence number of an account.
    pub(super) fn pop_settled_before(&mut self, account: SequenceDomain, sequence: u64) -> Option<PendingCharge> {
        let (&next, _) = self.by_sequence.range((account, 0, 0)..(account, sequence, 0)).next()?;
        self.by_sequence.remove(&next)
    }

    /// Removes and returns any open charge, regardless of its sequence number.
    pub(super) fn pop_any(&mut self) -> Option<PendingCharge> {
        self.by_sequence.pop_first().map(|(_, charge)| charge)
    }
}

/// Enough for a thousand requests per second that take a minute each.
const MAX_IN_FLIGHT: usize = 65_536;
