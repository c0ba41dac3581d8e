//! Attribution of overload: to one client, to a network, to a route, or to the whole scope.
//!
//! A client can draw overload responses of its own, such as 429 for its logins, and must not close the scope to others.
//! So an overload first counts against the client that drew it. Only overload of several clients in several networks
//! counts against the scope, or against the route if all of it is on one route and other routes succeed.

use crate::Timestamp;
use crate::identity::{ClientKey, KeyOwner};
use crate::ids::RouteId;
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

/// Client, network and route of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSource {
    /// Client that sent the request.
    pub client: ClientKey,
    /// Network of the client's address.
    pub network: u64,
    /// Route of the request.
    pub route: RouteId,
}

/// Part of a scope's requests that backs off on its own; a larger part is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackoffSubject {
    /// Requests of one client.
    Client(ClientKey),
    /// Requests of all clients in one network.
    Network(u64),
    /// Requests of one route.
    Route(RouteId),
}

/// What an overload response is evidence of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribution {
    /// Part of the scope that backs off; `None` for the whole scope.
    pub subject: Option<BackoffSubject>,
    /// True if no other overload of the network is remembered. Controllers learn from the first one only, so that a
    /// single client cannot drive them.
    pub is_first_of_network: bool,
}

/// Recent overload of one scope, at most one response of each client.
#[derive(Clone, Debug, Default)]
pub struct OverloadEvidence {
    /// Oldest first.
    overloads: VecDeque<Overload>,
    /// Latest success on each of two routes.
    successes: [Option<(RouteId, Timestamp)>; 2],
    /// Time of the last overload that counted against the scope.
    scope_paused_at: Timestamp,
}

/// Latest overload response of a client.
#[derive(Clone, Copy, Debug)]
struct Overload {
    at: Timestamp,
    source: RequestSource,
    /// Largest part of the scope that has backed off because of it.
    used_for: UsedFor,
}

/// Largest part of a scope that has backed off because of an overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum UsedFor {
    Client,
    Network,
    Scope,
}

/// Maximum number of clients whose overload is remembered.
const MAX_CLIENTS: usize = 64;

impl RequestSource {
    /// Creates the source of a request by its bucket key and the key of its address. The clients of a class that share
    /// a key are told apart by their addresses.
    pub fn new(key: ClientKey, address: ClientKey, route: RouteId) -> Self {
        let client = if key.owner() == KeyOwner::Class { address } else { key };
        Self { client, network: address.network(), route }
    }

    /// Returns the parts of a scope that the request belongs to.
    pub fn subjects(&self) -> [BackoffSubject; 3] {
        let Self { client, network, route } = *self;
        [BackoffSubject::Client(client), BackoffSubject::Network(network), BackoffSubject::Route(route)]
    }
}

impl OverloadEvidence {
    /// Records a success, which shows that its route is not overloaded.
    pub fn record_success(&mut self, route: RouteId, now: Timestamp) {
        let [latest, other] = &mut self.successes;
        if latest.is_some_and(|(known, _)| known != route) {
            *other = *latest;
        }
        *latest = Some((route, now));
    }

    /// Records an overload, and attributes it. Overload older than `window` is forgotten. `scope_backs_off` is true
    /// while the scope recovers from a backoff: then overload of a network without any confirms that the scope, or the
    /// route, is still overloaded.
    pub fn record_overload(
        &mut self,
        source: RequestSource,
        min_clients: NonZeroU32,
        window: Duration,
        scope_backs_off: bool,
        now: Timestamp,
    ) -> Attribution {
        self.overloads.retain(|overload| now.saturating_duration_since(overload.at) < window);
        let is_first_of_network = !self.overloads.iter().any(|overload| overload.source.network == source.network);
        // A client has one say: its latest overload, in place of the one before.
        self.overloads.retain(|overload| overload.source.client != source.client);
        if self.overloads.len() >= MAX_CLIENTS {
            self.overloads.pop_front();
        }
        self.overloads.push_back(Overload { at: now, source, used_for: UsedFor::Client });

        let is_enough = |count: usize| count >= min_clients.get() as usize;
        let unused = |level: UsedFor| self.overloads.iter().filter(move |overload| overload.used_for < level);
        let subject = if min_clients.get() == 1 {
            None
        } else if scope_backs_off && is_first_of_network {
            self.only_overloaded_route(self.scope_paused_at, window, now).map(BackoffSubject::Route)
        } else if is_enough(distinct(unused(UsedFor::Scope), |source| source.client))
            && is_enough(distinct(unused(UsedFor::Scope), |source| source.network))
        {
            let first = unused(UsedFor::Scope).next().map_or(now, |overload| overload.at);
            let since = if scope_backs_off { self.scope_paused_at } else { first };
            self.only_overloaded_route(since, window, now).map(BackoffSubject::Route)
        } else if is_enough(unused(UsedFor::Network).filter(|other| other.source.network == source.network).count()) {
            Some(BackoffSubject::Network(source.network))
        } else {
            Some(BackoffSubject::Client(source.client))
        };
        for overload in &mut self.overloads {
            match subject {
                Some(BackoffSubject::Client(_)) => {}
                Some(BackoffSubject::Network(network)) if overload.source.network == network => {
                    overload.used_for = overload.used_for.max(UsedFor::Network);
                }
                Some(BackoffSubject::Network(_)) => {}
                Some(BackoffSubject::Route(_)) | None => overload.used_for = UsedFor::Scope,
            }
        }
        if subject.is_none() {
            self.scope_paused_at = now;
        }
        Attribution { subject, is_first_of_network }
    }

