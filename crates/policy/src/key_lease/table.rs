//! Leases of the keys of one window.

use super::call::KeyLeaseRow;
use super::lease::{KeyLease, KeyState, spent};
use super::shared_key;
use crate::Timestamp;
use crate::identity::{ClientKey, KeyOwner};
use crate::key_usage::KeyWindows;
use crate::units::Units;
use crate::window::Span;
use hashbrown::HashTable;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

/// Leases of one window.
#[derive(Debug)]
pub(super) struct LeaseTable {
    pub(super) window: Span,
    pub(super) leases: Vec<KeyLease>,
    /// Number of the entry of each key, by the hash of the key. A table with the keys in it would take three times as much.
    pub(super) slots: HashTable<u32>,
    pub(super) hasher: RandomState,
    /// Number of entries of shared budgets. They are beyond the maximum of keys, and stay.
    pub(super) shared_budgets: usize,
    /// Entries of keys that share budgets, oldest first. They hold nothing, and make room for others.
    pub(super) sharing: VecDeque<u32>,
    /// Entries for the next calls.
    pub(super) queue: VecDeque<u32>,
    /// Entries whose units may have to be returned.
    pub(super) active: Vec<u32>,
    pub(super) tick: u32,
    /// True if the ledger has recorded leases.
    pub(super) has_leases: bool,
    /// Entry at which the search for one to evict continues.
    pub(super) next_candidate: u32,
}

/// Number of ticks without use, of one second, after which units are returned.
pub(super) const IDLE_TICKS: u32 = 1;

/// Number of entries of which one may be evicted.
const CANDIDATES: u32 = 32;

impl LeaseTable {
    pub(super) fn new(window: Span) -> Self {
        Self {
            window,
            leases: Vec::new(),
            slots: HashTable::new(),
            hasher: RandomState::new(),
            shared_budgets: 0,
            sharing: VecDeque::new(),
            queue: VecDeque::new(),
            active: Vec::new(),
            tick: 0,
            has_leases: false,
            next_candidate: 0,
        }
    }

    /// Returns true if this is the table of the window `id`.
    pub(super) fn has_id(&self, id: u64) -> bool {
        self.window.start.0 == id
    }

    /// Returns true if usage in the window counts at `now`.
    pub(super) fn counts(&self, windows: KeyWindows, now: Timestamp) -> bool {
        self.window.start <= now && now < windows.counts_until(self.window)
    }

    /// Returns the table of a window that replaces this one, and of which the ledger knows nothing.
    pub(super) fn redefined(self, window: Span, now: Timestamp) -> Self {
        let mut table = Self { window, has_leases: false, queue: VecDeque::new(), ..self };
        for slot in 0..table.leases.len() as u32 {
            let lease = &mut table.leases[slot as usize];
            let used = if lease.has_ended(now) { Units::ZERO } else { lease.used };
            let state = if lease.state == KeyState::Counted { KeyState::Unknown } else { lease.state };
            let KeyLease { key, limit, in_flight, is_active, .. } = *lease;
            let is_reported = used.is_zero();
            let held = used;
            let renewed = KeyLease::new(key, table.tick);
            *lease = KeyLease { used, held, limit, state, in_flight, is_active, is_reported, ..renewed };
            if !used.is_zero() {
                table.enqueue(slot);
            }
        }
        table
    }

    /// Adds what a key has used in another window that counts.
    pub(super) fn add_used(&mut self, lease: &KeyLease) {
        if lease.used.is_zero() {
            return;
        }
        if let Some(slot) = self.slot_or_insert(lease.key, usize::MAX) {
            self.use_units(slot, lease.used);
            let added = &mut self.leases[slot as usize];
            (added.held, added.limit) = (added.used, lease.limit.max(added.limit));
            added.in_flight = added.in_flight.saturating_add(lease.in_flight);
            self.enqueue(slot);
        }
    }

