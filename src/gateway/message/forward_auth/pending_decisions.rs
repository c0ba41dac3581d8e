//! Admitted requests of other proxies whose cost is not known, of all workers. Each worker holds its own requests; this is
//! where any of them finds one by its id, and where the oldest are dropped.

use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use tidegate_policy::{Timestamp, Units};
use tokio::sync::oneshot;

/// Bytes of a pending request besides its fields: its decision, its task and its entry here.
const ENTRY: u64 = 6 * 1024;

/// Costs by the names of quotas.
pub(in crate::gateway) type SettledCosts = Vec<(String, Units)>;

/// Costs that a proxy reports for its request, and where to send the charges.
pub(in crate::gateway) struct ReportedCosts {
    pub(in crate::gateway) costs: SettledCosts,
    pub(in crate::gateway) charged: oneshot::Sender<SettledCosts>,
}

/// Admitted requests whose cost is not known. A request that is dropped here costs what its route expects.
#[derive(Default)]
pub(in crate::gateway) struct PendingDecisions {
    /// Keys of the ids.
    ids: RandomState,
    state: Mutex<PendingState>,
}

#[derive(Default)]
struct PendingState {
    by_id: HashMap<u64, PendingDecision>,
    /// Times of the decisions and their ids.
    by_age: BTreeSet<(Timestamp, u64)>,
    bytes: u64,
    /// Number of requests that were dropped to make space.
    evicted: u64,
}

struct PendingDecision {
    decided_at: Timestamp,
    bytes: u64,
    settlement: oneshot::Sender<ReportedCosts>,
}

impl PendingDecisions {
    /// Returns an id that nobody can guess from others: a keyed hash of `number`, which must be unique.
    pub(in crate::gateway) fn unguessable_id(&self, number: u64) -> u64 {
        self.ids.hash_one(number)
    }

    /// Adds a request with `field_bytes` of fields, decided at `now` (monotonic). Above `memory` bytes, drops the oldest
    /// ones. The receiver fails if the request is dropped.
    pub(in crate::gateway) fn insert(
        &self,
        id: u64,
        field_bytes: usize,
        memory: u64,
        now: Timestamp,
    ) -> oneshot::Receiver<ReportedCosts> {
        let (settlement, receiver) = oneshot::channel();
        let bytes = ENTRY + field_bytes as u64;
        let mut state = self.state.lock();
        state.remove(id);
        state.by_id.insert(id, PendingDecision { decided_at: now, bytes, settlement });
        state.by_age.insert((now, id));
        state.bytes += bytes;
        while state.bytes > memory && state.remove_oldest() {
            state.evicted += 1;
        }
        receiver
    }

    /// Returns the number of requests, and of those that were dropped to make space.
    pub(in crate::gateway) fn counts(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.by_id.len() as u64, state.evicted)
    }

    /// Removes a request. Returns where to send its costs, or `None` if it is unknown or settled.
    pub(in crate::gateway) fn take(&self, id: u64) -> Option<oneshot::Sender<ReportedCosts>> {
        self.state.lock().remove(id).map(|pending| pending.settlement)
    }

    /// Drops the requests that were decided `settle_after` ago or earlier; `now` is monotonic.
    pub(in crate::gateway) fn expire(&self, settle_after: Duration, now: Timestamp) {
        let mut state = self.state.lock();
        while state.by_age.first().is_some_and(|(decided_at, _)| *decided_at + settle_after <= now) {
            state.remove_oldest();
        }
    }
}

impl PendingState {
    fn remove(&mut self, id: u64) -> Option<PendingDecision> {
        let pending = self.by_id.remove(&id)?;
        self.by_age.remove(&(pending.decided_at, id));
        self.bytes -= pending.bytes;
        Some(pending)
    }

    /// Returns false if there is none.
    fn remove_oldest(&mut self) -> bool {
        let oldest = self.by_age.first().map(|(_, id)| *id);
        oldest.is_some_and(|id| self.remove(id).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot::error::TryRecvError;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    #[test]
    fn decision_is_settled_once() {
        let pending = PendingDecisions::default();
        let mut receiver = pending.insert(7, 0, u64::MAX, at(0));
        let settlement = pending.take(7).expect("pending");
        assert!(pending.take(7).is_none() && pending.take(8).is_none());
        let (charged, _) = oneshot::channel();
        assert!(settlement.send(ReportedCosts { costs: Vec::new(), charged }).is_ok());
        assert!(receiver.try_recv().is_ok());
        assert_eq!(pending.state.lock().bytes, 0);
    }

    #[test]
    fn old_decisions_expire() {
        let pending = PendingDecisions::default();
        let mut receivers = [0, 1, 2].map(|second| pending.insert(second, 0, u64::MAX, at(second)));
        pending.expire(Duration::from_secs(60), at(61));
        let states = receivers.each_mut().map(|receiver| receiver.try_recv().err());
        assert_eq!(states, [Some(TryRecvError::Closed), Some(TryRecvError::Closed), Some(TryRecvError::Empty)]);
    }

    #[test]
    fn oldest_decisions_are_dropped_above_the_memory() {
        let pending = PendingDecisions::default();
        let mut receivers: Vec<_> = (0..5).map(|id| pending.insert(id, 0, 3 * ENTRY, at(0))).collect();
        assert!(pending.take(3).is_some());
        receivers.push(pending.insert(5, ENTRY as usize, 3 * ENTRY, at(1)));
        let is_open: Vec<bool> =
            receivers.iter_mut().map(|it| it.try_recv().err() == Some(TryRecvError::Empty)).collect();
        assert_eq!(is_open, [false, false, false, false, true, true]);
        assert!(pending.insert(6, 9 * ENTRY as usize, 3 * ENTRY, at(2)).try_recv().is_err(), "larger than all memory");
        assert_eq!(pending.counts(), (0, 6));
    }

    #[test]
    fn ids_of_two_processes_differ() {
        let [one, other] = [PendingDecisions::default(), PendingDecisions::default()];
        assert_eq!(one.unguessable_id(1), one.unguessable_id(1));
        assert_ne!(one.unguessable_id(1), one.unguessable_id(2));
        assert_ne!(one.unguessable_id(1), other.unguessable_id(1));
    }
}
