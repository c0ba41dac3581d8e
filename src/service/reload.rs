//! Reload of the settings, and of changed address lists and certificates.

use super::crawlers::network_databases;
use super::{LEDGER_TIMEOUT, ServiceState, certificates, crawlers, notify, switches, traces};
use crate::admin::state::{ReloadFailureDocument, SettingsDocument};
use crate::gateway::{ConfigFiles, ErrorPages, OriginServers};
use std::time::Duration;
use tidegate_access_log::rfc3339;
use tidegate_config::{Settings, describe};
use tidegate_crawlers::address_list_files::{AddressListFiles, ReloadResult};
use tidegate_crawlers::network_databases::NetworkDatabases;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_engine::files::FileWatch;
use tidegate_policy::Timestamp;
use tracing::{error, info, warn};

/// Interval at which the files of address lists and certificates are checked for changes.
const FILE_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum size of the file of API keys, in bytes.
const MAX_KEY_FILE_BYTES: usize = 8 << 20;

/// Time after which changed API keys that could not be applied are tried again.
const KEY_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// The file of API keys, if there is one.
#[derive(Default)]
pub(super) struct ApiKeyFile {
    watch: Option<FileWatch>,
    /// Time at which a change that could not be applied is tried again.
    retry_at: Option<Timestamp>,
}

/// Settings with what was read from the files that they name.
struct LoadedSettings {
    settings: Settings,
    origin_servers: Vec<OriginServers>,
    error_pages: ErrorPages,
    network_databases: NetworkDatabases,
    files: AddressListFiles,
}

impl ServiceState {
    /// Reloads the certificates, the settings and their address lists. Returns a summary, or all errors.
    pub(super) fn reload_config(&self) -> Result<String, String> {
        self.reload_from(None)
    }

    /// Reloads as [`Self::reload_config`] does, with a text in place of that of the file, as which it does not count.
    fn reload_from(&self, text: Option<&str>) -> Result<String, String> {
        // Those of the running listeners, whatever becomes of the settings.
        self.reload_certificates();
        let names: Vec<&str> = self.operators.names().collect();
        let LoadedSettings { settings, origin_servers, error_pages, network_databases, files: new_files } =
            self.reload_settings(text, &names).inspect_err(|errors| {
                self.telemetry.reload_failed();
                for line in errors.lines() {
                    error!("Configuration reload failed, keeping the current settings: {line}");
                }
                let failure = ReloadFailureDocument { time: rfc3339(self.handle.now()), errors: errors.clone() };
                self.settings.lock().last_reload_failed = Some(failure);
            })?;
        let lists = new_files.lists();
        let builtin = OperatorTable::builtin();
        let builtin = crawlers::builtin_operators(&builtin);
        let mut summary = describe::summary(&settings, lists.network_counts(), &builtin);
        let restart_keys = settings.keys_needing_restart(&self.startup_settings);
        for key in &restart_keys {
            summary.push_str(&format!("{key}: takes effect at the next start\n"));
        }
        let now = self.handle.now();
        self.telemetry.config_loaded(&settings.rules, &names, now);
        self.telemetry.origins_loaded(&settings.origin_names(), &settings.rules);
        // New quota counters get leases before the first request needs them.
        self.engine.open_quotas(&settings.rules, now);
        if let Some(lease_refresher) = &self.lease_refresher {
            lease_refresher.flush(LEDGER_TIMEOUT);
        }
        // The lock prevents a concurrent poll from putting lists of the old settings into the new ones.
        let mut files = self.address_list_files.lock();
        let had_keys = self.handle.with_settings(|settings| settings.rules.api_keys.iter().next().is_some());
        if had_keys && settings.rules.api_keys.iter().next().is_none() {
            warn!("The list of API keys has become empty: none of its keys is valid any more");
        }
        let switches = switches::resolve(&self.switches, &self.operators, &settings.rules, now);
        self.handle.replace_settings(
            settings,
            origin_servers,
            ConfigFiles { error_pages, lists, network_databases },
            switches,
        );
        // A switch may have changed meanwhile.
        self.apply_switches();
        self.keep_session_secret();
        *files = new_files;
        drop(files);
        if text.is_some() {
            return Ok(summary);
        }
        *self.settings.lock() = SettingsDocument { loaded_at: rfc3339(now), last_reload_failed: None };
        match restart_keys.is_empty() {
            true => info!("Configuration reloaded"),
            false => {
                warn!("Configuration reloaded, without changes of {}: they need a restart", restart_keys.join(", "));
            }
        }
        Ok(summary)
    }

