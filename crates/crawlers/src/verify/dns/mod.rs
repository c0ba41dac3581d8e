//! Crawler verification by forward-confirmed reverse DNS: an address belongs to an operator if one of its names does
//! and resolves to the address.
//!
//! A request reads the cached result and never waits. Unknown addresses are queued once each, and a few tasks look them
//! up. A flood of invented crawlers fills queue and cache only up to their bounds; an address that does not fit stays
//! unverified, and its next request may queue it.

mod cache;
#[cfg(test)]
#[path = "../../../../../tests/integration/support/name_server.rs"]
mod name_server;
mod queue;
mod resolver;
#[cfg(test)]
mod tests;

use cache::DnsCache;
use queue::LookupQueue;
use smallvec::SmallVec;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::dns_pattern::DnsPattern;
use tidegate_policy::{OperatorId, Timestamp};
use tokio::task::JoinSet;

pub use resolver::{Resolver, ResolverError};

/// Cached DNS results and the queue of addresses to look up.
#[derive(Debug)]
pub struct DnsVerifier {
    patterns: Vec<(DnsPattern, OperatorId)>,
    cache: DnsCache,
    queue: LookupQueue,
}

/// Result of DNS verification for a claimed operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsResult {
    /// The address has a name of the operator, and the name resolves to the address.
    Verified,
    /// The address has no name of the operator.
    Mismatch,
    /// Not looked up yet, or the lookup failed.
    Unknown,
}

/// Operators of one address, by DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AddressOwners {
    /// Operators whose names the address has, confirmed by forward lookup.
    verified_operators: SmallVec<[OperatorId; 4]>,
    /// Result for all other operators: a mismatch, or unknown if a lookup failed.
    default_result: DnsResult,
}

impl AddressOwners {
    fn result_for(&self, operator: OperatorId) -> DnsResult {
        match self.verified_operators.contains(&operator) {
            true => DnsResult::Verified,
            false => self.default_result,
        }
    }

    fn unknown() -> Self {
        Self { verified_operators: SmallVec::new(), default_result: DnsResult::Unknown }
    }
}

impl DnsVerifier {
    pub(super) fn new(patterns: Vec<(DnsPattern, OperatorId)>) -> Self {
        Self { patterns, cache: DnsCache::default(), queue: LookupQueue::default() }
    }

    /// Returns the cached result for the claim. If there is none, or it is due for another lookup, queues the address.
    pub(super) fn lookup(&self, claimed: OperatorId, address: IpAddr, now: Timestamp) -> DnsResult {
        let cached = self.cache.get(address, claimed, now);
        match cached {
            None => self.queue.push(address, claimed),
            Some((DnsResult::Verified, true)) => self.queue.push_front(address, claimed),
            Some((_, true)) => self.queue.push(address, claimed),
            Some((_, false)) => {}
        }
        cached.map_or(DnsResult::Unknown, |(result, _)| result)
    }

    /// Returns the number of addresses queued or being looked up.
    pub fn pending_count(&self) -> usize {
        self.queue.len()
    }

    /// Looks up queued addresses while it is polled, [`CONCURRENT_LOOKUPS`] at a time. `now` is the clock of
    /// [`Self::lookup`]; `on_result` receives the result of each lookup.
    pub async fn run<N, T>(self: Arc<Self>, dns: Resolver, now: N, on_result: T)
    where
        N: Fn() -> Timestamp + Clone + Send + Sync + 'static,
        T: Fn(OperatorId, DnsResult) + Clone + Send + Sync + 'static,
    {
        let dns = Arc::new(dns);
        let mut tasks = JoinSet::new();
        for _ in 0..CONCURRENT_LOOKUPS {
            tasks.spawn(Arc::clone(&self).run_one(Arc::clone(&dns), now.clone(), on_result.clone()));
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn run_one(
        self: Arc<Self>,
        dns: Arc<Resolver>,
        now: impl Fn() -> Timestamp,
        on_result: impl Fn(OperatorId, DnsResult),
    ) {
        loop {
            let (address, claimed) = self.queue.next().await;
            let (owners, ttl) = dns.verify(address, &self.patterns).await;
            let result = owners.result_for(claimed);
            self.cache.insert(address, owners, ttl, now());
            self.queue.finish(address);
            on_result(claimed, result);
        }
    }
}

/// Concurrent lookups. With a name server that takes a second for each, this is about a thousand lookups a minute.
const CONCURRENT_LOOKUPS: usize = 16;

/// Lifetime of a result in the cache, before the bounds apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CacheTtl {
    /// TTL of the records.
    Record(Duration),
    /// Short lifetime: the lookup failed and may succeed next time.
    Short,
}
