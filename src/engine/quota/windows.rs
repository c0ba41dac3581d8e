//! Rollover of windows, and the usage of other windows that overlaps the current one.

use super::{MAX_PAST_WINDOWS, QuotaState, placeholder_window};
use crate::engine::quota::window_usage::WindowUsage;
use crate::policy::lease::WindowKey;
use crate::policy::window::Span;
use crate::policy::{Timestamp, Units};
use std::time::Duration;

impl QuotaState {
    /// Rolls over to the window that contains the current time.
    pub(super) fn roll_over(&mut self) {
        let before = self.current;
        self.past_windows.push(before);
        self.current = match self.window.first_use_length() {
            Some(length) => self.first_use_window(length),
            None => self.at_span(self.window.span(self.latest_seen)),
        };
        if before.id != self.current.id {
            self.carry_over(&before);
            self.corrected = false;
            for class in &mut self.by_class {
                class.shedding.tier = 0;
            }
            self.pace.taken = self.current.taken();
        }
        self.evict_old();
        self.sum_overlapping();
    }

    /// Carries the overlapping usage of a sliding window over to its next sub-window, except usage that has expired for
    /// certain. The ledger reports the exact value later. Until then the estimate errs high, so that no missing units
    /// are admitted.
    fn carry_over(&mut self, before: &WindowUsage) {
        let back = self.window.lookback();
        let (was, is) = (before.key(back), self.current.key(back));
        if !self.leased || !is.overlaps(before.id, before.known_span()) {
            return;
        }
        let is_over = |tally: &&WindowUsage| {
            let span = tally.known_span();
            was.overlaps(tally.id, span) && !is.overlaps(tally.id, span)
        };
        let over =
            self.past_windows.iter().filter(is_over).fold(Units::ZERO, |sum, tally| sum.saturating_add(tally.taken()));
        let weight = before.taken_total().saturating_sub(over);
        self.current.estimated = weight > self.current.taken_by_others;
        self.current.held_by_others = self.current.held_by_others.max(weight);
        self.current.taken_by_others = self.current.taken_by_others.max(weight);
    }

    /// Returns the usage of the window at `span`: the stored one, or a new one. A window that may have been evicted
    /// counts as fully used.
    pub(in crate::engine) fn at_span(&mut self, span: Span) -> WindowUsage {
        let id = span.start.0;
        let tally = match self.take_past_window(|tally| tally.id == id && !tally.first_use) {
            Some(tally) => WindowUsage { span, ..tally },
            None if self.evicted_windows.covers(span) => WindowUsage::new(id, span).spent(self.limit),
            None => WindowUsage::new(id, span),
        };
        match self.evicted_windows.overlaps(span, self.window.lookback()) {
            true => tally.spent(self.limit),
            false => tally,
        }
    }

    /// Returns the usage of the open first-use window, or of the next one.
    ///
    /// A clock set back into a window finds it unchanged. If the clock is set back to before the newest window, that
    /// window continues from there: it lasts longer, without additional units.
    pub(super) fn first_use_window(&mut self, length: Duration) -> WindowUsage {
        let now = self.latest_seen;
        if let Some(open) = self.take_past_window(|tally| tally.first_use && tally.opened && tally.span.contains(now)) {
            return open;
        }
        let newest = self.past_windows.iter().filter(|tally| tally.first_use).map(|tally| tally.id).max();
        match newest.and_then(|id| self.take_past_window(|tally| tally.first_use && tally.id == id)) {
            Some(tally) if !tally.opened => tally,
            Some(tally) if now < tally.span.start => {
                WindowUsage { span: Span { start: now, end: now + length }, ..tally }
            }
            Some(tally) => {
                self.past_windows.push(tally);
                placeholder_window(tally.id + 1)
            }
            None => placeholder_window(0),
        }
    }

    pub(in crate::engine) fn take_past_window(&mut self, is: impl Fn(&WindowUsage) -> bool) -> Option<WindowUsage> {
        let place = self.past_windows.iter().position(is)?;
        Some(self.past_windows.swap_remove(place))
    }

    /// Evicts the oldest windows beyond a maximum, except windows that overlap the current one or have open
    /// reservations.
    fn evict_old(&mut self) {
        let key = self.current.key(self.window.lookback());
        while self.past_windows.len() > MAX_PAST_WINDOWS {
            let idle = |tally: &&WindowUsage| {
                tally.reserved.is_zero() && tally.owed.is_zero() && !key.overlaps(tally.id, tally.known_span())
            };
            let oldest =
                self.past_windows.iter().filter(idle).min_by_key(|tally| tally.span.start).map(|tally| tally.id);
            let Some(oldest) = oldest else { return };
            if let Some(tally) = self.take_past_window(|tally| tally.id == oldest)
                && tally.opened
            {
                self.evicted_windows.evict(tally.span);
            }
        }
    }

    /// Sums up the usage of other windows that overlaps the current one. A ledger does this for all instances.
    pub(in crate::engine) fn sum_overlapping(&mut self) {
        let back = self.window.lookback();
        let span = self.span_of(&self.current);
        let key = WindowKey { id: self.current.id, span: Some(span), lookback: back };
        if !self.leased && !self.current.spent {
            let weighs = |tally: &&WindowUsage| key.overlaps(tally.id, tally.known_span());
            let weight = self
                .past_windows
                .iter()
                .filter(weighs)
                .fold(Units::ZERO, |sum, tally| sum.saturating_add(tally.taken()));
            self.current.held_by_others = weight;
            self.current.taken_by_others = weight;
            self.current.held = self.limit.saturating_sub(weight);
            self.current.refill_below = Units::MAX;
        }
        self.resets_at = match back {
            0 => self.current.span.end,
            _ => self.first_expiry(back),
        };
    }

    /// Returns the time at which the earliest overlapping usage expires.
    fn first_expiry(&self, back: u32) -> Timestamp {
        let span = self.current.span;
        let relief = |start: Timestamp| start + span.length().saturating_mul(back + 1);
        let key = self.current.key(back);
        let weighs = |tally: &&WindowUsage| !tally.taken().is_zero() && key.overlaps(tally.id, tally.known_span());
        let oldest = self.past_windows.iter().filter(weighs).map(|tally| tally.span.start).min();
        match oldest {
            Some(start) => relief(start).max(span.end),
            None if self.current.taken_by_others.is_zero() => relief(span.start),
            // The usage belongs to other instances and may expire at any moment.
            None => span.end,
        }
    }
}
