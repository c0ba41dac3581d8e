//! Who pays together: one address, one secret that is sent along, one operator, or a class as a whole.

use crate::policy::facts::OperatorId;
use std::fmt::{self, Display};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Who shares one bucket of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeySource {
    /// Who comes from one address, or one IPv6 prefix.
    #[default]
    Address,
    /// Who sends the same value there; who sends none, by address.
    Credential(CredentialSource),
    /// All crawlers of one proven operator; who has none, by address.
    Operator,
    /// Everybody in the class.
    Class,
}

/// Where a client sends what it is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialSource {
    /// In this header: its whole value.
    Header(http::HeaderName),
    /// In this cookie.
    Cookie(String),
}

/// One client, as buckets and counters know it, in one number: its address (IPv4, or the prefix of an IPv6 one), or what
/// else says who pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey(u64);

/// What a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOwner {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// The first address of an IPv6 prefix.
    V6(Ipv6Addr),
    /// The hash of a secret.
    Secret(u64),
    /// An operator.
    Operator(OperatorId),
    /// A class as a whole; which one stands beside the key.
    Class,
}

/// No address begins like this (8000::/2 is nobody's), so these are the keys that are none. The kind follows in two bits.
const NO_ADDRESS: u64 = 0b10 << 62;
const ADDRESS_OR_NOT: u64 = 0b11 << 62;
const SECRET: u64 = NO_ADDRESS;
const OPERATOR: u64 = NO_ADDRESS | 0b01 << 60;
const CLASS: u64 = NO_ADDRESS | 0b10 << 60;
const KIND: u64 = 0b1111 << 60;

impl CredentialSource {
    /// The name of the header that it is sent in.
    pub fn header(&self) -> &str {
        match self {
            Self::Header(name) => name.as_str(),
            Self::Cookie(_) => http::header::COOKIE.as_str(),
        }
    }
}

impl ClientKey {
    /// The key of everybody in a class together.
    pub const OF_CLASS: Self = Self(CLASS);

    pub(super) fn of_v4(address: Ipv4Addr) -> Self {
        Self(u32::from(address).into())
    }

    /// The key of an IPv6 prefix, by its upper half. A made-up address must not pass for something else.
    pub(super) fn of_v6(upper: u64) -> Self {
        Self(if upper & ADDRESS_OR_NOT == NO_ADDRESS { upper ^ ADDRESS_OR_NOT } else { upper })
    }

    /// The key of a secret, by a hash of it that nobody outside this process can compute.
    pub const fn from_credential(hash: u64) -> Self {
        Self(SECRET | hash & !KIND)
    }

    /// The key of all crawlers of an operator.
    pub fn from_operator(operator: OperatorId) -> Self {
        Self(OPERATOR | u64::from(operator.0))
    }

    /// The key as one number, for maps.
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// The key that [`ClientKey::to_u64`] gave.
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The network around an address, as one number: 256 IPv4 addresses, or an IPv6 /48.
    pub const fn network(self) -> u64 {
        self.0 >> if self.0 <= u32::MAX as u64 { 8 } else { 16 }
    }

    /// Who it is. Below 2^32 lies only `::/32`, which nobody has: those are IPv4 addresses.
    pub fn owner(self) -> KeyOwner {
        match self.0 & KIND {
            SECRET => KeyOwner::Secret(self.0 & !KIND),
            OPERATOR => KeyOwner::Operator(OperatorId(self.0 as u16)),
            CLASS => KeyOwner::Class,
            _ => match u32::try_from(self.0) {
                Ok(v4) => KeyOwner::V4(v4.into()),
                Err(_) => KeyOwner::V6(Ipv6Addr::from(u128::from(self.0) << 64)),
            },
        }
    }

    /// The key for people to read: never a secret, only its hash. `name` is that of an operator.
    pub fn display<'a>(self, name: impl Fn(OperatorId) -> &'a str) -> impl Display {
        fmt::from_fn(move |out| match self.owner() {
            KeyOwner::V4(address) => address.fmt(out),
            KeyOwner::V6(address) => address.fmt(out),
            KeyOwner::Secret(hash) => write!(out, "hash:{hash:015x}"),
            KeyOwner::Operator(operator) => write!(out, "operator:{}", name(operator)),
            KeyOwner::Class => out.write_str("class"),
        })
    }
}

/// The value of the cookie called `name`; `None` where there is none, or nothing in it. `lines` are those of `Cookie`.
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
    fn a_key_tells_who_pays_but_no_secret() {
        assert_eq!(display(ClientKey::of_v4([192, 0, 2, 1].into())), "192.0.2.1");
        assert_eq!(display(ClientKey::of_v6(0x2001_0db8_0001_0002)), "2001:db8:1:2::");
        assert_eq!(display(ClientKey::from_credential(u64::MAX)), "hash:fffffffffffffff");
        assert_eq!(display(ClientKey::from_operator(OperatorId(7))), "operator:googlebot");
        assert_eq!(ClientKey::from_operator(OperatorId(u16::MAX)).owner(), KeyOwner::Operator(OperatorId(u16::MAX)));
        assert_eq!(display(ClientKey::OF_CLASS), "class");
    }

    #[test]
    fn a_cookie_is_found_wherever_it_stands() {
        let found = |lines: &[&str], name| {
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
            assert_eq!(found(lines, "session").as_deref(), value, "{lines:?}");
        }
    }

    proptest! {
        #[test]
        fn no_address_passes_for_another_kind_of_key(upper: u64) {
            prop_assert!(matches!(ClientKey::of_v6(upper).owner(), KeyOwner::V4(_) | KeyOwner::V6(_)));
            prop_assert!(matches!(ClientKey::from_credential(upper).owner(), KeyOwner::Secret(_)));
        }
    }
}
