//! Requests for paths whose cost is unknown, while a quota is nearly spent.
//!
//! Such a request may exceed the limit, and nothing is reserved for it. Of each shape of a path, only one is in flight, and
//! few of all; others wait for its response, which says what the shape costs. A client and a network have a share of the
//! places. A request whose response is late leaves its place to others, but stays the one of its shape and counts in the
//! shares, so that slow pages of one client cause no refusal of others.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::Timestamp;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::path_shape::PathShape;
use tokio::sync::Notify;

/// Most requests at once, without those whose response is late.
const MAX_IN_FLIGHT: usize = 8;
/// Most requests of one client at once.
const MAX_OF_CLIENT: usize = 2;
/// Most requests of the clients of one network at once: it leaves half of the places to others.
const MAX_OF_NETWORK: usize = 4;
/// Time after which a response is late. A waiting request waits longer, so late responses alone refuse none.
const LATE_AFTER: Duration = Duration::from_secs(1);

/// Requests in flight by shape.
#[derive(Default)]
pub(in crate::gateway) struct UnknownPaths {
    in_flight: Mutex<BTreeMap<PathShape, UnknownPathRequest>>,
    /// Notified when one has its response, or ends without.
    pub(in crate::gateway) ended: Notify,
}

#[derive(Clone, Copy)]
struct UnknownPathRequest {
    client: ClientKey,
    late_at: Timestamp,
}

/// A request for a path whose cost is unknown, until dropped.
pub(in crate::gateway) struct UnknownPathGuard {
    paths: Arc<UnknownPaths>,
    shape: PathShape,
}

/// State of a request, if the cost of its path is unknown while a quota is nearly spent.
#[derive(Default)]
pub(in crate::gateway) enum UnknownPath {
    /// The cost is known, or enough units are left, or the response has said what the path costs.
    #[default]
    None,
    /// The cost was unknown at the decision. The request looks again once its body is received.
    AwaitsBody,
    /// The request is the one of its shape in flight.
    InFlight(#[expect(dead_code, reason = "held until dropped")] Box<UnknownPathGuard>),
}

impl UnknownPaths {
    /// Lets a request of `client` pass. Returns an error while another one of its shape is in flight, or too many of its
    /// client, of its network or of all are: the time after which a place is free although none has ended, if any.
    pub(in crate::gateway) fn enter(
        self: &Arc<Self>,
        shape: PathShape,
        client: ClientKey,
        now: Timestamp,
    ) -> Result<UnknownPathGuard, Option<Duration>> {
        let mut in_flight = self.in_flight.lock();
        let count = |counts: &dyn Fn(&UnknownPathRequest) -> bool| in_flight.values().filter(|it| counts(it)).count();
        let may_enter_its_share = !in_flight.contains_key(&shape)
            && count(&|other| other.client == client) < MAX_OF_CLIENT
            && count(&|other| other.client.network() == client.network()) < MAX_OF_NETWORK;
        if !may_enter_its_share {
            return Err(None);
        }
        if count(&|other| other.late_at > now) >= MAX_IN_FLIGHT {
            let next_late = in_flight.values().map(|other| other.late_at).filter(|late_at| *late_at > now).min();
            return Err(next_late.map(|late_at| late_at.saturating_duration_since(now)));
        }
        in_flight.insert(shape, UnknownPathRequest { client, late_at: now + LATE_AFTER });
        Ok(UnknownPathGuard { paths: Arc::clone(self), shape })
    }
}

impl Drop for UnknownPathGuard {
    fn drop(&mut self) {
        self.paths.in_flight.lock().remove(&self.shape);
        self.paths.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_policy::identity::ProxyTrust;

    const NOW: Timestamp = Timestamp(0);

    struct Places(Arc<UnknownPaths>);

    impl Places {
        fn enter(&self, client: &str, path: &str, now: Timestamp) -> Result<UnknownPathGuard, Option<Duration>> {
            let trust = ProxyTrust { ipv6_prefix: 64, ..ProxyTrust::default() };
            let client = trust.key(client.parse().expect("an address"));
            self.0.enter(PathShape::new(path), client, now)
        }

        /// Enters with requests of many paths, until one is refused.
        fn fill(&self, client: impl Fn(usize) -> String) -> Vec<UnknownPathGuard> {
            let names = ('a'..='z').enumerate();
            names.map_while(|(number, name)| self.enter(&client(number), &format!("/{name}"), NOW).ok()).collect()
        }
    }

    fn places() -> Places {
        Places(Arc::default())
    }

    #[test]
    fn one_request_of_a_shape_and_few_in_all_are_in_flight() {
        let places = places();
        let first = places.enter("192.0.2.1", "/search", NOW);
        assert!(first.is_ok() && places.enter("198.51.100.1", "/Search/", NOW).is_err());
        let others = places.fill(|number| format!("198.51.{number}.1"));
        assert_eq!(others.len(), MAX_IN_FLIGHT - 1);
        drop(first);
        assert!(places.enter("203.0.113.1", "/search", NOW).is_ok());
    }

    #[test]
    fn client_and_network_have_a_share_of_the_unknown_paths() {
        let places = places();
        let of_client = places.fill(|_| "192.0.2.1".to_owned());
        assert_eq!(of_client.len(), MAX_OF_CLIENT);
        drop(of_client);
        for in_network in
            [|number: usize| format!("192.0.2.{number}"), |number: usize| format!("2001:db8:7:{number:x}::1")]
        {
            let of_network = places.fill(in_network);
            assert_eq!(of_network.len(), MAX_OF_NETWORK);
            assert!(places.enter("198.51.100.1", "/imprint", NOW).is_ok(), "another network");
        }
    }

    #[test]
    fn late_requests_leave_their_places_to_others_and_keep_their_shapes() {
        let places = places();
        let late = places.fill(|number| format!("198.51.{number}.1"));
        assert_eq!(late.len(), MAX_IN_FLIGHT);
        let almost = NOW + LATE_AFTER.saturating_sub(Duration::from_millis(1));
        let refused = places.enter("192.0.2.1", "/imprint", almost);
        assert_eq!(refused.err(), Some(Some(Duration::from_millis(1))), "says when a place is free");
        let now = NOW + LATE_AFTER;
        assert!(places.enter("192.0.2.1", "/imprint", now).is_ok());
        assert_eq!(places.enter("192.0.2.1", "/a", now).err(), Some(None), "still the one of its shape");
        let of_client = [places.enter("198.51.0.1", "/x", now), places.enter("198.51.0.1", "/y", now)];
        assert_eq!(of_client.map(|entered| entered.is_ok()), [true, false], "still counted in its client's share");
    }
}
