//! Validates `redirect` of routes: targets, what excludes a redirect, and redirects that lead back to themselves.

use super::diagnostics::Diagnostics;
use crate::raw::redirect::{RedirectKeys, RouteRedirect};
use crate::raw::routes as raw;
use crate::setting_path::SettingPath;
use crate::settings::{Listener, Redirect};
use http::{Method, StatusCode, Uri};
use tidegate_policy::RequestFacts;
use tidegate_policy::own_hosts::OwnHosts;
use tidegate_policy::path::normalize;
use tidegate_policy::route::{Route, normalize_host};

const STATUSES: [u16; 5] = [301, 302, 303, 307, 308];
/// Most redirects that are followed, like browsers do.
const MAX_HOPS: usize = 20;
const EXAMPLE: &str = "write a path such as /new, or a URL such as https://example.com/new";

/// Returns the redirects of the routes, by index; empty if there is none.
pub(super) fn redirects(routes: &[raw::Route], report: &mut Diagnostics) -> Vec<Option<Redirect>> {
    let mut redirects = Vec::new();
    for (index, route) in routes.iter().enumerate() {
        if let Some(RouteRedirect(keys)) = &route.redirect {
            let path = SettingPath::of_route(index).redirect();
            check_alone(route, &path, report);
            redirects.resize(index, None);
            redirects.push(Some(redirect(keys, route.path.as_deref().unwrap_or_default(), &path, report)));
        }
    }
    redirects
}

/// Checks that the route has no key that concerns the origin.
fn check_alone(route: &raw::Route, path: &SettingPath, report: &mut Diagnostics) {
    let raw::Route { cost, scopes, sample_latency, stream, response_timeout, cache, request_headers, .. } = route;
    let raw::Route { origin, rewrite, .. } = route;
    let others = [
        ("cost", !cost.0.is_empty()),
        ("scopes", !scopes.0.is_empty()),
        ("origin", origin.is_some()),
        ("rewrite", rewrite.is_some()),
        ("sample_latency", sample_latency.is_some()),
        ("stream", *stream),
        ("response_timeout", response_timeout.is_some()),
        ("cache", cache.is_some()),
        ("request_headers", !request_headers.is_empty()),
    ];
    if let Some((key, _)) = others.iter().find(|(_, is_set)| *is_set) {
        let message = format!("found together with {key}, but a redirect costs nothing and does not reach the origin");
        report.error(path, message, format!("remove redirect or {key}"));
    }
}

fn redirect(keys: &RedirectKeys, pattern: &str, path: &SettingPath, report: &mut Diagnostics) -> Redirect {
    let to = keys.to.clone().unwrap_or_default();
    let target_path = if report.is_set(&path.to()) { path.to() } else { path.clone() };
    let (target, appends_rest) = match to.strip_suffix(Redirect::REST) {
        Some(target) => (target.to_owned(), true),
        None => (to.clone(), false),
    };
    let rest_after = rest_after(pattern);
    let found = match target_error(&target, appends_rest) {
        _ if keys.to.is_none() => Some(("missing".to_owned(), EXAMPLE)),
        Some((message, hint)) => Some((format!("found {to:?}, {message}"), hint)),
        None if appends_rest && rest_after.is_none() => {
            Some(("found {rest}, but match does not end with **".to_owned(), "end match with /**, or remove {rest}"))
        }
        None => None,
    };
    if let Some((message, hint)) = found {
        report.error(&target_path, message, hint);
    }
    if let Some(status) = keys.status.filter(|status| !STATUSES.contains(status)) {
        report.error(&path.status(), format!("found {status}"), "write 301, 302, 303, 307 or 308");
    }
    let rest_after = rest_after.filter(|_| appends_rest);
    let status = keys.status.and_then(|status| StatusCode::from_u16(status).ok());
    Redirect { status, target, rest_after }
}

/// Returns the number of segments before the `**` at the end of a pattern; `None` if it does not end so.
pub(super) fn rest_after(pattern: &str) -> Option<usize> {
    let directories = pattern.strip_suffix("/**")?;
    Some(directories.split('/').filter(|segment| !segment.is_empty()).count())
}

