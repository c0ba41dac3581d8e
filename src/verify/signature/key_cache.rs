//! The keys of all agents that anybody has named, and when they are fetched again. What fetches them is elsewhere.

use super::agent::AgentUrl;
use super::fields::Thumbprint;
use super::keys::AgentKey;
use super::outcome::UnverifiedReason;
use crate::policy::Timestamp;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Agents of no operator that are known at once: strangers make up their addresses. A directory is some hundred bytes.
const MAX_UNLISTED: usize = 256;

/// How long keys are good for where their server says nothing of it.
const DEFAULT_TTL: Duration = Duration::from_secs(3600);
/// However short their server says: a request may ask for a fetch, but not each for one of its own.
const MIN_TTL: Duration = Duration::from_secs(5 * 60);
/// However long: a key that was stolen must not be good for weeks.
const MAX_TTL: Duration = Duration::from_secs(24 * 3600);

/// How soon a fetch that failed is tried again, doubled each time up to the bound of the draft standard.
const MIN_RETRY: Duration = Duration::from_secs(15);
const MAX_RETRY: Duration = Duration::from_secs(5 * 60);

/// By how much fetches come early, so that all gates of the world do not come in the same second.
const JITTER: f64 = 0.2;

/// Whose agents these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgentListing {
    /// Of operators of the table.
    Listed,
    /// Of strangers: they never make the others wait.
    Unlisted,
}

/// The directories, by the name of their agent. Its time is the one that nobody can set.
#[derive(Debug, Default)]
pub(super) struct KeyCache {
    by_url: HashMap<AgentUrl, AgentKeys, RandomState>,
}

#[derive(Debug)]
struct AgentKeys {
    lane: AgentListing,
    /// `None` until they have come once.
    keys: Option<Vec<Arc<AgentKey>>>,
    /// When they are fetched again; `None` while they are.
    fetch_at: Option<Timestamp>,
    fetched_at: Timestamp,
    /// Fetches that failed since the last that did not.
    failures: u32,
    /// When a request named it last.
    last_named: Timestamp,
}

impl KeyCache {
    /// The key of an agent. Where it is not there, sees to it that it is fetched, within bounds.
    pub(super) fn key(
        &mut self,
        agent: &AgentUrl,
        lane: AgentListing,
        thumbprint: &Thumbprint,
        (now, uptime): (Timestamp, Timestamp),
    ) -> Result<Arc<AgentKey>, UnverifiedReason> {
        if !self.by_url.contains_key(agent) && !self.make_room(agent, lane, uptime) {
            return Err(UnverifiedReason::AgentUnknown);
        }
        let directory = self.by_url.get_mut(agent).ok_or(UnverifiedReason::AgentUnknown)?;
        directory.last_named = uptime;
        // Whose agent it is may have become known since.
        directory.lane = lane;
        let keys = directory.keys.as_ref().ok_or(UnverifiedReason::Pending)?;
        if let Some(key) = keys.iter().find(|key| key.has_thumbprint(thumbprint) && key.is_valid_at(now)) {
            return Ok(Arc::clone(key));
        }
        // It may be a new key.
        let soonest = directory.fetched_at + MIN_TTL;
        directory.fetch_at = directory.fetch_at.map(|at| at.min(soonest));
        Err(UnverifiedReason::KeyUnknown)
    }

    /// Makes room for an agent that was never named before; false where there is none.
    fn make_room(&mut self, agent: &AgentUrl, lane: AgentListing, uptime: Timestamp) -> bool {
        let strangers = || self.by_url.values().filter(|directory| directory.lane == AgentListing::Unlisted).count();
        if lane == AgentListing::Unlisted && (!agent.uses_default_port() || strangers() >= MAX_UNLISTED) {
            return false;
        }
        let directory = AgentKeys {
            lane,
            keys: None,
            fetch_at: Some(uptime),
            fetched_at: Timestamp::default(),
            failures: 0,
            last_named: uptime,
        };
        self.by_url.insert(agent.clone(), directory);
        true
    }

