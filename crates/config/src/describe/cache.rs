//! Summary of the cache.

use super::format;
use crate::scalars::Size;
use crate::settings::Cache;
use std::time::Duration;
use tidegate_policy::cache::{CacheRules, RouteCacheRules};

/// Describes the cache.
pub(super) fn cache(cache: Option<Cache>, rules: Option<&CacheRules>) -> String {
    let (Some(cache), Some(rules)) = (cache, rules) else { return "off".to_owned() };
    let span = |span: Duration| if span.is_zero() { "never".to_owned() } else { format::duration(span) };
    let crowd = match rules.crowd_max_age {
        Duration::ZERO => String::new(),
        span => format!(", for a crowd: {}", format::duration(span)),
    };
    format!(
        "{} of memory, {}, bodies up to {}; stale in place of a refusal: {}, of an error: {}{crowd}",
        Size(cache.memory),
        cache.disk.map_or("no disk".to_owned(), |size| format!("{} of disk", Size(size))),
        Size(rules.max_object),
        span(rules.stale_when_refused),
        span(rules.stale_if_error)
    )
}

/// Describes the caching of a route as parts of a list.
pub(super) fn route(rules: &RouteCacheRules) -> Vec<String> {
    let mut parts = Vec::new();
    parts.extend(rules.ttl.map(|ttl| format!("fresh for {} where the origin does not say", format::duration(ttl))));
    if !rules.key_headers.is_empty() {
        parts.push(format!("one copy for each {}", rules.key_headers.join(", ")));
    }
    match rules.key_cookies.as_deref() {
        None => {}
        Some([]) => parts.push("cookies are not sent".to_owned()),
        Some(names) => parts.push(format!("one copy for each cookie {}", names.join(", "))),
    }
    if rules.key_parameters.is_some() {
        parts.push("only listed query parameters are sent".to_owned());
    }
    parts
}