/// Returns what is wrong with a target and what would do.
fn target_error(target: &str, appends_rest: bool) -> Option<(&'static str, &'static str)> {
    let is_allowed = |byte: u8| byte.is_ascii_graphic() && !b"\"#<>\\^`{|}".contains(&byte);
    if target.contains('{') {
        return Some(("which has a placeholder", "write {rest} at the end, or none"));
    }
    if !target.bytes().all(is_allowed) {
        return Some(("which has a character that no URL has", "encode it, such as a space as %20, without # and \\"));
    }
    if target.starts_with("//") {
        return Some(("which browsers read as a host", EXAMPLE));
    }
    if !target.starts_with('/') {
        let scheme = target.split_once("://").map(|(scheme, _)| scheme);
        let is_web = scheme.is_some_and(|scheme| matches!(scheme, "http" | "https"));
        let url = Uri::try_from(target).ok().filter(|_| is_web);
        let authority = url.as_ref().and_then(Uri::authority);
        if authority.is_none_or(|authority| authority.host().is_empty() || authority.as_str().contains('@')) {
            return Some(("neither a path nor an http or https URL", EXAMPLE));
        }
    }
    // Otherwise the rest would continue the host, or the query.
    if appends_rest && (!target.ends_with('/') || target.ends_with("://") || target.contains('?')) {
        return Some(("in which no slash of the path precedes {rest}", "write it like https://example.com/new/{rest}"));
    }
    None
}

/// Reports redirects that lead back to their own route.
pub(super) fn check_loops(
    routes: &[Route],
    redirects: &[Option<Redirect>],
    own_hosts: Option<&OwnHosts>,
    listeners: &[Listener],
    report: &mut Diagnostics,
) {
    let site = RedirectedSite { routes, redirects, own_hosts, listeners };
    for start in 0..redirects.len() {
        let route_path = SettingPath::of_route(start);
        if report.has_error_at(&route_path) {
            continue;
        }
        if let Some(sample) = site.loop_from(start) {
            let message = format!("leads back to this route: {sample} is redirected without end");
            report.error(&route_path.redirect(), message, "write another target, or a route for it above this one");
        }
    }
}

/// Redirects, and what is known of the site.
struct RedirectedSite<'a> {
    routes: &'a [Route],
    redirects: &'a [Option<Redirect>],
    own_hosts: Option<&'a OwnHosts>,
    listeners: &'a [Listener],
}

impl RedirectedSite<'_> {
    /// Follows the redirects of a GET request of the route `start`. Returns its path if they provably lead back to the
    /// route.
    fn loop_from(&self, start: usize) -> Option<String> {
        let route = &self.routes[start];
        let sample = route.name.replace("**", "x").replace('*', "x");
        let mut host = route.hosts.first().map(|host| host.replace('*', "x"));
        let mut path = sample.clone();
        let mut current = (self.route_of(host.as_deref(), &path)? == start).then_some(start)?;
        for _ in 0..MAX_HOPS {
            let location = self.redirects.get(current)?.as_ref()?.location(&path, None);
            let url = Uri::try_from(location).ok()?;
            if let Some(authority) = url.authority() {
                host = Some(self.own_host(route, url.scheme_str()?, authority.as_str())?);
            }
            path = normalize(url.path()).ok()?.into_owned();
            current = self.route_of(host.as_deref(), &path)?;
            if current == start {
                return Some(sample);
            }
        }
        None
    }

    /// Returns the route of a GET request; `None` if it depends on a host that is not known, or on a query.
    fn route_of(&self, host: Option<&str>, path: &str) -> Option<usize> {
        for (index, route) in self.routes.iter().enumerate().filter(|(_, route)| route.path.matches(path)) {
            let facts = RequestFacts {
                method: &Method::GET,
                host: host.unwrap_or_default(),
                path,
                other_paths: &[],
                query: None,
                user_agent: b"",
                is_preflight: false,
                json: None,
                fields: None,
            };
            let is_unknown = !route.query.is_empty() || (host.is_none() && !route.hosts.is_empty());
            if is_unknown {
                return None;
            }
            if route.matches(&facts, path) {
                return Some(index);
            }
        }
        None
    }

    /// Returns the host of a URL that leads to this gateway.
    fn own_host(&self, route: &Route, scheme: &str, authority: &str) -> Option<String> {
        let host = normalize_host(authority).into_owned();
        let is_named = self.own_hosts.is_some_and(|hosts| hosts.contains(&host)) || route.hosts.contains(&host);
        let is_served = self.listeners.iter().any(|listener| listener.scheme() == scheme);
        (is_named && is_served).then_some(host)
    }
}
