//! The account of one quota: what is settled, what is promised, and where each class stands on its ladder.
//!
//! It holds the present window and remembers others: those that still weigh on the present one, those in which a
//! reservation is open, and the last few, so that a clock set back finds them as they were.

pub(super) mod window_usage;
mod guard;
mod pacing;
mod windows;

use super::cost_estimates::LearnedCost;
use crate::engine::quota::window_usage::WindowUsage;
use super::{StableClassId, LeaseMode};
use crate::policy::quota_sync::{self, OriginReport, LocalCount};
use crate::policy::decide::QuotaSnapshot;
use crate::policy::pacing::Pacing;
use crate::policy::pacing::pacer::Pacer;
use crate::policy::quota::Quota;
use crate::policy::tier::ShedState;
use crate::policy::window::{EvictedWindows, Span, Window};
use crate::policy::{OperatorId, Reason, Refusal, Timestamp, Units, Verdict};
use parking_lot::{Mutex, MutexGuard};
use std::time::Duration;

/// A clock that is set back by less than this is being corrected: it counts as standing still.
const STEP_BACK: Duration = Duration::from_secs(2);

/// A drift that moves by more than this part of the limit is worth telling.
const DRIFT_TOLD_BY: u64 = 100;

/// So many windows are remembered beside the present one and those that weigh on it.
const REMEMBERED: usize = 8;

/// One quota's account.
pub(super) struct QuotaCounter {
    name: String,
    number: usize,
    supply: LeaseMode,
    book: Mutex<QuotaState>,
}

/// What the account's lock guards.
pub(super) struct QuotaState {
    pub(super) window: Window,
    limit: Units,
    pub(super) enforce: bool,
    /// The most that one request is expected to cost, by the settings ...
    pub(super) dearest_usually: Units,
    /// ... and by what was asked lately.
    pub(super) dearest: Units,
    leased: bool,
    pub(super) latest: Timestamp,
    pub(super) current: WindowUsage,
    /// The others that are remembered, in no order.
    pub(super) others: Vec<WindowUsage>,
    forgotten: EvictedWindows,
    /// When what is taken of the present window begins to come back.
    resets_at: Timestamp,
    pub(super) pace: SpendRate,
    /// What requests would have taken that ran short since the ledger was last asked.
    pub(super) short: Units,
    /// Decisions, second charges and settlements made on this account, in order.
    pub(super) turn: u64,
    /// What the origin said was spent beyond what could be booked.
    pub(super) overrun: Units,
    /// What was lost to crashes.
    pub(super) lost: Units,
    /// What the origin has counted beyond what is counted here, in thousandths, as of its last word ...
    pub(super) drift: i64,
    /// ... and as of the last time that anybody was told.
    drift_told: i64,
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
    Closed {
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
        dearest: Units,
        supply: LeaseMode,
        now: Timestamp,
    ) -> Self {
        let leased = matches!(supply, LeaseMode::Leased(_));
        let mut book = QuotaState {
            window: quota.window.clone(),
            limit: quota.limit,
            enforce: quota.enforce,
            dearest_usually: dearest,
            dearest,
            leased,
            latest: now,
            current: first(&quota.window, now),
            others: Vec::new(),
            forgotten: EvictedWindows::default(),
            resets_at: now,
            pace: SpendRate::default(),
            short: Units::ZERO,
            turn: 0,
            overrun: Units::ZERO,
            lost: Units::ZERO,
            drift: 0,
            drift_told: 0,
            closed_until: Timestamp::default(),
            corrected: false,
            by_class: Vec::new(),
            pacer: None,
            planned_for: planned_for(quota, slots),
            next_pacer: None,
            crawlers: Vec::new(),
        };
        book.weigh();
        Self { name: quota.name.clone(), number, supply, book: Mutex::new(book) }
    }

