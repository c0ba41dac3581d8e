//! Usage by key of budgets: in windows that have ended, for a history of it, and of those that have used most.

use super::Admission;
use std::collections::BTreeMap;
use tidegate_policy::key_usage::KeyEntry;
use tidegate_policy::window::Span;
use tidegate_policy::{QuotaId, Timestamp, Units};

/// Keys of a budget whose usage counts now.
#[derive(Clone, Debug)]
pub struct BudgetEntries {
    /// The quota.
    pub quota: QuotaId,
    /// Keys that have used most, the first one most.
    pub top: Vec<KeyEntry>,
    /// Number of all keys.
    pub keys: usize,
    /// Number of keys that took the place of others.
    pub replaced: u32,
    /// Settled plus reserved units of all keys.
    pub used: Units,
    /// End of the window, or of all that keys have opened; of a sliding one, the time at which the first units come back. `None` if
    /// nothing counts in windows of keys or sliding ones.
    pub window_end: Option<Timestamp>,
}

/// Usage by key in a window that has ended, or in a part of a sliding window.
#[derive(Clone, Debug)]
pub struct EndedWindow {
    /// Time span of the window or part.
    pub span: Span,
    /// Keys with usage. What is in flight counts as reserved.
    pub used: Vec<KeyEntry>,
}

impl Admission {
    /// Returns the `count` keys that have used most of each budget.
    pub fn budget_entries(&self, count: usize, now: Timestamp) -> Vec<BudgetEntries> {
        let with_budgets = self.rules().quotas.iter().enumerate().filter(|(_, quota)| quota.budget.is_some());
        let entries = |(index, _)| {
            let quota = QuotaId::from_index(index);
            let counter = self.counter(quota);
            let (mut top, mut keys, mut used) = (Vec::with_capacity(count + 1), 0, Units::ZERO);
            counter.visit_current_keys(now, |key| {
                insert(&mut top, count, key);
                (keys, used) = (keys + 1, used.saturating_add(key.used));
            });
            let state = counter.lock_at(now);
            let (replaced, window_end) = (counter.replaced_keys(&state), counter.keys_renewal(&state));
            BudgetEntries { quota, top, keys, replaced, used, window_end }
        };
        with_budgets.map(entries).collect()
    }

    /// Returns the current [`Quota::history_span`](tidegate_policy::quota::Quota::history_span).
    pub fn history_span(&self, quota: QuotaId, now: Timestamp) -> Span {
        self.rules()[quota].history_span(self.counter(quota).lock_at(now).latest_time())
    }

    /// Returns the usage by key in windows that have ended, or in parts of a sliding window, as far as it is still kept.
    pub fn ended_windows(&self, quota: QuotaId, now: Timestamp) -> Vec<EndedWindow> {
        let counter = self.counter(quota);
        let state = counter.lock_at(now);
        let mut windows = BTreeMap::<u64, Vec<KeyEntry>>::new();
        counter.visit_keys(|window, key| windows.entry(window).or_default().push(key));
        let (current, now) = (state.window_id(), state.latest_time());
        drop(state);
        let ended = |(window, used)| {
            let key_span = self.rules()[quota].key_windows().span(window);
            let has_ended = key_span.map_or(window < current, |span| span.end <= now);
            let span = key_span.unwrap_or_else(|| self.rules()[quota].window.span(Timestamp(window)));
            has_ended.then_some(EndedWindow { span, used })
        };
        windows.into_iter().filter_map(ended).collect()
    }
}

/// Inserts a key into the `count` that have used most.
fn insert(top: &mut Vec<KeyEntry>, count: usize, key: KeyEntry) {
    let place = top.partition_point(|entry| entry.used >= key.used);
    if place < count {
        top.insert(place, key);
        top.truncate(count);
    }
}
