//! Classification of a user agent: a bot, a browser, or no claim.
//!
//! Listed names are searched first, all in one pass. If none is found, a few heuristics detect unlisted bots. All other
//! user agents count as human: refusing a human for a rare browser costs more than missing a bot.
//!
//! Apps add their names to the complete user agent of a phone's browser, a WebView or Electron, and a list may contain
//! such a name, because the app's servers send it, too. There, a listed name counts only with further evidence: a
//! pattern of bots, a link, or a mark in the list.
//!
//! No result is proof. The claimed operator is returned for `verify` to confirm or deny.

mod bot_list;
mod browser;
mod browser_markers;
mod cache;
mod heuristics;
mod parsed;
mod people_words;
mod token;
mod unknown_program;

use std::collections::{HashMap, HashSet};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use bot_list::BotEntry;
use parsed::ParsedUserAgent;
use tidegate_policy::bot_detection::BrowserTraits;
use tidegate_policy::{BotId, Claim, OperatorId};
use token::Token;

pub use cache::ClaimCache;

/// Names and heuristic patterns of bots. A pattern that confirms a name is compiled at its first use.
#[derive(Debug)]
pub struct UserAgentMatcher {
    /// Automaton over all names in lower case, with half the transitions of both cases: one pass, however long the list.
    automaton: AhoCorasick,
    /// Meaning of each pattern of the automaton.
    pattern_kinds: Vec<PatternKind>,
    names: Vec<Box<str>>,
}

/// Meaning of a matched pattern.
#[derive(Debug)]
enum PatternKind {
    Bot(BotId, Token),
    /// A name that is not a bot's in a complete user agent of an app browser, unless further evidence confirms it.
    Name(BotId, Token),
    /// A name like that of an operator's bot, in another position than that of a product: a bot, but no claim of the
    /// operator.
    SimilarName(Token),
    Operator(BotId, OperatorId),
    Heuristic(heuristics::Heuristic),
}

/// A matched name. The earlier match wins; at the same position, the longer one.
type Match<T> = Option<(std::cmp::Reverse<usize>, usize, T)>;

