//! A product token, and where in a user agent it counts.

use regex::bytes::Regex;

use super::parsed::ParsedUserAgent;

/// A token to be found as a word of its own: a letter or digit at its end may not go on, unless the list says so.
#[derive(Clone, Debug)]
pub(super) struct Token {
    literal: Box<[u8]>,
    free_before: bool,
    free_after: bool,
    confirm: Option<Regex>,
}

impl Token {
    /// Reads `token`, `*token`, `token*` or `*token*`: letters may go on where the asterisk is.
    pub(super) fn new(written: &str, confirm: Option<Regex>) -> Token {
        Token {
            literal: written.trim_matches('*').as_bytes().into(),
            free_before: written.starts_with('*'),
            free_after: written.ends_with('*'),
            confirm,
        }
    }

    pub(super) fn literal(&self) -> &[u8] {
        &self.literal
    }

    /// Returns whether what was found at `at..end` is this token and not a part of another word.
    pub(super) fn matches(&self, agent: &ParsedUserAgent<'_>, at: usize, end: usize) -> bool {
        let starts = self.free_before || !continues_word(before(agent, at), agent[at]);
        let ends = self.free_after || !continues_word(after(agent, end), agent[end - 1]);
        starts && ends && !is_model(agent, at, end) && self.confirm.as_ref().is_none_or(|regex| regex.is_match(agent))
    }
}

/// Returns whether `at..end` stands as a product of its own: not a part of a longer name, a link or an address, and
/// not merely what the agent likens itself to (`like FeedFetcher-Google`).
pub(super) fn is_product(agent: &[u8], at: usize, end: usize) -> bool {
    // Some clients and logs write `+` for a space; what cannot be seen hides no name.
    let opens = before(agent, at).is_none_or(|byte| !byte.is_ascii_graphic() || b"+;,([{\"'".contains(&byte));
    let closes = after(agent, end).is_none_or(|byte| !byte.is_ascii_graphic() || b"+/;,:)]}\"'".contains(&byte));
    // A colon may follow a name, but not open a link.
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

/// Returns whether `at..end` stands where a telephone gives its model: models are called anything (FEVER, Spider 8,
/// HTC Butterfly). A version behind it makes it a product all the same.
pub(super) fn is_model(agent: &ParsedUserAgent<'_>, at: usize, end: usize) -> bool {
    agent.model().contains(&at) && agent[end - 1] != b'/' && after(agent, end) != Some(b'/')
}

fn continues_word(beyond: Option<u8>, edge: u8) -> bool {
    edge.is_ascii_alphanumeric() && beyond.is_some_and(|byte| byte.is_ascii_alphanumeric())
}

pub(super) fn before(agent: &[u8], at: usize) -> Option<u8> {
    agent[..at].last().copied()
}

pub(super) fn after(agent: &[u8], end: usize) -> Option<u8> {
    agent.get(end).copied()
}
