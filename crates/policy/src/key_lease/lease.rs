//! Lease of one key.

use super::call::{Beyond, KeyLeaseRow};
use crate::Timestamp;
use crate::identity::ClientKey;
use crate::units::Units;
use std::time::Duration;

/// Lease of one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyLease {
    pub(super) key: ClientKey,
    /// Settled plus reserved units of this instance.
    pub(super) used: Units,
    /// Units that this instance may use in total.
    pub(super) held: Units,
    /// Held units that the ledger has recorded, at least.
    pub(super) acknowledged: Units,
    /// Units settled and reserved by other instances, as of the last reply.
    pub(super) taken_by_others: Units,
    /// What counts beyond the window of the table, as of the last reply.
    pub(super) beyond: BeyondTable,
    /// Limit of the key, as of its last request.
    pub(super) limit: Units,
    /// Units that a request lacked; 0 if none did.
    pub(super) lacking: Units,
    /// Milli-units used in this tick and in the one before, at most [`u32::MAX`] each.
    pub(super) spent: [u32; 2],
    /// Tick of the last use.
    pub(super) used_at: u32,
    /// Milli-units for which `expiring` holds, at most [`u32::MAX`].
    pub(super) renewed_for: u32,
    /// Number of parts of a sliding window that must expire before the key has such units, as of the last reply.
    pub(super) expiring: u8,
    pub(super) state: KeyState,
    /// Number of requests that are not settled; 255 if there were as many, from then on, so that the entry is among the last to go.
    pub(super) in_flight: u8,
    pub(super) is_queued: bool,
    pub(super) is_active: bool,
    /// True if the last reply did not grant what a request lacked.
    pub(super) is_starved: bool,
    /// True if the ledger knows the used units.
    pub(super) is_reported: bool,
    /// True from a row until its reply. False of an entry that was reset or has taken the place of another one meanwhile: the reply is
    /// about what was there before.
    pub(super) awaits_reply: bool,
}

/// What counts of a key beyond the window of its table, in one word: the units of earlier parts of a sliding window, which are below
/// 2^60, or the end of the window that the key has opened, in nanoseconds since 1970 with the highest bit set.
#[derive(Clone, Copy, Debug)]
pub(super) struct BeyondTable(u64);

impl BeyondTable {
    const OWN_WINDOW: u64 = 1 << 63;

    const fn of_earlier_parts(taken: Units) -> Self {
        Self(taken.milli())
    }

    const fn of_own_window(ends_at: Timestamp) -> Self {
        Self(ends_at.0 | Self::OWN_WINDOW)
    }

    const fn taken(self) -> Units {
        if self.0 < Self::OWN_WINDOW { Units::from_milli(self.0) } else { Units::ZERO }
    }

    fn ends_at(self) -> Option<Timestamp> {
        self.0.checked_sub(Self::OWN_WINDOW).map(Timestamp)
    }
}

/// What the ledger knows of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyState {
    /// This instance has received no reply about it.
    Unknown,
    /// It is counted.
    Counted,
    /// It is counted together with others, because there are too many keys.
    Shared,
}

/// Number of requests that a lease is for, at least, unless the limit is near.
pub(super) const MIN_REQUESTS: u64 = 4;

/// Divisor of the limit that is the maximum of a lease, unless one request needs more.
pub(super) const MAX_SHARE_OF_LIMIT: u64 = 64;

/// Returns milli-units as they are counted to size a lease.
pub(super) fn spent(units: Units) -> u32 {
    u32::try_from(units.milli()).unwrap_or(u32::MAX)
}

impl KeyLease {
    pub(super) fn new(key: ClientKey, tick: u32) -> Self {
        Self {
            key,
            used: Units::ZERO,
            held: Units::ZERO,
            acknowledged: Units::ZERO,
            taken_by_others: Units::ZERO,
            beyond: BeyondTable(0),
            limit: Units::ZERO,
            lacking: Units::ZERO,
            spent: [0; 2],
            used_at: tick,
            renewed_for: 0,
            expiring: 0,
            state: KeyState::Unknown,
            in_flight: 0,
            is_queued: false,
            is_active: false,
            is_starved: false,
            is_reported: true,
            awaits_reply: false,
        }
    }

