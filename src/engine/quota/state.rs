//! State of a quota counter, and the values derived from it.

use super::spend_rate::SpendRate;
use super::window_usage::WindowUsage;
use crate::engine::StableClassId;
use crate::policy::decide::QuotaSnapshot;
use crate::policy::pacing::Pacing;
use crate::policy::pacing::pacer::Pacer;
use crate::policy::tier::ShedState;
use crate::policy::window::{EvictedWindows, Span, Window};
use crate::policy::{OperatorId, Reason, Refusal, Timestamp, Units, Verdict};
use std::time::Duration;

/// State guarded by the lock of [`super::QuotaCounter`].
pub(in crate::engine) struct QuotaState {
    pub(in crate::engine) window: Window,
    pub(super) limit: Units,
    pub(in crate::engine) enforce: bool,
    /// Maximum expected cost of one request, according to the configuration.
    pub(in crate::engine) configured_max_cost: Units,
    /// Maximum cost of recent requests; decays to `configured_max_cost`.
    pub(in crate::engine) max_cost: Units,
    pub(super) is_leased: bool,
    pub(in crate::engine) latest_time: Timestamp,
    pub(in crate::engine) current: WindowUsage,
    /// Stored windows other than the current one, unordered.
    pub(in crate::engine) past_windows: Vec<WindowUsage>,
    pub(super) evicted_windows: EvictedWindows,
    /// Time at which taken units of the current window begin to become available again.
    pub(super) resets_at: Timestamp,
    pub(in crate::engine) spend_rate: SpendRate,
    /// Shortfall since the last lease request: units that requests needed and the lease did not have.
    pub(in crate::engine) shortfall: Units,
    /// Sequence number of the last decision, retry charge or settlement.
    pub(in crate::engine) sequence: u64,
    /// Units that the origin spent beyond the limit; counted in no window.
    pub(in crate::engine) overrun: Units,
    /// Units lost to crashes.
    pub(in crate::engine) lost: Units,
    /// Units that the origin counts beyond the gateway's count, in milli-units, as of its last report.
    pub(in crate::engine) drift: i64,
    /// Drift at the time of the last event, in milli-units.
    pub(super) last_reported_drift: i64,
    /// End of the exhaustion that the origin reported.
    pub(super) closed_until: Timestamp,
    /// True if the taken units were corrected, manually or by an origin report, and the ledger has not received the
    /// correction.
    pub(in crate::engine) has_pending_correction: bool,
    pub(super) by_class: Vec<ClassUsage>,
    /// Pacing state; `None` if the quota was never paced. Learned demand survives a configuration change.
    pub(super) pacer: Option<Box<Pacer>>,
    /// Pacing configuration, with the stable ids of its classes by index.
    pub(super) pacing_config: Option<(Pacing, Vec<StableClassId>)>,
    /// Plan created for the current decision; adopted together with the decision.
    pub(super) next_pacer: Option<Box<Pacer>>,
    /// Times of the last admitted request of guarded crawlers, by class and operator; a short list.
    pub(super) last_admitted_at: Vec<((StableClassId, OperatorId), Timestamp)>,
}

/// Usage of one quota by one class.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct ClassUsage {
    pub(in crate::engine) shedding: ShedState,
    /// Units charged since the process start.
    pub(in crate::engine) charged: Units,
    /// Units admitted by the crawler guard since the process start.
    pub(in crate::engine) guard_admitted: Units,
    /// Start of the current guard window, and the units that the guard admitted in it.
    pub(super) guard_window: (Timestamp, Units),
}

impl QuotaState {
    /// Returns the limit of the window, in units.
    pub(in crate::engine) fn limit(&self) -> Units {
        self.limit
    }

    /// Returns the maximum of units that may be taken now. An overestimate of the taken units does not limit admission;
    /// only the lease does.
    pub(in crate::engine) fn leased_limit(&self) -> Units {
        match (self.exhausted_until(), self.current.is_estimated) {
            (Some(_), _) => self.taken().min(self.limit),
            (None, true) => Units::MAX,
            (None, false) => self.limit,
        }
    }

    /// Returns the end of the exhaustion that the origin reported, or `None` if the quota is not exhausted.
    pub(in crate::engine) fn exhausted_until(&self) -> Option<Timestamp> {
        self.is_closed().then_some(self.closed_until)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.latest_time < self.closed_until
    }

    /// Returns the values that identify the window.
    pub(super) fn definition(&self) -> (u64, bool, Duration, u32) {
        (self.current.id, self.current.is_first_use, self.window.nominal_length(), self.window.lookback())
    }

    /// Raises the units taken by all instances to at least `counted`.
    pub(super) fn raise_taken_to(&mut self, counted: Units) {
        let excess = counted.saturating_sub(self.taken());
        if excess.is_zero() {
            return;
        }
        match self.is_leased {
            // Count the units as taken by others: several instances receive the same report from the origin.
            true => {
                self.current.taken_by_others = self.current.taken_by_others.saturating_add(excess);
                self.has_pending_correction = true;
            }
            false => self.current.settled = self.current.settled.saturating_add(excess),
        }
    }

