//! What a cache would save: requests for pages with a cost that repeat while a copy would be fresh.

use crate::log::LogLine;
use crate::response_cache::{CacheRole, OriginResponse, ResponseCache};
use crate::{ReplayRequest, ReplayedDecision};
use http::Method;
use std::time::Duration;
use tidegate_config::Settings;

/// Lifetimes that are tried, with their names in a configuration.
const LIFETIMES: [(&str, u64); 3] = [("10m", 600), ("1h", 3600), ("1d", 86_400)];

/// Caches with several lifetimes, on the same requests.
pub(super) struct CacheSavings {
    caches: Vec<ResponseCache>,
    hits: [u64; LIFETIMES.len()],
    requests: u64,
}

/// Share of the requests for pages with a cost that a cache would have answered.
#[derive(Clone, Debug, Default)]
pub(super) struct CacheShares {
    /// Number of GET and HEAD requests for such pages.
    pub(super) requests: u64,
    /// Lifetimes of copies, as in a configuration, each with the number of these requests that a copy would have answered.
    pub(super) hits: Vec<(&'static str, u64)>,
}

impl CacheSavings {
    /// Creates the caches. `settings` are those of the configuration with the section `cache`.
    pub(super) fn new(settings: &Settings) -> Self {
        let cache = |(_, seconds)| ResponseCache::new(settings, Some(Duration::from_secs(seconds)));
        Self { caches: LIFETIMES.into_iter().filter_map(cache).collect(), hits: [0; LIFETIMES.len()], requests: 0 }
    }

    /// Counts a request, decided without a cache.
    pub(super) fn add(&mut self, line: &LogLine<'_>, request: &ReplayRequest<'_>, decision: &ReplayedDecision) {
        let is_read = matches!(*request.method, Method::GET | Method::HEAD);
        let is_page = is_read && decision.is_costly();
        // Copies of free pages save nothing; any other request may invalidate one.
        if is_read && !is_page {
            return;
        }
        self.requests += u64::from(is_page);
        let response = OriginResponse::unconditional(line.status, line.bytes);
        for (cache, hits) in self.caches.iter_mut().zip(&mut self.hits) {
            let role = cache.role(request, decision.route, line.status, decision.at);
            match role {
                CacheRole::Copy(page) => {
                    *hits += u64::from(is_page);
                    cache.record_use(page);
                }
                role => cache.record_response(request, (role, decision.route), response, decision.at),
            }
        }
    }

    /// Returns the shares.
    pub(super) fn shares(&self) -> CacheShares {
        let names = LIFETIMES.map(|(name, _)| name);
        CacheShares { requests: self.requests, hits: names.into_iter().zip(self.hits).collect() }
    }
}
