//! Keys that partition the buckets of a class: by address, credential, operator, or the class as a whole.

use crate::hash::fnv1a;
use crate::ids::OperatorId;
use std::fmt::{self, Display};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Key source: the property by which the buckets of a class are partitioned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeySource {
    /// Client address, or its IPv6 prefix.
    #[default]
    Address,
    /// Value of the credential; the address if none is sent.
    Credential(CredentialSource),
    /// Proven operator; the address if there is none.
    Operator,
    /// The class: one bucket for all its clients.
    Class,
}

/// Header or cookie that carries a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialSource {
    /// Whole value of this header.
    Header(http::HeaderName),
    /// Value of this cookie.
    Cookie(String),
}

/// Key of a client in buckets and counters, as one number: its address (IPv4, or the prefix of IPv6), or another
/// [`KeyOwner`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey(u64);

/// Owner of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOwner {
    /// IPv4 address.
    V4(Ipv4Addr),
    /// First address of an IPv6 prefix.
    V6(Ipv6Addr),
    /// Hash of a credential.
    Credential(u64),
    /// Operator of crawlers.
    Operator(OperatorId),
    /// A class as a whole; the class id is stored beside the key.
    Class,
    /// A budget that many keys share.
    SharedBudget,
}

/// Tag of keys that are no address: 8000::/2 is unassigned. The next two bits encode the kind.
const NON_ADDRESS_TAG: u64 = 0b10 << 62;
const ADDRESS_TAG_MASK: u64 = 0b11 << 62;
const CREDENTIAL_TAG: u64 = NON_ADDRESS_TAG;
const OPERATOR_TAG: u64 = NON_ADDRESS_TAG | 0b01 << 60;
const CLASS_TAG: u64 = NON_ADDRESS_TAG | 0b10 << 60;
const SHARED_BUDGET_TAG: u64 = NON_ADDRESS_TAG | 0b11 << 60;
const KIND_MASK: u64 = 0b1111 << 60;

impl CredentialSource {
    /// Returns the name of the header that carries the credential.
    pub fn header(&self) -> &str {
        match self {
            Self::Header(name) => name.as_str(),
            Self::Cookie(_) => http::header::COOKIE.as_str(),
        }
    }
}

impl ClientKey {
    /// Key of all clients together.
    pub const SHARED_BY_ALL: Self = Self(CLASS_TAG);

    pub(super) fn from_v4(address: Ipv4Addr) -> Self {
        Self(u32::from(address).into())
    }

    /// Creates the key of an IPv6 prefix from its upper half. A forged address in 8000::/2 cannot collide with another
    /// kind.
    pub(super) fn from_v6(upper: u64) -> Self {
        Self(if upper & ADDRESS_TAG_MASK == NON_ADDRESS_TAG { upper ^ ADDRESS_TAG_MASK } else { upper })
    }

    /// Creates the key of a credential from its hash, which is keyed per process.
    pub const fn from_credential(hash: u64) -> Self {
        Self(CREDENTIAL_TAG | hash & !KIND_MASK)
    }

    /// Creates the key of a class as a whole, which is the same in each process.
    pub fn of_class(name: &str) -> Self {
        Self(CLASS_TAG | fnv1a(name.bytes()) & !KIND_MASK)
    }

    /// Creates the key of a budget that many keys share.
    pub const fn of_shared_budget(number: u64) -> Self {
        Self(SHARED_BUDGET_TAG | number & !KIND_MASK)
    }

    /// Creates the shared key of an operator's crawlers.
    pub fn from_operator(operator: OperatorId) -> Self {
        Self(OPERATOR_TAG | u64::from(operator.0))
    }

    /// Returns the key as one number, for maps.
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// Restores a key from [`ClientKey::to_u64`].
    pub const fn from_u64(number: u64) -> Self {
        Self(number)
    }

    /// Returns true for the key of a credential.
    pub fn is_credential(&self) -> bool {
        matches!(self.owner(), KeyOwner::Credential(_))
    }

    /// Returns the network of an address as one number: a /24 for IPv4, a /48 for IPv6.
    pub const fn network(self) -> u64 {
        self.0 >> if self.0 <= u32::MAX as u64 { 8 } else { 16 }
    }

    /// Returns the block of addresses that one holder may have, as one number: the network for IPv4, a /29 for IPv6, which RIPE allocates
    /// to any provider (RIPE-738 section 5.1.2).
    pub const fn allocation(self) -> u64 {
        if self.0 <= u32::MAX as u64 { self.network() } else { self.0 >> 35 }
    }

    /// Returns the owner of the key. Values below 2^32 are IPv4 addresses: as IPv6, only unassigned `::/32` has them.
    pub fn owner(self) -> KeyOwner {
        match self.0 & KIND_MASK {
            CREDENTIAL_TAG => KeyOwner::Credential(self.0 & !KIND_MASK),
            OPERATOR_TAG => KeyOwner::Operator(OperatorId(self.0 as u16)),
            CLASS_TAG => KeyOwner::Class,
            SHARED_BUDGET_TAG => KeyOwner::SharedBudget,
            _ => match u32::try_from(self.0) {
                Ok(v4) => KeyOwner::V4(v4.into()),
                Err(_) => KeyOwner::V6(Ipv6Addr::from(u128::from(self.0) << 64)),
            },
        }
    }

