//! State shared by all workers. Workers only read it, except for counters.

use crate::gateway::cache::ResponseCache;
use crate::gateway::config::{Config, ConfigFiles};
use crate::gateway::late_cost_counts::LateCostCounts;
use crate::gateway::log_interval::LogInterval;
use crate::gateway::message::crawl_delay::CrawlDelayAdviser;
use crate::gateway::message::forward_auth::PendingDecisions;
use crate::gateway::session::{SessionKeys, SessionSecret};
use crate::gateway::shared_count::SharedCount;
use crate::gateway::transport::connection_limits::ConnectionCounts;
use crate::gateway::transport::connection_memory::MemoryTotal;
use crate::gateway::transport::spool::{SpoolError, SpoolUsage};
use crate::gateway::unknown_paths::UnknownPaths;
use crate::gateway::upstream::OriginServers;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::hash::RandomState;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_config::Settings;
use tidegate_crawlers::robots::{CrawlCompliance, OverrideFile, RobotsCache};
use tidegate_crawlers::user_agents::UserAgentMatcher;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_crawlers::verify::signature::SignatureVerifier;
use tidegate_engine::clock::Clock;
use tidegate_engine::{Credentials, Engine, ReturnTable};
use tidegate_policy::Rules;
use tidegate_policy::switches::Switches;
use tidegate_tls::{PendingChallenges, TlsListener};
use tokio::sync::Notify;
use tracing::{error, warn};

/// Dependencies of a gateway besides its settings, injected for tests and demos.
pub struct Dependencies {
    /// Source of time.
    pub clock: Clock,
    /// Quota and client state, which survives reloads.
    pub engine: Arc<Engine>,
    /// Recognizes crawlers by their user agents.
    pub user_agents: Arc<UserAgentMatcher>,
    /// Verifies crawler addresses.
    pub operators: Arc<OperatorTable>,
    /// Verifies request signatures.
    pub signatures: Arc<SignatureVerifier>,
    /// TLS of the listeners that have it, in order.
    pub tls: Vec<Arc<TlsListener>>,
    /// Challenges of an ACME server, which listeners without TLS answer.
    pub challenges: Arc<PendingChallenges>,
    /// Servers of the origins of the settings, in their order.
    pub origin_servers: Vec<OriginServers>,
    /// What was read from the files that the settings name.
    pub files: ConfigFiles,
    /// Secret that signs session cookies.
    pub session_secret: SessionSecret,
    /// Switches of administrators, resolved by the rules of the settings.
    pub switches: Switches,
    /// Notified when the ledger has responded; `None` if there is no ledger.
    pub ledger_responses: Option<Arc<Notify>>,
    /// True if the ledger may be far away.
    pub is_ledger_remote: bool,
    /// Memory for client connections without `limits.memory`, in bytes; `None` is no limit.
    pub default_memory: Option<u64>,
    /// Connections to the origins to open for requests to come: as many as a predecessor had.
    pub origin_connections: usize,
    /// Unpredictable seed of ids and jitter.
    pub seed: u64,
}

