//! The bots of a log: whose they are, as far as addresses prove it, and how fast they come.

use super::request_rate::RequestRate;
use crate::policy::{BotId, Claim, OperatorId, Proof, Timestamp};
use crate::user_agents::UserAgentMatcher;
use crate::verify::OperatorTable;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Who a request is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequesterKind {
    /// Nothing says that it is a bot.
    Person,
    /// A bot that names nobody whose crawlers can be known, or whose own name nobody knows.
    Bot(Option<BotId>),
    /// The crawler of an operator, by its word; what its address makes of that.
    Crawler(OperatorId, Proof),
}

/// All of them. There are no more than names in our own lists.
#[derive(Default)]
pub(super) struct Bots {
    crawlers: BTreeMap<OperatorId, OperatorTraffic>,
    named: BTreeMap<BotId, RequestRate>,
    /// Bots by their shape alone.
    pub(super) unnamed: RequestRate,
    pub(super) people: RequestRate,
}

/// The crawlers of one operator.
#[derive(Clone, Debug, Default)]
pub(super) struct OperatorTraffic {
    /// Those at addresses that the operator publishes.
    pub(super) verified: RequestRate,
    /// Those at addresses that none of its crawlers has.
    pub(super) mismatched: RequestRate,
    /// Those of which addresses alone tell nothing.
    pub(super) unverified: RequestRate,
}

impl RequesterKind {
    /// Reads the user agent's word, and what the client's address makes of it.
    pub(super) fn of(claim: Claim, client: Option<IpAddr>, operators: &OperatorTable) -> Self {
        match claim {
            Claim::NoUserAgent | Claim::Browser => Self::Person,
            Claim::Bot { operator: Some(operator), .. } => {
                // Nothing is asked of DNS here, so it does not matter when.
                let proof = client.map(|client| operators.verify(operator, client, Timestamp::default()));
                Self::Crawler(operator, proof.unwrap_or_default())
            }
            Claim::Bot { bot, operator: None } => Self::Bot(bot),
        }
    }
}

impl Bots {
    pub(super) fn count(&mut self, who: RequesterKind, at: Timestamp) {
        let tally = match who {
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
        tally.count(at);
    }

    /// The crawlers of operators that are search engines, or that are none, busiest first.
    pub(super) fn crawlers<'a>(
        &'a self,
        operators: &'a OperatorTable,
        search: bool,
    ) -> Vec<(&'a str, &'a OperatorTraffic)> {
        let named = self.crawlers.iter().map(|(id, crawler)| (operators.name(*id), crawler));
        let mut crawlers: Vec<_> = named.filter(|(name, _)| SEARCH_ENGINES.contains(name) == search).collect();
        crawlers.retain(|(_, crawler)| crawler.may_be_genuine() > 0);
        crawlers.sort_by_key(|(_, crawler)| std::cmp::Reverse(crawler.may_be_genuine()));
        crawlers
    }

    /// Whose crawlers somebody pretends to be, and how often.
    pub(super) fn impostors<'a>(&self, operators: &'a OperatorTable) -> Vec<(&'a str, u64)> {
        let lied = self.crawlers.iter().map(|(id, crawler)| (operators.name(*id), crawler.mismatched.requests));
        busiest_first(lied.filter(|(_, requests)| *requests > 0).collect())
    }

    /// Bots that nothing can prove, busiest first; those that are libraries of programs, or those that are none.
    pub(super) fn others<'a>(
        &'a self,
        agents: &'a UserAgentMatcher,
        libraries: bool,
    ) -> Vec<(&'a str, &'a RequestRate)> {
        let named = self.named.iter().map(|(id, tally)| (agents.name(*id), tally));
        let mut bots: Vec<_> = named.filter(|(name, _)| is_library(name) == libraries).collect();
        bots.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.requests));
        bots
    }
}

impl OperatorTraffic {
    /// The requests that no address contradicts.
    pub(super) fn may_be_genuine(&self) -> u64 {
        self.verified.requests + self.unverified.requests
    }

    /// The larger part of these: addresses prove nearly all crawlers of some operators, and none of others.
    pub(super) fn genuine(&self) -> &RequestRate {
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

/// The operators whose crawlers bring visitors.
pub(super) const SEARCH_ENGINES: [&str; 10] = [
    "googlebot",
    "bingbot",
    "applebot",
    "duckduckbot",
    "yandexbot",
    "baiduspider",
    "yeti",
    "seznambot",
    "petalbot",
    "sogou",
];

/// What programs ask with whose authors gave them no name of their own.
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
