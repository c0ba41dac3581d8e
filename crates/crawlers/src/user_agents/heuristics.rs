//! Heuristics for unlisted bots: a name that ends in `bot`, a link to a page about it, an e-mail address.
//!
//! Each pattern is a word that the automaton finds; its position decides whether it counts. User agents of phones and
//! browsers resemble all patterns (CUBOT makes phones, toolbars add links), hence the exceptions.

use super::browser_markers::contains;
use super::parsed::ParsedUserAgent;
use super::people_words::{names_app, names_people, starts_as_browser};
use super::token::{byte_after, byte_before, is_device_model};

/// Meaning of a pattern.
#[derive(Clone, Copy, Debug)]
pub(super) enum Heuristic {
    /// The end of a name that no device of a human has: `FooBot/1.0`, `foo-crawler`.
    Name,
    /// The end of a name that a browser or an app may also have: `FooMonitor/1.0`.
    Role,
    /// The product after `compatible`, which is one of a few for browsers.
    Compatible,
    /// A product inside the comment `(KHTML, like Gecko)`, where browsers add none.
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

/// Words to search for, case-insensitively.
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
    ("uptime", Heuristic::Role),
    ("unfurl", Heuristic::Role),
    ("thumbnailer", Heuristic::Role),
    ("testing", Heuristic::Role),
    ("tester", Heuristic::Role),
    ("synthetics", Heuristic::Role),
    ("snapshot", Heuristic::Role),
    ("sitemap", Heuristic::Role),
    ("renderer", Heuristic::Role),
    ("prerender", Heuristic::Role),
    ("pinger", Heuristic::Role),
    ("inspector", Heuristic::Role),
    ("healthcheck", Heuristic::Role),
    ("headless", Heuristic::Role),
    ("grabber", Heuristic::Role),
    ("exporter", Heuristic::Role),
    ("benchmark", Heuristic::Role),
    ("automation", Heuristic::Role),
    ("agent", Heuristic::Role),
    ("-user", Heuristic::Role),
    ("(compatible", Heuristic::Compatible),
    ("(khtml, like gecko; ", Heuristic::ExtraProduct),
    ("google-", Heuristic::Prefix),
    ("http://", Heuristic::Link),
    ("https://", Heuristic::Link),
    ("www.", Heuristic::Site),
    ("@", Heuristic::Mail),
];

impl Heuristic {
    /// Returns whether the word found at `at..end` has the meaning of the pattern.
    pub(super) fn matches(self, agent: &ParsedUserAgent<'_>, at: usize, end: usize) -> bool {
        match self {
            Heuristic::Name => ends_name(agent, at, end),
            Heuristic::Role => {
                ends_name(agent, at, end)
                    && (!agent.is_browser() || is_product(agent, end) && !agent.is_app_browser())
                    && !names_app(agent)
            }
            Heuristic::Compatible => is_unusual_compatible(agent, end),
            Heuristic::ExtraProduct => !contains(agent, b"googleweblight"),
            Heuristic::Prefix => {
                starts_name(agent, at) && agent[at].is_ascii_uppercase() && !is_device_model(agent, at, end)
            }
            Heuristic::Link => is_contact(agent, at),
            Heuristic::Site => at > 0 && starts_name(agent, at) && !(agent.is_browser() || names_app(agent)),
            Heuristic::Mail => is_email(agent, at, end),
        }
    }
}

fn starts_name(agent: &[u8], at: usize) -> bool {
    !byte_before(agent, at).is_some_and(|byte| byte.is_ascii_alphanumeric())
}

fn ends_name(agent: &ParsedUserAgent<'_>, at: usize, end: usize) -> bool {
    // `CrawlFor` is two words, `crawlfor` is one.
    let begins_a_word = |byte: &u8| byte.is_ascii_uppercase() && agent[end - 1].is_ascii_lowercase();
    if byte_after(agent, end).is_some_and(|byte| byte.is_ascii_alphabetic() && !begins_a_word(&byte)) {
        return false;
    }
    // `bOt` is a part of a random identifier.
    let is_random = end - at == 3 && agent[at + 1].is_ascii_uppercase() != agent[at + 2].is_ascii_uppercase();
    if is_random {
        return false;
    }
    let letters = agent[..at].iter().rev().take_while(|byte| byte.is_ascii_alphabetic()).count();
    let start = at - letters;
    !agent[start..end].eq_ignore_ascii_case(b"cubot") && !is_device_model(agent, start, end)
}

