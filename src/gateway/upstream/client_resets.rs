//! Streams of HTTP/2 that fail because of what one client does: it leaves, or its requests are reset. Some origins count
//! them against the connection, and so against all who share it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;
use tidegate_policy::Timestamp;
use tidegate_policy::identity::ClientKey;

/// Resets in [`INTERVAL`] above which a client shares no connection. A browser that leaves a page resets a few at once.
const MAX_RESETS: u32 = 10;

/// Time without a reset after which those of a client are forgotten.
const INTERVAL: Duration = Duration::from_secs(60);

/// Maximum clients that are remembered. Those of others do not count while so many have resets.
const MAX_CLIENTS: usize = 4096;

/// Resets of one worker by client.
pub(super) struct ClientResets {
    /// Monotonic time.
    clock: Rc<Cell<Timestamp>>,
    clients: RefCell<HashMap<ClientKey, Resets>>,
}

/// Resets of a client.
struct Resets {
    count: u32,
    since: Timestamp,
    last: Timestamp,
}

impl ClientResets {
    pub(super) fn new(clock: Rc<Cell<Timestamp>>) -> Rc<Self> {
        Rc::new(Self { clock, clients: RefCell::default() })
    }

    /// Counts a reset.
    pub(super) fn record(&self, client: ClientKey) {
        let now = self.clock.get();
        let mut clients = self.clients.borrow_mut();
        if clients.len() >= MAX_CLIENTS && !clients.contains_key(&client) {
            clients.retain(|_, resets| !is_past(resets.last, now));
            if clients.len() >= MAX_CLIENTS {
                return;
            }
        }
        let resets = clients.entry(client).or_insert(Resets { count: 0, since: now, last: now });
        let is_frequent = resets.count > MAX_RESETS && !is_past(resets.last, now);
        if is_past(resets.since, now) && !is_frequent {
            (resets.count, resets.since) = (0, now);
        }
        resets.count = resets.count.saturating_add(1);
        resets.last = now;
    }

    /// Returns true if the client shares no connection, until it has caused no reset for [`INTERVAL`].
    pub(super) fn are_frequent(&self, client: ClientKey) -> bool {
        let clients = self.clients.borrow();
        let resets = if clients.is_empty() { None } else { clients.get(&client) };
        resets.is_some_and(|resets| resets.count > MAX_RESETS && !is_past(resets.last, self.clock.get()))
    }
}

fn is_past(time: Timestamp, now: Timestamp) -> bool {
    now.saturating_duration_since(time) >= INTERVAL
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(clock: &Cell<Timestamp>, second: u64) {
        clock.set(Timestamp::from_seconds(1000 + second));
    }

    #[test]
    fn client_with_many_resets_shares_no_connection_until_it_stops() {
        let clock = Rc::new(Cell::new(Timestamp::default()));
        let resets = ClientResets::new(Rc::clone(&clock));
        let [ann, bob] = [1, 2].map(ClientKey::from_u64);
        at(&clock, 0);
        (0..MAX_RESETS).for_each(|_| resets.record(ann));
        assert!(!resets.are_frequent(ann));
        resets.record(ann);
        assert!(resets.are_frequent(ann) && !resets.are_frequent(bob));
        at(&clock, 59);
        resets.record(ann);
        at(&clock, 118);
        assert!(resets.are_frequent(ann), "the last reset was less than a minute ago");
        at(&clock, 119);
        assert!(!resets.are_frequent(ann));
        resets.record(ann);
        assert!(!resets.are_frequent(ann), "earlier ones are forgotten");
    }

    #[test]
    fn few_resets_a_minute_never_add_up() {
        let clock = Rc::new(Cell::new(Timestamp::default()));
        let resets = ClientResets::new(Rc::clone(&clock));
        let ann = ClientKey::from_u64(1);
        for second in (0..3600).step_by(7) {
            at(&clock, second);
            resets.record(ann);
            assert!(!resets.are_frequent(ann), "after {second} seconds");
        }
    }

    #[test]
    fn number_of_clients_is_bounded() {
        let clock = Rc::new(Cell::new(Timestamp::default()));
        let resets = ClientResets::new(Rc::clone(&clock));
        at(&clock, 0);
        (0..2 * MAX_CLIENTS as u64).for_each(|client| resets.record(ClientKey::from_u64(client << 8)));
        assert_eq!(resets.clients.borrow().len(), MAX_CLIENTS);
        at(&clock, 60);
        resets.record(ClientKey::from_u64(u64::MAX));
        assert_eq!(resets.clients.borrow().len(), 1, "those of the past make room");
    }
}
