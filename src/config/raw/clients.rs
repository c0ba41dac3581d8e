//! `clients:` as written.

use crate::config::scalars::{Field, Range};
use crate::config::serde_forms::string_or_map;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

/// Whose request it is.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Clients {
    /// Which header tells the client's address: peer, x-forwarded-for, forwarded, or { header: NAME }. Default peer, which
    /// believes none.
    pub address_from: Option<AddressFrom>,
    /// Peers and hops that are believed about addresses. Default none.
    pub trusted_proxies: Vec<Range>,
    /// How many leading bits of an IPv6 address are one client, 32 to 64. Default 64.
    pub ipv6_prefix: Option<u8>,
}

#[derive(Clone)]
pub(in crate::config) enum AddressFrom {
    Peer,
    XForwardedFor,
    Forwarded,
    ProxyProtocol,
    Header(Option<Field>),
}

/// The long form.
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
        let needs = "a source of addresses; use peer, x-forwarded-for, forwarded or { header: NAME }";
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
            { "enum": ["peer", "x-forwarded-for", "forwarded"] },
            { "type": "object", "properties": { "header": { "type": "string" } }, "required": ["header"], "additionalProperties": false },
        ] })
    }
}
