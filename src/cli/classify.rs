//! `tidegate classify`: classifies each line of standard input by the user-agent stage alone.

use std::io::{self, BufRead, Write};

use serde::Serialize;

use tidegate_policy::class::UserAgentRules;
use tidegate_policy::{Claim, ClientKind};

use tidegate_crawlers::user_agents::UserAgentMatcher;
use tidegate_replay::terminal::json_line;

/// Classifies each line of `input` and writes one line each, in order: kind, tab, name of the bot or `-`; or one JSON
/// object.
///
/// Lines may have any length and need not be UTF-8.
pub fn run(
    agents: &UserAgentMatcher,
    rules: &UserAgentRules,
    mut input: impl BufRead,
    mut output: impl Write,
    json: bool,
) -> io::Result<()> {
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        let result = ClassifiedLine::classify(agents, rules, &line);
        if json {
            output.write_all(json_line(&result)?.as_bytes())?;
        } else {
            writeln!(output, "{}\t{}", result.kind, result.bot.unwrap_or("-"))?;
        }
        line.clear();
    }
    output.flush()
}

#[derive(Serialize)]
struct ClassifiedLine<'a> {
    kind: &'static str,
    bot: Option<&'a str>,
}

impl<'a> ClassifiedLine<'a> {
    fn classify(agents: &'a UserAgentMatcher, rules: &UserAgentRules, line: &[u8]) -> ClassifiedLine<'a> {
        if let Some((_, kind)) = rules.find(line) {
            return ClassifiedLine { kind: kind.name(), bot: None };
        }
        match agents.claim(line) {
            Claim::Bot { bot, .. } => {
                ClassifiedLine { kind: ClientKind::DeclaredBot.name(), bot: bot.map(|bot| agents.name(bot)) }
            }
            // A missing user agent is no evidence of a bot: proxies and privacy tools remove it, and a refused person
            // costs more than a missed bot. Later stages evaluate the client's behavior.
            Claim::Browser | Claim::NoUserAgent => ClassifiedLine { kind: ClientKind::Human.name(), bot: None },
        }
    }
}
