//! Assumptions about facts that no log contains: actual costs, latencies, and the reaction of refused clients.

use super::format::amount;
use super::log::LogField;
use super::report::AssumptionsReport;
use crate::policy::Units;
use crate::terminal::format_duration;
use std::time::Duration;

/// Values that replace facts missing from the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Assumptions {
    /// Time for which the origin caches a page; a cached page costs nothing. `None`: the origin caches no pages.
    pub cache_ttl: Option<Duration>,
    /// Time for which a request holds its reservation.
    pub latency: Duration,
    /// Reaction of refused clients.
    pub retry_model: RetryModel,
    /// Actual cost of the requests of a route, by route name.
    pub costs: Vec<(String, Units)>,
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
            latency: Duration::from_millis(200),
            retry_model: RetryModel::Ignore,
            costs: Vec::new(),
        }
    }
}

impl Assumptions {
    /// Returns the substitute for a fact that a line lacks.
    pub(super) fn substitute_for(&self, fact: LogField) -> String {
        match fact {
            LogField::Latency => format!("no latency: every request takes {}", self.report().latency()),
            LogField::Cost if self.cache_ttl.is_some() || !self.costs.is_empty() => {
                "no actual cost: uses the assumed cost below, else the expected cost of the route".to_owned()
            }
            _ => fact.substitute().to_owned(),
        }
    }

    pub(super) fn report(&self) -> AssumptionsReport {
        AssumptionsReport {
            cache_ttl_s: self.cache_ttl.map(|ttl| ttl.as_secs()),
            latency_ms: self.latency.as_secs_f64() * 1000.0,
            clients: self.retry_model.name(),
            costs: self.costs.iter().map(|(route, cost)| (route.clone(), cost.as_f64())).collect(),
        }
    }
}

impl AssumptionsReport {
    /// Returns each assumption as a sentence.
    pub(super) fn sentences(&self) -> Vec<String> {
        let cache = match self.cache_ttl_s {
            Some(seconds) => {
                format!("The origin caches a page for {}; a cached page costs nothing.", format_duration(seconds))
            }
            None => "The origin caches no pages; it generates every response.".to_owned(),
        };
        let latency = format!("A request without a logged latency holds its reservation for {}.", self.latency());
        let retry_model = match self.clients {
            "obey" => "Refused bots send no request until Retry-After has passed, then retry.",
            "verified-only" => "Refused verified bots retry after Retry-After; all other clients ignore refusals.",
            _ => "Refused clients send the requests of the log.",
        };
        let costs = self.costs.iter();
        let costs = costs.map(|(route, units)| format!("The actual cost of {route} is {}.", amount(*units)));
        [cache, latency, retry_model.to_owned()].into_iter().chain(costs).collect()
    }

    fn latency(&self) -> String {
        match self.latency_ms {
            short if short < 1000.0 => format!("{} ms", amount(short)),
            long => format!("{} s", amount(long / 1000.0)),
        }
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
