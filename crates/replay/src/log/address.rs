//! Addresses as servers log them: with a port, in brackets, or several of them.

use smallvec::SmallVec;
use std::net::{IpAddr, SocketAddr};
use tidegate_policy::network::canonical;

/// Parses an address, with or without a port and brackets.
pub(super) fn parse(text: &str) -> Option<IpAddr> {
    if !may_begin_address(*text.as_bytes().first()?) {
        return None;
    }
    let bare = || text.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
    let address = text.parse().ok();
    let address = address.or_else(|| text.parse().ok().map(|address: SocketAddr| address.ip()));
    address.or_else(|| bare()?.parse().ok()).map(canonical)
}

/// Parses a list like `X-Forwarded-For`, whose empty members are none (RFC 9110 section 5.6.1.2); `None` if a member is not
/// an address, or if there is none.
pub(super) fn parse_list(text: &[u8]) -> Option<AddressList> {
    let first = text.iter().find(|byte| byte.is_ascii_graphic() && **byte != b',' || !byte.is_ascii())?;
    if first.is_ascii() && !may_begin_address(*first) {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    let members = text.split(',').map(str::trim).filter(|member| !member.is_empty());
    let members: Option<AddressList> = members.map(parse).collect();
    members.filter(|members| (1..=MAX_MEMBERS).contains(&members.len()))
}

/// Addresses that a line names, from the client to the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ForwardedAddresses {
    pub(super) addresses: AddressList,
    /// True if a member in front of them cannot be read, or is more than a request passes.
    pub(super) is_cut: bool,
}

/// Parses a list like `X-Forwarded-For` from right to left, as proxies append to it, up to a member that is not an address.
pub(super) fn parse_forwarded(text: &[u8]) -> ForwardedAddresses {
    let members = text.rsplit(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty());
    let mut read = ForwardedAddresses::default();
    for member in members {
        let address = std::str::from_utf8(member).ok().and_then(parse).filter(|_| read.addresses.len() < MAX_MEMBERS);
        let Some(address) = address else {
            read.is_cut = true;
            break;
        };
        read.addresses.push(address);
    }
    read.addresses.reverse();
    read
}

/// Returns true for the first byte of an address: a digit, a bracket, a colon or a letter up to F. Most words have none.
fn may_begin_address(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || byte == b'[' || byte == b':'
}

/// Addresses in the order of the log.
pub(super) type AddressList = SmallVec<[IpAddr; 4]>;

/// More proxies than a request passes.
const MAX_MEMBERS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_members_of_a_list_are_none() {
        let list = |text: &str| parse_list(text.as_bytes()).map(|members| members.into_vec());
        let both: Option<Vec<IpAddr>> = Some(vec![[203, 0, 113, 7].into(), [10, 0, 0, 2].into()]);
        for text in ["203.0.113.7,10.0.0.2", "203.0.113.7, ,10.0.0.2", " ,203.0.113.7,, 10.0.0.2 ,\t"] {
            assert_eq!(list(text), both, "{text}");
        }
        for text in ["", ",", " , ,", "203.0.113.7, -", "203.0.113.7, unknown"] {
            assert_eq!(list(text), None, "{text}");
        }
    }
}