    /// The agent whose keys are to be fetched next, if it is time; they are under way from now on. Strangers that nobody
    /// has named since their keys were fetched are forgotten instead.
    pub(super) fn next_fetch(&mut self, lane: AgentListing, uptime: Timestamp) -> Option<AgentUrl> {
        let is_due =
            |directory: &AgentKeys| directory.lane == lane && directory.fetch_at.is_some_and(|at| at <= uptime);
        self.by_url
            .retain(|_, known| !is_due(known) || lane == AgentListing::Listed || known.fetched_at <= known.last_named);
        let (agent, directory) = self
            .by_url
            .iter_mut()
            .filter(|(_, directory)| is_due(directory))
            .min_by_key(|(_, directory)| directory.fetch_at)?;
        directory.fetch_at = None;
        Some(agent.clone())
    }

    /// The keys have come, with how long they are good for, or they have not. What was there before stays until there is
    /// something better; a key that is no longer published is gone. Returns whose agent it is, and how many fetches in a row
    /// have failed now.
    pub(super) fn record_fetch(
        &mut self,
        agent: &AgentUrl,
        came: Option<(Vec<Arc<AgentKey>>, Option<Duration>)>,
        chance: f64,
        uptime: Timestamp,
    ) -> Option<(AgentListing, u32)> {
        let directory = self.by_url.get_mut(agent)?;
        directory.fetched_at = uptime;
        let pause = match came {
            Some((keys, fresh)) => {
                directory.keys = Some(keys);
                directory.failures = 0;
                fresh.unwrap_or(DEFAULT_TTL).clamp(MIN_TTL, MAX_TTL)
            }
            None => {
                let doubled = MIN_RETRY.saturating_mul(1 << directory.failures.min(10));
                directory.failures = directory.failures.saturating_add(1);
                doubled.min(MAX_RETRY)
            }
        };
        directory.fetch_at = Some(uptime + pause.mul_f64(1.0 - JITTER * chance));
        Some((directory.lane, directory.failures))
    }
}

