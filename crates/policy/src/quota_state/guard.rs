//! Usage of a quota by guarded crawlers.

use super::QuotaState;
use crate::Timestamp;
use crate::crawler_guard::{CrawlerGuard, GuardState};
use crate::ids::{OperatorId, StableClassId};
use crate::tier::Share;
use crate::units::Units;

impl QuotaState {
    /// Returns the guard state of a crawler: last admission, budget used, and whether the requested page is overdue.
    pub fn guard_state(
        &mut self,
        class: StableClassId,
        guard: CrawlerGuard,
        operator: OperatorId,
        is_overdue: bool,
    ) -> GuardState {
        let last_admitted = *self.last_admitted(class, operator);
        let length = self.window.nominal_length();
        let latest = self.latest_time;
        let recent = &mut self.class_mut(class).guard_window;
        if latest.saturating_duration_since(recent.0) >= length {
            *recent = (latest, Units::ZERO);
        }
        let elapsed =
            Share::from_ratio(latest.saturating_duration_since(recent.0).as_secs_f64() / length.as_secs_f64());
        GuardState { guard, last_admitted, is_overdue, spent: recent.1, window_elapsed: elapsed }
    }

    /// Records an admitted request of a guarded crawler, with the units that its tier refused and the guard admitted.
    pub fn record_guard_admit(&mut self, class: StableClassId, operator: OperatorId, guard_admitted: Units) {
        *self.last_admitted(class, operator) = self.latest_time;
        let usage = self.class_mut(class);
        usage.guard_admitted = usage.guard_admitted.saturating_add(guard_admitted);
        usage.guard_window.1 = usage.guard_window.1.saturating_add(guard_admitted);
    }

    fn last_admitted(&mut self, class: StableClassId, operator: OperatorId) -> &mut Timestamp {
        let existing = self.last_admitted_at.iter().position(|(key, _)| *key == (class, operator));
        let index = existing.unwrap_or_else(|| {
            self.last_admitted_at.push(((class, operator), Timestamp::default()));
            self.last_admitted_at.len() - 1
        });
        &mut self.last_admitted_at[index].1
    }
}
