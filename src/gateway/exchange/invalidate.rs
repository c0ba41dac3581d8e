//! What a successful write invalidates (RFC 9111 section 4.4).

use crate::gateway::cache::{CacheKey, keyed_url};
use crate::gateway::exchange::known::Known;
use crate::gateway::message::page_url::{PageUrl, canonical_url};
use crate::gateway::message::site::Site;
use crate::gateway::upstream::OriginBody;
use http::Method;
use tidegate_http_cache::invalidation::{invalidates, naming_fields};
use tidegate_http1::Response;
use tidegate_policy::cache::RouteCacheRules;
use tidegate_policy::{RequestFacts, path};

/// Invalidates the stored responses that the response to a write changes: those of its URL, and of the URLs on the same
/// site that it names.
pub(in crate::gateway) fn invalidate(known: &Known, response: &Response<OriginBody>) {
    let head = &known.request.head;
    let rules = known.rules();
    let status = response.status.as_u16();
    if rules.cache.is_none() || !invalidates(&head.method, status) {
        return;
    }
    let site = Site::from_head(head, known.is_https());
    invalidate_page(known, &site, head.target.path(), head.target.query());
    let values = naming_fields(status).iter().filter_map(|name| response.fields.get_all_by_text(name).next());
    for reference in values.filter_map(|value| std::str::from_utf8(value).ok()) {
        let named = PageUrl::resolve(&site, head.target.path(), reference);
        if let Some(page) = named.filter(|page| page.site == site) {
            invalidate_page(known, &site, page.path(), page.query());
        }
    }
}

/// Invalidates the stored responses of a page.
pub(in crate::gateway) fn invalidate_page(known: &Known, site: &Site, path: &str, query: Option<&str>) {
    let rules = known.rules();
    let Some(cache_rules) = &rules.cache else { return };
    let normalized = path::normalize(path).unwrap_or_else(|_| path.into());
    let facts = known.request.facts();
    let facts = RequestFacts { method: &Method::GET, path: &normalized, other_paths: &[], query, ..facts };
    let no_rules = RouteCacheRules::default();
    let route = rules[rules.route(&facts)].cache.as_ref().unwrap_or(&no_rules);
    let (spelled, _) = keyed_url(site, path, query, cache_rules, route);
    let url = CacheKey::of_url(&canonical_url(&spelled));
    let cache = &known.worker().shared().cache;
    cache.invalidate(url, CacheKey::of_url(&spelled), known.address_key(), known.worker().now());
}
