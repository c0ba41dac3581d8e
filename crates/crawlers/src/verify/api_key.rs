//! Listed API keys in the header fields of a request.

use aws_lc_rs::digest::{SHA256, digest};
use tidegate_policy::Timestamp;
use tidegate_policy::api_keys::{ApiKeyList, KeyHash, ListedKey};

/// Header fields that carry a key: `Authorization` as a bearer token (RFC 6750 section 2.1), the others as their whole value.
pub const KEY_HEADERS: [&str; 3] = ["authorization", "x-api-key", "api-key"];

/// Maximum length of a key, in bytes. No longer one is hashed.
const MAX_KEY_LEN: usize = 512;

/// Maximum number of values that a request has in [`KEY_HEADERS`]. One with more has no key, so that none of them is unread.
const MAX_VALUES: usize = 8;

/// Returns the first listed key of a request, if all listed ones are valid: the origin may read another one. `header` returns the
/// values of a header field.
pub fn listed_key<'a, I: IntoIterator<Item = &'a [u8]>>(
    keys: &ApiKeyList,
    header: impl Fn(&'static str) -> I,
    now: Timestamp,
) -> Option<ListedKey> {
    if keys.is_empty() {
        return None;
    }
    let values = KEY_HEADERS.into_iter().flat_map(|name| header(name).into_iter().map(move |value| (name, value)));
    let mut found = None;
    for (index, (name, value)) in values.enumerate() {
        let key = if name == KEY_HEADERS[0] { bearer_token(value) } else { Some(value) };
        let listed = key.and_then(key_hash).and_then(|hash| keys.get(&hash));
        if index >= MAX_VALUES || listed.is_some_and(|key| !key.is_valid(now)) {
            return None;
        }
        found = found.or(listed);
    }
    found.map(ListedKey::from)
}

/// Returns the hash by which a key is listed; `None` for a text that is no key.
pub fn key_hash(key: &[u8]) -> Option<KeyHash> {
    let key = Some(key).filter(|key| (1..=MAX_KEY_LEN).contains(&key.len()))?;
    digest(&SHA256, key).as_ref().try_into().ok()
}

fn bearer_token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(b"bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use tidegate_policy::ClassId;
    use tidegate_policy::api_keys::ApiKey;

    #[test]
    fn key_is_found_in_each_header_that_carries_one() {
        let hash = key_hash(b"sk-acme").expect("a key");
        let key = ApiKey { name: "acme".into(), class: ClassId(0), expires: None, disabled: false };
        let disabled = ApiKey { name: "old".into(), disabled: true, ..key };
        let keys = ApiKeyList::new(HashMap::from([(hash, key), (key_hash(b"sk-old").expect("a key"), disabled)]));
        let found = |fields: &[(&str, &'static str)]| {
            let header =
                |name| fields.iter().filter(move |(field, _)| *field == name).map(|(_, value)| value.as_bytes());
            listed_key(&keys, header, Timestamp::default()).is_some()
        };
        assert!(found(&[("authorization", "Bearer sk-acme")]));
        assert!(found(&[("authorization", "bearer  sk-acme ")]));
        assert!(found(&[("x-api-key", "sk-acme")]) && found(&[("api-key", "sk-acme")]));
        assert!(found(&[("authorization", "Basic c2s6YWNtZQ=="), ("x-api-key", "sk-acme")]));
        for fields in [
            ("authorization", "sk-acme"),
            ("authorization", "Basic sk-acme"),
            ("authorization", "Bearer "),
            ("authorization", "Bearer sk-acm"),
            ("authorization", ""),
            ("x-api-key", "Bearer sk-acme"),
            ("x-key", "sk-acme"),
        ] {
            assert!(!found(&[fields]), "{fields:?}");
        }
        // A key that is not valid is not covered by one that is.
        for other in [("x-api-key", "sk-old"), ("authorization", "Bearer sk-old"), ("api-key", "sk-old")] {
            for own in [("authorization", "Bearer sk-acme"), ("x-api-key", "sk-acme")] {
                assert!(!found(&[own, other]) && !found(&[other, own]), "{own:?} {other:?}");
            }
        }
        let several = |count| [&[("x-api-key", "of the origin")].repeat(count)[..], &[("api-key", "sk-acme")]].concat();
        assert!(found(&several(MAX_VALUES - 1)) && !found(&several(MAX_VALUES)));
        assert_eq!((key_hash(b""), key_hash(&[b'a'; MAX_KEY_LEN + 1])), (None, None));
    }

    #[test]
    fn hash_of_a_key_is_its_sha_256() {
        let hash: String = key_hash(b"test").expect("a key").iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hash, "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08");
    }
}
