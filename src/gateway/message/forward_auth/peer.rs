//! Peers that may ask about requests and settle them.

use std::net::IpAddr;
use tidegate_policy::identity::ProxyTrust;

/// Returns true for a peer on this machine, and for a trusted proxy.
pub(in crate::gateway) fn may_ask(trust: &ProxyTrust, peer: IpAddr) -> bool {
    peer.is_loopback() || trust.trusts(peer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_policy::network::IpPrefix;

    #[test]
    fn only_loopback_addresses_and_trusted_proxies_may_ask() {
        let trust =
            ProxyTrust { proxies: IpPrefix::parse("10.0.0.0/8").into_iter().collect(), ..ProxyTrust::default() };
        let may_ask = |peer: &str| may_ask(&trust, peer.parse().expect("valid address"));
        assert!(may_ask("127.0.0.1") && may_ask("::1") && may_ask("10.1.2.3"));
        assert!(!may_ask("192.168.0.1") && !may_ask("203.0.113.7") && !may_ask("fe80::1"));
    }
}
