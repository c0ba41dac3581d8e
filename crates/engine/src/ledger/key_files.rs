//! The files of usage by key of all quotas, in the state directory.

use super::OpenError;
use crate::Engine;
use crate::quota::QuotaCounter;
use std::path::Path;
use tidegate_policy::quota::Quota;
use tracing::warn;

impl Engine {
    /// Records usage by key in a state directory from now on, and continues with what is recorded there.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be written.
    pub fn open_key_files(&self, dir: &Path) -> Result<(), OpenError> {
        let counters = self.quotas.lock();
        *self.key_files.lock() = Some(dir.to_owned());
        counters.iter().filter(|counter| counter.counts_keys()).try_for_each(|counter| counter.open_key_file(dir))
    }

    /// Records usage by key no more: another process does.
    pub fn close_key_files(&self) {
        let counters = self.quotas.lock();
        *self.key_files.lock() = None;
        counters.iter().for_each(|counter| counter.close_key_file());
    }

    /// Begins to record the usage by key of a quota that a reload has added or that counts keys since then.
    pub(crate) fn record_keys(&self, counter: &QuotaCounter, quota: &Quota) {
        // The ids of first-use windows start at 0 in each process.
        let counts_keys =
            (quota.budget.is_some() || quota.client_limit.is_some()) && quota.window.first_use_length().is_none();
        let begins = counts_keys && !counter.set_counts_keys();
        if let Some(dir) = self.key_files.lock().as_ref().filter(|_| begins)
            && let Err(error) = counter.open_key_file(dir)
        {
            warn!("The usage of keys of {} is lost at the next start: {error}", quota.name);
        }
    }
}
