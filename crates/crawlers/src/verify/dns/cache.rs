//! Cache of DNS results by address, with expiry.

use super::{AddressOwners, CacheTtl, DnsResult};
use dashmap::DashMap;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;
use tidegate_policy::{OperatorId, Timestamp};

/// A bounded cache: requests read one shard at a time, and lookup tasks write.
#[derive(Debug, Default)]
pub(super) struct DnsCache {
    entries: DashMap<IpAddr, CacheEntry, RandomState>,
    /// Expiry of each entry. When the cache is full, the entry that expires first is evicted.
    expiries: Mutex<BTreeSet<(Timestamp, IpAddr)>>,
}

#[derive(Clone, Debug)]
struct CacheEntry {
    owners: AddressOwners,
    /// Time from which the address is looked up again.
    refresh_at: Timestamp,
    /// Time at which the entry expires.
    expires_at: Timestamp,
}

impl DnsCache {
    /// Returns the result for `operator`, and whether the address is due for another lookup.
    pub(super) fn get(&self, address: IpAddr, operator: OperatorId, now: Timestamp) -> Option<(DnsResult, bool)> {
        let entry = self.entries.get(&address)?;
        (now < entry.expires_at).then(|| (entry.owners.result_for(operator), now >= entry.refresh_at))
    }

    pub(super) fn insert(&self, address: IpAddr, owners: AddressOwners, ttl: CacheTtl, now: Timestamp) {
        let mut expiries = self.expiries.lock();
        let previous = self.entries.get(&address).map(|entry| entry.clone());
        if let Some(previous) = &previous {
            expiries.remove(&(previous.expires_at, address));
        }
        let entry = CacheEntry::new(owners, ttl, now).replacing(previous.filter(|previous| now < previous.expires_at));
        if expiries.len() >= MAX_ENTRIES
            && let Some((_, evicted)) = expiries.pop_first()
        {
            self.entries.remove(&evicted);
        }
        expiries.insert((entry.expires_at, address));
        self.entries.insert(address, entry);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

impl CacheEntry {
    fn new(owners: AddressOwners, ttl: CacheTtl, now: Timestamp) -> Self {
        let ttl = match ttl {
            CacheTtl::Short => FAILURE_TTL,
            CacheTtl::Record(record_ttl) if owners.verified_operators.is_empty() => {
                record_ttl.clamp(MISMATCH_TTL.0, MISMATCH_TTL.1)
            }
            CacheTtl::Record(record_ttl) => record_ttl.clamp(VERIFIED_TTL.0, VERIFIED_TTL.1),
        };
        // The address of an active crawler is looked up again before its entry expires.
        let refresh_after = if owners.verified_operators.is_empty() { ttl } else { ttl * 3 / 4 };
        Self { owners, refresh_at: now + refresh_after, expires_at: now + ttl }
    }

    /// Merges a failed lookup into the entry before: verified operators stay until their own time is over.
    fn replacing(self, previous: Option<Self>) -> Self {
        match previous {
            Some(previous)
                if self.owners == AddressOwners::unknown() && !previous.owners.verified_operators.is_empty() =>
            {
                Self { refresh_at: self.refresh_at, ..previous }
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
