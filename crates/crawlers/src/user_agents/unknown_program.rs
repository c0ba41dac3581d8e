//! User agents of programs that no list names: what is no browser and no device of people is a program.

use super::browser_markers::contains;
use super::parsed::ParsedUserAgent;
use super::people_words::{names_app, names_people};
use super::token::{byte_after, byte_before};
use aho_corasick::{AhoCorasick, AhoCorasickKind};
use std::sync::LazyLock;

/// Runtimes and libraries of programs, and what they write of themselves next to the name of a program. A name counts as a whole
/// word.
#[rustfmt::skip] // one name per line would take too many lines
const RUNTIMES: &[&str] = &[
    "aiohttp", "axios", "bun", "curl", "deno", "go-http-client", "guzzlehttp", "happy-dom", "happydom", "httpx",
    "jsdom", "libcurl", "libwww-perl", "lightpanda", "node-fetch", "node.js", "nodejs", "powershell", "pycurl",
    "python-requests", "python-urllib", "reqwest", "undici", "urllib3", "wget", "windowspowershell",
    "python/", "ruby/", "perl/", "php/", "node/", "node-v1", "node-v2", "go/go1", "(go 1", "; go 1", "go1.",
    "linux/amd64", "linux/arm64", "linux-amd64", "linux-arm64", "linux-x64", "linux; amd64", "linux; arm64",
    "darwin/amd64", "darwin/arm64", "darwin; arm64", "darwin-arm64", "windows/amd64", "windows; amd64", "win32-x64",
];

static RUNTIME_NAMES: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let builder =
        AhoCorasick::builder().ascii_case_insensitive(true).kind(Some(AhoCorasickKind::ContiguousNFA)).build(RUNTIMES);
    builder.expect("a few dozen short words are far below the automaton's limits")
});

/// Marks of a template that was not filled in, or of an attack through the user agent.
const TEMPLATE_MARKS: &[&[u8]] = &[b"${", b"{{", b"() {", b"<script", b"<img", b"<iframe", b"<?php", b"union select"];

/// Returns whether a program sends this user agent, as its shape shows.
pub(super) fn is_unknown_program(agent: &ParsedUserAgent<'_>) -> bool {
    **agent == *b"Mozilla/5.0 (compatible)"
        || is_nameless(agent)
        || is_template(agent)
        || names_runtime(agent) && !agent.is_app_browser()
        || has_word_before_mozilla(agent)
        || is_misspelt_mozilla(agent)
}

/// Returns whether the string has no word of people's devices: a name without a version (`woot woot`), or a product that is
/// neither `Mozilla/` nor `Opera/` (`tutorial/1.0`). Numbers and abbreviations alone say nothing.
fn is_nameless(agent: &[u8]) -> bool {
    let claims_browser = [&b"Mozilla/"[..], b"Opera/"].iter().any(|start| agent.starts_with(start));
    let letters = agent.iter().filter(|byte| byte.is_ascii_alphabetic()).count();
    let is_long_enough = match (agent.contains(&b'/'), agent.iter().all(u8::is_ascii_alphanumeric)) {
        (true, _) => !claims_browser && letters >= MIN_PRODUCT_LETTERS,
        (false, false) => letters >= MIN_LETTERS,
        (false, true) if letters < agent.len() => letters >= MIN_MIXED_LETTERS,
        // An abbreviation, or a word in place of the user agent.
        (false, true) if letters <= MIN_LETTERS && agent.iter().all(u8::is_ascii_uppercase) => false,
        (false, true) => letters >= MIN_LETTERS && !PLACEHOLDERS.iter().any(|word| agent.eq_ignore_ascii_case(word)),
    };
    is_long_enough && !names_people(agent)
}

/// Letters below which a string says nothing.
const MIN_LETTERS: usize = 4;

/// The same of a product with a version.
const MIN_PRODUCT_LETTERS: usize = 2;

/// The same of a single word with digits, which may be a phone's model.
const MIN_MIXED_LETTERS: usize = 8;

/// Words that privacy tools of people, proxies and broken configurations put in place of the user agent.
#[rustfmt::skip]
const PLACEHOLDERS: &[&[u8]] = &[
    b"agent", b"anonymous", b"array", b"backend", b"default", b"desktop", b"filter", b"generic", b"google", b"hidden", b"like",
    b"mobile", b"null", b"other", b"phone", b"private", b"request", b"smartphone", b"something", b"tablet", b"unknown",
];

fn is_template(agent: &[u8]) -> bool {
    let lower = agent.to_ascii_lowercase();
    TEMPLATE_MARKS.iter().any(|mark| contains(&lower, mark))
}

/// Returns whether the string names a runtime of programs, which players and readers of people also do.
fn names_runtime(agent: &[u8]) -> bool {
    let is_whole_word = |start: usize, end: usize| {
        let continues = |edge: u8, beyond: Option<u8>| {
            edge.is_ascii_alphabetic() && beyond.is_some_and(|byte| byte.is_ascii_alphanumeric())
        };
        !continues(agent[start], byte_before(agent, start)) && !continues(agent[end - 1], byte_after(agent, end))
    };
    RUNTIME_NAMES.find_overlapping_iter(agent).any(|found| is_whole_word(found.start(), found.end()))
        && !names_app(agent)
}

/// Returns whether a name of letters alone is in front of `Mozilla/`; phones put their model there, with digits.
fn has_word_before_mozilla(agent: &[u8]) -> bool {
    let name = agent.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    name >= 3 && agent[name..].starts_with(b" Mozilla/")
}

/// Returns whether the first product is almost `Mozilla`, as in `Mozlila/5.0`: no browser misspells it, but a few
/// phones (with `Build/`).
fn is_misspelt_mozilla(agent: &[u8]) -> bool {
    let name = &agent[..agent.iter().take_while(|byte| byte.is_ascii_alphabetic()).count()];
    let has_letters_of_it = (6..=8).contains(&name.len()) && name.iter().all(|byte| b"MoOzZiIlLaA".contains(byte));
    name.starts_with(b"Mo")
        && has_letters_of_it
        && name != b"Mozilla"
        && agent.get(name.len()) == Some(&b'/')
        && !contains(agent, b"Build/")
}
