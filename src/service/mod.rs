//! A running gateway: the data plane, the admin listener, and the control thread.
//!
//! [`Service`] wires all parts together. No other module depends on all of them.

pub mod crawlers;

use crate::address_list_files::{self, AddressListFiles, ReloadResult, count_text};
use crate::admin::{self, AccessControl, GatewayApi, ListenAddresses, ScopeView, SettingsView};
use crate::cli::check;
use crate::clock::Clock;
use crate::config::settings::{AccessLog as Destination, Ledger, LedgerFailureMode};
use crate::config::{ConfigErrors, Settings};
use crate::demand_store::DemandStore;
use crate::engine::{ClientView, Engine, LeaseMode, QuotaView, UnknownQuota};
use crate::explain::{Environment, Explanation, explain, input_from_log};
use crate::gateway::{Dependencies, Gateway, Handle, StartError};
use crate::ledger::redis::{Incarnation, RedisEndpoint};
use crate::ledger::{self, LeaseRefresher, OpenError, RedisStore, Store, WakeHandle};
use crate::policy::crawl_delay::ComplianceView;
use crate::policy::throttle::Scope;
use crate::policy::{Timestamp, Units};
use crate::replay::log::LogLine;
use crate::telemetry::{AccessLog, ListView, ListsView, LogTarget, Telemetry};
use crate::user_agents::UserAgentMatcher;
use crate::verify::fetch::{AllowedAddresses, Fetcher};
use crate::verify::signature::SignatureVerifier;
use crate::verify::{OperatorTable, RangeRefresher};
use parking_lot::Mutex;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::{info, warn};

/// Time limit for writing the last lines of the access log at shutdown.
const LOG_FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Time that a start waits for the DNS lookup of the origin.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time that a start waits for the first leases, and a manual correction for its write to the ledger.
const LEDGER_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum number of busiest partitions shown per scope.
const MAX_SHOWN_PARTITIONS: usize = 20;

/// Interval at which the files of address lists are checked for changes.
const ADDRESS_LIST_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Interval at which new demand observations are saved.
const DEMAND_SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// Version and revision of this build.
pub const BUILD: (&str, &str) = (
    env!("CARGO_PKG_VERSION"),
    match option_env!("TIDEGATE_REVISION") {
        Some(revision) => revision,
        None => "unknown",
    },
);

/// Loads the settings: once at the start and again for each reload.
pub type SettingsSource = Box<dyn Fn(&[&str]) -> Result<Settings, ConfigErrors> + Send + Sync>;

/// Access to the network beyond the origin.
#[derive(Clone)]
pub struct ExternalAccess {
    /// Fetches the documents that crawler operators publish.
    pub fetcher: Fetcher,
    /// Addresses that may be contacted where a request names the host.
    pub reach: AllowedAddresses,
}

impl Default for ExternalAccess {
    /// Returns access to the public internet.
    fn default() -> Self {
        Self { fetcher: Fetcher::public(), reach: AllowedAddresses::Public }
    }
}

/// A running gateway with its background tasks.
pub struct Service {
    gate: Gateway,
    running: Arc<ServiceState>,
    admin: Option<SocketAddr>,
    control: JoinHandle<()>,
    end: oneshot::Sender<()>,
}

