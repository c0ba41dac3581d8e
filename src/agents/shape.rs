//! Shapes that only programs have: a name that ends in `bot`, a page to read about it, an address to write to.
//!
//! Each hint is a word that the automaton finds; whether it means anything depends on where it stands. People's
//! devices come close to all of them (CUBOT makes telephones, toolbars leave links), hence the exceptions.

use super::token::{after, before, contains, is_model};

/// What a word may hint at.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hint {
    /// The end of a name that no person's device has: `FooBot/1.0`, `foo-crawler`.
    Name,
    /// The end of a name that also a browser or an app might have: `FooMonitor/1.0`.
    Trade,
    /// What it claims to be compatible with, which for people's browsers is one of a few.
    Compatible,
    /// Something added where browsers say `(KHTML, like Gecko)` and no more.
    Added,
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
pub(super) const HINTS: &[(&str, Hint)] = &[
    ("bot", Hint::Name),
    ("bots", Hint::Name),
    ("crawl", Hint::Name),
    ("crawler", Hint::Name),
    ("crawling", Hint::Name),
    ("spider", Hint::Name),
    ("scraper", Hint::Name),
    ("scraping", Hint::Name),
    ("fetch", Hint::Name),
    ("fetcher", Hint::Name),
    ("harvester", Hint::Name),
    ("indexer", Hint::Name),
    ("httpclient", Hint::Name),
    ("http client", Hint::Name),
    ("analyzer", Hint::Trade),
    ("archiver", Hint::Trade),
    ("audit", Hint::Trade),
    ("checker", Hint::Trade),
    ("detector", Hint::Trade),
    ("downloader", Hint::Trade),
    ("extractor", Hint::Trade),
    ("finder", Hint::Trade),
    ("importer", Hint::Trade),
    ("lookup", Hint::Trade),
    ("monitor", Hint::Trade),
    ("monitoring", Hint::Trade),
    ("parser", Hint::Trade),
    ("preview", Hint::Trade),
    ("probe", Hint::Trade),
    ("resolver", Hint::Trade),
    ("research", Hint::Trade),
    ("scan", Hint::Trade),
    ("scanner", Hint::Trade),
    ("scanning", Hint::Trade),
    ("screenshot", Hint::Trade),
    ("search engine", Hint::Trade),
    ("survey", Hint::Trade),
    ("validator", Hint::Trade),
    ("verification", Hint::Trade),
    ("verifier", Hint::Trade),
    ("webhook", Hint::Trade),
    ("webhooks", Hint::Trade),
    ("(compatible", Hint::Compatible),
    ("(khtml, like gecko; ", Hint::Added),
    ("google-", Hint::Prefix),
    ("http://", Hint::Link),
    ("https://", Hint::Link),
    ("www.", Hint::Site),
    ("@", Hint::Mail),
];

impl Hint {
    /// Returns whether the word found at `at..end` is what it hints at.
    pub(super) fn fits(self, agent: &[u8], at: usize, end: usize) -> bool {
        match self {
            Hint::Name => ends_a_name(agent, at, end),
            Hint::Trade => {
                ends_a_name(agent, at, end) && (is_product(agent, end) || !is_of_people(agent))
            }
            Hint::Compatible => is_strange(agent, end),
            Hint::Added => !contains(agent, b"googleweblight"),
            Hint::Prefix => {
                agent[at].is_ascii_uppercase()
                    && !before(agent, at).is_some_and(|byte| byte.is_ascii_alphanumeric())
            }
            Hint::Link => is_contact(agent, at),
            Hint::Site => {
                at > 0
                    && !is_of_people(agent)
                    && !before(agent, at).is_some_and(|byte| byte.is_ascii_alphanumeric())
            }
            Hint::Mail => is_mail(agent, at, end),
        }
    }
}

fn ends_a_name(agent: &[u8], at: usize, end: usize) -> bool {
    if after(agent, end).is_some_and(|byte| byte.is_ascii_alphabetic()) {
        return false;
    }
    let letters = agent[..at]
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_alphabetic())
        .count();
    let start = at - letters;
    !agent[start..end].eq_ignore_ascii_case(b"cubot") && !is_model(agent, start, end)
}

/// Returns whether a version follows, and no telephone's app is speaking.
fn is_product(agent: &[u8], end: usize) -> bool {
    after(agent, end) == Some(b'/') && !contains(agent, b"CFNetwork")
}

/// Returns whether this comes from a browser or an app, by the systems they name.
fn is_of_people(agent: &[u8]) -> bool {
    PEOPLES_SYSTEMS.iter().any(|mark| contains(agent, mark))
}

const PEOPLES_SYSTEMS: &[&[u8]] = &[
    b"AppleWebKit",
    b"Gecko/",
    b"MSIE",
    b"Trident",
    b"Opera",
    b"Android",
    b"iPhone",
    b"iPad",
    b"iOS",
    b"CFNetwork",
    b"Darwin",
    b"Windows",
    b"Macintosh",
    b"Mac OS X",
    b"HbbTV",
    b"Profile/MIDP",
    b"X11",
    b"Browser",
];

