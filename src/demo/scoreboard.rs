//! Totals of the demo: requests, refusals and costs by group, counted from the gateway's responses.

use super::load_generator::DemoResponse;
use super::scrape::Scrape;
use super::traffic::{self, DemoRequest};
use crate::policy::ClientKind;
use std::collections::BTreeMap;
use std::time::Duration;

/// Totals that the live table and the summary show.
#[derive(Clone, Debug, Default)]
pub struct Scoreboard {
    /// Time since the start of the day.
    pub now: Duration,
    /// The quota, as counted by the gateway.
    pub quota: Gauge,
    /// Usage from which search engines are shed, in percent of the limit.
    pub thresholds: Vec<f64>,
    /// Totals by group, in the order of [`ClientGroup::ALL`].
    pub rows: [Row; ClientGroup::ALL.len()],
    /// Totals by actor.
    pub actors: BTreeMap<&'static str, Row>,
    /// Number of requests without a response, or with one that neither the origin nor a rule produces.
    pub failed: u64,
    /// Example of a refused bot: the first impostor after noon, else the last refusal so far.
    pub example: Option<RefusalExample>,
}

/// Limit and usage of a quota, in units.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauge {
    /// Limit of the quota.
    pub limit: f64,
    /// Used and reserved units.
    pub used: f64,
}

/// Totals of a group of clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Number of requests with a response.
    pub requests: u64,
    /// Number of requests refused by a rule.
    pub refused: u64,
    /// Number of requests with a cost.
    pub costly: u64,
    /// Number of refused requests with a cost.
    pub costly_refused: u64,
    /// `Retry-After` of the last refusal, in seconds.
    pub retry_after: Option<u64>,
    /// Number of refusals by reason.
    pub reasons: BTreeMap<String, u64>,
}

/// A refusal as the client received it.
#[derive(Clone, Debug)]
pub struct RefusalExample {
    /// The refused request.
    pub request: DemoRequest,
    /// Response status.
    pub status: http::StatusCode,
    /// Response headers about limits, in order.
    pub headers: Vec<(String, String)>,
    /// Response body: the problem document.
    pub body: String,
}

/// True identity of clients, which the gateway does not receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientGroup {
    /// People.
    People,
    /// Google, Bing and Apple.
    SearchEngines,
    /// Other bots that declare themselves.
    OtherBots,
    /// Bots that claim to be browsers.
    Scrapers,
    /// Bots that claim to be of another operator.
    Impostors,
}

impl ClientGroup {
    /// All groups, in the order of the table.
    pub const ALL: [Self; 5] = [Self::People, Self::SearchEngines, Self::OtherBots, Self::Scrapers, Self::Impostors];

    /// Returns the group of a request.
    pub fn from_request(request: &DemoRequest) -> Self {
        match request.label {
            ClientKind::Human => Self::People,
            ClientKind::VerifiedBot if matches!(request.actor, "googlebot" | "bingbot" | "applebot") => {
                Self::SearchEngines
            }
            ClientKind::VerifiedBot | ClientKind::DeclaredBot => Self::OtherBots,
            ClientKind::SuspectedBot => Self::Scrapers,
            ClientKind::Impostor => Self::Impostors,
        }
    }

    /// Returns the name of the group in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::People => "people",
            Self::SearchEngines => "search engines",
            Self::OtherBots => "other bots",
            Self::Scrapers => "scrapers",
            Self::Impostors => "impostors",
        }
    }
}

impl Row {
    /// Returns the number of admitted requests.
    pub fn admitted(&self) -> u64 {
        self.requests - self.refused
    }

    fn add(&mut self, request: &DemoRequest, refusal: Option<(&str, Option<u64>)>) {
        let costly = u64::from(request.cost > 0);
        self.requests += 1;
        self.costly += costly;
        if let Some((reason, retry_after)) = refusal {
            self.refused += 1;
            self.costly_refused += costly;
            self.retry_after = retry_after.or(self.retry_after);
            *self.reasons.entry(reason.to_owned()).or_default() += 1;
        }
    }
}