/// Error of [`Service::start`].
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// Invalid settings.
    #[error("{0}")]
    Settings(ConfigErrors),
    /// The gateway failed to start.
    #[error(transparent)]
    Gate(#[from] StartError),
    /// The admin listener cannot be opened.
    #[error(
        "admin.listen: cannot listen on {address}: {source}; write another port, such as admin: {{ listen: 127.0.0.1:9091 }}, \
         or admin: off"
    )]
    Admin {
        /// Address of the listener.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The access log cannot be opened.
    #[error(
        "log.access: cannot open {}: {source}; write another path, such as log: {{ access: {{ path: ./access.log }} }}, or \
         log: {{ access: off }}",
        path.display()
    )]
    AccessLog {
        /// Path of the access log.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// An address list file is invalid.
    #[error("{0}")]
    Lists(address_list_files::AddressListErrors),
    /// The ledger cannot be opened.
    #[error(transparent)]
    Ledger(#[from] OpenError),
    /// A thread cannot be started.
    #[error("cannot start the control thread: {0}")]
    Thread(io::Error),
}

impl Service {
    /// Starts a gateway with the settings of `source`, by `clock`. `seed` must be unpredictable.
    pub fn start(source: SettingsSource, clock: Clock, seed: u64) -> Result<Self, ServiceError> {
        Self::start_with(ExternalAccess::default(), source, clock, seed)
    }

    /// Like [`Self::start`], with the given access to network and DNS.
    pub fn start_with(
        external: ExternalAccess,
        source: SettingsSource,
        clock: Clock,
        seed: u64,
    ) -> Result<Self, ServiceError> {
        let settings = source(&OperatorTable::builtin().names().collect::<Vec<_>>()).map_err(ServiceError::Settings)?;
        let operators = Arc::new(crawlers::operators(&settings));
        let names: Vec<&str> = operators.names().collect();
        let files = AddressListFiles::read(settings.list_files()).map_err(ServiceError::Lists)?;
        let lists = files.lists();
        let started = clock.now();

        let log = access_log(&settings.log.access)?;
        let telemetry = Telemetry::new(log, BUILD, started);
        telemetry.config_loaded(&settings.rules, &names, started);
        let admin = settings.admin.as_ref().map(|admin| {
            let listener = TcpListener::bind(admin.listen).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok((listener.local_addr()?, listener))
            });
            let listener = listener.map_err(|source| ServiceError::Admin { address: admin.listen, source });
            listener.map(|(listen, listener)| (listener, AccessControl { token: admin.token.clone(), listen }))
        });
        let admin = admin.transpose()?;

        let refresh = crawlers::refresh(&operators, &external.fetcher, &settings, &clock, seed);
        let (engine, lease_refresher) = engine(&settings, &clock, seed)?;
        let demand_store = DemandStore::of(&settings.state_dir);
        engine.open_quotas(&settings.rules, started);
        match demand_store.read() {
            Ok(learned) => engine.restore_demand(&learned),
            Err(unreadable) => warn!("Demand history unreadable, starting empty: {unreadable}"),
        }
        let signatures = Arc::new(SignatureVerifier::of(operators.signature_agents()));
        let agents = Arc::new(UserAgentMatcher::builtin(operators.tokens()));
        let surroundings = Dependencies {
            clock,
            engine: Arc::clone(&engine),
            agents: Arc::clone(&agents),
            operators: Arc::clone(&operators),
            lists,
            signatures: Arc::clone(&signatures),
            // Redis may be remote, so requests do not wait for it.
            ledger_answers: lease_refresher
                .as_ref()
                .filter(|_| settings.ledger == Ledger::File)
                .map(LeaseRefresher::lease_updates),
            seed,
        };
        let startup_settings = settings.clone();
        let gate = Gateway::start(settings, surroundings, |_| telemetry.worker())?;
        let admin_address = admin.as_ref().map(|(_, access)| access.listen);
        let addresses = BoundAddresses { listen: gate.listen().to_vec(), admin: admin_address };
        let settings = Mutex::new(SettingsView { loaded: started, last_reload_error: None });
        let running = Arc::new(ServiceState {
            handle: gate.handle(),
            telemetry,
            agents,
            operators,
            signatures,
            external,
            source,
            started,
            engine,
            lease_refresher,
            demand_store,
            addresses,
            startup_settings,
            settings,
            files: Mutex::new(files),
        });
        let (end, ended) = oneshot::channel();
        let (found, finding) = mpsc::channel();
        let control = {
            let running = Arc::clone(&running);
            let thread = std::thread::Builder::new().name("control".into());
            thread.spawn(move || control(&running, admin, refresh, found, ended)).map_err(ServiceError::Thread)?
        };
        // Ready means that the origin is resolved. A lookup that fails now is repeated while serving.
        let _ = finding.recv_timeout(RESOLVE_TIMEOUT);
        Ok(Self { gate, running, admin: admin_address, control, end })
    }

    /// Returns the addresses at which clients are served.
    pub fn listen(&self) -> &[SocketAddr] {
        self.gate.listen()
    }

    /// Returns the address of the admin listener, if enabled.
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Reloads the settings. Returns a summary, or all errors.
    pub fn reload(&self) -> Result<String, String> {
        self.running.reload()
    }

    /// Reopens the access log after a rotation.
    pub fn reopen_access_log(&self) {
        self.running.telemetry.reopen_access_log();
    }

    /// Reloads changed address lists now, instead of at the next poll.
    pub fn reload_address_lists(&self) {
        self.running.reload_address_lists();
    }

    /// Returns warnings for the administrator.
    pub fn notes(&self) -> Vec<String> {
        self.running.notes()
    }

    /// Shuts down: drains requests in flight, writes the access log, then closes everything.
    pub fn shut_down(self) {
        self.gate.shut_down();
        if !self.running.telemetry.close(LOG_FLUSH_TIMEOUT) {
            warn!("Access log flush timed out after {LOG_FLUSH_TIMEOUT:?}: its last lines may be lost");
        }
        let _ = self.end.send(());
        let _ = self.control.join();
        self.running.persist_demand();
        // Closed last, when no request or correction can use units.
        if let Some(lease_refresher) = &self.running.lease_refresher {
            lease_refresher.close();
        }
    }
}