    /// Returns the route of all unused overload, if another route succeeded since a time; or if no other route was
    /// overloaded when the scope paused, and another one is in use: a scope that pauses again needs overload of both.
    fn only_overloaded_route(&self, since: Timestamp, window: Duration, now: Timestamp) -> Option<RouteId> {
        let mut unused = self.overloads.iter().filter(|overload| overload.used_for < UsedFor::Scope);
        let route = unused.next()?.source.route;
        let is_only = unused.all(|overload| overload.source.route == route);
        let mut has_paused_for_it = self.overloads.iter().any(|overload| overload.used_for == UsedFor::Scope);
        has_paused_for_it &= self.overloads.iter().all(|overload| overload.source.route == route);
        let since = match has_paused_for_it {
            true => since.min(now - window),
            false => since,
        };
        let mut successes = self.successes.iter().flatten();
        (is_only && successes.any(|&(other, at)| other != route && at >= since)).then_some(route)
    }
}

/// Counts the distinct values of a property.
fn distinct<'a, T: PartialEq>(
    overloads: impl Iterator<Item = &'a Overload>,
    property: impl Fn(&RequestSource) -> T,
) -> usize {
    let mut values: Vec<T> = Vec::with_capacity(MAX_CLIENTS);
    for value in overloads.map(|overload| property(&overload.source)) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use BackoffSubject::{Client, Network, Route};
    use proptest::prelude::*;

    const WINDOW: Duration = Duration::from_secs(60);
    const LOGIN: RouteId = RouteId(0);
    const SEARCH: RouteId = RouteId(1);

    fn key(client: u64) -> ClientKey {
        ClientKey::from_u64(client)
    }

    fn at(second: u64) -> Timestamp {
        Timestamp::from_seconds(1000 + second)
    }

    /// Overload of one scope in which three clients are evidence.
    #[derive(Default)]
    struct Scope {
        evidence: OverloadEvidence,
        backs_off: bool,
    }

    impl Scope {
        fn overload(&mut self, client: u64, network: u64, route: RouteId, second: u64) -> Option<BackoffSubject> {
            let source = RequestSource { client: key(client), network, route };
            let min_clients = NonZeroU32::new(3).expect("three");
            self.evidence.record_overload(source, min_clients, WINDOW, self.backs_off, at(second)).subject
        }
    }

    #[test]
    fn overload_of_three_clients_in_three_networks_counts_against_the_scope() {
        let mut scope = Scope::default();
        assert_eq!(scope.overload(1, 1, LOGIN, 0), Some(Client(key(1))));
        assert_eq!(scope.overload(1, 1, SEARCH, 1), Some(Client(key(1))), "a client has one say");
        assert_eq!(scope.overload(2, 2, LOGIN, 2), Some(Client(key(2))));
        assert_eq!(scope.overload(3, 3, SEARCH, 3), None);
        assert_eq!(scope.overload(4, 4, SEARCH, 4), Some(Client(key(4))), "overload is used once");
        assert_eq!(scope.overload(1, 1, SEARCH, 5), Some(Client(key(1))));
        assert_eq!(scope.overload(2, 2, SEARCH, 6), None, "overload after the backoff is new evidence");
    }

    #[test]
    fn overload_of_one_network_counts_against_the_network() {
        let mut scope = Scope::default();
        assert_eq!(scope.overload(1, 7, LOGIN, 0), Some(Client(key(1))));
        assert_eq!(scope.overload(2, 7, LOGIN, 0), Some(Client(key(2))));
        assert_eq!(scope.overload(3, 7, LOGIN, 0), Some(Network(7)));
        assert_eq!(scope.overload(4, 7, LOGIN, 0), Some(Client(key(4))));
        assert_eq!(scope.overload(5, 8, LOGIN, 0), Some(Client(key(5))), "these are two networks");
        assert_eq!(scope.overload(6, 9, LOGIN, 0), None);
    }

    #[test]
    fn overload_of_two_networks_counts_against_each_on_its_own() {
        let mut scope = Scope::default();
        for (client, network) in [(1, 7), (2, 7), (4, 8), (5, 8)] {
            assert_eq!(scope.overload(client, network, LOGIN, 0), Some(Client(key(client))));
        }
        assert_eq!(scope.overload(3, 7, LOGIN, 0), Some(Network(7)));
        assert_eq!(scope.overload(6, 8, LOGIN, 0), Some(Network(8)));
    }

    /// Lets three clients of three networks draw overload. Returns what the third counts against.
    fn overload_of_three(scope: &mut Scope, first: u64, route: RouteId, second: u64) -> Option<BackoffSubject> {
        let subjects = [0, 1, 2].map(|more| scope.overload(first + more, first + more, route, second));
        assert_eq!(subjects[..2], [first, first + 1].map(|client| Some(Client(key(client)))));
        subjects[2]
    }

    #[test]
    fn overload_that_has_paused_the_scope_says_nothing_of_another_route() {
        let mut scope = Scope::default();
        assert_eq!(overload_of_three(&mut scope, 1, LOGIN, 0), None);
        scope.evidence.record_success(LOGIN, at(20));
        assert_eq!(overload_of_three(&mut scope, 4, SEARCH, 10), Some(Route(SEARCH)));
    }

    #[test]
    fn scope_pauses_again_only_for_overload_of_another_route() {
        for (second_route, expected) in [(LOGIN, Some(Route(LOGIN))), (SEARCH, None)] {
            let mut scope = Scope::default();
            scope.evidence.record_success(SEARCH, at(0));
            assert_eq!(overload_of_three(&mut scope, 1, LOGIN, 1), None, "the success was before");
            assert_eq!(overload_of_three(&mut scope, 4, second_route, 10), expected, "{second_route:?}");
        }
    }

    #[test]
    fn one_client_with_many_addresses_is_one_client() {
        let mut scope = Scope::default();
        for network in 1..20 {
            assert_eq!(scope.overload(1, network, LOGIN, 0), Some(Client(key(1))));
        }
    }

    #[test]
    fn overload_of_one_route_counts_against_the_route_while_others_succeed() {
        let overload_of_login = |succeeding: Option<RouteId>| {
            let mut scope = Scope::default();
            scope.evidence.record_success(SEARCH, at(0));
            let _ = scope.overload(1, 1, LOGIN, 1);
            if let Some(route) = succeeding {
                scope.evidence.record_success(route, at(2));
                scope.evidence.record_success(LOGIN, at(2));
            }
            let _ = scope.overload(2, 2, LOGIN, 3);
            scope.overload(3, 3, LOGIN, 4)
        };
        assert_eq!(overload_of_login(Some(SEARCH)), Some(Route(LOGIN)));
        assert_eq!(overload_of_login(Some(LOGIN)), None, "no other route is known to succeed");
        assert_eq!(overload_of_login(None), None, "the success was before the overload");
    }

    #[test]
    fn overload_is_forgotten_after_the_window() {
        let mut scope = Scope::default();
        assert_eq!(scope.overload(1, 1, LOGIN, 0), Some(Client(key(1))));
        assert_eq!(scope.overload(2, 2, SEARCH, 1), Some(Client(key(2))));
        assert_eq!(scope.overload(3, 3, LOGIN, 60), Some(Client(key(3))));
        assert_eq!(scope.overload(4, 4, LOGIN, 60), None);
    }

    #[test]
    fn network_without_overload_confirms_a_backoff_of_the_scope() {
        let mut scope = Scope { backs_off: true, ..Scope::default() };
        assert_eq!(scope.overload(1, 1, LOGIN, 0), None);
        assert_eq!(scope.overload(1, 1, LOGIN, 1), Some(Client(key(1))), "its overload may be its own");
        assert_eq!(scope.overload(2, 1, LOGIN, 1), Some(Client(key(2))));
        assert_eq!(scope.overload(2, 2, LOGIN, 1), None);
    }

    #[test]
    fn any_overload_counts_against_the_scope_if_one_client_is_enough() {
        let mut evidence = OverloadEvidence::default();
        evidence.record_success(SEARCH, at(0));
        for second in 0..3 {
            let source = RequestSource { client: key(1), network: 1, route: LOGIN };
            let attribution = evidence.record_overload(source, NonZeroU32::MIN, WINDOW, false, at(second));
            evidence.record_success(SEARCH, at(second));
            assert_eq!((attribution.subject, attribution.is_first_of_network), (None, second == 0));
        }
    }

    #[test]
    fn clients_that_share_the_key_of_a_class_are_told_apart() {
        let source = RequestSource::new(ClientKey::of_class("bots"), key(0xc000_0201), LOGIN);
        assert_eq!(source, RequestSource { client: key(0xc000_0201), network: 0xc0_0002, route: LOGIN });
        let source = RequestSource::new(ClientKey::from_credential(5), key(0xc000_0201), LOGIN);
        assert_eq!((source.client, source.network), (ClientKey::from_credential(5), 0xc0_0002));
    }

    proptest! {
        #[test]
        fn two_networks_never_count_against_more_than_themselves(
            overloads in proptest::collection::vec((0u64..40, 0u64..2, 0u32..4, 0u64..5), 0..200),
        ) {
            let mut scope = Scope::default();
            let mut second = 0;
            for (client, network, route, pause) in overloads {
                second += pause;
                let subject = scope.overload(client, network, RouteId(route), second);
                prop_assert!(matches!(subject, Some(Client(_) | Network(_))), "{subject:?}");
            }
            prop_assert!(scope.evidence.overloads.len() <= MAX_CLIENTS);
        }
    }
}
