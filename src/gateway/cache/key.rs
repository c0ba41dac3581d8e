//! Keys of stored responses: hashes of what selects a response.

use super::fetch_rules::FetchRules;
use super::field_lines::MessageFields;
use super::variants::Variants;
use crate::gateway::site::Site;
use aws_lc_rs::digest::{Context, SHA256};
use smallvec::SmallVec;
use tidegate_http1::{Field, Fields, Name};
use tidegate_policy::cache::{CacheRules, RouteCacheRules, query_filter};

/// Beginning of the name of a selecting field that is one cookie.
pub(super) const COOKIE_PREFIX: &str = "cookie:";

/// Key of a stored response: half of a SHA-256, so that no client finds two requests with one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::gateway) struct CacheKey(u128);

/// Key of a URL, before `Vary` selects among its responses.
#[derive(Clone, Debug)]
pub(in crate::gateway) struct UrlKey {
    /// Key of the URL, and of the fields that are keyed by their values.
    pub(in crate::gateway) key: CacheKey,
    /// Key of the URL alone.
    plain: CacheKey,
    /// Scheme, host, path and query, as far as they are part of the key.
    pub(in crate::gateway) url: String,
    /// Length of the URL up to its path.
    path_start: usize,
}

impl UrlKey {
    /// Returns the key of a request for `path` and `query` as the origin is sent them.
    pub(in crate::gateway) fn new(
        site: &Site,
        path: &str,
        query: Option<&str>,
        rules: &CacheRules,
        route: &RouteCacheRules,
    ) -> Self {
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
        let plain = CacheKey::of_url(&url);
        Self { key: plain, plain, url, path_start }
    }

    /// Returns the key for a request with `fields`.
    pub(in crate::gateway) fn for_request(self, fields: &Fields, rules: FetchRules<'_>) -> Self {
        let mut keyed: SmallVec<[Field<'_>; 4]> =
            fields.iter().filter(|field| rules.is_keyed_by_value(*field)).collect();
        if keyed.is_empty() {
            return Self { key: self.plain, ..self };
        }
        keyed.sort_by_key(|field| field.text.to_ascii_lowercase());
        let mut hash = KeyHash::new();
        hash.add(Some(&self.plain.0.to_le_bytes()));
        for field in keyed {
            hash.add(Some(&field.text.to_ascii_lowercase()));
            hash.add(Some(field.value));
        }
        Self { key: hash.finish(), ..self }
    }

    /// Returns the key of the URL alone.
    pub(in crate::gateway) fn plain(&self) -> CacheKey {
        self.plain
    }

    /// Returns path and query for the origin.
    pub(in crate::gateway) fn path_and_query(&self) -> &str {
        &self.url[self.path_start..]
    }
}

impl CacheKey {
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

    /// Returns the key of the response to a request with `fields`, among the `variants` of the URL with this key.
    pub(in crate::gateway) fn of_variant(self, variants: &Variants, fields: &Fields) -> Self {
        let mut hash = KeyHash::new();
        hash.add(Some(&self.0.to_le_bytes()));
        hash.add(Some(&variants.salt.to_le_bytes()));
        variants.selected_by.values(&MessageFields(fields), |name, value| {
            hash.add(Some(name.as_bytes()));
            hash.add(value);
        });
        for name in variants.selected_by.names() {
            if let Some(cookie_name) = name.strip_prefix(COOKIE_PREFIX) {
                hash.add(cookie(fields, cookie_name));
            }
        }
        hash.finish()
    }
}

/// Returns the first cookie with that name.
fn cookie<'a>(fields: &'a Fields, name: &str) -> Option<&'a [u8]> {
    cookies(fields).find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// Iterates over the cookies of a request: name, equals sign, value.
pub(super) fn cookies(fields: &Fields) -> impl Iterator<Item = &[u8]> {
    fields.all(Name::Cookie).flat_map(|line| line.split(|&byte| byte == b';')).map(<[u8]>::trim_ascii)
}

/// Hash of a list of byte strings. Each is preceded by its length, so that no two lists are hashed alike.
struct KeyHash(Context);

impl KeyHash {
    fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    fn add(&mut self, part: Option<&[u8]>) {
        let length = part.map_or(u64::MAX, |part| part.len() as u64);
        self.0.update(&length.to_le_bytes());
        self.0.update(part.unwrap_or_default());
    }

    fn finish(self) -> CacheKey {
        let digest = self.0.finish();
        let mut half = [0; 16];
        half.copy_from_slice(&digest.as_ref()[..16]);
        CacheKey(u128::from_le_bytes(half))
    }
}
