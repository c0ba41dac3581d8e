//! The running gateway as the admin API sees it.

use super::{BUILD, BoundAddresses, LEDGER_TIMEOUT, ServiceState, crawlers};
use crate::admin::cache::{self, CacheUsage};
use crate::admin::state::{CrawlerDocument, OriginDocument, ScopeDocument, SwitchDocument, views};
use crate::admin::{CacheDocument, GatewayApi, StateDocument, SwitchChange, UsageDocument, UsageRecord, WarmReceiver};
use crate::gateway::CachePurge;
use std::net::SocketAddr;
use tidegate_access_log::rfc3339;
use tidegate_crawlers::network_databases::NetworkDatabases;
use tidegate_engine::UnknownQuota;
use tidegate_engine::ledger::LeaseRefresher;
use tidegate_policy::throttle::Scope;
use tidegate_policy::{RequestFacts, Timestamp, Units};
use tidegate_replay::explain::{Environment, Explanation, explain, input_from_log};
use tidegate_replay::log::LogLine;
use tracing::warn;

impl GatewayApi for ServiceState {
    fn now(&self) -> Timestamp {
        self.handle.now()
    }

    fn state(&self) -> StateDocument {
        let now = self.handle.now();
        let BoundAddresses { listen, admin } = &self.addresses;
        let (since, top_spenders) = self.telemetry.top_spenders(TOP_SPENDERS, now);
        let top_clients = self.handle.top_clients(TOP_CLIENTS);
        let all_responses = self.telemetry.all_responses();
        // Within the document, their locks would be held until it is complete, while others are taken.
        let settings = self.settings.lock().clone();
        let promise = self.promise.lock().clone();
        let origins: Vec<OriginDocument> = self.handle.origins().into_iter().map(views::origin).collect();
        StateDocument {
            time: rfc3339(now),
            started: rfc3339(self.started_at),
            uptime_s: now.saturating_duration_since(self.started_at).as_secs(),
            version: BUILD.0.into(),
            revision: BUILD.1.into(),
            listen: addresses(listen),
            admin: admin.as_ref().map(ToString::to_string),
            origin: origins.first().cloned().unwrap_or_default(),
            origins: if origins.len() > 1 { origins } else { Vec::new() },
            settings,
            not_ready_reasons: self.not_ready_reasons(),
            ledger_error: self
                .session_secret_error()
                .or_else(|| self.lease_refresher.as_ref().and_then(LeaseRefresher::last_error))
                .or_else(|| self.key_usage_error()),
            untrusted_proxy: self.handle.untrusted_proxy(),
            notes: self.warnings(),
            quotas: self.handle.quotas().iter().map(|view| views::quota(view, now)).collect(),
            budgets: self.budgets(),
            promise,
            path_costs: self.handle.path_costs().into_iter().take(PATH_COSTS).map(views::path_cost).collect(),
            classes: self
                .handle
                .with_settings(|settings| settings.rules.classes.iter().map(|class| class.name.clone()).collect()),
            traffic: self.telemetry.class_traffic().iter().map(views::traffic).collect(),
            routes: self.telemetry.route_traffic(LISTED_ROUTES).iter().map(views::route).collect(),
            responses: views::responses(&all_responses),
            latency: views::latency(&all_responses.latency),
            spenders: views::spenders(since, &top_spenders, |id| self.telemetry.decision(id)),
            scopes: self.scopes(),
            crawlers: self.crawlers(),
            connections: self.handle.connections() as u64,
            top_clients: top_clients.iter().filter(|view| !views::is_gateway(view)).map(views::client).collect(),
            log_lines_dropped: self.telemetry.log_lines_dropped(),
            corrections: Vec::new(),
            switches: self.switches.current(now).iter().map(views::switch).collect(),
            cache: self.handle.cache_stats().map(|_| views::cache_usage(&self.cache_usage())),
        }
    }