/// Returns whether a version follows, and the user agent is not that of an iPhone app.
fn is_product(agent: &[u8], end: usize) -> bool {
    byte_after(agent, end) == Some(b'/') && !contains(agent, b"CFNetwork")
}

/// Returns whether no browser sends what follows `(compatible`. Before Mozilla/5.0 all browsers of rare platforms sent
/// `compatible`, so those are excluded.
fn is_unusual_compatible(agent: &[u8], end: usize) -> bool {
    let Some(rest) = agent[end..].strip_prefix(b";") else {
        return false;
    };
    let rest = rest.trim_ascii_start();
    let name = &rest[..rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte)).count()];
    // One letter is the `U` of encryption or a lone `X`; `en-US` is a language.
    let word = name.len() > 2 && name.get(2) != Some(&b'-');
    agent.starts_with(b"Mozilla/5") && word && !starts_as_browser(name) && !is_mark_of_browser(&rest[name.len()..])
}

/// Returns whether what follows a name without a version is the rest of a complete browser's comment: the organization that
/// installed the browser has put its name there.
fn is_mark_of_browser(after_name: &[u8]) -> bool {
    after_name.starts_with(b"; MSIE ") || after_name.starts_with(b"; Windows NT ")
}

/// Returns whether a link is meant for the administrator of the site, and was not added by a browser, a toolbar or a player.
fn is_contact(agent: &ParsedUserAgent<'_>, at: usize) -> bool {
    if names_app(agent) {
        return is_only_comment(agent, at);
    }
    byte_before(agent, at) == Some(b'+') || !agent.has_browser_link()
}

/// Returns whether the link at `at` is all that follows one product, as of the servers of players and readers:
/// `Podimo/1.0 (+https://podimo.com/)`. Their apps name the device, too.
fn is_only_comment(agent: &[u8], at: usize) -> bool {
    let (before, link) = agent.split_at(at);
    let product = before.strip_suffix(b" (+").unwrap_or_default();
    let link = link.strip_suffix(b")").unwrap_or_default();
    let is_word = |text: &[u8]| !text.is_empty() && !text.iter().any(|byte| b" ;()".contains(byte));
    product.contains(&b'/') && is_word(product) && is_word(link)
}

/// Returns whether the user agent contains a link of any kind, which confirms a listed name.
pub(super) fn contains_link(agent: &[u8]) -> bool {
    contains(agent, b"http://") || contains(agent, b"https://")
}

/// Returns whether `@` is between a name and a domain that ends in letters (`ecosia android@62.0` is not).
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
        && byte_before(agent, at).is_some_and(|byte| byte.is_ascii_alphanumeric())
}

/// Returns whether the user agent is only one product and its version (`scrape-o-matic/1.0`), which no browser sends.
/// After `Mozilla/5.0` the name suffices.
pub(super) fn is_bare_product(agent: &[u8]) -> bool {
    let after_mozilla = agent.strip_prefix(b"Mozilla/5.0 ");
    let product = after_mozilla.unwrap_or(agent);
    let product = product.strip_prefix(b"(").and_then(|inner| inner.strip_suffix(b")")).unwrap_or(product);
    let name_bytes = product.iter().take_while(|byte| byte.is_ascii_alphabetic() || b"-_.".contains(byte)).count();
    // Digits in a name are a phone model.
    let (name, version) = product.split_at(name_bytes);
    let alone = version.is_empty() && after_mozilla == Some(product);
    name.len() >= 3 && (alone || is_version(version)) && !starts_as_browser(name) && !names_app(product)
}

/// Returns whether the user agent is only a programming language, with or without a library (`Ruby`, `Elixir/Mint`), or
/// a client library (`Ktor client`).
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

/// Languages whose names do not start user agents of apps, unlike Dart and Swift.
#[rustfmt::skip]
const LANGUAGES: &[&str] = &[
    "bun", "clojure", "crystal", "deno", "dotnet", "elixir", "erlang", "golang", "haskell", "java", "julia", "kotlin",
    "lua", "nim", "node", "ocaml", "perl", "php", "python", "ruby", "rust", "scala", "tcl",
];

/// Returns whether the user agent ends in the name of a site in parentheses (`... Safari/537.36
/// (scanner.example.com)`). Apps add such identifiers, too (`... Safari/537.36 (com.example.app)`).
pub(super) fn ends_with_site(agent: &ParsedUserAgent<'_>) -> bool {
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
    !agent.is_app_browser()
        && (agent.starts_with(b"Mozilla/") || !names_people(agent))
        && host.len() >= 2
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
