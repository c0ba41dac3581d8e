//! Clients, networks, paths and user agents that ask for the most units, in bounded memory.

use crate::heavy_hitters::{Demand, HeavyHitters};
use std::fmt;
use std::net::IpAddr;
use tidegate_policy::identity::{ClientKey, KeyOwner};
use tidegate_policy::network::IpPrefix;
use tidegate_policy::{ClientKind, Units};

/// Maximum length of a path or user agent, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// Demand by client, network, path and user agent.
#[derive(Clone, Debug)]
pub struct Spenders {
    clients: HeavyHitters<(SpendingClient, ClientKind)>,
    networks: HeavyHitters<IpPrefix>,
    paths: HeavyHitters<String>,
    user_agents: HeavyHitters<Vec<u8>>,
}

/// Client that demand is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpendingClient {
    /// Address.
    Address(IpAddr),
    /// Hash of the credential that is the key of its bucket: one customer, from whatever addresses.
    Credential(u64),
}

/// A decided request, as it counts for [`Spenders`].
#[derive(Clone, Copy, Debug)]
pub struct SpendingRequest<'a> {
    /// Address of the client; `None` if it is not known.
    pub client: Option<IpAddr>,
    /// Key of the client's bucket; `None` if it is not known.
    pub key: Option<ClientKey>,
    /// Kind of the client.
    pub kind: ClientKind,
    /// Path of the request.
    pub path: &'a str,
    /// User agent; empty if there was none.
    pub user_agent: &'a [u8],
    /// Expected cost in one quota, in units.
    pub cost: Units,
    /// Charged units of that quota.
    pub charged: Units,
    /// True if the request was refused.
    pub is_refused: bool,
    /// Id of the decision; 0 if it has none.
    pub decision: u64,
}

/// Demand of one client, network, path or user agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spender {
    /// Address or hash of a credential, network, path or user agent.
    pub name: String,
    /// Kind of a client.
    pub kind: Option<ClientKind>,
    /// Its demand.
    pub demand: Demand,
}

/// The largest spenders of each kind, in descending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopSpenders {
    /// Clients, each with its kind.
    pub clients: Vec<Spender>,
    /// Networks: IPv4 /24 or IPv6 /48.
    pub networks: Vec<Spender>,
    /// Paths.
    pub paths: Vec<Spender>,
    /// User agents.
    pub user_agents: Vec<Spender>,
}

impl Spenders {
    /// Creates empty tables of at most `max_entries` each.
    pub fn new(max_entries: usize) -> Self {
        Self {
            clients: HeavyHitters::new(max_entries),
            networks: HeavyHitters::new(max_entries),
            paths: HeavyHitters::new(max_entries),
            user_agents: HeavyHitters::new(max_entries),
        }
    }

    /// Adds the demand of a request.
    pub fn add(&mut self, request: &SpendingRequest<'_>) {
        let &SpendingRequest { client, key, kind, path, user_agent, cost, charged, is_refused, decision } = request;
        let demand = Demand {
            requests: 1,
            refused: u64::from(is_refused),
            units: charged,
            requested_units: cost,
            latest_decision: decision,
        };
        if let Some(client) = client {
            self.clients.add(&(SpendingClient::new(client, key), kind), demand);
            self.networks.add(&network(client), demand);
        }
        self.paths.add(&path[..path.floor_char_boundary(MAX_NAME_BYTES)], demand);
        self.user_agents.add(&user_agent[..user_agent.len().min(MAX_NAME_BYTES)], demand);
    }

    /// Adds the demand of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.clients.merge(&other.clients);
        self.networks.merge(&other.networks);
        self.paths.merge(&other.paths);
        self.user_agents.merge(&other.user_agents);
    }

    /// Returns the `count` largest spenders of each kind.
    pub fn top(&self, count: usize) -> TopSpenders {
        let spender = |name: String, kind, demand| Spender { name, kind, demand };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        TopSpenders {
            clients: (self.clients.largest(count).into_iter())
                .map(|((client, kind), demand)| spender(client.to_string(), Some(*kind), demand))
                .collect(),
            networks: (self.networks.largest(count).into_iter())
                .map(|(network, demand)| spender(network.to_string(), None, demand))
                .collect(),
            paths: (self.paths.largest(count).into_iter())
                .map(|(path, demand)| spender(path.clone(), None, demand))
                .collect(),
            user_agents: (self.user_agents.largest(count).into_iter())
                .map(|(user_agent, demand)| spender(text(user_agent), None, demand))
                .collect(),
        }
    }
}

impl SpendingClient {
    fn new(address: IpAddr, key: Option<ClientKey>) -> Self {
        match key.map(ClientKey::owner) {
            Some(KeyOwner::Credential(hash)) => Self::Credential(hash),
            _ => Self::Address(address),
        }
    }
}

impl fmt::Display for SpendingClient {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Address(address) => address.fmt(out),
            Self::Credential(hash) => ClientKey::from_credential(hash).display(|_| "").fmt(out),
        }
    }
}

/// Returns the /24 or /48 of a client.
fn network(client: IpAddr) -> IpPrefix {
    IpPrefix::new(client, if client.is_ipv4() { 24 } else { 48 }).expect("shorter than an address")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_unreadable_names_are_cut() {
        let mut spenders = Spenders::new(16);
        let (path, user_agent) = ("/ä".repeat(MAX_NAME_BYTES), [0xff; 2 * MAX_NAME_BYTES]);
        let unit = Units::from_whole(1);
        let client = Some("192.0.2.77".parse().expect("an address"));
        let request = SpendingRequest {
            client,
            key: None,
            kind: ClientKind::Human,
            path: &path,
            user_agent: &user_agent,
            cost: unit,
            charged: Units::ZERO,
            is_refused: true,
            decision: 5,
        };
        spenders.add(&request);
        spenders.add(&SpendingRequest { client: None, charged: unit, is_refused: false, decision: 6, ..request });
        let top = spenders.top(1);
        assert_eq!((top.clients[0].name.as_str(), top.networks[0].name.as_str()), ("192.0.2.77", "192.0.2.0/24"));
        assert_eq!(top.clients[0].demand.requests, 1, "the other has no address");
        let expected =
            Demand { requests: 2, refused: 1, units: unit, requested_units: Units::from_whole(2), latest_decision: 6 };
        assert_eq!((top.paths[0].demand, top.paths[0].name.len()), (expected, 199));
        assert_eq!(top.user_agents[0].name, "\u{fffd}".repeat(MAX_NAME_BYTES));
    }
    #[test]
    fn customer_with_a_key_is_one_client_at_all_of_its_addresses() {
        let mut spenders = Spenders::new(16);
        for (address, key) in [
            ("192.0.2.1", ClientKey::from_credential(0xab)),
            ("198.51.100.2", ClientKey::from_credential(0xab)),
            ("192.0.2.1", ClientKey::of_class("bots")),
        ] {
            spenders.add(&SpendingRequest {
                client: address.parse().ok(),
                key: Some(key),
                kind: ClientKind::DeclaredBot,
                path: "/",
                user_agent: b"",
                cost: Units::from_whole(1),
                charged: Units::from_whole(1),
                is_refused: false,
                decision: 1,
            });
        }
        let clients = spenders.top(9).clients;
        let clients: Vec<_> = clients.iter().map(|client| (client.name.as_str(), client.demand.requests)).collect();
        assert_eq!(clients, [("hash:0000000000000ab", 2), ("192.0.2.1", 1)]);
    }
}
