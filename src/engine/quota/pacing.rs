//! What the plan of a paced quota has for its requests, and what it is made from.

use super::QuotaState;
use crate::engine::StableClassId;
use crate::engine::quota::window_usage::WindowUsage;
use crate::policy::pacing::pacer::{Pacer, QuotaTotals};
use crate::policy::pacing::week::WeekTime;
use crate::policy::pacing::{Pacing, PlanSnapshot};
use crate::policy::quota::Quota;
use crate::policy::window::Span;
use crate::policy::{Timestamp, Units};

impl QuotaState {
    /// What the plan has for a request of `class`, made anew where it is time for that. `slots` are those of the classes
    /// that `pacing` knows by their places.
    ///
    /// A plan that is made for a request which then waits for the ledger is dropped: of that there is no line in the log.
    pub(in crate::engine) fn plan_for(
        &mut self,
        pacing: &Pacing,
        slots: &[StableClassId],
        class: StableClassId,
    ) -> PlanSnapshot {
        let now = self.latest_seen;
        self.next_pacer = None;
        if self.pacer().is_none_or(|pacer| pacer.is_due(now)) {
            let slot = |place: usize| slots.get(place).map_or(place, |slot| usize::from(*slot));
            let mut next = self.pacer.clone().unwrap_or_default();
            next.plan(pacing, slot, &self.totals(), now);
            self.next_pacer = Some(next);
        }
        let pacer = self.next_pacer.as_deref().or(self.pacer());
        PlanSnapshot {
            is_ahead: pacer.is_some_and(|pacer| pacer.is_ahead(self.taken())),
            earmarked: pacer.map_or(Units::ZERO, Pacer::earmarked),
            allowance: pacer.and_then(|pacer| pacer.classes().get(usize::from(class))?.allotment),
        }
    }

    /// The account as a plan finds it.
    fn totals(&self) -> QuotaTotals {
        QuotaTotals {
            limit: self.limit,
            taken: if self.is_closed() { self.limit } else { self.taken().saturating_add(self.current.held_by_dead) },
            expected_elsewhere: self.current.expected_by_others,
            span: self.span_of(&self.current),
            week: self.week_at(self.latest_seen),
        }
    }

    /// What clients are expected to ask for in what is left of a window, by what the plan has learned of them.
    pub(in crate::engine) fn expected_demand(&self, tally: &WindowUsage) -> Units {
        let span = self.span_of(tally);
        let from = self.latest_seen.max(span.start);
        let left = span.end.saturating_duration_since(from);
        self.pacer().map_or(Units::ZERO, |pacer| pacer.expected_demand(self.week_at(from), left))
    }

    /// The time of a window; of one that nobody has opened, were it opened now.
    pub(super) fn span_of(&self, tally: &WindowUsage) -> Span {
        if tally.opened { tally.span } else { self.window.span(self.latest_seen) }
    }

    fn week_at(&self, moment: Timestamp) -> WeekTime {
        WeekTime(f64::from(self.window.second_of_week(moment)))
    }

    /// What is taken, or may be, was changed from outside.
    pub(super) fn replan_now(&mut self) {
        if let Some(pacer) = &mut self.pacer {
            pacer.replan_now();
        }
    }

    /// The plan that was made last stands.
    pub(in crate::engine) fn adopt_plan(&mut self) {
        if let Some(next) = self.next_pacer.take() {
            self.pacer = Some(next);
        }
    }

    /// The plan, if there is one.
    pub(in crate::engine) fn pacer(&self) -> Option<&Pacer> {
        self.pacer.as_deref()
    }

    /// The plan; one that knows nothing yet, where there was none.
    pub(in crate::engine) fn pacer_or_default(&mut self) -> &mut Pacer {
        self.pacer.get_or_insert_default()
    }

    /// What the tiers of `quota` count of what is taken.
    pub(in crate::engine) fn used_for_tiers(&self, quota: &Quota) -> Units {
        let ahead = quota.pacing.as_ref().and(self.pacer()).map(|pacer| pacer.is_ahead(self.taken()));
        quota.used_for_tiers(self.taken(), ahead)
    }

    /// What each class of a plan will ask for, hour by hour from now on.
    pub(in crate::engine) fn hourly_forecast(&self, class: StableClassId) -> Vec<f64> {
        let demand = self.pacer().and_then(|pacer| pacer.classes().get(usize::from(class))).map(|class| &class.demand);
        let week = self.totals().week;
        demand.map_or_else(Vec::new, |demand| demand.hourly_forecast(week))
    }
}
