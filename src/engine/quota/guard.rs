//! Usage of a quota by guarded crawlers.

use super::QuotaState;
use crate::engine::StableClassId;
use crate::policy::crawler_guard::{CrawlerGuard, GuardState};
use crate::policy::tier::Share;
use crate::policy::{OperatorId, Timestamp, Units};

impl QuotaState {
    /// Returns the guard state of a crawler: last admission, budget used, and whether the requested page is overdue.
    pub(in crate::engine) fn guard_state(
        &mut self,
        class: StableClassId,
        guard: CrawlerGuard,
        operator: OperatorId,
        is_overdue: bool,
    ) -> GuardState {
        let last_admitted = *self.last_admitted(class, operator);
        let length = self.window.nominal_length().saturating_mul(self.window.lookback() + 1);
        let latest = self.latest_seen;
        let lately = &mut self.class(class).guarded_lately;
        if latest.saturating_duration_since(lately.0) >= length {
            *lately = (latest, Units::ZERO);
        }
        let passed = Share::from_ratio(latest.saturating_duration_since(lately.0).as_secs_f64() / length.as_secs_f64());
        GuardState { guard, last_admitted, is_overdue, spent: lately.1, window_elapsed: passed }
    }

    /// Records an admitted request of a guarded crawler, with the units that its tier refused and the guard admitted.
    pub(in crate::engine) fn record_guard_admit(
        &mut self,
        class: StableClassId,
        operator: OperatorId,
        by_guard: Units,
    ) {
        *self.last_admitted(class, operator) = self.latest_seen;
        let of_class = self.class(class);
        of_class.guarded = of_class.guarded.saturating_add(by_guard);
        of_class.guarded_lately.1 = of_class.guarded_lately.1.saturating_add(by_guard);
    }

    fn last_admitted(&mut self, class: StableClassId, operator: OperatorId) -> &mut Timestamp {
        let known = self.crawlers.iter().position(|(whose, _)| *whose == (class, operator));
        let place = known.unwrap_or_else(|| {
            self.crawlers.push(((class, operator), Timestamp::default()));
            self.crawlers.len() - 1
        });
        &mut self.crawlers[place].1
    }
}
