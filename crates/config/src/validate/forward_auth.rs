//! Validates `forward_auth`.

use super::diagnostics::Diagnostics;
use crate::raw;
use crate::setting_path::SettingPath;
use crate::settings::{Admin, ForwardAuth, Listener};
use std::net::{Ipv4Addr, SocketAddr};

/// Example of an address, and a safe value in place of a missing one.
const EXAMPLE_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9092);

/// Returns the listener for other proxies; `None` without the section. `listen` and `admin` have the other addresses.
pub(super) fn forward_auth(
    raw: &raw::File,
    listen: &[Listener],
    admin: Option<&Admin>,
    report: &mut Diagnostics,
) -> Option<ForwardAuth> {
    let keys = raw.forward_auth.as_ref()?;
    let path = SettingPath::ROOT.forward_auth();
    let address = keys.listen.as_ref().map(|socket| socket.0);
    if address.is_none() && !report.has_error_at(&path.listen()) {
        report.error(&path.listen(), "is missing", format!("write forward_auth: {{ listen: \"{EXAMPLE_LISTEN}\" }}"));
    }
    let address = address.unwrap_or(EXAMPLE_LISTEN);
    let owner = match admin.and_then(|admin| admin.listen.tcp()) {
        _ if address.port() == 0 => None,
        _ if listen.iter().any(|listener| listener.address == address) => Some("an address for clients"),
        Some(admin) if admin == address => Some("the address of the admin listener"),
        _ => None,
    };
    if let Some(owner) = owner {
        report.error(&path.listen(), format!("{address} is {owner}"), "write another port");
    }
    Some(ForwardAuth {
        listen: address,
        settle_after: keys.settle_after,
        path_prefix: keys.path_prefix.clone(),
        memory: keys.memory,
    })
}
