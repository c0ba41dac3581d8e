//! Permission to send one request to the origin, with the units reserved for it.

use super::cost_estimates::LearnedCost;
use super::quota::{QuotaCounter, ReservedKey};
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use std::sync::Arc;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::quota_state::{QuotaState, Settlement};
use tidegate_policy::{QuotaId, StableClassId, Timestamp, Units};

/// Permission to send one request. Only admission creates it; forwarding consumes it.
///
/// Each permit is settled exactly once. If it is dropped before the request was sent, its units are released. If it is
/// dropped later, the expected cost is charged, because the origin may have done the work.
#[must_use]
pub struct Permit {
    class: StableClassId,
    reservations: SmallVec<[Reservation; 2]>,
    is_sent: bool,
}

/// Units reserved in one quota.
pub(super) struct Reservation {
    pub(super) counter: Arc<QuotaCounter>,
    pub(super) quota: QuotaId,
    /// Key whose usage is counted; `None` without budgets and a limit per client.
    pub(super) counted_for: Option<CountedKey>,
    /// Id of the window of that key.
    pub(super) key_window: u64,
    pub(super) expected: Units,
    /// Estimate to update at settlement; `None` for a fixed cost.
    pub(super) learned: Option<LearnedCost>,
    /// Id of the window that is charged. An unexpected cost is charged to the window of its decision.
    pub(super) window: u64,
    /// Time of the decision, if the cost was not expected and nothing is reserved.
    pub(super) unexpected_at: Option<Timestamp>,
    /// Units charged for earlier attempts of the same request.
    pub(super) charged: Units,
    /// Sequence number of the charge for the last retry; `None` without a retry.
    pub(super) retry_sequence: Option<u64>,
}

/// Key whose usage of a quota is counted, with its limit.
#[derive(Clone, Copy)]
pub(super) struct CountedKey {
    pub(super) key: ClientKey,
    /// Units of a window.
    pub(super) limit: Units,
}

/// Costs of a settled request, one per quota.
pub type Receipt = SmallVec<[Charged; 2]>;

/// Settled cost of a request in one quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// Id of the quota.
    pub quota: QuotaId,
    /// Units reserved at admission.
    pub expected: Units,
    /// Units charged, for all attempts together.
    pub settled: Units,
    /// Charged units that exceed the limit and are counted in no window.
    pub overrun: Units,
    /// Id of the window that was charged.
    pub window: u64,
    /// Sequence number of the settlement, among decisions and settlements of the quota.
    pub sequence: u64,
    /// Sequence number of the charge for a retry; `None` if no retry was charged.
    pub retry_sequence: Option<u64>,
}

impl Permit {
    pub(super) fn new(class: StableClassId, reservations: SmallVec<[Reservation; 2]>) -> Self {
        Self { class, reservations, is_sent: false }
    }

    /// Records that the request may have reached the origin. From now on it costs the expected units, unless settled.
    pub fn mark_sent(&mut self) {
        self.is_sent = true;
    }

    /// Records that the request did not reach the origin, for example because the connection was closed before a write.
    pub fn mark_unsent(&mut self) {
        self.is_sent = false;
    }

    /// Reserves the expected cost again, for a retry after an attempt that may have cost units. Returns false and
    /// changes nothing if the units are not available.
    pub fn reserve_retry(&mut self, now: Timestamp) -> bool {
        let counters: SmallVec<[_; 2]> =
            self.reservations.iter().map(|reservation| Arc::clone(&reservation.counter)).collect();
        let mut states: SmallVec<[_; 2]> = counters.iter().map(|counter| counter.lock_at(now)).collect();
        let is_covered =
            |((reservation, counter), state): ((&Reservation, &Arc<QuotaCounter>), &MutexGuard<'_, QuotaState>)| {
                state.covers(reservation.expected) && reservation.is_within_limit(counter, state)
            };
        if !self.reservations.iter().zip(&counters).zip(&states).all(is_covered) {
            return false;
        }
        for ((reservation, counter), state) in self.reservations.iter_mut().zip(&counters).zip(&mut states) {
            let sequence = state.reserve_retry(reservation.window, self.class, reservation.expected);
            if let Some(counted) = reservation.counted_for {
                let expected = reservation.expected;
                reservation.key_window = counter.reserve_for_key(state, counted.key, counted.limit, expected);
            }
            reservation.charged = reservation.charged.saturating_add(reservation.expected);
            reservation.retry_sequence = Some(sequence);
            reservation.window = state.window_id();
            counter.request_refill_if_low(state);
        }
        true
    }

