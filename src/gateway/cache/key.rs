//! Keys of stored responses: hashes of what selects a response.

use super::fetch_rules::FetchRules;
use super::field_lines::MessageFields;
use crate::gateway::message::page_url::{canonical_url, is_canonical};
use crate::gateway::message::site::Site;
use aws_lc_rs::digest::{SHA256, digest};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::hash::BuildHasher;
use tidegate_http_cache::coding::Coding;
use tidegate_http_cache::vary::SelectingFields;
use tidegate_http1::{Field, Fields, Name};
use tidegate_policy::cache::{CacheRules, RouteCacheRules, query_filter};

/// Beginning of the name of a selecting field that is one cookie.
pub(super) const COOKIE_PREFIX: &str = "cookie:";

/// Names of the parts of a key that are the name of the origin, and a condition of the route.
const ORIGIN_PART: &[u8] = b":origin";
const CONDITION_PART: &[u8] = b":condition";

/// Key of a stored response: half of a SHA-256, so that no client finds two requests with one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::gateway) struct CacheKey(u128);

/// Key of a URL, before `Vary` selects among its responses.
#[derive(Clone, Debug)]
pub(in crate::gateway) struct UrlKey {
    /// Key of the URL, and of the fields that are keyed by their values.
    pub(in crate::gateway) key: CacheKey,
    /// The key has more than the URL: fields of the request, keyed by their values, or the origin or the conditions of the route.
    has_more_parts: bool,
    /// Scheme, host, path and query, as far as they are part of the key.
    pub(in crate::gateway) url: String,
    /// Length of the URL up to its path.
    path_start: usize,
    /// The URL is not spelled canonically.
    is_respelled: bool,
}

impl UrlKey {
    /// Returns the key of a request with `fields` for `path` and `query`, as the origin is sent them.
    pub(in crate::gateway) fn for_request(
        site: &Site,
        path: &str,
        query: Option<&str>,
        fields: &Fields,
        rules: FetchRules<'_>,
    ) -> Self {
        let (url, path_start) = keyed_url(site, path, query, rules.rules, rules.route);
        let (key, has_more_parts) = key(&url, fields, rules);
        let is_respelled = !is_canonical(path, query);
        Self { key, has_more_parts, url, path_start, is_respelled }
    }

    /// Returns the key of the same URL for a request with other fields, or under other rules.
    pub(in crate::gateway) fn with_fields(self, fields: &Fields, rules: FetchRules<'_>) -> Self {
        let (key, has_more_parts) = key(&self.url, fields, rules);
        Self { key, has_more_parts, ..self }
    }

    /// Returns the key of the URL alone, in its canonical spelling.
    pub(in crate::gateway) fn plain(&self) -> CacheKey {
        if self.is_plain() { self.key } else { CacheKey::of_url(&canonical_url(&self.url)) }
    }

    /// Returns true if the key is that of the URL alone.
    pub(in crate::gateway) fn is_plain(&self) -> bool {
        !self.has_more_parts && !self.is_respelled
    }

    /// Returns the host, with its port unless that is the one of the scheme.
    pub(in crate::gateway) fn host(&self) -> &str {
        self.url[..self.path_start].split_once("://").map_or("", |(_, host)| host)
    }

    /// Returns the scheme.
    pub(in crate::gateway) fn scheme(&self) -> &str {
        self.url.split_once("://").map_or("", |(scheme, _)| scheme)
    }

    /// Returns path and query for the origin.
    pub(in crate::gateway) fn path_and_query(&self) -> &str {
        &self.url[self.path_start..]
    }
}

/// Returns the URL of a GET request, as far as it is part of the key, and its length up to the path.
pub(in crate::gateway) fn keyed_url(
    site: &Site,
    path: &str,
    query: Option<&str>,
    rules: &CacheRules,
    route: &RouteCacheRules,
) -> (String, usize) {
    let mut url = String::with_capacity(site.host().len() + path.len() + query.map_or(0, str::len) + 16);
    url.extend([site.scheme(), "://", site.host()]);
    let path_start = url.len();
    url.push_str(path);
    if let Some(query) = query {
        let query = query_filter::filter(query, route.key_parameters.as_deref(), &rules.ignored_parameters);
        if !query.is_empty() {
            url.extend(["?", &query]);
        }
    }
    (url, path_start)
}

