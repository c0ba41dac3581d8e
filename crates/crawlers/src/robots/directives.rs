//! Directives to add to a robots.txt: the crawl delay of each crawler, by the group that applies to it.

use super::parser::{
    Delay, RecordKind, RobotsRecord, RobotsText, WILDCARD, largest_delay, product_token, record_runs, stated_delay,
};

/// Directives to add to a robots.txt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RobotsDirectives {
    /// Crawl delays by crawler name, in seconds.
    pub per_crawler: Vec<(String, u32)>,
    /// Crawl delay of all crawlers without a group of their own, in seconds.
    pub default: Option<u32>,
    /// Path of the honeypot, to be disallowed for all crawlers.
    pub honeypot: Option<String>,
    /// Lines about the use of pages, for each group that does not have its own.
    pub usage: Vec<String>,
    /// URL of the license of the site, unless the text names one.
    pub license: Option<String>,
}

impl RobotsDirectives {
    /// Returns true if there are no directives.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A crawler, its crawl delay, and the group that applies to it.
pub(super) struct CrawlerDelay<'t> {
    pub(super) product: &'t [u8],
    pub(super) delay: Delay,
    /// Product token of the group that applies; `None` if no group does.
    pub(super) group: Option<&'t [u8]>,
}

/// Crawlers that use the group of another crawler if they have none, as their operators document.
const GROUP_FALLBACKS: [(&str, &str); 1] = [("Applebot", "Googlebot")];

/// Crawlers that ignore the wildcard group, as their operators document.
const IGNORES_WILDCARD: [&str; 5] =
    ["AdsBot-Google", "AdsBot-Google-Mobile", "AdsBot-Google-Mobile-Apps", "APIs-Google", "Mediapartners-Google"];

/// Returns the crawl delay of each crawler. If the origin's text states a larger delay, that one applies.
pub(super) fn resolve_delays<'t>(text: &RobotsText<'t>, directives: &'t RobotsDirectives) -> Vec<CrawlerDelay<'t>> {
    let crawlers = directives.per_crawler.iter().map(|(name, seconds)| (product_token(name.as_bytes()), *seconds));
    let wildcard = directives.default.map(|seconds| (WILDCARD, seconds));
    let mut delays: Vec<CrawlerDelay<'t>> = Vec::new();
    for (product, seconds) in crawlers.chain(wildcard).filter(|(product, _)| !product.is_empty()) {
        if delays.iter().any(|crawler| crawler.product.eq_ignore_ascii_case(product)) {
            continue;
        }
        let is_crawler = |name: &[u8]| directives.per_crawler.iter().any(|(crawler, _)| eq_ignore_case(name, crawler));
        let group = effective_group(text, product, is_crawler);
        let stated = group.and_then(|name| stated_delay_for(text, name));
        delays.push(CrawlerDelay {
            product,
            delay: Delay::from_seconds(seconds).max(stated.unwrap_or(Delay::from_seconds(0))),
            group,
        });
    }
    delays
}

/// Returns the product token of the group in `text` that applies to the crawler: its own, that of its family
/// (`Googlebot-Image` uses `Googlebot`, if `is_crawler` knows it), that of [`GROUP_FALLBACKS`], or the wildcard; `None` if
/// there is none.
pub(super) fn effective_group<'t>(
    text: &RobotsText<'_>,
    name: &'t [u8],
    is_crawler: impl Fn(&[u8]) -> bool,
) -> Option<&'t [u8]> {
    let has_group = |name: &&[u8]| text.groups_of(name).next().is_some();
    let families = (0..name.len()).rev().filter(|&end| name[end] == b'-').map(|end| &name[..end]);
    let families = families.filter(|family| is_crawler(family));
    let fallbacks = GROUP_FALLBACKS
        .iter()
        .filter(|(crawler, _)| eq_ignore_case(name, crawler))
        .map(|(_, fallback)| fallback.as_bytes());
    let wildcard = (!ignores_wildcard(name)).then_some(WILDCARD);
    std::iter::once(name).chain(families).chain(fallbacks).chain(wildcard).find(has_group)
}

pub(super) fn is_family(family: &[u8], name: &[u8]) -> bool {
    name.get(..family.len()).is_some_and(|start| start.eq_ignore_ascii_case(family))
}

pub(super) fn ignores_wildcard(name: &[u8]) -> bool {
    IGNORES_WILDCARD.iter().any(|crawler| eq_ignore_case(name, crawler))
}

pub(super) fn eq_ignore_case(name: &[u8], other: &str) -> bool {
    name.eq_ignore_ascii_case(other.as_bytes())
}

/// Returns the largest delay that `text` states for a crawler of this name.
fn stated_delay_for(text: &RobotsText<'_>, name: &[u8]) -> Option<Delay> {
    agent_runs(text, name).filter_map(largest_delay).max()
}

/// Returns true if every run that names this crawler states exactly this delay, once.
pub(super) fn states_exactly(text: &RobotsText<'_>, name: &[u8], delay: Delay) -> bool {
    let mut runs = agent_runs(text, name).peekable();
    let is_exact = |run: &[RobotsRecord<'_>]| run.iter().filter_map(stated_delay).eq([delay]);
    runs.peek().is_some() && runs.all(is_exact)
}

fn agent_runs<'g>(text: &'g RobotsText<'_>, name: &'g [u8]) -> impl Iterator<Item = &'g [RobotsRecord<'g>]> {
    let is_match = move |record: &RobotsRecord<'_>| matches!(record.kind, RecordKind::UserAgent(agent) if agent.eq_ignore_ascii_case(name));
    text.groups().flat_map(record_runs).filter(move |run| run.iter().any(is_match))
}
