//! Addresses as servers log them: with a port, in brackets, or several of them.

use smallvec::SmallVec;
use std::net::{IpAddr, SocketAddr};
use tidegate_policy::network::canonical;

/// Parses an address, with or without a port and brackets.
pub(super) fn parse(text: &str) -> Option<IpAddr> {
    // Most words are no addresses; the first byte of an address is a digit, a bracket, a colon or a letter up to F.
    let first = text.bytes().next()?;
    if !first.is_ascii_hexdigit() && first != b'[' && first != b':' {
        return None;
    }
    let bare = || text.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
    let address = text.parse().ok();
    let address = address.or_else(|| text.parse().ok().map(|address: SocketAddr| address.ip()));
    address.or_else(|| bare()?.parse().ok()).map(canonical)
}

/// Parses a list like `X-Forwarded-For`; `None` if a member is not an address.
pub(super) fn parse_list(text: &[u8]) -> Option<AddressList> {
    let text = std::str::from_utf8(text).ok()?;
    let members: Option<AddressList> = text.split(',').map(|member| parse(member.trim())).collect();
    members.filter(|members| members.len() <= MAX_MEMBERS)
}

/// Addresses in the order of the log.
pub(super) type AddressList = SmallVec<[IpAddr; 4]>;

/// More proxies than a request passes.
const MAX_MEMBERS: usize = 32;
