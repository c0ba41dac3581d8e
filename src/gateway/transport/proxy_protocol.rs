//! The header of the PROXY protocol, versions 1 and 2, with which a trusted proxy tells the address of its client
//! (<https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>).
//!
//! A listener requires the header or does not know it; it is never guessed. The bytes after it stay in the socket. The
//! origin is sent a header, if it wants one.

use proxy_header::{ParseConfig, Protocol, ProxiedAddress, ProxyHeader};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tidegate_config::settings::ProxyProtocolVersion;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Maximum length of a header. Version 2 may have extensions, such as certificates, which are ignored.
const MAX_HEADER: usize = 4096;
/// Maximum length of a header of version 1.
const MAX_TEXT_HEADER: usize = 107;
/// Length of a header of version 2 up to its addresses: signature, command, family and length.
const BINARY_START: usize = 16;
/// Start of a header of version 1.
const TEXT_START: &[u8] = b"PROXY ";

/// Reason why a connection is closed instead of served.
#[derive(Debug, thiserror::Error)]
pub(in crate::gateway) enum ProxyHeaderError {
    /// The peer may not send the header.
    #[error("the peer is not in clients.trusted_proxies, which may connect to a listener with proxy_protocol")]
    Untrusted,
    /// There is no header, or an invalid one.
    #[error("no valid PROXY protocol header, which listen.proxy_protocol requires")]
    Invalid,
    /// The header is too long.
    #[error("PROXY protocol header longer than {MAX_HEADER} bytes")]
    TooLong,
    /// The connection failed or was closed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The client of a connection to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct ProxiedClient {
    pub(in crate::gateway) address: IpAddr,
    /// Address of the listener.
    pub(in crate::gateway) destination: SocketAddr,
}

/// Reads the header. Returns the client; `None` if the proxy itself is the client.
pub(in crate::gateway) async fn read_header(stream: &mut TcpStream) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    let mut header = vec![0; MAX_HEADER];
    let mut length = 0;
    loop {
        let peeked = stream.peek(&mut header[length..]).await?;
        if peeked == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let known = length + peeked;
        let parsed = parse(&header[..known])?;
        let end = parsed.map_or(known, |(_, end)| end);
        stream.read_exact(&mut header[length..end]).await?;
        if let Some((client, _)) = parsed {
            return Ok(client);
        }
        length = end;
        if length == MAX_HEADER {
            return Err(ProxyHeaderError::TooLong);
        }
    }
}

/// Returns a header that names `client`, which connected to `destination`. `None` is the gateway itself.
///
/// The port of the client is 0: a connection serves requests from several of its ports.
pub(in crate::gateway) fn header(version: ProxyProtocolVersion, client: Option<ProxiedClient>) -> Vec<u8> {
    let header = match client {
        None => ProxyHeader::with_local(),
        Some(ProxiedClient { address, destination }) => {
            // Both addresses of a header have the same family.
            let destination = match address {
                IpAddr::V4(_) if destination.is_ipv6() => (Ipv4Addr::UNSPECIFIED, destination.port()).into(),
                IpAddr::V6(_) if destination.is_ipv4() => (Ipv6Addr::UNSPECIFIED, destination.port()).into(),
                _ => destination,
            };
            ProxyHeader::with_address(ProxiedAddress::stream((address, 0).into(), destination))
        }
    };
    let mut bytes = Vec::new();
    let encoded = match version {
        ProxyProtocolVersion::V1 => header.encode_v1(&mut bytes),
        ProxyProtocolVersion::V2 => header.encode_v2(&mut bytes),
    };
    encoded.expect("addresses of one family, and a vector that grows");
    bytes
}

/// A client and the length of the header.
type Parsed = (Option<SocketAddr>, usize);

/// Parses a header; `None` if it is incomplete.
fn parse(bytes: &[u8]) -> Result<Option<Parsed>, ProxyHeaderError> {
    let config = ParseConfig { include_tlvs: false, ..ParseConfig::default() };
    let is_text = bytes.first() == Some(&TEXT_START[0]);
    let start = bytes.len().min(TEXT_START.len());
    if is_text && bytes[..start] != TEXT_START[..start] {
        return Err(ProxyHeaderError::Invalid);
    }
    match ProxyHeader::parse(bytes, config) {
        Ok((_, end)) if is_text && end > MAX_TEXT_HEADER => Err(ProxyHeaderError::Invalid),
        Ok((header, end)) => match header.proxied_address() {
            None => Ok(Some((None, end))),
            Some(address) if address.protocol == Protocol::Stream && is_client(address.source) => {
                Ok(Some((Some(address.source), end)))
            }
            Some(_) => Err(ProxyHeaderError::Invalid),
        },
        Err(proxy_header::Error::BufferTooShort) if !has_ended(bytes)? => Ok(None),
        Err(_) => Err(ProxyHeaderError::Invalid),
    }
}

/// Returns false for the unspecified address, which is that of no client: the gateway's own requests have it.
fn is_client(source: SocketAddr) -> bool {
    !source.ip().to_canonical().is_unspecified()
}

