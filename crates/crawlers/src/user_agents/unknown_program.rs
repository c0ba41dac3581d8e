//! User agents of programs that no list names: what is no browser and no device of people is a program.

use super::browser_markers::contains;
use super::parsed::ParsedUserAgent;
use super::token::{byte_after, byte_before};
use aho_corasick::{AhoCorasick, AhoCorasickKind};
use std::sync::LazyLock;

/// Words of systems, makers, browsers and apps.
static PEOPLE_WORDS: LazyLock<AhoCorasick> = LazyLock::new(|| automaton(words(WORD_LIST)));

/// Those of apps alone.
static APP_WORDS: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let (_, apps) = WORD_LIST.split_once("# Apps").expect("the list has a section of apps");
    automaton(words(apps))
});

const WORD_LIST: &str = include_str!("../../data/people-words.txt");

/// Runtimes and libraries of programs: their own names, wherever they stand.
const RUNTIMES: &[&str] = &[
    "aiohttp",
    "axios",
    "bun",
    "deno",
    "go-http-client",
    "guzzlehttp",
    "httpx",
    "jsdom",
    "libwww-perl",
    "node-fetch",
    "node.js",
    "nodejs",
    "powershell",
    "pycurl",
    "python-requests",
    "python-urllib",
    "reqwest",
    "undici",
    "urllib3",
    "windowspowershell",
];

static RUNTIME_NAMES: LazyLock<AhoCorasick> =
    LazyLock::new(|| automaton(RUNTIMES.iter().map(|name| (*name).to_owned())));

/// Marks of a template that was not filled in, or of an attack through the user agent.
const TEMPLATE_MARKS: &[&[u8]] = &[b"${", b"{{", b"() {", b"<script", b"<img", b"<iframe", b"<?php", b"union select"];

fn automaton(words: impl Iterator<Item = String>) -> AhoCorasick {
    let builder =
        AhoCorasick::builder().ascii_case_insensitive(true).kind(Some(AhoCorasickKind::ContiguousNFA)).build(words);
    builder.expect("a few hundred short words are far below the automaton's limits")
}

fn words(list: &str) -> impl Iterator<Item = String> {
    let words = list.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_ascii_whitespace);
    words.map(|word| word.replace('+', " "))
}

/// Returns whether a program sends this user agent, as its shape shows.
pub(super) fn is_unknown_program(agent: &ParsedUserAgent<'_>) -> bool {
    **agent == *b"Mozilla/5.0 (compatible)"
        || is_nameless(agent)
        || is_template(agent)
        || names_runtime(agent) && !agent.is_app_browser()
        || has_word_before_mozilla(agent)
}

/// Returns whether the string has no word of people's devices: a name without a version (`woot woot`), or a product that is
/// neither `Mozilla/` nor `Opera/` (`tutorial/1.0`). Numbers and abbreviations alone say nothing.
fn is_nameless(agent: &[u8]) -> bool {
    let is_product = agent.contains(&b'/');
    let claims_browser = [&b"Mozilla/"[..], b"Opera/"].iter().any(|start| agent.starts_with(start));
    let letters = agent.iter().filter(|byte| byte.is_ascii_alphabetic()).count();
    let is_word = agent.iter().all(u8::is_ascii_alphanumeric);
    letters >= if is_word { MIN_WORD_LETTERS } else { MIN_LETTERS }
        && !(is_product && claims_browser)
        && !PEOPLE_WORDS.is_match(agent)
}

/// Letters below which a string says nothing.
const MIN_LETTERS: usize = 6;

/// The same of a single word.
const MIN_WORD_LETTERS: usize = 10;

fn is_template(agent: &[u8]) -> bool {
    let lower = agent.to_ascii_lowercase();
    TEMPLATE_MARKS.iter().any(|mark| contains(&lower, mark))
}

fn names_runtime(agent: &[u8]) -> bool {
    RUNTIME_NAMES.find_iter(agent).any(|found| {
        let is_start = !byte_before(agent, found.start()).is_some_and(|byte| byte.is_ascii_alphanumeric());
        is_start && !byte_after(agent, found.end()).is_some_and(|byte| byte.is_ascii_alphanumeric())
    })
}

/// Returns whether a name of letters alone is in front of `Mozilla/`; phones put their model there, with digits.
fn has_word_before_mozilla(agent: &[u8]) -> bool {
    let name = agent.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    name >= 3 && agent[name..].starts_with(b" Mozilla/")
}

/// Returns whether an app of people sends this: a player, a reader or a mail program, which adds its version and its site.
pub(super) fn is_app_of_people(agent: &[u8]) -> bool {
    APP_WORDS.is_match(agent)
}
