//! The account of one quota: what is settled, what is promised, and where each class stands on its ladder.
//!
//! It holds the present window and remembers others: those that still weigh on the present one, those in which a
//! reservation is open, and the last few, so that a clock set back finds them as they were.

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

/// A clock that is set back by less than this is being corrected: it counts as standing still.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(2);

/// A drift that moves by more than this part of the limit is worth telling.
const DRIFT_REPORT_DIVISOR: u64 = 100;

/// So many windows are remembered beside the present one and those that weigh on it.
const MAX_PAST_WINDOWS: usize = 8;

/// One quota's account.
pub(super) struct QuotaCounter {
    name: String,
    number: usize,
    lease_mode: LeaseMode,
    state: Mutex<QuotaState>,
}

/// What the account's lock guards.
pub(super) struct QuotaState {
    pub(super) window: Window,
    limit: Units,
    pub(super) enforce: bool,
    /// The most that one request is expected to cost, by the settings ...
    pub(super) configured_max_cost: Units,
    /// ... and by what was asked lately.
    pub(super) max_cost: Units,
    leased: bool,
    pub(super) latest_seen: Timestamp,
    pub(super) current: WindowUsage,
    /// The others that are remembered, in no order.
    pub(super) past_windows: Vec<WindowUsage>,
    evicted_windows: EvictedWindows,
    /// When what is taken of the present window begins to come back.
    resets_at: Timestamp,
    pub(super) pace: SpendRate,
    /// What requests would have taken that ran short since the ledger was last asked.
    pub(super) shortfall: Units,
    /// Decisions, second charges and settlements made on this account, in order.
    pub(super) sequence: u64,
    /// What the origin said was spent beyond what could be booked.
    pub(super) overrun: Units,
    /// What was lost to crashes.
    pub(super) lost: Units,
    /// What the origin has counted beyond what is counted here, in thousandths, as of its last word ...
    pub(super) drift: i64,
    /// ... and as of the last time that anybody was told.
    last_reported_drift: i64,
    /// The origin has said that nothing is left before this moment.
    closed_until: Timestamp,
    /// What counts as taken was corrected, by hand or by the origin's word, and the ledger does not know it yet.
    pub(super) corrected: bool,
    by_class: Vec<ClassUsage>,
    /// The plan, where there is one, or was: what it has learned outlives a change of the rules.
    pacer: Option<Box<Pacer>>,
    /// What is planned for, and the slots of the classes that it knows by their places.
    planned_for: Option<(Pacing, Vec<StableClassId>)>,
    /// The plan that was made for the decision under way. It stands once that does.
    next_pacer: Option<Box<Pacer>>,
    /// When a request of a guarded crawler was last let through, by class and operator: few, as operators are.
    crawlers: Vec<((StableClassId, OperatorId), Timestamp)>,
}

/// What the origin has told that somebody should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginQuotaEvent {
    /// Nothing is left, and nothing is let through before this moment.
    Exhausted {
        /// When the origin goes on, by its own word.
        until: Timestamp,
    },
    /// It counts so much beyond ours, in thousandths; below zero where it counts less.
    Drift {
        /// Thousandths of a unit.
        milli: i64,
    },
}

/// One class in one account.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClassUsage {
    pub(super) shedding: ShedState,
    /// Units charged since the process began.
    pub(super) charged: Units,
    /// Units that the guard has let through since the process began ...
    pub(super) guarded: Units,
    /// ... and in the length of a window that began at this moment.
    pub(super) guarded_lately: (Timestamp, Units),
}

/// How fast the present window is being spent.
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
        Self { name: quota.name.clone(), number, lease_mode: lease_mode, state: Mutex::new(state) }
    }

    /// Goes on under changed rules. What is spent stays spent: a window that begins at another moment now is weighed on
    /// by the one before. What is planned stays planned where nothing that it goes by is changed.
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
        // Whatever becomes of the window: what weighed on the one before weighs on this one.
        if before != state.definition() {
            if !state.leased {
                // It is carried over once, not once for each window that it was taken of.
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

    /// Its place in the order in which accounts are locked.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// The account's book as of `now`: in the window that this moment falls into.
    pub(super) fn lock_at(&self, now: Timestamp) -> MutexGuard<'_, QuotaState> {
        let mut state = self.state.lock();
        self.advance_to(&mut state, now);
        state
    }

    /// Brings the book to `now`, unless it has been brought to a later moment already.
    pub(super) fn advance_to(&self, state: &mut QuotaState, now: Timestamp) {
        if now >= state.latest_seen || state.latest_seen.saturating_duration_since(now) >= MAX_CLOCK_SKEW {
            state.latest_seen = now;
        }
        if !state.current.opened {
            // What weighs on a window that is not open yet changes with the time.
            state.sum_overlapping();
        } else if !state.current.span.contains(state.latest_seen) {
            state.roll_over();
            self.lease_mode.wake_refresher();
        }
    }

    /// The account's book as it was last left.
    pub(super) fn lock(&self) -> MutexGuard<'_, QuotaState> {
        self.state.lock()
    }

    /// Asks for more when what is held runs low. Called after units were taken; asks once until it is answered.
    pub(super) fn request_refill_if_low(&self, state: &mut QuotaState) {
        if state.current.taken() > state.current.refill_below {
            self.wake_refresher(state);
        }
    }

    /// Asks for more, though nothing was taken: it was not enough for `cost`.
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
    /// The charge is that window's own, also when it has ended since. What the origin says it spent beyond the limit
    /// cannot be undone; it is kept apart as overrun, so that the books stay within it. What others are expected to cost
    /// follows it where that is `learned`. Returns the overrun, and before it the settlement's number: they are counted
    /// with the decisions.
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
        // The limit may have room where the lease has not: the ledger will say.
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

    /// The origin has told where its own count of the window `id` stands. Returns what is worth telling of it.
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

    /// Takes back a reservation of which nothing was spent.
    pub(super) fn release(&self, id: u64, expected: Units) {
        let mut state = self.state.lock();
        if let Some(tally) = state.tally(id) {
            tally.reserved = tally.reserved.saturating_sub(expected);
        }
        state.mark_changed(id);
    }

    /// Corrects what is settled by hand; returns what it was and what it is now.
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

    /// Brings what is taken to `taken`, as a log tells it; true where the books said something else.
    pub(super) fn sync_used_from_log(&self, taken: Units, now: Timestamp) -> bool {
        let mut state = self.lock_at(now);
        let before = state.taken();
        if taken != before {
            let reserved = state.current.reserved;
            state.set_used(taken.saturating_sub(reserved));
        }
        // Less is what somebody said by hand, and then a gate plans anew.
        if taken < before {
            state.replan_now();
        }
        taken != before
    }
}

