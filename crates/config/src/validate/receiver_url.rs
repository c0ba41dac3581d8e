//! Parses URLs of receivers.

use crate::authority;
use crate::settings::{ReceiverUrl, default_port};
use tidegate_policy::secret::Secret;

/// Parses a URL. The error does not show it, because it may hold a secret.
pub(super) fn parse_url(text: &str) -> Result<ReceiverUrl, &'static str> {
    let (is_tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
        (Some(rest), _) => (true, rest),
        (_, Some(rest)) => (false, rest),
        _ => return Err("not an https:// or http:// URL"),
    };
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("has a character other than visible ASCII");
    }
    if rest.contains('#') {
        return Err("has a fragment (#), which is never sent");
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    if authority.contains('@') {
        return Err("has a user before the host, which is not sent");
    }
    let (host, port) = authority::parse(authority).map_err(|_| "has no valid host and port")?;
    let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
    Ok(ReceiverUrl { is_tls, host, port: port.unwrap_or(default_port(is_tls)), target: Secret::new(target) })
}
