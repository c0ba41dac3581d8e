//! Selects the patterns that become routes, and orders them.

use super::path_tree::{PageCounts, Pages, PathTree, SEARCH_PARAMETERS};
use super::pattern::Pattern;
use tidegate_policy::route as rule;

/// Routes of a site. The first match wins; paths without a match are free.
#[derive(Debug)]
pub(super) struct Routes {
    /// Extensions of assets, most frequent first, if a page pattern could match them. Their free routes precede all
    /// others.
    pub(super) assets: Vec<String>,
    pub(super) pages: Vec<Route>,
}

/// A route with a cost.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) pattern: Pattern,
    /// Required query parameter.
    pub(super) parameter: Option<&'static str>,
    pub(super) counts: PageCounts,
}

impl Routes {
    /// Selects the routes of a site with `pages` page requests and the asset extensions `extensions`.
    pub(super) fn from_tree(tree: PathTree, pages: u64, extensions: Vec<String>) -> Self {
        let pages = page_routes(tree, pages);
        let is_needed = pages.iter().any(|route| route.pattern.has_wildcard());
        Self { assets: if is_needed { extensions } else { Vec::new() }, pages }
    }
}

fn page_routes(tree: PathTree, pages: u64) -> Vec<Route> {
    let min_requests = (pages / MIN_SHARE_DIVISOR).max(1);
    let mut routes: Vec<Route> = Vec::new();
    let busiest = tree
        .patterns((pages / HEAVY_SHARE_DIVISOR).max(2))
        .into_iter()
        .filter(|pages| pages.counts.total >= min_requests)
        .take(MAX_ROUTES);
    for Pages { pattern, counts } in busiest {
        let (parameter, searches) = (0..SEARCH_PARAMETERS.len())
            .map(|index| (SEARCH_PARAMETERS[index], counts.searches[index]))
            .max_by_key(|(_, searches)| *searches)
            .unwrap_or_default();
        // A page that is used only for searches needs no route by parameter.
        let needs_both = searches >= min_requests && searches * 10 < counts.total * 9;
        let rest = match needs_both {
            true => {
                let search_counts = PageCounts {
                    total: searches,
                    people: searches * counts.people / counts.total,
                    ..PageCounts::default()
                };
                routes.push(Route { pattern: pattern.clone(), parameter: Some(parameter), counts: search_counts });
                let people = counts.people - searches * counts.people / counts.total;
                PageCounts { total: counts.total - searches, people, ..counts }
            }
            false => counts,
        };
        routes.push(Route { pattern, parameter: None, counts: rest });
    }
    // The sort is stable: among equally specific routes the busiest stays first, and one with a parameter before one
    // without.
    routes.sort_by(|one, other| one.pattern.cmp_specificity(&other.pattern));
    merge_spellings(routes)
}

/// Merges patterns that differ only in case or in a trailing slash: a route with a cost matches all these spellings.
fn merge_spellings(routes: Vec<Route>) -> Vec<Route> {
    let mut merged: Vec<Route> = Vec::with_capacity(routes.len());
    for route in routes {
        match merged.iter_mut().find(|earlier| earlier.covers(&route)) {
            Some(earlier) => earlier.counts.add(&route.counts),
            None => merged.push(route),
        }
    }
    merged
}

impl Route {
    fn covers(&self, later: &Self) -> bool {
        let rule = |route: &Self| {
            rule::Pattern::parse(&route.pattern.to_string()).ok().map(|rule| rule.with_match_options(COSTED_SPELLING))
        };
        let is_wider = self.parameter.is_none() || self.parameter == later.parameter;
        is_wider && rule(self).zip(rule(later)).is_some_and(|(rule, later)| rule.covers(&later))
    }
}

/// Spellings that routes with a cost match by default.
const COSTED_SPELLING: rule::MatchOptions = rule::MatchOptions { ignore_case: true, ignore_trailing_slash: true };

/// A page is rare if fewer than one in this number of page requests is for it.
const MIN_SHARE_DIVISOR: u64 = 100;

/// A name stays separate if one in this number of page requests is for it, however many names its directory has.
const HEAVY_SHARE_DIVISOR: u64 = 50;

/// Maximum number of routes, for a readable file.
const MAX_ROUTES: usize = 20;
