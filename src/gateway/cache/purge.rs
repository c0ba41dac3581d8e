//! Removal of stored responses by an administrator.

use super::key::keyed_url;
use super::store::CacheStore;
use crate::gateway::site::Site;
use http::Uri;
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
                let (site, uri) = parse(text).ok_or_else(|| invalid("url", text))?;
                Ok(store.remove_url(&stored_url(&site, &uri, rules)))
            }
            Self::Prefix(prefix) => {
                let (site, uri) = parse(prefix).ok_or_else(|| invalid("prefix", prefix))?;
                let path = uri.path_and_query().map_or("/", |path| path.as_str());
                Ok(store.remove_prefix(&format!("{}{path}", site.key())))
            }
        }
    }
}

fn parse(url: &str) -> Option<(Site, Uri)> {
    let uri: Uri = url.parse().ok()?;
    let site = Site::from_url(&uri)?;
    Some((site, uri))
}

fn invalid(key: &str, found: &str) -> String {
    format!("{key}: found {found:?}; give a URL with scheme and host, such as https://example.com/item/42")
}

/// Returns the URL of a GET request as it is stored.
fn stored_url(site: &Site, uri: &Uri, rules: &Rules) -> String {
    let no_rules = RouteCacheRules::default();
    let route = rules[site.route(uri, rules)].cache.as_ref().unwrap_or(&no_rules);
    match &rules.cache {
        Some(cache_rules) => keyed_url(site, uri.path(), uri.query(), cache_rules, route).0,
        None => uri.to_string(),
    }
}
