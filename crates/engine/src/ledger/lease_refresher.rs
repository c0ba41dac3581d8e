//! Background task that refreshes the leases of the engine from a ledger, on its own thread.

use super::store::{Lease, LeaseRequest, Store, StoreError};
use crate::{Engine, LeaseMode};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tidegate_policy::Timestamp;
use tokio::sync::Notify;
use tracing::{info, warn};

/// Maximum time between two refreshes.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time between two refreshes while a lease does not cover the current need.
const SHORTFALL_INTERVAL: Duration = Duration::from_millis(50);
/// Minimum time between two refreshes, so that quotas that run low together are refreshed together.
const MIN_INTERVAL: Duration = Duration::from_millis(1);
/// Number of consecutive failures of which one is logged.
const WARN_EVERY_FAILURES: u32 = 60;

/// Wakes a sleeping lease refresher. Created before the engine and the refresher that share it.
#[derive(Clone, Default)]
pub struct WakeHandle(Arc<Notify>);

/// Refreshes leases from a ledger until it is closed.
pub struct LeaseRefresher {
    wake_handle: WakeHandle,
    shared: Arc<RefresherState>,
    lease_updates: Arc<Notify>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct RefresherState {
    progress: Mutex<RefreshProgress>,
    progressed: Condvar,
}

#[derive(Default)]
struct RefreshProgress {
    started_count: u64,
    ended_count: u64,
    ready: bool,
    stopping: bool,
    last_error: Option<String>,
}

impl WakeHandle {
    /// Returns the lease mode of an engine that wakes the refresher through this handle.
    pub fn lease_mode(&self) -> LeaseMode {
        let wake_handle = Arc::clone(&self.0);
        LeaseMode::Leased(Arc::new(move || wake_handle.notify_one()))
    }
}

impl LeaseRefresher {
    /// Refreshes the leases of `engine` from `store`, whenever it is woken and at least once a second.
    pub fn start<S: Store>(
        store: S,
        engine: Arc<Engine>,
        wake_handle: WakeHandle,
        now: impl Fn() -> Timestamp + Send + 'static,
    ) -> io::Result<Self> {
        let (shared, lease_updates) = (Arc::new(RefresherState::default()), Arc::new(Notify::new()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = {
            let (wake_handle, shared, lease_updates) =
                (wake_handle.clone(), Arc::clone(&shared), Arc::clone(&lease_updates));
            let refresh = move || runtime.block_on(run(store, &engine, &wake_handle, &shared, &lease_updates, now));
            std::thread::Builder::new().name("ledger".into()).spawn(refresh)?
        };
        Ok(Self { wake_handle, shared, lease_updates, thread: Mutex::new(Some(thread)) })
    }

    /// Returns a handle that is notified after each response of the ledger.
    pub fn lease_updates(&self) -> Arc<Notify> {
        Arc::clone(&self.lease_updates)
    }

    /// Returns true once the ledger has responded without an error.
    pub fn is_ready(&self) -> bool {
        self.shared.progress.lock().ready
    }

    /// Returns the current error of the ledger, if any.
    pub fn last_error(&self) -> Option<String> {
        self.shared.progress.lock().last_error.clone()
    }

    /// Waits until a refresh that starts after this call has ended. Returns false if that takes longer than the
    /// timeout.
    pub fn flush(&self, timeout: Duration) -> bool {
        let mut progress = self.shared.progress.lock();
        let target = progress.started_count + 1;
        self.wake_handle.0.notify_one();
        let waiting = |progress: &mut RefreshProgress| progress.ended_count < target && !progress.stopping;
        !self.shared.progressed.wait_while_for(&mut progress, waiting, timeout).timed_out()
    }

    /// Returns held units that are not taken. No units may be taken afterwards.
    pub fn close(&self) {
        self.shared.progress.lock().stopping = true;
        self.wake_handle.0.notify_one();
        if self.thread.lock().take().is_some_and(|thread| thread.join().is_err()) {
            warn!("Lease thread panicked: held units count as used");
        }
    }
}

impl Drop for LeaseRefresher {
    /// Closes the refresher, also if a later step of the start fails: else its leases would count as lost in a crash.
    fn drop(&mut self) {
        self.close();
    }
}

async fn run<S: Store>(
    mut store: S,
    engine: &Engine,
    wake_handle: &WakeHandle,
    shared: &RefresherState,
    lease_updates: &Notify,
    now: impl Fn() -> Timestamp,
) {
    let mut failures = 0;
    loop {
        let stopping = {
            let mut progress = shared.progress.lock();
            progress.started_count += 1;
            progress.stopping
        };
        let round = if stopping {
            release_all(&mut store, engine, now()).await.map(|()| true)
        } else {
            refresh_once(&mut store, engine, now()).await
        };
        let pause = match &round {
            Ok(true) | Err(_) => REFRESH_INTERVAL,
            Ok(false) => SHORTFALL_INTERVAL,
        };
        match &round {
            Ok(_) if failures > 0 => {
                failures = 0;
                info!("Ledger available again");
            }
            Ok(_) => {}
            Err(error) => {
                if failures % WARN_EVERY_FAILURES == 0 {
                    warn!("Ledger unavailable: {error}. Requests are admitted until the current leases are used up");
                }
                failures += 1;
            }
        }
        {
            let mut progress = shared.progress.lock();
            progress.ended_count = progress.started_count;
            progress.ready |= round.is_ok();
            progress.last_error = match &round {
                Ok(_) => store.last_error(),
                Err(error) => Some(format!("Ledger unavailable: {error}")),
            };
            shared.progressed.notify_all();
            lease_updates.notify_waiters();
        }
        if stopping {
            return;
        }
        let _ = tokio::time::timeout(pause, wake_handle.0.notified()).await;
        tokio::time::sleep(MIN_INTERVAL).await;
    }
}

/// Refreshes all leases in one call. Returns true if each lease covers the current need.
async fn refresh_once<S: Store>(store: &mut S, engine: &Engine, now: Timestamp) -> Result<bool, StoreError> {
    correct(store, engine, now).await?;
    let requests = engine.lease_requests(now);
    if requests.is_empty() {
        return Ok(true);
    }
    match store.lease(&requests, now).await {
        Ok(leases) => {
            engine.apply_leases(&requests, &leases, now);
            Ok(requests.iter().zip(&leases).all(is_satisfied))
        }
        Err(error) => {
            if matches!(error, StoreError::Unreachable(_)) {
                engine.enable_fallback();
            }
            Err(error)
        }
    }
}

async fn release_all<S: Store>(store: &mut S, engine: &Engine, now: Timestamp) -> Result<(), StoreError> {
    correct(store, engine, now).await?;
    store.close(&engine.lease_requests(now), now).await
}

async fn correct<S: Store>(store: &mut S, engine: &Engine, now: Timestamp) -> Result<(), StoreError> {
    for (request, used) in engine.pending_corrections(now) {
        if let Err(error) = store.correct(&request, used, now).await {
            if !matches!(error, StoreError::Refused(_)) {
                engine.requeue_correction(&request);
            }
            return Err(error);
        }
    }
    Ok(())
}

/// Returns false if more units are available than were leased, and they are needed soon.
fn is_satisfied((request, lease): (&LeaseRequest, &Lease)) -> bool {
    let needed = request
        .taken
        .saturating_add(request.urgent)
        .min(request.wanted)
        .min(request.limit.saturating_sub(lease.held_by_others));
    lease.held >= needed
}
