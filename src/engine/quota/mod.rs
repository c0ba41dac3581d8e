//! Counter of one quota: settled and reserved units, and the tier state of each class.
//!
//! [`QuotaCounter`] keeps the current window. It also stores windows that overlap a sliding window or have open
//! reservations. It stores the last few windows, too, so that a clock set back finds them unchanged.

mod guard;
mod pacing;
pub(super) mod window_usage;
mod windows;

use super::cost_estimates::LearnedCost;
use super::{LeaseMode, StableClassId};
use crate::engine::quota::window_usage::WindowUsage;
use crate::policy::decide::QuotaSnapshot;
use crate::policy::pacing::Pacing;
use crate::policy::pacing::pacer::Pacer;
use crate::policy::quota::Quota;
use crate::policy::quota_sync::{self, LocalCount, OriginReport};
use crate::policy::tier::ShedState;
use crate::policy::window::{EvictedWindows, Span, Window};
use crate::policy::{OperatorId, Reason, Refusal, Timestamp, Units, Verdict};
use parking_lot::{Mutex, MutexGuard};
use std::time::Duration;

/// A clock set back by less than this counts as standing still.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(2);

/// Divisor of the limit: a drift that changes by more than this part of the limit is reported.
const DRIFT_REPORT_DIVISOR: u64 = 100;

/// Maximum number of stored windows besides the current one and those that overlap it.
const MAX_PAST_WINDOWS: usize = 8;

/// A counter of one quota behind a lock.
pub(super) struct QuotaCounter {
    name: String,
    number: usize,
    lease_mode: LeaseMode,
    state: Mutex<QuotaState>,
}

/// State guarded by the lock of [`QuotaCounter`].
pub(super) struct QuotaState {
    pub(super) window: Window,
    limit: Units,
    pub(super) enforce: bool,
    /// Maximum expected cost of one request, according to the configuration.
    pub(super) configured_max_cost: Units,
    /// Maximum cost of recent requests; decays to `configured_max_cost`.
    pub(super) max_cost: Units,
    leased: bool,
    pub(super) latest_seen: Timestamp,
    pub(super) current: WindowUsage,
    /// Stored windows other than the current one, unordered.
    pub(super) past_windows: Vec<WindowUsage>,
    evicted_windows: EvictedWindows,
    /// Time at which taken units of the current window begin to become available again.
    resets_at: Timestamp,
    pub(super) pace: SpendRate,
    /// Shortfall since the last lease request: units that requests needed and the lease did not have.
    pub(super) shortfall: Units,
    /// Sequence number of the last decision, retry charge or settlement.
    pub(super) sequence: u64,
    /// Units that the origin spent beyond the limit; counted in no window.
    pub(super) overrun: Units,
    /// Units lost to crashes.
    pub(super) lost: Units,
    /// Units that the origin counts beyond the gateway's count, in milli-units, as of its last report.
    pub(super) drift: i64,
    /// Drift at the time of the last event, in milli-units.
    last_reported_drift: i64,
    /// End of the exhaustion that the origin reported.
    closed_until: Timestamp,
    /// True if the taken units were corrected, manually or by an origin report, and the ledger has not received the
    /// correction.
    pub(super) corrected: bool,
    by_class: Vec<ClassUsage>,
    /// Pacing state; `None` if the quota was never paced. Learned demand survives a configuration change.
    pacer: Option<Box<Pacer>>,
    /// Pacing configuration, with the stable ids of its classes by index.
    planned_for: Option<(Pacing, Vec<StableClassId>)>,
    /// Plan created for the current decision; adopted together with the decision.
    next_pacer: Option<Box<Pacer>>,
    /// Times of the last admitted request of guarded crawlers, by class and operator; a short list.
    crawlers: Vec<((StableClassId, OperatorId), Timestamp)>,
}

/// Event to log, derived from the origin's quota headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginQuotaEvent {
    /// The origin reports the quota as exhausted; requests are refused until this time.
    Exhausted {
        /// Reset time reported by the origin.
        until: Timestamp,
    },
    /// The origin counts more units than the gateway; fewer if negative.
    Drift {
        /// Drift, in milli-units.
        milli: i64,
    },
}

/// Usage of one quota by one class.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClassUsage {
    pub(super) shedding: ShedState,
    /// Units charged since the process start.
    pub(super) charged: Units,
    /// Units admitted by the crawler guard since the process start.
    pub(super) guarded: Units,
    /// Start of the current guard window, and the units that the guard admitted in it.
    pub(super) guarded_lately: (Timestamp, Units),
}

