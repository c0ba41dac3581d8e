//! The engine of the configured ledger, with its lease refresher.

use super::{LEDGER_TIMEOUT, ServiceError, server_trust};
use std::sync::Arc;
use tidegate_config::settings::{self, Ledger, LedgerFailureMode, Redis, RedisTls};
use tidegate_config::{SettingPath, Settings};
use tidegate_engine::clock::Clock;
use tidegate_engine::ledger::redis::{HostPort, Incarnation, RedisAddress, RedisEndpoint};
use tidegate_engine::ledger::{self, LeaseRefresher, OpenError, RedisStore, Store, WakeHandle};
use tidegate_engine::state_lock::StateLock;
use tidegate_engine::{Engine, LeaseMode};
use tidegate_tls::{ServerTrust, TlsErrors, client_config};
use tokio_rustls::TlsConnector;
use tracing::warn;

/// Returns the engine, with leases if possible, and the refresher that keeps it supplied.
pub(super) fn engine(
    settings: &Settings,
    clock: &Clock,
    seed: u64,
) -> Result<(Arc<Engine>, Option<LeaseRefresher>), ServiceError> {
    let (engine, lease_refresher) = match &settings.ledger {
        Ledger::Memory => return Ok((Engine::new(LeaseMode::Local, settings.limits.max_tracked_clients), None)),
        Ledger::File => {
            let uptime = {
                let clock = clock.clone();
                Box::new(move || clock.monotonic_now())
            };
            let file = ledger::FileStore::open(&settings.state_dir, &ledger::boot_id(), uptime, clock.now())?;
            with_leases(file, WakeHandle::lease_mode, settings, clock)?
        }
        Ledger::Redis(redis) => {
            let incarnation = Incarnation::next(&settings.state_dir, seed)
                .map_err(|source| OpenError::Directory { path: settings.state_dir.clone(), source })?;
            let server =
                endpoint(redis, settings).map_err(|error| ServiceError::Certificates(TlsErrors(vec![error])))?;
            let fallback_enabled = redis.failure_mode == LedgerFailureMode::Fallback;
            let store = RedisStore::new(server, &redis.prefix, fallback_enabled, incarnation);
            with_leases(store, WakeHandle::shared_lease_mode, settings, clock)?
        }
    };
    let now = {
        let clock = clock.clone();
        move || clock.now()
    };
    engine.open_key_files(&settings.state_dir, now)?;
    Ok((engine, lease_refresher))
}

/// Returns the server of a shared ledger. An error names the place in the file of the settings.
pub(super) fn endpoint(redis: &Redis, settings: &Settings) -> Result<RedisEndpoint, String> {
    let place = |(host, port): &(String, u16)| HostPort { host: host.clone(), port: *port };
    Ok(RedisEndpoint {
        address: match &redis.address {
            settings::RedisAddress::Tcp(host, port) => RedisAddress::Tcp(HostPort { host: host.clone(), port: *port }),
            settings::RedisAddress::Unix(path) => RedisAddress::Unix(path.clone()),
            settings::RedisAddress::Sentinel { sentinels, primary } => {
                RedisAddress::Sentinel { sentinels: sentinels.iter().map(place).collect(), primary: primary.clone() }
            }
        },
        tls: redis.tls.as_ref().map(|tls| connector(tls, settings)).transpose()?,
        user: redis.user.clone(),
        password: redis.password.as_ref().map(|password| password.expose_secret().to_owned()),
        database: redis.database,
    })
}

fn connector(tls: &RedisTls, settings: &Settings) -> Result<TlsConnector, String> {
    let servers = match &tls.ca {
        Some(file) => server_trust::read(file, &settings.location_of(&SettingPath::ROOT.ledger().redis().ca()))?,
        None => ServerTrust::public(),
    };
    Ok(TlsConnector::from(Arc::new(client_config(servers))))
}

fn with_leases<S: Store>(
    store: S,
    lease_mode: fn(&WakeHandle) -> LeaseMode,
    settings: &Settings,
    clock: &Clock,
) -> Result<(Arc<Engine>, Option<LeaseRefresher>), ServiceError> {
    let wake_handle = WakeHandle::default();
    let engine = Engine::new(lease_mode(&wake_handle), settings.limits.max_tracked_clients);
    // Until gateways agree on the secret that hashes credentials, or it turns out that no budget depends on it.
    engine.hold_key_leases(matches!(settings.ledger, Ledger::Redis(_)));
    engine.open_quotas(&settings.rules, clock.now());
    let now = {
        let clock = clock.clone();
        move || clock.now()
    };
    let lease_refresher =
        LeaseRefresher::start(store, Arc::clone(&engine), wake_handle, now).map_err(ServiceError::Thread)?;
    if !lease_refresher.flush(LEDGER_TIMEOUT) {
        warn!("Ledger granted no leases within {LEDGER_TIMEOUT:?}");
    }
    Ok((engine, Some(lease_refresher)))
}

/// Locks the state directory for a ledger that does not: `tidegate learn` then changes no file of a running gateway. A
/// failure is only logged, because neither ledger needs the directory to count.
pub(super) fn lock_state_dir(settings: &Settings) -> Option<StateLock> {
    let learns = settings.rules.bot_detection.is_some() || settings.rules.quotas.iter().any(|it| it.pacing.is_some());
    if settings.ledger == Ledger::File || !learns {
        return None;
    }
    let lock = StateLock::shared(&settings.state_dir);
    let lock = lock.map_err(|error| OpenError::from_lock_error(error, &settings.state_dir));
    lock.inspect_err(|error| warn!(%error, "What is learned may be lost at the next start: {error}")).ok()
}
