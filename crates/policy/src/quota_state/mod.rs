//! State of one quota: settled and reserved units of its windows, its lease, and the tier state of each class.
//!
//! [`QuotaState`] keeps the current window. It also stores windows that overlap a sliding window or have open
//! reservations. It stores the last few windows, too, so that a clock set back finds them unchanged.

mod guard;
mod leasing;
mod pacing;
mod settle;
mod spend_rate;
#[cfg(test)]
mod tests;
mod window_usage;
mod windows;

pub use settle::Settlement;

use super::Timestamp;
use super::decide::{QuotaSnapshot, Refusal, Verdict};
use super::ids::{OperatorId, StableClassId};
use super::pacing::Pacing;
use super::pacing::pacer::Pacer;
use super::quota::Quota;
use super::reason::Reason;
use super::tier::ShedState;
use super::units::Units;
use super::window::{EvictedWindows, Span, Window};
use spend_rate::SpendRate;
use std::collections::BTreeMap;
use std::time::Duration;
use window_usage::WindowUsage;

/// A clock set back by less than this counts as standing still.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(2);

/// State of one quota. Its methods are the only way to change it.
pub struct QuotaState {
    window: Window,
    limit: Units,
    enforce: bool,
    /// Maximum expected cost of one request, according to the configuration.
    configured_max_cost: Units,
    /// Maximum cost of recent requests; decays to `configured_max_cost`.
    max_cost: Units,
    is_leased: bool,
    latest_time: Timestamp,
    current: WindowUsage,
    /// Stored windows other than the current one, unordered.
    past_windows: Vec<WindowUsage>,
    evicted_windows: EvictedWindows,
    /// Time at which taken units of the current window begin to become available again.
    resets_at: Timestamp,
    spend_rate: SpendRate,
    /// Shortfall since the last lease request: units that requests needed and the lease did not have.
    shortfall: Units,
    /// Sequence number of the last decision, retry charge or settlement.
    sequence: u64,
    /// Units that the origin spent beyond the limit; counted in no window.
    overrun: Units,
    /// Units lost to crashes.
    lost: Units,
    /// Units that the origin counts beyond the gateway's count, in milli-units, as of its last report.
    drift: i64,
    /// Drift at the time of the last event, in milli-units.
    last_reported_drift: i64,
    /// End of the exhaustion that the origin reported.
    closed_until: Timestamp,
    /// True if the taken units were corrected, manually or by an origin report, and the ledger has not received the
    /// correction.
    has_pending_correction: bool,
    by_class: Vec<ClassUsage>,
    /// Pacing state; `None` if the quota was never paced. Learned demand survives a configuration change.
    pacer: Option<Box<Pacer>>,
    /// Pacing configuration, with the stable ids of its classes by index.
    pacing_config: Option<(Pacing, Vec<StableClassId>)>,
    /// Plan created for the current decision; adopted together with the decision.
    next_pacer: Option<Box<Pacer>>,
    /// Times of the last admitted request of guarded crawlers, by class and operator; a short list.
    last_admitted_at: Vec<((StableClassId, OperatorId), Timestamp)>,
    /// Units beyond reservations, by window, once another process has the leases; `None` before.
    late_charges: Option<BTreeMap<u64, Units>>,
}

/// Usage of one quota by one class.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClassUsage {
    /// Tier state of the class.
    pub shedding: ShedState,
    /// Units charged since the process start.
    pub charged: Units,
    /// Units admitted by the crawler guard since the process start.
    pub guard_admitted: Units,
    /// Start of the current guard window, and the units that the guard admitted in it.
    guard_window: (Timestamp, Units),
}

impl QuotaState {
    /// Creates the state of a quota without usage. `is_leased` is false if all windows are local.
    pub fn new(quota: &Quota, class_ids: &[StableClassId], max_cost: Units, is_leased: bool, now: Timestamp) -> Self {
        let mut state = Self {
            window: quota.window.clone(),
            limit: quota.limit,
            enforce: quota.enforce,
            configured_max_cost: max_cost,
            max_cost,
            is_leased,
            latest_time: now,
            current: initial_window(&quota.window, now),
            past_windows: Vec::new(),
            evicted_windows: EvictedWindows::default(),
            resets_at: now,
            spend_rate: SpendRate::default(),
            shortfall: Units::ZERO,
            sequence: 0,
            overrun: Units::ZERO,
            lost: Units::ZERO,
            drift: 0,
            last_reported_drift: 0,
            closed_until: Timestamp::default(),
            has_pending_correction: false,
            by_class: Vec::new(),
            pacer: None,
            pacing_config: pacing_config(quota, class_ids),
            next_pacer: None,
            last_admitted_at: Vec::new(),
            late_charges: None,
        };
        state.sum_overlapping();
        state
    }