/// Returns the engine, with leases if possible, and the refresher that keeps it supplied.
fn engine(
    settings: &Settings,
    clock: &Clock,
    seed: u64,
) -> Result<(Arc<Engine>, Option<LeaseRefresher>), ServiceError> {
    match &settings.ledger {
        Ledger::Memory => Ok((Engine::new(LeaseMode::Local, settings.limits.max_clients), None)),
        Ledger::File => {
            let uptime = {
                let clock = clock.clone();
                Box::new(move || clock.monotonic_now())
            };
            let file = ledger::FileStore::open(&settings.state_dir, &ledger::boot_id(), uptime, clock.now())?;
            with_leases(file, settings, clock)
        }
        Ledger::Redis(redis) => {
            // No local record of an earlier incarnation's spending exists, so its leases are lost if it crashed.
            let identity = Incarnation::next(&settings.state_dir, seed, false);
            let identity =
                identity.map_err(|source| OpenError::Folder { folder: settings.state_dir.clone(), source })?;
            let server = RedisEndpoint {
                host: redis.host.clone(),
                port: redis.port,
                user: redis.user.clone(),
                password: redis.password.as_ref().map(|password| password.expose_secret().to_owned()),
                database: redis.database,
            };
            let shares = redis.when_lost == LedgerFailureMode::Fallback;
            with_leases(RedisStore::new(server, &redis.prefix, shares, identity), settings, clock)
        }
    }
}

fn with_leases<S: Store>(
    store: S,
    settings: &Settings,
    clock: &Clock,
) -> Result<(Arc<Engine>, Option<LeaseRefresher>), ServiceError> {
    let bell = WakeHandle::default();
    let engine = Engine::new(bell.lease_mode(), settings.limits.max_clients);
    engine.open_quotas(&settings.rules, clock.now());
    let now = {
        let clock = clock.clone();
        move || clock.now()
    };
    let lease_refresher = LeaseRefresher::start(store, Arc::clone(&engine), bell, now).map_err(ServiceError::Thread)?;
    if !lease_refresher.flush(LEDGER_TIMEOUT) {
        warn!("Ledger granted no leases within {LEDGER_TIMEOUT:?}");
    }
    Ok((engine, Some(lease_refresher)))
}