    /// Goes on under changed rules. What is spent stays spent: a window that begins at another moment now is weighed on
    /// by the one before. What is planned stays planned where nothing that it goes by is changed.
    pub(super) fn follow(&self, quota: &Quota, slots: &[StableClassId], dearest: Units, now: Timestamp) {
        let mut book = self.at(now);
        let (before, taken, limit) = (book.definition(), book.taken(), book.limit);
        let planned_for = planned_for(quota, slots);
        book.window = quota.window.clone();
        book.limit = quota.limit;
        book.enforce = quota.enforce;
        book.dearest_usually = dearest;
        book.go_on();
        if (before, limit, &book.planned_for) != (book.definition(), quota.limit, &planned_for) {
            book.planned_for = planned_for;
            book.plan_anew();
        }
        // Whatever becomes of the window: what weighed on the one before weighs on this one.
        if before != book.definition() {
            if !book.leased {
                // It is carried over once, not once for each window that it was taken of.
                book.others.iter_mut().for_each(|tally| tally.settled = Units::ZERO);
                book.weigh();
            }
            book.tighten(taken);
            if !taken.is_zero() {
                book.open_by_use();
                book.corrected = book.leased;
            }
        }
        drop(book);
        self.supply.wake();
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Its place in the order in which accounts are locked.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// The account's book as of `now`: in the window that this moment falls into.
    pub(super) fn at(&self, now: Timestamp) -> MutexGuard<'_, QuotaState> {
        let mut book = self.book.lock();
        self.turn_to(&mut book, now);
        book
    }

    /// Brings the book to `now`, unless it has been brought to a later moment already.
    pub(super) fn turn_to(&self, book: &mut QuotaState, now: Timestamp) {
        if now >= book.latest || book.latest.since(now) >= STEP_BACK {
            book.latest = now;
        }
        if !book.current.opened {
            // What weighs on a window that is not open yet changes with the time.
            book.weigh();
        } else if !book.current.span.contains(book.latest) {
            book.go_on();
            self.supply.wake();
        }
    }

