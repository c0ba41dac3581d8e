//! Client of each line of a log with a column of peers, and perhaps one of forwarded addresses.

use crate::log::address::AddressList;
use crate::log::proxies::{ForwardedCounts, TrustedProxies, direct_peers};
use crate::log::{LineError, address};
use std::collections::BTreeSet;
use std::net::IpAddr;
use tidegate_policy::network::is_private;

/// How the client of each line is found.
#[derive(Clone, Debug, Default)]
pub(in crate::log) struct ClientRule {
    uses_forwarded: bool,
    proxies: TrustedProxies,
    warning: Option<String>,
}

impl ClientRule {
    /// Detects the rule by the texts of the peer and of the forwarded addresses of the first lines.
    pub(in crate::log) fn detect<'a>(lines: impl Iterator<Item = (Option<&'a [u8]>, Option<&'a [u8]>)>) -> Self {
        let lines: Vec<PeerAndForwarded> = lines.filter_map(addresses).collect();
        let count = |is: &dyn Fn(&PeerAndForwarded) -> bool| lines.iter().filter(|it| is(it)).count();
        let counts = ForwardedCounts {
            lines: lines.len(),
            forwarded_lines: count(&|(_, forwarded)| forwarded.is_some()),
            private_peer_lines: count(&|(peer, _)| peer.last().is_none_or(|address| is_private(*address))),
            peers: lines.iter().map(|(peer, _)| peer).collect::<BTreeSet<_>>().len(),
            direct_peers: direct_peers(lines.iter().map(|(peer, forwarded)| (peer.last(), forwarded.is_some()))),
            forwarded: lines.iter().filter_map(|(_, forwarded)| forwarded.as_ref()).collect::<BTreeSet<_>>().len(),
        };
        let uses_forwarded = counts.have_clients();
        let chain = |(peer, forwarded): PeerAndForwarded| {
            forwarded.filter(|_| uses_forwarded).into_iter().flatten().chain(peer).collect()
        };
        let chains: Vec<AddressList> = lines.into_iter().map(chain).collect();
        let proxies = TrustedProxies::detect(&chains);
        let warning = proxies.warning_for(&chains, ADVICE).or_else(|| counts.doubt());
        Self { uses_forwarded, proxies, warning }
    }

    /// Returns the client: the address next to the server that is no proxy. Fails if that cannot be read.
    pub(in crate::log) fn client(&self, peer: Option<&[u8]>, forwarded: Option<&[u8]>) -> Result<IpAddr, LineError> {
        let forwarded = forwarded.filter(|_| self.uses_forwarded);
        let peer = peer.filter(|peer| !peer.starts_with(b"unix:"));
        // The server writes it, so that nothing of it may be broken.
        if peer.is_some_and(|peer| address::parse_list(peer).is_none()) {
            return Err(LineError::InvalidClient);
        }
        let mut farthest = Err(LineError::InvalidClient);
        for list in [peer, forwarded].into_iter().flatten() {
            let members = list.rsplit(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|it| !it.is_empty());
            for member in members {
                let address = std::str::from_utf8(member).ok().and_then(address::parse);
                let address = address.ok_or(LineError::InvalidClient)?;
                if !self.proxies.contains(address) {
                    return Ok(address);
                }
                farthest = Ok(address);
            }
        }
        farthest
    }

    /// Returns the columns of the client as a phrase, by the names that the log gives them.
    pub(in crate::log) fn describe(&self, peer: &str, forwarded: &str) -> String {
        match self.uses_forwarded {
            true => format!("{forwarded}, from right to left, then {peer}; {}", self.proxies.describe()),
            false => peer.to_owned(),
        }
    }

    /// Returns what is doubtful about the clients.
    pub(in crate::log) fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }
}

/// Addresses of the peer, and the forwarded ones.
type PeerAndForwarded = (AddressList, Option<AddressList>);

/// Returns the addresses of the peer and the forwarded ones.
fn addresses((peer, forwarded): (Option<&[u8]>, Option<&[u8]>)) -> Option<PeerAndForwarded> {
    let (peer, forwarded) = (peer.and_then(address::parse_list), forwarded.and_then(address::parse_list));
    (peer.is_some() || forwarded.is_some()).then(|| (peer.unwrap_or_default(), forwarded))
}

/// What an administrator can do about a log without clients.
const ADVICE: &str = "let the server log the address that the proxy sends, such as X-Forwarded-For";

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Option<&[u8]> {
        (!text.is_empty()).then_some(text.as_bytes())
    }

    fn rule(lines: &[(&str, &str)]) -> ClientRule {
        ClientRule::detect(lines.iter().map(|(peer, forwarded)| (text(peer), text(forwarded))))
    }

    fn client(rule: &ClientRule, peer: &str, forwarded: &str) -> Result<String, LineError> {
        rule.client(text(peer), text(forwarded)).map(|address| address.to_string())
    }

    #[test]
    fn client_behind_proxies_is_the_first_untrusted_address_from_the_right() {
        let rule = rule(&[("10.0.0.1", "203.0.113.1"), ("10.0.0.1", "203.0.113.2"), ("10.0.0.2", "")]);
        for (peer, forwarded, expected) in [
            ("10.0.0.1", "203.0.113.7", Ok("203.0.113.7")),
            ("10.0.0.1", "192.0.2.66, 203.0.113.7, 10.0.0.9", Ok("203.0.113.7")),
            ("10.0.0.1", "<script>, 203.0.113.7:4711", Ok("203.0.113.7")),
            ("10.0.0.1", "", Ok("10.0.0.1")),
            ("", "203.0.113.7", Ok("203.0.113.7")),
            ("unix:", "[2001:db8::1]:1", Ok("2001:db8::1")),
            ("203.0.113.9", "192.0.2.66", Ok("203.0.113.9")),
            ("10.0.0.1", "203.0.113.7, unknown", Err(LineError::InvalidClient)),
            ("10.0.0.1", "203.0.113.999", Err(LineError::InvalidClient)),
            ("client.example", "203.0.113.7", Err(LineError::InvalidClient)),
            ("203.0.113.7:28{1,0.0.0.1:80", "", Err(LineError::InvalidClient)),
            ("", "", Err(LineError::InvalidClient)),
        ] {
            assert_eq!(client(&rule, peer, forwarded), expected.map(str::to_owned), "{peer} {forwarded}");
        }
    }

    #[test]
    fn header_that_clients_of_a_direct_server_write_is_ignored() {
        let rule = rule(&[("203.0.113.1", "192.0.2.1"), ("203.0.113.2", ""), ("203.0.113.3", "10.0.0.1")]);
        assert_eq!(client(&rule, "203.0.113.7", "192.0.2.66"), Ok("203.0.113.7".to_owned()));
        assert_eq!(client(&rule, "", "192.0.2.66"), Err(LineError::InvalidClient));
    }
}