fn access_log(destination: &Destination) -> Result<Option<AccessLog>, ServiceError> {
    let (target, path) = match destination {
        Destination::Off => return Ok(None),
        Destination::Stdout => (LogTarget::Stdout, "standard output".into()),
        Destination::File { path } => (LogTarget::File(path.clone()), path.clone()),
    };
    AccessLog::start(target).map(Some).map_err(|source| ServiceError::AccessLog { path, source })
}

/// Runs the control thread: the admin listener and all background tasks.
fn control(
    running: &Arc<ServiceState>,
    admin: Option<(TcpListener, AccessControl)>,
    refresh: RangeRefresher,
    found: mpsc::Sender<()>,
    ended: oneshot::Receiver<()>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return warn!(%error, "Cannot start the control runtime: {error}"),
    };
    runtime.block_on(async {
        if let Some((listener, access)) = admin {
            let router = admin::router(Arc::clone(running) as Arc<dyn GatewayApi>, access);
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => drop(tokio::spawn(admin::serve(listener, router, std::future::pending()))),
                Err(error) => warn!(%error, "Cannot start the admin listener: {error}"),
            }
        }
        tokio::spawn(crawlers::run_dns_verification(Arc::clone(running)));
        tokio::spawn(refresh.run());
        let work = async move {
            running.handle.resolve_origin().await;
            let _ = found.send(());
            let ExternalAccess { fetcher, reach } = &running.external;
            let keys = running.signatures.run_fetches(fetcher, *reach, || running.handle.uptime());
            tokio::join!(
                running.handle.run_maintenance(),
                running.poll_address_lists(),
                running.persist_demand_loop(),
                keys
            );
        };
        tokio::select! {
            () = work => {}
            _ = ended => {}
        }
    });
}

/// State of a running gateway that the admin API reads and changes.
struct ServiceState {
    handle: Handle,
    telemetry: Telemetry,
    agents: Arc<UserAgentMatcher>,
    operators: Arc<OperatorTable>,
    signatures: Arc<SignatureVerifier>,
    external: ExternalAccess,
    source: SettingsSource,
    started: Timestamp,
    engine: Arc<Engine>,
    lease_refresher: Option<LeaseRefresher>,
    demand_store: DemandStore,
    addresses: BoundAddresses,
    /// Settings at the start. Some of them stay in effect until the next start, despite reloads.
    startup_settings: Settings,
    settings: Mutex<SettingsView>,
    files: Mutex<AddressListFiles>,
}

/// Bound addresses.
struct BoundAddresses {
    listen: Vec<SocketAddr>,
    admin: Option<SocketAddr>,
}

impl ServiceState {
    /// Polls the address lists until dropped.
    async fn poll_address_lists(&self) {
        let mut ticks = tokio::time::interval(ADDRESS_LIST_POLL_INTERVAL);
        loop {
            ticks.tick().await;
            self.reload_address_lists();
        }
    }

    /// Saves the learned demand periodically, until dropped.
    async fn persist_demand_loop(&self) {
        let mut ticks = tokio::time::interval(DEMAND_SAVE_INTERVAL);
        loop {
            ticks.tick().await;
            self.persist_demand();
        }
    }

    fn persist_demand(&self) {
        if let Err(error) = self.demand_store.save(&self.engine.learned_demand()) {
            warn!(%error, "Cannot save the demand history: {error}; keeping it in memory");
        }
    }

    fn reload_address_lists(&self) {
        let mut files = self.files.lock();
        let ReloadResult { changed, lists, mistakes } = files.reload_changed();
        for mistake in mistakes {
            warn!("Rejected address list: {mistake}; keeping the previous version");
        }
        if let Some(lists) = lists {
            let names = self.handle.with_settings(|settings| settings.rules.lists.clone());
            for place in changed {
                info!("Address list {} changed: loaded {}", names[place], count_text(lists.counts()[place]));
            }
            self.handle.replace_lists(lists);
        }
    }

