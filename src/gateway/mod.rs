//! The data plane: accepts connections, handles requests, and forwards them to the origin.
//!
//! One [`worker`] accepts a connection and keeps it. [`transport`] has its sockets, the PROXY protocol, TLS, HTTP/2, and the bounds
//! of all waits for a client. [`exchange`] handles each request: what is known of it, the decision of the engine, and the answer. A
//! journal accompanies it and writes its log line. [`message`] has heads, bodies and the gateway's own documents, [`cache`] the
//! stored responses, and [`upstream`] the connections to the origin.

mod cache;
mod config;
mod config_names;
mod exchange;
mod in_place;
mod late_cost_counts;
mod log_interval;
mod message;
mod request_bodies;
mod session;
mod shared;
mod shared_count;
mod switch_subject;
mod transport;
mod unknown_paths;
mod untrusted_proxy;
mod upstream;
mod worker;

use crate::telemetry::WorkerTelemetry;
use config::Config;
use tidegate_config::Settings;
use tidegate_config::settings::{Listener, Origin};
use tidegate_crawlers::robots::OverrideFile;
use tidegate_engine::{Admission, ClientView, PathCostView, QuotaView, UnknownQuota};
use tidegate_policy::address_lists::AddressLists;
use tidegate_policy::crawl_delay::ComplianceView;
use tidegate_policy::hash::mix;
use tidegate_policy::switches::Switches;
use tidegate_policy::{OriginId, Timestamp, Units};
use transport::listener::{ListenerKind, ListenerOptions};

pub use cache::{CachePurge, CacheStats, CachedUrl, FillOutcome, WrittenUrl};
pub use config::ConfigFiles;
pub use message::error_pages::ErrorPages;
pub use message::page_url::{is_page_url, page_host};
pub use session::SessionSecret;
pub use shared::Dependencies;
use shared::Shared;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::thread::JoinHandle;
use std::time::Duration;
pub use tidegate_cache_disk::DiskStats;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::warn;
pub use transport::listen_sockets::ListenSockets;
pub use upstream::origin_health::OriginOutage;
pub use upstream::{OriginServerView, OriginServers, OriginView};
use worker::Stage;

/// Part of the drain timeout for requests that clients sent on idle connections before they could know of the shutdown.
const LAST_REQUESTS_PART: u32 = 10;
/// End of the drain timeout in which WebSockets are closed.
const UPGRADE_CLOSING_TIME: Duration = Duration::from_secs(2);
/// Interval of background maintenance.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(1);
/// Intervals of the eviction of idle clients and of the DNS lookup of the origin, in maintenance ticks.
const EVICTION_TICKS: u64 = 10;
const RESOLVE_TICKS: u64 = 30;

/// A running data plane.
pub struct Gateway {
    handle: Handle,
    listen: Vec<SocketAddr>,
    forward_auth: Option<SocketAddr>,
    /// Listening sockets, for a successor.
    sockets: ListenSockets,
    stage: watch::Sender<Stage>,
    /// `None` once they are joined by another thread.
    workers: Option<Vec<JoinHandle<io::Result<()>>>>,
}

/// Thread-safe access to a running gateway, for inspection and reloads.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

/// Error of [`Gateway::start`].
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listen address cannot be bound.
    #[error("listen: cannot listen on {address}: {source}; {}", bind_remedy(.address, .source))]
    Listen {
        /// Address of the listener.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The address for other proxies cannot be bound.
    #[error(
        "forward_auth.listen: cannot listen on {address}: {source}; write another port, such as forward_auth: {{ listen: \
         \"127.0.0.1:9093\" }}"
    )]
    ForwardAuth {
        /// Address of the listener.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// A thread cannot be started.
    #[error("cannot start a worker: {0}")]
    Thread(io::Error),
}

fn bind_remedy(address: &SocketAddr, error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied if address.port() < FIRST_UNPRIVILEGED_PORT => {
            "a port below 1024 needs the capability CAP_NET_BIND_SERVICE: with systemd, install deploy/low-ports.conf; else \
             run `sudo setcap cap_net_bind_service=+ep $(command -v tidegate)`; or write a higher port, such as listen: \
             127.0.0.1:8081"
        }
        _ => "write another port, such as listen: 127.0.0.1:8081",
    }
}

const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

