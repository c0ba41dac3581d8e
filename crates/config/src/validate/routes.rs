//! Validates `routes`: match conditions, costs and scopes.

use super::cache;
use super::diagnostics::Diagnostics;
use super::header_rules::choice_refusal;
use super::origin::origin_id;
use super::quotas::ScopeQuota;
use super::request_conditions;
use super::stated_costs::{json_conditions, stated_cost};
use crate::raw::route_cost::RouteCost;
use crate::raw::routes as raw;
use crate::raw::routes::Comparison;
use crate::scalars::{Price, Span};
use crate::setting_path::SettingPath;
use crate::settings::Origin;
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::cache::RouteCacheRules;
use tidegate_policy::cost::{Cost, RequestedCost};
use tidegate_policy::quota::Quota;
use tidegate_policy::request_fields::FieldCondition;
use tidegate_policy::route::{MatchOptions, Pattern, Route};
use tidegate_policy::throttle::Scope;
use tidegate_policy::{OriginId, QuotaId, RefusedQuotas, ScopeId, Units};

const MAX_ROUTES: usize = 10_000;
const ANY_SPELLING: MatchOptions = MatchOptions { ignore_case: true, ignore_trailing_slash: true };
const CATCH_ALL_PATTERN: &str = "/**";

/// Quotas, scopes and origins that routes refer to.
pub(super) struct RouteContext<'a> {
    pub(super) quotas: &'a [Quota],
    pub(super) scopes: &'a [Scope],
    /// Quotas of scopes.
    pub(super) scope_quotas: &'a [ScopeQuota],
    pub(super) origins: &'a [Origin],
    /// True if the file has a section `cache`.
    pub(super) is_cache_enabled: bool,
}

pub(super) fn routes(raw: &[raw::Route], context: &RouteContext<'_>, report: &mut Diagnostics) -> Vec<Route> {
    report.check_len(&SettingPath::ROOT.routes(), "routes", raw.len(), MAX_ROUTES, "merge routes with * and **");
    // Each is compared with all before it.
    let raw = &raw[..raw.len().min(MAX_ROUTES)];
    let mut routes: Vec<Route> = Vec::with_capacity(raw.len() + 1);
    for (index, raw_route) in raw.iter().enumerate() {
        let path = SettingPath::of_route(index);
        let route = route(raw_route, &path, context, report);
        let shadowing = routes.iter().enumerate().find(|(earlier_index, earlier)| {
            shadows(earlier, &route) && !report.has_error_at(&SettingPath::of_route(*earlier_index))
        });
        if let Some((earlier_index, earlier)) = shadowing {
            report.error(
                &path,
                format!(
                    "unreachable: {} ({}) matches every request that this route matches",
                    SettingPath::of_route(earlier_index),
                    earlier.name
                ),
                match earlier.name == route.name || earlier.path.is_any() {
                    true => "move it above that one",
                    false => "move it above that one, or write case: exact or trailing_slash: exact there",
                },
            );
        }
        routes.push(route);
    }
    if routes.last().is_none_or(|last| !(last.path.is_any() && is_unconditional(last))) {
        let has_route_for_all = routes.iter().any(|route| route.path.is_any() && is_unconditional(route));
        if context.origins.len() > 1 && !has_route_for_all && !report.has_error_at(&SettingPath::ROOT.origins()) {
            report.error(
                &SettingPath::ROOT.routes(),
                "requests that no route matches have no origin",
                format!("end with a route for all, such as {{ match: \"/**\", origin: {} }}", context.origins[0].name),
            );
        }
        routes.push(fallback_route(context, report));
    }
    warn_free_spellings(&routes, report);
    routes
}

/// Warns of costed routes of which other spellings are free, because only the last route matches them.
fn warn_free_spellings(routes: &[Route], report: &mut Diagnostics) {
    let Some((last, others)) = routes.split_last().filter(|(last, _)| last.is_free()) else { return };
    for (index, route) in others.iter().enumerate().filter(|(_, route)| !route.is_free()) {
        let MatchOptions { ignore_case, ignore_trailing_slash } = route.path.match_options();
        let any_spelling = Route { path: route.path.clone().with_match_options(ANY_SPELLING), ..route.clone() };
        if (ignore_case && ignore_trailing_slash)
            || others[index + 1..].iter().any(|later| shadows(later, &any_spelling))
        {
            continue;
        }
        let path = SettingPath::of_route(index);
        let (key, spelling) = match ignore_case {
            true => (path.trailing_slash(), "with or without a trailing slash"),
            false => (path.case(), "in other letter case"),
        };
        report.warning(format!(
            "{key}: {} is free {spelling}, because {} matches it; if the origin serves it so, remove the key",
            route.name, last.name
        ));
    }
}

