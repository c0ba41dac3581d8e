//! Validates `forward_auth`.

use super::diagnostics::Diagnostics;
use crate::raw;
use crate::setting_path::SettingPath;
use crate::settings::{Admin, ForwardAuth, Listener};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

const DEFAULT_SETTLE_AFTER: Duration = Duration::from_secs(60);
const DEFAULT_PATH_PREFIX: &str = "/envoy";
const DEFAULT_MEMORY: u64 = 64 * MIB;
const MIN_MEMORY: u64 = MIB;
const MIB: u64 = 1024 * 1024;
/// Example of an address, and a safe value in place of a missing one.
const EXAMPLE_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9092);
/// First segments of paths that have another meaning on this listener.
const RESERVED_SEGMENTS: [&str; 2] = ["nginx", "settle"];

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
    let path_prefix = keys.path_prefix.as_deref().unwrap_or(DEFAULT_PATH_PREFIX);
    if !is_path_prefix(path_prefix) {
        report.error(
            &path.path_prefix(),
            format!("found {path_prefix:?}, needs a path without a slash at its end, other than /nginx and /settle"),
            "write letters, digits and -, such as /envoy",
        );
    }
    let memory = keys.memory.as_ref().map_or(DEFAULT_MEMORY, |size| size.0);
    if memory < MIN_MEMORY {
        report.error(&path.memory(), "needs at least 1MiB", "write a size such as 64MiB");
    }
    Some(ForwardAuth {
        listen: address,
        settle_after: keys.settle_after.as_ref().map_or(DEFAULT_SETTLE_AFTER, |span| span.0),
        path_prefix: path_prefix.to_owned(),
        memory,
    })
}

/// Returns true for a path that no reader resolves or decodes, and that has no other meaning on the listener.
fn is_path_prefix(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let Some(rest) = text.strip_prefix('/') else { return false };
    rest.split('/').all(|segment| !segment.is_empty() && segment.bytes().all(is_plain))
        && !RESERVED_SEGMENTS.contains(&rest.split('/').next().unwrap_or_default())
}
