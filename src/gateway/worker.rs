//! A worker: one thread of the data plane with its own runtime, sockets, and connections to the origin. Requests share
//! only the engine with other workers.

use super::config_snapshot::ConfigSnapshot;
use super::connection;
use super::connection_timeouts::{ConnectionCommand, ConnectionRegistry};
use super::scratch::ScratchBuffer;
use super::shared::Shared;
use super::upstream::{Deadlines, ForwardError, Upstream};
use crate::engine::OriginQuotaEvent;
use crate::http1::DateCache;
use crate::policy::address_lists::ListId;
use crate::policy::bot_detection::BrowserTraits;
use crate::policy::identity::ClientKey;
use crate::policy::quota_sync::OriginReport;
use crate::policy::{BotId, Claim, ClassId, OperatorId, QuotaId, Rules, ScopeId, Timestamp};
use crate::telemetry::{NameResolver, WorkerTelemetry, rfc3339};
use crate::user_agents::ClaimCache;
use http::HeaderName;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

/// Interval of a worker's maintenance: timeouts, idle connections, access log.
pub(super) const TICK: Duration = Duration::from_millis(250);

/// Pause before accepting again when file descriptors are exhausted.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Maximum bodies of refused requests drained at once; further ones are aborted.
const MAX_DRAINS: usize = 256;
/// Limits of one drained body: bytes and time.
const DRAIN_BYTES: usize = 256 * 1024;
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// State shared by all requests of one thread.
pub(super) struct Worker {
    shared: Arc<Shared>,
    current: RefCell<Rc<CurrentConfig>>,
    /// Monotonic time at the last update, precise enough for timeouts.
    uptime: Rc<Cell<Timestamp>>,
    dates: DateCache,
    watched: ConnectionRegistry,
    upstream: Upstream,
    claims: RefCell<ClaimCache>,
    telemetry: WorkerTelemetry,
    scratch: RefCell<ScratchBuffer>,
    /// Window in which the origin's count of a quota was last unparsable.
    unreadable: RefCell<BTreeMap<QuotaId, u64>>,
    drain: mpsc::Sender<Incoming>,
    seed: u64,
    decisions: Cell<u64>,
}

/// Current configuration snapshot, reference-counted per thread.
pub(super) struct CurrentConfig {
    number: u64,
    generation: Arc<ConfigSnapshot>,
}

/// Stage of the gateway's shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Serving,
    /// Accepts no connections; open ones complete their requests.
    Draining,
    /// Open connections are aborted.
    Closed,
}

/// Runs one worker on this thread until the gateway is closed.
pub(super) fn run(
    shared: Arc<Shared>,
    listeners: Vec<TcpListener>,
    telemetry: WorkerTelemetry,
    stage: watch::Receiver<Stage>,
    seed: u64,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default())?;
    runtime.block_on(async move {
        let (drain, drains) = mpsc::channel(MAX_DRAINS);
        let worker = Worker::new(shared, telemetry, drain, seed);
        tokio::task::spawn_local(drain_bodies(drains));
        for listener in listeners {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tokio::task::spawn_local(accept(Rc::clone(&worker), listener, stage.clone()));
        }
        let maintenance = tokio::task::spawn_local(worker.run_maintenance(stage));
        maintenance.await.map_err(io::Error::other)
    })
}

/// Accepts connections until the gateway drains.
async fn accept(worker: Rc<Worker>, listener: tokio::net::TcpListener, mut stage: watch::Receiver<Stage>) {
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = listener.accept() => accepted,
            _ = stage.wait_for(|stage| *stage != Stage::Serving) => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                worker.monotonic_now();
                let Some(place) = ConnectionSlot::try_acquire(&worker, peer.ip()) else { continue };
                let worker = Rc::clone(&worker);
                tokio::task::spawn_local(async move {
                    connection::serve(worker, stream, peer).await;
                    drop(place);
                });
            }
            Err(error) => {
                // A connection closed before it was accepted is harmless; any other error is a shortage.
                if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
                    warn!(%error, "Cannot accept connections: {error}");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }
}

