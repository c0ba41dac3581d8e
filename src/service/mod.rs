//! A running gateway: the data plane, the admin listener, and the control thread.
//!
//! [`Service`] wires all parts together. No other module depends on all of them.

mod acme;
mod api;
mod available_memory;
pub mod certificates;
mod control;
pub mod crawlers;
mod customers;
mod hand_over;
mod ledger;
mod metrics;
pub mod notify;
mod reload;
mod remedy;
mod server_trust;
mod sessions;
mod shadow_summary;
mod switches;
#[cfg(test)]
mod tests;
pub mod traces;
mod usage_history;

use crate::admin::state::{PromiseDocument, SettingsDocument};
use crate::admin::{AccessControl, AccessRules, BoundListener, GatewayApi};
use crate::gateway::{ConfigFiles, Dependencies, ErrorPages, Gateway, Handle, OriginServers, StartError, WrittenUrl};
use crate::telemetry::{AccessLog, LogTarget, Telemetry};
use acme::AcmeCertificates;
use available_memory::available_memory;
pub use hand_over::{Inheritance, Predecessor};
use hand_over::{LateChange, Successor};
use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tidegate_access_log::rfc3339;
use tidegate_config::admin_address::AdminAddress;
use tidegate_config::settings::{AccessLog as Destination, Ledger};
use tidegate_config::{ConfigErrors, Settings};
use tidegate_crawlers::address_list_files::{AddressListErrors, AddressListFiles};
use tidegate_crawlers::user_agents::UserAgentMatcher;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_crawlers::verify::fetch::{AllowedAddresses, Fetcher};
use tidegate_crawlers::verify::signature::SignatureVerifier;
use tidegate_engine::Engine;
use tidegate_engine::baseline_store::BaselineStore;
use tidegate_engine::clock::Clock;
use tidegate_engine::demand_store::DemandStore;
use tidegate_engine::ledger::redis::{SharedSessionSecret, SharedSwitches};
use tidegate_engine::ledger::{LeaseRefresher, OpenError};
use tidegate_engine::state_lock::StateLock;
use tidegate_engine::switch_store::SwitchStore;
use tidegate_notify::DeliveryCounts;
use tidegate_policy::Timestamp;
use tidegate_tls::TicketKeys;
use tidegate_tls::{TlsErrors, TlsFiles};
use tidegate_traces::ExportError;
use tokio::sync::oneshot;
use tracing::{info, warn};

/// Interval at which a process that has handed over tells the new one what its last requests cost.
const LATE_CHARGE_INTERVAL: Duration = Duration::from_millis(100);

/// Time limit for writing the last lines of the access log at shutdown.
const LOG_FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for writing the last responses of the cache at shutdown.
const CACHE_FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Time that a start waits for the DNS lookup of the origin.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time that a start waits for the first leases, and a manual correction for its write to the ledger.
const LEDGER_TIMEOUT: Duration = Duration::from_secs(2);

/// Part of the available memory that client connections may occupy without `limits.memory`, as a divisor.
const MEMORY_PART: u64 = 4;

/// Version and revision of this build.
pub const BUILD: (&str, &str) = (
    env!("CARGO_PKG_VERSION"),
    match option_env!("TIDEGATE_REVISION") {
        Some(revision) => revision,
        None => "unknown",
    },
);

/// Loads the settings with these names of operators: once at the start and again for each reload. A text takes the place of that
/// of the file.
pub type SettingsSource = Arc<dyn Fn(&[&str], Option<&str>) -> Result<Settings, ConfigErrors> + Send + Sync>;

/// Access to the network beyond the origin.
#[derive(Clone)]
pub struct ExternalAccess {
    /// Fetches the documents that crawler operators publish.
    pub fetcher: Fetcher,
    /// Addresses that may be contacted where a request names the host.
    pub allowed_addresses: AllowedAddresses,
}

impl Default for ExternalAccess {
    /// Returns access to the public internet.
    fn default() -> Self {
        Self { fetcher: Fetcher::with_public_roots(), allowed_addresses: AllowedAddresses::Public }
    }
}

/// A running gateway with its background tasks.
pub struct Service {
    gateway: Gateway,
    state: Arc<ServiceState>,
    admin: Option<AdminAddress>,
    control: JoinHandle<()>,
    shutdown_sender: oneshot::Sender<()>,
}

