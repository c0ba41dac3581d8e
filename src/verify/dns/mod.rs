//! Whose crawler an address is by its names: those that it says it has, if they lead back to it.
//!
//! A request asks what is known already and goes on. What is not known goes into a line, once an address; a few tasks
//! work it off and remember what they found. A flood of made-up crawlers fills the line and the memory up to their
//! bounds and no further: whoever does not fit stays unproven and may ask again.

mod cache;
#[cfg(test)]
#[path = "../../../tests/integration/support/name_server.rs"]
mod name_server;
mod queue;
mod resolver;
#[cfg(test)]
mod tests;

use crate::policy::dns_pattern::DnsPattern;
use crate::policy::{OperatorId, Timestamp};
use cache::DnsCache;
use queue::LookupQueue;
use smallvec::SmallVec;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

pub use resolver::{Resolver, ResolverError};

/// What DNS has said of addresses, and what it is to be asked next.
#[derive(Debug)]
pub struct DnsVerifier {
    patterns: Vec<(DnsPattern, OperatorId)>,
    memory: DnsCache,
    line: LookupQueue,
}

/// What the names of an address say about the claim to be of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsResult {
    /// It has a name of that operator, and the name has it.
    Verified,
    /// It has no name of that operator.
    Mismatch,
    /// Nobody has asked yet, or nobody could answer.
    Unknown,
}

/// What was found out about one address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AddressOwners {
    /// Whose names it has, both ways.
    proven: SmallVec<[OperatorId; 4]>,
    /// What that says about all others: foreign, unless an answer is missing.
    others: DnsResult,
}

impl AddressOwners {
    fn about(&self, operator: OperatorId) -> DnsResult {
        match self.proven.contains(&operator) {
            true => DnsResult::Verified,
            false => self.others,
        }
    }

    fn unknown() -> Self {
        Self { proven: SmallVec::new(), others: DnsResult::Unknown }
    }
}

impl DnsVerifier {
    pub(super) fn new(patterns: Vec<(DnsPattern, OperatorId)>) -> Self {
        Self { patterns, memory: DnsCache::default(), line: LookupQueue::default() }
    }

    /// What is known of the claim by now. Where that is nothing, or soon will be, the address enters the line.
    pub(super) fn lookup(&self, claimed: OperatorId, address: IpAddr, now: Timestamp) -> DnsResult {
        let known = self.memory.get(address, claimed, now);
        match known {
            None => self.line.push(address, claimed),
            Some((DnsResult::Verified, true)) => self.line.push_front(address, claimed),
            Some((_, true)) => self.line.push(address, claimed),
            Some((_, false)) => {}
        }
        known.map_or(DnsResult::Unknown, |(said, _)| said)
    }

    /// How many addresses wait to be asked about, or are being asked about.
    pub fn waiting(&self) -> usize {
        self.line.len()
    }

    /// Works the line off for as long as it is polled, `CONCURRENT_LOOKUPS` at a time. `now` is on the scale of those who ask;
    /// `told` hears the outcome of every question.
    pub async fn run<N, T>(self: Arc<Self>, dns: Resolver, now: N, told: T)
    where
        N: Fn() -> Timestamp + Clone + Send + Sync + 'static,
        T: Fn(OperatorId, DnsResult) + Clone + Send + Sync + 'static,
    {
        let dns = Arc::new(dns);
        let mut tasks = JoinSet::new();
        for _ in 0..CONCURRENT_LOOKUPS {
            tasks.spawn(Arc::clone(&self).run_one(Arc::clone(&dns), now.clone(), told.clone()));
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn run_one(
        self: Arc<Self>,
        dns: Arc<Resolver>,
        now: impl Fn() -> Timestamp,
        told: impl Fn(OperatorId, DnsResult),
    ) {
        loop {
            let (address, claimed) = self.line.next().await;
            let (finding, lasts) = dns.verify(address, &self.patterns).await;
            let said = finding.about(claimed);
            self.memory.insert(address, finding, lasts, now());
            self.line.finish(address);
            told(claimed, said);
        }
    }
}

/// Look-ups under way at one time: a name server that takes a second for each still gets through a thousand a minute.
const CONCURRENT_LOOKUPS: usize = 16;

/// How long what was found is believed, in the bounds that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CacheTtl {
    /// As long as its records say.
    Record(Duration),
    /// Not long: a name server that failed may answer next time.
    Short,
}