/// Rate at which the current window is spent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SpendRate {
    looked: Timestamp,
    taken: Units,
    pub(super) per_second: Units,
}

impl QuotaCounter {
    pub(super) fn open(
        number: usize,
        quota: &Quota,
        slots: &[StableClassId],
        max_cost: Units,
        lease_mode: LeaseMode,
        now: Timestamp,
    ) -> Self {
        let leased = matches!(lease_mode, LeaseMode::Leased(_));
        let mut state = QuotaState {
            window: quota.window.clone(),
            limit: quota.limit,
            enforce: quota.enforce,
            configured_max_cost: max_cost,
            max_cost,
            leased,
            latest_seen: now,
            current: initial_window(&quota.window, now),
            past_windows: Vec::new(),
            evicted_windows: EvictedWindows::default(),
            resets_at: now,
            pace: SpendRate::default(),
            shortfall: Units::ZERO,
            sequence: 0,
            overrun: Units::ZERO,
            lost: Units::ZERO,
            drift: 0,
            last_reported_drift: 0,
            closed_until: Timestamp::default(),
            corrected: false,
            by_class: Vec::new(),
            pacer: None,
            planned_for: pacing_config(quota, slots),
            next_pacer: None,
            crawlers: Vec::new(),
        };
        state.sum_overlapping();
        Self { name: quota.name.clone(), number, lease_mode, state: Mutex::new(state) }
    }

    /// Applies a changed configuration. Spent units stay spent: usage of the old window counts in a window with other
    /// boundaries. The plan is kept if none of its inputs changed.
    pub(super) fn update_config(&self, quota: &Quota, slots: &[StableClassId], max_cost: Units, now: Timestamp) {
        let mut state = self.lock_at(now);
        let (before, taken, limit) = (state.definition(), state.taken(), state.limit);
        let planned_for = pacing_config(quota, slots);
        state.window = quota.window.clone();
        state.limit = quota.limit;
        state.enforce = quota.enforce;
        state.configured_max_cost = max_cost;
        state.roll_over();
        if (before, limit, &state.planned_for) != (state.definition(), quota.limit, &planned_for) {
            state.planned_for = planned_for;
            state.replan_now();
        }
        // Usage that counted in the old window counts in the new one, whatever its boundaries.
        if before != state.definition() {
            if !state.leased {
                // Carry the usage over once, not once per window that it was taken from.
                state.past_windows.iter_mut().for_each(|tally| tally.settled = Units::ZERO);
                state.sum_overlapping();
            }
            state.raise_taken_to(taken);
            if !taken.is_zero() {
                state.open_on_first_use();
                state.corrected = state.leased;
            }
        }
        drop(state);
        self.lease_mode.wake_refresher();
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the position of the counter in the lock order.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Locks the state and advances it to the window that contains `now`.
    pub(super) fn lock_at(&self, now: Timestamp) -> MutexGuard<'_, QuotaState> {
        let mut state = self.state.lock();
        self.advance_to(&mut state, now);
        state
    }

    /// Advances the state to `now`, unless it has already been advanced to a later time.
    pub(super) fn advance_to(&self, state: &mut QuotaState, now: Timestamp) {
        if now >= state.latest_seen || state.latest_seen.saturating_duration_since(now) >= MAX_CLOCK_SKEW {
            state.latest_seen = now;
        }
        if !state.current.opened {
            // The overlapping usage of a window that is not open yet changes with time.
            state.sum_overlapping();
        } else if !state.current.span.contains(state.latest_seen) {
            state.roll_over();
            self.lease_mode.wake_refresher();
        }
    }