/// How long a document is good for, as its `Cache-Control` says.
pub(super) fn freshness(cache_control: &str) -> Option<Duration> {
    let directives = || cache_control.split(',').map(str::trim);
    let named = |name: &str| directives().any(|directive| directive.eq_ignore_ascii_case(name));
    if named("no-cache") || named("no-store") {
        return Some(Duration::ZERO);
    }
    let age = directives().find_map(|directive| {
        let (name, seconds) = directive.split_once('=')?;
        name.eq_ignore_ascii_case("max-age").then(|| seconds.trim_matches('"').parse().ok())?
    });
    age.map(Duration::from_secs)
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

    fn published(x: &str) -> (Vec<Arc<AgentKey>>, Thumbprint) {
        let jwk = json!({ "kty": "OKP", "crv": "Ed25519", "x": x });
        let key = AgentKey::read(&jwk).expect("a key");
        let thumbprint = super::super::keys::tests::thumbprint_of(x);
        (vec![Arc::new(key)], thumbprint)
    }

    const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    #[test]
    fn keys_are_fetched_once_when_an_agent_is_first_named() {
        let mut directories = KeyCache::default();
        let (keys, key) = published(X);
        let bot = agent("bot.example");
        for _ in 0..3 {
            assert_eq!(
                directories.key(&bot, AgentListing::Listed, &key, (NOW, START)).err(),
                Some(UnverifiedReason::Pending)
            );
        }
        assert_eq!(directories.next_fetch(AgentListing::Unlisted, START), None);
        assert_eq!(directories.next_fetch(AgentListing::Listed, START), Some(bot.clone()));
        assert_eq!(directories.next_fetch(AgentListing::Listed, START + MINUTE), None, "it is under way");
        directories.record_fetch(&bot, Some((keys, None)), 0.0, START);
        assert!(directories.key(&bot, AgentListing::Listed, &key, (NOW, START)).is_ok());
        assert_eq!(
            directories.key(&agent("else.example"), AgentListing::Listed, &key, (NOW, START)).err(),
            Some(UnverifiedReason::Pending)
        );
    }

    #[test]
    fn a_fetch_that_fails_takes_nothing_away_and_one_that_does_not_takes_away_what_is_gone() {
        let mut directories = KeyCache::default();
        let (keys, key) = published(X);
        let bot = agent("bot.example");
        let _ = directories.key(&bot, AgentListing::Listed, &key, (NOW, START));
        directories.record_fetch(&bot, Some((keys, None)), 0.0, START);
        directories.record_fetch(&bot, None, 0.0, START + 60 * MINUTE);
        assert!(directories.key(&bot, AgentListing::Listed, &key, (NOW, START + 60 * MINUTE)).is_ok());
        directories.record_fetch(&bot, Some((Vec::new(), None)), 0.0, START + 65 * MINUTE);
        let gone = directories.key(&bot, AgentListing::Listed, &key, (NOW, START + 65 * MINUTE));
        assert_eq!(gone.err(), Some(UnverifiedReason::KeyUnknown));
    }

    #[test]
    fn failures_are_tried_again_later_and_later_but_within_five_minutes() {
        let mut directories = KeyCache::default();
        let bot = agent("bot.example");
        let _ = directories.key(&bot, AgentListing::Listed, &[0; 32], (NOW, START));
        let mut now = START;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            directories.record_fetch(&bot, None, 0.0, now);
            let pause = (0..).find(|seconds| {
                directories.next_fetch(AgentListing::Listed, now + Duration::from_secs(*seconds)).is_some()
            });
            let pause = Duration::from_secs(pause.expect("it is tried again"));
            pauses.push(pause.as_secs());
            now += pause;
        }
        assert_eq!(pauses, [15, 30, 60, 120, 240, 300, 300, 300]);
    }

    #[test]
    fn a_key_that_is_not_there_brings_the_next_fetch_forward_but_not_each_request_one() {
        let mut directories = KeyCache::default();
        let (keys, _) = published(X);
        let bot = agent("bot.example");
        let _ = directories.key(&bot, AgentListing::Listed, &[0; 32], (NOW, START));
        let _ = directories.next_fetch(AgentListing::Listed, START);
        directories.record_fetch(&bot, Some((keys, Some(MAX_TTL))), 1.0, START);
        assert_eq!(directories.next_fetch(AgentListing::Listed, START + MIN_TTL), None);
        let unknown = directories.key(&bot, AgentListing::Listed, &[0; 32], (NOW, START + MINUTE));
        assert_eq!(unknown.err(), Some(UnverifiedReason::KeyUnknown));
        assert_eq!(directories.next_fetch(AgentListing::Listed, START + MIN_TTL - MINUTE), None);
        assert_eq!(directories.next_fetch(AgentListing::Listed, START + MIN_TTL), Some(bot));
    }

    #[test]
    fn strangers_are_bounded_and_forgotten_when_nobody_names_them() {
        let mut directories = KeyCache::default();
        for number in 0..MAX_UNLISTED {
            let stranger = agent(&format!("bot-{number}.example"));
            assert_eq!(
                directories.key(&stranger, AgentListing::Unlisted, &[0; 32], (NOW, START)).err(),
                Some(UnverifiedReason::Pending)
            );
        }
        let late = agent("late.example");
        assert_eq!(
            directories.key(&late, AgentListing::Unlisted, &[0; 32], (NOW, START)).err(),
            Some(UnverifiedReason::AgentUnknown)
        );
        assert_eq!(
            directories.key(&late, AgentListing::Listed, &[0; 32], (NOW, START)).err(),
            Some(UnverifiedReason::Pending)
        );
        while let Some(stranger) = directories.next_fetch(AgentListing::Unlisted, START) {
            directories.record_fetch(&stranger, None, 0.0, START + MINUTE);
        }
        assert_eq!(directories.next_fetch(AgentListing::Unlisted, START + 10 * MINUTE), None);
        let next = agent("next.example");
        let room = directories.key(&next, AgentListing::Unlisted, &[0; 32], (NOW, START + 10 * MINUTE));
        assert_eq!(room.err(), Some(UnverifiedReason::Pending));
        assert_eq!(directories.by_url.len(), 2);
    }

    #[test]
    fn strangers_cannot_have_other_ports_knocked_at() {
        let mut directories = KeyCache::default();
        let odd = agent("bot.example:22");
        assert_eq!(
            directories.key(&odd, AgentListing::Unlisted, &[0; 32], (NOW, START)).err(),
            Some(UnverifiedReason::AgentUnknown)
        );
    }

    #[test]
    fn how_long_keys_are_good_for_is_told_by_their_server() {
        assert_eq!(freshness("public, max-age=600"), Some(10 * MINUTE));
        assert_eq!(freshness("MAX-AGE=\"60\""), Some(MINUTE));
        assert_eq!(freshness("max-age=600, no-cache"), Some(Duration::ZERO));
        assert_eq!(freshness("private"), None);
        assert_eq!(freshness("max-age=soon"), None);
    }
}