    /// Returns the address lists by name, each with its number of networks and the current error of its file.
    fn lists<'f>(
        &self,
        files: &'f AddressListFiles,
    ) -> impl Iterator<Item = (String, usize, Option<&'f str>)> + use<'f> {
        let names = self.handle.with_settings(|settings| settings.rules.lists.clone());
        names.into_iter().zip(files.states()).map(|(name, (networks, trouble))| (name, networks, trouble))
    }

    /// Loads the settings and their address lists. Returns all errors of either.
    fn reload_settings(&self, names: &[&str]) -> Result<(Settings, AddressListFiles), String> {
        let settings = (self.source)(names).map_err(|mistakes| mistakes.to_string())?;
        let files = AddressListFiles::read(settings.list_files()).map_err(|mistakes| mistakes.to_string())?;
        Ok((settings, files))
    }
}

impl GatewayApi for ServiceState {
    fn now(&self) -> Timestamp {
        self.handle.now()
    }

    fn started(&self) -> Timestamp {
        self.started
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
            admin: *admin,
            origin: self.handle.with_settings(|settings| settings.origin.authority.clone()),
            origin_addresses: self.handle.origin_addresses(),
        }
    }

    fn settings(&self) -> SettingsView {
        self.settings.lock().clone()
    }

    fn not_ready_reasons(&self) -> Vec<String> {
        let origin = self.handle.with_settings(|settings| settings.origin.host.clone());
        let mut missing = Vec::new();
        if !self.handle.is_origin_resolved() {
            missing.push(format!("The origin {origin} has not been resolved yet."));
        }
        if self.lease_refresher.as_ref().is_some_and(|lease_refresher| !lease_refresher.is_ready()) {
            missing.push("The ledger has not granted any leases yet.".into());
        }
        missing
    }

    fn ledger_error(&self) -> Option<String> {
        self.lease_refresher.as_ref().and_then(LeaseRefresher::last_error)
    }

    fn untrusted_proxy(&self) -> Option<String> {
        self.handle.untrusted_proxy()
    }

    fn notes(&self) -> Vec<String> {
        let (mut notes, waiting) = self.handle.with_settings(|settings| {
            let waiting = needs_restart(&self.startup_settings, settings);
            (settings.warnings.clone(), waiting)
        });
        notes.extend(waiting.iter().map(|key| format!("{key}: changed in the file, takes effect at the next start")));
        notes.extend(self.lists(&self.files.lock()).filter_map(|(list, _, trouble)| {
            Some(format!("address_lists.{list}: {}; keeping the previous version", trouble?))
        }));
        notes.extend(crawlers::stale_ranges_warning(&self.operators.errors()));
        notes.extend(match self.handle.robots_over_limit() {
            0 => None,
            count => Some(format!("robots.txt of {count} hosts exceeds 500 KiB with directives: served without them")),
        });
        notes
    }

    fn metrics(&self) -> String {
        self.telemetry.set_dns_queue_length(self.operators.dns().map_or(0, |names| names.waiting()));
        let operators: Vec<&str> = self.operators.names().collect();
        let (now, uptime) = (self.handle.now(), self.handle.uptime());
        self.handle
            .crawl_compliance()
            .iter()
            .for_each(|seen| self.telemetry.record_compliance(self.operators.name(seen.operator), seen));
        let files = self.files.lock();
        let view = |(name, networks, trouble): (String, usize, Option<&str>)| ListView {
            name,
            networks,
            is_stale: trouble.is_some(),
        };
        let lists =
            ListsView { lists: self.lists(&files).map(view).collect(), stale_ranges: self.operators.stale_lists() };
        drop(files);
        self.handle.with_admission(|admission| self.telemetry.render(admission, &operators, &lists, now, uptime))
    }

    fn quotas(&self) -> Vec<QuotaView> {
        self.handle.quotas()
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
                let place = throttled.iter().position(|state| *state.name == *name);
                let throttle = place.map(|place| throttled.swap_remove(place));
                let is_by_value = throttle.as_ref().is_some_and(|state| state.partitions.is_some());
                let shown = if is_by_value { MAX_SHOWN_PARTITIONS } else { 0 };
                let busiest = admission.busiest_partitions(&name, shown, uptime);
                ScopeView { inflight: self.telemetry.inflight(&name), name, throttle, busiest }
            };
            scopes.into_iter().map(&mut view).collect()
        })
    }

    fn crawlers(&self) -> Vec<(String, ComplianceView)> {
        let named = |seen: ComplianceView| (self.operators.name(seen.operator).to_owned(), seen);
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

    fn set_used(&self, quota: &str, used: Units) -> Result<(Units, Units), UnknownQuota> {
        let corrected = self.handle.set_used(quota, used)?;
        if self.lease_refresher.as_ref().is_some_and(|lease_refresher| !lease_refresher.flush(LEDGER_TIMEOUT)) {
            warn!("The correction of {quota} is active, but not in the ledger yet");
        }
        Ok(corrected)
    }

    fn decision(&self, id: u64) -> Option<Vec<u8>> {
        self.telemetry.decision(id)
    }

    fn explanation(&self, id: u64) -> Option<Explanation> {
        let line = self.telemetry.decision(id)?;
        let line = LogLine::read(&line).ok()??;
        let (lists, quotas) = (self.handle.lists(), self.handle.quotas());
        self.handle.with_settings(|settings| {
            let known = Environment { settings, agents: &self.agents, operators: &self.operators, lists: &lists };
            input_from_log(&line, known).ok().map(|case| explain(&case.with_quotas(&quotas)))
        })
    }

    fn reload(&self) -> Result<String, String> {
        let names: Vec<&str> = self.operators.names().collect();
        let (settings, read) = self.reload_settings(&names).inspect_err(|mistakes| {
            self.telemetry.reload_failed();
            warn!("Configuration reload failed, keeping the current settings:\n{mistakes}");
            self.settings.lock().last_reload_error = Some((self.handle.now(), mistakes.clone()));
        })?;
        let lists = read.lists();
        let mut summary = check::summary(&settings, lists.counts());
        let waiting = needs_restart(&self.startup_settings, &settings);
        for key in &waiting {
            summary.push_str(&format!("{key}: takes effect at the next start\n"));
        }
        let now = self.handle.now();
        self.telemetry.config_loaded(&settings.rules, &names, now);
        // New quota counters get leases before the first request needs them.
        self.engine.open_quotas(&settings.rules, now);
        if let Some(lease_refresher) = &self.lease_refresher {
            lease_refresher.flush(LEDGER_TIMEOUT);
        }
        // The lock prevents a concurrent poll from putting lists of the old settings into the new ones.
        let mut files = self.files.lock();
        self.handle.replace_settings(settings, lists);
        *files = read;
        *self.settings.lock() = SettingsView { loaded: now, last_reload_error: None };
        match waiting.is_empty() {
            true => info!("Configuration reloaded"),
            false => warn!("Configuration reloaded; {} take effect at the next start", waiting.join(", ")),
        }
        Ok(summary)
    }
}

/// Returns the changed keys that a running gateway cannot apply.
fn needs_restart(old: &Settings, new: &Settings) -> Vec<&'static str> {
    let admin = |settings: &Settings| settings.admin.as_ref().map(|admin| (admin.listen, admin.token.clone()));
    let limits = |settings: &Settings| settings.limits.max_clients;
    [
        ("listen", old.listen != new.listen),
        ("workers", old.workers != new.workers),
        ("admin", admin(old) != admin(new)),
        ("state_dir", old.state_dir != new.state_dir),
        ("ledger", old.ledger != new.ledger),
        ("operators", old.operators != new.operators),
        ("verify.dns", old.verify.dns != new.verify.dns),
        ("verify.refresh_interval", old.verify.refresh != new.verify.refresh),
        ("log.access", old.log.access != new.log.access),
        ("log.level", old.log.level != new.log.level),
        ("limits.max_tracked_clients", limits(old) != limits(new)),
    ]
    .into_iter()
    .filter_map(|(key, differs)| differs.then_some(key))
    .collect()
}
