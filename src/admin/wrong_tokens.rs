//! Wrong tokens in the audit log: the first one of an address at once, further ones as a count.

use super::listener::Peer;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;
use tidegate_engine::clock::Clock;
use tidegate_policy::Timestamp;
use tracing::warn;

/// Addresses that sent wrong tokens within the last minute.
pub(super) struct WrongTokens {
    clock: Clock,
    bursts: Mutex<BTreeMap<String, Burst>>,
}

/// Wrong tokens of one address.
struct Burst {
    began_at: Timestamp,
    /// Number of tokens after the first one.
    further: u64,
}

impl WrongTokens {
    /// Returns a record without addresses.
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, bursts: Mutex::default() }
    }

    /// Records a wrong token of `peer`. Logs it unless the address sent another one within a minute.
    pub(super) fn record(&self, peer: Option<&Peer>) {
        let now = self.clock.monotonic_now();
        let mut bursts = self.bursts.lock();
        bursts.retain(|from, burst| {
            let is_recent = now < burst.began_at + INTERVAL;
            if !is_recent && burst.further > 0 {
                let count = burst.further;
                warn!(target: "audit", from, count, "{count} more wrong admin tokens from {from} within a minute");
            }
            is_recent
        });
        let from = peer.map_or("an unknown address".to_owned(), |peer| match peer {
            Peer::Address(address) => address.ip().to_string(),
            Peer::User(_) => peer.to_string(),
        });
        let has_place = bursts.len() < MAX_ADDRESSES || bursts.contains_key(&from);
        match bursts.entry(if has_place { from } else { "other addresses".to_owned() }) {
            Entry::Occupied(mut burst) => burst.get_mut().further += 1,
            Entry::Vacant(place) => {
                let from = place.key();
                warn!(target: "audit", from, "Wrong admin token from {from}");
                place.insert(Burst { began_at: now, further: 0 });
            }
        }
    }
}

/// Time in which an address is logged once.
const INTERVAL: Duration = Duration::from_secs(60);

/// More than the machines of a team.
const MAX_ADDRESSES: usize = 64;
