//! Slots whose request is over, and which still may not be used again.

use crate::policy::time::Timestamp;
use std::collections::VecDeque;

/// When each of them may, in order. There are never more than there are slots: each was taken until it got here.
#[derive(Debug, Default)]
pub(super) struct SlotCooldowns(VecDeque<Timestamp>);

impl SlotCooldowns {
    pub(super) fn push(&mut self, until: Timestamp, now: Timestamp) {
        while self.0.front().is_some_and(|opens| *opens <= now) {
            self.0.pop_front();
        }
        if until > now {
            self.0.insert(self.0.partition_point(|opens| *opens <= until), until);
        }
    }

    /// None of them is kept for longer than until `latest`.
    pub(super) fn truncate_to(&mut self, latest: Timestamp) {
        self.0.iter_mut().for_each(|opens| *opens = (*opens).min(latest));
    }

    pub(super) fn cooling_slots(&self, now: Timestamp) -> u32 {
        u32::try_from(self.0.len() - self.expired(now)).unwrap_or(u32::MAX)
    }

    /// When the next one may be used.
    pub(super) fn next_free(&self, now: Timestamp) -> Option<Timestamp> {
        self.0.get(self.expired(now)).copied()
    }

    fn expired(&self, now: Timestamp) -> usize {
        self.0.partition_point(|opens| *opens <= now)
    }
}
