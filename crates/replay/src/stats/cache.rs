//! What the cache did, and what it saved.

use super::classes::by_quota;
use crate::decision::ReplayedDecision;
use crate::report::{CacheReport, CacheStoreReport, ClassCacheReport};
use crate::response_store::StoreUsage;
use tidegate_http_cache::CacheResult;
use tidegate_policy::{Rules, Units};

/// Requests that the cache took part in.
pub(super) struct CacheStats {
    /// Admitted requests, by result.
    results: [u64; CacheResult::ALL.len()],
    /// Classes, by index.
    classes: Vec<CacheUse>,
}

/// Use of the cache by one class.
#[derive(Clone)]
struct CacheUse {
    /// Admitted requests that the cache took part in.
    requests: u64,
    /// Admitted requests that a stored response answered without the origin.
    hits: u64,
    /// Refused requests that a stored response answered.
    replaced_refusals: u64,
    /// Units that stored responses saved, by quota.
    saved: Box<[Units]>,
}

impl CacheStats {
    pub(super) fn new(classes: usize, quotas: usize) -> Self {
        Self { results: Default::default(), classes: vec![CacheUse::new(quotas); classes] }
    }

    pub(super) fn add(&mut self, decision: &ReplayedDecision) {
        let Some(result) = decision.cache else { return };
        let class = &mut self.classes[decision.classification.class.index()];
        if decision.is_replaced_refusal() {
            class.replaced_refusals += 1;
            return;
        }
        self.results[result as usize] += 1;
        class.requests += 1;
        class.hits += u64::from(matches!(result, CacheResult::Hit | CacheResult::Stale));
        for (quota, units) in &decision.saved {
            let saved = &mut class.saved[quota.index()];
            *saved = saved.saturating_add(*units);
        }
    }

    /// Returns the report; `None` without a cache. `stored` is what a simulated cache contains at the end.
    pub(super) fn report(&self, rules: &Rules, stored: Option<StoreUsage>) -> Option<CacheReport> {
        let mut all = CacheUse::new(rules.quotas.len());
        self.classes.iter().for_each(|class| all.add(class));
        if all.is_unused() && stored.is_none() {
            return None;
        }
        let count = |result: CacheResult| self.results[result as usize];
        let used = self.classes.iter().zip(&rules.classes).filter(|(class, _)| !class.is_unused());
        Some(CacheReport {
            requests: all.requests,
            hits: all.hits,
            hit_share: all.hit_share(),
            revalidated: count(CacheResult::Revalidated),
            misses: count(CacheResult::Miss),
            bypassed: count(CacheResult::Bypass),
            replaced_refusals: all.replaced_refusals,
            saved: by_quota(&all.saved, rules),
            classes: used.map(|(class, rule)| class.report(&rule.name, rules)).collect(),
            store: stored.map(|StoreUsage { entries, bytes, evictions }| CacheStoreReport {
                entries,
                bytes,
                evictions,
            }),
        })
    }
}

impl CacheUse {
    fn new(quotas: usize) -> Self {
        Self { requests: 0, hits: 0, replaced_refusals: 0, saved: vec![Units::ZERO; quotas].into() }
    }

    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.hits += other.hits;
        self.replaced_refusals += other.replaced_refusals;
        for (sum, units) in self.saved.iter_mut().zip(&other.saved) {
            *sum = sum.saturating_add(*units);
        }
    }

    fn is_unused(&self) -> bool {
        self.requests == 0 && self.replaced_refusals == 0
    }

    fn hit_share(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.hits as f64 / self.requests as f64)
    }

    fn report(&self, name: &str, rules: &Rules) -> ClassCacheReport {
        ClassCacheReport {
            name: name.to_owned(),
            requests: self.requests,
            hits: self.hits,
            hit_share: self.hit_share(),
            replaced_refusals: self.replaced_refusals,
            saved: by_quota(&self.saved, rules),
        }
    }
}
