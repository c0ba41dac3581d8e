//! Listed API keys: known by their hashes, each of one customer and one class.

use super::Timestamp;
use super::hash::{fnv1a, mix};
use super::identity::ClientKey;
use super::ids::ClassId;
use std::collections::HashMap;

/// SHA-256 of the text of a key.
pub type KeyHash = [u8; 32];

/// Listed API keys, by hash. No time of a lookup depends on a key: a client does not choose the hash of what it sends.
#[derive(Clone, Debug, Default)]
pub struct ApiKeyList(HashMap<KeyHash, ApiKey>);

/// A listed API key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// Name of the customer.
    pub name: String,
    /// Class of its requests.
    pub class: ClassId,
    /// Time from which on the key is invalid; `None` if it does not expire.
    pub expires: Option<Timestamp>,
    /// True for a key that is invalid until further notice.
    pub disabled: bool,
}

/// Valid listed API key that a request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedKey {
    /// Class of the key.
    pub class: ClassId,
    /// Key of the customer in counters.
    pub customer: ClientKey,
}

impl ApiKey {
    /// Returns true if the key is neither disabled nor expired.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        !self.disabled && self.expires.is_none_or(|expires| now < expires)
    }
}

impl ApiKeyList {
    /// Creates the list of `keys`.
    pub fn new(keys: HashMap<KeyHash, ApiKey>) -> Self {
        Self(keys)
    }

    /// Returns true if no key is listed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the keys and their hashes, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&KeyHash, &ApiKey)> {
        self.0.iter()
    }

    /// Returns the key with a hash, valid or not.
    pub fn get(&self, hash: &KeyHash) -> Option<&ApiKey> {
        self.0.get(hash)
    }
}

impl From<&ApiKey> for ListedKey {
    fn from(key: &ApiKey) -> Self {
        Self { class: key.class, customer: customer(&key.name) }
    }
}

/// Returns the key of a customer in counters by its name. It is the same in each process and on each gateway, and stays the same
/// when the customer gets another API key.
pub fn customer(name: &str) -> ClientKey {
    ClientKey::from_credential(mix(fnv1a(name.bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_listed_key_that_is_valid_now_is_found() {
        const NOON: Timestamp = Timestamp::from_seconds(1_800_000_000);
        let key = |expires, disabled| ApiKey { name: "acme".into(), class: ClassId(1), expires, disabled };
        let keys = ApiKeyList::new(HashMap::from([
            ([1; 32], key(None, false)),
            ([2; 32], key(Some(NOON), false)),
            ([3; 32], key(None, true)),
        ]));
        let before = Timestamp::from_seconds(NOON.seconds() - 1);
        let found =
            |number, now| keys.get(&[number; 32]).filter(|key: &&ApiKey| key.is_valid(now)).map(ListedKey::from);
        let listed = Some(ListedKey { class: ClassId(1), customer: customer("acme") });
        assert_eq!([1, 2, 3, 4].map(|number| found(number, before)), [listed, listed, None, None]);
        assert_eq!(found(2, NOON), None, "it has expired");
        assert_ne!(customer("acme"), customer("acmf"));
    }
}
