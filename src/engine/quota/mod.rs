//! Counter of one quota: settled and reserved units, and the tier state of each class.
//!
//! [`QuotaCounter`] keeps the current window. It also stores windows that overlap a sliding window or have open
//! reservations. It stores the last few windows, too, so that a clock set back finds them unchanged.

mod guard;
mod pacing;
mod settle;
mod spend_rate;
mod state;
pub(super) mod window_usage;
mod windows;

pub use settle::OriginQuotaEvent;
pub(super) use state::QuotaState;

use super::{LeaseMode, StableClassId};
use crate::engine::quota::window_usage::WindowUsage;
use crate::policy::pacing::Pacing;
use crate::policy::quota::Quota;
use crate::policy::window::{EvictedWindows, Span, Window};
use crate::policy::{Timestamp, Units};
use parking_lot::{Mutex, MutexGuard};
use spend_rate::SpendRate;
use std::time::Duration;

/// A clock set back by less than this counts as standing still.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(2);

/// Maximum number of stored windows besides the current one and those that overlap it.
const MAX_PAST_WINDOWS: usize = 8;

/// A counter of one quota behind a lock.
pub(super) struct QuotaCounter {
    name: String,
    lock_order: usize,
    lease_mode: LeaseMode,
    state: Mutex<QuotaState>,
}

impl QuotaCounter {
    pub(super) fn open(
        lock_order: usize,
        quota: &Quota,
        class_ids: &[StableClassId],
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
            is_leased: leased,
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
        };
        state.sum_overlapping();
        Self { name: quota.name.clone(), lock_order, lease_mode, state: Mutex::new(state) }
    }

    /// Applies a changed configuration. Spent units stay spent: usage of the old window counts in a window with other
    /// boundaries. The plan is kept if none of its inputs changed.
    pub(super) fn update_config(&self, quota: &Quota, class_ids: &[StableClassId], max_cost: Units, now: Timestamp) {
        let mut state = self.lock_at(now);
        let (before, taken, limit) = (state.definition(), state.taken(), state.limit);
        let planned_for = pacing_config(quota, class_ids);
        state.window = quota.window.clone();
        state.limit = quota.limit;
        state.enforce = quota.enforce;
        state.configured_max_cost = max_cost;
        state.roll_over();
        if (before, limit, &state.pacing_config) != (state.definition(), quota.limit, &planned_for) {
            state.pacing_config = planned_for;
            state.replan_now();
        }
        // Usage that counted in the old window counts in the new one, whatever its boundaries.
        if before != state.definition() {
            if !state.is_leased {
                // Carry the usage over once, not once per window that it was taken from.
                state.past_windows.iter_mut().for_each(|window| window.settled = Units::ZERO);
                state.sum_overlapping();
            }
            state.raise_taken_to(taken);
            if !taken.is_zero() {
                state.open_on_first_use();
                state.has_pending_correction = state.is_leased;
            }
        }
        drop(state);
        self.lease_mode.wake_refresher();
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the position of the counter in the lock order.
    pub(super) fn lock_order(&self) -> usize {
        self.lock_order
    }

    /// Locks the state and advances it to the window that contains `now`.
    pub(super) fn lock_at(&self, now: Timestamp) -> MutexGuard<'_, QuotaState> {
        let mut state = self.state.lock();
        self.advance_to(&mut state, now);
        state
    }

    /// Advances the state to `now`, unless it has already been advanced to a later time.
    pub(super) fn advance_to(&self, state: &mut QuotaState, now: Timestamp) {
        if now >= state.latest_time || state.latest_time.saturating_duration_since(now) >= MAX_CLOCK_SKEW {
            state.latest_time = now;
        }
        if !state.current.is_open {
            // The overlapping usage of a window that is not open yet changes with time.
            state.sum_overlapping();
        } else if !state.current.span.contains(state.latest_time) {
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
}

fn pacing_config(quota: &Quota, class_ids: &[StableClassId]) -> Option<(Pacing, Vec<StableClassId>)> {
    quota.pacing.clone().map(|pacing| (pacing, class_ids.to_vec()))
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
    let all_time = Span { start: Timestamp(0), end: Timestamp(u64::MAX) };
    WindowUsage { is_open: false, is_first_use: true, ..WindowUsage::new(ordinal, all_time) }
}