/// Returns the route of requests without a match: free, unless the scope `default` has a quota.
fn fallback_route(context: &RouteContext<'_>, report: &mut Diagnostics) -> Route {
    let (scopes, path) = (vec![ScopeId(0)], SettingPath::of_scope(Scope::DEFAULT).quota());
    Route {
        name: CATCH_ALL_PATTERN.into(),
        path: any_path(),
        hosts: Vec::new(),
        methods: Vec::new(),
        query: Vec::new(),
        json: Vec::new(),
        fields: Vec::new(),
        costs: costs_of_scopes(&raw::Route::default(), &scopes, &path, context, report),
        requested_costs: Vec::new(),
        scopes,
        origin: OriginId(0),
        is_latency_sampled: true,
        streams_body: false,
        cache: context.is_cache_enabled.then(RouteCacheRules::default),
        is_compressed: true,
    }
}

/// Returns the `response_timeout` of each route, by its index; empty if no route has one.
pub(super) fn response_timeouts(routes: &[raw::Route], report: &mut Diagnostics) -> Vec<Option<Duration>> {
    let mut timeouts = Vec::new();
    for (index, route) in routes.iter().enumerate() {
        if let Some(Span(span)) = route.response_timeout {
            timeouts.resize(index, None);
            let path = SettingPath::of_route(index).response_timeout();
            timeouts.push(Some(report.nonzero_duration(&path, Some(span), span)));
        }
    }
    timeouts
}

fn any_path() -> Pattern {
    Pattern::parse(CATCH_ALL_PATTERN).expect("`/**` is a valid pattern")
}

fn is_unconditional(route: &Route) -> bool {
    route.hosts.is_empty()
        && route.methods.is_empty()
        && route.query.is_empty()
        && route.json.is_empty()
        && route.fields.is_empty()
}

/// Returns true if every request that matches `later` evidently matches `earlier`, too. Overlapping patterns are not
/// compared.
fn shadows(earlier: &Route, later: &Route) -> bool {
    fn is_superset<T: PartialEq>(earlier: &[T], later: &[T]) -> bool {
        earlier.is_empty() || (!later.is_empty() && later.iter().all(|one| earlier.contains(one)))
    }
    (earlier.name == later.name || earlier.path.covers(&later.path))
        && is_superset(&earlier.hosts, &later.hosts)
        && is_superset(&earlier.methods, &later.methods)
        && earlier.query.iter().all(|parameter| later.query.contains(parameter))
        && earlier.json.iter().all(|condition| later.json.contains(condition))
        && earlier.fields.iter().all(|condition| later.fields.iter().any(|other| other.text == condition.text))
}

fn route(raw: &raw::Route, path: &SettingPath, context: &RouteContext<'_>, report: &mut Diagnostics) -> Route {
    let name = raw.path.clone().unwrap_or_default();
    let mut scopes = scope_ids(&raw.scopes.0, &path.scopes(), context.scopes, report);
    if raw.redirect.is_some() {
        // Its requests do not reach the origin, so they do not use the scope `default` either.
        scopes.clear();
    }
    let cost_path = path.cost();
    let (mut costs, requested_costs) = costs(raw, &cost_path, context.quotas, report);
    costs.extend(costs_of_scopes(raw, &scopes, &path.scopes(), context, report));
    if costs.len() > RefusedQuotas::MAX_QUOTAS {
        let hint = format!("use at most {} for a route", RefusedQuotas::MAX_QUOTAS);
        report.error(&cost_path, format!("found {} quotas", costs.len()), hint);
    }
    let origin = origin_id(raw.origin.as_deref(), raw.redirect.is_none(), path, context.origins, report);
    let cache = cache::route_cache(raw.cache.as_ref(), context.is_cache_enabled, &path.cache(), context.quotas, report);
    let fields = fields(raw, path, report);
    let key_origin = (context.origins.len() > 1).then(|| context.origins[origin.index()].name.clone());
    let key_conditions = fields.iter().map(|condition| Arc::clone(&condition.text)).collect();
    let is_limited = !costs.is_empty() || !raw.scopes.0.is_empty();
    Route {
        path: pattern(raw, &path.match_pattern(), report).with_match_options(spelling(raw, is_limited)),
        hosts: request_conditions::hosts(&raw.host.0, &path.host(), report),
        methods: request_conditions::methods(&raw.method.0),
        query: query(&raw.query.0, &path.query(), report),
        json: json_conditions(&raw.json, &path.json(), report),
        fields,
        costs,
        requested_costs,
        scopes,
        origin,
        is_latency_sampled: raw.sample_latency.unwrap_or(true),
        streams_body: raw.stream,
        cache: cache.filter(|_| raw.redirect.is_none()).map(|rules| RouteCacheRules {
            key_origin,
            key_conditions,
            ..rules
        }),
        is_compressed: raw.compress.unwrap_or(true),
        name,
    }
}

