//! Assumptions about facts that no log contains: actual costs, latencies, the reaction of refused clients, and what was learned
//! before.

use super::format::{amount, thousandths};
use super::learned_state::LearnedState;
use super::log::LogField;
use super::serialize;
use crate::terminal::format_duration;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::time::Duration;
use tidegate_policy::Units;

/// Values that replace facts missing from the log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Assumptions {
    /// Time for which the origin caches a page; a cached page costs nothing. `None`: the origin caches no pages.
    #[serde(rename = "cache_ttl_s", serialize_with = "serialize::optional_seconds")]
    pub cache_ttl: Option<Duration>,
    /// Freshness lifetime that the origin gives its responses (`Cache-Control: max-age`), for the cache of the gateway.
    /// `None`: the origin gives none.
    #[serde(rename = "max_age_s", serialize_with = "serialize::optional_seconds")]
    pub max_age: Option<Duration>,
    /// Time for which a request holds its reservation.
    #[serde(rename = "latency_ms", serialize_with = "serialize::milliseconds")]
    pub latency: Duration,
    /// Reaction of refused clients.
    #[serde(rename = "clients")]
    pub retry_model: RetryModel,
    /// Actual cost of the requests of a route, by route name.
    #[serde(serialize_with = "serialize::units_by_name")]
    pub costs: BTreeMap<String, Units>,
    /// True if behavior is judged anew in the gateway's own log, in place of the logged verdicts.
    pub reclassify: bool,
    /// What the gateway had learned before the log.
    #[serde(serialize_with = "LearnedState::serialize_presence")]
    pub learned: LearnedState,
}

/// Reaction of refused clients to `Retry-After`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryModel {
    /// Each request occurs once, at its logged time.
    #[default]
    Ignore,
    /// A refused bot sends no request until its `Retry-After` has passed. It then retries, and sends the requests
    /// deferred meanwhile at the intervals of the log. People do not retry.
    Obey,
    /// Verified bots obey; all other clients ignore refusals.
    VerifiedOnly,
}

impl Default for Assumptions {
    fn default() -> Self {
        Self {
            cache_ttl: None,
            max_age: None,
            latency: Duration::from_millis(200),
            retry_model: RetryModel::Ignore,
            costs: BTreeMap::new(),
            reclassify: false,
            learned: LearnedState::default(),
        }
    }
}

impl Assumptions {
    /// Returns the substitute for a fact that a line lacks.
    pub(super) fn substitute_for(&self, fact: LogField) -> String {
        match fact {
            LogField::Latency => format!("no latency: every request takes {}", self.latency_text()),
            LogField::Cost if self.cache_ttl.is_some() || !self.costs.is_empty() => {
                "no actual cost: uses the assumed cost below, else the expected cost of the route".to_owned()
            }
            _ => fact.substitute().to_owned(),
        }
    }

    /// Returns each assumption as a sentence.
    pub(super) fn sentences(&self) -> Vec<String> {
        let cache = match self.cache_ttl {
            Some(ttl) => {
                format!("The origin caches a page for {}; a cached page costs nothing.", format_duration(ttl.as_secs()))
            }
            None => "The origin caches no pages; it generates every response.".to_owned(),
        };
        let lifetime = match self.max_age {
            Some(max_age) => format!(
                "For the gateway's cache, the origin gives each response a lifetime of {} (max-age).",
                format_duration(max_age.as_secs())
            ),
            None => "For the gateway's cache, the origin states no lifetimes; a route's ttl counts.".to_owned(),
        };
        let latency = format!("A request without a logged latency holds its reservation for {}.", self.latency_text());
        let retry_model = match self.retry_model {
            RetryModel::Obey => "Refused bots send no request until Retry-After has passed, then retry.",
            RetryModel::VerifiedOnly => {
                "Refused verified bots retry after Retry-After; all other clients ignore refusals."
            }
            RetryModel::Ignore => "Refused clients send the requests of the log.",
        };
        let costs = self.costs.iter();
        let costs = costs.map(|(route, units)| format!("The actual cost of {route} is {}.", amount(*units)));
        let learned = match self.learned.is_empty() {
            true => "The gateway had learned nothing before the log.",
            false => "The gateway had learned demand or a baseline before the log.",
        };
        let behavior = match self.reclassify {
            true => "Behavior is judged anew, also where the gateway has logged its verdict.",
            false => "Behavior is judged as the gateway has logged it.",
        };
        let sentences = [cache, lifetime, latency, retry_model.to_owned(), behavior.to_owned(), learned.to_owned()];
        sentences.into_iter().chain(costs).collect()
    }

    fn latency_text(&self) -> String {
        let micros = u64::try_from(self.latency.as_micros()).unwrap_or(u64::MAX);
        match micros {
            ..1_000_000 => format!("{} ms", thousandths(micros)),
            _ => format!("{} s", thousandths(micros / 1000)),
        }
    }
}

impl Serialize for RetryModel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl RetryModel {
    /// Returns the name used on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ignore => "ignore",
            Self::Obey => "obey",
            Self::VerifiedOnly => "verified-only",
        }
    }
}