    /// Locks the state without advancing it.
    pub(super) fn lock(&self) -> MutexGuard<'_, QuotaState> {
        self.state.lock()
    }

    /// Requests a refill if the lease runs low. Called after units were taken; requests once until the lease is
    /// updated.
    pub(super) fn request_refill_if_low(&self, state: &mut QuotaState) {
        if state.current.taken() > state.current.refill_below {
            self.wake_refresher(state);
        }
    }

    /// Requests a refill because the lease cannot cover `cost`.
    pub(super) fn request_refill_for(&self, state: &mut QuotaState, cost: Units) {
        state.max_cost = state.max_cost.max(cost);
        self.add_shortfall(state, cost);
    }

    fn add_shortfall(&self, state: &mut QuotaState, units: Units) {
        state.shortfall = state.shortfall.saturating_add(units);
        if state.current.refill_below < Units::MAX {
            self.wake_refresher(state);
        }
    }

    fn wake_refresher(&self, state: &mut QuotaState) {
        state.current.refill_below = Units::MAX;
        self.lease_mode.wake_refresher();
    }

    /// Replaces a reservation of `expected`, made in the window `id`, by `actual`.
    ///
    /// Charges that window, even if it has ended since. Units that the origin spent beyond the limit are counted as
    /// overrun, outside of all windows, so that the settled units stay within the limit. Updates the cost estimate if
    /// the cost is `learned`. Returns the sequence number of the settlement, which is shared with decisions, and the
    /// overrun.
    pub(super) fn settle(
        &self,
        id: u64,
        class: StableClassId,
        expected: Units,
        actual: Units,
        learned: Option<&LearnedCost>,
    ) -> (u64, Units) {
        let mut state = self.state.lock();
        state.sequence += 1;
        if let Some(learned) = learned {
            learned.record(actual);
        }
        state.class(class).charged = state.class(class).charged.saturating_add(actual);
        if let Some(pacer) = &mut state.pacer {
            pacer.class(usize::from(class)).demand.record_cost(expected, actual);
        }
        let (limit, enforce, leased) = (state.limit, state.enforce, state.leased);
        if state.current.id == id && !actual.is_zero() {
            state.open_on_first_use();
        }
        let sequence = state.sequence;
        let Some(tally) = state.tally(id) else { return (sequence, Units::ZERO) };
        tally.reserved = tally.reserved.saturating_sub(expected);
        let room = if enforce {
            tally.held.min(limit).saturating_sub(tally.taken()).saturating_sub(tally.owed)
        } else {
            Units::MAX
        };
        tally.settled = tally.settled.saturating_add(actual.min(room));
        let beyond = actual.saturating_sub(room);
        // The limit may have room that the lease lacks; the ledger decides.
        let left =
            if leased { limit.saturating_sub(tally.taken_total()).saturating_sub(tally.owed) } else { Units::ZERO };
        tally.owed = tally.owed.saturating_add(beyond.min(left));
        let overrun = beyond.saturating_sub(left);
        state.overrun = state.overrun.saturating_add(overrun);
        if !beyond.is_zero() {
            self.add_shortfall(&mut state, beyond);
        }
        state.mark_changed(id);
        self.request_refill_if_low(&mut state);
        (sequence, overrun)
    }

    /// Applies the usage of the window `id` that the origin reported. Returns an event to log, if there is one.
    pub(super) fn sync_with_origin(&self, id: u64, said: OriginReport, now: Timestamp) -> Option<OriginQuotaEvent> {
        let mut state = self.lock_at(now);
        let turns = state.window.lookback() == 0;
        let span = if state.current.opened { state.current.span } else { return None };
        let (limit, used, reserved) = (state.limit, state.used(), state.current.reserved);
        let length = state.window.nominal_length();
        let calibration =
            quota_sync::reconcile(said, LocalCount { limit, used, reserved, span, has_fixed_end: turns, length }, now);
        let closed = calibration.closed_until.filter(|moment| *moment > state.closed_until);
        state.closed_until = closed.unwrap_or(state.closed_until);
        let closed = closed.map(|until| OriginQuotaEvent::Exhausted { until });
        if turns && state.current.id != id {
            return closed;
        }
        state.raise_taken_to(calibration.taken);
        state.drift = calibration.drift.unwrap_or(state.drift);
        let moved = state.drift.abs_diff(state.last_reported_drift);
        let is_worth_telling = closed.is_some() || moved > limit.milli() / DRIFT_REPORT_DIVISOR;
        if is_worth_telling {
            state.last_reported_drift = state.drift;
        }
        let milli = state.drift;
        closed.or_else(|| is_worth_telling.then_some(OriginQuotaEvent::Drift { milli }))
    }

    /// Releases a reservation of which nothing was spent.
    pub(super) fn release(&self, id: u64, expected: Units) {
        let mut state = self.state.lock();
        if let Some(tally) = state.tally(id) {
            tally.reserved = tally.reserved.saturating_sub(expected);
        }
        state.mark_changed(id);
    }

    /// Sets the settled units manually. Returns the previous and the new value.
    pub(super) fn set_used(&self, used: Units, now: Timestamp) -> (Units, Units) {
        let mut state = self.lock_at(now);
        let before = state.used();
        let after = if state.enforce { used.min(state.limit.saturating_sub(state.current.reserved)) } else { used };
        state.set_used(after);
        state.replan_now();
        drop(state);
        self.lease_mode.wake_refresher();
        (before, after)
    }

    /// Sets the taken units to `taken`, the value of a log. Returns true if the count changed.
    pub(super) fn sync_used_from_log(&self, taken: Units, now: Timestamp) -> bool {
        let mut state = self.lock_at(now);
        let before = state.taken();
        if taken != before {
            let reserved = state.current.reserved;
            state.set_used(taken.saturating_sub(reserved));
        }
        // Usage decreases only by a manual correction, after which a gateway replans.
        if taken < before {
            state.replan_now();
        }
        taken != before
    }
}

