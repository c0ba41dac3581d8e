//! Parser of `Forwarded` (RFC 7239): commas and semicolons inside quotes do not separate.

use super::parse_address;
use std::net::IpAddr;
use tidegate_http_cache::quoted;

/// Returns the elements of one field line, the last first. A comma separates if an even number of quotes follows, so
/// that a quote which a client leaves open does not take in what a proxy adds.
pub(super) fn elements_reversed(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut is_quoted = false;
    line.rsplit(move |&byte| {
        is_quoted ^= byte == b'"';
        byte == b',' && !is_quoted
    })
}

/// Returns the address of the element's `for` parameter; `None` if it occurs not exactly once or is no address.
pub(super) fn node(element: &[u8]) -> Option<IpAddr> {
    let mut nodes = quoted::split(element, b';').filter_map(|pair| {
        let (name, value) = pair.trim_ascii().split_once_byte(b'=')?;
        name.eq_ignore_ascii_case(b"for").then_some(value)
    });
    match (nodes.next(), nodes.next()) {
        (Some(node), None) => parse_address(node),
        _ => None,
    }
}

trait SplitOnce {
    fn split_once_byte(&self, separator: u8) -> Option<(&[u8], &[u8])>;
}

impl SplitOnce for [u8] {
    fn split_once_byte(&self, separator: u8) -> Option<(&[u8], &[u8])> {
        let at = self.iter().position(|&byte| byte == separator)?;
        Some((&self[..at], &self[at + 1..]))
    }
}
