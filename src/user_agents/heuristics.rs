//! Shapes that only programs have: a name that ends in `bot`, a page to read about it, an address to write to.
//!
//! Each hint is a word that the automaton finds; whether it means anything depends on where it stands. People's
//! devices come close to all of them (CUBOT makes telephones, toolbars leave links), hence the exceptions.

use super::browser_markers::{self, contains};
use super::parsed::ParsedUserAgent;
use super::token::{after, before, is_model};

/// What a word may hint at.
#[derive(Clone, Copy, Debug)]
pub(super) enum Heuristic {
    /// The end of a name that no person's device has: `FooBot/1.0`, `foo-crawler`.
    Name,
    /// The end of a name that also a browser or an app might have: `FooMonitor/1.0`.
    Role,
    /// What it claims to be compatible with, which for people's browsers is one of a few.
    Compatible,
    /// Something added where browsers say `(KHTML, like Gecko)` and no more.
    ExtraProduct,
    /// The start of a name that no browser uses.
    Prefix,
    /// A link to a page about the bot.
    Link,
    /// The name of a site.
    Site,
    /// The middle of an e-mail address.
    Mail,
}

/// The words to look for, in any case.
pub(super) const PATTERNS: &[(&str, Heuristic)] = &[
    ("bot", Heuristic::Name),
    ("b0t", Heuristic::Name),
    ("bots", Heuristic::Name),
    ("crawl", Heuristic::Name),
    ("crawler", Heuristic::Name),
    ("crawling", Heuristic::Name),
    ("spider", Heuristic::Name),
    ("scraper", Heuristic::Name),
    ("scraping", Heuristic::Name),
    ("fetch", Heuristic::Name),
    ("fetcher", Heuristic::Name),
    ("harvester", Heuristic::Name),
    ("indexer", Heuristic::Name),
    ("httpclient", Heuristic::Name),
    ("http client", Heuristic::Name),
    ("analyzer", Heuristic::Role),
    ("archiver", Heuristic::Role),
    ("audit", Heuristic::Role),
    ("checker", Heuristic::Role),
    ("collector", Heuristic::Role),
    ("detector", Heuristic::Role),
    ("downloader", Heuristic::Role),
    ("extractor", Heuristic::Role),
    ("finder", Heuristic::Role),
    ("importer", Heuristic::Role),
    ("lookup", Heuristic::Role),
    ("monitor", Heuristic::Role),
    ("monitoring", Heuristic::Role),
    ("parser", Heuristic::Role),
    ("preview", Heuristic::Role),
    ("probe", Heuristic::Role),
    ("resolver", Heuristic::Role),
    ("research", Heuristic::Role),
    ("scan", Heuristic::Role),
    ("scanner", Heuristic::Role),
    ("scanning", Heuristic::Role),
    ("screenshot", Heuristic::Role),
    ("search engine", Heuristic::Role),
    ("survey", Heuristic::Role),
    ("validator", Heuristic::Role),
    ("verification", Heuristic::Role),
    ("verifier", Heuristic::Role),
    ("webhook", Heuristic::Role),
    ("webhooks", Heuristic::Role),
    ("(compatible", Heuristic::Compatible),
    ("(khtml, like gecko; ", Heuristic::ExtraProduct),
    ("google-", Heuristic::Prefix),
    ("http://", Heuristic::Link),
    ("https://", Heuristic::Link),
    ("www.", Heuristic::Site),
    ("@", Heuristic::Mail),
];

impl Heuristic {
    /// Returns whether the word found at `at..end` is what it hints at.
    pub(super) fn matches(self, agent: &ParsedUserAgent<'_>, at: usize, end: usize) -> bool {
        match self {
            Heuristic::Name => ends_name(agent, at, end),
            Heuristic::Role => ends_name(agent, at, end) && (is_product(agent, end) || !agent.is_browser()),
            Heuristic::Compatible => is_unusual_compatible(agent, end),
            Heuristic::ExtraProduct => !contains(agent, b"googleweblight"),
            Heuristic::Prefix => starts_name(agent, at) && agent[at].is_ascii_uppercase() && !is_model(agent, at, end),
            Heuristic::Link => is_contact(agent, at),
            Heuristic::Site => at > 0 && starts_name(agent, at) && !agent.is_browser(),
            Heuristic::Mail => is_email(agent, at, end),
        }
    }
}

fn starts_name(agent: &[u8], at: usize) -> bool {
    !before(agent, at).is_some_and(|byte| byte.is_ascii_alphanumeric())
}

fn ends_name(agent: &ParsedUserAgent<'_>, at: usize, end: usize) -> bool {
    // `CrawlFor` is two words, `crawlfor` is one.
    let begins_a_word = |byte: &u8| byte.is_ascii_uppercase() && agent[end - 1].is_ascii_lowercase();
    if after(agent, end).is_some_and(|byte| byte.is_ascii_alphabetic() && !begins_a_word(&byte)) {
        return false;
    }
    let letters = agent[..at].iter().rev().take_while(|byte| byte.is_ascii_alphabetic()).count();
    let start = at - letters;
    !agent[start..end].eq_ignore_ascii_case(b"cubot") && !is_model(agent, start, end)
}

