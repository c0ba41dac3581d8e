//! A worker: one thread of the data plane with its own runtime, sockets, and connections to the origin. Requests share
//! only the engine with other workers.

use crate::gateway::config::Config;
use crate::gateway::config_names::ConfigNames;
use crate::gateway::log_interval::LogInterval;
use crate::gateway::message::compressor;
use crate::gateway::message::scratch::ScratchBuffer;
use crate::gateway::shared::Shared;
use crate::gateway::shared_count::SharedCount;
use crate::gateway::switch_subject::SwitchSubject;
use crate::gateway::transport::connection_timeouts::{ConnectionCommand, ConnectionRegistry, TICK};
use crate::gateway::transport::proxy_protocol::{ProxiedClient, ProxyHeaderError};
use crate::gateway::transport::spool::SpoolFile;
use crate::gateway::transport::sweep::SweepList;
use crate::gateway::upstream::{ForwardError, MAX_RESPONSE_HEAD, OriginPools, Upstream, UpstreamTarget};
use crate::telemetry::WorkerTelemetry;
use http::HeaderName;
use hyper::body::Incoming;
use std::cell::{Cell, RefCell, RefMut};
use std::net::IpAddr;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_access_log::rfc3339;
use tidegate_config::settings::{Limits, Settings};
use tidegate_crawlers::user_agents::ClaimCache;
use tidegate_engine::IgnoredReport;
use tidegate_http1::{DateCache, HeadLimits};
use tidegate_policy::bot_detection::BrowserTraits;
use tidegate_policy::hash::mix;
use tidegate_policy::quota_sync::{OriginQuotaEvent, OriginReport};
use tidegate_policy::switches::Switches;
use tidegate_policy::{Claim, OriginId, QuotaId, Timestamp};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tracing::{debug, info, warn};

/// State shared by all requests of one thread.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    config: RefCell<Rc<WorkerConfig>>,
    /// Monotonic time at the last update, precise enough for timeouts.
    uptime: Rc<Cell<Timestamp>>,
    dates: DateCache,
    connections: ConnectionRegistry,
    /// Bytes that the connections occupied at the last tick.
    connection_memory: Cell<u64>,
    is_short_of_memory: Cell<bool>,
    upstream: Upstream,
    /// Index among the workers.
    index: usize,
    /// True once connections for requests to come are opened.
    is_warm: Cell<bool>,
    sweep_list: SweepList,
    claims: RefCell<ClaimCache>,
    telemetry: WorkerTelemetry,
    scratch: RefCell<ScratchBuffer>,
    /// Logged failures of the origin.
    logged_failures: LogInterval,
    /// Logged connections that were closed because of their PROXY protocol header.
    logged_proxy_errors: LogInterval,
    /// TLS handshakes in progress.
    handshakes: SharedCount,
    drain: mpsc::Sender<Incoming>,
    /// Number of the configuration at the last tick, or of its switches.
    seen_config: watch::Sender<u64>,
    /// True once WebSockets are closed.
    closing_upgrades: watch::Sender<bool>,
    /// Work on requests that does not wait for their clients: the origin still processes them although their clients
    /// left, or sends faster than their clients read. `None` once the gateway is closed.
    detached: RefCell<Option<JoinSet<()>>>,
    seed: u64,
    decision_count: Cell<u64>,
}

/// Current configuration, reference-counted per thread.
pub(super) struct WorkerConfig {
    config_number: u64,
    config: Arc<Config>,
    pub(super) switches: Arc<Switches>,
    /// Connections to the origins.
    pools: OriginPools,
}