    /// Resets the lease to one of which the ledger knows nothing. Returns what it was.
    pub(super) fn take(&mut self) -> Self {
        let Self { key, used_at, is_queued, is_active, .. } = *self;
        std::mem::replace(self, Self { is_queued, is_active, ..Self::new(key, used_at) })
    }

    /// Forgets a request that is settled.
    pub(super) fn end_request(&mut self) {
        if self.in_flight < u8::MAX {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
    }

    /// Returns the units of the key that count, as far as this instance is informed.
    pub(super) const fn taken(&self) -> Units {
        self.taken_in_window().saturating_add(self.taken_before())
    }

    /// Returns the units settled and reserved by all instances in the earlier parts of a sliding window.
    pub(super) const fn taken_before(&self) -> Units {
        self.beyond.taken()
    }

    /// Returns the units that all instances may take before this one needs a larger lease.
    pub(super) const fn granted(&self) -> Units {
        self.held.saturating_add(self.taken_by_others).saturating_add(self.taken_before())
    }

    /// Returns the units that all instances have used in the window, as far as this one is informed.
    pub(super) const fn taken_in_window(&self) -> Units {
        self.used.saturating_add(self.taken_by_others)
    }

    /// Returns true if the window that the key had opened has ended.
    pub(super) fn has_ended(&self, now: Timestamp) -> bool {
        self.ends_at().is_some_and(|ends_at| ends_at <= now)
    }

    /// Returns the end of the window that the key has opened.
    pub(super) fn ends_at(&self) -> Option<Timestamp> {
        self.beyond.ends_at()
    }

    /// Ends the window of the key.
    pub(super) fn end_at(&mut self, ends_at: Timestamp) {
        self.beyond = BeyondTable::of_own_window(ends_at);
    }

    pub(super) fn row(&mut self, held: Units, needed: Units, wanted: Units, now: Timestamp) -> KeyLeaseRow {
        self.awaits_reply = true;
        KeyLeaseRow {
            key: self.key,
            acknowledged: Some(self.acknowledged).filter(|_| self.state != KeyState::Unknown),
            limit: self.limit,
            taken: self.used,
            held,
            needed,
            wanted,
            remaining: self.ends_at().map_or(Duration::ZERO, |ends_at| ends_at.saturating_duration_since(now)),
        }
    }

    /// Returns a row that reports the lease to a ledger that may have lost it; `None` if there is nothing to report.
    pub(super) fn report_row(&mut self, now: Timestamp) -> Option<KeyLeaseRow> {
        let held = self.held.max(self.used);
        if self.state != KeyState::Counted || held.max(self.acknowledged).is_zero() || self.has_ended(now) {
            return None;
        }
        let acknowledged = Some(self.acknowledged);
        Some(KeyLeaseRow { acknowledged, ..self.row(held, held, held, now) })
    }

    /// Applies what counts beyond the window of a call at `now`, for which `lacking` units were requested.
    pub(super) fn apply_beyond(&mut self, beyond: Beyond, lacking: Units, now: Timestamp) {
        match beyond {
            Beyond::Nothing => {}
            Beyond::Earlier { taken, expiring } => {
                self.beyond = BeyondTable::of_earlier_parts(taken);
                if self.renewed_for == 0 || !lacking.is_zero() {
                    (self.expiring, self.renewed_for) = (expiring, spent(lacking));
                }
            }
            Beyond::Own { remaining: Duration::ZERO, .. } => self.beyond = BeyondTable(0),
            Beyond::Own { remaining, .. } => self.end_at(now + remaining),
        }
    }

    pub(super) fn advance_to(&mut self, tick: u32) {
        match tick.wrapping_sub(self.used_at) {
            0 => {}
            1 => self.spent = [0, self.spent[0]],
            _ => self.spent = [0; 2],
        }
        self.used_at = tick;
    }

    /// Returns the units that are to be leased beyond the used ones: about one second of use, or some requests.
    pub(super) fn size(&self) -> Units {
        let of_requests = self.lacking.milli().saturating_mul(MIN_REQUESTS);
        let size = u64::from(self.spent[0].max(self.spent[1])).max(of_requests);
        Units::from_milli(size.min(self.limit.milli() / MAX_SHARE_OF_LIMIT).max(self.lacking.milli()))
    }
}