/// Returns the key of a URL, of its origin if there are several, of the conditions of its route, and of those `fields` that are
/// keyed by their values; and whether it has more parts than the URL.
fn key(url: &str, fields: &Fields, rules: FetchRules<'_>) -> (CacheKey, bool) {
    let mut hash = KeyHash::new();
    hash.add(Some(url.as_bytes()));
    // Another route may send requests for the URL to another origin. No field has this name.
    if let Some(origin) = &rules.route.key_origin {
        hash.add(Some(ORIGIN_PART));
        hash.add(Some(origin.as_bytes()));
    }
    for condition in &rules.route.key_conditions {
        hash.add(Some(CONDITION_PART));
        hash.add(Some(condition.as_bytes()));
    }
    let mut keyed: SmallVec<[Field<'_>; 4]> = rules.keyed_by_value(fields).collect();
    keyed.sort_by(|one, other| lower_case(one.text).cmp(lower_case(other.text)));
    for field in &keyed {
        hash.add_lower_case(field.text);
        hash.add(Some(field.value));
    }
    let is_of_route = rules.route.key_origin.is_some() || !rules.route.key_conditions.is_empty();
    (hash.finish(), is_of_route || !keyed.is_empty())
}

fn lower_case(text: &[u8]) -> impl Iterator<Item = u8> {
    text.iter().map(u8::to_ascii_lowercase)
}

impl CacheKey {
    /// Returns the key that another process of this gateway has sent.
    pub(in crate::gateway) fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// Returns the key for another process.
    pub(super) fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Returns the key as a number.
    pub(super) fn number(self) -> u128 {
        self.0
    }

    /// Returns the group of the responses of the URL with this key, for removals.
    pub(super) fn group(self) -> u64 {
        self.0 as u64
    }

    /// Returns the key of a URL.
    pub(in crate::gateway) fn of_url(url: &str) -> Self {
        let mut hash = KeyHash::new();
        hash.add(Some(url.as_bytes()));
        hash.finish()
    }

    /// Returns the key of a compressed form of the response with this version.
    pub(super) fn of_form(version: u64, coding: Coding) -> Self {
        let mut hash = KeyHash::new();
        hash.add(Some(coding.name().as_bytes()));
        hash.add(Some(&version.to_le_bytes()));
        hash.finish()
    }

    /// Returns the key of the response that `values` select among those of the URL with this key, which have `salt`.
    pub(super) fn of_variant(self, salt: u64, values: &SelectedValues) -> Self {
        let mut hash = KeyHash::new();
        hash.add(Some(&self.0.to_le_bytes()));
        hash.add(Some(&salt.to_le_bytes()));
        hash.0.extend_from_slice(&values.0.0);
        hash.finish()
    }
}

/// Names and values of the request fields that select a response.
#[derive(Clone, Debug)]
pub(in crate::gateway) struct SelectedValues(KeyHash);

impl SelectedValues {
    /// Returns the values in a request with `fields`. The absence of a field is a value.
    pub(super) fn read(selected_by: &SelectingFields, fields: &Fields) -> Self {
        let mut values = KeyHash::new();
        selected_by.values(&MessageFields(fields), |name, value| {
            values.add(Some(name.as_bytes()));
            values.add(value);
        });
        for name in selected_by.names() {
            if let Some(cookie_name) = name.strip_prefix(COOKIE_PREFIX) {
                values.add(cookie(fields, cookie_name));
            }
        }
        Self(values)
    }
}

/// Returns the value of the first cookie with that name.
pub(super) fn cookie<'a>(fields: &'a Fields, name: &str) -> Option<&'a [u8]> {
    cookies(fields).find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// Iterates over the cookies of a request: name, equals sign, value.
fn cookies(fields: &Fields) -> impl Iterator<Item = &[u8]> {
    fields.all(Name::Cookie).flat_map(|line| line.split(|&byte| byte == b';')).map(<[u8]>::trim_ascii)
}

/// Hash of a list of byte strings. Each is preceded by its length, so that no two lists are hashed alike.
///
/// The list is collected first: that of most requests is among the [recent ones](RecentKeys), and is not hashed at all.
#[derive(Clone, Debug)]
struct KeyHash(Vec<u8>);

/// Bytes of a typical list.
const TYPICAL_LIST: usize = 256;

impl KeyHash {
    fn new() -> Self {
        Self(Vec::with_capacity(TYPICAL_LIST))
    }

    fn add(&mut self, part: Option<&[u8]>) {
        let length = part.map_or(u64::MAX, |part| part.len() as u64);
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(part.unwrap_or_default());
    }

