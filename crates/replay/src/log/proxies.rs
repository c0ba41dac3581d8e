//! Proxies in front of a server, found from the first lines of its log.
//!
//! Lines are read as the gateway reads `X-Forwarded-For`: from the server to the client, past trusted proxies. Trusted are
//! the addresses of a column that has far fewer of them than the column of clients, private ones if the log has public clients,
//! and those of Cloudflare, which has more of them than a small site has clients.

use super::LineError;
use super::address::{AddressList, ForwardedAddresses};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::LazyLock;
use tidegate_policy::network::{IpPrefix, is_private};

/// Addresses that are proxies and not clients.
#[derive(Clone, Debug, Default)]
pub(super) struct TrustedProxies {
    proxies: BTreeSet<IpAddr>,
    trusts_private: bool,
}

impl TrustedProxies {
    /// Detects the proxies by the addresses of the first lines, each from the client to the server.
    pub(super) fn detect(chains: &[AddressList]) -> Self {
        let proxies = proxies_of_columns(chains);
        let trusts_private = chains.iter().flatten().any(|address| !is_private(*address) && !proxies.contains(address));
        Self { proxies, trusts_private }
    }

    /// Returns true if an address is a proxy.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.proxies.contains(&address)
            || self.trusts_private && is_private(address)
            || CLOUDFLARE_NETWORKS.iter().any(|network| network.contains(address))
    }

    /// Returns the client of a line: the address next to the server that is no proxy, or the farthest one.
    pub(super) fn client_of(&self, chain: &AddressList) -> Option<IpAddr> {
        chain.iter().rev().find(|address| !self.contains(**address)).or(chain.first()).copied()
    }

    /// Returns the client of a line with a column of forwarded addresses. Fails if it cannot be read: nothing but proxies is
    /// known then.
    pub(super) fn client_behind(
        &self,
        peers: &AddressList,
        forwarded: &ForwardedAddresses,
    ) -> Result<Option<IpAddr>, LineError> {
        let from_server = peers.iter().rev().chain(forwarded.addresses.iter().rev());
        match from_server.clone().find(|address| !self.contains(**address)) {
            Some(client) => Ok(Some(*client)),
            None if forwarded.is_cut => Err(LineError::InvalidClient),
            None => Ok(from_server.last().copied()),
        }
    }

    /// Returns the proxies as a phrase.
    pub(super) fn describe(&self) -> String {
        match (self.proxies.len(), self.trusts_private) {
            (0, _) => "private addresses and those of Cloudflare are proxies".to_owned(),
            (1, _) => "the other address is one proxy".to_owned(),
            (count, _) => format!("the other addresses are {count} proxies"),
        }
    }

    /// Returns what is doubtful about the clients of the first lines; `advice` says what would do.
    pub(super) fn warning_for(&self, chains: &[AddressList], advice: &str) -> Option<String> {
        if chains.len() < MIN_LINES {
            return None;
        }
        let has_other_first = |chain: &&AddressList| chain.len() > 1 && self.client_of(chain) == chain.last().copied();
        if chains.iter().filter(has_other_first).count() * 2 >= chains.len() {
            return Some(format!(
                "the address next to the server is taken for the client, although most lines name others before it: if it is \
                 that of a proxy, {advice}"
            ));
        }
        let clients: BTreeSet<Option<IpAddr>> = chains.iter().map(|chain| self.client_of(chain)).collect();
        let only = clients.first().filter(|_| clients.len() == 1)?;
        let who = match only {
            Some(address) if is_private(*address) => format!("the private address {address}, probably a proxy"),
            Some(_) => return None,
            None => "no address".to_owned(),
        };
        Some(format!("all lines have one client, {who}: {advice}"))
    }
}

