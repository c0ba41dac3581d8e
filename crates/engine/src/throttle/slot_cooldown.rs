//! Slots of finished requests that must not be reused yet (`delay_per_slot`).

use std::collections::VecDeque;
use tidegate_policy::Timestamp;

/// Times at which the slots become free, sorted. Each was taken before, so there are never more than slots.
#[derive(Debug, Default)]
pub(super) struct SlotCooldowns(VecDeque<Timestamp>);

impl SlotCooldowns {
    pub(super) fn push(&mut self, until: Timestamp, now: Timestamp) {
        while self.0.front().is_some_and(|opens_at| *opens_at <= now) {
            self.0.pop_front();
        }
        if until > now {
            self.0.insert(self.0.partition_point(|opens_at| *opens_at <= until), until);
        }
    }

    /// Limits all times to `latest`.
    pub(super) fn truncate_to(&mut self, latest: Timestamp) {
        self.0.iter_mut().for_each(|opens_at| *opens_at = (*opens_at).min(latest));
    }

    pub(super) fn cooling_slots(&self, now: Timestamp) -> u32 {
        u32::try_from(self.0.len() - self.expired(now)).unwrap_or(u32::MAX)
    }

    /// Returns the time at which the next slot becomes free.
    pub(super) fn next_free(&self, now: Timestamp) -> Option<Timestamp> {
        self.0.get(self.expired(now)).copied()
    }

    fn expired(&self, now: Timestamp) -> usize {
        self.0.partition_point(|opens_at| *opens_at <= now)
    }
}