    /// The account's book as it was last left.
    pub(super) fn as_it_is(&self) -> MutexGuard<'_, QuotaState> {
        self.book.lock()
    }

    /// Asks for more when what is held runs low. Called after units were taken; asks once until it is answered.
    pub(super) fn see_to_supply(&self, book: &mut QuotaState) {
        if book.current.taken() > book.current.low {
            self.ask(book);
        }
    }

    /// Asks for more, though nothing was taken: it was not enough for `cost`.
    pub(super) fn ran_short(&self, book: &mut QuotaState, cost: Units) {
        book.dearest = book.dearest.max(cost);
        self.lacks(book, cost);
    }

    fn lacks(&self, book: &mut QuotaState, units: Units) {
        book.short = book.short.plus(units);
        if book.current.low < Units::MAX {
            self.ask(book);
        }
    }

    fn ask(&self, book: &mut QuotaState) {
        book.current.low = Units::MAX;
        self.supply.wake();
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
        let mut book = self.book.lock();
        book.turn += 1;
        if let Some(learned) = learned {
            learned.learn(actual);
        }
        book.class(class).charged = book.class(class).charged.plus(actual);
        if let Some(pacer) = &mut book.pacer {
            pacer.class(usize::from(class)).demand.paid(expected, actual);
        }
        let (limit, enforce, leased) = (book.limit, book.enforce, book.leased);
        if book.current.id == id && !actual.is_zero() {
            book.open_by_use();
        }
        let turn = book.turn;
        let Some(tally) = book.tally(id) else { return (turn, Units::ZERO) };
        tally.reserved = tally.reserved.minus(expected);
        let room = if enforce { tally.held.min(limit).minus(tally.taken()).minus(tally.owed) } else { Units::MAX };
        tally.settled = tally.settled.plus(actual.min(room));
        let beyond = actual.minus(room);
        // The limit may have room where the lease has not: the ledger will say.
        let left = if leased { limit.minus(tally.taken_by_all()).minus(tally.owed) } else { Units::ZERO };
        tally.owed = tally.owed.plus(beyond.min(left));
        let overrun = beyond.minus(left);
        book.overrun = book.overrun.plus(overrun);
        if !beyond.is_zero() {
            self.lacks(&mut book, beyond);
        }
        book.changed(id);
        self.see_to_supply(&mut book);
        (turn, overrun)
    }

    /// The origin has told where its own count of the window `id` stands. Returns what is worth telling of it.
    pub(super) fn origin_counts(&self, id: u64, said: OriginReport, now: Timestamp) -> Option<OriginQuotaEvent> {
        let mut book = self.at(now);
        let turns = book.window.back() == 0;
        let span = if book.current.opened { book.current.span } else { return None };
        let (limit, used, reserved) = (book.limit, book.used(), book.current.reserved);
        let length = book.window.usual_length();
        let calibration = quota_sync::calibrate(said, LocalCount { limit, used, reserved, span, turns, length }, now);
        let closed = calibration.closed_until.filter(|moment| *moment > book.closed_until);
        book.closed_until = closed.unwrap_or(book.closed_until);
        let closed = closed.map(|until| OriginQuotaEvent::Closed { until });
        if turns && book.current.id != id {
            return closed;
        }
        book.tighten(calibration.taken);
        book.drift = calibration.drift.unwrap_or(book.drift);
        let moved = book.drift.abs_diff(book.drift_told);
        let is_worth_telling = closed.is_some() || moved > limit.milli() / DRIFT_TOLD_BY;
        if is_worth_telling {
            book.drift_told = book.drift;
        }
        let milli = book.drift;
        closed.or_else(|| is_worth_telling.then_some(OriginQuotaEvent::Drift { milli }))
    }

    /// Takes back a reservation of which nothing was spent.
    pub(super) fn release(&self, id: u64, expected: Units) {
        let mut book = self.book.lock();
        if let Some(tally) = book.tally(id) {
            tally.reserved = tally.reserved.minus(expected);
        }
        book.changed(id);
    }

    /// Corrects what is settled by hand; returns what it was and what it is now.
    pub(super) fn set_used(&self, used: Units, now: Timestamp) -> (Units, Units) {
        let mut book = self.at(now);
        let before = book.used();
        let after = if book.enforce { used.min(book.limit.minus(book.current.reserved)) } else { used };
        book.set_used(after);
        book.plan_anew();
        drop(book);
        self.supply.wake();
        (before, after)
    }

    /// Brings what is taken to `taken`, as a log tells it; true where the books said something else.
    pub(super) fn bring_to(&self, taken: Units, now: Timestamp) -> bool {
        let mut book = self.at(now);
        let before = book.taken();
        if taken != before {
            let reserved = book.current.reserved;
            book.set_used(taken.minus(reserved));
        }
        // Less is what somebody said by hand, and then a gate plans anew.
        if taken < before {
            book.plan_anew();
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
    pub(super) fn open_limit(&self) -> Units {
        match (self.closed_until(), self.current.estimated) {
            (Some(_), _) => self.taken().min(self.limit),
            (None, true) => Units::MAX,
            (None, false) => self.limit,
        }
    }

    /// Before this moment nothing is let through: the origin has said so.
    pub(super) fn closed_until(&self) -> Option<Timestamp> {
        self.is_closed().then_some(self.closed_until)
    }

    fn is_closed(&self) -> bool {
        self.latest < self.closed_until
    }

    /// Which window this is, so that another one is told from it.
    fn definition(&self) -> (u64, bool, Duration, u32) {
        (self.current.id, self.current.by_use, self.window.usual_length(), self.window.back())
    }

    /// Counts at least `counted` as taken by all.
    fn tighten(&mut self, counted: Units) {
        let beyond = counted.minus(self.taken());
        if beyond.is_zero() {
            return;
        }
        match self.leased {
            // Nobody's own: several gates hear the same from the origin.
            true => {
                self.current.taken_elsewhere = self.current.taken_elsewhere.plus(beyond);
                self.corrected = true;
            }
            false => self.current.settled = self.current.settled.plus(beyond),
        }
    }

    /// Settled by all gates, as far as is known.
    pub(super) fn used(&self) -> Units {
        self.current.settled.plus(self.current.taken_elsewhere)
    }

    /// Settled, owed and reserved by all gates, as far as is known.
    pub(super) fn taken(&self) -> Units {
        self.current.taken_by_all().plus(self.current.owed)
    }

    /// What may be taken by all before this gate has to ask for more.
    pub(super) fn granted(&self) -> Units {
        self.current.held.plus(self.current.taken_elsewhere).min(self.limit)
    }

    /// Keeps what a decision has moved on: the class's place on its ladder, and in the plan what it asked for and paid.
    pub(super) fn counts(&mut self, class: StableClassId, position: &QuotaSnapshot<'_>, verdict: &Verdict) {
        self.class(class).shedding = position.shedding;
        self.adopt_plan();
        let (Some(planned), Some(pacer)) = (&position.planned, &mut self.pacer) else { return };
        let paced = pacer.class(usize::from(class));
        // What its tier or bucket refuses is nothing that a plan could serve.
        if matches!(
            verdict,
            Verdict::Admit { .. } | Verdict::Refuse(Refusal { reason: Reason::Pacing | Reason::Quota, .. })
        ) {
            paced.demand.asks(position.cost);
        }
        paced.allotment = planned.allotment;
        if let (Verdict::Admit { .. }, Some(allotment)) = (verdict, &mut paced.allotment) {
            allotment.purse.pay(position.cost);
        }
    }

    /// Sets `cost` aside; the window's first charge opens it, where that is how it opens.
    pub(super) fn reserve(&mut self, cost: Units) {
        if !cost.is_zero() {
            self.open_by_use();
        }
        self.current.reserved = self.current.reserved.plus(cost);
    }

    fn open_by_use(&mut self) {
        if !self.current.opened {
            self.current.span = self.window.span(self.latest);
            self.current.opened = true;
            self.weigh();
        }
    }

    /// When what is taken begins to come back.
    pub(super) fn resets_at(&self) -> Timestamp {
        match self.window.opened_by_use().filter(|_| !self.current.opened) {
            _ if self.is_closed() => self.closed_until,
            Some(length) => self.latest + length,
            None => self.resets_at,
        }
    }

    /// The time in which what is taken weighs.
    pub(super) fn shown_span(&self) -> Span {
        let span = self.span_of(&self.current);
        let reach = span.length().saturating_mul(self.window.back());
        Span { start: span.start - reach, end: self.resets_at() }
    }

    /// The tally of the window `id`, if it is remembered.
    pub(super) fn tally(&mut self, id: u64) -> Option<&mut WindowUsage> {
        match self.current.id == id {
            true => Some(&mut self.current),
            false => self.others.iter_mut().find(|tally| tally.id == id),
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
    pub(super) fn changed(&mut self, id: u64) {
        if self.current.id != id {
            self.weigh();
        }
    }

    fn set_used(&mut self, used: Units) {
        let back = self.window.back();
        let key = self.current.key(back);
        self.current.owed = Units::ZERO;
        self.closed_until = Timestamp::default();
        self.forgotten = EvictedWindows::default();
        // Also where the number stays as it was: the operator's word may be what a ledger waits for.
        self.corrected = self.leased;
        if used >= self.current.taken_elsewhere {
            self.current.settled = used.minus(self.current.taken_elsewhere);
            return;
        }
        // Less than others took, or earlier windows: those are corrected, too.
        self.current.spent = false;
        self.current.settled = Units::ZERO;
        for tally in self.others.iter_mut().filter(|tally| key.is_weighed_on_by(tally.id, tally.known_span())) {
            tally.settled = Units::ZERO;
        }
        match self.leased {
            true => self.current.taken_elsewhere = used,
            false => {
                self.weigh();
                self.current.settled = used.minus(self.current.taken_elsewhere);
            }
        }
    }
}

impl SpendRate {
    /// Looks again: up at once, down over a second or two.
    pub(super) fn look(&mut self, taken: Units, now: Timestamp) {
        const SHORTEST: Duration = Duration::from_millis(20);
        let passed = now.since(self.looked);
        if now >= self.looked && passed < SHORTEST {
            return;
        }
        let since = u128::from(taken.minus(self.taken).milli());
        let rate = since * 1_000_000_000 / passed.max(SHORTEST).as_nanos();
        let rate = Units::from_milli(u64::try_from(rate).unwrap_or(u64::MAX));
        let kept = 1.0 - (passed.as_secs_f64() / 2.0).min(1.0);
        let faded = Units::from_milli((self.per_second.milli() as f64 * kept) as u64);
        *self = Self { looked: now, taken, per_second: rate.max(faded) };
    }
}

fn planned_for(quota: &Quota, slots: &[StableClassId]) -> Option<(Pacing, Vec<StableClassId>)> {
    quota.pacing.clone().map(|pacing| (pacing, slots.to_vec()))
}

fn first(window: &Window, now: Timestamp) -> WindowUsage {
    match window.opened_by_use() {
        Some(_) => unopened(0),
        None => {
            let span = window.span(now);
            WindowUsage::fresh(span.start.0, span)
        }
    }
}

/// A window that the next charge opens.
fn unopened(ordinal: u64) -> WindowUsage {
    let ever = Span { start: Timestamp(0), end: Timestamp(u64::MAX) };
    WindowUsage { opened: false, by_use: true, ..WindowUsage::fresh(ordinal, ever) }
}