/// Stage of the gateway's shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Serving,
    /// Accepts no connections; each open one may send one more request, because it may be on its way.
    LastRequests,
    /// Open connections complete their requests.
    Draining,
    /// WebSockets are closed, because the time is nearly over.
    ClosingUpgrades,
    /// Open connections are aborted.
    Closed,
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        telemetry: WorkerTelemetry,
        drain: mpsc::Sender<Incoming>,
        index: usize,
        seed: u64,
    ) -> Rc<Self> {
        let uptime = Rc::new(Cell::new(shared.clock.monotonic_now()));
        let upstream = Upstream::new(Rc::clone(&uptime), shared.origin_connections.clone());
        let config_number = shared.config_number();
        let config = WorkerConfig::new(config_number, shared.config(), &upstream, &OriginPools::none());
        Rc::new(Self {
            config: RefCell::new(Rc::new(config)),
            uptime,
            dates: DateCache::new(),
            connections: ConnectionRegistry::default(),
            connection_memory: Cell::new(0),
            is_short_of_memory: Cell::new(false),
            upstream,
            index,
            is_warm: Cell::new(shared.origin_connections_to_open == 0),
            sweep_list: SweepList::default(),
            claims: RefCell::new(ClaimCache::new(foldhash::fast::RandomState::default())),
            telemetry,
            scratch: RefCell::new(ScratchBuffer::new()),
            logged_failures: LogInterval::default(),
            logged_proxy_errors: LogInterval::default(),
            handshakes: SharedCount::default(),
            drain,
            seen_config: watch::Sender::new(config_number),
            closing_upgrades: watch::Sender::new(false),
            detached: RefCell::new(Some(JoinSet::new())),
            seed,
            decision_count: Cell::new(0),
            shared,
        })
    }

    /// Runs maintenance until the gateway is closed, or until it drains and no connection is open.
    pub(super) async fn run_maintenance(self: Rc<Self>, mut stage: watch::Receiver<Stage>) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                changed = stage.changed() => if changed.is_err() { break },
            }
            match *stage.borrow_and_update() {
                Stage::Serving => {}
                Stage::LastRequests => self.connections.command_all(ConnectionCommand::CloseAfterResponse),
                Stage::Draining => self.connections.command_all(ConnectionCommand::Drain),
                Stage::ClosingUpgrades => {
                    self.connections.command_all(ConnectionCommand::Drain);
                    self.closing_upgrades.send_replace(true);
                }
                Stage::Closed => break,
            }
            self.tick().await;
            self.warm_up();
            if *stage.borrow() != Stage::Serving && self.connections.open_count() == 0 {
                break;
            }
        }
        // In this order: closed connections abandon their requests.
        drop(self.detached.take());
        self.connections.command_all(ConnectionCommand::Close);
        while self.connections.open_count() > 0 {
            tokio::task::yield_now().await;
        }
        self.telemetry().flush();
    }

    /// Applies timeouts, closes idle connections and flushes telemetry.
    ///
    /// First lets the runtime poll the sockets and run ready tasks, so this must run as a task: data that arrived while
    /// the thread was busy or suspended is read before timeouts are checked.
    async fn tick(&self) {
        self.monotonic_now();
        tokio::task::yield_now().await;
        let config = self.config();
        if *self.seen_config.borrow() != config.config_number {
            self.seen_config.send_replace(config.config_number);
        }
        let memory = self.connections.sweep(&config.settings.limits);
        self.move_displaced_bodies(&config.settings);
        self.limit_memory(memory, &config.settings.limits);
        self.sweep_list.sweep(self.uptime.get(), config.settings.limits.min_rate);
        self.upstream.sweep(config.pools(), &config.settings.origins, self.uptime.get());
        while self.detached.borrow_mut().as_mut().and_then(JoinSet::try_join_next).is_some() {}
        self.telemetry().flush();
    }

    /// Opens connections for requests to come, once the addresses of the origins are known.
    fn warm_up(self: &Rc<Self>) {
        if self.is_warm.get() || !self.config().are_origins_resolved() {
            return;
        }
        self.is_warm.set(true);
        let worker = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let config = worker.config();
            let origins = &config.settings.origins;
            let count = worker.shared.origin_connections_to_open.div_ceil(origins.len());
            // Each of the others would name a client.
            for index in (0..origins.len()).filter(|index| origins[*index].proxy_protocol.is_none()) {
                let target = worker.upstream_target(&config, OriginId::from_index(index), None);
                worker.upstream.warm_up(count, &target).await;
            }
        });
    }

    /// Returns the servers of an origin, and how to send a request for `client` to them.
    pub(super) fn upstream_target<'a>(
        &'a self,
        config: &'a WorkerConfig,
        id: OriginId,
        client: Option<ProxiedClient>,
    ) -> UpstreamTarget<'a> {
        let origin = &config.settings.origins[id.index()];
        UpstreamTarget {
            origin,
            pool: config.pools.of_origin(id),
            client,
            requester: None,
            on_interim: None,
            head_limits: HeadLimits { size: MAX_RESPONSE_HEAD, fields: config.settings.limits.max_response_headers },
            uptime: self.uptime.get(),
            clock: &self.shared.clock,
            response_timeout: origin.response_timeout,
            max_connections: share_of_worker(origin.max_connections, self.index, self.shared.worker_count),
        }
    }

    /// Moves stored bodies that others displaced while they are sent from memory into files.
    fn move_displaced_bodies(&self, settings: &Settings) {
        for (body, client) in self.connections.displaced_bodies() {
            let moved = SpoolFile::create(&settings.state_dir, client, &self.shared.spool_usage)
                .and_then(|file| body.move_to(file, settings.limits.buffer_disk));
            if let Err(error) = moved {
                self.shared.record_spool_failure(&error);
            }
        }
    }

    /// Closes connections, if those of all workers occupy more memory than `limits` allow. Logs the first time of each
    /// shortage.
    fn limit_memory(&self, memory: u64, limits: &Limits) {
        let limit = self.client_memory(limits);
        let excess = self.shared.connection_memory.update(self.connection_memory.replace(memory), memory, limit);
        let closed = if excess > 0 { self.connections.close_largest(excess) } else { 0 };
        if !self.is_short_of_memory.replace(excess > 0) && excess > 0 {
            warn!(
                "Client connections occupy more than limits.memory, {limit} bytes: closing those that occupy most, {closed} \
                 at first"
            );
        }
        self.telemetry.connection_memory(memory, closed);
    }

    /// Returns the most bytes that compressors of the worker may occupy: together with those of the others, a quarter of what
    /// client connections may, because memory beyond that is freed at the next tick only.
    pub(super) fn compressor_memory(&self, limits: &Limits) -> u64 {
        (self.client_memory(limits) / (4 * self.shared.worker_count as u64)).min(compressor::MAX_MEMORY)
    }

    /// Returns the most bytes that client connections of all workers may occupy.
    fn client_memory(&self, limits: &Limits) -> u64 {
        limits.memory.or(self.shared.default_memory).unwrap_or(u64::MAX)
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns the current configuration. A reload takes effect with the next request.
    pub(super) fn config(&self) -> Rc<WorkerConfig> {
        let config_number = self.shared.config_number();
        let mut config = self.config.borrow_mut();
        if config.config_number != config_number {
            *config = Rc::new(WorkerConfig::new(config_number, self.shared.config(), &self.upstream, &config.pools));
        }
        Rc::clone(&config)
    }

    /// Waits until WebSockets are to be closed.
    pub(super) async fn upgrades_close(&self) {
        // Fails if the worker has ended.
        let _ = self.closing_upgrades.subscribe().wait_for(|is_closing| *is_closing).await;
    }

    /// Waits until a switch of an administrator blocks the client.
    pub(super) async fn until_blocked(&self, client: SwitchSubject) {
        let mut seen_config = self.seen_config.subscribe();
        loop {
            let config = self.config();
            if client.is_blocked(&config.switches, &config.settings.rules, self.now()) {
                return;
            }
            drop(config);
            // The worker has the sender.
            let _ = seen_config.changed().await;
        }
    }

    /// Returns the wall-clock time.
    pub(super) fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Returns the monotonic time, read from the clock.
    pub(super) fn monotonic_now(&self) -> Timestamp {
        let now = self.shared.clock.monotonic_now();
        self.uptime.set(now);
        now
    }

    /// Returns the current time as the value of a `Date` field.
    pub(super) fn date(&self) -> [u8; 29] {
        self.dates.text(self.now().seconds())
    }

    /// Returns the monotonic time at the last update: by a tick, a new connection or a request.
    pub(super) fn monotonic_tick(&self) -> Rc<Cell<Timestamp>> {
        Rc::clone(&self.uptime)
    }

    pub(super) fn connections(&self) -> &ConnectionRegistry {
        &self.connections
    }

    pub(super) fn sweep_list(&self) -> &SweepList {
        &self.sweep_list
    }

    pub(super) fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    pub(super) fn user_agent_claim(&self, user_agent: &[u8]) -> (Claim, BrowserTraits) {
        self.claims.borrow_mut().claim(&self.shared.user_agents, user_agent)
    }

    pub(super) fn telemetry(&self) -> &WorkerTelemetry {
        &self.telemetry
    }

    pub(super) fn scratch(&self) -> RefMut<'_, ScratchBuffer> {
        self.scratch.borrow_mut()
    }

    /// Runs the work on a request that does not wait for its client. Drops it if the gateway is closed.
    pub(super) fn run_detached(&self, work: impl Future<Output = ()> + 'static) -> Option<AbortHandle> {
        self.detached.borrow_mut().as_mut().map(|detached| detached.spawn_local(work))
    }

    pub(super) fn drain(&self) -> mpsc::Sender<Incoming> {
        self.drain.clone()
    }

    /// Returns a unique decision id that does not reveal the number of decisions.
    pub(super) fn next_decision_id(&self) -> u64 {
        let count = self.decision_count.get();
        self.decision_count.set(count.wrapping_add(1));
        mix(self.seed.wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    pub(super) fn names<'a>(&'a self, config: &'a WorkerConfig) -> ConfigNames<'a> {
        ConfigNames { shared: &self.shared, rules: &config.settings.rules, config_number: config.config_number }
    }

    /// Synchronizes a quota with the usage that the origin reported.
    pub(super) fn report_origin_count(
        &self,
        config: &WorkerConfig,
        quota: QuotaId,
        window: u64,
        report: OriginReport,
        now: Timestamp,
    ) {
        let Some(event) = config.admission.sync_quota_with_origin(quota, window, report, now) else { return };
        let id = quota;
        let quota = &config.settings.rules[id].name;
        let drift = match event {
            OriginQuotaEvent::Exhausted { until } => {
                let until = rfc3339(until);
                return warn!("Origin reports quota {quota} exhausted: refusing requests until {until}");
            }
            OriginQuotaEvent::OtherWindow { resets_at } => {
                if config.admission.count_ignored_report(id, IgnoredReport::OtherWindow, now) {
                    let resets_at = rfc3339(resets_at);
                    warn!(
                        "Quota {quota}: ignoring the count of the origin, whose window ends at {resets_at}: write the \
                         window and the reset_header of that count"
                    );
                }
                return;
            }
            OriginQuotaEvent::Drift { milli } => milli as f64 / 1000.0,
        };
        match drift > 0.0 {
            true => warn!(
                "Quota {quota}: origin counts {drift} units more than the gateway; counting them as used; another \
                 client uses the quota, or costs are set too low"
            ),
            false => info!("Quota {quota}: origin counts {} units fewer than the gateway", -drift),
        }
    }

    /// Counts a report of the origin's own count of `quota` that cannot be parsed because of `header`.
    pub(super) fn record_unreadable_report(
        &self,
        config: &WorkerConfig,
        quota: QuotaId,
        header: &HeaderName,
        now: Timestamp,
    ) {
        if config.admission.count_ignored_report(quota, IgnoredReport::Unreadable, now) {
            let quota = &config.settings.rules[quota].name;
            warn!("Quota {quota}: ignoring the count of the origin, because its header {header} cannot be parsed");
        }
    }

    /// Records a failed request to an origin. Logs at most one a minute, with the number of those since the last.
    pub(super) fn record_upstream_failure(&self, config: &WorkerConfig, id: OriginId, error: &ForwardError) {
        if matches!(error, ForwardError::ClientBody(_)) {
            return debug!(%error, "Request body failed: {error}");
        }
        if error.is_of_origin() {
            config.origin_servers[id.index()].outages.record_failure(error.to_string(), self.now());
        }
        let origin = config.settings.origin_name(id).unwrap_or_default();
        let of = if origin.is_empty() { "" } else { " " };
        match self.logged_failures.record(self.uptime.get()) {
            None => debug!(%error, "Request to the origin{of}{origin} failed: {error}"),
            Some(0) => warn!(%error, "Request to the origin{of}{origin} failed: {error}"),
            Some(since) => warn!(
                %error, since, "Request to the origin{of}{origin} failed: {error}; {since} more since the last report"
            ),
        }
    }

    /// Records a connection that is closed because of its PROXY protocol header. Logs at most one a minute.
    pub(super) fn record_proxy_error(&self, peer: IpAddr, error: &ProxyHeaderError) {
        match self.logged_proxy_errors.record(self.uptime.get()) {
            None => debug!("Connection of {peer} closed: {error}"),
            Some(0) => warn!("Connection of {peer} closed: {error}"),
            Some(since) => warn!("Connection of {peer} closed: {error}; {since} more since the last report"),
        }
    }

    /// Returns the number of TLS handshakes in progress.
    pub(super) fn handshakes(&self) -> &SharedCount {
        &self.handshakes
    }
}

/// Returns the part of `total` of the worker with this index: the parts of all workers are `total`, unless there are more workers,
/// each of which needs one.
fn share_of_worker(total: usize, index: usize, workers: usize) -> usize {
    let workers = workers.max(1);
    (total / workers + usize::from(index < total % workers)).max(1)
}

impl WorkerConfig {
    /// Returns the connections to the origins.
    pub(super) fn pools(&self) -> &OriginPools {
        &self.pools
    }

    /// Returns a configuration. The pools of origins that `previous` has, too, keep their connections.
    fn new(config_number: u64, config: Arc<Config>, upstream: &Upstream, previous: &OriginPools) -> Self {
        let pools = upstream.pools(&config.origin_servers, previous);
        Self { config_number, switches: config.switches(), pools, config }
    }
}

impl Deref for WorkerConfig {
    type Target = Config;

    fn deref(&self) -> &Config {
        &self.config
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_of_all_workers_are_the_total(total in 1usize..1000, workers in 1usize..130) {
            let parts: Vec<usize> = (0..workers).map(|index| share_of_worker(total, index, workers)).collect();
            prop_assert!(parts.iter().all(|part| *part > 0 && part.abs_diff(parts[0]) <= 1));
            prop_assert_eq!(parts.iter().sum::<usize>(), total.max(workers));
        }
    }
}
