//! The state of the demonstration: who asked, who was served, what it cost. Filled from what the gate answered.

use super::load_generator::DemoResponse;
use super::scrape::Scrape;
use super::traffic::{self, DemoRequest};
use crate::policy::ClientKind;
use std::collections::BTreeMap;
use std::time::Duration;

/// Everything that the live table and the summary show.
#[derive(Clone, Debug, Default)]
pub struct Scoreboard {
    /// How far the day has come.
    pub now: Duration,
    /// The quota, as the gate counts it.
    pub quota: Gauge,
    /// From these shares of the quota on, in percent, search engines are shed.
    pub marks: Vec<f64>,
    /// One row a group, in the order of [`Group::ALL`].
    pub rows: [Row; Group::ALL.len()],
    /// One row an actor of the story.
    pub actors: BTreeMap<&'static str, Row>,
    /// Requests that got no answer, or one that the origin does not give.
    pub failed: u64,
    /// A refusal of somebody who is no person: the first impostor's after noon, or the last before one came.
    pub example: Option<Example>,
}

/// A quota as a bar shows it, in units.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauge {
    /// What was bought.
    pub limit: f64,
    /// What is spent.
    pub used: f64,
}

/// What some clients asked for and got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Requests answered.
    pub requests: u64,
    /// Of them, refused by rule.
    pub refused: u64,
    /// Pages of those that cost something.
    pub costly: u64,
    /// Of them, refused.
    pub costly_refused: u64,
    /// The wait that the last refused one was told, in seconds.
    pub retry_after: Option<u64>,
    /// Refusals by reason.
    pub reasons: BTreeMap<String, u64>,
}

/// A refusal as its client saw it.
#[derive(Clone, Debug)]
pub struct Example {
    /// Who was refused.
    pub visit: DemoRequest,
    /// The status.
    pub status: http::StatusCode,
    /// The fields that matter, in order.
    pub headers: Vec<(String, String)>,
    /// The problem document.
    pub body: String,
}

/// Who clients really are, as the story knows; the gate is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// People.
    People,
    /// Google, Bing and Apple.
    SearchEngines,
    /// Whoever else says that it is a bot.
    OtherBots,
    /// Bots that say they are browsers.
    Scrapers,
    /// Bots that say they are somebody else's.
    Impostors,
}

impl Group {
    /// All groups, in the order of the table.
    pub const ALL: [Self; 5] = [Self::People, Self::SearchEngines, Self::OtherBots, Self::Scrapers, Self::Impostors];

    /// Where a visit belongs.
    pub fn of(visit: &DemoRequest) -> Self {
        match visit.label {
            ClientKind::Human => Self::People,
            ClientKind::VerifiedBot if matches!(visit.actor, "googlebot" | "bingbot" | "applebot") => {
                Self::SearchEngines
            }
            ClientKind::VerifiedBot | ClientKind::DeclaredBot => Self::OtherBots,
            ClientKind::SuspectedBot => Self::Scrapers,
            ClientKind::Impostor => Self::Impostors,
        }
    }

    /// What the table calls it.
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
    /// Requests that were served.
    pub fn admitted(&self) -> u64 {
        self.requests - self.refused
    }

    fn add(&mut self, visit: &DemoRequest, refusal: Option<(&str, Option<u64>)>) {
        let costly = u64::from(visit.cost > 0);
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
    /// The row of `group`.
    pub fn row(&self, group: Group) -> &Row {
        &self.rows[group as usize]
    }

    /// Enters what one visit was told.
    pub fn record(&mut self, visit: &DemoRequest, heard: &DemoResponse) {
        let Ok(answer) = &heard.answer else {
            self.failed += 1;
            return;
        };
        let problem = answer.is_refusal().then(|| reason(&answer.body));
        if problem.is_none() && !answer.status.is_success() {
            self.failed += 1;
        }
        let refusal = problem.as_deref().map(|reason| (reason, answer.retry_after()));
        let group = Group::of(visit);
        self.rows[group as usize].add(visit, refusal);
        self.actors.entry(visit.actor).or_default().add(visit, refusal);
        if refusal.is_some() && group != Group::People && !self.example.as_ref().is_some_and(is_good_example) {
            let shown = HEADERS_SHOWN.iter().filter_map(|name| {
                let value = answer.headers.get(*name)?.to_str().ok()?;
                Some(((*name).to_owned(), value.to_owned()))
            });
            self.example = Some(Example {
                visit: visit.clone(),
                status: answer.status,
                headers: shown.collect(),
                body: String::from_utf8_lossy(&answer.body).into_owned(),
            });
        }
    }

    /// Enters what the gate says of the quota called `name`.
    pub fn read(&mut self, scrape: &Scrape, name: &str) {
        let of_quota = [("quota", name)];
        let gauge = |metric| scrape.sum(metric, &of_quota);
        self.quota = Gauge {
            limit: gauge("tidegate_quota_limit"),
            used: gauge("tidegate_quota_used") + gauge("tidegate_quota_reserved"),
        };
    }
}

/// Early enough that there is still a day to wait for.
fn is_good_example(example: &Example) -> bool {
    example.visit.label == ClientKind::Impostor && example.visit.at >= traffic::LENGTH / 2
}

/// The fields of a refusal that a client should look at.
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
    fn a_refusal_is_one_that_the_gate_made_itself() {
        let visit = traffic::generate(1, 0.0)
            .into_iter()
            .find(|visit| visit.label == ClientKind::Impostor)
            .expect("an impostor");
        let mut board = Scoreboard::default();
        let mut hears = |status: u16, by_gate: bool| {
            let mut answer = ResponseParts {
                status: http::StatusCode::from_u16(status).expect("a status"),
                headers: http::HeaderMap::new(),
                body: Bytes::from_static(br#"{"reason":"tier"}"#),
            };
            answer.headers.insert("retry-after", http::HeaderValue::from_static("17"));
            if by_gate {
                answer.headers.insert("x-tidegate-decision", http::HeaderValue::from_static("1"));
            }
            board.record(&visit, &DemoResponse { visit: 0, answer: Ok(answer) });
        };
        hears(200, false);
        hears(429, false);
        hears(429, true);
        let row = board.row(Group::Impostors);
        assert_eq!((row.requests, row.refused, row.admitted(), row.retry_after), (3, 1, 2, Some(17)));
        assert_eq!(row.reasons["tier"], 1);
        assert_eq!(board.failed, 1);
        assert_eq!(board.example.as_ref().map(|example| example.status.as_u16()), Some(429));
        assert_eq!(board.actors[visit.actor], *row);
    }
}