    /// Applies a changed configuration. Spent units stay spent: usage of the old window counts in a window with other
    /// boundaries. The plan is kept if none of its inputs changed.
    pub fn update_config(&mut self, quota: &Quota, class_ids: &[StableClassId], max_cost: Units) {
        let (before, taken, limit) = (self.definition(), self.taken(), self.limit);
        let planned_for = pacing_config(quota, class_ids);
        self.window = quota.window.clone();
        self.limit = quota.limit;
        self.enforce = quota.enforce;
        self.configured_max_cost = max_cost;
        self.roll_over();
        if (before, limit, &self.pacing_config) != (self.definition(), quota.limit, &planned_for) {
            self.pacing_config = planned_for;
            self.replan_now();
        }
        // Usage that counted in the old window counts in the new one, whatever its boundaries.
        if before != self.definition() {
            if !self.is_leased {
                // Carry the usage over once, not once per window that it was taken from.
                self.past_windows.iter_mut().for_each(|window| window.settled = Units::ZERO);
                self.sum_overlapping();
            }
            self.raise_taken_to(taken);
            if !taken.is_zero() {
                self.open_on_first_use(self.latest_time);
                self.has_pending_correction = self.is_leased;
            }
        }
    }

    /// Advances the state to `now`, unless it has already been advanced to a later time. Returns true if the window
    /// changed.
    pub fn advance_to(&mut self, now: Timestamp) -> bool {
        if now >= self.latest_time || self.latest_time.saturating_duration_since(now) >= MAX_CLOCK_SKEW {
            self.latest_time = now;
        }
        let has_ended = self.current.is_open && !self.current.span.contains(self.latest_time);
        if has_ended {
            self.roll_over();
        } else if !self.current.is_open {
            // The overlapping usage of a window that is not open yet changes with time.
            self.sum_overlapping();
        }
        has_ended
    }

    /// Returns the latest time that the state was advanced to.
    pub fn latest_time(&self) -> Timestamp {
        self.latest_time
    }

    /// Returns the windows of the quota.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Returns the id of the current window.
    pub fn window_id(&self) -> u64 {
        self.current.id
    }

    /// Returns the id of the window that contained `time`; of the current window if that is not stored.
    pub fn window_id_at(&self, time: Timestamp) -> u64 {
        let contains = |window: &&WindowUsage| {
            let span = self.span_of(window);
            span.start <= time && time < span.end
        };
        [&self.current].into_iter().chain(&self.past_windows).find(contains).unwrap_or(&self.current).id
    }

    /// Returns the sequence number of the last decision, retry charge or settlement.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Assigns the next sequence number.
    pub fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Returns the limit of the window, in units.
    pub fn limit(&self) -> Units {
        self.limit
    }

    /// Returns the maximum cost of one request: the configured one, or that of recent requests if it is higher.
    pub fn max_cost(&self) -> Units {
        self.max_cost
    }

    /// Returns the maximum of units that may be taken now. An overestimate of the taken units does not limit admission;
    /// only the lease does.
    pub fn leased_limit(&self) -> Units {
        match (self.exhausted_until(), self.current.is_estimated) {
            (Some(_), _) => self.taken().min(self.limit),
            (None, true) => Units::MAX,
            (None, false) => self.limit,
        }
    }

    /// Returns the end of the exhaustion that the origin reported, or `None` if the quota is not exhausted.
    pub fn exhausted_until(&self) -> Option<Timestamp> {
        self.is_closed().then_some(self.closed_until)
    }

    fn is_closed(&self) -> bool {
        self.latest_time < self.closed_until
    }

    /// Returns the values that identify the window.
    fn definition(&self) -> (u64, bool, Duration, u32) {
        (self.current.id, self.current.is_first_use, self.window.nominal_length(), self.window.lookback())
    }

    /// Returns the units settled by all instances, as far as this instance is informed.
    pub fn used(&self) -> Units {
        self.current.settled.saturating_add(self.current.taken_by_others)
    }

    /// Returns the units settled, owed and reserved by all instances, as far as this instance is informed.
    pub fn taken(&self) -> Units {
        self.current.taken_total().saturating_add(self.current.owed)
    }

    /// Returns the units that all instances may take before this one needs a larger lease.
    pub fn leased(&self) -> Units {
        self.current.held.saturating_add(self.current.taken_by_others).min(self.limit)
    }

    /// Stores the plan of a decision on a refresh, which is no demand of its class.
    pub fn record_refresh(&mut self) {
        self.adopt_plan();
    }