impl UserAgentMatcher {
    /// Returns the matcher of the built-in list, with the product tokens of `operators`.
    ///
    /// The tokens are parameters because their table belongs to `verify`, on which this module does not depend.
    ///
    /// # Panics
    ///
    /// If the built-in list is invalid, which a test rules out.
    pub fn builtin<'a>(operators: impl IntoIterator<Item = (&'a str, OperatorId)>) -> UserAgentMatcher {
        let listed = bot_list::parse(include_str!("../../data/bots.tsv")).expect("a test parses the built-in list");
        UserAgentMatcher::new(listed, operators)
    }

    fn new<'a>(listed: Vec<BotEntry>, operators: impl IntoIterator<Item = (&'a str, OperatorId)>) -> UserAgentMatcher {
        let mut names = NameTable::default();
        let mut patterns = Vec::new();
        let mut kinds = Vec::new();
        let mut operator_bots = HashSet::new();
        for bot in listed {
            patterns.push(bot.token.literal().to_owned());
            let kind = if bot.counts_in_app_browsers { PatternKind::Bot } else { PatternKind::Name };
            kinds.push(kind(names.intern(&bot.name), bot.token));
        }
        for (token, operator) in operators {
            patterns.push(token.as_bytes().to_owned());
            let id = names.intern(token);
            operator_bots.insert(id);
            kinds.push(PatternKind::Operator(id, operator));
        }
        for (word, heuristic) in heuristics::PATTERNS {
            patterns.push(word.as_bytes().to_owned());
            kinds.push(PatternKind::Heuristic(*heuristic));
        }
        for kind in &mut kinds {
            if let PatternKind::Bot(id, token) | PatternKind::Name(id, token) = kind
                && operator_bots.contains(id)
            {
                *kind = PatternKind::SimilarName(token.clone());
            }
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            // One third of a megabyte instead of seven. The cache compensates for the slower walk.
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(patterns.iter().map(|pattern| pattern.to_ascii_lowercase()))
            .expect("a few thousand short patterns are far below the automaton's limits");
        UserAgentMatcher { automaton, pattern_kinds: kinds, names: names.by_id }
    }

    /// Returns the claim of this user agent, by its first [`MAX_USER_AGENT_BYTES`] bytes. A longer user agent is a
    /// bot's.
    pub fn claim(&self, user_agent: &[u8]) -> Claim {
        let whole = user_agent.trim_ascii();
        let agent = &whole[..whole.len().min(MAX_USER_AGENT_BYTES)];
        if agent.is_empty() || agent == b"-" {
            return Claim::NoUserAgent;
        }
        let agent = &ParsedUserAgent::new(agent);
        let mut bot: Match<BotId> = None;
        let mut unconfirmed: Match<BotId> = None;
        let mut operator: Match<(BotId, OperatorId)> = None;
        let mut is_unlisted_bot = whole.len() > MAX_USER_AGENT_BYTES
            || heuristics::is_bare_product(agent)
            || heuristics::is_library(agent)
            || heuristics::ends_with_site(agent)
            || unknown_program::is_unknown_program(agent);
        for matched in self.automaton.find_overlapping_iter(&agent.to_ascii_lowercase()) {
            let (at, end) = (matched.start(), matched.end());
            let rank = (std::cmp::Reverse(at), end);
            match &self.pattern_kinds[matched.pattern().as_usize()] {
                PatternKind::Bot(id, token) if token.matches(agent, at, end) => {
                    bot = bot.max(Some((rank.0, rank.1, *id)));
                }
                PatternKind::Name(id, token) if token.matches(agent, at, end) => {
                    let name = if agent.is_app_browser() { &mut unconfirmed } else { &mut bot };
                    *name = (*name).max(Some((rank.0, rank.1, *id)));
                }
                PatternKind::Operator(id, operator_id) if token::is_product(agent, at, end) => {
                    operator = operator.max(Some((rank.0, rank.1, (*id, *operator_id))));
                }
                PatternKind::SimilarName(token) => is_unlisted_bot |= token.matches(agent, at, end),
                // A name takes precedence over patterns.
                PatternKind::Heuristic(heuristic) if bot.is_none() && !is_unlisted_bot => {
                    is_unlisted_bot = heuristic.matches(agent, at, end);
                }
                _ => {}
            }
        }
        if unconfirmed.is_some() && (bot.is_some() || is_unlisted_bot || heuristics::contains_link(agent)) {
            bot = bot.max(unconfirmed);
        }
        match (operator, bot) {
            (Some((.., (bot, operator))), _) => Claim::Bot { bot: Some(bot), operator: Some(operator) },
            (None, Some((.., bot))) => Claim::Bot { bot: Some(bot), operator: None },
            (None, None) if is_unlisted_bot => Claim::Bot { bot: None, operator: None },
            (None, None) => Claim::Browser,
        }
    }

    /// Returns the features that the browser named by this user agent always has; none for an unknown browser.
    pub fn browser_traits(user_agent: &[u8]) -> BrowserTraits {
        let agent = user_agent.trim_ascii();
        browser::browser_traits(&agent[..agent.len().min(MAX_USER_AGENT_BYTES)])
    }

    /// Returns the name of a bot found by [`UserAgentMatcher::claim`].
    pub fn name(&self, bot: BotId) -> &str {
        &self.names[bot.index()]
    }
}

/// Maximum number of bytes examined. User agents of browsers are much shorter; longer ones are meant to be costly, or
/// to hide a name.
pub const MAX_USER_AGENT_BYTES: usize = 1024;

/// Assigns one id to each name, however many tokens it has.
#[derive(Default)]
struct NameTable {
    by_id: Vec<Box<str>>,
    by_name: HashMap<String, BotId>,
}

impl NameTable {
    fn intern(&mut self, name: &str) -> BotId {
        *self.by_name.entry(name.to_ascii_lowercase()).or_insert_with(|| {
            self.by_id.push(name.into());
            BotId::from_index(self.by_id.len() - 1)
        })
    }
}

#[cfg(test)]
mod tests;
