//! Validates `clients`: the source of client addresses and the trusted proxies.

use super::diagnostics::Diagnostics;
use crate::raw::clients::{AddressFrom, Clients};
use crate::scalars::{FilePath, Range};
use crate::setting_path::SettingPath;
use crate::settings::NetworkDatabaseFile;
use std::net::{IpAddr, Ipv4Addr};
use tidegate_policy::identity::{AddressSource, ProxyTrust};

/// Returns a database of networks with the location of its key.
pub(super) fn database(
    file: Option<&FilePath>,
    path: &SettingPath,
    report: &Diagnostics,
) -> Option<NetworkDatabaseFile> {
    let location = || format!("{}: {path}", report.location_of(path));
    file.map(|file| NetworkDatabaseFile { file: file.0.as_str().into(), location: location() })
}

pub(super) fn proxy_trust(raw: &Clients, report: &mut Diagnostics) -> ProxyTrust {
    let path = SettingPath::ROOT.clients();
    let source = match &raw.address_from {
        // The header of the PROXY protocol replaces the address of the peer itself.
        AddressFrom::Peer | AddressFrom::ProxyProtocol => AddressSource::Peer,
        AddressFrom::XForwardedFor => AddressSource::XForwardedFor,
        AddressFrom::Forwarded => AddressSource::Forwarded,
        AddressFrom::Header(Some(name)) => AddressSource::Header(name.0.clone()),
        AddressFrom::Header(None) => {
            let hint = "name the header, such as CF-Connecting-IP";
            report.error(&path.address_from().header(), "missing", hint);
            AddressSource::Peer
        }
    };
    // Safe, but rarely intended: all clients behind a proxy then count as one.
    if source != AddressSource::Peer && raw.trusted_proxies.is_empty() {
        report.warning(format!("{}: no trusted proxy, so the header is never used", path.address_from()));
    }
    let contains_everything = |range: &Range| {
        let (first, last) = range.0.bounds();
        first.is_unspecified() && [Ipv4Addr::BROADCAST.into(), IpAddr::from([u16::MAX; 8])].contains(&last)
    };
    for (index, _) in raw.trusted_proxies.iter().enumerate().filter(|(_, range)| contains_everything(range)) {
        report.warning(format!(
            "{}: contains every address, so every client can choose its own: list the addresses of the proxies",
            path.trusted_proxies().index(index)
        ));
    }
    ProxyTrust {
        source,
        proxies: raw.trusted_proxies.iter().map(|range| range.0).collect(),
        ipv6_prefix: raw.ipv6_prefix,
    }
}