    /// Loads the settings and the files that they name. Returns all errors of one of them, and all errors of the next
    /// start.
    fn reload_settings(&self, text: Option<&str>, names: &[&str]) -> Result<LoadedSettings, String> {
        let load = |names: &[&str]| (self.source)(names, text).map_err(|errors| errors.to_string());
        if !self.startup_settings.operators.is_empty() {
            // The next start only knows the operators of the file, not those that run.
            load(&OperatorTable::builtin_names())?;
        }
        let settings = load(names)?;
        let files = AddressListFiles::read(settings.address_list_files()).map_err(|errors| errors.to_string())?;
        let origin_servers = OriginServers::all(&settings)?;
        let error_pages = ErrorPages::read(&settings)?;
        // The next start needs them.
        certificates::read(&settings, self.handle.now(), 0).map_err(|errors| errors.to_string())?;
        notify::webhook_clients(&settings).map_err(|errors| errors.to_string())?;
        traces::check(&settings).map_err(|error| format!("traces: {error}"))?;
        let network_databases = network_databases(&settings)?;
        Ok(LoadedSettings { settings, origin_servers, error_pages, network_databases, files })
    }

    /// Polls the address lists and certificates until dropped.
    pub(super) async fn poll_files(&self) {
        let mut ticks = tokio::time::interval(FILE_POLL_INTERVAL);
        loop {
            ticks.tick().await;
            self.reload_address_lists();
            self.reload_certificates();
            self.reload_changed_keys();
        }
    }

    /// Applies the file of API keys if it has changed, and nothing else of the configuration file: an edit of that waits for a
    /// reload. What cannot be applied is tried again, because a key that is valid may be a revoked one.
    pub(super) fn reload_changed_keys(&self) {
        let mut keys = self.api_key_file.lock();
        let (file, text) = self.handle.with_settings(|settings| (settings.api_key_file.clone(), settings.text.clone()));
        if keys.watch.as_ref().map(FileWatch::path) != file.as_deref() {
            keys.watch = file.map(|file| FileWatch::new(&file, MAX_KEY_FILE_BYTES));
            keys.watch.as_mut().and_then(FileWatch::read_if_changed);
            keys.retry_at = None;
            return;
        }
        let now = self.handle.now();
        let has_changed = keys.watch.as_mut().is_some_and(|watch| watch.read_if_changed().is_some());
        if has_changed || keys.retry_at.is_some_and(|time| now >= time) {
            keys.retry_at = match self.reload_from(Some(text.expose_secret())) {
                Ok(_) => {
                    info!("The API keys have changed");
                    None
                }
                Err(_) => Some(now + KEY_RETRY_INTERVAL),
            };
        }
    }

    /// Reloads the changed address lists. A list with errors keeps its previous version.
    pub(super) fn reload_address_lists(&self) {
        let mut files = self.address_list_files.lock();
        let ReloadResult { changed, lists, errors } = files.reload_changed();
        for error in errors {
            warn!("Rejected address list: {error}; keeping the previous version");
        }
        if let Some(lists) = lists {
            let names = self.handle.with_settings(|settings| settings.rules.address_list_names.clone());
            for index in changed {
                info!(
                    "Address list {} changed: loaded {}",
                    names[index],
                    describe::network_count(lists.network_counts()[index])
                );
            }
            self.handle.replace_lists(lists);
        }
    }

    /// Returns the address lists by name, each with its number of networks and the current error of its file.
    pub(super) fn lists<'f>(
        &self,
        files: &'f AddressListFiles,
    ) -> impl Iterator<Item = (String, usize, Option<&'f str>)> + use<'f> {
        let names = self.handle.with_settings(|settings| settings.rules.address_list_names.clone());
        names.into_iter().zip(files.states()).map(|(name, (networks, error))| (name, networks, error))
    }
}
