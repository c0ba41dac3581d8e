//! Counter of one quota: its state behind a lock, and the wake-up of the refresher of its lease.

use super::cost_estimates::LearnedCost;
use super::lease_mode::LeaseMode;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_policy::client_usage::ClientUsage;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::quota::Quota;
use tidegate_policy::quota_state::{QuotaState, Settlement};
use tidegate_policy::quota_sync::{OriginQuotaEvent, OriginReport};
use tidegate_policy::{StableClassId, Timestamp, Units};

/// A counter of one quota behind a lock.
pub(super) struct QuotaCounter {
    name: String,
    lock_order: usize,
    lease_mode: LeaseMode,
    state: Mutex<QuotaState>,
    /// Usage by client, for a quota with a limit per client. Locked while the state is.
    client_usage: Mutex<ClientUsage>,
    /// Number of reports of the origin that were implausibly high.
    implausible_costs: AtomicU64,
    /// Window and network of the first client that was sent uncertain evidence of exhaustion.
    exhaustion_witness: Mutex<Option<(u64, u64)>>,
}

impl QuotaCounter {
    pub(super) fn open(
        lock_order: usize,
        quota: &Quota,
        class_ids: &[StableClassId],
        max_cost: Units,
        lease_mode: LeaseMode,
        max_clients: usize,
        now: Timestamp,
    ) -> Self {
        let client_usage = Mutex::new(ClientUsage::new(max_clients));
        let is_leased = matches!(lease_mode, LeaseMode::Leased(_));
        let state = QuotaState::new(quota, class_ids, max_cost, is_leased, now);
        Self {
            name: quota.name.clone(),
            lock_order,
            lease_mode,
            state: Mutex::new(state),
            client_usage,
            implausible_costs: AtomicU64::new(0),
            exhaustion_witness: Mutex::default(),
        }
    }

    /// Applies a changed configuration.
    pub(super) fn update_config(&self, quota: &Quota, class_ids: &[StableClassId], max_cost: Units, now: Timestamp) {
        self.lock_at(now).update_config(quota, class_ids, max_cost);
        self.lease_mode.wake_refresher();
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the position of the counter in the lock order.
    pub(super) fn lock_order(&self) -> usize {
        self.lock_order
    }

    /// Locks the state and advances it to the window that contains `now`.
    pub(super) fn lock_at(&self, now: Timestamp) -> MutexGuard<'_, QuotaState> {
        let mut state = self.state.lock();
        self.advance_to(&mut state, now);
        state
    }

    /// Locks the state, advanced at least to the past time `decided_at` of a request. A response that took long does not set
    /// the clock back.
    pub(super) fn lock_from(&self, decided_at: Timestamp) -> MutexGuard<'_, QuotaState> {
        let mut state = self.state.lock();
        if decided_at > state.latest_time() {
            self.advance_to(&mut state, decided_at);
        }
        state
    }

    /// Advances the state to `now`, unless it has already been advanced to a later time.
    pub(super) fn advance_to(&self, state: &mut QuotaState, now: Timestamp) {
        self.wake_refresher_if(state.advance_to(now));
    }

    /// Locks the state without advancing it.
    pub(super) fn lock(&self) -> MutexGuard<'_, QuotaState> {
        self.state.lock()
    }

    /// Returns the units of `limit` that a client has used in the current window.
    pub(super) fn client_used(&self, state: &QuotaState, client: ClientKey, limit: Units) -> Units {
        self.client_usage.lock().used(state.window_id(), client, limit)
    }

    /// Counts units reserved in the current window for a client.
    pub(super) fn reserve_for_client(&self, state: &QuotaState, client: ClientKey, units: Units) {
        self.client_usage.lock().reserve(state.window_id(), client, units);
    }

    /// Requests a refill if the lease runs low. Called after units were taken; requests once until the lease is
    /// updated.
    pub(super) fn request_refill_if_low(&self, state: &mut QuotaState) {
        self.wake_refresher_if(state.request_refill_if_low());
    }

    /// Requests a refill because the lease cannot cover `cost`.
    pub(super) fn request_refill_for(&self, state: &mut QuotaState, cost: Units) {
        self.wake_refresher_if(state.request_refill_for(cost));
    }

    /// Replaces a reservation of `expected`, made in the window `id`, by `actual`, also in the usage of `client`. Updates
    /// the cost estimate if the cost is `learned`.
    pub(super) fn settle(
        &self,
        id: u64,
        class: StableClassId,
        client: Option<ClientKey>,
        expected: Units,
        actual: Units,
        learned: Option<&LearnedCost>,
    ) -> Settlement {
        let mut state = self.state.lock();
        if let Some(learned) = learned {
            learned.record(actual);
        }
        let settlement = state.settle(id, class, expected, actual);
        if let Some(client) = client {
            self.client_usage.lock().settle(id, client, expected, actual);
        }
        self.wake_refresher_if(settlement.needs_refill);
        settlement
    }

    /// Charges an unexpected cost of a request that was decided at `decided_at`. Returns the id of the window charged.
    pub(super) fn settle_unexpected(
        &self,
        decided_at: Timestamp,
        class: StableClassId,
        client: Option<ClientKey>,
        actual: Units,
    ) -> (u64, Settlement) {
        let mut state = self.lock_from(decided_at);
        let (id, settlement) = state.settle_unexpected(decided_at, class, actual);
        if let Some(client) = client {
            self.client_usage.lock().reserve(id, client, actual);
        }
        self.wake_refresher_if(settlement.needs_refill);
        (id, settlement)
    }

    /// Charges the window `id` for what another process has charged it beyond reservations.
    pub(super) fn charge_late(&self, id: u64, units: Units, now: Timestamp) {
        let is_due = self.lock_at(now).charge_late(id, units);
        self.wake_refresher_if(is_due);
    }

    /// Releases a reservation of which nothing was spent.
    pub(super) fn release(&self, id: u64, client: Option<ClientKey>, expected: Units) {
        let mut state = self.state.lock();
        state.release(id, expected);
        if let Some(client) = client {
            self.client_usage.lock().settle(id, client, expected, Units::ZERO);
        }
    }

    /// Applies the usage of the window `id` that the origin reported. Returns an event to log, if there is one.
    pub(super) fn sync_with_origin(&self, id: u64, report: OriginReport, now: Timestamp) -> Option<OriginQuotaEvent> {
        self.lock_at(now).sync_with_origin(id, report, now)
    }

    /// Records that a client in `network` was sent uncertain evidence that the origin's quota of the window `id` is
    /// exhausted. Returns true if one in another network was, too.
    pub(super) fn confirms_exhaustion(&self, id: u64, network: u64) -> bool {
        let mut witness = self.exhaustion_witness.lock();
        let first = witness.filter(|(window, _)| *window == id).unwrap_or((id, network));
        *witness = Some(first);
        first.1 != network
    }

    /// Counts a report of the origin that was implausibly high. Returns the number of earlier ones.
    pub(super) fn count_implausible_cost(&self) -> u64 {
        self.implausible_costs.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of reports of the origin that were implausibly high.
    pub(super) fn implausible_costs(&self) -> u64 {
        self.implausible_costs.load(Ordering::Relaxed)
    }

    /// Sets the settled units manually. Returns the previous and the new value.
    pub(super) fn set_used(&self, used: Units, now: Timestamp) -> (Units, Units) {
        let change = self.lock_at(now).set_used(used);
        self.lease_mode.wake_refresher();
        change
    }

    fn wake_refresher_if(&self, is_due: bool) {
        if is_due {
            self.lease_mode.wake_refresher();
        }
    }
}