/// State shared by all workers of a gateway.
pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) engine: Arc<Engine>,
    pub(super) user_agents: Arc<UserAgentMatcher>,
    pub(super) operators: Arc<OperatorTable>,
    pub(super) signatures: Arc<SignatureVerifier>,
    pub(super) challenges: Arc<PendingChallenges>,
    /// Notified when the ledger has responded.
    pub(super) ledger_responses: Option<Arc<Notify>>,
    /// True if the ledger may be far away, so that requests wait for it only where the first one of each key has to.
    is_ledger_remote: bool,
    /// Notified when an origin needs a DNS lookup at once.
    pub(super) origin_changed: Notify,
    /// The servers of the origins may have changed: checks start over.
    pub(super) origin_servers_changed: Notify,
    /// Connections to the origins, of all workers.
    pub(super) origin_connections: SharedCount,
    /// Connections to the origins that each worker opens for requests to come.
    pub(super) origin_connections_to_open: usize,
    /// Requests for the origin's cache alone, in flight.
    pub(super) origin_cache_requests: SharedCount,
    /// Requests for paths whose cost is unknown, while a quota is nearly spent.
    pub(super) unknown_paths: Arc<UnknownPaths>,
    /// Request bodies in reception, by address.
    pub(super) body_counts: ConnectionCounts,
    /// Number of upgraded connections, in all and by address.
    pub(super) upgrades: SharedCount,
    pub(super) upgrade_counts: ConnectionCounts,
    /// Bytes of bodies in files.
    pub(super) spool_usage: Arc<SpoolUsage>,
    /// Memory for client connections without `limits.memory`, in bytes; `None` is no limit.
    pub(super) default_memory: Option<u64>,
    pub(super) connection_memory: MemoryTotal,
    /// Logged failures to accept a connection, of all listeners.
    logged_accept_failures: LogInterval,
    /// Logged refusals of connections: in all, and of one address.
    logged_refused_connections: [LogInterval; 2],
    /// Logged failures to keep a body in a file.
    logged_spool_failures: LogInterval,
    /// Open client connections of all workers.
    pub(super) open_connections: SharedCount,
    /// Open client connections by address, if limited.
    pub(super) connection_counts: ConnectionCounts,
    /// TLS handshakes in progress by address, if limited.
    pub(super) handshake_counts: ConnectionCounts,
    pub(super) worker_count: usize,
    pub(super) via: Via,
    /// Credentials that count as clients of their own.
    pub(super) credentials: Credentials,
    /// Hashes client credentials with a per-process key, so that hashes are unpredictable and differ after a restart.
    pub(super) credential_hasher: RandomState,
    /// Costs that responses reported after their head.
    pub(super) late_cost_counts: LateCostCounts,
    /// Signs session cookies.
    pub(super) session_keys: SessionKeys,
    /// Clients that were asked to come back with a session.
    pub(super) returns: ReturnTable,
    /// The robots.txt of each site, the crawl delays in it, and the crawlers' compliance.
    pub(super) robots_cache: RobotsCache,
    /// Stored responses.
    pub(super) cache: Arc<ResponseCache>,
    /// Admitted requests of other proxies whose cost is not known.
    pub(super) pending_decisions: PendingDecisions,
    pub(super) crawl_delay_adviser: CrawlDelayAdviser,
    pub(super) crawl_compliance: CrawlCompliance,
    /// The administrator's robots.txt file, if configured.
    pub(super) robots_override: Mutex<OverrideFile>,
    config: ArcSwap<Config>,
    config_number: AtomicU64,
}

/// `Via` entries with a pseudonym of this gateway, which distinguishes a loop from a chain of gateways.
pub(super) struct Via {
    pub(super) pseudonym: String,
    pub(super) http1: String,
    pub(super) http2: String,
}

impl Shared {
    pub(super) fn new(dependencies: Dependencies, settings: Settings, worker_count: usize) -> Self {
        let Dependencies {
            clock,
            engine,
            user_agents,
            operators,
            signatures,
            tls: _,
            challenges,
            origin_servers,
            files,
            session_secret,
            switches,
            ledger_responses,
            is_ledger_remote,
            default_memory,
            origin_connections,
            seed,
        } = dependencies;
        let max_tracked_clients = settings.limits.max_tracked_clients;
        let cache = Arc::new(ResponseCache::of(&settings, clock.clone(), seed));
        let origin_servers = origin_servers.into_iter().map(Arc::new).collect();
        let config = Config::new(settings, origin_servers, files, switches, &engine, clock.now());
        let compliance = CrawlCompliance::new(operators.names().count());
        Self {
            clock,
            engine,
            user_agents,
            operators,
            signatures,
            challenges,
            ledger_responses,
            is_ledger_remote,
            origin_changed: Notify::new(),
            origin_servers_changed: Notify::new(),
            origin_connections: SharedCount::default(),
            origin_connections_to_open: origin_connections.div_ceil(worker_count),
            unknown_paths: Arc::default(),
            origin_cache_requests: SharedCount::default(),
            body_counts: ConnectionCounts::default(),
            upgrades: SharedCount::default(),
            upgrade_counts: ConnectionCounts::default(),
            spool_usage: Arc::default(),
            default_memory,
            connection_memory: MemoryTotal::default(),
            logged_accept_failures: LogInterval::default(),
            logged_refused_connections: Default::default(),
            logged_spool_failures: LogInterval::default(),
            open_connections: SharedCount::default(),
            connection_counts: ConnectionCounts::default(),
            handshake_counts: ConnectionCounts::default(),
            worker_count,
            via: Via::new(seed),
            credentials: Credentials::new(max_tracked_clients),
            credential_hasher: RandomState::new(),
            late_cost_counts: LateCostCounts::default(),
            session_keys: SessionKeys::new(session_secret),
            returns: ReturnTable::default(),
            robots_cache: RobotsCache::default(),
            cache,
            pending_decisions: PendingDecisions::default(),
            crawl_delay_adviser: CrawlDelayAdviser::default(),
            crawl_compliance: compliance,
            robots_override: Mutex::default(),
            config: ArcSwap::from_pointee(config),
            config_number: AtomicU64::new(0),
        }
    }

