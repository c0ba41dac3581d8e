//! What has been admitted and is not over yet: it holds its reservation until its answer is there.
//!
//! Where the gate's own log says between which decisions a request was settled, that counts; elsewhere its time does.

use super::origin_cache::PageNumber;
use crate::engine::{Observation, Permit};
use crate::policy::{ClassId, QuotaId, Timestamp, Units};
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};

/// Requests under way, by when they end.
#[derive(Default)]
pub(super) struct InFlight {
    by_time: VecDeque<Completion>,
    /// Bills of one quota each, by their number on it and in the order in which they came.
    by_turn: BTreeMap<(Account, u64, u64), PendingCharge>,
    count: u64,
}

/// A quota as one gate counts it: a file that it logged to, and the quota.
pub(super) type Account = (usize, QuotaId);

/// The end of a request.
pub(super) struct Completion {
    /// When.
    pub(super) due: Timestamp,
    /// What is settled then. In a box: most requests have none, and all ends are moved about.
    pub(super) charge: Option<Box<PendingCharge>>,
    /// What is learned then, and with what status it was answered, if it was.
    pub(super) observation: Option<(Observation, Option<u16>)>,
}

/// What a request costs.
pub(super) struct PendingCharge {
    pub(super) permit: Permit,
    pub(super) class: ClassId,
    /// What it really costs, quota by quota; none where it was never sent.
    pub(super) costs: Option<SmallVec<[(QuotaId, Units); 2]>>,
    /// It is charged a second time first, and then settled as this number on its quota.
    pub(super) then_settled: Option<u64>,
    /// The page that has been fetched then.
    pub(super) page: Option<PageNumber>,
}

impl InFlight {
    /// Adds a request. Where there is no room, the one that would end first has to end now.
    pub(super) fn add(&mut self, ending: Completion) -> Option<Completion> {
        let line = &mut self.by_time;
        let first = if line.len() >= MAX_IN_FLIGHT { line.pop_front() } else { None };
        match line.back().is_some_and(|last| last.due > ending.due) {
            true => line.insert(line.partition_point(|other| other.due <= ending.due), ending),
            false => line.push_back(ending),
        }
        first
    }

    /// The next that is over by `now`.
    pub(super) fn pop_completed(&mut self, now: Timestamp) -> Option<Completion> {
        if self.by_time.front()?.due > now { None } else { self.by_time.pop_front() }
    }

    /// Adds a bill of one quota that is the settlement `turn` there. Where there is no room, another has to be settled now.
    pub(super) fn add_charge(&mut self, account: Account, turn: u64, charge: PendingCharge) -> Option<PendingCharge> {
        let first = if self.by_turn.len() >= MAX_IN_FLIGHT { self.pop_any() } else { None };
        self.count += 1;
        self.by_turn.insert((account, turn, self.count), charge);
        first
    }

    /// The next bill that was settled before the decision `turn` on an account.
    pub(super) fn settled_before(&mut self, account: Account, turn: u64) -> Option<PendingCharge> {
        let (&next, _) = self.by_turn.range((account, 0, 0)..(account, turn, 0)).next()?;
        self.by_turn.remove(&next)
    }

    /// A bill that is still open, whatever its turn.
    pub(super) fn pop_any(&mut self) -> Option<PendingCharge> {
        self.by_turn.pop_first().map(|(_, charge)| charge)
    }
}

/// A minute of a site with a thousand requests a second that take a minute each.
const MAX_IN_FLIGHT: usize = 65_536;
