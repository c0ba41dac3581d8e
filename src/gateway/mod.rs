//! The live shell: sockets in front, the origin behind, and the life of a request between them.
//!
//! A connection is accepted by one [`worker`] and stays there. [`connection`] finds out what it speaks: `http1` or hyper
//! (HTTP/2) parses it; [`handler`] takes each request through its life: [`target`] checks what it asks for, the engine
//! decides, [`upstream`] carries it to the origin, [`body`] carries the answer back, [`problem`] speaks where the gate
//! answers itself. A [`request_context`] goes along and is written down at its end. What a client can make wait is under
//! [`connection_timeouts`].

mod body;
mod config_snapshot;
mod connection;
mod connection_limits;
mod connection_timeouts;
mod cost;
mod crawl_delay;
mod crawl_policy;
mod handler;
mod headers;
mod html;
mod listener;
mod observe;
mod problem;
mod quota_sync;
mod rate_limit_headers;
mod request_context;
mod response_preview;
mod scratch;
mod shared;
mod target;
mod untrusted_proxy;
mod upstream;
mod worker;

pub use rate_limit_headers::RateLimitSnapshot;
pub use response_preview::{ResponsePreview, preview};

use crate::clock::Clock;
use crate::config::Settings;
use crate::engine::{Admission, ClientView, Engine, QuotaView, UnknownQuota};
use crate::policy::address_lists::AddressLists;
use crate::policy::crawl_delay::ComplianceView;
use crate::policy::{Timestamp, Units};
use crate::telemetry::WorkerTelemetry;
use crate::user_agents::UserAgentMatcher;
use crate::verify::OperatorTable;
use crate::verify::signature::SignatureVerifier;
use config_snapshot::ConfigSnapshot;
use shared::Shared;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Notify, watch as stages};
use tracing::{info, warn};
use worker::Stage;

/// How often the gate looks after what outlives a request.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(1);
/// How often idle clients are forgotten, and how often the origin's name is resolved anew.
const EVICTION_TICKS: u64 = 10;
const RESOLVE_TICKS: u64 = 30;

/// What a gate is made of besides its settings: handed in, so that tests and demonstrations bring their own.
pub struct Dependencies {
    /// Tells the time.
    pub clock: Clock,
    /// Remembers what was spent, from one set of rules to the next.
    pub engine: Arc<Engine>,
    /// Knows what user agents say.
    pub agents: Arc<UserAgentMatcher>,
    /// Knows whose addresses are whose.
    pub operators: Arc<OperatorTable>,
    /// Knows whose signatures are whose.
    pub signatures: Arc<SignatureVerifier>,
    /// The networks of the settings' address lists.
    pub lists: AddressLists,
    /// Tells that the ledger has answered, where it answers soon enough for a request to wait for it.
    pub ledger_answers: Option<Arc<Notify>>,
    /// A number nobody can guess: ids and jitter come from it.
    pub seed: u64,
}

/// A gate that serves.
pub struct Gateway {
    handle: Handle,
    listen: Vec<SocketAddr>,
    stage: stages::Sender<Stage>,
    workers: Vec<JoinHandle<io::Result<()>>>,
}

/// A way to look at a gate and to change its rules, from any thread.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

/// Why a gate cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// A thread cannot be started.
    #[error("cannot start a worker: {0}")]
    Thread(io::Error),
}

impl Gateway {
    /// Binds every socket, then starts the workers. `telemetry` gives each its own counters.
    pub fn start(
        settings: Settings,
        surroundings: Dependencies,
        mut telemetry: impl FnMut(usize) -> WorkerTelemetry,
    ) -> Result<Self, StartError> {
        let count = worker_count(&settings);
        let mut sockets: Vec<Vec<_>> = (0..count).map(|_| Vec::new()).collect();
        let mut listen = Vec::new();
        for &address in &settings.listen {
            let bound = listener::bind(address, count);
            let bound = bound.map_err(|source| StartError::Listen { address, source })?;
            listen.extend(bound.first().and_then(|socket| socket.local_addr().ok()));
            sockets.iter_mut().zip(bound).for_each(|(of_worker, socket)| of_worker.push(socket));
        }
        let seed = surroundings.seed;
        let shared = Arc::new(Shared::new(surroundings, settings, count));
        let handle = Handle(Arc::clone(&shared));
        handle.refresh_robots();
        let (stage, stages) = stages::channel(Stage::Serving);
        let start = |(number, listeners): (usize, Vec<_>)| {
            let (shared, stages, telemetry) = (Arc::clone(&shared), stages.clone(), telemetry(number));
            let seed = worker::mix(seed ^ number as u64);
            std::thread::Builder::new()
                .name(format!("worker-{number}"))
                .spawn(move || worker::run(shared, listeners, telemetry, stages, seed))
                .map_err(StartError::Thread)
        };
        let workers = sockets.into_iter().enumerate().map(start).collect::<Result<_, _>>()?;
        Ok(Self { handle, listen, stage, workers })
    }

    /// Where it listens, ports as they turned out.
    pub fn listen(&self) -> &[SocketAddr] {
        &self.listen
    }

    /// A way to look at it and to change its rules.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Stops: no new connections, what is under way may take as long as the settings say, the rest is cut off.
    pub fn shut_down(self) {
        let deadline = self.handle.0.generation().settings.limits.drain_timeout;
        self.stage.send_replace(Stage::Draining);
        let (all_ended, waiting) = std::sync::mpsc::channel::<()>();
        let joiner = std::thread::spawn(move || {
            for worker in self.workers {
                if let Ok(Err(error)) = worker.join() {
                    warn!(%error, "A worker ended badly: {error}");
                }
            }
            drop(all_ended);
        });
        if let Err(std::sync::mpsc::RecvTimeoutError::Timeout) = waiting.recv_timeout(deadline) {
            warn!("Some requests were still under way after {deadline:?}; they are cut off");
            self.stage.send_replace(Stage::Closed);
        }
        let _ = joiner.join();
    }
}

