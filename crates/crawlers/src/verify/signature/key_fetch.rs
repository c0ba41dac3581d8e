//! Fetches keys in the background: when an agent is named for the first time, and before its keys expire.

use super::agent::AgentUrl;
use super::key_cache::{AgentListing, ttl_from_cache_control};
use super::keys::{self, AgentKey};
use super::{SignatureVerifier, VerifyTime};
use crate::verify::fetch::{AllowedAddresses, Document, FetchLimits, FetchOutcome, Fetcher, Validators};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::Timestamp;
use tracing::{info, warn};

/// Maximum size of a directory. Directories in use have one kilobyte.
const MAX_DIRECTORY_BYTES: usize = 64 * 1024;
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// Media types of directories: their own, those of keys, and JSON.
const MEDIA_TYPES: [&str; 4] = [
    "application/http-message-signatures-directory+json",
    "application/jwk-set+json",
    "application/jwk+json",
    "application/json",
];

/// Interval between checks for due fetches. A newly named agent is fetched at once.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

impl SignatureVerifier {
    /// Stores `directory` as if it had been fetched from `agent`. For benchmarks.
    #[doc(hidden)]
    pub fn insert_for_test(&self, agent: &str, directory: &[u8], time: VerifyTime) {
        let Ok(agent) = AgentUrl::parse(agent) else { return };
        let keys = keys::directory(directory).map(|keys| (keys, None)).map_err(|error| error.to_string());
        let at = (time.now, time.uptime);
        let _ = self.state.lock().key_cache.key(&agent, AgentListing::Listed, &[0; 32], at);
        self.store_result(&agent, keys, time.uptime);
    }

    /// Fetches keys while it is polled: listed and unlisted agents concurrently, each kind one at a time.
    pub async fn run_fetches(
        &self,
        fetcher: &Fetcher,
        allowed_addresses: AllowedAddresses,
        uptime: impl Fn() -> Timestamp,
    ) {
        let limits =
            FetchLimits { max_bytes: MAX_DIRECTORY_BYTES, timeout: FETCH_TIMEOUT, max_redirects: 0, allowed_addresses };
        let fetch_loop = async |listing| {
            loop {
                // Lifetime and retry count from here: the response delay is part of the age (RFC 9111 section 4.2.3).
                let started = uptime();
                let due = self.state.lock().key_cache.next_fetch(listing, started);
                let Some(agent) = due else {
                    let _ = tokio::time::timeout(POLL_INTERVAL, self.fetch_requested.notified()).await;
                    continue;
                };
                let fetched = fetcher.fetch(agent.as_str(), &limits, &Validators::default()).await;
                let result = match fetched {
                    Ok(FetchOutcome::Document(document)) => read(&document),
                    Ok(FetchOutcome::NotModified) => Err("unexpected status 304".to_owned()),
                    Err(error) => Err(error.to_string()),
                };
                self.store_result(&agent, result, started);
            }
        };
        tokio::join!(fetch_loop(AgentListing::Listed), fetch_loop(AgentListing::Unlisted));
    }

    /// Stores the result of a fetch that began at `started`.
    fn store_result(&self, agent: &AgentUrl, result: Result<PublishedKeys, String>, started: Timestamp) {
        let random = f64::from(self.hasher.hash_one((agent, started)) as u32) / f64::from(u32::MAX);
        let message = match &result {
            Ok((keys, _)) => format!("Fetched {} keys of {agent}", keys.len()),
            Err(reason) => format!("Cannot fetch the keys of {agent}: {reason}"),
        };
        match self.state.lock().key_cache.record_fetch(agent, result.ok(), random, started) {
            // Logged once, though the fetch is retried every few minutes. Failures of unlisted agents are not warnings.
            Some((AgentListing::Listed, 1)) => warn!("{message}; requests signed with them stay unverified"),
            _ => info!("{message}"),
        }
    }
}

/// Keys of a directory, and their lifetime.
type PublishedKeys = (Vec<Arc<AgentKey>>, Option<Duration>);

pub(super) fn read(document: &Document) -> Result<PublishedKeys, String> {
    let media_type = document.content_type.as_deref().unwrap_or_default();
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    if !MEDIA_TYPES.iter().any(|accepted| accepted.eq_ignore_ascii_case(essence)) {
        return Err(format!("unexpected media type {media_type:?}"));
    }
    let keys = keys::directory(&document.body).map_err(|error| error.to_string())?;
    Ok((keys, document.cache_control.as_deref().and_then(ttl_from_cache_control)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;
    use tidegate_policy::OperatorId;

    #[test]
    fn retry_counts_from_the_start_of_a_fetch() {
        const AGENT: &str = "https://localhost";
        let verifier = SignatureVerifier::new([(AGENT, OperatorId(0))].into_iter());
        let agent = AgentUrl::parse(AGENT).expect("a URL");
        let start = Timestamp::from_seconds(100);
        let _ = verifier.state.lock().key_cache.key(&agent, AgentListing::Listed, &[0; 32], (start, start));
        // The fetch fails, because the address is private. Nine seconds pass between its start and its end.
        let now = Cell::new(start);
        let fetcher = Fetcher::with_public_roots();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let is_due_after = |seconds| {
            let at = start + Duration::from_secs(seconds);
            verifier.state.lock().key_cache.next_fetch(AgentListing::Listed, at).is_some()
        };
        let is_due_in_time = runtime.block_on(async {
            let mut fetches = pin!(verifier.run_fetches(&fetcher, AllowedAddresses::Public, || now.get()));
            poll_fn(|cx| {
                let _ = fetches.as_mut().poll(cx);
                now.set(start + Duration::from_secs(9));
                match (is_due_after(15), is_due_after(3600)) {
                    (true, _) => Poll::Ready(true),
                    (false, true) => Poll::Ready(false),
                    (false, false) => Poll::Pending,
                }
            })
            .await
        });
        assert!(is_due_in_time, "the retry is due 15 seconds after the start");
    }
}
