//! The one loop between the engine and a ledger, on a thread of its own: no request ever waits for it.

use super::store::{Lease, LeaseRequest, Store, StoreError};
use crate::engine::{Engine, LeaseMode};
use crate::policy::Timestamp;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::Notify;
use tracing::{info, warn};

/// Accounts are looked after at least this often.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// The same where somebody has less than they need now.
const SHORTFALL_INTERVAL: Duration = Duration::from_millis(50);
/// And at most this often, so that accounts that run low together are served together.
const MIN_INTERVAL: Duration = Duration::from_millis(1);
/// So many troubles in a row are told once.
const WARN_EVERY_FAILURES: u32 = 60;

/// Wakes a keeper that sleeps. Made before the engine that rings it and the keeper that hears it.
#[derive(Clone, Default)]
pub struct WakeHandle(Arc<Notify>);

/// Keeps accounts supplied from a ledger until it is closed.
pub struct LeaseRefresher {
    wake_handle: WakeHandle,
    shared: Arc<RefresherState>,
    answers: Arc<Notify>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct RefresherState {
    progress: Mutex<Progress>,
    progressed: Condvar,
}

#[derive(Default)]
struct Progress {
    begun: u64,
    ended: u64,
    ready: bool,
    stopping: bool,
    last_error: Option<String>,
}

impl WakeHandle {
    /// The supply of an engine whose accounts ring this bell.
    pub fn lease_mode(&self) -> LeaseMode {
        let wake_handle = Arc::clone(&self.0);
        LeaseMode::Leased(Arc::new(move || wake_handle.notify_one()))
    }
}

impl LeaseRefresher {
    /// Supplies the accounts of `engine` from `store`, whenever `bell` rings and at least once a second.
    pub fn start<S: Store>(
        store: S,
        engine: Arc<Engine>,
        wake_handle: WakeHandle,
        now: impl Fn() -> Timestamp + Send + 'static,
    ) -> io::Result<Self> {
        let (shared, answers) = (Arc::new(RefresherState::default()), Arc::new(Notify::new()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = {
            let (bell, shared, answers) = (wake_handle.clone(), Arc::clone(&shared), Arc::clone(&answers));
            let keep = move || runtime.block_on(run(store, &engine, &bell, &shared, &answers, now));
            std::thread::Builder::new().name("ledger".into()).spawn(keep)?
        };
        Ok(Self { wake_handle, shared, answers, thread: Mutex::new(Some(thread)) })
    }

    /// Tells everybody who waits for it that the ledger has answered.
    pub fn lease_updates(&self) -> Arc<Notify> {
        Arc::clone(&self.answers)
    }

    /// True once the ledger has answered for the first time.
    pub fn is_ready(&self) -> bool {
        self.shared.progress.lock().ready
    }

    /// What is wrong with the ledger, if anything is.
    pub fn last_error(&self) -> Option<String> {
        self.shared.progress.lock().last_error.clone()
    }

    /// Waits until the ledger has been asked about everything that is so now; false if that takes longer than
    /// `patience`.
    pub fn flush(&self, patience: Duration) -> bool {
        let mut progress = self.shared.progress.lock();
        let target = progress.begun + 1;
        self.wake_handle.0.notify_one();
        let waiting = |progress: &mut Progress| progress.ended < target && !progress.stopping;
        !self.shared.progressed.wait_while_for(&mut progress, waiting, patience).timed_out()
    }

    /// Gives back what is held and not taken. Nothing may be taken any more.
    pub fn close(&self) {
        self.shared.progress.lock().stopping = true;
        self.wake_handle.0.notify_one();
        if self.thread.lock().take().is_some_and(|thread| thread.join().is_err()) {
            warn!("The ledger's thread ended badly: what it held counts as spent");
        }
    }
}

async fn run<S: Store>(
    mut store: S,
    engine: &Engine,
    wake_handle: &WakeHandle,
    shared: &RefresherState,
    answers: &Notify,
    now: impl Fn() -> Timestamp,
) {
    let mut troubles = 0;
    loop {
        let stopping = {
            let mut progress = shared.progress.lock();
            progress.begun += 1;
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
            Ok(_) if troubles > 0 => {
                troubles = 0;
                info!("The ledger answers again");
            }
            Ok(_) => {}
            Err(error) => {
                if troubles % WARN_EVERY_FAILURES == 0 {
                    warn!(
                        "The ledger {error}. What is leased may still be spent; then requests that cost something are refused"
                    );
                }
                troubles += 1;
            }
        }
        {
            let mut progress = shared.progress.lock();
            progress.ended = progress.begun;
            progress.ready |= round.is_ok();
            progress.last_error = match &round {
                Ok(_) => store.last_error(),
                Err(error) => Some(format!("The ledger {error}")),
            };
            shared.progressed.notify_all();
            answers.notify_waiters();
        }
        if stopping {
            return;
        }
        let _ = tokio::time::timeout(pause, wake_handle.0.notified()).await;
        tokio::time::sleep(MIN_INTERVAL).await;
    }
}

/// Asks for everybody at once; true when everybody has what they need now.
async fn refresh_once<S: Store>(store: &mut S, engine: &Engine, now: Timestamp) -> Result<bool, StoreError> {
    correct(store, engine, now).await?;
    let asks = engine.lease_requests(now);
    if asks.is_empty() {
        return Ok(true);
    }
    match store.lease(&asks, now).await {
        Ok(leases) => {
            engine.apply_leases(&asks, &leases, now);
            Ok(asks.iter().zip(&leases).all(is_satisfied))
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
    for (ask, used) in engine.pending_corrections(now) {
        if let Err(error) = store.correct(&ask, used, now).await {
            if !matches!(error, StoreError::Refused(_)) {
                engine.requeue_correction(&ask);
            }
            return Err(error);
        }
    }
    Ok(())
}

/// False when there would be more to have than was handed out, and it is needed soon.
fn is_satisfied((ask, lease): (&LeaseRequest, &Lease)) -> bool {
    let needed =
        ask.taken.saturating_add(ask.urgent).min(ask.wanted).min(ask.limit.saturating_sub(lease.held_by_others));
    lease.held >= needed
}