impl Gateway {
    /// Binds all sockets, then starts the workers. `telemetry` creates the counters of each worker.
    pub fn start(
        settings: Settings,
        dependencies: Dependencies,
        mut inherited: ListenSockets,
        mut telemetry: impl FnMut(usize) -> WorkerTelemetry,
    ) -> Result<Self, StartError> {
        let count = worker_count(&settings);
        let mut sockets: Vec<Vec<_>> = (0..count).map(|_| Vec::new()).collect();
        let mut handed_over = ListenSockets::default();
        let mut number = 0;
        let mut bind = |address: SocketAddr| {
            let name = address.to_string();
            let bound = match inherited.take(&name) {
                taken if taken.is_empty() => transport::listener::bind(address, count)?,
                taken => transport::listener::adopt(taken, count)?,
            };
            let local = bound.first().map_or(Ok(address), |socket| socket.local_addr())?;
            for (index, socket) in bound.into_iter().enumerate() {
                handed_over.add(name.clone(), socket.try_clone()?.into());
                // A predecessor with more workers has more sockets.
                sockets[index % count].push((socket, number));
            }
            number += 1;
            Ok(local)
        };
        let mut listen = Vec::new();
        for &Listener { address, .. } in &settings.listen {
            listen.push(bind(address).map_err(|source| StartError::Listen { address, source })?);
        }
        let mut options = transport::listener::options(&settings.listen, &listen, &dependencies.tls);
        let forward_auth = settings.forward_auth.as_ref().map(|forward_auth| {
            let address = forward_auth.listen;
            bind(address).map_err(|source| StartError::ForwardAuth { address, source })
        });
        let forward_auth = forward_auth.transpose()?;
        options.extend(forward_auth.map(|address| ListenerOptions {
            kind: ListenerKind::ForwardAuth,
            address: Some(address),
            ..ListenerOptions::default()
        }));
        let seed = dependencies.seed;
        let shared = Arc::new(Shared::new(dependencies, settings, count));
        let handle = Handle(Arc::clone(&shared));
        handle.refresh_robots();
        let (stage, stage_receiver) = watch::channel(Stage::Serving);
        let start = |(worker, sockets): (usize, Vec<(TcpListener, usize)>)| {
            let listeners = sockets.into_iter().map(|(socket, number)| (socket, options[number].clone())).collect();
            let (shared, stage_receiver, telemetry) = (Arc::clone(&shared), stage_receiver.clone(), telemetry(worker));
            let seed = mix(seed ^ worker as u64);
            std::thread::Builder::new()
                .name(format!("worker-{worker}"))
                .spawn(move || transport::accept::run(shared, listeners, telemetry, stage_receiver, worker, seed))
                .map_err(StartError::Thread)
        };
        let workers = sockets.into_iter().enumerate().map(start).collect::<Result<_, _>>()?;
        Ok(Self { handle, listen, forward_auth, sockets: handed_over, stage, workers: Some(workers) })
    }

    /// Returns the bound addresses, with the actual ports.
    pub fn listen(&self) -> &[SocketAddr] {
        &self.listen
    }

    /// Returns the bound address for other proxies; `None` without `forward_auth`.
    pub fn forward_auth(&self) -> Option<SocketAddr> {
        self.forward_auth
    }

    /// Returns a handle for inspection and reloads.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Returns the listening sockets, for a successor.
    pub fn sockets(&self) -> &ListenSockets {
        &self.sockets
    }

    /// Shuts down: stops accepting, serves the last requests of open connections, drains requests until `drain_timeout`,
    /// then aborts the rest.
    pub fn shut_down(mut self) {
        // New connections are refused, and do not wait for a process that accepts them.
        self.sockets = ListenSockets::default();
        self.stop_requests().wait();
    }

    /// Stops accepting, and serves the last requests of open connections. Afterwards no request begins.
    pub fn stop_requests(mut self) -> DrainingGateway {
        let drain_timeout = self.handle.0.config().settings.limits.drain_timeout;
        self.stage.send_replace(Stage::LastRequests);
        let (finished, finished_receiver) = std::sync::mpsc::channel::<()>();
        let workers = self.workers.take().unwrap_or_default();
        let joiner = std::thread::spawn(move || {
            for worker in workers {
                if let Ok(Err(error)) = worker.join() {
                    warn!(%error, "Worker failed: {error}");
                }
            }
            drop(finished);
        });
        let last_requests = drain_timeout / LAST_REQUESTS_PART;
        let is_finished = finished_receiver.recv_timeout(last_requests) != Err(RecvTimeoutError::Timeout);
        if !is_finished {
            self.stage.send_replace(Stage::Draining);
        }
        let timeout = if is_finished { Duration::ZERO } else { drain_timeout - last_requests };
        DrainingGateway { stage: self.stage, sockets: self.sockets, timeout, finished: finished_receiver, joiner }
    }
}

