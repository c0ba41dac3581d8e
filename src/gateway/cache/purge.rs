//! Removal of stored responses by an administrator.

use super::key::keyed_url;
use super::store::CacheStore;
use crate::gateway::message::page_url::{PageUrl, canonical_url};
use tidegate_policy::Rules;
use tidegate_policy::cache::RouteCacheRules;

/// Stored responses to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CachePurge {
    /// The responses of a URL.
    Url(String),
    /// The responses of all URLs that begin so.
    Prefix(String),
    /// The responses with a tag in `Cache-Tag` or `Surrogate-Key`.
    Tag(String),
}

impl CachePurge {
    /// Removes the responses from `store`. Returns their number, or an error of one line.
    pub(in crate::gateway) fn apply(&self, rules: &Rules, store: &CacheStore) -> Result<u64, String> {
        match self {
            Self::Tag(tag) if tag.is_empty() => Err("tag: found nothing; give a tag".to_owned()),
            Self::Tag(tag) => Ok(store.remove_tag(tag)),
            Self::Url(text) => {
                let url = PageUrl::parse(text).ok_or_else(|| invalid("url", text))?;
                Ok(store.remove_url(&canonical_url(&stored_url(&url, rules))))
            }
            Self::Prefix(text) => {
                let prefix = PageUrl::parse(text).ok_or_else(|| invalid("prefix", text))?;
                Ok(store.remove_prefix(&canonical_url(&prefix.to_string())))
            }
        }
    }
}

fn invalid(key: &str, found: &str) -> String {
    format!("{key}: found {found:?}; give a URL with scheme and host, such as https://example.com/item/42")
}

/// Returns the URL of a GET request as it is stored.
fn stored_url(url: &PageUrl, rules: &Rules) -> String {
    let no_rules = RouteCacheRules::default();
    let route = url.to_uri().and_then(|uri| rules[url.site.route(&uri, rules)].cache.as_ref()).unwrap_or(&no_rules);
    match &rules.cache {
        Some(cache_rules) => keyed_url(&url.site, url.path(), url.query(), cache_rules, route).0,
        None => url.to_string(),
    }
}
