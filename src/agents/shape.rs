//! Shapes that only programs have: a name that ends in `bot`, a page to read about it, an address to write to.
//!
//! Each hint is a word that the automaton finds; whether it means anything depends on where it stands. People's
//! devices come close to all of them (CUBOT makes telephones, toolbars leave links), hence the exceptions.

use memchr_free::contains;

use super::token::{after, before};

/// What a hint must be to count.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hint {
    /// The end of a name: `FooBot/1.0`, `foo-crawler`.
    Trade,
    /// A link to a page about the bot.
    Link,
    /// The middle of an e-mail address.
    Mail,
}

/// The words to look for, in any case.
pub(super) const HINTS: &[(&str, Hint)] = &[
    ("bot", Hint::Trade),
    ("bots", Hint::Trade),
    ("robot", Hint::Trade),
    ("crawl", Hint::Trade),
    ("crawler", Hint::Trade),
    ("crawling", Hint::Trade),
    ("spider", Hint::Trade),
    ("scraper", Hint::Trade),
    ("scrapy", Hint::Trade),
    ("fetch", Hint::Trade),
    ("fetcher", Hint::Trade),
    ("harvester", Hint::Trade),
    ("indexer", Hint::Trade),
    ("archiver", Hint::Trade),
    ("validator", Hint::Trade),
    ("checker", Hint::Trade),
    ("scanner", Hint::Trade),
    ("http://", Hint::Link),
    ("https://", Hint::Link),
    ("@", Hint::Mail),
];

impl Hint {
    pub(super) fn fits(self, agent: &[u8], at: usize, end: usize) -> bool {
        match self {
            Hint::Trade => is_trade(agent, at, end),
            Hint::Link => is_contact(agent, at),
            Hint::Mail => is_mail(agent, at, end),
        }
    }
}

/// Returns whether a name ends here that says what its bearer does for a living.
fn is_trade(agent: &[u8], at: usize, end: usize) -> bool {
    if after(agent, end).is_some_and(|byte| byte.is_ascii_alphabetic()) {
        return false;
    }
    let letters = agent[..at].iter().rev().take_while(|byte| byte.is_ascii_alphabetic()).count();
    let name = &agent[at - letters..end];
    if name.eq_ignore_ascii_case(b"cubot") {
        return false;
    }
    // Between the parentheses of a telephone stands its model, and models are called anything.
    !contains(agent, b"Android") || after(agent, end) == Some(b'/') || agent[..at - letters].ends_with(b"compatible; ")
}

/// Returns whether a link is there for whoever runs the site, and not left by a browser or a toolbar.
fn is_contact(agent: &[u8], at: usize) -> bool {
    before(agent, at) == Some(b'+') || !BROWSERS_WITH_LINKS.iter().any(|mark| contains(agent, mark))
}

const BROWSERS_WITH_LINKS: &[&[u8]] = &[b"MSIE", b"Trident", b"Browser", b"HbbTV", b"TV", b"WhatsApp", b"whatsapp"];

/// Returns whether `@` stands between a name and a domain that ends in letters (`ecosia android@62.0` does not).
fn is_mail(agent: &[u8], at: usize, end: usize) -> bool {
    let domain_bytes = agent[end..].iter().take_while(|byte| byte.is_ascii_alphanumeric() || b".-".contains(byte));
    let domain = &agent[end..end + domain_bytes.count()];
    let domain = domain.strip_suffix(b".").unwrap_or(domain);
    let Some(dot) = domain.iter().rposition(|&byte| byte == b'.') else { return false };
    let top = &domain[dot + 1..];
    dot > 0
        && top.len() >= 2
        && top.iter().all(u8::is_ascii_alphabetic)
        && before(agent, at).is_some_and(|byte| byte.is_ascii_alphanumeric())
}

/// Returns whether the whole of it is one product and its version (`scrape-o-matic/1.0`): no browser stops there.
pub(super) fn is_bare_product(agent: &[u8]) -> bool {
    let Some(slash) = agent.iter().position(|&byte| byte == b'/') else { return false };
    let (name, version) = (&agent[..slash], &agent[slash + 1..]);
    let version = version.strip_prefix(b"v").unwrap_or(version);
    let words = name.iter().all(|byte| byte.is_ascii_alphabetic() || b"-_.".contains(byte));
    // Digits in a name are a telephone's model.
    name.len() >= 3
        && words
        && version.first().is_some_and(u8::is_ascii_digit)
        && version.iter().all(|byte| byte.is_ascii_alphanumeric() || b".-_+".contains(byte))
        && !PEOPLES_PRODUCTS.iter().any(|product| starts_with(name, product))
}

fn starts_with(name: &[u8], product: &str) -> bool {
    name.get(..product.len()).is_some_and(|start| start.eq_ignore_ascii_case(product.as_bytes()))
}

/// Browsers, players and telephones that are known to send nothing but their name, cut short by a proxy or an app.
const PEOPLES_PRODUCTS: &[&str] = &[
    "mozilla", "opera", "firefox", "chrome", "safari", "gecko", "iceweasel", "konqueror", "netscape", "links",
    "elinks", "lynx", "w3m", "dillo", "sleipnir", "amiga", "apple", "android", "dalvik", "ucweb", "windows", "vlc",
    "itunes", "polycom", "nokia", "samsung", "sonyericsson", "mot-", "lg", "blackberry", "huawei", "zte", "docomo",
];

mod memchr_free {
    pub(super) fn contains(agent: &[u8], mark: &[u8]) -> bool {
        agent.windows(mark.len()).any(|window| window == mark)
    }
}
