//! Raw section `clients`.

use crate::scalars::{Field, FilePath, Range};
use crate::section::section;
use crate::serde_forms::string_or_map;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

section! {
    /// Identification of clients.
    pub(crate) struct Clients {
        /// Source of the client address: peer (the connection), proxy-protocol, x-forwarded-for, forwarded, or {
        /// header: NAME }. The header is used only if the request comes from a trusted proxy. The chain of
        /// x-forwarded-for and forwarded is read from right to left: trusted hops are skipped, and the first untrusted
        /// address is the client. A header that is named has one address; a list in it is ignored.
        ///
        /// proxy-protocol requires a listener with proxy_protocol, whose connections have the address that their proxy
        /// sends; no header is read. With another source, that address is the peer that may be a trusted proxy.
        ///
        /// X-Forwarded-For, Forwarded and X-Real-IP are removed from a request if they are not the configured header,
        /// because any client can send them. All forwarding fields (also X-Forwarded-Proto, -Host, -Port) are removed
        /// if the peer is not a trusted proxy. Default peer.
        address_from: AddressFrom;
        /// Proxies whose client-address header is trusted: a list of addresses and networks. Without the address of the
        /// proxy in front, all clients share the proxy's address and no crawler can be verified. The gateway warns once
        /// if a peer with a private address sends a forwarding header that is not trusted (X-Forwarded-For, Forwarded,
        /// X-Real-IP, CF-Connecting-IP, True-Client-IP) and prints the YAML to write. A trusted proxy that terminates
        /// TLS must set X-Forwarded-Proto; otherwise fewer bots are detected and signatures over the whole URL are
        /// invalid. Default none.
        trusted_proxies: Vec<Range>;
        /// Number of leading bits of an IPv6 address that identify one client, 32 to 64. A household usually has a /64.
        ipv6_prefix: u8 = 64 => u8, usual_prefix;
        /// Database of autonomous systems for `when.asn`, as a file of the MaxMind format (.mmdb), such as GeoLite2 ASN or
        /// those of DB-IP and IPinfo. It is read into memory at the start and at each reload. The access log then has `asn`
        /// of each client. Default none.
        asn_database: Option<FilePath>;
        /// Database of countries for `when.country`, like `asn_database`. The access log then has `country` of each client.
        /// Default none.
        country_database: Option<FilePath>;
    }
}

fn usual_prefix(bits: &u8, _: Option<&u8>) -> Option<String> {
    let is_valid = (32..=64).contains(bits);
    (!is_valid).then(|| format!("found {bits}, needs 32 to 64; write 64, the usual prefix of a household"))
}

#[derive(Clone, Debug, Default)]
pub(crate) enum AddressFrom {
    #[default]
    Peer,
    XForwardedFor,
    Forwarded,
    ProxyProtocol,
    Header(Option<Field>),
}

/// The form `{ header: NAME }`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HeaderKeys {
    header: Option<Field>,
}

impl From<HeaderKeys> for AddressFrom {
    fn from(keys: HeaderKeys) -> Self {
        Self::Header(keys.header)
    }
}

impl<'de> Deserialize<'de> for AddressFrom {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let needs = "an address source; use peer, proxy-protocol, x-forwarded-for, forwarded or { header: NAME }";
        string_or_map::<D, Self, HeaderKeys>(deserializer, needs, |word| match word {
            "peer" => Some(Self::Peer),
            "x-forwarded-for" => Some(Self::XForwardedFor),
            "forwarded" => Some(Self::Forwarded),
            "proxy-protocol" => Some(Self::ProxyProtocol),
            _ => None,
        })
    }
}

impl JsonSchema for AddressFrom {
    fn schema_name() -> Cow<'static, str> {
        "AddressFrom".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "enum": ["peer", "proxy-protocol", "x-forwarded-for", "forwarded"] },
            { "type": "object", "properties": { "header": { "type": "string" } }, "required": ["header"], "additionalProperties": false },
        ] })
    }
}