impl Scoreboard {
    /// Returns the totals of `group`.
    pub fn row(&self, group: ClientGroup) -> &Row {
        &self.rows[group as usize]
    }

    /// Records the response to one request.
    pub fn record(&mut self, request: &DemoRequest, response: &DemoResponse) {
        let Ok(parts) = &response.result else {
            self.failed += 1;
            return;
        };
        let problem = parts.is_refusal().then(|| reason(&parts.body));
        if problem.is_none() && !parts.status.is_success() {
            self.failed += 1;
        }
        let refusal = problem.as_deref().map(|reason| (reason, parts.retry_after()));
        let group = ClientGroup::from_request(request);
        self.rows[group as usize].add(request, refusal);
        self.actors.entry(request.actor).or_default().add(request, refusal);
        if refusal.is_some() && group != ClientGroup::People && !self.example.as_ref().is_some_and(is_good_example) {
            let headers = HEADERS_SHOWN.iter().filter_map(|name| {
                let value = parts.headers.get(*name)?.to_str().ok()?;
                Some(((*name).to_owned(), value.to_owned()))
            });
            self.example = Some(RefusalExample {
                request: request.clone(),
                status: parts.status,
                headers: headers.collect(),
                body: String::from_utf8_lossy(&parts.body).into_owned(),
            });
        }
    }

    /// Reads the gateway's usage of the quota `name` from a scrape.
    pub fn read(&mut self, scrape: &Scrape, name: &str) {
        let labels = [("quota", name)];
        let gauge = |metric| scrape.sum(metric, &labels);
        self.quota = Gauge {
            limit: gauge("tidegate_quota_limit"),
            used: gauge("tidegate_quota_used") + gauge("tidegate_quota_reserved"),
        };
    }
}

/// Returns true for a refusal of an impostor in the second half of the day.
fn is_good_example(example: &RefusalExample) -> bool {
    example.request.label == ClientKind::Impostor && example.request.at >= traffic::DAY / 2
}

/// Headers of a refusal that are shown.
const HEADERS_SHOWN: [&str; 5] =
    ["retry-after", "ratelimit-policy", "ratelimit", "content-type", "x-tidegate-decision"];

fn reason(problem: &[u8]) -> String {
    let problem: serde_json::Value = serde_json::from_slice(problem).unwrap_or_default();
    problem.get("reason").and_then(serde_json::Value::as_str).unwrap_or("no reason given").to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::load_generator::ResponseParts;
    use super::*;
    use bytes::Bytes;

    #[test]
    fn only_gateway_refusals_are_counted() {
        let request = traffic::generate(1, 0.0)
            .into_iter()
            .find(|request| request.label == ClientKind::Impostor)
            .expect("an impostor");
        let mut scoreboard = Scoreboard::default();
        let mut record = |status: u16, from_gateway: bool| {
            let mut parts = ResponseParts {
                status: http::StatusCode::from_u16(status).expect("a status"),
                headers: http::HeaderMap::new(),
                body: Bytes::from_static(br#"{"reason":"tier"}"#),
            };
            parts.headers.insert("retry-after", http::HeaderValue::from_static("17"));
            if from_gateway {
                parts.headers.insert("x-tidegate-decision", http::HeaderValue::from_static("1"));
            }
            scoreboard.record(&request, &DemoResponse { index: 0, result: Ok(parts) });
        };
        record(200, false);
        record(429, false);
        record(429, true);
        let row = scoreboard.row(ClientGroup::Impostors);
        assert_eq!((row.requests, row.refused, row.admitted(), row.retry_after), (3, 1, 2, Some(17)));
        assert_eq!(row.reasons["tier"], 1);
        assert_eq!(scoreboard.failed, 1);
        assert_eq!(scoreboard.example.as_ref().map(|example| example.status.as_u16()), Some(429));
        assert_eq!(scoreboard.actors[request.actor], *row);
    }
}
