//! Bots of a log: their operators, verified by address only, and their request rates.

use super::request_rate::RequestRate;
use std::collections::BTreeMap;
use std::net::IpAddr;
use tidegate_config::SEARCH_ENGINES;
use tidegate_crawlers::user_agents::UserAgentMatcher;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_policy::{BotId, Claim, OperatorId, Proof, Timestamp};

/// Kind of the client of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequesterKind {
    /// No evidence of a bot.
    Person,
    /// A bot without a known operator; `None` if its name is unknown, too.
    Bot(Option<BotId>),
    /// A crawler that claims an operator, and the proof by its address.
    Crawler(OperatorId, Proof),
}

/// Request rates of all bots. Bounded by the number of names in the built-in lists.
#[derive(Default)]
pub(super) struct BotTraffic {
    crawlers: BTreeMap<OperatorId, OperatorTraffic>,
    named: BTreeMap<BotId, RequestRate>,
    /// Bots recognized only by the form of their user agent.
    pub(super) unnamed: RequestRate,
    pub(super) people: RequestRate,
}

/// Traffic that claims one operator.
#[derive(Clone, Debug, Default)]
pub(super) struct OperatorTraffic {
    /// Requests from addresses that the operator publishes.
    pub(super) verified: RequestRate,
    /// Requests from addresses that disprove the claim.
    pub(super) mismatched: RequestRate,
    /// Requests whose address neither verifies nor disproves the claim.
    pub(super) unverified: RequestRate,
}

impl RequesterKind {
    /// Classifies a client by the claim of its user agent and its address.
    pub(super) fn classify(claim: Claim, client: Option<IpAddr>, operators: &OperatorTable) -> Self {
        match claim {
            Claim::NoUserAgent | Claim::Browser => Self::Person,
            Claim::Bot { operator: Some(operator), .. } => {
                // DNS is not queried, so the time is irrelevant.
                let proof = client.map(|client| operators.verify(operator, client, Timestamp::default()));
                Self::Crawler(operator, proof.unwrap_or_default())
            }
            Claim::Bot { bot, operator: None } => Self::Bot(bot),
        }
    }
}

impl BotTraffic {
    pub(super) fn count(&mut self, requester: RequesterKind, at: Timestamp) {
        let rate = match requester {
            RequesterKind::Person => &mut self.people,
            RequesterKind::Bot(None) => &mut self.unnamed,
            RequesterKind::Bot(Some(bot)) => self.named.entry(bot).or_default(),
            RequesterKind::Crawler(operator, proof) => {
                let crawler = self.crawlers.entry(operator).or_default();
                match proof {
                    Proof::Proven(_) => &mut crawler.verified,
                    Proof::Disproven(_) => &mut crawler.mismatched,
                    Proof::Unknown | Proof::PrivateAddress => &mut crawler.unverified,
                }
            }
        };
        rate.count(at);
    }

    /// Returns the traffic by operator of search engines, or of all other operators, busiest first.
    pub(super) fn crawlers<'a>(
        &'a self,
        operators: &'a OperatorTable,
        search: bool,
    ) -> Vec<(&'a str, &'a OperatorTraffic)> {
        let named = self.crawlers.iter().map(|(id, crawler)| (operators.name(*id), crawler));
        let mut crawlers: Vec<_> = named.filter(|(name, _)| SEARCH_ENGINES.contains(name) == search).collect();
        crawlers.retain(|(_, crawler)| crawler.plausible_requests() > 0);
        crawlers.sort_by_key(|(_, crawler)| std::cmp::Reverse(crawler.plausible_requests()));
        crawlers
    }

    /// Returns the falsely claimed operators and the number of such requests, most frequent first.
    pub(super) fn impostors<'a>(&self, operators: &'a OperatorTable) -> Vec<(&'a str, u64)> {
        let mismatched = self.crawlers.iter().map(|(id, crawler)| (operators.name(*id), crawler.mismatched.requests));
        busiest_first(mismatched.filter(|(_, requests)| *requests > 0).collect())
    }

    /// Returns bots that cannot be verified, busiest first: HTTP libraries, or all others.
    pub(super) fn unverifiable_bots<'a>(
        &'a self,
        agents: &'a UserAgentMatcher,
        libraries: bool,
    ) -> Vec<(&'a str, &'a RequestRate)> {
        let named = self.named.iter().map(|(id, rate)| (agents.name(*id), rate));
        let mut bots: Vec<_> = named.filter(|(name, _)| is_library(name) == libraries).collect();
        bots.sort_by_key(|(_, rate)| std::cmp::Reverse(rate.requests));
        bots
    }
}

impl OperatorTraffic {
    /// Returns the number of requests whose address does not disprove the claim.
    pub(super) fn plausible_requests(&self) -> u64 {
        self.verified.requests + self.unverified.requests
    }

    /// Returns the larger of verified and unverified traffic: addresses verify nearly all crawlers of some operators,
    /// and none of others.
    pub(super) fn larger_rate(&self) -> &RequestRate {
        if self.verified.requests >= self.unverified.requests { &self.verified } else { &self.unverified }
    }
}

fn busiest_first(mut counts: Vec<(&str, u64)>) -> Vec<(&str, u64)> {
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

fn is_library(name: &str) -> bool {
    LIBRARIES.iter().any(|library| library.eq_ignore_ascii_case(name))
}

/// HTTP libraries, whose default user agent is sent by programs that set none.
const LIBRARIES: [&str; 19] = [
    "python-requests",
    "Python-urllib",
    "python-httpx",
    "aiohttp",
    "curl",
    "wget",
    "Go-http-client",
    "okhttp",
    "axios",
    "node-fetch",
    "undici",
    "Java",
    "Apache-HttpClient",
    "libwww-perl",
    "GuzzleHttp",
    "Scrapy",
    "reqwest",
    "fasthttp",
    "HTTPie",
];