/// A gateway in which no request begins.
pub struct DrainingGateway {
    stage: watch::Sender<Stage>,
    sockets: ListenSockets,
    timeout: Duration,
    finished: std::sync::mpsc::Receiver<()>,
    joiner: JoinHandle<()>,
}

impl DrainingGateway {
    /// Waits for the requests in flight, then aborts the rest. Returns the listening sockets.
    pub fn wait(self) -> ListenSockets {
        let Self { stage, sockets, timeout, finished, joiner } = self;
        let for_closing = UPGRADE_CLOSING_TIME.min(timeout / 2);
        let is_open = |timeout| finished.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout);
        if !timeout.is_zero() && is_open(timeout - for_closing) {
            stage.send_replace(Stage::ClosingUpgrades);
            if is_open(for_closing) {
                warn!("Drain timed out: aborting requests in flight");
                stage.send_replace(Stage::Closed);
            }
        }
        let _ = joiner.join();
        sockets
    }
}

impl Handle {
    /// Activates new settings with the servers of their origins, what was read from their files, and the switches, resolved by
    /// their rules. Counters are kept. Requests in flight complete under the settings they started with.
    pub fn replace_settings(
        &self,
        settings: Settings,
        origin_servers: Vec<OriginServers>,
        files: ConfigFiles,
        switches: Switches,
    ) {
        let before = self.0.config();
        let origin_servers =
            origin_servers.into_iter().map(|servers| servers.or_unchanged(&before.origin_servers)).collect();
        let config = Config::new(settings, origin_servers, files, switches, &self.0.engine, self.now());
        self.0.cache.resize(&config.settings);
        self.0.replace_config(config);
        self.0.crawl_delay_adviser.reset();
        self.refresh_robots();
        self.0.origin_changed.notify_one();
        self.0.origin_servers_changed.notify_one();
    }

    /// Activates new networks for the address lists of the current settings.
    pub fn replace_lists(&self, lists: AddressLists) {
        self.0.config().replace_lists(lists);
    }

    /// Activates other switches, resolved by the current rules.
    pub fn replace_switches(&self, switches: Switches) {
        self.0.replace_switches(switches);
    }

    /// Returns the number of responses that did not report the cost of their route, by quota and route.
    pub fn missing_costs(&self) -> Vec<(String, String, u64)> {
        self.0.late_cost_counts.missing()
    }

    /// Returns the routes of which no response reported the cost, with their number, by quota.
    pub fn unreported_costs(&self) -> Vec<(String, String, u64)> {
        self.0.late_cost_counts.never_found()
    }

    /// Returns the secret that signs session cookies.
    pub fn session_secret(&self) -> SessionSecret {
        self.0.session_keys.secret()
    }

    /// Signs session cookies with another secret from now on.
    pub fn replace_session_secret(&self, secret: SessionSecret) {
        self.0.session_keys.replace(secret);
    }

    /// Calls `f` with the current settings.
    pub fn with_settings<T>(&self, f: impl FnOnce(&Settings) -> T) -> T {
        f(&self.0.config().settings)
    }

    /// Returns the current networks of the address lists.
    pub fn lists(&self) -> Arc<AddressLists> {
        self.0.config().lists()
    }

    /// Calls `f` with the current quota and client state.
    pub fn with_admission<T>(&self, f: impl FnOnce(&Admission) -> T) -> T {
        f(&self.0.config().admission)
    }

    /// Returns the wall-clock time.
    pub fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// Returns the monotonic time.
    pub fn uptime(&self) -> Timestamp {
        self.0.clock.monotonic_now()
    }

