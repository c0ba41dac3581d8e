//! Host and port of a URL.

use super::number;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use tidegate_policy::own_hosts::without_last_dot;

/// What is wrong with a host and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InvalidAuthority {
    Host,
    Port,
}

/// Parses `host` or `host:port`. Returns the host in lower case, an IPv6 address without its brackets, and the port.
pub(super) fn parse(text: &str) -> Result<(String, Option<u16>), InvalidAuthority> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(rest) => {
            rest.split_once(']').filter(|(host, _)| host.parse::<Ipv6Addr>().is_ok()).ok_or(InvalidAuthority::Host)?
        }
        None => text.find(':').map_or((text, ""), |colon| text.split_at(colon)),
    };
    if !text.starts_with('[') && !is_host(host) {
        return Err(InvalidAuthority::Host);
    }
    let port = match rest {
        "" => None,
        _ => match rest.strip_prefix(':').map(number::whole::<u16>) {
            Some(Some(port)) if port > 0 => Some(port),
            Some(_) => return Err(InvalidAuthority::Port),
            None => return Err(InvalidAuthority::Host),
        },
    };
    Ok((host.to_ascii_lowercase(), port))
}

/// Parses an address and port.
pub(super) fn socket_address(text: &str) -> Option<SocketAddr> {
    let (_, port) = text.rsplit_once(':')?;
    text.parse().ok().filter(|_| number::whole::<u16>(port).is_some())
}

/// Returns true for a name or an IPv4 address. A host whose last label is a number is an address (WHATWG URL, "ends in a
/// number"), which is written with four numbers here: browsers and resolvers read other spellings in different ways.
pub(super) fn is_host(text: &str) -> bool {
    if text.parse::<Ipv4Addr>().is_ok() {
        return true;
    }
    let name = without_last_dot(text);
    let last = name.rsplit('.').next().unwrap_or_default();
    name.len() <= MAX_NAME && name.split('.').all(is_label) && !is_number(last)
}

fn is_label(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=MAX_LABEL).contains(&text.len()) && text.bytes().all(is_allowed)
}

fn is_number(label: &str) -> bool {
    let hex = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    label.bytes().all(|byte| byte.is_ascii_digit())
        || hex.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Maximum length of a DNS name.
const MAX_NAME: usize = 253;
/// Maximum length of a label of it.
const MAX_LABEL: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_a_name_or_an_address() {
        for (text, host, port) in [
            ("Site.internal", "site.internal", None),
            ("site.internal.:80", "site.internal.", Some(80)),
            ("my_site-1:65535", "my_site-1", Some(65535)),
            ("1password.example", "1password.example", None),
            ("0x.example", "0x.example", None),
            ("127.0.0.1:3000", "127.0.0.1", Some(3000)),
            ("[::1]", "::1", None),
            ("[::FFFF]:1", "::ffff", Some(1)),
        ] {
            assert_eq!(parse(text), Ok((host.to_owned(), port)), "{text}");
        }
        let long = "a".repeat(64);
        for text in [
            "",
            ".",
            ":80",
            "a..b",
            ".a",
            "a b",
            "a/b",
            "ä",
            "u@a",
            "256.1.1.1",
            "1.2.3.4.5",
            "1.2.3",
            "127.1",
            "127.0.0.01",
            "127.0.0.1.",
            "3000",
            "0x7f000001",
            "a.0X7F",
            "a.0x",
            "[::1",
            "[a]",
            "[127.0.0.1]",
            "[::1]x",
            &long,
        ] {
            assert_eq!(parse(text), Err(InvalidAuthority::Host), "{text}");
        }
        for text in ["a:", "a:0", "a:+80", "a:080", "a:80:80", "a:65536", "a: 80", "[::1]:", "127.0.0.1:03000"] {
            assert_eq!(parse(text), Err(InvalidAuthority::Port), "{text}");
        }
    }
}