    /// Formats the key for display; shows the hash of a credential, never its value. `name` maps operators to names.
    pub fn display<'a>(self, name: impl Fn(OperatorId) -> &'a str) -> impl Display {
        fmt::from_fn(move |out| match self.owner() {
            KeyOwner::V4(address) => address.fmt(out),
            KeyOwner::V6(address) => address.fmt(out),
            KeyOwner::Credential(hash) => write!(out, "hash:{hash:015x}"),
            KeyOwner::Operator(operator) => write!(out, "operator:{}", name(operator)),
            KeyOwner::Class => out.write_str("class"),
            KeyOwner::SharedBudget => out.write_str("shared"),
        })
    }
}

/// Returns the value of cookie `name` in the `Cookie` field lines `lines`; `None` if missing or empty.
pub fn cookie<'a>(lines: impl Iterator<Item = &'a [u8]>, name: &str) -> Option<&'a [u8]> {
    lines
        .flat_map(|line| line.split(|&byte| byte == b';'))
        .filter_map(|pair| pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"="))
        .map(<[u8]>::trim_ascii)
        .next()
        .filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn display(key: ClientKey) -> String {
        key.display(|_| "googlebot").to_string()
    }

    #[test]
    fn key_display_shows_the_owner_without_secrets() {
        assert_eq!(display(ClientKey::from_v4([192, 0, 2, 1].into())), "192.0.2.1");
        assert_eq!(display(ClientKey::from_v6(0x2001_0db8_0001_0002)), "2001:db8:1:2::");
        assert_eq!(display(ClientKey::from_credential(u64::MAX)), "hash:fffffffffffffff");
        assert_eq!(display(ClientKey::from_operator(OperatorId(7))), "operator:googlebot");
        assert_eq!(ClientKey::from_operator(OperatorId(u16::MAX)).owner(), KeyOwner::Operator(OperatorId(u16::MAX)));
        assert_eq!(display(ClientKey::of_class("bots")), "class");
    }

    #[test]
    fn each_kind_of_key_has_its_own_number() {
        let keys = [
            (ClientKey::from_v4([192, 0, 2, 1].into()), 0xc000_0201, 0xc0_0002, 0xc0_0002),
            (ClientKey::from_v6(0x2001_0db8_0001_0002), 0x2001_0db8_0001_0002, 0x2001_0db8_0001, 0x2001_0db8 >> 3),
            (ClientKey::from_v6(0x8000_0000_0000_0001), 0x4000_0000_0000_0001, 0x4000_0000_0000, 0x4000_0000 >> 3),
            (
                ClientKey::from_credential(0xffff_0000_0000_0001),
                0x8fff_0000_0000_0001,
                0x8fff_0000_0000,
                0x8fff_0000 >> 3,
            ),
            (ClientKey::from_operator(OperatorId(5)), 0x9000_0000_0000_0005, 0x9000_0000_0000, 0x9000_0000 >> 3),
            (ClientKey::SHARED_BY_ALL, 0xa000_0000_0000_0000, 0xa000_0000_0000, 0xa000_0000 >> 3),
        ];
        for (key, number, network, allocation) in keys {
            assert_eq!((key.to_u64(), key.network(), key.allocation()), (number, network, allocation), "{key:?}");
            assert_eq!(ClientKey::from_u64(number), key);
        }
        assert_eq!(ClientKey::from_u64(u32::MAX.into()).network(), 0xff_ffff);
        let sources = [CredentialSource::Header(http::header::AUTHORIZATION), CredentialSource::Cookie("a".into())];
        assert_eq!(sources.each_ref().map(CredentialSource::header), ["authorization", "cookie"]);
    }

    #[test]
    fn cookie_is_found_at_any_position() {
        let cookie_value = |lines: &[&str], name| {
            let lines = lines.iter().map(|line| line.as_bytes());
            cookie(lines, name).map(|value| String::from_utf8_lossy(value).into_owned())
        };
        for (lines, value) in [
            (&["session=abc"][..], Some("abc")),
            (&["a=1; session=abc; b=2"], Some("abc")),
            (&["a=1;session=abc"], Some("abc")),
            (&["a=1", "session=abc"], Some("abc")),
            (&["session=a=b"], Some("a=b")),
            (&["session=first; session=second"], Some("first")),
            (&["my_session=abc; sessions=1; Session=2"], None),
            (&["session="], None),
            (&["session"], None),
            (&[], None),
        ] {
            assert_eq!(cookie_value(lines, "session").as_deref(), value, "{lines:?}");
        }
    }

    proptest! {
        #[test]
        fn address_keys_never_collide_with_credential_keys(upper: u64) {
            prop_assert!(matches!(ClientKey::from_v6(upper).owner(), KeyOwner::V4(_) | KeyOwner::V6(_)));
            prop_assert!(matches!(ClientKey::from_credential(upper).owner(), KeyOwner::Credential(_)));
        }
    }
}
