//! State shared by all workers. Workers only read it, except for counters.

use super::Dependencies;
use super::config_snapshot::ConfigSnapshot;
use super::connection_limits::ConnectionCounts;
use super::crawl_delay::CrawlDelayAdviser;
use crate::clock::Clock;
use crate::config::Settings;
use crate::engine::Engine;
use crate::robots::{CrawlCompliance, OverrideFile, RobotsCache};
use crate::user_agents::UserAgentMatcher;
use crate::verify::OperatorTable;
use crate::verify::signature::SignatureVerifier;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// State shared by all workers of a gateway.
pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) engine: Arc<Engine>,
    pub(super) agents: Arc<UserAgentMatcher>,
    pub(super) operators: Arc<OperatorTable>,
    pub(super) signatures: Arc<SignatureVerifier>,
    /// Notified when the ledger has responded, if requests may wait for it.
    pub(super) ledger_answers: Option<Arc<Notify>>,
    /// Notified when an origin needs a DNS lookup at once.
    pub(super) new_origin: Notify,
    /// Open client connections of all workers.
    pub(super) connections: AtomicUsize,
    /// Open client connections by address, if limited.
    pub(super) connection_counts: ConnectionCounts,
    pub(super) workers: usize,
    pub(super) via: Via,
    /// Hashes client credentials with a per-process key, so that hashes are unpredictable and differ after a restart.
    pub(super) secrets: RandomState,
    /// The robots.txt of each site, the crawl delays in it, and the crawlers' compliance.
    pub(super) robots_cache: RobotsCache,
    pub(super) adviser: CrawlDelayAdviser,
    pub(super) conduct: CrawlCompliance,
    /// The administrator's robots.txt file, if configured.
    pub(super) own_robots: Mutex<OverrideFile>,
    config: ArcSwap<ConfigSnapshot>,
    snapshot_number: AtomicU64,
}

/// `Via` entries with a pseudonym of this gateway, which distinguishes a loop from a chain of gateways.
pub(super) struct Via {
    pub(super) pseudonym: String,
    pub(super) http1: String,
    pub(super) http2: String,
}

impl Shared {
    pub(super) fn new(dependencies: Dependencies, settings: Settings, workers: usize) -> Self {
        let Dependencies { clock, engine, agents, operators, signatures, lists, ledger_answers, seed } = dependencies;
        let snapshot = ConfigSnapshot::new(settings, lists, &engine, clock.now());
        let compliance = CrawlCompliance::of(operators.names().count());
        Self {
            clock,
            engine,
            agents,
            operators,
            signatures,
            ledger_answers,
            new_origin: Notify::new(),
            connections: AtomicUsize::new(0),
            connection_counts: ConnectionCounts::default(),
            workers,
            via: Via::new(seed),
            secrets: RandomState::new(),
            robots_cache: RobotsCache::default(),
            adviser: CrawlDelayAdviser::default(),
            conduct: compliance,
            own_robots: Mutex::default(),
            config: ArcSwap::from_pointee(snapshot),
            snapshot_number: AtomicU64::new(0),
        }
    }

    /// Returns the current configuration snapshot.
    pub(super) fn generation(&self) -> Arc<ConfigSnapshot> {
        self.config.load_full()
    }

    /// Returns a number that changes with each reload; cheap enough for every request.
    pub(super) fn config_number(&self) -> u64 {
        self.snapshot_number.load(Ordering::Acquire)
    }

    /// Activates a new configuration snapshot.
    pub(super) fn replace_config(&self, snapshot: ConfigSnapshot) {
        self.config.store(Arc::new(snapshot));
        self.snapshot_number.fetch_add(1, Ordering::Release);
    }
}

impl Via {
    fn new(seed: u64) -> Self {
        let pseudonym = format!("tidegate-{:08x}", seed as u32);
        Self { http1: format!("1.1 {pseudonym}"), http2: format!("2.0 {pseudonym}"), pseudonym }
    }
}
