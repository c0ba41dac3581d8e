//! Which of the site's patterns become routes, and in which order.

use super::path_tree::{PageCounts, Pages, SEARCHES, Tree};
use super::pattern::Pattern;
use crate::policy::route as rule;

/// The routes of a site, the first that fits before the others; what fits none of them is free.
#[derive(Debug)]
pub(super) struct Routes {
    /// How the names of assets end that one of the pages' patterns might fit, most frequent first: they are free before all.
    pub(super) assets: Vec<String>,
    pub(super) pages: Vec<Route>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) pattern: Pattern,
    /// The parameter that must be there.
    pub(super) parameter: Option<&'static str>,
    pub(super) visits: PageCounts,
}

impl Routes {
    /// Those of a site with so many requests for pages, whose assets have these `endings`.
    pub(super) fn of(tree: Tree, pages: u64, endings: Vec<String>) -> Self {
        let pages = of_pages(tree, pages);
        let is_needed = pages.iter().any(|route| route.pattern.has_wildcard());
        Self { assets: if is_needed { endings } else { Vec::new() }, pages }
    }
}

fn of_pages(tree: Tree, pages: u64) -> Vec<Route> {
    let seldom = (pages / MIN_SHARE_DIVISOR).max(1);
    let mut routes: Vec<Route> = Vec::new();
    let busy = tree
        .patterns((pages / HEAVY_SHARE_DIVISOR).max(2))
        .into_iter()
        .filter(|pages| pages.visits.all >= seldom)
        .take(MAX_ROUTES);
    for Pages { pattern, visits } in busy {
        let (parameter, searches) = (0..SEARCHES.len())
            .map(|place| (SEARCHES[place], visits.searches[place]))
            .max_by_key(|(_, searches)| *searches)
            .unwrap_or_default();
        // A page that is nothing but a search needs no parameter to be known by.
        let is_both = searches >= seldom && searches * 10 < visits.all * 9;
        let rest = match is_both {
            true => {
                let searched = PageCounts {
                    all: searches,
                    people: searches * visits.people / visits.all,
                    ..PageCounts::default()
                };
                routes.push(Route { pattern: pattern.clone(), parameter: Some(parameter), visits: searched });
                let people = visits.people - searches * visits.people / visits.all;
                PageCounts { all: visits.all - searches, people, ..visits }
            }
            false => visits,
        };
        routes.push(Route { pattern, parameter: None, visits: rest });
    }
    // Stable: among equally particular ones the busiest stays first, and one with a parameter before one without.
    routes.sort_by(|one, other| one.pattern.cmp_specificity(&other.pattern));
    merge_spellings(routes)
}

/// A route that costs something is for all spellings of its paths, so that one is enough for all patterns that differ in
/// case or in a slash at their end.
fn merge_spellings(routes: Vec<Route>) -> Vec<Route> {
    let mut merged: Vec<Route> = Vec::with_capacity(routes.len());
    for route in routes {
        match merged.iter_mut().find(|earlier| earlier.covers(&route)) {
            Some(earlier) => earlier.visits.add(&route.visits),
            None => merged.push(route),
        }
    }
    merged
}

impl Route {
    fn covers(&self, later: &Self) -> bool {
        let rule =
            |route: &Self| rule::Pattern::parse(&route.pattern.to_string()).ok().map(|rule| rule.spelled(COSTED));
        let is_wider = self.parameter.is_none() || self.parameter == later.parameter;
        is_wider && rule(self).zip(rule(later)).is_some_and(|(rule, later)| rule.covers(&later))
    }
}

/// The spellings that routes with a cost are for by default.
const COSTED: rule::Spelling = rule::Spelling { ignores_case: true, ignores_trailing_slash: true };

/// A page that not one in so many is for is seldom.
const MIN_SHARE_DIVISOR: u64 = 100;

/// A name that one in so many requests is for is told apart, however many names are beside it.
const HEAVY_SHARE_DIVISOR: u64 = 50;

/// More routes than this nobody reads.
const MAX_ROUTES: usize = 20;