/// Slot of an open connection.
struct ConnectionSlot {
    shared: Arc<Shared>,
    telemetry: WorkerTelemetry,
    /// Address it is counted for, if connections per address are limited.
    counted_for: Option<ClientKey>,
}

impl ConnectionSlot {
    fn try_acquire(worker: &Rc<Worker>, peer: IpAddr) -> Option<Self> {
        let current = worker.current();
        let limits = &current.settings.limits;
        let bound = limits.max_connections_per_address.map(|most| (current.settings.rules.trust.key(peer), most));
        let shared = &worker.shared;
        let open = shared.connections.fetch_add(1, Ordering::Relaxed);
        if open < limits.max_connections
            && bound.is_none_or(|(key, most)| shared.connection_counts.try_acquire(key, most))
        {
            worker.telemetry.connection_opened();
            let counted_for = bound.map(|(key, _)| key);
            return Some(Self { shared: Arc::clone(shared), telemetry: worker.telemetry.clone(), counted_for });
        }
        shared.connections.fetch_sub(1, Ordering::Relaxed);
        worker.telemetry.connection_refused();
        None
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.shared.connections.fetch_sub(1, Ordering::Relaxed);
        if let Some(key) = self.counted_for {
            self.shared.connection_counts.release(key);
        }
        self.telemetry.connection_closed();
    }
}

/// Drains bodies of rejected requests within bounds, so that the clients can read the responses.
async fn drain_bodies(mut bodies: mpsc::Receiver<Incoming>) {
    while let Some(mut body) = bodies.recv().await {
        tokio::task::spawn_local(tokio::time::timeout(DRAIN_TIME, async move {
            let mut read = 0;
            while let Some(Ok(frame)) = body.frame().await {
                read += frame.data_ref().map_or(0, bytes::Bytes::len);
                if read > DRAIN_BYTES {
                    break;
                }
            }
        }));
    }
}

impl Worker {
    fn new(shared: Arc<Shared>, telemetry: WorkerTelemetry, drain: mpsc::Sender<Incoming>, seed: u64) -> Rc<Self> {
        let uptime = Rc::new(Cell::new(shared.clock.monotonic_now()));
        let deadlines = Deadlines::new(Rc::clone(&uptime));
        let current = CurrentConfig { number: shared.generation_number(), generation: shared.generation() };
        Rc::new(Self {
            current: RefCell::new(Rc::new(current)),
            uptime,
            dates: DateCache::new(),
            watched: ConnectionRegistry::default(),
            upstream: Upstream::new(deadlines),
            claims: RefCell::new(ClaimCache::new(foldhash::fast::RandomState::default())),
            telemetry,
            scratch: RefCell::new(ScratchBuffer::new()),
            unreadable: RefCell::default(),
            drain,
            seed,
            decisions: Cell::new(0),
            shared,
        })
    }

