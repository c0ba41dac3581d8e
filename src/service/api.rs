//! The running gateway as the admin API sees it.

use super::{BUILD, BoundAddresses, LEDGER_TIMEOUT, ServiceState, crawlers};
use crate::admin::{
    CacheUsage, CacheView, GatewayApi, ListenAddresses, ScopeView, SettingsView, SwitchChange, WarmReceiver,
};
use crate::gateway::{CachePurge, OriginOutage, OriginServerView};
use crate::telemetry::ClassTraffic;
use tidegate_engine::ledger::LeaseRefresher;
use tidegate_engine::spenders::TopSpenders;
use tidegate_engine::switch_store::SwitchEntry;
use tidegate_engine::{ClientView, PathCostView, QuotaView, UnknownQuota};
use tidegate_policy::crawl_delay::ComplianceView;
use tidegate_policy::throttle::Scope;
use tidegate_policy::{RequestFacts, Timestamp, Units};
use tidegate_replay::explain::{Environment, Explanation, explain, input_from_log};
use tidegate_replay::log::LogLine;
use tracing::warn;

/// Maximum number of busiest partitions shown per scope.
const MAX_SHOWN_PARTITIONS: usize = 20;

/// Number of URLs in the state of the cache.
const MOST_REQUESTED_URLS: usize = 20;

impl GatewayApi for ServiceState {
    fn now(&self) -> Timestamp {
        self.handle.now()
    }

    fn record_accept_failure(&self, error: &std::io::Error) {
        self.handle.record_accept_failure(error);
    }

    fn started_at(&self) -> Timestamp {
        self.started_at
    }

    fn version(&self) -> &str {
        BUILD.0
    }

    fn revision(&self) -> &str {
        BUILD.1
    }

    fn addresses(&self) -> ListenAddresses {
        let BoundAddresses { listen, admin } = &self.addresses;
        ListenAddresses {
            listen: listen.clone(),
            admin: admin.clone(),
            origin: self.handle.with_settings(|settings| settings.origin.authorities()),
            origin_addresses: self.handle.origin_addresses(),
        }
    }

    fn origin_servers(&self) -> Vec<OriginServerView> {
        self.handle.origin_servers()
    }

    fn origin_outage(&self) -> Option<OriginOutage> {
        self.handle.origin_outage()
    }

    fn settings(&self) -> SettingsView {
        self.settings.lock().clone()
    }

    fn not_ready_reasons(&self) -> Vec<String> {
        let origin = self.handle.with_settings(|settings| settings.origin.authorities());
        let mut reasons = Vec::new();
        if !self.handle.is_origin_resolved() {
            reasons.push(format!("The origin {origin} has not been resolved yet."));
        }
        if self.lease_refresher.as_ref().is_some_and(|lease_refresher| !lease_refresher.is_ready()) {
            reasons.push("The ledger has not granted any leases yet.".into());
        }
        reasons
    }

    fn ledger_error(&self) -> Option<String> {
        self.lease_refresher.as_ref().and_then(LeaseRefresher::last_error)
    }

    fn untrusted_proxy(&self) -> Option<String> {
        self.handle.untrusted_proxy()
    }

    fn warnings(&self) -> Vec<String> {
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
        notes.extend(match self.handle.robots_over_limit() {
            0 => None,
            count => Some(format!("robots.txt of {count} hosts exceeds 500 KiB with directives: served without them")),
        });
        notes
    }

    fn metrics(&self) -> String {
        self.telemetry.scrape(|| self.record_state())
    }

    fn quotas(&self) -> Vec<QuotaView> {
        self.handle.quotas()
    }

    fn path_costs(&self) -> Vec<PathCostView> {
        self.handle.path_costs()
    }

    fn classes(&self) -> Vec<String> {
        self.handle.with_settings(|settings| settings.rules.classes.iter().map(|class| class.name.clone()).collect())
    }

    fn scopes(&self) -> Vec<ScopeView> {
        let scopes = self.handle.with_settings(|settings| settings.rules.scopes.clone());
        let uptime = self.handle.uptime();
        self.handle.with_admission(|admission| {
            let mut throttled = admission.scopes(uptime);
            let mut view = |Scope { name, .. }: Scope| {
                let index = throttled.iter().position(|state| *state.name == *name);
                let throttle = index.map(|index| throttled.swap_remove(index));
                let is_partitioned = throttle.as_ref().is_some_and(|state| state.partitions.is_some());
                let shown = if is_partitioned { MAX_SHOWN_PARTITIONS } else { 0 };
                let busiest = admission.busiest_partitions(&name, shown, uptime);
                ScopeView { inflight: self.telemetry.inflight(&name), name, throttle, busiest }
            };
            scopes.into_iter().map(&mut view).collect()
        })
    }

    fn crawlers(&self) -> Vec<(String, ComplianceView)> {
        let named = |compliance: ComplianceView| (self.operators.name(compliance.operator).to_owned(), compliance);
        self.handle.crawl_compliance().into_iter().map(named).collect()
    }

    fn connections(&self) -> usize {
        self.handle.connections()
    }

    fn log_lines_dropped(&self) -> u64 {
        self.telemetry.log_lines_dropped()
    }

    fn top_clients(&self, count: usize) -> Vec<ClientView> {
        self.handle.top_clients(count)
    }

    fn class_traffic(&self) -> Vec<ClassTraffic> {
        self.telemetry.class_traffic()
    }

    fn top_spenders(&self, count: usize) -> (Timestamp, TopSpenders) {
        self.telemetry.top_spenders(count, self.handle.now())
    }

    fn set_used(&self, quota: &str, used: Units) -> Result<(Units, Units), UnknownQuota> {
        let corrected = self.handle.set_used(quota, used)?;
        if self.lease_refresher.as_ref().is_some_and(|lease_refresher| !lease_refresher.flush(LEDGER_TIMEOUT)) {
            warn!("The correction of {quota} is active, but not in the ledger yet");
        }
        Ok(corrected)
    }

    fn cache(&self) -> Option<CacheView> {
        Some(CacheView {
            stats: self.handle.cache_stats()?,
            usage: self.cache_usage()?,
            most_requested: self.handle.most_requested_urls(MOST_REQUESTED_URLS),
        })
    }

    fn cache_usage(&self) -> Option<CacheUsage> {
        self.handle.cache_stats()?;
        Some(CacheUsage {
            requests: self.telemetry.cache_requests(),
            saved: self.telemetry.saved_units(),
            refreshed: self.telemetry.refreshed_units(),
        })
    }

    fn purge_cache(&self, purge: &CachePurge) -> Result<u64, String> {
        self.handle.purge_cache(purge)
    }

    fn warm_cache(&self, url: &str, class: &str, site: Option<&str>) -> Result<WarmReceiver, String> {
        self.handle.warm_cache(url, class, site)
    }

    fn switches(&self) -> Vec<SwitchEntry> {
        self.switches.current(self.handle.now())
    }

    fn change_switch(&self, change: SwitchChange) -> Result<SwitchEntry, String> {
        self.change_switch(change)
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
            let environment =
                Environment { settings, user_agents: &self.user_agents, operators: &self.operators, lists: &lists };
            let input = input_from_log(&line, environment).ok()?.with_quotas(&quotas);
            let find = |request: &RequestFacts<'_>| self.handle.with_admission(|it| it.generalized_cost(request));
            Some(explain(&input.with_generalized_cost(find)))
        })
    }

    fn reload(&self) -> Result<String, String> {
        self.reload_config()
    }
}