    /// Returns the state of each origin, in the order of the settings.
    pub fn origins(&self) -> Vec<OriginView> {
        let config = self.0.config();
        let views = config.settings.origins.iter().zip(&config.origin_servers).enumerate();
        let view = |(index, (origin, servers)): (usize, (&Origin, &Arc<OriginServers>))| OriginView {
            name: config.settings.origin_name(OriginId::from_index(index)).map(str::to_owned),
            authorities: origin.authorities(),
            is_resolved: servers.is_resolved(),
            addresses: servers.addresses(),
            servers: servers.views(),
            outage: servers.outages.outage(),
        };
        views.map(view).collect()
    }

    /// Returns the number of connections to the origins, without upgraded ones.
    pub fn origin_connections(&self) -> usize {
        self.0.origin_connections.get()
    }

    /// Returns the number of upgraded connections.
    pub fn upgrades(&self) -> usize {
        self.0.upgrades.get()
    }

    /// Leaves the files of the cache to another process. Returns false if the time is over.
    pub fn close_cache(&self, timeout: Duration) -> bool {
        self.0.cache.store.close_disk(timeout)
    }

    /// Records that a listener outside the gateway could not accept a connection.
    pub fn record_accept_failure(&self, error: &io::Error) {
        self.0.record_accept_failure(error);
    }

    /// Returns the number of open client connections.
    pub fn connections(&self) -> usize {
        self.0.open_connections.get()
    }

    /// Returns a snapshot of each quota.
    pub fn quotas(&self) -> Vec<QuotaView> {
        self.0.config().admission.quotas(self.now())
    }

    /// Returns the units that the origin reported for paths without a route cost, most first.
    pub fn path_costs(&self) -> Vec<PathCostView> {
        self.0.config().admission.path_costs()
    }

    /// Returns the `count` most refused clients, in descending order.
    pub fn top_clients(&self, count: usize) -> Vec<ClientView> {
        let name = |operator| self.0.operators.name(operator);
        self.0.config().admission.top_clients(count, name, self.now())
    }

    /// Returns the number of tracked clients and the number of evicted ones.
    pub fn client_counts(&self) -> (usize, u64) {
        (self.0.engine.clients_tracked(), self.0.engine.clients_evicted())
    }

    /// Sets the usage of a quota manually. Returns the previous and the new usage.
    pub fn set_used(&self, quota: &str, used: Units) -> Result<(Units, Units), UnknownQuota> {
        self.0.config().admission.set_used(quota, used, self.now())
    }

