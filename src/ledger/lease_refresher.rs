//! The one loop between the engine and a ledger, on a thread of its own: no request ever waits for it.

use super::store::{LeaseRequest, Lease, Store, StoreError};
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
const USUAL_PAUSE: Duration = Duration::from_secs(1);
/// The same where somebody has less than they need now.
const SHORT_PAUSE: Duration = Duration::from_millis(50);
/// And at most this often, so that accounts that run low together are served together.
const LEAST_PAUSE: Duration = Duration::from_millis(1);
/// So many troubles in a row are told once.
const COMPLAIN_EVERY: u32 = 60;

/// Wakes a keeper that sleeps. Made before the engine that rings it and the keeper that hears it.
#[derive(Clone, Default)]
pub struct WakeHandle(Arc<Notify>);

/// Keeps accounts supplied from a ledger until it is closed.
pub struct LeaseRefresher {
    bell: WakeHandle,
    shared: Arc<RefresherState>,
    answers: Arc<Notify>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct RefresherState {
    progress: Mutex<Progress>,
    went_on: Condvar,
}

#[derive(Default)]
struct Progress {
    begun: u64,
    ended: u64,
    ready: bool,
    stopping: bool,
    trouble: Option<String>,
}

impl WakeHandle {
    /// The supply of an engine whose accounts ring this bell.
    pub fn supply(&self) -> LeaseMode {
        let bell = Arc::clone(&self.0);
        LeaseMode::Leased(Arc::new(move || bell.notify_one()))
    }
}

impl LeaseRefresher {
    /// Supplies the accounts of `engine` from `store`, whenever `bell` rings and at least once a second.
    pub fn start<S: Store>(
        store: S,
        engine: Arc<Engine>,
        bell: WakeHandle,
        now: impl Fn() -> Timestamp + Send + 'static,
    ) -> io::Result<Self> {
        let (shared, answers) = (Arc::new(RefresherState::default()), Arc::new(Notify::new()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = {
            let (bell, shared, answers) = (bell.clone(), Arc::clone(&shared), Arc::clone(&answers));
            let keep = move || runtime.block_on(keep(store, &engine, &bell, &shared, &answers, now));
            std::thread::Builder::new().name("ledger".into()).spawn(keep)?
        };
        Ok(Self { bell, shared, answers, thread: Mutex::new(Some(thread)) })
    }

    /// Tells everybody who waits for it that the ledger has answered.
    pub fn answers(&self) -> Arc<Notify> {
        Arc::clone(&self.answers)
    }

    /// True once the ledger has answered for the first time.
    pub fn is_ready(&self) -> bool {
        self.shared.progress.lock().ready
    }

    /// What is wrong with the ledger, if anything is.
    pub fn trouble(&self) -> Option<String> {
        self.shared.progress.lock().trouble.clone()
    }

    /// Waits until the ledger has been asked about everything that is so now; false if that takes longer than
    /// `patience`.
    pub fn catch_up(&self, patience: Duration) -> bool {
        let mut progress = self.shared.progress.lock();
        let target = progress.begun + 1;
        self.bell.0.notify_one();
        let waiting = |progress: &mut Progress| progress.ended < target && !progress.stopping;
        !self.shared.went_on.wait_while_for(&mut progress, waiting, patience).timed_out()
    }

    /// Gives back what is held and not taken. Nothing may be taken any more.
    pub fn close(&self) {
        self.shared.progress.lock().stopping = true;
        self.bell.0.notify_one();
        if self.thread.lock().take().is_some_and(|thread| thread.join().is_err()) {
            warn!("The ledger's thread ended badly: what it held counts as spent");
        }
    }
}

async fn keep<S: Store>(
    mut store: S,
    engine: &Engine,
    bell: &WakeHandle,
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
            last_round(&mut store, engine, now()).await.map(|()| true)
        } else {
            round(&mut store, engine, now()).await
        };
        let pause = match &round {
            Ok(true) | Err(_) => USUAL_PAUSE,
            Ok(false) => SHORT_PAUSE,
        };
        match &round {
            Ok(_) if troubles > 0 => {
                troubles = 0;
                info!("The ledger answers again");
            }
            Ok(_) => {}
            Err(error) => {
                if troubles % COMPLAIN_EVERY == 0 {
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
            progress.trouble = match &round {
                Ok(_) => store.trouble(),
                Err(error) => Some(format!("The ledger {error}")),
            };
            shared.went_on.notify_all();
            answers.notify_waiters();
        }
        if stopping {
            return;
        }
        let _ = tokio::time::timeout(pause, bell.0.notified()).await;
        tokio::time::sleep(LEAST_PAUSE).await;
    }
}

/// Asks for everybody at once; true when everybody has what they need now.
async fn round<S: Store>(store: &mut S, engine: &Engine, now: Timestamp) -> Result<bool, StoreError> {
    correct(store, engine, now).await?;
    let asks = engine.asks(now);
    if asks.is_empty() {
        return Ok(true);
    }
    match store.lease(&asks, now).await {
        Ok(leases) => {
            engine.supply(&asks, &leases, now);
            Ok(asks.iter().zip(&leases).all(is_enough))
        }
        Err(error) => {
            if matches!(error, StoreError::Unreachable(_)) {
                engine.cut_off();
            }
            Err(error)
        }
    }
}

async fn last_round<S: Store>(store: &mut S, engine: &Engine, now: Timestamp) -> Result<(), StoreError> {
    correct(store, engine, now).await?;
    store.close(&engine.asks(now), now).await
}

async fn correct<S: Store>(store: &mut S, engine: &Engine, now: Timestamp) -> Result<(), StoreError> {
    for (ask, used) in engine.corrections(now) {
        if let Err(error) = store.correct(&ask, used, now).await {
            if !matches!(error, StoreError::Refused(_)) {
                engine.put_back(&ask);
            }
            return Err(error);
        }
    }
    Ok(())
}

/// False when there would be more to have than was handed out, and it is needed soon.
fn is_enough((ask, lease): (&LeaseRequest, &Lease)) -> bool {
    let needed = ask.taken.plus(ask.soon).min(ask.wanted).min(ask.limit.minus(lease.elsewhere));
    lease.held >= needed
}
