//! Profile of all browsers of one network: rented addresses appear by the hundred, with few requests each.

use super::{BareChange, VisitChanges, decay_since};
use crate::Timestamp;
use std::time::Duration;

/// Visits from a network, in decayed counts. An address counts at most once an hour as bare, and once in each half-life as a
/// person: two in the sum of all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NetworkProfile {
    updated_s: u32,
    people: f32,
    bare: f32,
    /// Bitmaps of the addresses that were counted as bare in this hour and in this half-life, hashed to 16 bits.
    bare_addresses: u16,
    recent_bare_addresses: u16,
    /// The same of those counted as people in this half-life, hashed to 32 bits.
    people_addresses: u32,
    /// Second from which on the younger pending visits began, modulo 2^16.
    pending_since: u16,
    /// Numbers of visits that may still load assets: those of the last minute, and those of the minute before.
    pending: [u8; 2],
}

impl NetworkProfile {
    /// Records how the visit of a client changed. The upper five bits of `client` are those of its address.
    pub fn record(&mut self, client: u64, changes: VisitChanges, now: Timestamp, half_life: Duration) {
        self.decay(now, half_life);
        let (address, bare_address) = (1_u32 << (client >> 59), 1_u16 << (client >> 59 & 15));
        match changes.bare {
            Some(BareChange::Begun) if self.bare_addresses & bare_address == 0 => {
                self.bare_addresses |= bare_address;
                self.recent_bare_addresses |= bare_address;
                self.add_pending(now);
            }
            // What was not counted is not taken back.
            Some(BareChange::Refuted) if self.bare_addresses & bare_address != 0 => {
                self.bare_addresses &= !bare_address;
                match self.pending.iter_mut().find(|pending| **pending > 0) {
                    Some(pending) => *pending -= 1,
                    None => self.bare = (self.bare - 1.0).max(0.0),
                }
            }
            _ => {}
        }
        if changes.is_of_person && self.people_addresses & address == 0 {
            self.people_addresses |= address;
            self.people += 1.0;
        }
    }

    /// Returns the profile, decayed to `now`.
    #[must_use]
    pub fn decayed(mut self, now: Timestamp, half_life: Duration) -> Self {
        self.decay(now, half_life);
        self
    }

    /// Returns the second of the last change.
    pub fn last_seen_s(&self) -> u32 {
        self.updated_s
    }

    /// Returns true if nearly all visits are bare, without those of a client that has made `own_bare` of them. One address makes
    /// neither programs nor people of a network.
    pub(super) fn looks_automated(&self, own_bare: f32) -> bool {
        let bare = self.bare - own_bare;
        self.recent_bare_addresses.count_ones() >= MIN_ADDRESSES
            && bare >= MIN_BARE
            && bare >= (self.people - 1.0).max(0.0) * BARE_RATIO
    }

    /// Counts a visit as bare once its assets could be loaded.
    fn add_pending(&mut self, now: Timestamp) {
        if self.pending == [0; 2] {
            self.pending_since = now.seconds() as u16;
        }
        match self.pending[0].checked_add(1) {
            Some(pending) => self.pending[0] = pending,
            None => self.bare += 1.0,
        }
    }

    fn decay(&mut self, now: Timestamp, half_life: Duration) {
        let hour = |second: u32| second / 3600;
        let period = |second: u32| u64::from(second) / half_life.as_secs().max(1);
        let (last_hour, last_period) = (hour(self.updated_s), period(self.updated_s));
        let Some(factor) = decay_since(&mut self.updated_s, now, half_life) else { return };
        self.people *= factor;
        self.bare *= factor;
        if hour(self.updated_s) != last_hour {
            self.bare_addresses = 0;
        }
        if period(self.updated_s) != last_period {
            (self.recent_bare_addresses, self.people_addresses) = (0, 0);
        }
        let elapsed = (self.updated_s as u16).wrapping_sub(self.pending_since);
        if elapsed >= PENDING_S {
            let [younger, older] = self.pending;
            let is_over = elapsed >= 2 * PENDING_S;
            self.bare += f32::from(older) + if is_over { f32::from(younger) } else { 0.0 };
            self.pending = [0, if is_over { 0 } else { younger }];
            self.pending_since = self.updated_s as u16;
        }
    }
}

/// Minimum of bare visits; slightly below six, since counts decay.
const MIN_BARE: f32 = 5.5;

/// Minimum number of addresses that made them.
const MIN_ADDRESSES: u32 = 3;

/// Minimum ratio of bare visits to those of people.
const BARE_RATIO: f32 = 6.0;

/// Seconds from one to two times which a visit may load an asset or follow a link before it counts as bare.
const PENDING_S: u16 = 60;
