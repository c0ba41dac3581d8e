//! Refreshes range lists: URLs at an interval, files when they change.
//!
//! Lists are fetched one after the other with the validators of the stored copy, at times that differ between
//! instances. No request waits for a fetch. If a fetch fails or its list is rejected, the previous version stays.

use super::fetch::{AllowedAddresses, FetchLimits, FetchOutcome, Fetcher, Validators};
use super::range_cache::{CachedRanges, RangeCache};
use super::range_list::{self, RangeListError};
use super::{OperatorTable, RangeSource};
use foldhash::fast::FixedState;
use ipnet::IpNet;
use std::hash::BuildHasher;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidegate_engine::clock::Clock;
use tidegate_engine::files::{self, FileWatch};
use tidegate_policy::Timestamp;
use tracing::{info, warn};

/// Refreshes all range lists.
pub struct RangeRefresher {
    operators: Arc<OperatorTable>,
    fetcher: Fetcher,
    cache: RangeCache,
    clock: Clock,
    interval: Option<Duration>,
    seed: u64,
    lists: Vec<TrackedSource>,
}

/// A list with the state of its refresh.
struct TrackedSource {
    source: RangeSource,
    /// Monotonic time of the next refresh.
    due_at: Timestamp,
    /// Number of refreshes so far.
    attempts: u64,
    validators: Validators,
    /// Watch of a file, once it was read.
    watch: Option<FileWatch>,
}