/// Returns whether a version follows, and no telephone's app is speaking.
fn is_product(agent: &[u8], end: usize) -> bool {
    after(agent, end) == Some(b'/') && !contains(agent, b"CFNetwork")
}

/// Returns whether what follows `(compatible` is no browser's way of going on. Before Mozilla/5.0 every browser of
/// a rare system called itself compatible, so those are left alone.
fn is_unusual_compatible(agent: &[u8], end: usize) -> bool {
    let Some(rest) = agent[end..].strip_prefix(b";") else {
        return false;
    };
    let rest = rest.trim_ascii_start();
    let name = &rest[..rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte)).count()];
    // One letter is the `U` of encryption or the `X` of nothing; `en-US` is a language.
    let word = name.len() > 2 && name.get(2) != Some(&b'-');
    agent.starts_with(b"Mozilla/5") && word && !browser_markers::is_compatible_browser(name)
}

/// Returns whether a link is there for whoever runs the site, and not left by a browser or a toolbar.
fn is_contact(agent: &ParsedUserAgent<'_>, at: usize) -> bool {
    before(agent, at) == Some(b'+') || !agent.has_browser_link()
}

/// Returns whether `@` stands between a name and a domain that ends in letters (`ecosia android@62.0` does not).
fn is_email(agent: &[u8], at: usize, end: usize) -> bool {
    let domain_bytes = agent[end..].iter().take_while(|byte| byte.is_ascii_alphanumeric() || b".-".contains(byte));
    let domain = &agent[end..end + domain_bytes.count()];
    let domain = domain.strip_suffix(b".").unwrap_or(domain);
    let Some(dot) = domain.iter().rposition(|&byte| byte == b'.') else {
        return false;
    };
    let top = &domain[dot + 1..];
    dot > 0
        && top.len() >= 2
        && top.iter().all(u8::is_ascii_alphabetic)
        && before(agent, at).is_some_and(|byte| byte.is_ascii_alphanumeric())
}

/// Returns whether the whole of it is one product and its version (`scrape-o-matic/1.0`): no browser stops there.
/// Behind a `Mozilla/5.0` the name is enough.
pub(super) fn is_bare_product(agent: &[u8]) -> bool {
    let disguised = agent.strip_prefix(b"Mozilla/5.0 ");
    let product = disguised.unwrap_or(agent);
    let product = product.strip_prefix(b"(").and_then(|inner| inner.strip_suffix(b")")).unwrap_or(product);
    let name_bytes = product.iter().take_while(|byte| byte.is_ascii_alphabetic() || b"-_.".contains(byte)).count();
    // Digits in a name are a telephone's model.
    let (name, version) = product.split_at(name_bytes);
    let alone = version.is_empty() && disguised == Some(product);
    name.len() >= 3 && (alone || is_version(version)) && !browser_markers::is_known_product(name)
}

/// Returns whether the whole of it is a programming language, with a library or not (`Ruby`, `Elixir/Mint`), or somebody's
/// client (`Ktor client`).
pub(super) fn is_library(agent: &ParsedUserAgent<'_>) -> bool {
    let word_bytes = agent.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    let (word, rest) = agent.split_at(word_bytes);
    let is_language = || LANGUAGES.iter().any(|language| word.eq_ignore_ascii_case(language.as_bytes()));
    match rest {
        [] => is_language(),
        [b'/' | b' ', ..] => rest.eq_ignore_ascii_case(b" client") || is_language() && !agent.is_browser(),
        _ => false,
    }
}

/// Languages that people's apps do not name themselves after, as those in Dart and Swift do.
#[rustfmt::skip]
const LANGUAGES: &[&str] = &[
    "bun", "clojure", "crystal", "deno", "dotnet", "elixir", "erlang", "golang", "haskell", "java", "julia", "kotlin",
    "lua", "nim", "node", "ocaml", "perl", "php", "python", "ruby", "rust", "scala", "tcl",
];

/// Returns whether it ends in the name of a site in parentheses (`... Safari/537.36 (scanner.example.com)`).
pub(super) fn ends_with_site(agent: &[u8]) -> bool {
    let Some(inside) = agent.strip_suffix(b")") else {
        return false;
    };
    let Some(open) = inside.iter().rposition(|&byte| byte == b'(') else {
        return false;
    };
    let site = &inside[open + 1..];
    let Some(dot) = site.iter().rposition(|&byte| byte == b'.') else {
        return false;
    };
    let (host, top) = (&site[..dot], &site[dot + 1..]);
    host.len() >= 2
        && host.iter().any(u8::is_ascii_lowercase)
        && host.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(byte))
        && (2..=6).contains(&top.len())
        && top.iter().all(u8::is_ascii_lowercase)
}

fn is_version(text: &[u8]) -> bool {
    let Some((b'/' | b' ', version)) = text.split_first() else {
        return false;
    };
    let version = version.strip_prefix(b"v").unwrap_or(version);
    version.first().is_some_and(u8::is_ascii_digit)
        && version.iter().all(|byte| byte.is_ascii_alphanumeric() || b".-_+".contains(byte))
}