    /// Returns the entry of a key.
    pub(super) fn find(&self, key: ClientKey) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        self.slots.find(hash, |slot| self.leases[*slot as usize].key == key).copied()
    }

    /// Returns the entry of a key to which the reply to its row applies; `None` if another one has its place.
    pub(super) fn awaiting(&mut self, key: ClientKey) -> Option<u32> {
        let slot = self.find(key)?;
        std::mem::take(&mut self.leases[slot as usize].awaits_reply).then_some(slot)
    }

    /// Returns the entry that pays for a key.
    pub(super) fn slot(&self, key: ClientKey) -> Option<u32> {
        let slot = self.find(key)?;
        match self.leases[slot as usize].state {
            KeyState::Shared => self.find(shared_key(key)),
            KeyState::Unknown | KeyState::Counted => Some(slot),
        }
    }

    /// Returns the entry that pays for a key; a new one if there is room.
    pub(super) fn slot_or_insert(&mut self, key: ClientKey, max_keys: usize) -> Option<u32> {
        let state = self.find(key).map(|slot| self.leases[slot as usize].state);
        let key = if state == Some(KeyState::Shared) { shared_key(key) } else { key };
        if let Some(slot) = self.find(key) {
            return Some(slot);
        }
        let is_shared = key.owner() == KeyOwner::SharedBudget;
        let lease = KeyLease::new(key, self.tick);
        self.shared_budgets += usize::from(is_shared);
        let slot = if is_shared || self.leases.len() - self.shared_budgets < max_keys {
            self.leases.push(lease);
            self.leases.len() as u32 - 1
        } else {
            let slot = self.evictable()?;
            let hash = self.hasher.hash_one(self.leases[slot as usize].key);
            if let Ok(entry) = self.slots.find_entry(hash, |it| *it == slot) {
                entry.remove();
            }
            self.leases[slot as usize] = lease;
            slot
        };
        let (leases, hasher) = (&self.leases, &self.hasher);
        self.slots.insert_unique(hasher.hash_one(key), slot, |slot| hasher.hash_one(leases[*slot as usize].key));
        Some(slot)
    }

    /// Returns an entry that makes room for another key: one that holds nothing, or one of which the ledger knows all, and that was
    /// not used lately. What a request in flight costs less than was reserved is returned to its entry, which stays, unless most
    /// entries have requests in flight: requests that do not end leave room for other keys.
    pub(super) fn evictable(&mut self) -> Option<u32> {
        while let Some(slot) = self.sharing.pop_front() {
            // The ledger may have counted the key apart since.
            if self.leases[slot as usize].state == KeyState::Shared {
                return Some(slot);
            }
        }
        let count = self.leases.len() as u32;
        let first = self.next_candidate;
        self.next_candidate = (first + CANDIDATES) % count;
        let is_idle = |slot: &u32| {
            let lease = &self.leases[*slot as usize];
            let is_complete = lease.held == lease.used && lease.is_reported && !lease.is_queued && !lease.awaits_reply;
            let is_idle = !lease.is_active && self.tick.wrapping_sub(lease.used_at) >= IDLE_TICKS;
            is_complete && is_idle && lease.key.owner() != KeyOwner::SharedBudget
        };
        let is_in_flight = |slot: &u32| self.leases[*slot as usize].in_flight > 0;
        let candidates = || (first..first + CANDIDATES.min(count)).map(|slot| slot % count);
        let found = candidates().find(|slot| is_idle(slot) && !is_in_flight(slot));
        let are_most_in_flight = || candidates().filter(is_in_flight).count() * 2 > candidates().len();
        found.or_else(|| candidates().find(is_idle).filter(|_| are_most_in_flight()))
    }

    pub(super) fn use_units(&mut self, slot: u32, units: Units) {
        let tick = self.tick;
        let lease = &mut self.leases[slot as usize];
        lease.used = lease.used.saturating_add(units);
        lease.is_reported &= units.is_zero();
        lease.advance_to(tick);
        lease.spent[0] = lease.spent[0].saturating_add(spent(units));
        self.activate(slot);
    }

    /// Returns true if more was used than is held, which others must know.
    pub(super) fn exceeds(&self, slot: u32) -> bool {
        let lease = &self.leases[slot as usize];
        lease.used > lease.held
    }

    pub(super) fn enqueue(&mut self, slot: u32) -> bool {
        let is_new = !std::mem::replace(&mut self.leases[slot as usize].is_queued, true);
        if is_new {
            self.queue.push_back(slot);
        }
        is_new
    }

    pub(super) fn activate(&mut self, slot: u32) {
        if !std::mem::replace(&mut self.leases[slot as usize].is_active, true) {
            self.active.push(slot);
        }
    }

    /// Returns true if the key of an entry was not used for some ticks.
    pub(super) fn is_idle(&self, slot: u32) -> bool {
        self.tick.wrapping_sub(self.leases[slot as usize].used_at) > IDLE_TICKS
    }

    /// Returns the row of an entry; `None` if nothing is to be said of the entry, or the window of the key has ended. Units that
    /// it returns are not used from now on: those of an idle key, those of a part that has ended, and those that do not suffice
    /// for a request.
    fn row(&mut self, slot: u32, windows: KeyWindows, now: Timestamp) -> Option<KeyLeaseRow> {
        let is_over = self.is_over(windows, now);
        let is_idle = self.is_idle(slot) || is_over;
        let lease = &mut self.leases[slot as usize];
        // An entry that has taken the place of a queued one is not queued, or twice.
        if !std::mem::take(&mut lease.is_queued) || lease.has_ended(now) {
            return None;
        }
        if is_over {
            lease.lacking = Units::ZERO;
        }
        let (size, lacking, used) = (lease.size(), std::mem::take(&mut lease.lacking), lease.used);
        let returns = is_idle && lacking.is_zero();
        if returns || !lacking.is_zero() {
            lease.held = lease.held.min(used);
        }
        let held = lease.held.max(used);
        let wanted = if returns { used } else { held.max(used.saturating_add(size)) };
        let needed = held.max(used.saturating_add(lacking));
        Some(lease.row(held, needed, wanted, now))
    }

    /// Returns at most `max_rows` rows of the next call. The others stay in the queue.
    pub(super) fn rows(&mut self, windows: KeyWindows, now: Timestamp, max_rows: usize) -> Vec<KeyLeaseRow> {
        let mut rows = Vec::new();
        while rows.len() < max_rows
            && let Some(slot) = self.queue.pop_front()
        {
            rows.extend(self.row(slot, windows, now));
        }
        rows
    }

    /// Returns rows that report leases from the entry `first` on, at most `max_rows`.
    pub(super) fn report_rows(&mut self, first: u32, now: Timestamp, max_rows: usize) -> Vec<KeyLeaseRow> {
        self.leases.iter_mut().skip(first as usize).filter_map(|lease| lease.report_row(now)).take(max_rows).collect()
    }

    /// Forgets what the ledger has recorded. No entry with usage is evicted before it is reported once more.
    pub(super) fn lose(&mut self) {
        self.has_leases = false;
        for lease in &mut self.leases {
            lease.is_reported &= lease.used.is_zero();
        }
    }

    /// Returns true if the window is a part of a sliding one that has ended: no units are taken in it any more.
    pub(super) fn is_over(&self, windows: KeyWindows, now: Timestamp) -> bool {
        windows.slides() && self.window.end <= now
    }

    /// Begins the next tick: queues what is to be reported or returned.
    pub(super) fn advance_tick(&mut self, windows: KeyWindows, now: Timestamp) {
        self.tick = self.tick.wrapping_add(1);
        let is_over = self.is_over(windows, now);
        for slot in std::mem::take(&mut self.active) {
            let is_idle = self.is_idle(slot) || is_over;
            let lease = &mut self.leases[slot as usize];
            let (has_units, is_reported) = (lease.held > lease.used, lease.is_reported);
            lease.is_active = has_units && !is_idle;
            if lease.is_active {
                self.active.push(slot);
            }
            if (has_units && is_idle) || !is_reported {
                self.enqueue(slot);
            }
        }
    }
}