impl QuotaState {
    /// Units that were bought for the window.
    pub(super) fn limit(&self) -> Units {
        self.limit
    }

    /// What may be taken in all at this moment. While what is taken is an estimate that errs high it says nothing of
    /// what is left: that is for the ledger to say.
    pub(super) fn leased_limit(&self) -> Units {
        match (self.exhausted_until(), self.current.estimated) {
            (Some(_), _) => self.taken().min(self.limit),
            (None, true) => Units::MAX,
            (None, false) => self.limit,
        }
    }

    /// Before this moment nothing is let through: the origin has said so.
    pub(super) fn exhausted_until(&self) -> Option<Timestamp> {
        self.is_closed().then_some(self.closed_until)
    }

    fn is_closed(&self) -> bool {
        self.latest_seen < self.closed_until
    }

    /// Which window this is, so that another one is told from it.
    fn definition(&self) -> (u64, bool, Duration, u32) {
        (self.current.id, self.current.first_use, self.window.nominal_length(), self.window.lookback())
    }

    /// Counts at least `counted` as taken by all.
    fn raise_taken_to(&mut self, counted: Units) {
        let beyond = counted.saturating_sub(self.taken());
        if beyond.is_zero() {
            return;
        }
        match self.leased {
            // Nobody's own: several gates hear the same from the origin.
            true => {
                self.current.taken_by_others = self.current.taken_by_others.saturating_add(beyond);
                self.corrected = true;
            }
            false => self.current.settled = self.current.settled.saturating_add(beyond),
        }
    }

    /// Settled by all gates, as far as is known.
    pub(super) fn used(&self) -> Units {
        self.current.settled.saturating_add(self.current.taken_by_others)
    }

    /// Settled, owed and reserved by all gates, as far as is known.
    pub(super) fn taken(&self) -> Units {
        self.current.taken_total().saturating_add(self.current.owed)
    }

    /// What may be taken by all before this gate has to ask for more.
    pub(super) fn leased(&self) -> Units {
        self.current.held.saturating_add(self.current.taken_by_others).min(self.limit)
    }

    /// Keeps what a decision has moved on: the class's place on its ladder, and in the plan what it asked for and paid.
    pub(super) fn record_decision(&mut self, class: StableClassId, position: &QuotaSnapshot<'_>, verdict: &Verdict) {
        self.class(class).shedding = position.shedding;
        self.adopt_plan();
        let (Some(planned), Some(pacer)) = (&position.planned, &mut self.pacer) else { return };
        let paced = pacer.class(usize::from(class));
        // What its tier or bucket refuses is nothing that a plan could serve.
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

    /// Sets `cost` aside; the window's first charge opens it, where that is how it opens.
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

    /// When what is taken begins to come back.
    pub(super) fn resets_at(&self) -> Timestamp {
        match self.window.first_use_length().filter(|_| !self.current.opened) {
            _ if self.is_closed() => self.closed_until,
            Some(length) => self.latest_seen + length,
            None => self.resets_at,
        }
    }

    /// The time in which what is taken weighs.
    pub(super) fn effective_span(&self) -> Span {
        let span = self.span_of(&self.current);
        let reach = span.length().saturating_mul(self.window.lookback());
        Span { start: span.start - reach, end: self.resets_at() }
    }

    /// The tally of the window `id`, if it is remembered.
    pub(super) fn tally(&mut self, id: u64) -> Option<&mut WindowUsage> {
        match self.current.id == id {
            true => Some(&mut self.current),
            false => self.past_windows.iter_mut().find(|tally| tally.id == id),
        }
    }

    /// What is kept for one class.
    pub(super) fn class(&mut self, class: StableClassId) -> &mut ClassUsage {
        let place = usize::from(class);
        if place >= self.by_class.len() {
            self.by_class.resize(place + 1, ClassUsage::default());
        }
        &mut self.by_class[place]
    }

    /// What is kept for each class, by slot.
    pub(super) fn classes(&self) -> &[ClassUsage] {
        &self.by_class
    }

    /// Notes that the tally of the window `id` has changed, which may weigh on the present one.
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
        // Also where the number stays as it was: the operator's word may be what a ledger waits for.
        self.corrected = self.leased;
        if used >= self.current.taken_by_others {
            self.current.settled = used.saturating_sub(self.current.taken_by_others);
            return;
        }
        // Less than others took, or earlier windows: those are corrected, too.
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
    /// Looks again: up at once, down over a second or two.
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

/// A window that the next charge opens.
fn placeholder_window(ordinal: u64) -> WindowUsage {
    let ever = Span { start: Timestamp(0), end: Timestamp(u64::MAX) };
    WindowUsage { opened: false, first_use: true, ..WindowUsage::new(ordinal, ever) }
}
