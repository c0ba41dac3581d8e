//! Windows that begin, end and go on counting: what weighs on the present one.

use super::{QuotaState, REMEMBERED, unopened};
use crate::engine::quota::window_usage::WindowUsage;
use crate::policy::lease::WindowKey;
use crate::policy::window::Span;
use crate::policy::{Timestamp, Units};
use std::time::Duration;

impl QuotaState {
    /// Goes on to the window that the present moment falls into.
    pub(super) fn go_on(&mut self) {
        let before = self.current;
        self.others.push(before);
        self.current = match self.window.opened_by_use() {
            Some(length) => self.opened_by_use(length),
            None => self.at_span(self.window.span(self.latest)),
        };
        if before.id != self.current.id {
            self.carry_over(&before);
            self.corrected = false;
            for class in &mut self.by_class {
                class.shedding.tier = 0;
            }
            self.pace.taken = self.current.taken();
        }
        self.forget();
        self.weigh();
    }

    /// What weighed on the part of a sliding window that is over goes on to weigh, but for what this gate knows to be
    /// over, too. The ledger will say exactly; until then nobody is told that there is more than there is.
    fn carry_over(&mut self, before: &WindowUsage) {
        let back = self.window.back();
        let (was, is) = (before.key(back), self.current.key(back));
        if !self.leased || !is.is_weighed_on_by(before.id, before.known_span()) {
            return;
        }
        let is_over = |tally: &&WindowUsage| {
            let span = tally.known_span();
            was.is_weighed_on_by(tally.id, span) && !is.is_weighed_on_by(tally.id, span)
        };
        let over = self.others.iter().filter(is_over).fold(Units::ZERO, |sum, tally| sum.plus(tally.taken()));
        let weight = before.taken_by_all().minus(over);
        self.current.estimated = weight > self.current.taken_elsewhere;
        self.current.elsewhere = self.current.elsewhere.max(weight);
        self.current.taken_elsewhere = self.current.taken_elsewhere.max(weight);
    }

    /// The tally of the window at `span`: as it was left, or a new one, unless it may be one that has been forgotten.
    pub(in crate::engine) fn at_span(&mut self, span: Span) -> WindowUsage {
        let id = span.start.0;
        let tally = match self.take_other(|tally| tally.id == id && !tally.by_use) {
            Some(tally) => WindowUsage { span, ..tally },
            None if self.forgotten.covers(span) => WindowUsage::fresh(id, span).spent(self.limit),
            None => WindowUsage::fresh(id, span),
        };
        match self.forgotten.weighs_on(span, self.window.back()) {
            true => tally.spent(self.limit),
            false => tally,
        }
    }

    /// The tally of the window that is open now, or of the next to be opened.
    ///
    /// A clock set back into a window finds it as it was. Set back to before the newest, that one goes on from there: it
    /// lasts longer, and nobody has more of it.
    pub(super) fn opened_by_use(&mut self, length: Duration) -> WindowUsage {
        let now = self.latest;
        if let Some(open) = self.take_other(|tally| tally.by_use && tally.opened && tally.span.contains(now)) {
            return open;
        }
        let newest = self.others.iter().filter(|tally| tally.by_use).map(|tally| tally.id).max();
        match newest.and_then(|id| self.take_other(|tally| tally.by_use && tally.id == id)) {
            Some(tally) if !tally.opened => tally,
            Some(tally) if now < tally.span.start => WindowUsage { span: Span { start: now, end: now + length }, ..tally },
            Some(tally) => {
                self.others.push(tally);
                unopened(tally.id + 1)
            }
            None => unopened(0),
        }
    }

    pub(in crate::engine) fn take_other(&mut self, is: impl Fn(&WindowUsage) -> bool) -> Option<WindowUsage> {
        let place = self.others.iter().position(is)?;
        Some(self.others.swap_remove(place))
    }

    /// Forgets the oldest windows beyond a few, unless they weigh on the present one or a reservation is open.
    fn forget(&mut self) {
        let key = self.current.key(self.window.back());
        while self.others.len() > REMEMBERED {
            let idle = |tally: &&WindowUsage| {
                tally.reserved.is_zero() && tally.owed.is_zero() && !key.is_weighed_on_by(tally.id, tally.known_span())
            };
            let oldest = self.others.iter().filter(idle).min_by_key(|tally| tally.span.start).map(|tally| tally.id);
            let Some(oldest) = oldest else { return };
            if let Some(tally) = self.take_other(|tally| tally.id == oldest)
                && tally.opened
            {
                self.forgotten.forget(tally.span);
            }
        }
    }

    /// Adds up what other windows weigh on the present one. A ledger does that itself, for all gates.
    pub(in crate::engine) fn weigh(&mut self) {
        let back = self.window.back();
        let span = self.span_of(&self.current);
        let key = WindowKey { id: self.current.id, span: Some(span), back };
        if !self.leased && !self.current.spent {
            let weighs = |tally: &&WindowUsage| key.is_weighed_on_by(tally.id, tally.known_span());
            let weight = self.others.iter().filter(weighs).fold(Units::ZERO, |sum, tally| sum.plus(tally.taken()));
            self.current.elsewhere = weight;
            self.current.taken_elsewhere = weight;
            self.current.held = self.limit.minus(weight);
            self.current.low = Units::MAX;
        }
        self.resets_at = match back {
            0 => self.current.span.end,
            _ => self.first_relief(back),
        };
    }

    /// When the earliest of what weighs on the present window begins to weigh no more.
    fn first_relief(&self, back: u32) -> Timestamp {
        let span = self.current.span;
        let relief = |start: Timestamp| start + span.length().saturating_mul(back + 1);
        let key = self.current.key(back);
        let weighs = |tally: &&WindowUsage| !tally.taken().is_zero() && key.is_weighed_on_by(tally.id, tally.known_span());
        let oldest = self.others.iter().filter(weighs).map(|tally| tally.span.start).min();
        match oldest {
            Some(start) => relief(start).max(span.end),
            None if self.current.taken_elsewhere.is_zero() => relief(span.start),
            // Somebody else's: it may be the next moment.
            None => span.end,
        }
    }
}