impl Handle {
    /// Puts new settings in force, and the networks of their address lists. What was counted is kept; requests under way
    /// end by the rules they began with.
    pub fn replace_settings(&self, settings: Settings, lists: AddressLists) {
        let before = self.0.generation();
        self.0.replace_generation(
            ConfigSnapshot::new(settings, lists, &self.0.engine, self.now()).with_addresses_from(&before),
        );
        self.0.adviser.reset();
        self.refresh_robots();
        self.0.new_origin.notify_one();
    }

    /// Puts networks in force that were read anew from the address lists of the present settings.
    pub fn replace_lists(&self, lists: AddressLists) {
        self.0.generation().replace_lists(lists);
    }

    /// The settings in force.
    pub fn with_settings<T>(&self, look: impl FnOnce(&Settings) -> T) -> T {
        look(&self.0.generation().settings)
    }

    /// The networks of the address lists in force.
    pub fn lists(&self) -> Arc<AddressLists> {
        self.0.generation().lists()
    }

    /// The books under the rules in force.
    pub fn with_admission<T>(&self, look: impl FnOnce(&Admission) -> T) -> T {
        look(&self.0.generation().admission)
    }

    /// The time by the gate's clock.
    pub fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// How long its clock has been running: the time that nobody can set.
    pub fn uptime(&self) -> Timestamp {
        self.0.clock.monotonic_now()
    }

    /// True once the origin's address is known.
    pub fn is_origin_resolved(&self) -> bool {
        !self.0.generation().addresses.load().is_empty()
    }

    /// Where the origin is, as last looked up.
    pub fn origin_addresses(&self) -> Vec<SocketAddr> {
        self.0.generation().addresses.load().to_vec()
    }

    /// Client connections open now.
    pub fn connections(&self) -> usize {
        self.0.connections.load(Ordering::Relaxed)
    }

    /// Every quota as it stands.
    pub fn quotas(&self) -> Vec<QuotaView> {
        self.0.generation().admission.quotas(self.now())
    }

    /// The most refused clients, most refused first.
    pub fn top_clients(&self, count: usize) -> Vec<ClientView> {
        let name = |operator| self.0.operators.name(operator);
        self.0.generation().admission.top_clients(count, name, self.now())
    }

    /// How many clients are remembered, and how many have been forgotten.
    pub fn clients(&self) -> (usize, u64) {
        (self.0.engine.clients_tracked(), self.0.engine.clients_evicted())
    }

    /// Corrects by hand what a quota has used; returns what it was and what it is now.
    pub fn set_used(&self, quota: &str, used: Units) -> Result<(Units, Units), UnknownQuota> {
        self.0.generation().admission.set_used(quota, used, self.now())
    }

    /// Looks after what outlives a request, for as long as it is polled: the origin's address, clients that went away.
    pub async fn run_maintenance(&self) {
        let mut ticks = tokio::time::interval(MAINTENANCE_INTERVAL);
        for count in 0u64.. {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.0.new_origin.notified() => {}
            }
            if count % RESOLVE_TICKS == 0 || !self.is_origin_resolved() {
                self.resolve_origin().await;
            }
            self.refresh_robots();
            if count % EVICTION_TICKS == 0 {
                self.0.generation().admission.evict_idle(self.now());
            }
        }
    }

    /// Sees to what robots.txt says: what is asked of crawlers by now, and the operator's own text, if there is one.
    fn refresh_robots(&self) {
        let (shared, generation) = (&self.0, self.0.generation());
        let settings = &generation.settings;
        let asked = shared.adviser.advertised(settings, &shared.operators, &self.quotas(), self.uptime());
        shared.conduct.set_delays(&asked.per_operator);
        shared.robots_cache.set_directives(asked.directives);
        match settings.robots.file.as_deref() {
            None => shared.robots_cache.set_override(None),
            Some(file) => {
                let text =
                    shared.own_robots.lock().reload_if_changed(file, shared.robots_cache.override_text().as_ref());
                text.into_iter().for_each(|text| shared.robots_cache.set_override(Some(text)));
            }
        }
    }

    /// The warning of a proxy in front that the settings do not name, if one was seen.
    pub fn untrusted_proxy(&self) -> Option<String> {
        self.0.generation().untrusted_proxy.warning()
    }

    /// How many robots.txt are too long for what is asked of crawlers.
    pub fn robots_over_limit(&self) -> usize {
        self.0.robots_cache.over_limit_count()
    }

    /// How crawlers keep to what they are asked, by operator.
    pub fn crawl_compliance(&self) -> Vec<ComplianceView> {
        self.0.conduct.views()
    }

    /// Looks the origin up. A look-up that fails leaves the last good answer.
    pub async fn resolve_origin(&self) {
        let generation = self.0.generation();
        let origin = &generation.settings.origin;
        if origin.address().is_some() {
            return;
        }
        match tokio::net::lookup_host((origin.host.as_str(), origin.port)).await.map(Vec::from_iter) {
            Ok(found) if !found.is_empty() => {
                if generation.addresses.load().is_empty() {
                    info!("The origin {} is at {}", origin.authority, found[0]);
                }
                generation.addresses.store(Arc::new(found));
            }
            Ok(_) => warn!("The origin's name {} has no address", origin.host),
            Err(error) => warn!(%error, "Cannot look up the origin {}: {error}", origin.host),
        }
    }
}

fn worker_count(settings: &Settings) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    settings.workers.map_or_else(cores, usize::from)
}
