//! The files of usage by key of all quotas, in the state directory, and the thread that syncs them.

use super::OpenError;
use crate::Engine;
use crate::quota::QuotaCounter;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tidegate_policy::Timestamp;
use tidegate_policy::quota::Quota;
use tracing::warn;

/// Time between two syncs.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Number of consecutive failures of which one is logged.
const WARN_EVERY_FAILURES: u32 = 60;

/// Files of usage by key in a state directory.
pub(crate) struct KeyFiles {
    dir: PathBuf,
    /// Ends the thread when it is dropped.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl KeyFiles {
    fn open(
        dir: &Path,
        counters: Weak<Mutex<Vec<Arc<QuotaCounter>>>>,
        now: impl Fn() -> Timestamp + Send + 'static,
    ) -> Result<Self, OpenError> {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("key-files".into())
            .spawn(move || sync_until(&stopped, &counters, now))
            .map_err(|source| OpenError::Directory { path: dir.to_owned(), source })?;
        Ok(Self { dir: dir.to_owned(), stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for KeyFiles {
    /// Syncs once more.
    fn drop(&mut self) {
        self.stop = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            warn!("The thread that syncs the usage of keys has panicked");
        }
    }
}

/// Syncs the files of all quotas every second, and at the end.
fn sync_until(
    stopped: &mpsc::Receiver<()>,
    counters: &Weak<Mutex<Vec<Arc<QuotaCounter>>>>,
    now: impl Fn() -> Timestamp,
) {
    let mut failures = 0;
    loop {
        let is_last = stopped.recv_timeout(SYNC_INTERVAL) == Err(RecvTimeoutError::Disconnected);
        let Some(counters) = counters.upgrade() else { return };
        let counters = counters.lock().clone();
        let failed = counters.iter().filter_map(|counter| Some((counter, counter.sync_key_file(&now).err()?))).last();
        match failed {
            Some((counter, error)) => {
                if failures % WARN_EVERY_FAILURES == 0 {
                    let name = counter.name();
                    warn!("The usage of keys of {name} cannot be synced; requests that it limits are refused: {error}");
                }
                failures += 1;
            }
            None => failures = 0,
        }
        if is_last {
            return;
        }
    }
}

impl Engine {
    /// Records usage by key in a state directory from now on, and continues with what is recorded there. `now` returns the time.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be written.
    pub fn open_key_files(&self, dir: &Path, now: impl Fn() -> Timestamp + Send + 'static) -> Result<(), OpenError> {
        let counters = self.quotas.lock();
        *self.key_files.lock() = Some(KeyFiles::open(dir, Arc::downgrade(&self.quotas), now)?);
        counters.iter().filter(|counter| counter.counts_keys()).try_for_each(|counter| counter.open_key_file(dir))
    }

    /// Records usage by key no more: another process does.
    pub fn close_key_files(&self) {
        // Dropped without a lock, because the thread syncs once more.
        let files = self.key_files.lock().take();
        drop(files);
        self.quotas.lock().iter().for_each(|counter| counter.close_key_file());
    }

    /// Begins to record the usage by key of a quota that a reload has added or that counts keys since then.
    pub(crate) fn record_keys(&self, counter: &QuotaCounter, quota: &Quota) {
        // The ids of first-use windows start at 0 in each process.
        let counts_keys =
            (quota.budget.is_some() || quota.client_limit.is_some()) && quota.window.first_use_length().is_none();
        let begins = counts_keys && !counter.set_counts_keys();
        if let Some(files) = self.key_files.lock().as_ref().filter(|_| begins)
            && let Err(error) = counter.open_key_file(&files.dir)
        {
            warn!("The usage of keys of {} is lost at the next start: {error}", quota.name);
        }
    }
}
