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
        let known = self.known.get(&address)?;
        (now < known.until).then(|| (known.finding.about(operator), now >= known.due))
    }

    pub(super) fn insert(&self, address: IpAddr, finding: AddressOwners, lasts: CacheTtl, now: Timestamp) {
        let mut until = self.until.lock();
        let before = self.known.get(&address).map(|known| known.clone());
        if let Some(before) = &before {
            until.remove(&(before.until, address));
        }
        let known = CacheEntry::new(finding, lasts, now).replacing(before.filter(|before| now < before.until));
        if until.len() >= MAX_ENTRIES
            && let Some((_, forgotten)) = until.pop_first()
        {
            self.known.remove(&forgotten);
        }
        until.insert((known.until, address));
        self.known.insert(address, known);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}

impl CacheEntry {
    fn new(finding: AddressOwners, lasts: CacheTtl, now: Timestamp) -> Self {
        let lasts = match lasts {
            CacheTtl::Short => FAILURE_TTL,
            CacheTtl::Record(told) if finding.proven.is_empty() => told.clamp(MISMATCH_TTL.0, MISMATCH_TTL.1),
            CacheTtl::Record(told) => told.clamp(VERIFIED_TTL.0, VERIFIED_TTL.1),
        };
        // The address of an active crawler is looked up again before its entry expires.
        let due = if finding.proven.is_empty() { lasts } else { lasts * 3 / 4 };
        Self { finding, due: now + due, until: now + lasts }
    }

    /// Merges a failed lookup into the entry before: verified operators stay until their own time is over.
    fn replacing(self, before: Option<Self>) -> Self {
        match before {
            Some(before) if self.finding == AddressOwners::unknown() && !before.finding.proven.is_empty() => {
                Self { due: self.due, ..before }
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