impl QuotaState {
    /// Returns the limit of the window, in units.
    pub(super) fn limit(&self) -> Units {
        self.limit
    }

    /// Returns the maximum of units that may be taken now. An overestimate of the taken units does not limit admission;
    /// only the lease does.
    pub(super) fn leased_limit(&self) -> Units {
        match (self.exhausted_until(), self.current.estimated) {
            (Some(_), _) => self.taken().min(self.limit),
            (None, true) => Units::MAX,
            (None, false) => self.limit,
        }
    }

    /// Returns the end of the exhaustion that the origin reported, or `None` if the quota is not exhausted.
    pub(super) fn exhausted_until(&self) -> Option<Timestamp> {
        self.is_closed().then_some(self.closed_until)
    }

    fn is_closed(&self) -> bool {
        self.latest_seen < self.closed_until
    }

    /// Returns the values that identify the window.
    fn definition(&self) -> (u64, bool, Duration, u32) {
        (self.current.id, self.current.first_use, self.window.nominal_length(), self.window.lookback())
    }

    /// Raises the units taken by all instances to at least `counted`.
    fn raise_taken_to(&mut self, counted: Units) {
        let beyond = counted.saturating_sub(self.taken());
        if beyond.is_zero() {
            return;
        }
        match self.leased {
            // Count the units as taken by others: several instances receive the same report from the origin.
            true => {
                self.current.taken_by_others = self.current.taken_by_others.saturating_add(beyond);
                self.corrected = true;
            }
            false => self.current.settled = self.current.settled.saturating_add(beyond),
        }
    }

    /// Returns the units settled by all instances, as far as this instance is informed.
    pub(super) fn used(&self) -> Units {
        self.current.settled.saturating_add(self.current.taken_by_others)
    }

    /// Returns the units settled, owed and reserved by all instances, as far as this instance is informed.
    pub(super) fn taken(&self) -> Units {
        self.current.taken_total().saturating_add(self.current.owed)
    }

    /// Returns the units that all instances may take before this one needs a larger lease.
    pub(super) fn leased(&self) -> Units {
        self.current.held.saturating_add(self.current.taken_by_others).min(self.limit)
    }

    /// Stores the effects of a decision: the tier state of the class, and the demand and payment in the plan.
    pub(super) fn record_decision(&mut self, class: StableClassId, position: &QuotaSnapshot<'_>, verdict: &Verdict) {
        self.class(class).shedding = position.shedding;
        self.adopt_plan();
        let (Some(planned), Some(pacer)) = (&position.planned, &mut self.pacer) else { return };
        let paced = pacer.class(usize::from(class));
        // Demand that a tier or bucket refuses is excluded, because no plan could serve it.
        if matches!(
            verdict,
            Verdict::Admit { .. } | Verdict::Refuse(Refusal { reason: Reason::Pacing | Reason::Quota, .. })
        ) {
            paced.demand.record_request(position.cost);
        }
        paced.allotment = planned.allowance;
        if let (Verdict::Admit { .. }, Some(allotment)) = (verdict, &mut paced.allotment) {
            allotment.bucket.take(position.cost);
        }
    }

    /// Reserves `cost`. The first charge opens a first-use window.
    pub(super) fn reserve(&mut self, cost: Units) {
        if !cost.is_zero() {
            self.open_on_first_use();
        }
        self.current.reserved = self.current.reserved.saturating_add(cost);
    }