/// Error of [`Service::start`].
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// Invalid settings.
    #[error("{0}")]
    Settings(ConfigErrors),
    /// The gateway failed to start.
    #[error(transparent)]
    Gateway(#[from] StartError),
    /// The admin listener cannot be opened.
    #[error(
        "admin.listen: cannot listen on {address}: {source}; {}, or admin: off",
        listen_remedy(.address)
    )]
    Admin {
        /// Address of the listener.
        address: AdminAddress,
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
    Lists(AddressListErrors),
    /// A file of TLS to the origin is invalid.
    #[error("{0}")]
    Origin(String),
    /// A certificate file is unusable.
    #[error("{0}")]
    Certificates(TlsErrors),
    /// A database of networks is unusable. One line per error.
    #[error("{0}")]
    NetworkDatabases(String),
    /// A file of an error page is unusable. One line per error.
    #[error("{0}")]
    ErrorPages(String),
    /// Traces cannot be exported.
    #[error("traces: {0}")]
    Traces(#[from] ExportError),
    /// The ledger cannot be opened.
    #[error(transparent)]
    Ledger(#[from] OpenError),
    /// The predecessor does not hand over.
    #[error("cannot take over from the running process: {0}")]
    Predecessor(io::Error),
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
        Self::start_from(Inheritance::default(), None, external, source, clock, seed)
    }

    /// Like [`Self::start_with`], with what a predecessor hands over. A running `predecessor` still has the ledger.
    pub fn start_from(
        inheritance: Inheritance,
        predecessor: Option<&Predecessor>,
        external: ExternalAccess,
        source: SettingsSource,
        clock: Clock,
        seed: u64,
    ) -> Result<Self, ServiceError> {
        let Inheritance { sockets, tickets, origin_connections, settings } = inheritance;
        let settings = match settings {
            Some(settings) => *settings,
            None => source(&OperatorTable::builtin_names(), None).map_err(ServiceError::Settings)?,
        };
        let operators = Arc::new(crawlers::operators(&settings));
        let names: Vec<&str> = operators.names().collect();
        let address_list_files = AddressListFiles::read(settings.address_list_files()).map_err(ServiceError::Lists)?;
        let lists = address_list_files.lists();
        let error_pages = ErrorPages::read(&settings).map_err(ServiceError::ErrorPages)?;
        let network_databases = crawlers::network_databases(&settings).map_err(ServiceError::NetworkDatabases)?;
        let started_at = clock.now();
        let tickets = tickets.map_or_else(|| TicketKeys::generate(started_at.seconds()), TicketKeys::import);
        let (tls_files, acme) =
            certificates::read_with_tickets(&settings, tickets, seed).map_err(ServiceError::Certificates)?;
        let origin_servers = OriginServers::all(&settings).map_err(ServiceError::Origin)?;
        notify::webhook_clients(&settings).map_err(ServiceError::Certificates)?;
        traces::check(&settings)?;

        let log = access_log(&settings.log.access)?;
        let telemetry = Telemetry::new(log, BUILD, started_at);
        telemetry.config_loaded(&settings.rules, &names, started_at);
        telemetry.origins_loaded(&settings.origin_names(), &settings.rules);
        // All that a mistake in the files can make fail has succeeded above, so that the predecessor need not start again.
        if let Some(predecessor) = predecessor {
            predecessor.take_ledger().map_err(ServiceError::Predecessor)?;
        }
        let admin = settings.admin.as_ref().map(|admin| {
            let listener = BoundListener::bind(&admin.listen).and_then(|listener| Ok((listener.address()?, listener)));
            let listener = listener.map_err(|source| ServiceError::Admin { address: admin.listen.clone(), source });
            listener.map(|(listen, listener)| {
                let (token, read_token) = (admin.token.clone(), admin.read_token.clone());
                (listener, AccessControl::new(AccessRules { token, read_token }, listen, clock.clone()))
            })
        });
        let admin = admin.transpose()?;

        let range_refresher = crawlers::new_range_refresher(&operators, &external.fetcher, &settings, &clock, seed);
        let (engine, lease_refresher) = ledger::engine(&settings, &clock, seed)?;
        let state_lock = ledger::lock_state_dir(&settings);
        let demand_store = DemandStore::new(&settings.state_dir, operators.names());
        engine.open_quotas(&settings.rules, started_at);
        match demand_store.restore() {
            Ok(learned) => engine.restore_demand(&learned),
            Err(error) => warn!("Demand history unreadable, starting empty: {error}"),
        }
        let baseline_store = BaselineStore::new(&settings.state_dir);
        match baseline_store.restore() {
            Ok(learned) => {
                learned.iter().for_each(|learned| engine.restore_baseline(learned, &settings.rules, started_at));
            }
            Err(error) => warn!("Baseline of bot detection unreadable, starting empty: {error}"),
        }
        let switches = SwitchStore::new(&settings.state_dir);
        let switch_file_error = switches.restore().err().map(|error| format!("switches: {error}"));
        if let Some(error) = &switch_file_error {
            warn!("Some or all switches are lost: {error}");
        }
        let shared_switches =
            switches::shared(&settings).map_err(|error| ServiceError::Certificates(TlsErrors(vec![error])))?;
        let shared_session_secret =
            sessions::shared(&settings).map_err(|error| ServiceError::Certificates(TlsErrors(vec![error])))?;
        let session_secret = sessions::secret(&settings);
        let signatures = Arc::new(SignatureVerifier::new(operators.signature_agents()));
        let user_agents = Arc::new(UserAgentMatcher::builtin(operators.product_tokens()));
        let dependencies = Dependencies {
            clock,
            engine: Arc::clone(&engine),
            user_agents: Arc::clone(&user_agents),
            operators: Arc::clone(&operators),
            origin_servers,
            files: ConfigFiles { error_pages, lists, network_databases },
            session_secret,
            switches: switches::resolve(&switches, &operators, &settings.rules, started_at),
            signatures: Arc::clone(&signatures),
            tls: tls_files.listeners().cloned().collect(),
            challenges: Arc::clone(&acme.challenges),
            ledger_responses: lease_refresher.as_ref().map(LeaseRefresher::lease_updates),
            is_ledger_remote: matches!(settings.ledger, Ledger::Redis(_)),
            default_memory: available_memory(Path::new("/")).map(|bytes| bytes / MEMORY_PART),
            origin_connections,
            seed,
        };
        let startup_settings = settings.clone();
        let gateway = Gateway::start(settings, dependencies, sockets, |_| telemetry.worker())?;
        let admin_address = admin.as_ref().map(|(_, access)| access.address().clone());
        let addresses = BoundAddresses { listen: gateway.listen().to_vec(), admin: admin_address.clone() };
        let settings = Mutex::new(SettingsDocument { loaded_at: rfc3339(started_at), last_reload_failed: None });
        let state = Arc::new(ServiceState {
            handle: gateway.handle(),
            telemetry,
            user_agents,
            operators,
            signatures,
            external,
            source,
            started_at,
            engine,
            lease_refresher,
            demand_store,
            baseline_store,
            switches,
            switch_file_error,
            switch_lock: Mutex::default(),
            shared_switches: shared_switches.map(tokio::sync::Mutex::new),
            shared_session_secret: shared_session_secret.map(tokio::sync::Mutex::new),
            session_secret_error: Mutex::default(),
            state_lock: Mutex::new(state_lock),
            addresses,
            startup_settings,
            settings,
            address_list_files: Mutex::new(address_list_files),
            api_key_file: Mutex::default(),
            tls_files: Mutex::new(tls_files),
            acme,
            notifications: Arc::default(),
            trace_export: tokio::sync::Mutex::default(),
            promise: Mutex::default(),
        });
        // From now on, it has changed if it differs from what was read.
        state.reload_changed_keys();
        let (shutdown_sender, shutdown) = oneshot::channel();
        let (resolved_sender, resolved) = mpsc::channel();
        let control = {
            let state = Arc::clone(&state);
            let thread = std::thread::Builder::new().name("control".into());
            thread
                .spawn(move || control::run(&state, admin, range_refresher, resolved_sender, shutdown))
                .map_err(ServiceError::Thread)?
        };
        // Ready means that the origin is resolved. A lookup that fails now is repeated while serving.
        let _ = resolved.recv_timeout(RESOLVE_TIMEOUT);
        Ok(Self { gateway, state, admin: admin_address, control, shutdown_sender })
    }

    /// Returns the addresses at which clients are served.
    pub fn listen(&self) -> &[SocketAddr] {
        self.gateway.listen()
    }

    /// Returns the address for other proxies, if there is a listener.
    pub fn forward_auth(&self) -> Option<SocketAddr> {
        self.gateway.forward_auth()
    }

    /// Returns the address of the admin listener, if enabled.
    pub fn admin(&self) -> Option<&AdminAddress> {
        self.admin.as_ref()
    }

    /// Reloads the settings. Returns a summary, or all errors.
    pub fn reload(&self) -> Result<String, String> {
        self.state.reload()
    }

    /// Reopens the access log after a rotation.
    pub fn reopen_access_log(&self) {
        self.state.telemetry.reopen_access_log();
    }

    /// Reloads changed address lists, certificates and API keys now, instead of at the next poll.
    pub fn reload_files(&self) {
        self.state.reload_address_lists();
        self.state.reload_certificates();
        self.state.reload_changed_keys();
    }

    /// Returns warnings for the administrator.
    pub fn warnings(&self) -> Vec<String> {
        self.state.warnings()
    }

    /// Shuts down: drains requests in flight, writes the access log, then closes everything.
    pub fn shut_down(self) {
        let Self { gateway, state, control, shutdown_sender, .. } = self;
        gateway.shut_down();
        state.close_files();
        let _ = shutdown_sender.send(());
        let _ = control.join();
        state.persist_learned();
        state.close_ledger();
    }

    /// Tells `predecessor` that this process serves. Removes the stored responses of URLs that are written to through it, and
    /// charges what its requests cost beyond their reservations.
    pub fn follow(&self, predecessor: Predecessor) {
        let (handle, engine) = (self.state.handle.clone(), Arc::clone(&self.state.engine));
        predecessor.tell_serving();
        std::thread::spawn(move || {
            while let Some(change) = predecessor.next_change() {
                match change {
                    LateChange::Written(url) => handle.record_write(url),
                    LateChange::Charged { quota, window, units } => {
                        engine.charge_late(&quota, window, units, handle.now());
                    }
                    LateChange::KeyCharged(late) => engine.charge_key_late(&late, handle.now()),
                }
            }
        });
    }

    /// Hands over to a new process, which `command` starts, and calls `on_served` with its id once it serves. Serves on if it
    /// does not start.
    pub fn hand_over(self, command: Command, on_served: impl FnOnce(u32)) -> HandOver {
        let tickets = self.state.tls_files.lock().tickets().export();
        self.state.persist_learned();
        let origin_connections = self.state.handle.origin_connections();
        let started = Successor::start(command, self.gateway.sockets(), &tickets, origin_connections);
        let mut successor = match started {
            Ok(successor) => successor,
            Err(error) => return HandOver::Refused(Box::new(self), error),
        };
        info!("The new process is ready: stopping to accept requests");
        let Self { gateway, state, control, shutdown_sender, .. } = self;
        let writes = state.handle.follow_writes();
        let draining = gateway.stop_requests();
        // No request begins: what is in flight counts as its reservation.
        let _ = shutdown_sender.send(());
        let _ = control.join();
        state.persist_learned();
        state.close_ledger();
        if !state.handle.close_cache(CACHE_FLUSH_TIMEOUT) {
            warn!("Writing the cache timed out after {CACHE_FLUSH_TIMEOUT:?}: its last responses are lost");
        }
        let served = successor.release_ledger();
        let forwarding = served.is_ok().then(|| {
            on_served(successor.process_id());
            info!("The new process serves: completing the requests in flight");
            let engine = Arc::clone(&state.engine);
            std::thread::spawn(move || forward_changes(&successor, &writes, &engine))
        });
        let sockets = draining.wait();
        state.handle.end_follow_writes();
        // Fails if the new process has ended, which has the cache.
        forwarding.into_iter().for_each(|thread| drop(thread.join()));
        state.close_files();
        match served {
            Ok(()) => HandOver::Done,
            Err(error) => {
                let settings = Some(Box::new(state.startup_settings.clone()));
                HandOver::Lost(Inheritance { sockets, tickets: Some(tickets), origin_connections, settings }, error)
            }
        }
    }
}

/// Tells `successor` what the last requests of this process change, until there are no more writes.
fn forward_changes(successor: &Successor, writes: &mpsc::Receiver<WrittenUrl>, engine: &Engine) -> io::Result<()> {
    loop {
        let write = writes.recv_timeout(LATE_CHARGE_INTERVAL);
        let charges = engine.take_late_charges().into_iter();
        let charges = charges.map(|(quota, window, units)| LateChange::Charged { quota, window, units });
        let of_keys = engine.take_late_key_charges().into_iter().map(LateChange::KeyCharged);
        let mut changes = write.ok().map(LateChange::Written).into_iter().chain(charges).chain(of_keys);
        changes.try_for_each(|change| successor.tell(change))?;
        if write == Err(mpsc::RecvTimeoutError::Disconnected) {
            return Ok(());
        }
    }
}

/// Result of [`Service::hand_over`].
pub enum HandOver {
    /// The new process serves; this one has ended its work.
    Done,
    /// The new process did not start: this one serves on.
    Refused(Box<Service>, io::Error),
    /// The new process took over and failed. What this one needs to serve again.
    Lost(Inheritance, io::Error),
}

impl ServiceState {
    /// Writes the last lines of the access log and the last responses of the cache.
    fn close_files(&self) {
        if !self.telemetry.close(LOG_FLUSH_TIMEOUT) {
            warn!("Access log flush timed out after {LOG_FLUSH_TIMEOUT:?}: its last lines may be lost");
        }
        if !self.handle.flush_cache(CACHE_FLUSH_TIMEOUT) {
            warn!("Writing the cache timed out after {CACHE_FLUSH_TIMEOUT:?}: its last responses are lost");
        }
    }

    /// Closes the ledger, when no request or correction can use units, and lets another process use the state directory.
    fn close_ledger(&self) {
        if let Some(lease_refresher) = &self.lease_refresher {
            lease_refresher.close();
        }
        self.engine.close_key_files();
        drop(self.state_lock.lock().take());
    }
}

fn listen_remedy(address: &AdminAddress) -> &'static str {
    match address {
        AdminAddress::Tcp(_) => "write another port, such as admin: { listen: 127.0.0.1:9091 }",
        AdminAddress::Unix(_) => "create its directory, writable for the gateway, or write another path",
    }
}

