//! Parser of the bot list `data/bots.tsv`: name, token, a pattern that must confirm the token, and a mark.

use super::token::{Pattern, Token};

/// An entry of the list.
#[derive(Debug)]
pub(super) struct BotEntry {
    pub(super) name: String,
    pub(super) token: Token,
    /// True if the token suffices in the complete user agent of an app browser, where other tokens need further
    /// evidence.
    pub(super) counts_in_app_browsers: bool,
}

/// An invalid line of the list.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the bot list: {message}")]
pub(super) struct BotListError {
    line: usize,
    message: String,
}

pub(super) fn parse(text: &str) -> Result<Vec<BotEntry>, BotListError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(index, line)| parse_line(line).map_err(|error| BotListError { line: index + 1, message: error }))
        .collect()
}

fn parse_line(line: &str) -> Result<BotEntry, String> {
    let mut fields = line.split('\t');
    let (Some(name), Some(token)) = (fields.next(), fields.next()) else {
        return Err("expected a name, a tab and a token".to_owned());
    };
    if name.is_empty() || token.trim_matches('*').len() < 2 {
        return Err(format!("token `{token}` is too short"));
    }
    let confirm = fields.next().filter(|pattern| !pattern.is_empty()).map(Pattern::new);
    let counts_in_app_browsers = match fields.next() {
        None => false,
        Some(APP_BROWSER_MARK) => true,
        Some(mark) => return Err(format!("mark `{mark}`; expected `{APP_BROWSER_MARK}`")),
    };
    Ok(BotEntry { name: name.to_owned(), token: Token::new(token, confirm), counts_in_app_browsers })
}

/// Mark of the tokens that no app of people sends: automated browsers and tests of sites.
const APP_BROWSER_MARK: &str = "app-browsers";
