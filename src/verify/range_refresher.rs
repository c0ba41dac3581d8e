//! Keeps the lists of addresses up to date: fetched now and then, files as soon as they change.
//!
//! A list is fetched with the validators of the copy that is here, at a time that differs from gate to gate, one after
//! the other: nobody waits for it. What cannot be fetched or believed leaves what is known.

use super::fetch::{AllowedAddresses, FetchLimits, Fetched, Fetcher, Validators};
use super::range_cache::{CachedRanges, RangeCache};
use super::range_list::{self, RangeListError};
use super::{OperatorTable, RangeSource};
use crate::bounded_file;
use crate::clock::Clock;
use crate::policy::Timestamp;
use foldhash::fast::FixedState;
use ipnet::IpNet;
use std::fs::Metadata;
use std::hash::BuildHasher;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tracing::{info, warn};

/// All lists that are looked after.
pub struct RangeRefresher {
    operators: Arc<OperatorTable>,
    fetcher: Fetcher,
    copies: RangeCache,
    clock: Clock,
    every: Option<Duration>,
    seed: u64,
    lists: Vec<TrackedSource>,
}

/// One of them.
struct TrackedSource {
    source: RangeSource,
    /// When it is looked at next, on the scale that nobody can set.
    due: Timestamp,
    /// How often it has been looked at.
    attempts: u64,
    validators: Validators,
    /// What a file looked like when it was read: its length, and when it was written.
    stamp: Option<Stamp>,
}

type Stamp = (u64, Option<SystemTime>);