/// State of a running gateway that the admin API reads and changes.
struct ServiceState {
    handle: Handle,
    telemetry: Telemetry,
    user_agents: Arc<UserAgentMatcher>,
    operators: Arc<OperatorTable>,
    signatures: Arc<SignatureVerifier>,
    external: ExternalAccess,
    source: SettingsSource,
    started_at: Timestamp,
    engine: Arc<Engine>,
    lease_refresher: Option<LeaseRefresher>,
    demand_store: DemandStore,
    baseline_store: BaselineStore,
    switches: SwitchStore,
    /// Error of the stored switches at the start, if any.
    switch_file_error: Option<String>,
    /// Held while the switches are resolved and activated, so that the last activated ones are the latest.
    switch_lock: Mutex<()>,
    /// Switches of all gateways, if they share a ledger.
    shared_switches: Option<tokio::sync::Mutex<SharedSwitches>>,
    /// Connection to the secret of sessions of all gateways; `None` without a shared ledger.
    shared_session_secret: Option<tokio::sync::Mutex<SharedSessionSecret>>,
    /// Error of the last exchange of the secret, if it failed.
    session_secret_error: Mutex<Option<String>>,
    /// Lock of the state directory, unless the ledger holds one, or a successor.
    state_lock: Mutex<Option<StateLock>>,
    addresses: BoundAddresses,
    /// Settings at the start. Some of them stay in effect until the next start, despite reloads.
    startup_settings: Settings,
    settings: Mutex<SettingsDocument>,
    address_list_files: Mutex<AddressListFiles>,
    api_key_file: Mutex<reload::ApiKeyFile>,
    tls_files: Mutex<TlsFiles>,
    acme: AcmeCertificates,
    /// Counts of the notifications to webhooks.
    notifications: Arc<DeliveryCounts>,
    trace_export: tokio::sync::Mutex<traces::TraceExport>,
    /// What the windows keep of the promise, at the last observation.
    promise: Mutex<Option<PromiseDocument>>,
}

/// Bound addresses.
struct BoundAddresses {
    listen: Vec<SocketAddr>,
    admin: Option<AdminAddress>,
}

fn access_log(destination: &Destination) -> Result<Option<AccessLog>, ServiceError> {
    let (target, path) = match destination {
        Destination::Off => return Ok(None),
        Destination::Stdout => (LogTarget::Stdout, "standard output".into()),
        Destination::File { path, rotation, format } => {
            (LogTarget::File(path.clone(), *rotation, *format), path.clone())
        }
    };
    AccessLog::start(target).map(Some).map_err(|source| ServiceError::AccessLog { path, source })
}