    /// Returns true if a request that lacks a lease waits for one. A remote ledger lets only requests of a file with budgets
    /// wait, because the first one of each key has no lease.
    #[cold]
    pub(super) fn may_wait_for_ledger(&self, rules: &Rules) -> bool {
        !self.is_ledger_remote || rules.quotas.iter().any(|quota| quota.budget.is_some())
    }

    /// Returns the current configuration.
    pub(super) fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// Returns a number that changes with each reload and each switch; cheap enough for every request.
    pub(super) fn config_number(&self) -> u64 {
        self.config_number.load(Ordering::Acquire)
    }

    /// Records that a connection could not be accepted. Logs at most one a minute of all listeners, because clients can cause
    /// them by open connections.
    pub(super) fn record_accept_failure(&self, error: &io::Error) {
        match self.logged_accept_failures.record(self.clock.monotonic_now()) {
            None => {}
            Some(0) => warn!(%error, "Cannot accept connections: {error}"),
            Some(since) => {
                warn!(%error, since, "Cannot accept connections: {error}; {since} more since the last report");
            }
        }
    }

    /// Records that a connection was refused because `max` are open: in all, or of one client. Logs at most one a minute of
    /// each, because clients can cause them.
    pub(super) fn record_refused_connection(&self, client: Option<IpAddr>, max: usize) {
        let [in_all, per_address] = &self.logged_refused_connections;
        let logged = if client.is_some() { per_address } else { in_all };
        if let Some(since) = logged.record(self.clock.monotonic_now()) {
            warn!("{}", refused_connection(client, max, since));
        }
    }

    /// Records that a body could not be kept in a file. Logs at most one a minute. Files without space are not logged, because
    /// clients can fill them.
    pub(super) fn record_spool_failure(&self, failure: &SpoolError) {
        let SpoolError::Io(error) = failure else { return };
        match self.logged_spool_failures.record(self.clock.monotonic_now()) {
            None => {}
            Some(0) => error!(%error, "Bodies cannot be stored in state_dir: {error}"),
            Some(since) => {
                error!(%error, since, "Bodies cannot be stored in state_dir: {error}; {since} more since the last report");
            }
        }
    }

    /// Activates a new configuration.
    pub(super) fn replace_config(&self, config: Config) {
        self.config.store(Arc::new(config));
        self.config_number.fetch_add(1, Ordering::Release);
    }

    /// Activates other switches in the current configuration.
    pub(super) fn replace_switches(&self, switches: Switches) {
        self.config.load().replace_switches(switches);
        self.config_number.fetch_add(1, Ordering::Release);
    }
}

impl Via {
    fn new(seed: u64) -> Self {
        let pseudonym = format!("tidegate-{:08x}", seed as u32);
        Self { http1: format!("1.1 {pseudonym}"), http2: format!("2.0 {pseudonym}"), pseudonym }
    }
}

/// Returns the line about a refused connection. `since` is the number of refused ones since the last line.
fn refused_connection(client: Option<IpAddr>, max: usize, since: u64) -> String {
    let more = if since == 0 { String::new() } else { format!("; {since} more since the last report") };
    match client {
        None => format!("Client connections are refused: {max} are open (limits.max_connections){more}"),
        Some(client) => format!(
            "Connections of {client} are refused: {max} of its address or IPv6 prefix are open \
             (limits.max_connections_per_address; 0 is no limit){more}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_connection_names_the_address_and_the_key() {
        let line = refused_connection(Some([192, 0, 2, 1].into()), 2, 0);
        let expected = "Connections of 192.0.2.1 are refused: 2 of its address or IPv6 prefix are open \
                        (limits.max_connections_per_address; 0 is no limit)";
        assert_eq!(line, expected);
        let line = refused_connection(None, 10, 3);
        assert_eq!(
            line,
            "Client connections are refused: 10 are open (limits.max_connections); 3 more since the last report"
        );
    }
}
