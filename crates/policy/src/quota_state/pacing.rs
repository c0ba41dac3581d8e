//! Pacing of a quota: the plan for its requests, and the inputs of the planner.

use super::QuotaState;
use super::window_usage::WindowUsage;
use crate::Timestamp;
use crate::ids::StableClassId;
use crate::pacing::demand::DemandModel;
use crate::pacing::pacer::{Pacer, QuotaTotals};
use crate::pacing::week::WeekTime;
use crate::pacing::{Pacing, PlanSnapshot};
use crate::quota::Quota;
use crate::units::Units;
use crate::window::Span;

impl QuotaState {
    /// Returns the plan for a request of `class`, and replans if that is due. The stable class ids have the order of
    /// the classes in `pacing`.
    ///
    /// A plan created for a request that is then refused for the ledger is dropped: that request has no line in the
    /// log.
    pub fn plan_for(&mut self, pacing: &Pacing, class_ids: &[StableClassId], class: StableClassId) -> PlanSnapshot {
        let now = self.latest_time;
        self.next_pacer = None;
        if self.pacer().is_none_or(|pacer| pacer.is_due(now)) {
            let class_index = |index: usize| class_ids.get(index).map_or(index, |class_id| usize::from(*class_id));
            let mut next = self.pacer.clone().unwrap_or_default();
            next.plan(pacing, class_index, &self.totals(), now);
            self.next_pacer = Some(next);
        }
        let pacer = self.next_pacer.as_deref().or(self.pacer());
        PlanSnapshot {
            is_ahead: pacer.is_some_and(|pacer| pacer.is_ahead(self.taken())),
            earmarked: pacer.map_or(Units::ZERO, Pacer::earmarked),
            refresh_limit: pacer.map_or(Units::ZERO, Pacer::refresh_limit),
            allowance: pacer.and_then(|pacer| pacer.classes().get(usize::from(class))?.allowance),
        }
    }

    /// Returns the totals of the quota for the planner.
    fn totals(&self) -> QuotaTotals {
        QuotaTotals {
            limit: self.limit,
            taken: if self.is_closed() { self.limit } else { self.taken().saturating_add(self.current.held_by_dead) },
            expected_by_others: self.current.expected_by_others,
            span: self.span_of(&self.current),
            week: self.week_at(self.latest_time),
        }
    }

    /// Returns the forecast demand for the rest of a window, in units; 0 without a plan.
    pub(super) fn expected_demand(&self, window: &WindowUsage) -> Units {
        let span = self.span_of(window);
        let start = self.latest_time.max(span.start);
        let remaining = span.end.saturating_duration_since(start);
        self.pacer().map_or(Units::ZERO, |pacer| pacer.expected_demand(self.week_at(start), remaining))
    }

    /// Returns the span of a window; for an unopened window, the span it would have if opened now.
    pub(super) fn span_of(&self, window: &WindowUsage) -> Span {
        if window.is_open { window.span } else { self.window.span(self.latest_time) }
    }

    fn week_at(&self, time: Timestamp) -> WeekTime {
        WeekTime(f64::from(self.window.second_of_week(time)))
    }

    /// Makes a new plan due after taken or available units were changed from outside.
    pub(super) fn replan_now(&mut self) {
        if let Some(pacer) = &mut self.pacer {
            pacer.replan_now();
        }
    }

    /// Adopts the plan that was created last.
    pub fn adopt_plan(&mut self) {
        if let Some(next) = self.next_pacer.take() {
            self.pacer = Some(next);
        }
    }

    /// Returns the plan, or `None` if there is none.
    pub fn pacer(&self) -> Option<&Pacer> {
        self.pacer.as_deref()
    }

    /// Restores the learned demand of a class.
    pub fn restore_demand(&mut self, class: StableClassId, demand: DemandModel) {
        self.pacer.get_or_insert_default().class(usize::from(class)).demand = demand;
    }

    /// Returns the taken units as the tiers of `quota` count them.
    pub fn used_for_tiers(&self, quota: &Quota) -> Units {
        let ahead = quota.pacing.as_ref().and(self.pacer()).map(|pacer| pacer.is_ahead(self.taken()));
        quota.used_for_tiers(self.taken(), ahead)
    }

    /// Returns the forecast demand of a class for the next hours, in units; empty without a plan.
    pub fn hourly_forecast(&self, class: StableClassId) -> Vec<f64> {
        let demand = self.pacer().and_then(|pacer| pacer.classes().get(usize::from(class))).map(|class| &class.demand);
        let week = self.totals().week;
        demand.map_or_else(Vec::new, |demand| demand.hourly_forecast(week))
    }
}
