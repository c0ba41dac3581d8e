//! Results of each window of a quota.

use crate::log_span::LogSpan;
use crate::report::WindowReport;
use std::collections::VecDeque;
use tidegate_engine::{Charged, QuotaUsage};
use tidegate_policy::quota::Quota;
use tidegate_policy::tier::TierSet;
use tidegate_policy::{ClassId, Reason, Rules, Timestamp, Units};

/// Windows of one quota, in the order of their first request.
pub(super) struct Windows {
    /// By class, true if tiers refuse all its requests from the first unit.
    fully_refused: Box<[bool]>,
    /// True for a sliding window, which has no end.
    is_sliding: bool,
    first_use_length: Option<std::time::Duration>,
    windows: VecDeque<WindowStats>,
    count: u64,
    /// Usage before the log began, for the first window.
    initial_usage: Units,
}

struct WindowStats {
    id: u64,
    start: Timestamp,
    end: Timestamp,
    /// Usage before the log began.
    initial_usage: Units,
    by_class: Box<[Units]>,
    overrun: Units,
    first_refused: Option<Timestamp>,
    exhausted_at: Option<Timestamp>,
}

impl Windows {
    pub(super) fn new(quota: &Quota, classes: usize) -> Self {
        let (is_sliding, first_use_length) = (quota.window.is_sliding(), quota.window.first_use_length());
        let is_fully_refused =
            |class| quota.tiers_for(ClassId::from_index(class)).and_then(TierSet::shutoff_at) == Some(Units::ZERO);
        let fully_refused = (0..classes).map(is_fully_refused).collect();
        Self {
            fully_refused,
            is_sliding,
            first_use_length,
            windows: VecDeque::new(),
            count: 0,
            initial_usage: Units::ZERO,
        }
    }

    /// Records a decision; `refused` is the reason and class of a refusal by this quota.
    pub(super) fn add(&mut self, usage: &QuotaUsage, refused: Option<(Reason, ClassId)>, now: Timestamp) {
        let (id, classes) = (if self.is_sliding { 0 } else { usage.window }, self.fully_refused.len());
        if !self.windows.iter().rev().any(|window| window.id == id) {
            let start = match self.first_use_length {
                Some(length) => usage.resets_at - length,
                None if self.is_sliding => now,
                None => Timestamp(id),
            };
            let by_class = vec![Units::ZERO; classes].into();
            self.count += 1;
            if self.windows.len() >= MAX_WINDOWS {
                self.windows.pop_front();
            }
            let initial_usage = std::mem::replace(&mut self.initial_usage, Units::ZERO);
            self.windows.push_back(WindowStats {
                id,
                start,
                end: now,
                initial_usage,
                by_class,
                overrun: Units::ZERO,
                first_refused: None,
                exhausted_at: None,
            });
        }
        let Some(window) = self.windows.iter_mut().rev().find(|window| window.id == id) else { return };
        window.end = if self.is_sliding { now } else { usage.resets_at };
        if refused.is_some_and(|(_, class)| !self.fully_refused[class.index()]) {
            window.first_refused.get_or_insert(now);
        }
        if refused.is_some_and(|(reason, _)| reason == Reason::Quota) {
            window.exhausted_at.get_or_insert(now);
        }
    }

    /// Sets the usage before the log began.
    pub(super) fn set_initial_usage(&mut self, used: Units) {
        self.initial_usage = used;
    }

    /// Records a settled request of `class`.
    pub(super) fn charge(&mut self, class: ClassId, &Charged { window, settled, overrun, .. }: &Charged) {
        let id = if self.is_sliding { 0 } else { window };
        if let Some(window) = self.windows.iter_mut().rev().find(|window| window.id == id) {
            let charged = &mut window.by_class[class.index()];
            *charged = charged.saturating_add(settled);
            window.overrun = window.overrun.saturating_add(overrun);
        }
    }

    /// Returns the number of windows.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn report(&self, limit: Units, rules: &Rules, log: LogSpan) -> Vec<WindowReport> {
        let report = |window: &WindowStats| {
            let charged: Units = window.by_class.iter().copied().chain([window.initial_usage]).sum();
            let used = charged.saturating_sub(window.overrun);
            let by_class = rules.classes.iter().zip(&window.by_class).filter(|(_, units)| !units.is_zero());
            WindowReport {
                start: window.start,
                end: window.end,
                whole: log.covers(window.start, window.end),
                used,
                left: limit.saturating_sub(used),
                overrun: window.overrun,
                first_refused: window.first_refused,
                spent: window.exhausted_at,
                by_class: by_class.map(|(class, units)| (class.name.clone(), *units)).collect(),
            }
        };
        self.windows.iter().map(report).collect()
    }
}

/// Maximum number of reported windows: three years of days, or a quarter of an hour of seconds.
const MAX_WINDOWS: usize = 1000;