/// Returns the conditions on header fields and cookies, and reports fields that are none of the client's.
fn fields(raw: &raw::Route, path: &SettingPath, report: &mut Diagnostics) -> Vec<FieldCondition> {
    for (name, _) in &raw.header.0 {
        let lower = name.to_ascii_lowercase();
        if lower == "cookie" {
            report.error(&path.header(), "cookie is no header of one value", "write cookie: { NAME: \"value*\" }");
        } else if let Some(reason) = choice_refusal(&lower) {
            report.error(&path.header(), format!("{name} chooses no route: {reason}"), "choose by another field");
        }
    }
    request_conditions::fields(&raw.header, &raw.cookie, path, report)
}

/// Returns the conditions of all routes on fields, each once.
pub(super) fn route_fields(routes: &[Route]) -> Vec<FieldCondition> {
    let mut conditions: Vec<FieldCondition> = Vec::new();
    for condition in routes.iter().flat_map(|route| &route.fields) {
        if conditions.iter().all(|known| known.text != condition.text) {
            conditions.push(condition.clone());
        }
    }
    conditions
}

/// Returns the comparison of path spellings of a route.
///
/// The origin may ignore case and a trailing slash, or not. A route whose requests are limited, by a cost or by scopes,
/// matches all spellings by default: a false match costs a unit too many, a miss bypasses the limits. A route that only
/// makes requests free matches the written spelling: a false match would bypass the limits.
fn spelling(raw: &raw::Route, is_limited: bool) -> MatchOptions {
    let ignores =
        |comparison: Option<Comparison>| comparison.map_or(is_limited, |comparison| comparison == Comparison::Ignore);
    MatchOptions { ignore_case: ignores(raw.case), ignore_trailing_slash: ignores(raw.trailing_slash) }
}

fn pattern(raw: &raw::Route, path: &SettingPath, report: &mut Diagnostics) -> Pattern {
    let Some(text) = &raw.path else {
        report.error(path, "missing", "write a path such as /item/* or /shop/**");
        return any_path();
    };
    request_conditions::pattern(text, path, report).unwrap_or_else(any_path)
}

fn query(raw: &[String], path: &SettingPath, report: &mut Diagnostics) -> Vec<(String, Option<String>)> {
    let parameter = |text: &String| {
        let (name, value) =
            text.split_once('=').map_or((text.as_str(), None), |(name, value)| (name, Some(value.to_owned())));
        if name.is_empty() {
            report.error(path, format!("the parameter name of {text:?} is empty"), "write name or name=value");
        }
        if value.as_ref().is_some_and(|value| value.contains('*')) {
            report.warning(format!("{path}: {text:?} compares * as it stands; write {name} alone for any value"));
        }
        (name.to_owned(), value)
    };
    raw.iter().map(parameter).collect()
}

