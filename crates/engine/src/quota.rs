//! Counter of one quota: its state behind a lock, and the wake-up of the refresher of its lease.

use super::cost_estimates::LearnedCost;
use super::ignored_reports::IgnoredReports;
use super::lease_mode::LeaseMode;
use super::ledger::key_file::RecordForm;
use super::ledger::keyed_usage::KeyedUsage;
use parking_lot::{Mutex, MutexGuard};
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tidegate_policy::identity::ClientKey;
use tidegate_policy::key_lease::{KeyBalance, KeyLeases};
use tidegate_policy::key_usage::{KeyEntry, KeyWindows};
use tidegate_policy::quota::Quota;
use tidegate_policy::quota_state::{QuotaState, Settlement};
use tidegate_policy::quota_sync::{OriginQuotaEvent, OriginReport};
use tidegate_policy::window::{Span, Window};
use tidegate_policy::{StableClassId, Timestamp, Units};

/// A counter of one quota behind a lock.
pub(super) struct QuotaCounter {
    pub(super) name: String,
    lock_order: usize,
    lease_mode: LeaseMode,
    pub(super) state: Mutex<QuotaState>,
    /// Usage by key, for a quota with budgets or a limit per client. Locked while the state is.
    pub(super) keyed_usage: Mutex<KeyedUsage>,
    /// Held while the file of usage by key is created, before other locks.
    pub(super) key_file_lock: Mutex<()>,
    /// Leases of the budgets of keys, in place of the usage by key, if several instances share them. Locked while the state is.
    key_leases: Option<Box<Mutex<KeyLeases>>>,
    /// True once a configuration counted usage by key.
    counts_keys: AtomicBool,
    has_budgets: bool,
    /// Number of reports of the origin that were implausibly high.
    implausible_costs: AtomicU64,
    ignored_reports: IgnoredReports,
    /// Window and network of the first client that was sent uncertain evidence of exhaustion.
    exhaustion_witness: Mutex<Option<(u64, u64)>>,
}

/// Key for which units are reserved.
#[derive(Clone, Copy)]
pub(super) struct ReservedKey {
    pub(super) key: ClientKey,
    /// Id of the window of the key, which is to be settled.
    pub(super) window: u64,
}

