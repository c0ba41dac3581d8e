//! Cache of the keys of all named agents, with the times of their next fetches. [`super::key_fetch`] fetches them.

use super::agent::AgentUrl;
use super::fields::Thumbprint;
use super::keys::AgentKey;
use super::outcome::UnverifiedReason;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tidegate_http_cache::ResponseDirectives;
use tidegate_policy::Timestamp;

/// Maximum number of agents of no operator. Untrusted clients invent their URLs. An entry takes a few hundred bytes.
const MAX_UNLISTED: usize = 256;

/// Lifetime of keys without `Cache-Control`.
const DEFAULT_TTL: Duration = Duration::from_secs(3600);
/// Minimum lifetime: a request may cause a fetch, but not each request one of its own.
const MIN_TTL: Duration = Duration::from_secs(5 * 60);
/// Maximum lifetime: a stolen key must not stay valid for weeks.
const MAX_TTL: Duration = Duration::from_secs(24 * 3600);

/// Delay before the first retry of a failed fetch. It doubles with each failure up to the bound of the draft standard.
const MIN_RETRY: Duration = Duration::from_secs(15);
const MAX_RETRY: Duration = Duration::from_secs(5 * 60);

/// Maximum fraction by which a fetch is advanced, so that gateways do not fetch in the same second.
const JITTER: f64 = 0.2;

/// Listing of an agent. Both kinds are fetched independently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgentListing {
    /// Agents of operators in the table.
    Listed,
    /// Agents of no known operator. Their fetches never delay those of listed agents.
    Unlisted,
}

/// Keys by agent. Times are monotonic.
#[derive(Debug, Default)]
pub(super) struct KeyCache {
    by_url: HashMap<AgentUrl, AgentKeys, RandomState>,
}

#[derive(Debug)]
struct AgentKeys {
    listing: AgentListing,
    /// `None` until the first successful fetch.
    keys: Option<Vec<Arc<AgentKey>>>,
    /// Time of the next fetch; `None` while one is in progress.
    fetch_at: Option<Timestamp>,
    fetched_at: Timestamp,
    /// Number of consecutive failed fetches.
    failures: u32,
    /// Time of the last request that named the agent.
    last_named: Timestamp,
}

impl KeyCache {
    /// Returns a key of an agent. If the agent or the key is missing, schedules a fetch within the limits.
    pub(super) fn key(
        &mut self,
        agent: &AgentUrl,
        listing: AgentListing,
        thumbprint: &Thumbprint,
        (now, uptime): (Timestamp, Timestamp),
    ) -> Result<Arc<AgentKey>, UnverifiedReason> {
        if !self.by_url.contains_key(agent) && !self.try_insert(agent, listing, uptime) {
            return Err(UnverifiedReason::AgentUnknown);
        }
        let directory = self.by_url.get_mut(agent).ok_or(UnverifiedReason::AgentUnknown)?;
        directory.last_named = uptime;
        // The agent may have been added to an operator since.
        directory.listing = listing;
        let keys = directory.keys.as_ref().ok_or(UnverifiedReason::Pending)?;
        if let Some(key) = keys.iter().find(|key| key.has_thumbprint(thumbprint) && key.is_valid_at(now)) {
            return Ok(Arc::clone(key));
        }
        // The key may be new.
        let earliest = directory.fetched_at + MIN_TTL;
        directory.fetch_at = directory.fetch_at.map(|at| at.min(earliest));
        Err(UnverifiedReason::KeyUnknown)
    }

    /// Adds an entry for a new agent; returns false if the limit is reached.
    fn try_insert(&mut self, agent: &AgentUrl, listing: AgentListing, uptime: Timestamp) -> bool {
        let unlisted_count =
            || self.by_url.values().filter(|directory| directory.listing == AgentListing::Unlisted).count();
        if listing == AgentListing::Unlisted && (!agent.uses_default_port() || unlisted_count() >= MAX_UNLISTED) {
            return false;
        }
        let directory = AgentKeys {
            listing,
            keys: None,
            fetch_at: Some(uptime),
            fetched_at: Timestamp::default(),
            failures: 0,
            last_named: uptime,
        };
        self.by_url.insert(agent.clone(), directory);
        true
    }