/// Returns the expected costs, and what bodies of requests state of them.
#[expect(clippy::type_complexity, reason = "both are lists by quota")]
fn costs(
    raw: &raw::Route,
    path: &SettingPath,
    quotas: &[Quota],
    report: &mut Diagnostics,
) -> (Vec<(QuotaId, Cost)>, Vec<(QuotaId, RequestedCost)>) {
    let (mut costs, mut requested_costs) = (Vec::new(), Vec::new());
    for (name, cost) in &raw.cost.0 {
        let path = path.entry(name);
        let Some(index) = quotas.iter().position(|quota| quota.name == *name) else {
            if !(quotas.is_empty() && report.has_error_at(&SettingPath::ROOT.quotas())) {
                report.unknown_name(&path, "quota", name, quotas.iter().map(|quota| quota.name.as_str()));
            }
            continue;
        };
        let (quota, id) = (&quotas[index], QuotaId::from_index(index));
        let cost = match cost {
            RouteCost::Price(Price(cost)) => *cost,
            RouteCost::Stated(raw) => {
                let requested = stated_cost(raw, &path, report);
                let cost = Cost::Requested { default: requested.default };
                requested_costs.push((id, requested));
                cost
            }
        };
        match cost {
            Cost::Fixed(amount) | Cost::Requested { default: amount } => {
                check_amount(amount, &path, quota, report);
                check_client_limit(amount, &path, quota, report);
            }
            Cost::Learned => check_learned(&path, quota, report),
        }
        if cost != Cost::Fixed(Units::ZERO) {
            costs.push((id, cost));
        }
    }
    (costs, requested_costs)
}

/// Returns a cost of one unit for each quota of `scopes` that the route does not name under `cost`.
fn costs_of_scopes(
    raw: &raw::Route,
    scopes: &[ScopeId],
    path: &SettingPath,
    context: &RouteContext<'_>,
    report: &mut Diagnostics,
) -> Vec<(QuotaId, Cost)> {
    const ONE: Units = Units::from_whole(1);
    let mut costs = Vec::new();
    for scope_quota in context.scope_quotas {
        let is_in = |id: &ScopeId| context.scopes.get(id.index()).is_some_and(|scope| scope.name == scope_quota.scope);
        let is_named = raw.cost.0.iter().any(|(name, _)| *name == scope_quota.scope);
        if scopes.iter().any(is_in) && !is_named {
            check_amount(ONE, path, &context.quotas[scope_quota.quota.index()], report);
            costs.push((scope_quota.quota, Cost::Fixed(ONE)));
        }
    }
    costs
}

fn check_amount(amount: Units, path: &SettingPath, quota: &Quota, report: &mut Diagnostics) {
    let limit = quota.budget.as_ref().map_or(quota.limit, |budget| budget.highest_limit(quota.limit));
    let paths = [SettingPath::of_quota(&quota.name), SettingPath::of_scope(&quota.name).quota()];
    if amount > limit && !paths.iter().any(|path| report.has_error_at(&path.limit())) && !limit.is_zero() {
        report.error(
            path,
            format!("cost {amount} exceeds the quota limit {limit}, so no request would be admitted"),
            "lower the cost or raise the limit",
        );
        return;
    }
    let lowest = quota.budget.as_ref().map_or(limit, |budget| budget.lowest_limit(quota.limit));
    if amount > lowest && !lowest.is_zero() {
        report.warning(format!(
            "{path}: cost {amount} exceeds the lowest limit of {}, {lowest}, so that no request of those who have it is \
             admitted; lower the cost or raise the limit",
            quota.name
        ));
    }
}

fn check_client_limit(amount: Units, path: &SettingPath, quota: &Quota, report: &mut Diagnostics) {
    let of_quota = SettingPath::of_quota(&quota.name);
    if let Some(limit) = quota.client_limit.filter(|limit| amount > *limit) {
        report.contradiction(
            path,
            &[of_quota.limit(), of_quota.per_client()],
            format!("cost {amount} exceeds per_client of the quota, {limit}, so no request would be admitted"),
            "lower the cost or raise per_client",
        );
    }
}

fn check_learned(path: &SettingPath, quota: &Quota, report: &mut Diagnostics) {
    if !quota.has_reported_costs() && !quota.free_when_cached {
        report.error(
            path,
            format!("cost: learned requires cost_header, cost_json or cost_trailer on quota {:?}", quota.name),
            "set one of them, or write an amount",
        );
    }
}

fn scope_ids(raw: &[String], path: &SettingPath, scopes: &[Scope], report: &mut Diagnostics) -> Vec<ScopeId> {
    let mut ids = Vec::new();
    for (index, name) in raw.iter().enumerate() {
        match scopes.iter().position(|known| known.name == *name) {
            Some(position) => {
                let id = ScopeId::from_index(position);
                if !ids.contains(&id) {
                    ids.push(id);
                }
            }
            None => {
                report.unknown_name(&path.index(index), "scope", name, scopes.iter().map(|scope| scope.name.as_str()));
            }
        }
    }
    if ids.is_empty() { vec![ScopeId(0)] } else { ids }
}
