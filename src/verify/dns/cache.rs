//! Cache of DNS results by address, with expiry.

use super::{AddressOwners, CacheTtl, DnsResult};
use crate::policy::{OperatorId, Timestamp};
use dashmap::DashMap;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// A bounded cache: requests read one shard at a time, and lookup tasks write.
#[derive(Debug, Default)]
pub(super) struct DnsCache {
    known: DashMap<IpAddr, CacheEntry, RandomState>,
    /// Expiry of each entry. When the cache is full, the entry that expires first is evicted.
    until: Mutex<BTreeSet<(Timestamp, IpAddr)>>,
}

#[derive(Clone, Debug)]
struct CacheEntry {
    finding: AddressOwners,
    /// Time from which the address is looked up again.
    due: Timestamp,
    /// Time at which the entry expires.
    until: Timestamp,
}

impl DnsCache {
    /// Returns the result for `operator`, and whether the address is due for another lookup.
    pub(super) fn get(&self, address: IpAddr, operator: OperatorId, now: Timestamp) -> Option<(DnsResult, bool)> {
        let entry = self.known.get(&address)?;
        (now < entry.until).then(|| (entry.finding.about(operator), now >= entry.due))
    }

    pub(super) fn insert(&self, address: IpAddr, owners: AddressOwners, ttl: CacheTtl, now: Timestamp) {
        let mut expiries = self.until.lock();
        let previous = self.known.get(&address).map(|entry| entry.clone());
        if let Some(previous) = &previous {
            expiries.remove(&(previous.until, address));
        }
        let entry = CacheEntry::new(owners, ttl, now).replacing(previous.filter(|previous| now < previous.until));
        if expiries.len() >= MAX_ENTRIES
            && let Some((_, evicted)) = expiries.pop_first()
        {
            self.known.remove(&evicted);
        }
        expiries.insert((entry.until, address));
        self.known.insert(address, entry);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}

impl CacheEntry {
    fn new(owners: AddressOwners, ttl: CacheTtl, now: Timestamp) -> Self {
        let ttl = match ttl {
            CacheTtl::Short => FAILURE_TTL,
            CacheTtl::Record(record_ttl) if owners.proven.is_empty() => {
                record_ttl.clamp(MISMATCH_TTL.0, MISMATCH_TTL.1)
            }
            CacheTtl::Record(record_ttl) => record_ttl.clamp(VERIFIED_TTL.0, VERIFIED_TTL.1),
        };
        // The address of an active crawler is looked up again before its entry expires.
        let refresh_after = if owners.proven.is_empty() { ttl } else { ttl * 3 / 4 };
        Self { finding: owners, due: now + refresh_after, until: now + ttl }
    }

    /// Merges a failed lookup into the entry before: verified operators stay until their own time is over.
    fn replacing(self, previous: Option<Self>) -> Self {
        match previous {
            Some(previous) if self.finding == AddressOwners::unknown() && !previous.finding.proven.is_empty() => {
                Self { due: self.due, ..previous }
            }
            _ => self,
        }
    }
}

/// Minimum and maximum lifetime of a verified result. Within them the TTL of the records applies. An address may change
/// owners within a day.
const VERIFIED_TTL: (Duration, Duration) = (Duration::from_secs(3600), Duration::from_secs(24 * 3600));

/// Minimum and maximum lifetime of a mismatch: the address may receive a name, but is looked up at most once in the
/// minimum.
const MISMATCH_TTL: (Duration, Duration) = (Duration::from_secs(600), Duration::from_secs(3600));

/// Lifetime of a failed lookup, in which the name server may recover.
const FAILURE_TTL: Duration = Duration::from_secs(60);

/// Maximum number of entries, at about 150 bytes each: 10 MiB. Invented addresses are evicted first, because verified
/// results last longer.
pub(super) const MAX_ENTRIES: usize = 65_536;
