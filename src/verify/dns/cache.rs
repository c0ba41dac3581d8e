//! What was found out about addresses, until it is too old.

use super::{AddressOwners, CacheTtl, DnsResult};
use crate::policy::{OperatorId, Timestamp};
use dashmap::DashMap;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// A bounded memory: read by requests, a shard at a time, and written by those who ask.
#[derive(Debug, Default)]
pub(super) struct DnsCache {
    known: DashMap<IpAddr, CacheEntry, RandomState>,
    /// When each is forgotten: whoever goes first makes room for the next.
    until: Mutex<BTreeSet<(Timestamp, IpAddr)>>,
}

#[derive(Clone, Debug)]
struct CacheEntry {
    finding: AddressOwners,
    /// From then on it is to be asked again.
    due: Timestamp,
    /// From then on it says nothing any more.
    until: Timestamp,
}

impl DnsCache {
    /// What is known, and whether it is time to ask again.
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
        // A crawler that stays is asked about again before what is known of it has gone.
        let due = if finding.proven.is_empty() { lasts } else { lasts * 3 / 4 };
        Self { finding, due: now + due, until: now + lasts }
    }

    /// What was proven stays so while nobody can answer, until its own time is over.
    fn replacing(self, before: Option<Self>) -> Self {
        match before {
            Some(before) if self.finding == AddressOwners::unknown() && !before.finding.proven.is_empty() => {
                Self { due: self.due, ..before }
            }
            _ => self,
        }
    }
}

/// A proven address is believed for as long as its records say, but not asked about more than every hour; a day is enough
/// for an address to change hands.
const VERIFIED_TTL: (Duration, Duration) = (Duration::from_secs(3600), Duration::from_secs(24 * 3600));

/// One without a name may be given one, and is asked about more than once an hour by nobody.
const MISMATCH_TTL: (Duration, Duration) = (Duration::from_secs(600), Duration::from_secs(3600));

/// A name server that failed has this long to recover.
const FAILURE_TTL: Duration = Duration::from_secs(60);

/// The most addresses remembered, at about 150 bytes each: 10 MiB. The made-up ones are forgotten first, because what is
/// proven lasts longer.
pub(super) const MAX_ENTRIES: usize = 65_536;
