//! What no log tells: what a request really cost, how long it took, what its client did next.

use super::log::LogField;
use super::report::AssumptionsReport;
use super::summary::amount;
use crate::policy::Units;
use crate::terminal::format_duration;
use std::time::Duration;

/// What is taken for true where the log is silent.
#[derive(Clone, Debug, PartialEq)]
pub struct Assumptions {
    /// A page that was fetched costs nothing for this long: the site keeps its pages. None: it does not.
    pub cache_ttl: Option<Duration>,
    /// How long a request holds what was set aside for it.
    pub latency: Duration,
    /// What clients do that are refused.
    pub clients: RetryModel,
    /// What requests of a route really cost, by the route's name.
    pub costs: Vec<(String, Units)>,
}

/// What clients do that are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryModel {
    /// Whatever the log says: each request comes once, at its time.
    #[default]
    Ignore,
    /// Bots ask nothing until their `Retry-After` has passed; then they ask again, and for what they would have asked
    /// for meanwhile, as far apart as in the log. People do not come back.
    Obey,
    /// Verified bots obey, all others are deaf.
    VerifiedOnly,
}

impl Default for Assumptions {
    fn default() -> Self {
        Self { cache_ttl: None, latency: Duration::from_millis(200), clients: RetryModel::Ignore, costs: Vec::new() }
    }
}

impl Assumptions {
    /// What is done where a line does not say a fact.
    pub(super) fn substitute_for(&self, fact: LogField) -> String {
        match fact {
            LogField::Latency => format!("no latency: every request takes {}", self.report().latency()),
            LogField::Cost if self.cache_ttl.is_some() || !self.costs.is_empty() => {
                "no actual cost: every request costs what is assumed below, else what its route is expected to"
                    .to_owned()
            }
            _ => fact.substitute().to_owned(),
        }
    }

    pub(super) fn report(&self) -> AssumptionsReport {
        AssumptionsReport {
            cache_ttl_s: self.cache_ttl.map(|ttl| ttl.as_secs()),
            latency_ms: self.latency.as_secs_f64() * 1000.0,
            clients: self.clients.name(),
            costs: self.costs.iter().map(|(route, cost)| (route.clone(), cost.as_f64())).collect(),
        }
    }
}

impl AssumptionsReport {
    /// Each of them in a sentence.
    pub(super) fn sentences(&self) -> Vec<String> {
        let kept = match self.cache_ttl_s {
            Some(seconds) => {
                format!(
                    "The site keeps a page for {}; while it does, the page costs nothing.",
                    format_duration(seconds)
                )
            }
            None => "The site keeps no page: it makes each anew for every request.".to_owned(),
        };
        let latency =
            format!("A request holds what was set aside for it for {}, where the log does not say.", self.latency());
        let clients = match self.clients {
            "obey" => "Bots that are refused stay away until Retry-After has passed, then ask again.",
            "as-known" => {
                "Verified bots that are refused come back after Retry-After; all others ask as the log has it."
            }
            _ => "Whoever is refused asks on as the log has it.",
        };
        let costs = self.costs.iter();
        let costs = costs.map(|(route, units)| format!("A request of {route} really costs {}.", amount(*units)));
        [kept, latency, clients.to_owned()].into_iter().chain(costs).collect()
    }

    fn latency(&self) -> String {
        match self.latency_ms {
            short if short < 1000.0 => format!("{} ms", amount(short)),
            long => format!("{} s", amount(long / 1000.0)),
        }
    }
}

impl RetryModel {
    /// Its name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ignore => "deaf",
            Self::Obey => "obey",
            Self::VerifiedOnly => "as-known",
        }
    }
}