    fn open_on_first_use(&mut self) {
        if !self.current.opened {
            self.current.span = self.window.span(self.latest_seen);
            self.current.opened = true;
            self.sum_overlapping();
        }
    }

    /// Returns the time at which taken units begin to become available again.
    pub(super) fn resets_at(&self) -> Timestamp {
        match self.window.first_use_length().filter(|_| !self.current.opened) {
            _ if self.is_closed() => self.closed_until,
            Some(length) => self.latest_seen + length,
            None => self.resets_at,
        }
    }

    /// Returns the span whose usage counts in the current window.
    pub(super) fn effective_span(&self) -> Span {
        let span = self.span_of(&self.current);
        let reach = span.length().saturating_mul(self.window.lookback());
        Span { start: span.start - reach, end: self.resets_at() }
    }

    /// Returns the usage of the window `id`, or `None` if it is not stored.
    pub(super) fn tally(&mut self, id: u64) -> Option<&mut WindowUsage> {
        match self.current.id == id {
            true => Some(&mut self.current),
            false => self.past_windows.iter_mut().find(|tally| tally.id == id),
        }
    }

    /// Returns the usage of one class.
    pub(super) fn class(&mut self, class: StableClassId) -> &mut ClassUsage {
        let place = usize::from(class);
        if place >= self.by_class.len() {
            self.by_class.resize(place + 1, ClassUsage::default());
        }
        &mut self.by_class[place]
    }

    /// Returns the usage of all classes, by stable class id.
    pub(super) fn classes(&self) -> &[ClassUsage] {
        &self.by_class
    }

    /// Updates the overlapping usage after a change of the window `id`.
    pub(super) fn mark_changed(&mut self, id: u64) {
        if self.current.id != id {
            self.sum_overlapping();
        }
    }

    fn set_used(&mut self, used: Units) {
        let back = self.window.lookback();
        let key = self.current.key(back);
        self.current.owed = Units::ZERO;
        self.closed_until = Timestamp::default();
        self.evicted_windows = EvictedWindows::default();
        // Also if the number is unchanged: the ledger may wait for the administrator's value.
        self.corrected = self.leased;
        if used >= self.current.taken_by_others {
            self.current.settled = used.saturating_sub(self.current.taken_by_others);
            return;
        }
        // The value is below the usage of others or of overlapping windows, so these are corrected, too.
        self.current.spent = false;
        self.current.settled = Units::ZERO;
        for tally in self.past_windows.iter_mut().filter(|tally| key.overlaps(tally.id, tally.known_span())) {
            tally.settled = Units::ZERO;
        }
        match self.leased {
            true => self.current.taken_by_others = used,
            false => {
                self.sum_overlapping();
                self.current.settled = used.saturating_sub(self.current.taken_by_others);
            }
        }
    }
}

impl SpendRate {
    /// Updates the rate. It increases at once and decreases over a second or two.
    pub(super) fn update(&mut self, taken: Units, now: Timestamp) {
        const MIN_SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
        let passed = now.saturating_duration_since(self.looked);
        if now >= self.looked && passed < MIN_SAMPLE_INTERVAL {
            return;
        }
        let since = u128::from(taken.saturating_sub(self.taken).milli());
        let rate = since * 1_000_000_000 / passed.max(MIN_SAMPLE_INTERVAL).as_nanos();
        let rate = Units::from_milli(u64::try_from(rate).unwrap_or(u64::MAX));
        let kept = 1.0 - (passed.as_secs_f64() / 2.0).min(1.0);
        let faded = Units::from_milli((self.per_second.milli() as f64 * kept) as u64);
        *self = Self { looked: now, taken, per_second: rate.max(faded) };
    }
}

fn pacing_config(quota: &Quota, slots: &[StableClassId]) -> Option<(Pacing, Vec<StableClassId>)> {
    quota.pacing.clone().map(|pacing| (pacing, slots.to_vec()))
}

fn initial_window(window: &Window, now: Timestamp) -> WindowUsage {
    match window.first_use_length() {
        Some(_) => placeholder_window(0),
        None => {
            let span = window.span(now);
            WindowUsage::new(span.start.0, span)
        }
    }
}

/// Returns a window that its next charge opens.
fn placeholder_window(ordinal: u64) -> WindowUsage {
    let ever = Span { start: Timestamp(0), end: Timestamp(u64::MAX) };
    WindowUsage { opened: false, first_use: true, ..WindowUsage::new(ordinal, ever) }
}
