//! Validates `cache`, and the key `cache` of routes.

use super::diagnostics::Diagnostics;
use crate::raw::cache as raw;
use crate::scalars::{Field, Size, Span};
use crate::serde_forms::OneOrMany;
use crate::setting_path::SettingPath;
use crate::settings::Cache;
use std::time::Duration;
use tidegate_policy::QuotaId;
use tidegate_policy::cache::query_filter::ParameterPattern;
use tidegate_policy::cache::{CacheRules, ReloadPolicy, RouteCacheRules};
use tidegate_policy::quota::Quota;

const MIN_MEMORY: u64 = 1 << 20;
const MIN_DISK: u64 = 16 << 20;
const DEFAULT_DISK: u64 = 10 << 30;
const DEFAULT_MEMORY: u64 = 128 << 20;
const DEFAULT_MAX_OBJECT: u64 = 8 << 20;
/// Part of the memory that one body may occupy.
const MAX_OBJECT_PART: u64 = 8;
const DEFAULT_IGNORED_PARAMETERS: [&str; 3] = ["utm_*", "gclid", "fbclid"];
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
const DAY: Duration = Duration::from_secs(86_400);
/// Most fields, cookies or parameters of a key.
const MAX_KEY_PARTS: usize = 16;

/// Returns the settings of the store, and the rules; `None` without the section.
pub(super) fn cache(raw: Option<&raw::Cache>, report: &mut Diagnostics) -> Option<(Cache, CacheRules)> {
    let raw = raw?;
    let path = SettingPath::ROOT.cache();
    let memory = raw.memory.as_ref().map_or(DEFAULT_MEMORY, |size| size.0);
    if memory < MIN_MEMORY {
        report.error(&path.memory(), "needs at least 1MiB", "write a size such as 128MiB");
    }
    let largest = memory.max(MIN_MEMORY) / MAX_OBJECT_PART;
    let max_object = raw.max_object.as_ref().map_or(DEFAULT_MAX_OBJECT.min(largest), |size| size.0);
    if max_object > largest {
        let needs = format!("needs at most an eighth of cache.memory, {}", Size(largest));
        report.error(&path.max_object(), needs, "lower it, or raise cache.memory");
    }
    let disk = match &raw.disk {
        Some(raw::Disk::Off) => None,
        Some(raw::Disk::Options(options)) => Some(options.size.as_ref().map_or(DEFAULT_DISK, |size| size.0)),
        None => Some(DEFAULT_DISK),
    };
    if disk.is_some_and(|size| size < MIN_DISK) {
        report.error(&path.disk(), "needs a size of at least 16MiB", "write { size: 10GiB }, or off");
    }
    let span = |span: Option<&Span>, default| span.map_or(default, |span| span.0);
    let rules = CacheRules {
        max_object,
        ignored_parameters: match &raw.ignore_query {
            Some(names) => {
                refuse_any_parameter(names, &path.ignore_query(), report);
                patterns(names, &path.ignore_query(), report)
            }
            None => DEFAULT_IGNORED_PARAMETERS.iter().filter_map(|name| ParameterPattern::parse(name)).collect(),
        },
        stale_when_refused: span(raw.stale_when_refused.as_ref(), 30 * DAY),
        stale_if_error: span(raw.stale_if_error.as_ref(), DAY),
        reload: match raw.reload {
            raw::Reload::People => ReloadPolicy::People,
            raw::Reload::All => ReloadPolicy::All,
            raw::Reload::None => ReloadPolicy::None,
        },
        unkeyed_headers: raw
            .unkeyed_headers
            .as_ref()
            .map_or_else(Vec::new, |names| unkeyed_headers(names, &path.unkeyed_headers(), report)),
    };
    Some((Cache { memory, disk, refreshes_surplus: raw.refresh != Some(raw::Refresh::Off) }, rules))
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
    if options.ttl.as_ref().is_some_and(|ttl| ttl.0.is_zero()) {
        report.error(
            &path.ttl(),
            "found 0s, with which each request would fetch the page",
            "write a duration such as 10m, or cache: off to store nothing, or leave it out to keep copies for refusals alone",
        );
    }
    let mut revalidation_costs = Vec::new();
    for (name, amount) in &options.revalidation_cost.0 {
        let path = path.revalidation_cost().entry(name);
        match quotas.iter().position(|quota| quota.name == *name) {
            Some(index) => revalidation_costs.push((QuotaId::from_index(index), amount.0)),
            None => report.unknown_name(&path, "quota", name, quotas.iter().map(|quota| quota.name.as_str())),
        }
    }
    let key = &options.key;
    let key_path = path.key();
    report.check_len(&key_path.headers(), "headers", key.headers.0.len(), MAX_KEY_PARTS, "name fewer");
    let cookies = key.cookies.as_ref().map(|names| cookie_names(names, &key_path.cookies(), report));
    Some(RouteCacheRules {
        ttl: options.ttl.as_ref().map(|ttl| ttl.0),
        revalidation_costs,
        key_headers: header_names(&key.headers),
        key_cookies: cookies,
        key_parameters: key.query.as_ref().map(|names| patterns(names, &key_path.query(), report)),
    })
}

fn refuse_any_parameter(names: &OneOrMany<String>, path: &SettingPath, report: &mut Diagnostics) {
    if names.0.iter().any(|name| name == "*") {
        report.error(
            path,
            "found \"*\", with which all searches and numbered pages of a path would be one copy",
            "name parameters that change no page, such as utm_*, or write cache: { key: { query: [] } } at routes without a query",
        );
    }
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
    let mut names: Vec<String> = names.0.iter().map(|name| name.0.as_str().to_owned()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn cookie_names(names: &OneOrMany<String>, path: &SettingPath, report: &mut Diagnostics) -> Vec<String> {
    report.check_len(path, "cookies", names.0.len(), MAX_KEY_PARTS, "name fewer");
    for name in &names.0 {
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic() && !b"=;,\"\\".contains(&byte)) {
            report.error(path, format!("invalid cookie name {name:?}"), "write the name alone, such as lang");
        }
    }
    let mut names = names.0.clone();
    names.sort_unstable();
    names.dedup();
    names
}

fn patterns(names: &OneOrMany<String>, path: &SettingPath, report: &mut Diagnostics) -> Vec<ParameterPattern> {
    let mut patterns = Vec::new();
    for name in &names.0 {
        match ParameterPattern::parse(name) {
            Some(pattern) => patterns.push(pattern),
            None => report.error(path, format!("invalid parameter {name:?}"), "write a name such as gclid, or utm_*"),
        }
    }
    patterns
}
