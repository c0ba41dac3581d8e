//! Who is asked for which delay, and whose groups each crawler goes by.

use super::parser::{Delay, EVERYBODY, Record, RobotsText, RecordKind, largest_delay, product, runs, stated};

/// What is asked of whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RobotsDirectives {
    /// Seconds between two requests, by the crawler's name.
    pub of_crawlers: Vec<(String, u32)>,
    /// The same of everybody who has no group.
    pub of_everybody: Option<u32>,
    /// A path that nobody is to ask for.
    pub trap: Option<String>,
}

impl RobotsDirectives {
    /// True when nothing is wished of anybody.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One crawler, and what it is asked.
pub(super) struct CrawlerDelay<'t> {
    pub(super) product: &'t [u8],
    pub(super) delay: Delay,
    /// Whose groups it goes by; `None` where nobody's.
    pub(super) goes_by: Option<&'t [u8]>,
}

/// Crawlers that go by another's group where they have none, as their operators document.
const GOES_BY: [(&str, &str); 1] = [("Applebot", "Googlebot")];

/// Crawlers that do not go by the group of everybody, as their operator documents: no rule held for them.
const HEEDS_ITS_NAME_ALONE: [&str; 5] =
    ["AdsBot-Google", "AdsBot-Google-Mobile", "AdsBot-Google-Mobile-Apps", "APIs-Google", "Mediapartners-Google"];

/// What each crawler is asked, once the origin's own word is known: of two delays the larger holds.
pub(super) fn asked<'t>(text: &RobotsText<'t>, wishes: &'t RobotsDirectives) -> Vec<CrawlerDelay<'t>> {
    let crawlers = wishes.of_crawlers.iter().map(|(name, seconds)| (product(name.as_bytes()), *seconds));
    let everybody = wishes.of_everybody.map(|seconds| (EVERYBODY, seconds));
    let mut asked: Vec<CrawlerDelay<'t>> = Vec::new();
    for (product, seconds) in crawlers.chain(everybody).filter(|(product, _)| !product.is_empty()) {
        if asked.iter().any(|known| known.product.eq_ignore_ascii_case(product)) {
            continue;
        }
        let goes_by = goes_by(text, product, wishes);
        let stated = goes_by.and_then(|name| stated_to(text, name));
        asked.push(CrawlerDelay { product, delay: Delay::seconds(seconds).max(stated.unwrap_or(Delay::seconds(0))), goes_by });
    }
    asked
}

/// Whose groups in `text` the crawler goes by: its own, those of the family (`Googlebot-Image` goes by `Googlebot`), those
/// that its operator names, everybody's.
fn goes_by<'t>(text: &RobotsText<'_>, name: &'t [u8], wishes: &RobotsDirectives) -> Option<&'t [u8]> {
    let has_group = |name: &&[u8]| text.groups_of(name).next().is_some();
    let is_crawler = |name: &[u8]| wishes.of_crawlers.iter().any(|(known, _)| is(name, known));
    let families = (0..name.len()).rev().filter(|&end| name[end] == b'-').map(|end| &name[..end]);
    let families = families.filter(|family| is_crawler(family));
    let named = GOES_BY.iter().filter(|(crawler, _)| is(name, crawler)).map(|(_, other)| other.as_bytes());
    let everybody = (!heeds_its_name_alone(name)).then_some(EVERYBODY);
    std::iter::once(name).chain(families).chain(named).chain(everybody).find(has_group)
}

pub(super) fn is_family(family: &[u8], name: &[u8]) -> bool {
    name.get(..family.len()).is_some_and(|start| start.eq_ignore_ascii_case(family))
}

pub(super) fn heeds_its_name_alone(name: &[u8]) -> bool {
    HEEDS_ITS_NAME_ALONE.iter().any(|crawler| is(name, crawler))
}

fn is(name: &[u8], known: &str) -> bool {
    name.eq_ignore_ascii_case(known.as_bytes())
}

/// The largest delay that `text` states to a crawler of this name.
fn stated_to(text: &RobotsText<'_>, name: &[u8]) -> Option<Delay> {
    runs_of(text, name).filter_map(largest_delay).max()
}

/// True when `text` states this delay, once, to a crawler of this name wherever it is named, and no other.
pub(super) fn states_only(text: &RobotsText<'_>, name: &[u8], delay: Delay) -> bool {
    let mut runs = runs_of(text, name).peekable();
    let states_it = |run: &[Record<'_>]| run.iter().filter_map(stated).eq([delay]);
    runs.peek().is_some() && runs.all(states_it)
}

fn runs_of<'g>(text: &'g RobotsText<'_>, name: &'g [u8]) -> impl Iterator<Item = &'g [Record<'g>]> {
    let names =
        move |record: &Record<'_>| matches!(record.what, RecordKind::Agent(agent) if agent.eq_ignore_ascii_case(name));
    text.groups().flat_map(runs).filter(move |run| run.iter().any(names))
}