    /// Returns true if a refresh of a stored response for `cost` may be admitted: by the last plan, or perhaps by the next
    /// one, if that is due.
    pub fn may_refresh(&self, cost: Units) -> bool {
        let span = self.span_of(&self.current);
        let after = self.taken().saturating_add(cost);
        self.pacer().is_some_and(|pacer| pacer.may_refresh(after, span, self.latest_time))
    }

    /// Stores the effects of a decision: the tier state of the class, and the demand and payment in the plan. `operator` is set
    /// for a verified crawler.
    pub fn record_decision(
        &mut self,
        class: StableClassId,
        operator: Option<OperatorId>,
        snapshot: &QuotaSnapshot<'_>,
        verdict: &Verdict,
    ) {
        self.class_mut(class).shedding = snapshot.shedding;
        self.adopt_plan();
        let (Some(planned), Some(pacer)) = (&snapshot.plan, &mut self.pacer) else { return };
        let paced = pacer.class(usize::from(class));
        // Demand that a tier or bucket refuses is excluded, because no plan could serve it.
        if matches!(
            verdict,
            Verdict::Admit { .. } | Verdict::Refuse(Refusal { reason: Reason::Pacing | Reason::Quota, .. })
        ) {
            paced.demand.record_request(snapshot.cost);
            if let Some(operator) = operator {
                paced.demand.record_operator(operator, snapshot.cost);
            }
            let is_admitted = matches!(verdict, Verdict::Admit { shadow, .. } if *shadow != Some(Reason::Pacing));
            paced.recent.record(snapshot.cost, is_admitted, self.latest_time);
        }
        paced.allowance = planned.allowance;
        if let (Verdict::Admit { .. }, Some(allotment)) = (verdict, &mut paced.allowance) {
            allotment.bucket.take(snapshot.cost);
        }
    }

    fn open_on_first_use(&mut self, time: Timestamp) {
        if !self.current.is_open {
            self.current.span = self.window.span(time);
            self.current.is_open = true;
            self.sum_overlapping();
        }
    }

    /// Returns the time at which taken units begin to become available again.
    pub fn resets_at(&self) -> Timestamp {
        match self.window.first_use_length().filter(|_| !self.current.is_open) {
            _ if self.is_closed() => self.closed_until,
            Some(length) => self.latest_time + length,
            None => self.resets_at,
        }
    }

    /// Returns the span whose usage counts in the current window.
    pub fn effective_span(&self) -> Span {
        let span = self.span_of(&self.current);
        let reach = span.length().saturating_mul(self.window.lookback());
        Span { start: span.start - reach, end: self.resets_at() }
    }

    /// Returns the usage of the window `id`, or `None` if it is not stored.
    fn window_mut(&mut self, id: u64) -> Option<&mut WindowUsage> {
        match self.current.id == id {
            true => Some(&mut self.current),
            false => self.past_windows.iter_mut().find(|window| window.id == id),
        }
    }

    /// Returns the units reserved in the current window by this instance.
    pub fn reserved(&self) -> Units {
        self.current.reserved
    }

    /// Returns the units that the origin spent beyond the limit.
    pub fn overrun(&self) -> Units {
        self.overrun
    }

    /// Returns the units lost to crashes.
    pub fn lost(&self) -> Units {
        self.lost
    }

    /// Returns the units that the origin counts beyond the gateway's count, in milli-units, as of its last report.
    pub fn drift(&self) -> i64 {
        self.drift
    }

    /// Returns the usage of one class.
    pub fn class(&self, class: StableClassId) -> ClassUsage {
        self.by_class.get(usize::from(class)).copied().unwrap_or_default()
    }

    fn class_mut(&mut self, class: StableClassId) -> &mut ClassUsage {
        let index = usize::from(class);
        if index >= self.by_class.len() {
            self.by_class.resize(index + 1, ClassUsage::default());
        }
        &mut self.by_class[index]
    }

    /// Updates the overlapping usage after a change of the window `id`.
    fn mark_changed(&mut self, id: u64) {
        if self.current.id != id {
            self.sum_overlapping();
        }
    }
}

fn pacing_config(quota: &Quota, class_ids: &[StableClassId]) -> Option<(Pacing, Vec<StableClassId>)> {
    quota.pacing.clone().map(|pacing| (pacing, class_ids.to_vec()))
}

fn initial_window(window: &Window, now: Timestamp) -> WindowUsage {
    match window.first_use_length() {
        Some(_) => WindowUsage::placeholder(0),
        None => {
            let span = window.span(now);
            WindowUsage::new(span.start.0, span)
        }
    }
}