    /// Returns the agent whose keys are due for a fetch, and marks the fetch as in progress. Unlisted agents that no
    /// request has named since their last fetch are evicted instead.
    pub(super) fn next_fetch(&mut self, listing: AgentListing, uptime: Timestamp) -> Option<AgentUrl> {
        let is_due =
            |directory: &AgentKeys| directory.listing == listing && directory.fetch_at.is_some_and(|at| at <= uptime);
        self.by_url.retain(|_, directory| {
            !is_due(directory) || listing == AgentListing::Listed || directory.fetched_at <= directory.last_named
        });
        let (agent, directory) = self
            .by_url
            .iter_mut()
            .filter(|(_, directory)| is_due(directory))
            .min_by_key(|(_, directory)| directory.fetch_at)?;
        directory.fetch_at = None;
        Some(agent.clone())
    }

    /// Stores the result of a fetch: keys with their lifetime, or `None` after a failure, which keeps the old keys.
    /// Keys that are no longer published are removed. Returns the listing of the agent and the number of consecutive
    /// failures.
    pub(super) fn record_fetch(
        &mut self,
        agent: &AgentUrl,
        fetched: Option<(Vec<Arc<AgentKey>>, Option<Duration>)>,
        random: f64,
        uptime: Timestamp,
    ) -> Option<(AgentListing, u32)> {
        let directory = self.by_url.get_mut(agent)?;
        directory.fetched_at = uptime;
        let delay = match fetched {
            Some((keys, lifetime)) => {
                directory.keys = Some(keys);
                directory.failures = 0;
                lifetime.unwrap_or(DEFAULT_TTL).clamp(MIN_TTL, MAX_TTL)
            }
            None => {
                let doubled = MIN_RETRY.saturating_mul(1 << directory.failures.min(10));
                directory.failures = directory.failures.saturating_add(1);
                doubled.min(MAX_RETRY)
            }
        };
        directory.fetch_at = Some(uptime + delay.mul_f64(1.0 - JITTER * random));
        Some((directory.listing, directory.failures))
    }
}

