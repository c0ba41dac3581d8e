//! How guarded crawlers fare with an account.

use super::QuotaState;
use crate::engine::StableClassId;
use crate::policy::crawler_guard::{CrawlerGuard, GuardState};
use crate::policy::tier::Share;
use crate::policy::{OperatorId, Timestamp, Units};

impl QuotaState {
    /// How a guarded crawler has fared, and whether the page it asks for has waited for too long.
    pub(in crate::engine) fn fares(
        &mut self,
        class: StableClassId,
        guard: CrawlerGuard,
        operator: OperatorId,
        is_overdue: bool,
    ) -> GuardState {
        let last_admitted = *self.last_admitted(class, operator);
        let length = self.window.usual_length().saturating_mul(self.window.back() + 1);
        let latest = self.latest;
        let lately = &mut self.class(class).guarded_lately;
        if latest.since(lately.0) >= length {
            *lately = (latest, Units::ZERO);
        }
        let passed = Share::from_ratio(latest.since(lately.0).as_secs_f64() / length.as_secs_f64());
        GuardState { guard, last_admitted, is_overdue, spent: lately.1, passed }
    }

    /// A guarded crawler's request is let through; `by_guard` units of it although its tier refused it.
    pub(in crate::engine) fn lets_through(&mut self, class: StableClassId, operator: OperatorId, by_guard: Units) {
        *self.last_admitted(class, operator) = self.latest;
        let of_class = self.class(class);
        of_class.guarded = of_class.guarded.plus(by_guard);
        of_class.guarded_lately.1 = of_class.guarded_lately.1.plus(by_guard);
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