/// Returns whether what follows `(compatible` is no browser's way of going on. Before Mozilla/5.0 every browser of
/// a rare system called itself compatible, so those are left alone.
fn is_strange(agent: &[u8], end: usize) -> bool {
    let Some(rest) = agent[end..].strip_prefix(b";") else {
        return false;
    };
    let rest = rest.trim_ascii_start();
    let name = &rest[..rest
        .iter()
        .take_while(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        .count()];
    // One letter is the `U` of encryption or the `X` of nothing; `en-US` is a language.
    let word = name.len() > 2 && name.get(2) != Some(&b'-');
    agent.starts_with(b"Mozilla/5")
        && word
        && !COMPATIBLE_BROWSERS
            .iter()
            .any(|browser| starts_with(name, browser))
}

/// What people's browsers put after `compatible;`: themselves or their system.
const COMPATIBLE_BROWSERS: &[&str] = &[
    "msie",
    "konqueror",
    "win",
    "linux",
    "x11",
    "mac",
    "icab",
    "omniweb",
    "netfront",
    "abrowse",
    "opera",
    "firefox",
    "chrome",
    "safari",
    "mozilla",
    "gecko",
    "trident",
    "midori",
    "amiga",
    "galeon",
    "epiphany",
    "android",
    "iphone",
    "ipad",
    "bitos",
    "wii",
    "nintendo",
    "playstation",
    "xbox",
    "hbbtv",
    "smart",
    "viera",
    "series60",
    "symbian",
    "palm",
    "nokia",
    "blackberry",
    "polaris",
    "teleca",
    "wachat",
    "ibrowse",
    "edge",
    "avant",
    "aol",
    "dillo",
    "w3m",
    "links",
    "lynx",
    "elinks",
    "intel",
    "ppc",
    "ubuntu",
    "freebsd",
    "openbsd",
    "netbsd",
    "sunos",
    "haiku",
    "beos",
    "risc",
    "maemo",
    "meego",
    "tizen",
    "webos",
    "web0s",
    "kindle",
    "puffin",
    "ucbrowser",
    "maxthon",
    "seamonkey",
    "camino",
    "antgalio",
    "ekioh",
    "espial",
    "netsurf",
    "qupzilla",
    "falkon",
    "nintendo",
    "sraf",
    "lge",
    "kde",
    "otter",
];

/// Returns whether a link is there for whoever runs the site, and not left by a browser or a toolbar.
fn is_contact(agent: &[u8], at: usize) -> bool {
    before(agent, at) == Some(b'+') || !BROWSERS_WITH_LINKS.iter().any(|mark| contains(agent, mark))
}

const BROWSERS_WITH_LINKS: &[&[u8]] = &[
    b"MSIE",
    b"Trident",
    b"Browser",
    b"HbbTV",
    b"TV",
    b"WhatsApp",
    b"whatsapp",
];

/// Returns whether `@` stands between a name and a domain that ends in letters (`ecosia android@62.0` does not).
fn is_mail(agent: &[u8], at: usize, end: usize) -> bool {
    let domain_bytes = agent[end..]
        .iter()
        .take_while(|byte| byte.is_ascii_alphanumeric() || b".-".contains(byte));
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

/// Returns whether the whole of it is one product and its version (`scrape-o-matic/1.0`), perhaps behind a
/// `Mozilla/5.0`: no browser stops there.
pub(super) fn is_bare_product(agent: &[u8]) -> bool {
    let product = agent.strip_prefix(b"Mozilla/5.0 ").unwrap_or(agent);
    let product = product
        .strip_prefix(b"(")
        .and_then(|inner| inner.strip_suffix(b")"))
        .unwrap_or(product);
    let Some(gap) = product.iter().position(|byte| b"/ ".contains(byte)) else {
        return false;
    };
    let (name, version) = (&product[..gap], &product[gap + 1..]);
    let version = version.strip_prefix(b"v").unwrap_or(version);
    // Digits in a name are a telephone's model.
    name.len() >= 3
        && name
            .iter()
            .all(|byte| byte.is_ascii_alphabetic() || b"-_.".contains(byte))
        && version.first().is_some_and(u8::is_ascii_digit)
        && version
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-_+".contains(byte))
        && !PEOPLES_PRODUCTS
            .iter()
            .any(|product| starts_with(name, product))
}

/// Browsers, players and telephones that are known to send nothing but their name, cut short by a proxy or an app.
const PEOPLES_PRODUCTS: &[&str] = &[
    "mozilla",
    "opera",
    "firefox",
    "chrome",
    "safari",
    "gecko",
    "iceweasel",
    "konqueror",
    "netscape",
    "links",
    "elinks",
    "lynx",
    "w3m",
    "dillo",
    "sleipnir",
    "amiga",
    "apple",
    "android",
    "dalvik",
    "ucweb",
    "windows",
    "vlc",
    "itunes",
    "polycom",
    "nokia",
    "samsung",
    "sonyericsson",
    "mot-",
    "lg",
    "blackberry",
    "huawei",
    "zte",
    "docomo",
    "barca",
    "sylera",
    "webox",
    "hotjava",
    "mosaic",
    "ncsa",
    "cyberdog",
    "ibrowse",
    "icab",
    "omniweb",
    "avant",
    "lunascape",
    "maxthon",
    "com.",
    "roku",
    "playstation",
    "nintendo",
    "internet",
    "msie",
    "vivaldi",
    "brave",
];

fn starts_with(name: &[u8], product: &str) -> bool {
    name.get(..product.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(product.as_bytes()))
}