/// Reason why a refresh failed.
#[derive(Debug, thiserror::Error)]
enum RefreshError {
    #[error(transparent)]
    Fetch(#[from] super::fetch::FetchError),
    #[error(transparent)]
    InvalidList(#[from] RangeListError),
    #[error(transparent)]
    File(#[from] io::Error),
}

impl RangeRefresher {
    /// Loads the copies in `state_dir` and the files into the table, if they are newer than its lists, and tracks all
    /// lists. `interval` is the time between fetches of a URL; `None` disables fetches. `seed` differs between
    /// instances.
    pub fn new(
        operators: Arc<OperatorTable>,
        fetcher: Fetcher,
        state_dir: &Path,
        interval: Option<Duration>,
        clock: Clock,
        seed: u64,
    ) -> Self {
        let sources = operators.sources();
        let mut refresher =
            Self { operators, fetcher, cache: RangeCache::new(state_dir), clock, interval, seed, lists: Vec::new() };
        refresher.lists = sources.into_iter().map(|source| refresher.track(source)).collect();
        refresher
    }

    /// Refreshes the lists while it is polled.
    pub async fn run(mut self) {
        let mut ticks = tokio::time::interval(CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.refresh_due().await;
        }
    }

    async fn refresh_due(&mut self) {
        let mut lists = std::mem::take(&mut self.lists);
        for list in &mut lists {
            if self.clock.monotonic_now() >= list.due_at {
                self.refresh_one(list).await;
            }
        }
        self.lists = lists;
    }

    fn track(&self, source: RangeSource) -> TrackedSource {
        let mut list = TrackedSource {
            due_at: self.clock.monotonic_now(),
            attempts: 0,
            validators: Validators::default(),
            watch: None,
            source,
        };
        match list.source.clone() {
            RangeSource::Url(url) => {
                let age = self.load_cached(&url, &mut list);
                let is_loaded = !self.operators.list(&list.source).is_empty();
                // A process that restarts often does not fetch at each start, unless the list is new in the config.
                if is_loaded || !self.operators.is_overridden(&list.source) {
                    let remaining = self.interval.unwrap_or_default().saturating_sub(age.unwrap_or(Duration::MAX));
                    list.due_at += remaining.max(FIRST_FETCH_SPREAD.mul_f64(self.random(&list)));
                }
            }
            RangeSource::File(path) => {
                list.due_at += FILE_POLL_INTERVAL;
                // Blocking is allowed at startup.
                self.apply_read(&mut list, read_if_changed(FileWatch::new(&path, MAX_BYTES)));
            }
            RangeSource::Network(_) => {}
        }
        list
    }

    /// Loads the stored copy of a list, if it is not older than the snapshot. Returns its age.
    fn load_cached(&self, url: &str, list: &mut TrackedSource) -> Option<Duration> {
        let copy = self.cache.load(url).unwrap_or_else(|error| {
            warn!("Ignoring the stored copy of {}: {error}", list.source);
            None
        })?;
        let fetched = Timestamp::from_seconds(copy.fetched_at);
        let is_newer = self.operators.list(&list.source).is_empty() || fetched >= self.operators.snapshot_time();
        is_newer.then(|| {
            self.operators.replace(list.source.clone(), copy.networks);
            list.validators = copy.validators;
            self.clock.now().saturating_duration_since(fetched)
        })
    }

    async fn refresh_one(&self, list: &mut TrackedSource) {
        list.attempts += 1;
        let now = self.clock.monotonic_now();
        match (list.source.clone(), self.interval) {
            (RangeSource::Url(url), Some(interval)) => {
                let fetched = self.fetch(&url, list).await;
                let delay =
                    if fetched.is_ok() { interval } else { (interval / RETRIES_PER_INTERVAL).max(CHECK_INTERVAL) };
                list.due_at = now + delay.mul_f64(0.9 + 0.2 * self.random(list));
                self.record_result(list, fetched);
            }
            (RangeSource::File(path), _) => {
                list.due_at = now + FILE_POLL_INTERVAL;
                let watch = list.watch.take().unwrap_or_else(|| FileWatch::new(&path, MAX_BYTES));
                if let Ok(read) = tokio::task::spawn_blocking(move || read_if_changed(watch)).await {
                    self.apply_read(list, read);
                }
            }
            (RangeSource::Url(_), None) | (RangeSource::Network(_), _) => list.due_at = Timestamp(u64::MAX),
        }
    }

    async fn fetch(&self, url: &str, list: &mut TrackedSource) -> Result<(), RefreshError> {
        let before = self.operators.list(&list.source);
        let networks = match self.fetcher.fetch(url, &FETCH_LIMITS, &list.validators).await? {
            FetchOutcome::NotModified => before,
            FetchOutcome::Document(document) => {
                let networks = range_list::check_change(&before, range_list::parse(&document.body)?)?;
                list.validators = document.validators;
                if networks != before {
                    info!("Range list {} changed: {} networks", list.source, networks.len());
                    self.operators.replace(list.source.clone(), networks.clone());
                }
                networks
            }
        };
        let copy =
            CachedRanges { fetched_at: self.clock.now().seconds(), validators: list.validators.clone(), networks };
        if let Err(error) = self.cache.store(url, &copy) {
            warn!(%error, "Cannot store the copy of {}: {error}", list.source);
        }
        Ok(())
    }

    /// Installs the networks of a file, if they were read. A file of the administrator may shrink.
    fn apply_read(&self, list: &mut TrackedSource, (watch, read): FileRead) {
        list.watch = Some(watch);
        let Some(read) = read else { return };
        let installed = read.map(|networks| {
            info!("Loaded {} networks from {}", networks.len(), list.source);
            self.operators.replace(list.source.clone(), networks);
        });
        self.record_result(list, installed);
    }

    /// Logs a new error of a list once, and its end.
    fn record_result(&self, list: &TrackedSource, result: Result<(), RefreshError>) {
        let error = result.err().map(|error| error.to_string());
        let before = self.operators.set_error(&list.source, error.clone());
        match error {
            Some(error) if before.as_ref() != Some(&error) => {
                warn!("Cannot update {}: {error}; keeping the previous version", list.source);
            }
            None if before.is_some() => info!("{} is valid again", list.source),
            _ => {}
        }
    }

    /// Returns a random number in [0, 1) that differs between instances, lists and refreshes.
    fn random(&self, list: &TrackedSource) -> f64 {
        let hash = FixedState::with_seed(self.seed).hash_one((&list.source.to_string(), list.attempts));
        (hash >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Returns the error of a file as a network list, or `None` if it is valid.
pub fn validate_file(file: &Path) -> Option<String> {
    parse(files::read(file, MAX_BYTES)).err().map(|error| error.to_string())
}

/// A watched file with its networks, if it has changed.
type FileRead = (FileWatch, Option<Result<Vec<IpNet>, RefreshError>>);

fn read_if_changed(mut watch: FileWatch) -> FileRead {
    let networks = watch.read_if_changed().map(parse);
    (watch, networks)
}

fn parse(content: io::Result<Vec<u8>>) -> Result<Vec<IpNet>, RefreshError> {
    Ok(range_list::parse(&content?)?)
}

/// Interval between checks for due lists.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Interval between checks of files.
const FILE_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Period after the start in which the built-in lists are fetched for the first time, each at its own time.
const FIRST_FETCH_SPREAD: Duration = Duration::from_secs(600);

/// Number of retries per interval after a failure: hourly for a daily interval.
const RETRIES_PER_INTERVAL: u32 = 24;

/// Maximum size of a list. The longest known list has 64 KiB.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// The URLs come from the built-in table or the config, and may name a server of the administrator.
const FETCH_LIMITS: FetchLimits = FetchLimits {
    max_bytes: MAX_BYTES,
    timeout: Duration::from_secs(30),
    max_redirects: 3,
    allowed_addresses: AllowedAddresses::Any,
};

#[cfg(test)]
mod tests;