/// Returns true if a header has its line end or its declared length, so that no byte can complete it. Too long a header is
/// an error before it has arrived.
fn has_ended(bytes: &[u8]) -> Result<bool, ProxyHeaderError> {
    if bytes.first() == Some(&TEXT_START[0]) {
        return Ok(bytes.contains(&b'\n'));
    }
    let Some((_, [_, _, high, low])) = bytes.get(..BINARY_START).and_then(<[u8]>::split_last_chunk) else {
        return Ok(false);
    };
    let length = BINARY_START + usize::from(u16::from_be_bytes([*high, *low]));
    if length > MAX_HEADER { Err(ProxyHeaderError::TooLong) } else { Ok(bytes.len() >= length) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = (rest.len() as u16).to_be_bytes();
        [SIGNATURE, &[command, family], &length, rest].concat()
    }

    fn client(header: &[u8]) -> Option<Option<String>> {
        let (client, end) = parse(&[header, b"GET / HTTP/1.1"].concat()).ok()??;
        assert_eq!(end, header.len(), "nothing of the request is part of the header");
        Some(client.map(|client| client.to_string()))
    }

    #[test]
    fn client_is_the_source_of_a_valid_header() {
        let v4 = [192, 0, 2, 1, 198, 51, 100, 1, 0xdc, 0x04, 0, 80];
        for (header, expected) in [
            (b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n".to_vec(), Some("192.0.2.1:56324")),
            (b"PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n".to_vec(), Some("[2001:db8::1]:1")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n".to_vec(), None),
            (v2(0x21, 0x11, &v4), Some("192.0.2.1:56324")),
            (v2(0x21, 0x11, &[&v4[..], &[0x04, 0, 3, 1, 2, 3]].concat()), Some("192.0.2.1:56324")),
            (v2(0x20, 0x00, &[]), None),
            (v2(0x20, 0x11, &v4), None),
            (v2(0x21, 0x00, &[]), None),
            (v2(0x21, 0x31, &[0; 216]), None),
        ] {
            let expected = Some(expected.map(str::to_owned));
            assert_eq!(client(&header), expected, "{}", String::from_utf8_lossy(&header));
            for length in 1..header.len() {
                assert!(matches!(parse(&header[..length]), Ok(None)), "{length} bytes are incomplete");
            }
        }
    }

    #[test]
    fn invalid_headers_are_refused() {
        let long = [b"PROXY UNKNOWN ", &[b'a'; 100][..], b"\r\n"].concat();
        for header in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"\x16\x03\x01\x02\x00",
            b"PROXYXTCP4 192.0.2.1 198.51.100.1 1 2\r\n",
            b"PROXY UDP4 192.0.2.1 198.51.100.1 1 2\r\n",
            b"PROXY TCP4 192.0.2.256 198.51.100.1 1 2\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 70000 2\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 1\r\n",
            &long,
            &v2(0x11, 0x11, &[0; 12]),
            &v2(0x22, 0x11, &[0; 12]),
            b"PROXY TCP4 0.0.0.0 198.51.100.1 1 2\r\n",
            b"PROXY TCP6 :: 2001:db8::2 1 2\r\n",
            b"PROXY TCP6 ::ffff:0.0.0.0 2001:db8::2 1 2\r\n",
            &v2(0x21, 0x11, &[0; 12]),
            &v2(0x21, 0x21, &[0; 36]),
            &v2(0x21, 0x11, &[0; 11]),
            &v2(0x21, 0x12, &[0; 12]),
            &v2(0x21, 0x44, &[0; 12]),
            &v2(0x21, 0x11, &[0; MAX_HEADER])[..BINARY_START],
        ] {
            assert!(parse(header).is_err(), "{}", String::from_utf8_lossy(header));
        }
    }

    #[test]
    fn headers_for_the_origin() {
        let proxied = |address: &str, destination: &str| {
            let parts = (address.parse().expect("an address"), destination.parse().expect("an address"));
            Some(ProxiedClient { address: parts.0, destination: parts.1 })
        };
        for (sent, text) in [
            (proxied("192.0.2.1", "198.51.100.1:443"), "PROXY TCP4 192.0.2.1 198.51.100.1 0 443\r\n"),
            (proxied("2001:db8::1", "[2001:db8::2]:443"), "PROXY TCP6 2001:db8::1 2001:db8::2 0 443\r\n"),
            (proxied("192.0.2.1", "[::]:443"), "PROXY TCP4 192.0.2.1 0.0.0.0 0 443\r\n"),
            (proxied("2001:db8::1", "0.0.0.0:443"), "PROXY TCP6 2001:db8::1 :: 0 443\r\n"),
            (None, "PROXY UNKNOWN\r\n"),
        ] {
            assert_eq!(String::from_utf8_lossy(&header(ProxyProtocolVersion::V1, sent)), text);
            let expected = sent.map(|sent| SocketAddr::from((sent.address, 0)).to_string());
            for version in [ProxyProtocolVersion::V1, ProxyProtocolVersion::V2] {
                assert_eq!(client(&header(version, sent)), Some(expected.clone()), "{version:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(start in 0..3usize, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let start = [&b""[..], b"PROXY ", SIGNATURE][start];
            let _ = parse(&[start, &bytes].concat());
        }
    }
}