/// Networks of Cloudflare's proxies (https://www.cloudflare.com/ips/, which rarely change).
static CLOUDFLARE_NETWORKS: LazyLock<Vec<IpPrefix>> = LazyLock::new(|| {
    let networks = [
        "173.245.48.0/20",
        "103.21.244.0/22",
        "103.22.200.0/22",
        "103.31.4.0/22",
        "141.101.64.0/18",
        "108.162.192.0/18",
        "190.93.240.0/20",
        "188.114.96.0/20",
        "197.234.240.0/22",
        "198.41.128.0/17",
        "162.158.0.0/15",
        "104.16.0.0/13",
        "104.24.0.0/14",
        "172.64.0.0/13",
        "131.0.72.0/22",
        "2400:cb00::/32",
        "2606:4700::/32",
        "2803:f800::/32",
        "2405:b500::/32",
        "2405:8100::/32",
        "2a06:98c0::/29",
        "2c0f:f248::/32",
    ];
    networks.into_iter().map(|network| IpPrefix::parse(network).expect("a network")).collect()
});

/// Counts by which a column of forwarded addresses is told from one that clients write.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ForwardedCounts {
    /// Lines.
    pub(super) lines: usize,
    /// Lines with forwarded addresses.
    pub(super) forwarded_lines: usize,
    /// Lines whose peer of the server is private or unknown.
    pub(super) private_peer_lines: usize,
    /// Different peers.
    pub(super) peers: usize,
    /// Different public peers that have sent no forwarded address.
    pub(super) direct_peers: usize,
    /// Different forwarded values.
    pub(super) forwarded: usize,
}

impl ForwardedCounts {
    /// Returns true if the clients are in the forwarded column.
    pub(super) fn have_clients(self) -> bool {
        let mostly = |lines: usize| lines * 10 >= self.lines * 9;
        let has_few_peers = self.peers == 1 || self.peers * 2 <= self.forwarded;
        self.forwarded_lines > 0 && (mostly(self.private_peer_lines) || mostly(self.forwarded_lines) && has_few_peers)
    }

    /// Returns a doubt if most lines have forwarded addresses that are not taken for the clients, or if one client may have
    /// written those that are.
    pub(super) fn doubt(self) -> Option<String> {
        let proxies = self.peers - self.direct_peers;
        if self.have_clients() && self.direct_peers > proxies {
            return Some(format!(
                "{proxies} peers with forwarded addresses are taken for proxies, and {} others send none, as visitors do: if \
                 those are no proxies of yours, they have chosen their clients, so give --format without the forwarded column",
                self.direct_peers
            ));
        }
        (!self.have_clients() && self.lines >= MIN_LINES && self.forwarded_lines * 2 >= self.lines).then(|| {
            format!(
                "most lines name forwarded addresses, but by {} peers, which is not as few as proxies are: the peers are taken \
                 for the clients; if they are proxies, give --format with $realip_remote_addr for the peer",
                self.peers
            )
        })
    }
}

/// Counts the public peers none of whose lines has forwarded addresses.
pub(super) fn direct_peers<'a>(lines: impl Iterator<Item = (Option<&'a IpAddr>, bool)>) -> usize {
    let mut has_forwarded = BTreeMap::<IpAddr, bool>::new();
    for (peer, is_forwarded) in lines {
        let Some(peer) = peer.filter(|peer| !is_private(**peer)) else { continue };
        *has_forwarded.entry(*peer).or_default() |= is_forwarded;
    }
    has_forwarded.values().filter(|has_forwarded| !**has_forwarded).count()
}

/// Returns the addresses of the columns next to the server that have far fewer addresses than the column of clients.
fn proxies_of_columns(chains: &[AddressList]) -> BTreeSet<IpAddr> {
    let firsts: BTreeSet<IpAddr> = chains.iter().filter_map(|chain| chain.first().copied()).collect();
    let mut proxies = BTreeSet::new();
    for from_server in 0..MAX_PROXIES {
        let longer: Vec<&AddressList> = chains.iter().filter(|chain| chain.len() >= from_server + 2).collect();
        let values: BTreeSet<IpAddr> = longer.iter().map(|chain| chain[chain.len() - 1 - from_server]).collect();
        let is_column = longer.len() * 2 >= chains.len();
        if !is_column || values.len() * 8 > firsts.len() && values.len() > 1 {
            break;
        }
        proxies.extend(values);
    }
    proxies
}

/// Lines from which a single client is worth a warning.
const MIN_LINES: usize = 20;

/// Proxies that a request passes at most.
const MAX_PROXIES: usize = 8;