/// Returns the lifetime in `Cache-Control`, if it states one.
pub(super) fn ttl_from_cache_control(cache_control: &str) -> Option<Duration> {
    let directives = ResponseDirectives::of_cache_control([cache_control.as_bytes()].into_iter());
    if directives.no_cache || directives.no_store { Some(Duration::ZERO) } else { directives.max_age }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const START: Timestamp = Timestamp::from_seconds(1000);
    const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);
    const MINUTE: Duration = Duration::from_secs(60);

    fn agent(name: &str) -> AgentUrl {
        AgentUrl::parse(&format!("https://{name}")).expect("an address")
    }

    fn published_key(x: &str) -> (Vec<Arc<AgentKey>>, Thumbprint) {
        let jwk = json!({ "kty": "OKP", "crv": "Ed25519", "x": x });
        let key = AgentKey::read(&jwk).expect("a key");
        let thumbprint = super::super::keys::tests::thumbprint_of(x);
        (vec![Arc::new(key)], thumbprint)
    }

    const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    #[test]
    fn keys_are_fetched_once_per_new_agent() {
        let mut cache = KeyCache::default();
        let (keys, key) = published_key(X);
        let bot = agent("bot.example");
        for _ in 0..3 {
            assert_eq!(
                cache.key(&bot, AgentListing::Listed, &key, (NOW, START)).err(),
                Some(UnverifiedReason::Pending)
            );
        }
        assert_eq!(cache.next_fetch(AgentListing::Unlisted, START), None);
        assert_eq!(cache.next_fetch(AgentListing::Listed, START), Some(bot.clone()));
        assert_eq!(cache.next_fetch(AgentListing::Listed, START + MINUTE), None, "the fetch is in progress");
        cache.record_fetch(&bot, Some((keys, None)), 0.0, START);
        assert!(cache.key(&bot, AgentListing::Listed, &key, (NOW, START)).is_ok());
        assert_eq!(
            cache.key(&agent("else.example"), AgentListing::Listed, &key, (NOW, START)).err(),
            Some(UnverifiedReason::Pending)
        );
    }

    #[test]
    fn failed_fetch_keeps_keys_successful_one_replaces_them() {
        let mut cache = KeyCache::default();
        let (keys, key) = published_key(X);
        let bot = agent("bot.example");
        let _ = cache.key(&bot, AgentListing::Listed, &key, (NOW, START));
        cache.record_fetch(&bot, Some((keys, None)), 0.0, START);
        cache.record_fetch(&bot, None, 0.0, START + 60 * MINUTE);
        assert!(cache.key(&bot, AgentListing::Listed, &key, (NOW, START + 60 * MINUTE)).is_ok());
        cache.record_fetch(&bot, Some((Vec::new(), None)), 0.0, START + 65 * MINUTE);
        let result = cache.key(&bot, AgentListing::Listed, &key, (NOW, START + 65 * MINUTE));
        assert_eq!(result.err(), Some(UnverifiedReason::KeyUnknown));
    }

    #[test]
    fn fetch_retries_back_off_to_five_minutes() {
        let mut cache = KeyCache::default();
        let bot = agent("bot.example");
        let _ = cache.key(&bot, AgentListing::Listed, &[0; 32], (NOW, START));
        let mut now = START;
        let mut delays = Vec::new();
        for _ in 0..8 {
            cache.record_fetch(&bot, None, 0.0, now);
            let delay = (0..)
                .find(|seconds| cache.next_fetch(AgentListing::Listed, now + Duration::from_secs(*seconds)).is_some());
            let delay = Duration::from_secs(delay.expect("a retry is scheduled"));
            delays.push(delay.as_secs());
            now += delay;
        }
        assert_eq!(delays, [15, 30, 60, 120, 240, 300, 300, 300]);
    }

    #[test]
    fn unknown_key_advances_the_next_fetch_once() {
        let mut cache = KeyCache::default();
        let (keys, _) = published_key(X);
        let bot = agent("bot.example");
        let _ = cache.key(&bot, AgentListing::Listed, &[0; 32], (NOW, START));
        let _ = cache.next_fetch(AgentListing::Listed, START);
        cache.record_fetch(&bot, Some((keys, Some(MAX_TTL))), 1.0, START);
        assert_eq!(cache.next_fetch(AgentListing::Listed, START + MIN_TTL), None);
        let unknown = cache.key(&bot, AgentListing::Listed, &[0; 32], (NOW, START + MINUTE));
        assert_eq!(unknown.err(), Some(UnverifiedReason::KeyUnknown));
        assert_eq!(cache.next_fetch(AgentListing::Listed, START + MIN_TTL - MINUTE), None);
        assert_eq!(cache.next_fetch(AgentListing::Listed, START + MIN_TTL), Some(bot));
    }

    #[test]
    fn unlisted_agents_are_bounded_and_evicted() {
        let mut cache = KeyCache::default();
        for number in 0..MAX_UNLISTED {
            let unlisted = agent(&format!("bot-{number}.example"));
            assert_eq!(
                cache.key(&unlisted, AgentListing::Unlisted, &[0; 32], (NOW, START)).err(),
                Some(UnverifiedReason::Pending)
            );
        }
        let late = agent("late.example");
        assert_eq!(
            cache.key(&late, AgentListing::Unlisted, &[0; 32], (NOW, START)).err(),
            Some(UnverifiedReason::AgentUnknown)
        );
        assert_eq!(
            cache.key(&late, AgentListing::Listed, &[0; 32], (NOW, START)).err(),
            Some(UnverifiedReason::Pending)
        );
        while let Some(unlisted) = cache.next_fetch(AgentListing::Unlisted, START) {
            cache.record_fetch(&unlisted, None, 0.0, START + MINUTE);
        }
        assert_eq!(cache.next_fetch(AgentListing::Unlisted, START + 10 * MINUTE), None);
        let next = agent("next.example");
        let result = cache.key(&next, AgentListing::Unlisted, &[0; 32], (NOW, START + 10 * MINUTE));
        assert_eq!(result.err(), Some(UnverifiedReason::Pending));
        assert_eq!(cache.by_url.len(), 2);
    }

    #[test]
    fn unlisted_agents_must_use_the_default_port() {
        let mut cache = KeyCache::default();
        let bot = agent("bot.example:22");
        assert_eq!(
            cache.key(&bot, AgentListing::Unlisted, &[0; 32], (NOW, START)).err(),
            Some(UnverifiedReason::AgentUnknown)
        );
    }

    #[test]
    fn key_freshness_follows_cache_control() {
        assert_eq!(ttl_from_cache_control("public, max-age=600"), Some(10 * MINUTE));
        assert_eq!(ttl_from_cache_control("MAX-AGE=\"60\""), Some(MINUTE));
        assert_eq!(ttl_from_cache_control("max-age=600, no-cache"), Some(Duration::ZERO));
        assert_eq!(ttl_from_cache_control("private"), None);
        assert_eq!(ttl_from_cache_control("max-age=soon"), Some(Duration::ZERO));
    }
}