    /// Returns the units settled by all instances, as far as this instance is informed.
    pub(in crate::engine) fn used(&self) -> Units {
        self.current.settled.saturating_add(self.current.taken_by_others)
    }

    /// Returns the units settled, owed and reserved by all instances, as far as this instance is informed.
    pub(in crate::engine) fn taken(&self) -> Units {
        self.current.taken_total().saturating_add(self.current.owed)
    }

    /// Returns the units that all instances may take before this one needs a larger lease.
    pub(in crate::engine) fn leased(&self) -> Units {
        self.current.held.saturating_add(self.current.taken_by_others).min(self.limit)
    }

    /// Stores the effects of a decision: the tier state of the class, and the demand and payment in the plan.
    pub(in crate::engine) fn record_decision(
        &mut self,
        class: StableClassId,
        snapshot: &QuotaSnapshot<'_>,
        verdict: &Verdict,
    ) {
        self.class(class).shedding = snapshot.shedding;
        self.adopt_plan();
        let (Some(planned), Some(pacer)) = (&snapshot.plan, &mut self.pacer) else { return };
        let paced = pacer.class(usize::from(class));
        // Demand that a tier or bucket refuses is excluded, because no plan could serve it.
        if matches!(
            verdict,
            Verdict::Admit { .. } | Verdict::Refuse(Refusal { reason: Reason::Pacing | Reason::Quota, .. })
        ) {
            paced.demand.record_request(snapshot.cost);
        }
        paced.allowance = planned.allowance;
        if let (Verdict::Admit { .. }, Some(allotment)) = (verdict, &mut paced.allowance) {
            allotment.bucket.take(snapshot.cost);
        }
    }

    /// Reserves `cost`. The first charge opens a first-use window.
    pub(in crate::engine) fn reserve(&mut self, cost: Units) {
        if !cost.is_zero() {
            self.open_on_first_use();
        }
        self.current.reserved = self.current.reserved.saturating_add(cost);
    }

    pub(super) fn open_on_first_use(&mut self) {
        if !self.current.is_open {
            self.current.span = self.window.span(self.latest_time);
            self.current.is_open = true;
            self.sum_overlapping();
        }
    }

    /// Returns the time at which taken units begin to become available again.
    pub(in crate::engine) fn resets_at(&self) -> Timestamp {
        match self.window.first_use_length().filter(|_| !self.current.is_open) {
            _ if self.is_closed() => self.closed_until,
            Some(length) => self.latest_time + length,
            None => self.resets_at,
        }
    }

    /// Returns the span whose usage counts in the current window.
    pub(in crate::engine) fn effective_span(&self) -> Span {
        let span = self.span_of(&self.current);
        let reach = span.length().saturating_mul(self.window.lookback());
        Span { start: span.start - reach, end: self.resets_at() }
    }

    /// Returns the usage of the window `id`, or `None` if it is not stored.
    pub(in crate::engine) fn window_mut(&mut self, id: u64) -> Option<&mut WindowUsage> {
        match self.current.id == id {
            true => Some(&mut self.current),
            false => self.past_windows.iter_mut().find(|window| window.id == id),
        }
    }

    /// Returns the usage of one class.
    pub(in crate::engine) fn class(&mut self, class: StableClassId) -> &mut ClassUsage {
        let index = usize::from(class);
        if index >= self.by_class.len() {
            self.by_class.resize(index + 1, ClassUsage::default());
        }
        &mut self.by_class[index]
    }

    /// Returns the usage of all classes, by stable class id.
    pub(in crate::engine) fn classes(&self) -> &[ClassUsage] {
        &self.by_class
    }

    /// Updates the overlapping usage after a change of the window `id`.
    pub(in crate::engine) fn mark_changed(&mut self, id: u64) {
        if self.current.id != id {
            self.sum_overlapping();
        }
    }

    pub(super) fn set_used(&mut self, used: Units) {
        let lookback = self.window.lookback();
        let key = self.current.key(lookback);
        self.current.owed = Units::ZERO;
        self.closed_until = Timestamp::default();
        self.evicted_windows = EvictedWindows::default();
        // Also if the number is unchanged: the ledger may wait for the administrator's value.
        self.has_pending_correction = self.is_leased;
        if used >= self.current.taken_by_others {
            self.current.settled = used.saturating_sub(self.current.taken_by_others);
            return;
        }
        // The value is below the usage of others or of overlapping windows, so these are corrected, too.
        self.current.is_spent = false;
        self.current.settled = Units::ZERO;
        for window in self.past_windows.iter_mut().filter(|window| key.overlaps(window.id, window.known_span())) {
            window.settled = Units::ZERO;
        }
        match self.is_leased {
            true => self.current.taken_by_others = used,
            false => {
                self.sum_overlapping();
                self.current.settled = used.saturating_sub(self.current.taken_by_others);
            }
        }
    }
}
