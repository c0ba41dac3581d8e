//! The files of usage by key of all quotas, in the state directory, and the thread that syncs them.

use super::OpenError;
use super::key_file::{self, KeyFile, Kind};
use crate::Engine;
use crate::quota::QuotaCounter;
use parking_lot::Mutex;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::quota::Quota;
use tidegate_policy::window::Span;
use tidegate_policy::{Timestamp, Units};
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
                    warn_unrecorded(counter, &error);
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

fn warn_unrecorded(counter: &QuotaCounter, error: &dyn Display) {
    let name = counter.name();
    let effect = match counter.has_budgets() {
        true => "requests that it limits are refused",
        false => "the shares of clients begin anew at the next start",
    };
    warn!("The usage of keys of {name} cannot be recorded, and {effect}: {error}");
}

/// Units of a key that another process has settled after it gave the usage to this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateKeyCharge {
    /// Name of the quota.
    pub quota: String,
    /// True if the quota has budgets, so that the key does not have a share of its limit.
    pub has_budgets: bool,
    /// Id of the window.
    pub window: u64,
    /// The key, by [`ClientKey::to_u64`].
    pub key: u64,
    /// Reserved units that were not charged.
    pub released: Units,
    /// Units charged beyond reservations.
    pub charged: Units,
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

    /// Returns what was settled for keys since the last call, once another process records it.
    pub fn take_late_key_charges(&self) -> Vec<LateKeyCharge> {
        let counters = self.quotas.lock().clone();
        let late = |counter: &Arc<QuotaCounter>| {
            let (quota, has_budgets) = (counter.name().to_owned(), counter.has_budgets());
            let charge = move |((window, key), (released, charged))| LateKeyCharge {
                quota: quota.clone(),
                has_budgets,
                window,
                key,
                released,
                charged,
            };
            counter.take_late_of_keys().map(charge)
        };
        counters.iter().flat_map(late).collect()
    }

    /// Settles what another process has settled for a key after it gave the usage to this one.
    pub fn charge_key_late(&self, late: &LateKeyCharge, now: Timestamp) {
        let counters = self.quotas.lock().clone();
        let is_same = |it: &&Arc<QuotaCounter>| it.name() == late.quota && it.has_budgets() == late.has_budgets;
        if let Some(counter) = counters.iter().find(is_same) {
            counter.settle_late(late.window, ClientKey::from_u64(late.key), late.released, late.charged, now);
        }
    }

    /// Begins to record the usage by key of a quota that a reload has added or that counts keys since then.
    pub(crate) fn record_keys(&self, counter: &QuotaCounter, quota: &Quota) {
        // The ids of the first-use windows of a quota start at 0 in each process.
        let has_lasting_windows = quota.budget.is_some() || quota.window.first_use_length().is_none();
        let counts_keys = (quota.budget.is_some() || quota.client_limit.is_some())
            && has_lasting_windows
            && !counter.has_key_leases();
        let begins = counts_keys && !counter.set_counts_keys();
        if let Some(files) = self.key_files.lock().as_ref().filter(|_| begins)
            && let Err(error) = counter.open_key_file(&files.dir)
        {
            warn_unrecorded(counter, &error);
        }
    }
}

impl QuotaCounter {
    /// Continues with the usage by key in a state directory, and records it there. After an error, nothing is recorded, and
    /// [`Self::sync_key_file`] tries again.
    pub(crate) fn open_key_file(&self, dir: &Path) -> Result<(), OpenError> {
        let _creating = self.key_file_lock.lock();
        self.open_locked_key_file(dir).map_err(|source| OpenError::Directory { path: dir.to_owned(), source })
    }

    fn open_locked_key_file(&self, dir: &Path) -> io::Result<()> {
        let kind = if self.has_budgets() { Kind::Budgets } else { Kind::Shares };
        let path = key_file::path(dir, kind, &self.name);
        let (window, current, now) = {
            let state = self.state.lock();
            let current = Span { start: Timestamp(state.window_id()), end: state.resets_at() };
            (state.window().clone(), current, state.latest_time())
        };
        let (form, max_keys) = {
            let keyed_usage = self.keyed_usage.lock();
            (keyed_usage.form(), keyed_usage.max_keys())
        };
        let opened = key_file::open(&path, max_keys, form, &window, current, now, |problem| warn!("{problem}"));
        let mut keyed_usage = self.keyed_usage.lock();
        match opened {
            Ok((file, recorded)) => keyed_usage.open_file(file, recorded, now),
            Err(error) => {
                keyed_usage.open_later(dir.to_owned());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Syncs the usage by key that is written, and holds no lock meanwhile that requests wait for. Replaces the file after a
    /// failure, and opens one that could not be opened.
    pub(crate) fn sync_key_file(&self, now: &impl Fn() -> Timestamp) -> io::Result<()> {
        let (to_open, file) = {
            let keyed_usage = self.keyed_usage.lock();
            (keyed_usage.dir_to_open().cloned(), keyed_usage.file_to_sync())
        };
        if let Some(dir) = to_open {
            let _creating = self.key_file_lock.lock();
            return self.open_locked_key_file(&dir);
        }
        let Some(file) = file else { return Ok(()) };
        file.sync(now).or_else(|error| {
            let _creating = self.key_file_lock.lock();
            let Some((path, form, records)) = self.keyed_usage.lock().records_to_replace(&file) else {
                return Ok(());
            };
            let file = KeyFile::create(&path, form, records.into_iter()).map_err(|_| error)?;
            self.keyed_usage.lock().replace_file(file);
            Ok(())
        })
    }
}