    /// Replaces the expected cost by the actual cost per quota, and updates the cost estimates.
    pub fn settle(self, mut actual: impl FnMut(QuotaId, Units) -> Units) -> Receipt {
        self.settle_each(|reservation| Some(actual(reservation.quota, reservation.expected)))
    }

    /// Like [`Self::settle`], but `actual` returns the cost of all attempts together.
    pub fn settle_total(self, mut actual: impl FnMut(QuotaId, Units) -> Units) -> Receipt {
        self.settle_each(|reservation| {
            Some(actual(reservation.quota, reservation.expected).saturating_sub(reservation.charged))
        })
    }

    /// Settles without a known cost: charges nothing if the request was not sent, the expected cost otherwise.
    pub fn settle_unknown(self) -> Receipt {
        self.settle_each(|_| None)
    }

    /// Splits the permit into one per quota, in the order of [`super::Decision::quota_usage`]. Each can be settled at its
    /// own time, as a log records it.
    pub fn split_by_quota(mut self) -> impl Iterator<Item = Self> {
        let (class, is_sent) = (self.class, self.is_sent);
        let reservations = std::mem::take(&mut self.reservations);
        reservations.into_iter().map(move |reservation| Self {
            class,
            reservations: std::iter::once(reservation).collect(),
            is_sent,
        })
    }

    /// Moves the reservations in quotas for which `is_moved` returns true into a permit of their own; `None` if there are none.
    pub fn split_off(&mut self, mut is_moved: impl FnMut(QuotaId) -> bool) -> Option<Self> {
        let (moved, kept) = std::mem::take(&mut self.reservations).into_iter().partition(|it| is_moved(it.quota));
        self.reservations = kept;
        let (class, is_sent) = (self.class, self.is_sent);
        Some(Self { class, reservations: moved, is_sent }).filter(|moved| !moved.reservations.is_empty())
    }

    /// Returns the window in which units of `quota` are reserved.
    pub fn window_in(&self, quota: QuotaId) -> Option<u64> {
        Some(self.reservations.iter().find(|reservation| reservation.quota == quota)?.window)
    }

    fn settle_each(mut self, mut known_cost: impl FnMut(&Reservation) -> Option<Units>) -> Receipt {
        let (class, is_sent) = (self.class, self.is_sent);
        self.reservations
            .drain(..)
            .map(|reservation| {
                let Reservation { quota, expected, retry_sequence, unexpected_at, .. } = reservation;
                let key = reservation.reserved_key();
                let known_cost = known_cost(&reservation);
                let actual = known_cost.unwrap_or(if is_sent { expected } else { Units::ZERO });
                let learned = reservation.learned.as_ref().filter(|_| known_cost.is_some());
                let counter = &reservation.counter;
                let (window, Settlement { sequence, overrun, .. }) = match unexpected_at {
                    Some(decided_at) => {
                        counter.settle_unexpected(decided_at, class, key.map(|reserved| reserved.key), actual)
                    }
                    None => {
                        let window = reservation.window;
                        (window, counter.settle(window, class, key, expected, actual, learned))
                    }
                };
                let settled = actual.saturating_add(reservation.charged);
                Charged { quota, expected, settled, overrun, window, sequence, retry_sequence }
            })
            .collect()
    }
}

impl Reservation {
    fn reserved_key(&self) -> Option<ReservedKey> {
        self.counted_for.map(|counted| ReservedKey { key: counted.key, window: self.key_window })
    }

    /// Returns true if the key may use the expected units once more.
    fn is_within_limit(&self, counter: &QuotaCounter, state: &QuotaState) -> bool {
        let is_within = |CountedKey { key, limit }: CountedKey| {
            let balance = counter.key_balance(state, key, limit, self.expected);
            balance.taken.saturating_add(self.expected) <= limit.min(balance.leased)
        };
        self.counted_for.is_none_or(is_within)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        for reservation in self.reservations.drain(..) {
            if self.is_sent {
                let Reservation { window, expected, .. } = reservation;
                reservation.counter.settle(window, self.class, reservation.reserved_key(), expected, expected, None);
            } else {
                reservation.counter.release(reservation.window, reservation.reserved_key(), reservation.expected);
            }
        }
    }
}