    /// Runs periodic maintenance until dropped: DNS lookups of the origins, robots.txt updates, syncs of the cache on disk,
    /// settlement of the requests of other proxies, eviction of idle clients.
    pub async fn run_maintenance(&self) {
        let mut ticks = tokio::time::interval(MAINTENANCE_INTERVAL);
        for count in 0u64.. {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.0.origin_changed.notified() => {}
            }
            if count % RESOLVE_TICKS == 0 || !self.0.config().are_origins_resolved() {
                self.resolve_origins().await;
            }
            self.refresh_robots();
            self.0.cache.store.sync();
            self.expire_pending_decisions();
            if count % EVICTION_TICKS == 0 {
                self.0.config().admission.evict_idle(self.now());
                self.0.credentials.evict_idle(self.now());
            }
        }
    }

    /// Returns the number of requests of other proxies whose cost is not known, and of those that were dropped to make
    /// space; `None` without `forward_auth`.
    pub fn pending_decisions(&self) -> Option<(u64, u64)> {
        self.with_settings(|settings| settings.forward_auth.is_some()).then(|| self.0.pending_decisions.counts())
    }

    /// Settles the requests of other proxies whose cost was not reported in time.
    fn expire_pending_decisions(&self) {
        let settle_after = self.with_settings(|settings| settings.forward_auth.as_ref().map(|it| it.settle_after));
        self.0.pending_decisions.expire(settle_after.unwrap_or_default(), self.uptime());
    }

    /// Updates the robots.txt directives, and the administrator's own file if there is one.
    fn refresh_robots(&self) {
        let (shared, config) = (&self.0, self.0.config());
        let settings = &config.settings;
        let advertised =
            shared.crawl_delay_adviser.advertised(settings, &shared.operators, &self.quotas(), self.uptime());
        shared.crawl_compliance.set_delays(&advertised.per_operator);
        shared.robots_cache.set_directives(advertised.directives);
        match settings.robots.override_file.as_deref() {
            None => {
                *shared.robots_override.lock() = OverrideFile::default();
                shared.robots_cache.set_override(None);
            }
            Some(file) => {
                let text = shared.robots_override.lock().reload_if_changed(file);
                text.into_iter().for_each(|text| shared.robots_cache.set_override(Some(text)));
            }
        }
    }

    /// Returns what the cache contains; `None` if nothing is stored.
    pub fn cache_stats(&self) -> Option<CacheStats> {
        self.0.config().settings.cache.map(|_| self.0.cache.store.stats())
    }

    /// Waits until what is stored is written to disk, for at most `timeout`. Returns false if the time is over.
    pub fn flush_cache(&self, timeout: Duration) -> bool {
        self.0.cache.store.flush(timeout)
    }

    /// Returns the number of writes that invalidated stored responses, and of those that exceeded the rate of their client.
    pub fn cache_invalidations(&self) -> [u64; 2] {
        self.0.cache.invalidations.counts()
    }

    /// Returns the `count` stored URLs that were requested most, in descending order.
    pub fn most_requested_urls(&self, count: usize) -> Vec<CachedUrl> {
        self.0.cache.store.most_requested(count)
    }

    /// Removes stored responses. Returns their number, or an error of one line.
    pub fn purge_cache(&self, purge: &CachePurge) -> Result<u64, String> {
        let cache::ResponseCache { store, invalidations, .. } = &*self.0.cache;
        // Recorded first, so that no response that is on its way is stored afterwards.
        invalidations.record_purge(self.now());
        purge.apply(&self.0.config().settings.rules, store)
    }

    /// Returns the URLs that are written to from now on, until [`Self::end_follow_writes`].
    pub fn follow_writes(&self) -> std::sync::mpsc::Receiver<WrittenUrl> {
        self.0.cache.invalidations.follow()
    }

    /// Ends the receiver of [`Self::follow_writes`].
    pub fn end_follow_writes(&self) {
        self.0.cache.invalidations.end_follow();
    }

    /// Invalidates the stored responses of a URL that was written to through another process.
    pub fn record_write(&self, url: WrittenUrl) {
        self.0.cache.record_write(cache::CacheKey::from_bytes(url.0), self.now());
    }

    /// Returns the warning about a proxy that is not in `trusted_proxies`, if one was detected.
    pub fn untrusted_proxy(&self) -> Option<String> {
        self.0.config().untrusted_proxy.warning()
    }

    /// Returns the number of robots.txt documents that exceed the size limit with directives.
    pub fn robots_over_limit(&self) -> usize {
        self.0.robots_cache.over_limit_count()
    }

    /// Returns how crawlers comply with their crawl delays, by operator.
    pub fn crawl_compliance(&self) -> Vec<ComplianceView> {
        self.0.crawl_compliance.views()
    }

    /// Resolves the servers of all origins at once. A failed lookup keeps the previous addresses.
    pub async fn resolve_origins(&self) {
        let servers = self.0.config().origin_servers.clone();
        let lookups = servers.into_iter().map(|servers| async move { servers.resolve().await });
        JoinSet::from_iter(lookups).join_all().await;
    }

    /// Checks the servers of the origins whose settings want it, until dropped.
    pub async fn run_health_checks(&self) {
        loop {
            let mut checks = JoinSet::new();
            for servers in &self.0.config().origin_servers {
                let (servers, clock) = (Arc::clone(servers), self.0.clock.clone());
                checks.spawn(async move {
                    loop {
                        let pause = Arc::clone(&servers).check_all(|| clock.monotonic_now()).await;
                        tokio::time::sleep(pause).await;
                    }
                });
            }
            self.0.origin_servers_changed.notified().await;
        }
    }
}

fn worker_count(settings: &Settings) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    settings.workers.map_or_else(cores, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_a_privileged_port_names_the_capability() {
        let error = |port, kind: io::ErrorKind| {
            StartError::Listen { address: ([0, 0, 0, 0], port).into(), source: kind.into() }.to_string()
        };
        assert!(error(80, io::ErrorKind::PermissionDenied).contains("CAP_NET_BIND_SERVICE"));
        for other in [error(8080, io::ErrorKind::PermissionDenied), error(80, io::ErrorKind::AddrInUse)] {
            assert!(other.ends_with("; write another port, such as listen: 127.0.0.1:8081"), "{other}");
        }
    }
}