/// Number of entries of each window or part that are visited while requests wait: for about a millisecond.
const VISITED_SLOTS: usize = 1024;

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
        let max_shared_keys = quota.budget.as_ref().filter(|_| matches!(lease_mode, LeaseMode::Shared(_)));
        let key_leases =
            max_shared_keys.map(|budget| Box::new(Mutex::new(KeyLeases::new(quota.key_windows(), budget.max_keys))));
        let form = RecordForm {
            windows: quota.key_windows(),
            longest_window: quota.window.longest(),
            step: quota.record_step(),
        };
        let keyed_usage = Mutex::new(KeyedUsage::new(form, max_keys(quota, max_clients)));
        // What the keys use together has no limit, and no ledger needs to lease it.
        let is_leased = !matches!(lease_mode, LeaseMode::Local) && quota.budget.is_none();
        let state = QuotaState::new(&of_all_keys(quota), class_ids, max_cost, is_leased, now);
        Self {
            name: quota.name.clone(),
            lock_order,
            lease_mode,
            state: Mutex::new(state),
            keyed_usage,
            key_file_lock: Mutex::default(),
            key_leases,
            counts_keys: AtomicBool::new(false),
            has_budgets: quota.budget.is_some(),
            implausible_costs: AtomicU64::new(0),
            ignored_reports: IgnoredReports::default(),
            exhaustion_witness: Mutex::default(),
        }
    }

    /// Applies a changed configuration.
    pub(super) fn update_config(
        &self,
        quota: &Quota,
        class_ids: &[StableClassId],
        max_cost: Units,
        max_clients: usize,
        now: Timestamp,
    ) {
        let _creating = self.key_file_lock.lock();
        let mut state = self.lock_at(now);
        let before = state.window_id();
        state.update_config(&of_all_keys(quota), class_ids, max_cost);
        let mut keyed_usage = self.keyed_usage.lock();
        keyed_usage.set_max_keys(max_keys(quota, max_clients));
        keyed_usage.set_record_step(quota.record_step());
        keyed_usage.set_longest_window(quota.window.longest());
        self.with_key_leases(|leases| leases.set_max_keys(max_keys(quota, max_clients)));
        let (earlier, windows) = (keyed_usage.usage().windows(), quota.key_windows());
        let is_other_window = state.window_id() != before;
        if windows != earlier || (is_other_window && windows == KeyWindows::OfQuota) {
            let now = state.latest_time();
            keyed_usage.redefine(earlier.moment(before, now), windows, windows.moment(state.window_id(), now));
            let after = windows.table_span(state.effective_span(), now);
            self.with_key_leases(|leases| leases.redefine(before, windows, after, now));
        }
        drop((keyed_usage, state));
        self.lease_mode.wake_refresher();
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if the quota has budgets.
    pub(super) fn has_budgets(&self) -> bool {
        self.has_budgets
    }

    /// Returns true if a ledger leases the units of the quota.
    pub(super) fn is_leased(&self) -> bool {
        !matches!(self.lease_mode, LeaseMode::Local) && !self.has_budgets
    }

    /// Returns true if several instances share the budgets of the quota.
    pub(super) fn has_key_leases(&self) -> bool {
        self.key_leases.is_some()
    }

    /// Returns the result of `change`; `None` if no ledger leases the budgets.
    pub(super) fn with_key_leases<T>(&self, change: impl FnOnce(&mut KeyLeases) -> T) -> Option<T> {
        self.key_leases.as_ref().map(|leases| change(&mut leases.lock()))
    }

    /// Returns true once a configuration has counted usage by key.
    pub(super) fn counts_keys(&self) -> bool {
        self.counts_keys.load(Ordering::Relaxed)
    }

    /// Records that usage by key is counted. Returns true if it already was.
    pub(super) fn set_counts_keys(&self) -> bool {
        self.counts_keys.swap(true, Ordering::Relaxed)
    }

    /// Continues with the usage by key of another counter.
    pub(super) fn restore_key_usage(&self, earlier: &Self) {
        let usage = earlier.keyed_usage.lock().usage().clone();
        self.keyed_usage.lock().restore(usage);
    }

    /// Records usage by key in another file. Returns the one before.
    #[cfg(test)]
    pub(super) fn replace_key_file(
        &self,
        file: crate::ledger::key_file::KeyFile,
    ) -> Option<crate::ledger::key_file::KeyFile> {
        self.keyed_usage.lock().replace_file(file)
    }

    /// Records usage by key no more.
    pub(super) fn close_key_file(&self) {
        self.keyed_usage.lock().close_file();
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

    /// Returns the units of `limit` that a client has used in the current window, and the time at which it can pay `cost` or has
    /// more units.
    pub(super) fn client_used(
        &self,
        state: &QuotaState,
        client: ClientKey,
        limit: Units,
        cost: Units,
    ) -> (Units, Timestamp) {
        let keyed_usage = self.keyed_usage.lock();
        let (usage, moment) = (keyed_usage.usage(), moment(&keyed_usage, state));
        let used = usage.used_by_client(moment, client, limit);
        let used =
            if usage.windows() != KeyWindows::OfQuota && usage.is_forgotten(moment) { used.max(limit) } else { used };
        let renewal = usage.client_renewal(moment, client, limit, goal(used, limit, cost));
        (used, renewal.unwrap_or(state.resets_at()))
    }

    /// Returns the time at which a key, which has `used` units of `limit`, can pay `cost` or has more units.
    pub(super) fn key_renewal(
        &self,
        state: &QuotaState,
        key: ClientKey,
        used: Units,
        limit: Units,
        cost: Units,
    ) -> Timestamp {
        let of_lease = |leases: &mut KeyLeases| leases.renewal(table(leases, state).start.0, key, state.latest_time());
        if let Some(renewal) = self.with_key_leases(of_lease) {
            return renewal.unwrap_or(state.resets_at());
        }
        let keyed_usage = self.keyed_usage.lock();
        let moment = moment(&keyed_usage, state);
        keyed_usage.usage().renewal(moment, key, goal(used, limit, cost)).unwrap_or(state.resets_at())
    }

    /// Returns the time at which the usage of all keys that counts now does so no more, or that of the first does so no more if it
    /// slides; `None` if nothing counts in windows that slide or that keys open.
    pub(super) fn keys_renewal(&self, state: &QuotaState) -> Option<Timestamp> {
        let keyed_usage = self.keyed_usage.lock();
        match keyed_usage.usage().windows() {
            KeyWindows::OfQuota => Some(state.resets_at()),
            KeyWindows::FirstUse { .. } | KeyWindows::Sliding { .. } => {
                let of_leases = self.with_key_leases(|leases| leases.renewal_of_all(state.latest_time()));
                of_leases.unwrap_or_else(|| keyed_usage.usage().keys_renewal(moment(&keyed_usage, state)))
            }
        }
    }

    /// Calls `visit` with each key and its window.
    pub(super) fn visit_keys(&self, mut visit: impl FnMut(u64, KeyEntry)) {
        let leased = self.with_key_leases(|leases| leases.entries().for_each(|(window, entry)| visit(window, entry)));
        if leased.is_none() {
            let keyed_usage = self.keyed_usage.lock();
            keyed_usage.usage().records().for_each(|record| visit(record.window, record.entry));
        }
    }

    /// Calls `visit` with each key whose usage counts at `now`. Requests are decided meanwhile: what they use may be included.
    pub(super) fn visit_current_keys(&self, now: Timestamp, mut visit: impl FnMut(KeyEntry)) {
        let state = self.lock_at(now);
        let (span, now) = (state.effective_span(), state.latest_time());
        let moment = moment(&self.keyed_usage.lock(), &state);
        drop(state);
        let leased = self.with_key_leases(|leases| {
            let window = leases.windows().table_span(span, now).start.0;
            leases.visit_current(window, now, &mut visit);
        });
        let mut slots = 0..if leased.is_none() { VISITED_SLOTS } else { 0 };
        while !slots.is_empty() {
            let keyed_usage = self.keyed_usage.lock();
            keyed_usage.usage().entries(moment, slots.clone()).for_each(&mut visit);
            slots = slots.end..keyed_usage.usage().slots().min(slots.end + VISITED_SLOTS);
        }
    }

    /// Returns the number of keys that took the place of others in what counts now.
    pub(super) fn replaced_keys(&self, state: &QuotaState) -> u32 {
        let keyed_usage = self.keyed_usage.lock();
        keyed_usage.usage().replaced(moment(&keyed_usage, state))
    }

    /// Returns the units of a key in the current window, of which it may use `limit`, for a request of `cost`.
    pub(super) fn key_balance(&self, state: &QuotaState, key: ClientKey, limit: Units, cost: Units) -> KeyBalance {
        let balance = |leases: &mut KeyLeases| {
            leases.balance(table(leases, state).start.0, key, limit, cost, state.latest_time())
        };
        self.with_key_leases(balance).unwrap_or_else(|| {
            let taken = self.key_used(state, key, limit);
            KeyBalance { taken, leased: if self.is_recorded(state) { limit } else { taken } }
        })
    }

    /// Requests a lease for a key, which cannot pay `cost`, if a ledger leases the budgets.
    pub(super) fn request_key_lease(&self, state: &QuotaState, key: ClientKey, limit: Units, cost: Units) {
        let request =
            |leases: &mut KeyLeases| leases.request(table(leases, state), key, limit, cost, state.latest_time());
        let is_due = self.with_key_leases(request);
        self.wake_refresher_if(is_due == Some(true));
    }

    /// Returns the units that a key has used of its `limit` in the current window. After a clock that ran windows ahead is set
    /// back, a window that is forgotten counts as used up.
    fn key_used(&self, state: &QuotaState, key: ClientKey, limit: Units) -> Units {
        let keyed_usage = self.keyed_usage.lock();
        let (usage, moment) = (keyed_usage.usage(), moment(&keyed_usage, state));
        let used = usage.used(moment, key);
        if usage.is_forgotten(moment) { used.max(limit) } else { used }
    }

    /// Returns true if usage by key can be recorded as the ledger requires.
    pub(super) fn is_recorded(&self, state: &QuotaState) -> bool {
        self.keyed_usage.lock().is_recorded(state.latest_time())
    }

    /// Counts units reserved in the current window for a key, which may use `limit`. Returns the window of the key to settle.
    pub(super) fn reserve_for_key(&self, state: &QuotaState, key: ClientKey, limit: Units, units: Units) -> u64 {
        let reserve =
            |leases: &mut KeyLeases| leases.reserve(table(leases, state), key, limit, units, state.latest_time());
        if let Some((window, is_due)) = self.with_key_leases(reserve) {
            self.wake_refresher_if(is_due);
            return window;
        }
        let mut keyed_usage = self.keyed_usage.lock();
        let moment = moment(&keyed_usage, state);
        keyed_usage.reserve(moment, key, units, state.latest_time())
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

    /// Replaces a reservation of `expected`, made in the window `id`, by `actual`, also in the usage of a key. Updates
    /// the cost estimate if the cost is `learned`.
    pub(super) fn settle(
        &self,
        id: u64,
        class: StableClassId,
        key: Option<ReservedKey>,
        expected: Units,
        actual: Units,
        learned: Option<&LearnedCost>,
    ) -> Settlement {
        let mut state = self.state.lock();
        if let Some(learned) = learned {
            learned.record(expected, actual);
        }
        let settlement = state.settle(id, class, expected, actual);
        if let Some(ReservedKey { key, window }) = key {
            self.settle_for_key(&state, window, key, expected, actual);
        }
        self.wake_refresher_if(settlement.needs_refill);
        settlement
    }

    /// Charges an unexpected cost of a request that was decided at `decided_at`. Returns the id of the window charged.
    pub(super) fn settle_unexpected(
        &self,
        decided_at: Timestamp,
        class: StableClassId,
        key: Option<ClientKey>,
        actual: Units,
    ) -> (u64, Settlement) {
        let mut state = self.lock_from(decided_at);
        let (id, settlement) = state.settle_unexpected(decided_at, class, actual);
        if let Some(key) = key {
            let charge = |leases: &mut KeyLeases| {
                let windows = leases.windows();
                let window = if windows == KeyWindows::OfQuota {
                    id
                } else {
                    windows.table_span(state.effective_span(), decided_at).start.0
                };
                // Nothing may have been reserved in the window yet.
                let current = table(leases, &state);
                if window == current.start.0 {
                    leases.open(current);
                }
                (window, leases.charge(window, key, actual, decided_at))
            };
            match self.with_key_leases(charge) {
                Some((window, is_due)) => self.wake_for_key(is_due, window, key, Units::ZERO, actual),
                None => {
                    let mut keyed_usage = self.keyed_usage.lock();
                    let moment = keyed_usage.usage().windows().moment(id, decided_at);
                    keyed_usage.charge(moment, key, actual, state.latest_time());
                }
            }
        }
        self.wake_refresher_if(settlement.needs_refill);
        (id, settlement)
    }

    /// Charges the window `id` for what another process has charged it beyond reservations.
    pub(super) fn charge_late(&self, id: u64, units: Units, now: Timestamp) {
        let is_due = self.lock_at(now).charge_late(id, units);
        self.wake_refresher_if(is_due);
    }

    /// Returns what was settled for keys since the last call, once another process records it: by window and key, the units
    /// released and those charged.
    pub(super) fn take_late_of_keys(&self) -> impl Iterator<Item = ((u64, u64), (Units, Units))> + use<> {
        self.keyed_usage.lock().take_late().into_iter()
    }

    /// Settles what another process has settled for a key after this one took the usage over.
    pub(super) fn settle_late(&self, window: u64, key: ClientKey, released: Units, charged: Units, now: Timestamp) {
        let state = self.lock_at(now);
        self.with_key_leases(|leases| {
            let current = table(leases, &state);
            if window == current.start.0 {
                leases.open(current);
            }
        });
        self.settle_for_key(&state, window, key, released, charged);
    }

    /// Releases a reservation of which nothing was spent.
    pub(super) fn release(&self, id: u64, key: Option<ReservedKey>, expected: Units) {
        let mut state = self.state.lock();
        state.release(id, expected);
        if let Some(ReservedKey { key, window }) = key {
            self.settle_for_key(&state, window, key, expected, Units::ZERO);
        }
    }

    fn settle_for_key(&self, state: &QuotaState, window: u64, key: ClientKey, expected: Units, actual: Units) {
        match self.with_key_leases(|leases| leases.settle(window, key, expected, actual)) {
            Some(is_due) => self.wake_for_key(is_due, window, key, expected, actual),
            None => self.keyed_usage.lock().settle(window, key, expected, actual, state.latest_time()),
        }
    }

    /// Reports what was settled of a lease: to the ledger if it is due, and to the process that has taken the leases over.
    fn wake_for_key(&self, is_due: bool, window: u64, key: ClientKey, reserved: Units, charged: Units) {
        self.keyed_usage.lock().note_late(window, key, reserved, charged);
        self.wake_refresher_if(is_due);
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

    /// Returns the reports of the origin's own count that were ignored.
    pub(super) fn ignored_reports(&self) -> &IgnoredReports {
        &self.ignored_reports
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

/// Returns the quota whose state is that of all keys together, if it has budgets: it has no limit, and its windows are not those that
/// keys open.
fn of_all_keys(quota: &Quota) -> Cow<'_, Quota> {
    if quota.budget.is_none() {
        return Cow::Borrowed(quota);
    }
    let window = match quota.window {
        Window::FirstUse { length } => Window::Fixed { length },
        ref window => window.clone(),
    };
    Cow::Owned(Quota { limit: Units::MAX, window, ..quota.clone() })
}

/// Returns the window of leases of keys: that of the quota, or what counts now of other windows.
fn table(leases: &KeyLeases, state: &QuotaState) -> Span {
    leases.windows().table_span(state.effective_span(), state.latest_time())
}

/// Returns the moment by which usage by key is counted now.
fn moment(keyed_usage: &KeyedUsage, state: &QuotaState) -> u64 {
    keyed_usage.usage().windows().moment(state.window_id(), state.latest_time())
}

/// Returns what a key, which has `used` units of `limit`, may have used at most when it can pay `cost`; less than now if it can
/// already.
fn goal(used: Units, limit: Units, cost: Units) -> Units {
    match used.saturating_add(cost) > limit {
        true => limit.saturating_sub(cost),
        false => used.saturating_sub(Units::from_milli(1)),
    }
}

fn max_keys(quota: &Quota, max_clients: usize) -> usize {
    quota.budget.as_ref().map_or(max_clients, |budget| budget.max_keys)
}
