//! Validates `cache`, and the key `cache` of routes.

use super::diagnostics::Diagnostics;
use crate::raw::cache as raw;
use crate::scalars::{Field, Size};
use crate::serde_forms::OneOrMany;
use crate::setting_path::SettingPath;
use crate::settings::Cache;
use tidegate_policy::QuotaId;
use tidegate_policy::cache::query_filter::ParameterPattern;
use tidegate_policy::cache::{CacheRules, ReloadPolicy, RouteCacheRules};
use tidegate_policy::quota::Quota;

/// Part of the memory that one body may occupy.
const MAX_OBJECT_PART: u64 = 8;
/// Request fields that origins and frameworks commonly respond to.
const RESPONSE_CHANGING_HEADERS: [&str; 7] = [
    "accept",
    "accept-language",
    "user-agent",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-original-url",
    "x-rewrite-url",
];

/// Returns the settings of the store, and the rules; `None` without the section.
pub(super) fn cache(raw: Option<&raw::Cache>, report: &mut Diagnostics) -> Option<(Cache, CacheRules)> {
    let raw = raw?;
    let path = SettingPath::ROOT.cache();
    let largest = raw.memory / MAX_OBJECT_PART;
    if report.is_set(&path.max_object()) && raw.max_object > largest {
        let message = format!("needs at most an eighth of cache.memory, {}", Size(largest));
        report.contradiction(&path.max_object(), &[path.memory()], message, "lower it, or raise cache.memory");
    }
    let rules = CacheRules {
        max_object: raw.max_object.min(largest),
        ignored_parameters: patterns(&raw.ignore_query),
        stale_when_refused: raw.stale_when_refused,
        stale_if_error: raw.stale_if_error,
        crowd_max_age: raw.crowd_max_age,
        reload: match raw.reload {
            raw::Reload::People => ReloadPolicy::People,
            raw::Reload::All => ReloadPolicy::All,
            raw::Reload::None => ReloadPolicy::None,
        },
        unkeyed_headers: unkeyed_headers(&raw.unkeyed_headers, &path.unkeyed_headers(), report),
    };
    let disk = match &raw.disk {
        raw::Disk::Off => None,
        raw::Disk::Options(options) => Some(options.size),
    };
    Some((Cache { memory: raw.memory, disk, refreshes_surplus: raw.refresh == raw::Refresh::Surplus }, rules))
}

/// Returns the rules of a route; `None` if it is not cached.
pub(super) fn route_cache(
    raw: Option<&raw::RouteCache>,
    is_enabled: bool,
    path: &SettingPath,
    quotas: &[Quota],
    report: &mut Diagnostics,
) -> Option<RouteCacheRules> {
    let options = match raw {
        None => return is_enabled.then(RouteCacheRules::default),
        Some(raw::RouteCache::Off) => return None,
        Some(raw::RouteCache::Options(options)) => options,
    };
    if !is_enabled {
        report.error(path, "needs the section cache", "add cache: {} at the top level, or remove this key");
        return None;
    }
    let mut revalidation_costs = Vec::new();
    for (name, amount) in &options.revalidation_cost.0 {
        let path = path.revalidation_cost().entry(name);
        match quotas.iter().position(|quota| quota.name == *name) {
            Some(index) => revalidation_costs.push((QuotaId::from_index(index), amount.0)),
            None => report.unknown_name(&path, "quota", name, quotas.iter().map(|quota| quota.name.as_str())),
        }
    }
    let raw::RouteKey { headers, cookies, query } = &options.key;
    report.check_len(&path.key().headers(), "headers", headers.0.len(), raw::MAX_KEY_PARTS, "name fewer");
    Some(RouteCacheRules {
        key_origin: None,
        key_conditions: Vec::new(),
        ttl: options.ttl,
        revalidation_costs,
        key_headers: header_names(headers),
        key_cookies: cookies.clone().map(sorted),
        key_parameters: query.as_deref().map(patterns),
    })
}

/// Returns the names of fields that are sent although they are no part of the key.
fn unkeyed_headers(names: &OneOrMany<Field>, path: &SettingPath, report: &mut Diagnostics) -> Vec<String> {
    let names = header_names(names);
    for name in &names {
        match name.as_str() {
            "cookie" | "authorization" | "proxy-authorization" => report.error(
                path,
                format!("found {name:?}, with which the page of one person would be sent to others"),
                "remove it; what a response depends on belongs in the key: cache: { key: { cookies: [lang] } } at a route",
            ),
            "host" => report.error(path, "found \"host\", which is always part of the key", "remove it"),
            name if RESPONSE_CHANGING_HEADERS.contains(&name) => report.warning(format!(
                "{path}: many origins respond to {name}, and then the response to one client is sent to all; remove it, unless \
                 no response depends on it"
            )),
            _ => {}
        }
    }
    names
}

fn header_names(names: &OneOrMany<Field>) -> Vec<String> {
    sorted(names.0.iter().map(|name| name.0.as_str().to_owned()).collect())
}

/// Returns the names in order, each once.
fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names.dedup();
    names
}

fn patterns(names: &[String]) -> Vec<ParameterPattern> {
    names.iter().filter_map(|name| ParameterPattern::parse(name)).collect()
}