    fn not_ready_reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        let origins = self.handle.origins();
        // One that is not known fails its own requests only.
        if !origins.iter().any(|origin| origin.is_resolved) {
            let unknown: Vec<_> = origins.into_iter().map(|origin| origin.authorities).collect();
            reasons.push(format!("The origin {} has not been resolved yet.", unknown.join(", ")));
        }
        if self.lease_refresher.as_ref().is_some_and(|lease_refresher| !lease_refresher.is_ready()) {
            reasons.push("The ledger has not granted any leases yet.".into());
        }
        reasons
    }

    fn cache(&self) -> Option<CacheDocument> {
        let most_requested = self.handle.most_requested_urls(MOST_REQUESTED_URLS);
        Some(cache::document(&self.handle.cache_stats()?, &self.cache_usage(), &most_requested))
    }

    fn metrics(&self) -> String {
        self.telemetry.scrape(|| self.record_state())
    }

    fn decision(&self, id: u64) -> Option<Vec<u8>> {
        self.telemetry.decision(id)
    }

    fn recent_decisions(&self) -> Vec<Vec<u8>> {
        self.telemetry.recent_decisions()
    }

    fn explanation(&self, id: u64) -> Option<Explanation> {
        let line = self.telemetry.decision(id)?;
        let line = LogLine::read(&line).ok()??;
        let (lists, quotas) = (self.handle.lists(), self.handle.quotas());
        self.handle.with_settings(|settings| {
            let environment = Environment {
                settings,
                user_agents: &self.user_agents,
                operators: &self.operators,
                lists: &lists,
                // The line has what they said of its client.
                network_databases: &NetworkDatabases::default(),
            };
            let input = input_from_log(&line, environment).ok()?.with_quotas(&quotas);
            let find = |request: &RequestFacts<'_>| self.handle.with_admission(|it| it.generalized_cost(request));
            Some(explain(&input.with_generalized_cost(find)))
        })
    }

    fn customer_usage(&self) -> Vec<UsageDocument> {
        self.usage_of_customers()
    }

    fn usage_history(&self, month: Option<&str>) -> Result<Vec<UsageRecord>, String> {
        self.usage_of_month(month)
    }

    fn set_used(&self, quota: &str, used: Units) -> Result<(Units, Units), UnknownQuota> {
        let corrected = self.handle.set_used(quota, used)?;
        if self.lease_refresher.as_ref().is_some_and(|lease_refresher| !lease_refresher.flush(LEDGER_TIMEOUT)) {
            warn!("The correction of {quota} is active, but not in the ledger yet");
        }
        Ok(corrected)
    }

    fn change_switch(&self, change: SwitchChange) -> Result<SwitchDocument, String> {
        self.change_switch(change).map(|entry| views::switch(&entry))
    }

    fn purge_cache(&self, purge: &CachePurge) -> Result<u64, String> {
        self.handle.purge_cache(purge)
    }

    fn warm_cache(&self, url: &str, class: &str, site: Option<&str>) -> Result<WarmReceiver, String> {
        self.handle.warm_cache(url, class, site)
    }

    fn reload(&self) -> Result<String, String> {
        self.reload_config()
    }

    fn record_accept_failure(&self, error: &std::io::Error) {
        self.handle.record_accept_failure(error);
    }
}

impl ServiceState {
    /// Returns warnings for the administrator, as sentences.
    pub(super) fn warnings(&self) -> Vec<String> {
        let (mut notes, restart_keys) = self.handle.with_settings(|settings| {
            let restart_keys = settings.keys_needing_restart(&self.startup_settings);
            (settings.warnings.clone(), restart_keys)
        });
        notes.extend(
            restart_keys.iter().map(|key| format!("{key}: changed in the file, takes effect at the next start")),
        );
        notes.extend(self.lists(&self.address_list_files.lock()).filter_map(|(list, _, error)| {
            Some(format!("address_lists.{list}: {}; keeping the previous version", error?))
        }));
        notes.extend(self.certificate_warnings());
        notes.extend(self.switch_file_error.clone());
        notes.extend(crawlers::stale_ranges_warning(&self.operators.errors()));
        notes.extend(self.handle.unreported_costs().into_iter().map(|(quota, route, count)| {
            format!(
                "quotas.{quota}: none of {count} responses of the route {route} reported its cost, and each was charged as \
                 expected; compare cost_json or cost_trailer, and its Content-Type and Content-Encoding, with a response"
            )
        }));
        notes.extend(match self.handle.robots_over_limit() {
            0 => None,
            count => Some(format!("robots.txt of {count} hosts exceeds 500 KiB with directives: served without them")),
        });
        notes
    }

    fn scopes(&self) -> Vec<ScopeDocument> {
        let scopes = self.handle.with_settings(|settings| settings.rules.scopes.clone());
        let uptime = self.handle.uptime();
        self.handle.with_admission(|admission| {
            let throttled = admission.scopes(uptime);
            let document = |Scope { name, .. }: Scope| {
                let state = throttled.iter().find(|state| *state.name == *name);
                let is_partitioned = state.is_some_and(|state| state.partitions.is_some());
                let shown = if is_partitioned { MAX_SHOWN_PARTITIONS } else { 0 };
                let busiest = admission.busiest_partitions(&name, shown, uptime);
                views::scope(name.clone(), self.telemetry.inflight(&name), state, &busiest)
            };
            scopes.into_iter().map(document).collect()
        })
    }

    fn crawlers(&self) -> Vec<CrawlerDocument> {
        let compliance = self.handle.crawl_compliance();
        compliance.iter().map(|view| views::crawler(self.operators.name(view.operator), view)).collect()
    }

    fn cache_usage(&self) -> CacheUsage {
        CacheUsage {
            requests: self.telemetry.cache_requests(),
            saved: self.telemetry.saved_units(),
            refreshed: self.telemetry.refreshed_units(),
        }
    }
}

fn addresses(addresses: &[SocketAddr]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}

/// Number of paths without a route cost for which the origin reported most.
const PATH_COSTS: usize = 5;

/// Number of spenders of each kind.
const TOP_SPENDERS: usize = 10;

/// Number of refused clients. They fit one screen.
const TOP_CLIENTS: usize = 20;

/// Number of routes listed. A configuration may have thousands.
const LISTED_ROUTES: usize = 50;

/// Maximum number of busiest partitions shown per scope.
const MAX_SHOWN_PARTITIONS: usize = 20;

/// Number of URLs in the state of the cache.
const MOST_REQUESTED_URLS: usize = 20;
