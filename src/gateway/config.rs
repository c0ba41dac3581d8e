//! A version of the configuration with all data derived from it. Requests in flight keep theirs during a reload.

use crate::gateway::message::crawl_policy::CrawlPolicy;
use crate::gateway::message::error_pages::ErrorPages;
use crate::gateway::request_bodies::RequestBodies;
use crate::gateway::untrusted_proxy::UntrustedProxy;
use crate::gateway::upstream::OriginServers;
use arc_swap::ArcSwap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tidegate_body_cost::{CostPaths, WeightedPath};
use tidegate_config::Settings;
use tidegate_crawlers::network_databases::NetworkDatabases;
use tidegate_engine::{Admission, Engine};
use tidegate_policy::address_lists::{AddressLists, ListSet};
use tidegate_policy::quota::{BodyCostPath, Quota};
use tidegate_policy::switches::Switches;
use tidegate_policy::{QuotaId, RouteId, Timestamp};
use tidegate_rate_limit_headers::RateLimitHeaders;

/// Time for which the origin's cache is not asked after it answered with something else.
const DISTRUST_TIME: Duration = Duration::from_secs(3600);
/// Part of the smallest scope that requests for the origin's cache may take, as a divisor: they were refused.
const ORIGIN_CACHE_PART: usize = 8;

/// Settings and the tables precomputed from them.
pub(super) struct Config {
    pub(super) settings: Settings,
    pub(super) admission: Admission,
    pub(super) rate_limit_headers: RateLimitHeaders,
    pub(super) crawl_policy: CrawlPolicy,
    pub(super) error_pages: ErrorPages,
    pub(super) untrusted_proxy: UntrustedProxy,
    /// Servers of the origins, by [`OriginId`](tidegate_policy::OriginId). Each snapshot has its own, unless they are the
    /// same, so that no request is sent to the origin of another one.
    pub(super) origin_servers: Vec<Arc<OriginServers>>,
    /// Quotas whose costs the origin reports.
    pub(super) reported_quotas: Vec<QuotaId>,
    /// Those whose costs it reports after the head of a response.
    pub(super) late_quotas: Vec<QuotaId>,
    /// True if one of them reports its costs in a trailer.
    pub(super) has_cost_trailers: bool,
    /// Quotas of which the origin reports its own count.
    pub(super) synced_quotas: Vec<QuotaId>,
    /// Paths of the costs in bodies, by [`QuotaId`].
    pub(super) body_costs: Vec<Option<CostPaths>>,
    /// What is read of the bodies of requests before the decision; `None` if nothing is.
    pub(super) request_bodies: Option<RequestBodies>,
    /// Routes with an unexpected cost, by [`RouteId`].
    unexpected_costs: Vec<AtomicBool>,
    /// Routes with an unreadable cost, by [`RouteId`].
    unreadable_costs: Vec<AtomicBool>,
    /// Times until which the origin's cache is not asked, by [`RouteId`]: it answered a request for its cache alone with
    /// something else (`origin.only_if_cached`).
    origin_cache_distrusted_until: Vec<AtomicU64>,
    /// Most requests for the origin's cache alone at once.
    pub(super) max_origin_cache_requests: usize,
    /// Networks of the address lists, as last read.
    lists: ArcSwap<AddressLists>,
    /// Autonomous systems and countries of networks.
    pub(super) network_databases: NetworkDatabases,
    /// True if a class requires header fields or cookies.
    pub(super) has_field_conditions: bool,
    /// Switches of administrators, resolved by the rules.
    switches: ArcSwap<Switches>,
}

/// What was read from the files that settings name.
#[derive(Default)]
pub struct ConfigFiles {
    /// Error pages.
    pub error_pages: ErrorPages,
    /// Networks of the address lists.
    pub lists: AddressLists,
    /// Databases of networks.
    pub network_databases: NetworkDatabases,
}

