//! Totals of the demo: requests and refusals by group, counted from the gateway's responses.

use super::config::QUOTA;
use super::scrape::Scrape;
use super::traffic::{self, DemoRequest, UnitsByHour};
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Response, StatusCode};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tidegate_policy::ClientKind;

/// Totals that the live table and the summary show.
#[derive(Debug, Default)]
pub(super) struct Scoreboard {
    /// Time since the start of the day.
    pub(super) now: Duration,
    /// Used and reserved units of the quota, as counted by the gateway.
    pub(super) used: u64,
    /// Units that the origin reported for the requests of each hour.
    pub(super) units_by_hour: UnitsByHour,
    /// Totals by group, in the order of [`ClientGroup::ALL`].
    pub(super) rows: [Row; ClientGroup::ALL.len()],
    /// Totals by actor.
    pub(super) actors: BTreeMap<&'static str, Row>,
    /// Number of requests without a response, or with one that neither the origin nor a rule produces.
    pub(super) failed: u64,
    /// Example of a refused bot: the first impostor after noon, else the last refusal so far.
    pub(super) example: Option<(DemoRequest, Response<Bytes>)>,
}

/// Totals of a group of clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// Number of requests with a response.
    pub(super) requests: u64,
    /// Number of requests refused by a rule.
    pub(super) refused: u64,
    /// Number of admitted requests with a cost.
    pub(super) costly_admitted: u64,
    /// `Retry-After` of the last refusal, in seconds.
    pub(super) retry_after: Option<u64>,
    /// Reasons of refusals.
    pub(super) reasons: BTreeSet<String>,
}

/// True identity of clients, which the gateway does not receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientGroup {
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
    /// All groups with their names, in the order of the table.
    pub(super) const ALL: [(Self, &'static str); 5] = [
        (Self::People, "people"),
        (Self::SearchEngines, "search engines"),
        (Self::OtherBots, "other bots"),
        (Self::Scrapers, "scrapers"),
        (Self::Impostors, "impostors"),
    ];

    pub(super) fn from_request(request: &DemoRequest) -> Self {
        match request.label {
            ClientKind::Human => Self::People,
            _ if matches!(request.actor, "googlebot" | "bingbot" | "applebot") => Self::SearchEngines,
            ClientKind::VerifiedBot | ClientKind::DeclaredBot => Self::OtherBots,
            ClientKind::SuspectedBot => Self::Scrapers,
            ClientKind::Impostor => Self::Impostors,
        }
    }
}

impl Row {
    /// Returns the number of admitted requests.
    pub(super) fn admitted(&self) -> u64 {
        self.requests - self.refused
    }

    fn add(&mut self, request: &DemoRequest, refusal: Option<&str>, retry_after: Option<u64>) {
        self.requests += 1;
        match refusal {
            Some(reason) => {
                self.refused += 1;
                self.retry_after = retry_after.or(self.retry_after);
                self.reasons.insert(reason.to_owned());
            }
            None => self.costly_admitted += u64::from(request.cost > 0),
        }
    }
}

impl Scoreboard {
    /// Returns the totals of `group`.
    pub(super) fn row(&self, group: ClientGroup) -> &Row {
        &self.rows[group as usize]
    }

    /// Records the response to one request.
    pub(super) fn record(&mut self, request: &DemoRequest, response: anyhow::Result<Response<Bytes>>) {
        let Ok(response) = response else {
            self.failed += 1;
            return;
        };
        let refusal = refusal_reason(&response);
        self.failed += u64::from(refusal.is_none() && !response.status().is_success());
        let cost = response.headers().get("x-api-cost").and_then(|units| units.to_str().ok()?.parse().ok());
        self.units_by_hour[traffic::hour(request.at)] += cost.unwrap_or(0);
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|seconds| seconds.to_str().ok()?.parse().ok());
        let group = ClientGroup::from_request(request);
        for row in [&mut self.rows[group as usize], self.actors.entry(request.actor).or_default()] {
            row.add(request, refusal.as_deref(), retry_after);
        }
        let has_good_example = self.example.as_ref().is_some_and(|(request, _)| is_good_example(request));
        if refusal.is_some() && group != ClientGroup::People && !has_good_example {
            self.example = Some((request.clone(), response));
        }
    }

    /// Reads the gateway's usage of the quota from a scrape.
    pub(super) fn read(&mut self, scrape: &Scrape) {
        let quota = format!("quota=\"{QUOTA}\"");
        self.used = (scrape.sum("tidegate_quota_used", &quota) + scrape.sum("tidegate_quota_reserved", &quota)) as u64;
    }
}

/// Returns the reason for which a rule of the gateway refused a request; `None` if it was admitted.
fn refusal_reason(response: &Response<Bytes>) -> Option<String> {
    let by_rule = matches!(response.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    // Only responses that the gateway generates itself have this header.
    if !by_rule || !response.headers().contains_key("x-tidegate-decision") {
        return None;
    }
    let problem: serde_json::Value = serde_json::from_slice(response.body()).unwrap_or_default();
    Some(problem["reason"].as_str().unwrap_or("no reason given").to_owned())
}

/// Returns true for a request of an impostor in the second half of the day.
fn is_good_example(request: &DemoRequest) -> bool {
    request.label == ClientKind::Impostor && request.at >= traffic::DAY / 2
}

#[cfg(test)]
mod tests {
    use super::super::day;
    use super::*;

    fn response(status: u16, header: &str) -> anyhow::Result<Response<Bytes>> {
        let response = Response::builder().status(status).header("retry-after", "17").header(header, "1");
        Ok(response.body(Bytes::from_static(br#"{"reason":"tier"}"#))?)
    }

    #[test]
    fn only_gateway_refusals_are_counted() {
        let day = day::generate(1, 0.0);
        let request = day.iter().find(|request| request.label == ClientKind::Impostor).expect("an impostor");
        let mut scoreboard = Scoreboard::default();
        scoreboard.record(request, response(200, "x-origin"));
        scoreboard.record(request, response(429, "x-origin"));
        scoreboard.record(request, response(429, "x-tidegate-decision"));
        let row = scoreboard.row(ClientGroup::Impostors);
        assert_eq!((row.requests, row.refused, row.admitted(), row.retry_after), (3, 1, 2, Some(17)));
        assert!(row.reasons.contains("tier"));
        assert_eq!(scoreboard.failed, 1);
        assert_eq!(scoreboard.example.as_ref().map(|(_, response)| response.status().as_u16()), Some(429));
        assert_eq!(scoreboard.actors[request.actor], *row);
    }

    #[test]
    fn groups_and_actors_add_up_to_all_responses() {
        let day = day::generate(2, 0.01);
        let mut scoreboard = Scoreboard::default();
        for (index, request) in day.iter().enumerate() {
            let status = if index % 3 == 0 { 429 } else { 200 };
            scoreboard.record(request, response(status, "x-tidegate-decision"));
        }
        let refused = day.len().div_ceil(3) as u64;
        let sum = |rows: &mut dyn Iterator<Item = &Row>| {
            rows.fold((0, 0), |sum, row| (sum.0 + row.requests, sum.1 + row.refused))
        };
        assert_eq!(sum(&mut scoreboard.rows.iter()), (day.len() as u64, refused));
        assert_eq!(sum(&mut scoreboard.actors.values()), (day.len() as u64, refused));
        assert_eq!(scoreboard.failed, 0);
    }
}
