//! The right to send one request to the origin, and what has been set aside for it.

use super::StableClassId;
use super::cost_estimates::LearnedCost;
use super::quota::{QuotaCounter, QuotaState};
use crate::policy::{QuotaId, Timestamp, Units};
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use std::sync::Arc;

/// The right to send one request. Only admission makes it; forwarding takes it.
///
/// Every way out settles it: dropped before anything was sent it gives its units back, dropped afterwards the expected
/// cost stands, because the origin may have done the work.
#[must_use]
pub struct Permit {
    class: StableClassId,
    reservations: SmallVec<[Reservation; 2]>,
    sent: bool,
}

/// Units set aside in one account.
pub(super) struct Reservation {
    pub(super) account: Arc<QuotaCounter>,
    pub(super) quota: QuotaId,
    pub(super) expected: Units,
    /// Where experience is kept, if that is where the expectation came from.
    pub(super) learned: Option<LearnedCost>,
    /// The window that pays.
    pub(super) window: u64,
    /// What earlier tries of the same request were charged ...
    pub(super) charged: Units,
    /// ... and the number of the last second charge.
    pub(super) retry_sequence: Option<u64>,
}

/// What a request cost in the end.
pub type Receipt = SmallVec<[Charged; 2]>;

/// What one quota was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// Which quota.
    pub quota: QuotaId,
    /// What was set aside at admission.
    pub expected: Units,
    /// What was charged, for all tries together.
    pub settled: Units,
    /// What of that is beyond the limit, and in no window's books.
    pub overrun: Units,
    /// The window that paid.
    pub window: u64,
    /// The settlement's number on the quota, among its decisions and settlements ...
    pub sequence: u64,
    /// ... and that of the second charge, where a second try was charged.
    pub retry_sequence: Option<u64>,
}

impl Permit {
    pub(super) fn new(class: StableClassId, reservations: SmallVec<[Reservation; 2]>) -> Self {
        Self { class, reservations, sent: false }
    }

    /// Notes that the request may have reached the origin: from here on it costs what was expected, unless settled.
    pub fn mark_sent(&mut self) {
        self.sent = true;
    }

    /// Notes that it certainly did not, as when the origin had closed the connection before a byte was written.
    pub fn mark_unsent(&mut self) {
        self.sent = false;
    }

    /// Charges the expected cost once more, for a second try after a first that may have cost something. False, and
    /// nothing changed, when that is not left.
    pub fn reserve_retry(&mut self, now: Timestamp) -> bool {
        let accounts: SmallVec<[_; 2]> = self.reservations.iter().map(|one| Arc::clone(&one.account)).collect();
        let mut books: SmallVec<[_; 2]> = accounts.iter().map(|account| account.lock_at(now)).collect();
        let affordable = |(one, book): (&Reservation, &mut MutexGuard<'_, QuotaState>)| {
            book.taken().saturating_add(one.expected) <= book.leased()
        };
        if !self.reservations.iter().zip(&mut books).all(affordable) {
            return false;
        }
        for ((one, account), book) in self.reservations.iter_mut().zip(&accounts).zip(&mut books) {
            if let Some(first) = book.tally(one.window) {
                first.reserved = first.reserved.saturating_sub(one.expected);
                first.settled = first.settled.saturating_add(one.expected);
            }
            let class = book.class(self.class);
            class.charged = class.charged.saturating_add(one.expected);
            one.charged = one.charged.saturating_add(one.expected);
            book.reserve(one.expected);
            book.sequence += 1;
            one.retry_sequence = Some(book.sequence);
            one.window = book.current.id;
            account.request_refill_if_low(book);
        }
        true
    }

    /// Replaces the expected cost by what `actual` says, quota by quota; what others are expected to cost follows it.
    pub fn settle(self, mut actual: impl FnMut(QuotaId, Units) -> Units) -> Receipt {
        self.settle_each(|reservation| Some(actual(reservation.quota, reservation.expected)))
    }

    /// The same where `actual` says what all tries cost together.
    pub fn settle_total(self, mut actual: impl FnMut(QuotaId, Units) -> Units) -> Receipt {
        self.settle_each(|reservation| {
            Some(actual(reservation.quota, reservation.expected).saturating_sub(reservation.charged))
        })
    }

    /// Ends it where nothing is known of the cost: nothing if nothing was sent, else what was expected.
    pub fn settle_unknown(self) -> Receipt {
        self.settle_each(|_| None)
    }

    /// One for each quota, in the order of the decision's standings: a log knows when each of them settled it.
    pub fn split_by_quota(mut self) -> impl Iterator<Item = Self> {
        let (class, sent) = (self.class, self.sent);
        let reservations = std::mem::take(&mut self.reservations);
        reservations.into_iter().map(move |one| Self { class, reservations: std::iter::once(one).collect(), sent })
    }

    fn settle_each(mut self, mut known: impl FnMut(&Reservation) -> Option<Units>) -> Receipt {
        let (class, sent) = (self.class, self.sent);
        self.reservations
            .drain(..)
            .map(|reservation| {
                let Reservation { quota, expected, window, retry_sequence, .. } = reservation;
                let known = known(&reservation);
                let actual = known.unwrap_or(if sent { expected } else { Units::ZERO });
                let learned = reservation.learned.as_ref().filter(|_| known.is_some());
                let (sequence, overrun) = reservation.account.settle(window, class, expected, actual, learned);
                let settled = actual.saturating_add(reservation.charged);
                Charged { quota, expected, settled, overrun, window, sequence, retry_sequence }
            })
            .collect()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        for reservation in self.reservations.drain(..) {
            if self.sent {
                let Reservation { window, expected, .. } = reservation;
                reservation.account.settle(window, self.class, expected, expected, None);
            } else {
                reservation.account.release(reservation.window, reservation.expected);
            }
        }
    }
}