/// Why a list stays as it is.
#[derive(Debug, thiserror::Error)]
enum RefreshError {
    #[error(transparent)]
    Fetch(#[from] super::fetch::FetchError),
    #[error(transparent)]
    Unusable(#[from] RangeListError),
    #[error(transparent)]
    File(#[from] io::Error),
}

impl RangeRefresher {
    /// Puts the copies in `state_dir` and the files into the table, as far as they are newer than what it has, and looks
    /// after them from then on. URLs are fetched `every` so often, if at all. `seed` is a number that no other gate has.
    pub fn new(
        operators: Arc<OperatorTable>,
        fetcher: Fetcher,
        state_dir: &Path,
        every: Option<Duration>,
        clock: Clock,
        seed: u64,
    ) -> Self {
        let sources = operators.sources();
        let mut refresh =
            Self { operators, fetcher, copies: RangeCache::new(state_dir), clock, every, seed, lists: Vec::new() };
        refresh.lists = sources.into_iter().map(|source| refresh.track(source)).collect();
        refresh
    }

    /// Looks after the lists for as long as it is polled.
    pub async fn run(mut self) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.refresh_due().await;
        }
    }

    async fn refresh_due(&mut self) {
        let mut lists = std::mem::take(&mut self.lists);
        for list in &mut lists {
            if self.clock.monotonic_now() >= list.due {
                self.refresh_one(list).await;
            }
        }
        self.lists = lists;
    }

    fn track(&self, source: RangeSource) -> TrackedSource {
        let mut list = TrackedSource {
            due: self.clock.monotonic_now(),
            attempts: 0,
            validators: Validators::default(),
            stamp: None,
            source,
        };
        match list.source.clone() {
            RangeSource::Url(url) => {
                let age = self.load_cached(&url, &mut list);
                let known = !self.operators.list(&list.source).is_empty();
                // A gate that is started over and over does not ask each time; what its operator has just added, it does.
                if known || !self.operators.is_overridden(&list.source) {
                    let rest = self.every.unwrap_or_default().saturating_sub(age.unwrap_or(Duration::MAX));
                    list.due += rest.max(FIRST_FETCH_SPREAD.mul_f64(self.random(&list)));
                }
            }
            RangeSource::File(path) => {
                let read = self.read(&path, &mut list);
                self.record_result(&list, read);
            }
            RangeSource::Network(_) => {}
        }
        list
    }

    /// Takes the copy of a list, if it is not older than the snapshot; returns its age.
    fn load_cached(&self, url: &str, list: &mut TrackedSource) -> Option<Duration> {
        let copy = self.copies.load(url).unwrap_or_else(|wrong| {
            warn!("The copy of {} is not used: {wrong}", list.source);
            None
        })?;
        let fetched = Timestamp::from_seconds(copy.fetched);
        let newer = self.operators.list(&list.source).is_empty() || fetched >= self.operators.snapshot_time();
        newer.then(|| {
            self.operators.replace(list.source.clone(), copy.networks);
            list.validators = copy.validators;
            self.clock.now().saturating_duration_since(fetched)
        })
    }

    async fn refresh_one(&self, list: &mut TrackedSource) {
        list.attempts += 1;
        let now = self.clock.monotonic_now();
        match (list.source.clone(), self.every) {
            (RangeSource::Url(url), Some(every)) => {
                let fetched = self.fetch(&url, list).await;
                let pause = if fetched.is_ok() { every } else { (every / RETRIES_PER_INTERVAL).max(TICK) };
                list.due = now + pause.mul_f64(0.9 + 0.2 * self.random(list));
                self.record_result(list, fetched);
            }
            (RangeSource::File(path), _) => {
                list.due = now + FILE_POLL_INTERVAL;
                if let Some(read) = self.read_if_changed(&path, list).await {
                    self.record_result(list, read);
                }
            }
            (RangeSource::Url(_), None) | (RangeSource::Network(_), _) => list.due = Timestamp(u64::MAX),
        }
    }

    async fn fetch(&self, url: &str, list: &mut TrackedSource) -> Result<(), RefreshError> {
        let before = self.operators.list(&list.source);
        let networks = match self.fetcher.fetch(url, &FETCH_LIMITS, &list.validators).await? {
            Fetched::Unchanged => before,
            Fetched::Document(document) => {
                let networks = range_list::check_change(&before, range_list::parse(&document.body)?)?;
                list.validators = document.validators;
                if networks != before {
                    info!("{} has changed, networks: {}", list.source, networks.len());
                    self.operators.replace(list.source.clone(), networks.clone());
                }
                networks
            }
        };
        let copy = CachedRanges { fetched: self.clock.now().seconds(), validators: list.validators.clone(), networks };
        if let Err(error) = self.copies.store(url, &copy) {
            warn!(%error, "The copy of {} cannot be kept: {error}", list.source);
        }
        Ok(())
    }

    /// Reads a file before anybody can be kept waiting by it.
    fn read(&self, path: &Path, list: &mut TrackedSource) -> Result<(), RefreshError> {
        list.stamp = Some(stamp(&std::fs::metadata(path)?));
        self.install(&list.source, networks_in(path)?);
        Ok(())
    }

    /// Reads a file again, if it is not as it was; nothing otherwise.
    async fn read_if_changed(&self, path: &Path, list: &mut TrackedSource) -> Option<Result<(), RefreshError>> {
        let looked = tokio::fs::metadata(path).await;
        let before = std::mem::replace(&mut list.stamp, looked.as_ref().ok().map(stamp));
        match looked {
            Ok(_) if list.stamp == before => None,
            Ok(_) => Some(self.reload_file(path, list).await),
            Err(error) => Some(Err(error.into())),
        }
    }

    async fn reload_file(&self, path: &Path, list: &TrackedSource) -> Result<(), RefreshError> {
        let path = path.to_owned();
        let read = tokio::task::spawn_blocking(move || networks_in(&path));
        self.install(&list.source, read.await.map_err(io::Error::other)??);
        Ok(())
    }

    /// A file is its owner's own word: it may shrink.
    fn install(&self, source: &RangeSource, networks: Vec<IpNet>) {
        info!("{source} is taken over, networks: {}", networks.len());
        self.operators.replace(source.clone(), networks);
    }

    /// Tells what is wrong with a list, once, and that it is over.
    fn record_result(&self, list: &TrackedSource, looked: Result<(), RefreshError>) {
        let trouble = looked.err().map(|trouble| trouble.to_string());
        let before = self.operators.set_error(&list.source, trouble.clone());
        match trouble {
            Some(trouble) if before.as_ref() != Some(&trouble) => {
                warn!("{} is not taken over, what was known of it stays: {trouble}", list.source);
            }
            None if before.is_some() => info!("{} is all right again", list.source),
            _ => {}
        }
    }

    /// A number from 0 to 1 that differs from gate to gate, list to list, look to look.
    fn random(&self, list: &TrackedSource) -> f64 {
        let drawn = FixedState::with_seed(self.seed).hash_one((&list.source.to_string(), list.attempts));
        (drawn >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Says what keeps a file from being taken over as a list of networks, if anything does.
pub fn validate_file(file: &Path) -> Option<String> {
    networks_in(file).err().map(|trouble| trouble.to_string())
}

fn networks_in(file: &Path) -> Result<Vec<IpNet>, RefreshError> {
    Ok(range_list::parse(&bounded_file::read(file, MAX_BYTES)?)?)
}

fn stamp(metadata: &Metadata) -> Stamp {
    (metadata.len(), metadata.modified().ok())
}

/// How often it is looked whether anything is due.
const TICK: Duration = Duration::from_secs(1);

/// How often files are looked at; nobody waits for a file longer.
const FILE_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Built-in lists are fetched for the first time within this time from the start, each at its own.
const FIRST_FETCH_SPREAD: Duration = Duration::from_secs(600);

/// A list that failed is tried again so often in the time of one turn: hourly, where it is fetched daily.
const RETRIES_PER_INTERVAL: u32 = 24;

/// The longest list that is known has 64 KiB.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// The URLs are of the table or of the operator of the site, who may keep a server of their own.
const FETCH_LIMITS: FetchLimits =
    FetchLimits { most_bytes: MAX_BYTES, timeout: Duration::from_secs(30), redirects: 3, reach: AllowedAddresses::Any };

#[cfg(test)]
mod tests;