    fn add_lower_case(&mut self, part: &[u8]) {
        self.add(Some(part));
        let start = self.0.len() - part.len();
        self.0[start..].make_ascii_lowercase();
    }

    fn finish(self) -> CacheKey {
        RECENT_KEYS.with_borrow_mut(|recent| recent.key(&self.0))
    }
}

thread_local! {
    static RECENT_KEYS: RefCell<RecentKeys> = RefCell::default();
}

/// Keys of lists that were hashed recently: a cryptographic hash takes longer than all else that finds a stored response.
/// A client can only replace keys of others, which are then hashed again.
struct RecentKeys {
    /// Keys, each at the slot of its list.
    keys: Box<[Option<RecentKey>; RECENT_SLOTS]>,
    /// Hashes lists to slots, which no client can know.
    slots: foldhash::fast::RandomState,
}

struct RecentKey {
    list: Box<[u8]>,
    key: CacheKey,
}

/// Number of keys that a thread remembers, a power of two. Each takes at most [`TYPICAL_LIST`] bytes and 32 more.
const RECENT_SLOTS: usize = 1024;

impl Default for RecentKeys {
    fn default() -> Self {
        Self { keys: Box::new([const { None }; RECENT_SLOTS]), slots: foldhash::fast::RandomState::default() }
    }
}

impl RecentKeys {
    fn key(&mut self, list: &[u8]) -> CacheKey {
        let slot = &mut self.keys[self.slots.hash_one(list) as usize % RECENT_SLOTS];
        match slot {
            Some(recent) if *recent.list == *list => recent.key,
            _ => {
                let key = hash(list);
                if list.len() <= TYPICAL_LIST {
                    *slot = Some(RecentKey { list: list.into(), key });
                }
                key
            }
        }
    }
}

fn hash(list: &[u8]) -> CacheKey {
    let digest = digest(&SHA256, list);
    let mut half = [0; 16];
    half.copy_from_slice(&digest.as_ref()[..16]);
    CacheKey(u128::from_le_bytes(half))
}

#[cfg(test)]
mod tests {
    use super::super::fetch_rules::tests::cache_rules;
    use super::*;
    use proptest::prelude::*;

    /// Returns the key of a request for a URL with `fields`.
    fn key_of(url: &str, fields: &[(String, String)]) -> (CacheKey, bool) {
        let rules = cache_rules(Vec::new());
        let route = RouteCacheRules::default();
        let rules = FetchRules {
            rules: &rules,
            route: &route,
            address_header: None,
            names_clients: false,
            is_compressed: false,
        };
        let fields = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        key(url, &fields, rules)
    }

    proptest! {
        #[test]
        fn recent_keys_are_those_of_the_hash(
            lists in proptest::collection::vec("[a-c]{1,3}|[a-z]{300}", 1..20), picks in proptest::collection::vec(0..20_usize, 60),
        ) {
            let mut recent = RecentKeys::default();
            for pick in picks {
                let list = lists[pick % lists.len()].as_bytes();
                prop_assert_eq!(recent.key(list), hash(list));
            }
            let remembered = recent.keys.iter().flatten();
            let is_right = |RecentKey { list, key }: &RecentKey| list.len() <= TYPICAL_LIST && *key == hash(list);
            prop_assert!(remembered.into_iter().all(is_right));
        }

        #[test]
        fn keys_differ_as_url_and_keyed_fields_do(
            url in "http://[ab]{0,2}", other_url in "http://[ab]{0,2}",
            fields in proptest::collection::vec(("x-[ab]{1,2}", "[ab]{0,2}"), 0..3),
            others in proptest::collection::vec(("x-[ab]{1,2}", "[ab]{0,2}"), 0..3),
        ) {
            // Fields of one name keep their order, whatever is between them.
            let sorted = |fields: &[(String, String)]| {
                let mut sorted = fields.to_vec();
                sorted.sort_by(|(one, _), (other, _)| one.cmp(other));
                sorted
            };
            let is_same = url == other_url && sorted(&fields) == sorted(&others);
            prop_assert_eq!(key_of(&url, &fields) == key_of(&other_url, &others), is_same);
            let upper = |(name, value): &(String, String)| (name.to_ascii_uppercase(), value.clone());
            let shouted: Vec<_> = sorted(&fields).iter().map(upper).collect();
            prop_assert_eq!(key_of(&url, &shouted), key_of(&url, &fields));
            prop_assert_eq!(key_of(&url, &fields) == (CacheKey::of_url(&url), false), fields.is_empty());
        }
    }
}
