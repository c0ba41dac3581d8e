//! Product tokens, and the positions in a user agent in which they count.

use regex::bytes::{Regex, RegexBuilder};
use std::sync::OnceLock;

use super::parsed::ParsedUserAgent;

/// A token that matches as a whole word: no letter or digit may precede or follow, unless the list allows it.
#[derive(Clone, Debug)]
pub(super) struct Token {
    literal: Box<[u8]>,
    allows_prefix: bool,
    allows_suffix: bool,
    confirm: Option<Pattern>,
}

/// A pattern of a user agent, case-insensitive. Compiled when it is first used: most of them never are.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    text: Box<str>,
    compiled: OnceLock<Regex>,
}

impl Pattern {
    pub(super) fn new(text: &str) -> Self {
        Self { text: text.into(), compiled: OnceLock::new() }
    }

    pub(super) fn compile(&self) -> Result<Regex, regex::Error> {
        RegexBuilder::new(&self.text).case_insensitive(true).unicode(false).build()
    }

    fn is_match(&self, agent: &[u8]) -> bool {
        self.compiled.get_or_init(|| self.compile().expect("a test compiles the patterns of the list")).is_match(agent)
    }
}

impl Token {
    /// Parses `token`, `*token`, `token*` or `*token*`. The asterisk allows further letters on that side.
    pub(super) fn new(text: &str, confirm: Option<Pattern>) -> Token {
        Token {
            literal: text.trim_matches('*').as_bytes().into(),
            allows_prefix: text.starts_with('*'),
            allows_suffix: text.ends_with('*'),
            confirm,
        }
    }

    pub(super) fn literal(&self) -> &[u8] {
        &self.literal
    }

    /// Returns the pattern that must confirm the token.
    #[cfg(test)]
    pub(super) fn confirm(&self) -> Option<&Pattern> {
        self.confirm.as_ref()
    }

    /// Returns whether the match at `at..end` is this token and not a part of another word.
    pub(super) fn matches(&self, agent: &ParsedUserAgent<'_>, at: usize, end: usize) -> bool {
        let starts = self.allows_prefix || !continues_word(byte_before(agent, at), agent[at]);
        let ends = self.allows_suffix || !continues_word(byte_after(agent, end), agent[end - 1]);
        starts
            && ends
            && !is_device_model(agent, at, end)
            && self.confirm.as_ref().is_none_or(|pattern| pattern.is_match(agent))
    }
}

/// Returns whether `at..end` is a product: not a part of a longer name, a link or an address, and not a comparison
/// (`like FeedFetcher-Google`).
pub(super) fn is_product(agent: &[u8], at: usize, end: usize) -> bool {
    // Some clients and logs write `+` for a space. Invisible characters end a name.
    let opens = byte_before(agent, at).is_none_or(|byte| !byte.is_ascii_graphic() || b"+;,([{\"'".contains(&byte));
    let closes = byte_after(agent, end).is_none_or(|byte| !byte.is_ascii_graphic() || b"+/;,:)]}\"'".contains(&byte));
    // A colon may follow a name, but not start a link.
    let link = agent[end..].starts_with(b"://");
    opens && closes && !link && !is_comparison(&agent[..at])
}

fn is_comparison(before: &[u8]) -> bool {
    let before = before.trim_ascii_end();
    let Some(rest) = before.len().checked_sub(4) else {
        return false;
    };
    before[rest..].eq_ignore_ascii_case(b"like") && !before[..rest].last().is_some_and(u8::is_ascii_alphanumeric)
}

/// Returns whether `at..end` is part of a phone's device model. Models have arbitrary names (FEVER, Spider 8, HTC
/// Butterfly). With a version, it is a product nevertheless.
pub(super) fn is_device_model(agent: &ParsedUserAgent<'_>, at: usize, end: usize) -> bool {
    agent.model().contains(&at) && agent[end - 1] != b'/' && byte_after(agent, end) != Some(b'/')
}

fn continues_word(beyond: Option<u8>, edge: u8) -> bool {
    edge.is_ascii_alphanumeric() && beyond.is_some_and(|byte| byte.is_ascii_alphanumeric())
}

pub(super) fn byte_before(agent: &[u8], at: usize) -> Option<u8> {
    agent[..at].last().copied()
}

pub(super) fn byte_after(agent: &[u8], end: usize) -> Option<u8> {
    agent.get(end).copied()
}