impl Config {
    pub(super) fn new(
        settings: Settings,
        origin_servers: Vec<Arc<OriginServers>>,
        ConfigFiles { error_pages, lists, network_databases }: ConfigFiles,
        switches: Switches,
        engine: &Arc<Engine>,
        now: Timestamp,
    ) -> Self {
        let rules = Arc::clone(&settings.rules);
        let no_routes = || rules.routes.iter().map(|_| AtomicBool::new(false)).collect();
        let quotas_with = |has: fn(&Quota) -> bool| {
            (0..rules.quotas.len()).map(QuotaId::from_index).filter(|id| has(&rules[*id])).collect()
        };
        let admission = engine.admission(Arc::clone(&rules), now);
        Self {
            request_bodies: RequestBodies::new(&rules),
            admission,
            rate_limit_headers: RateLimitHeaders::new(&settings.headers, &rules),
            crawl_policy: CrawlPolicy::default(),
            error_pages,
            untrusted_proxy: UntrustedProxy::default(),
            origin_servers,
            reported_quotas: quotas_with(Quota::has_reported_costs),
            late_quotas: quotas_with(Quota::has_costs_after_head),
            synced_quotas: quotas_with(|quota| quota.sync_from.is_some()),
            has_cost_trailers: rules.quotas.iter().any(|quota| quota.cost_trailer.is_some()),
            body_costs: rules.quotas.iter().map(|quota| cost_paths(&quota.cost_json)).collect(),
            unexpected_costs: no_routes(),
            unreadable_costs: no_routes(),
            origin_cache_distrusted_until: rules.routes.iter().map(|_| AtomicU64::default()).collect(),
            max_origin_cache_requests: max_origin_cache_requests(&settings),
            lists: ArcSwap::from_pointee(lists),
            network_databases,
            has_field_conditions: rules.classes.iter().any(|class| !class.matcher.fields.is_empty()),
            switches: ArcSwap::from_pointee(switches),
            settings,
        }
    }

    /// Returns true for the first unexpected cost on `route`.
    pub(super) fn is_first_unexpected_cost(&self, route: RouteId) -> bool {
        !self.unexpected_costs[route.index()].swap(true, Ordering::Relaxed)
    }

    /// Returns true once each origin has a server whose address is known.
    pub(super) fn are_origins_resolved(&self) -> bool {
        self.origin_servers.iter().all(|servers| servers.is_resolved())
    }

    /// Returns true if the origin's cache may be asked for pages of `route`.
    pub(super) fn trusts_origin_cache(&self, route: RouteId, now: Timestamp) -> bool {
        self.settings.origin(route).only_if_cached
            && now.0 >= self.origin_cache_distrusted_until[route.index()].load(Ordering::Relaxed)
    }

    /// Records that the origin answered a request for its cache alone with something else: it is not asked on `route` for
    /// an hour.
    pub(super) fn distrust_origin_cache(&self, route: RouteId, now: Timestamp) {
        self.origin_cache_distrusted_until[route.index()].store((now + DISTRUST_TIME).0, Ordering::Relaxed);
    }

    /// Returns true for the first unreadable cost on `route`.
    pub(super) fn is_first_unreadable_cost(&self, route: RouteId) -> bool {
        !self.unreadable_costs[route.index()].swap(true, Ordering::Relaxed)
    }

    /// Returns the address lists that contain `address`. Skips the lookup if there are no lists.
    pub(super) fn lists_containing(&self, address: IpAddr) -> ListSet {
        match self.settings.rules.address_list_names.is_empty() {
            true => ListSet::default(),
            false => self.lists.load().lookup(address),
        }
    }

    /// Returns the networks of the address lists, as last read.
    pub(super) fn lists(&self) -> Arc<AddressLists> {
        self.lists.load_full()
    }

    /// Activates newly read networks.
    pub(super) fn replace_lists(&self, lists: AddressLists) {
        self.lists.store(Arc::new(lists));
    }

    /// Returns the switches of administrators.
    pub(super) fn switches(&self) -> Arc<Switches> {
        self.switches.load_full()
    }

    /// Activates other switches. Workers use them with their next [`WorkerConfig`](crate::gateway::worker::WorkerConfig).
    pub(super) fn replace_switches(&self, switches: Switches) {
        self.switches.store(Arc::new(switches));
    }
}

/// Returns the paths of the costs in bodies; `None` if there are none.
fn cost_paths(paths: &[BodyCostPath]) -> Option<CostPaths> {
    let path = |BodyCostPath { path, weight }: &BodyCostPath| {
        Some(WeightedPath { path: path.parse().ok()?, weight_milli: weight.milli() })
    };
    CostPaths::new(paths.iter().filter_map(path).collect()).ok()
}

fn max_origin_cache_requests(settings: &Settings) -> usize {
    let throttles = settings.rules.scopes.iter().filter_map(|scope| scope.throttle.as_ref());
    let smallest = throttles.filter_map(|throttle| throttle.concurrency).map(|limit| limit.get() as usize).min();
    let connections = || settings.origins.iter().map(|origin| origin.max_connections).min();
    (smallest.or_else(connections).unwrap_or_default() / ORIGIN_CACHE_PART).max(1)
}