    /// Runs maintenance until the gateway is closed, or until it drains and no connection is open.
    async fn run_maintenance(self: Rc<Self>, mut stage: watch::Receiver<Stage>) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                changed = stage.changed() => if changed.is_err() { break },
            }
            match *stage.borrow_and_update() {
                Stage::Serving => {}
                Stage::Draining => self.watched.command_all(ConnectionCommand::Drain),
                Stage::Closed => break,
            }
            self.tick().await;
            if *stage.borrow() == Stage::Draining && self.watched.open() == 0 {
                break;
            }
        }
        self.watched.command_all(ConnectionCommand::Close);
        while self.watched.open() > 0 {
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
        let current = self.current();
        self.watched.sweep(&current.settings.limits, current.settings.origin.response_timeout);
        self.upstream.sweep(&current.settings.origin, self.uptime.get());
        self.telemetry().flush();
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns the current configuration snapshot. A reload takes effect with the next request.
    pub(super) fn current(&self) -> Rc<CurrentConfig> {
        let number = self.shared.generation_number();
        let mut current = self.current.borrow_mut();
        if current.number != number {
            *current = Rc::new(CurrentConfig { number, generation: self.shared.generation() });
        }
        Rc::clone(&current)
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
        &self.watched
    }

    pub(super) fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    pub(super) fn user_agent_claim(&self, user_agent: &[u8]) -> (Claim, BrowserTraits) {
        self.claims.borrow_mut().claim(&self.shared.agents, user_agent)
    }

    pub(super) fn telemetry(&self) -> &WorkerTelemetry {
        &self.telemetry
    }

    pub(super) fn scratch(&self) -> RefMut<'_, ScratchBuffer> {
        self.scratch.borrow_mut()
    }

    pub(super) fn drain(&self) -> mpsc::Sender<Incoming> {
        self.drain.clone()
    }

    /// Returns a unique decision id that does not reveal the number of decisions.
    pub(super) fn next_decision_id(&self) -> u64 {
        let count = self.decisions.get();
        self.decisions.set(count.wrapping_add(1));
        mix(self.seed.wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    pub(super) fn names<'a>(&'a self, current: &'a CurrentConfig) -> ConfigNames<'a> {
        ConfigNames { shared: &self.shared, rules: &current.settings.rules, number: current.number }
    }

    /// Synchronizes a quota with the usage that the origin reported.
    pub(super) fn report_origin_count(
        &self,
        current: &CurrentConfig,
        quota: QuotaId,
        window: u64,
        said: OriginReport,
        now: Timestamp,
    ) {
        let Some(news) = current.admission.sync_quota_with_origin(quota, window, said, now) else { return };
        let quota = &current.settings.rules.quotas[usize::from(quota.0)].name;
        let drift = match news {
            OriginQuotaEvent::Exhausted { until } => {
                let until = rfc3339(until);
                return warn!("Origin reports quota {quota} exhausted: refusing requests until {until}");
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

    /// Warns that the origin's count of a quota cannot be parsed, once per window.
    pub(super) fn warn_unreadable_header(
        &self,
        current: &CurrentConfig,
        quota: QuotaId,
        window: u64,
        header: &HeaderName,
    ) {
        if self.unreadable.borrow_mut().insert(quota, window) != Some(window) {
            let quota = &current.settings.rules.quotas[usize::from(quota.0)].name;
            warn!("Unparsable origin header {header}: quota {quota} is not synchronized");
        }
    }

    pub(super) fn note_failure(&self, error: &ForwardError) {
        debug!(%error, "Upstream request failed: {error}");
    }
}

impl Deref for CurrentConfig {
    type Target = ConfigSnapshot;

    fn deref(&self) -> &ConfigSnapshot {
        &self.generation
    }
}

/// Names of configured items, by their index in records.
pub(super) struct ConfigNames<'a> {
    shared: &'a Shared,
    rules: &'a Rules,
    number: u64,
}

impl NameResolver for ConfigNames<'_> {
    fn settings(&self) -> u64 {
        self.number
    }

    fn bot(&self, bot: BotId) -> &str {
        self.shared.agents.name(bot)
    }

    fn operator(&self, operator: OperatorId) -> &str {
        self.shared.operators.name(operator)
    }

    fn agent_rule(&self, place: u16) -> &str {
        self.rules.user_agent_rules.get(usize::from(place)).map_or("", |rule| &rule.contains)
    }

    fn key_headers(&self, class: ClassId, signed: bool) -> Vec<&str> {
        self.rules.key_headers(class, signed)
    }

    fn list(&self, list: ListId) -> &str {
        self.rules.lists.get(usize::from(list.0)).map_or("", String::as_str)
    }

    fn scope(&self, scope: ScopeId) -> &str {
        self.rules.scopes.get(usize::from(scope.0)).map_or("", |scope| &scope.name)
    }
}

/// Finalizer of SplitMix64: a bijection in which every input bit affects every output bit.
pub(super) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}
