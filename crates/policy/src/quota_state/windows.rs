//! Rollover of windows, and the usage of other windows that overlaps the current one.

use super::QuotaState;
use super::window_usage::WindowUsage;
use crate::Timestamp;
use crate::lease::WindowKey;
use crate::units::Units;
use crate::window::Span;
use std::time::Duration;

/// Maximum number of stored windows besides the current one and those that overlap it.
const MAX_PAST_WINDOWS: usize = 8;

impl QuotaState {
    /// Rolls over to the window that contains the current time.
    pub(super) fn roll_over(&mut self) {
        let before = self.current;
        self.past_windows.push(before);
        self.current = match self.window.first_use_length() {
            Some(length) => self.first_use_window(length),
            None => self.at_span(self.window.span(self.latest_time)),
        };
        if before.id != self.current.id {
            self.carry_over(&before);
            self.has_pending_correction = false;
            for class in &mut self.by_class {
                class.shedding.tier = 0;
            }
            self.spend_rate.taken = self.current.taken();
        }
        self.evict_old();
        self.sum_overlapping();
    }

    /// Carries the overlapping usage of a sliding window over to its next sub-window, except usage that has expired for
    /// certain. The ledger reports the exact value later. Until then the estimate errs high, so that no missing units
    /// are admitted.
    fn carry_over(&mut self, before: &WindowUsage) {
        let lookback = self.window.lookback();
        let (old_key, new_key) = (before.key(lookback), self.current.key(lookback));
        if !self.is_leased || !new_key.overlaps(before.id, before.known_span()) {
            return;
        }
        let has_expired = |window: &&WindowUsage| {
            let span = window.known_span();
            old_key.overlaps(window.id, span) && !new_key.overlaps(window.id, span)
        };
        let expired = self
            .past_windows
            .iter()
            .filter(has_expired)
            .fold(Units::ZERO, |sum, window| sum.saturating_add(window.taken()));
        let overlapping = before.taken_total().saturating_sub(expired);
        self.current.is_estimated = overlapping > self.current.taken_by_others;
        self.current.held_by_others = self.current.held_by_others.max(overlapping);
        self.current.taken_by_others = self.current.taken_by_others.max(overlapping);
    }

    /// Returns the usage of the window at `span`: the stored one, or a new one. A window that may have been evicted
    /// counts as fully used.
    pub(super) fn at_span(&mut self, span: Span) -> WindowUsage {
        let id = span.start.0;
        let window = match self.take_past_window(|window| window.id == id && !window.is_first_use) {
            Some(window) => WindowUsage { span, ..window },
            None if self.evicted_windows.covers(span) => WindowUsage::new(id, span).into_spent(self.limit),
            None => WindowUsage::new(id, span),
        };
        match self.evicted_windows.overlaps(span, self.window.lookback()) {
            true => window.into_spent(self.limit),
            false => window,
        }
    }

    /// Returns the usage of the open first-use window, or of the next one.
    ///
    /// A clock set back into a window finds it unchanged. If the clock is set back to before the newest window, that
    /// window continues from there: it lasts longer, without additional units.
    fn first_use_window(&mut self, length: Duration) -> WindowUsage {
        let now = self.latest_time;
        if let Some(open) =
            self.take_past_window(|window| window.is_first_use && window.is_open && window.span.contains(now))
        {
            return open;
        }
        let newest = self.past_windows.iter().filter(|window| window.is_first_use).map(|window| window.id).max();
        match newest.and_then(|id| self.take_past_window(|window| window.is_first_use && window.id == id)) {
            Some(window) if !window.is_open => window,
            Some(window) if now < window.span.start => {
                WindowUsage { span: Span { start: now, end: now + length }, ..window }
            }
            Some(window) => {
                self.past_windows.push(window);
                WindowUsage::placeholder(window.id + 1)
            }
            None => WindowUsage::placeholder(0),
        }
    }

    fn take_past_window(&mut self, matches: impl Fn(&WindowUsage) -> bool) -> Option<WindowUsage> {
        let index = self.past_windows.iter().position(matches)?;
        Some(self.past_windows.swap_remove(index))
    }

    /// Evicts the oldest windows beyond a maximum, except windows that overlap the current one or have open
    /// reservations.
    fn evict_old(&mut self) {
        let key = self.current.key(self.window.lookback());
        while self.past_windows.len() > MAX_PAST_WINDOWS {
            let idle = |window: &&WindowUsage| {
                window.reserved.is_zero() && window.owed.is_zero() && !key.overlaps(window.id, window.known_span())
            };
            let oldest =
                self.past_windows.iter().filter(idle).min_by_key(|window| window.span.start).map(|window| window.id);
            let Some(oldest) = oldest else { return };
            if let Some(window) = self.take_past_window(|window| window.id == oldest)
                && window.is_open
            {
                self.evicted_windows.evict(window.span);
            }
        }
    }

    /// Sums up the usage of other windows that overlaps the current one. A ledger does this for all instances.
    pub(super) fn sum_overlapping(&mut self) {
        let lookback = self.window.lookback();
        let span = self.span_of(&self.current);
        let key = WindowKey { id: self.current.id, span: Some(span), lookback };
        if !self.is_leased && !self.current.is_spent {
            let overlaps = |window: &&WindowUsage| key.overlaps(window.id, window.known_span());
            let overlapping = self
                .past_windows
                .iter()
                .filter(overlaps)
                .fold(Units::ZERO, |sum, window| sum.saturating_add(window.taken()));
            self.current.held_by_others = overlapping;
            self.current.taken_by_others = overlapping;
            self.current.held = self.limit.saturating_sub(overlapping);
            self.current.refill_below = Units::MAX;
        }
        self.resets_at = match lookback {
            0 => self.current.span.end,
            _ => self.first_expiry(lookback),
        };
    }

    /// Returns the time at which the earliest overlapping usage expires.
    fn first_expiry(&self, lookback: u32) -> Timestamp {
        let span = self.current.span;
        let expiry = |start: Timestamp| start + span.length().saturating_mul(lookback + 1);
        let key = self.current.key(lookback);
        let overlaps =
            |window: &&WindowUsage| !window.taken().is_zero() && key.overlaps(window.id, window.known_span());
        let oldest = self.past_windows.iter().filter(overlaps).map(|window| window.span.start).min();
        match oldest {
            Some(start) => expiry(start).max(span.end),
            None if self.current.taken_by_others.is_zero() => expiry(span.start),
            // The usage belongs to other instances and may expire at any moment.
            None => span.end,
        }
    }
}
