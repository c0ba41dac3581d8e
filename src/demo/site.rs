//! The site of the story: what its pages are called and what each costs to make.

use crate::rng::Rng;

/// Units that a request for `path` costs when nothing is cached: the origin's own view.
pub fn cost(path: &str) -> u64 {
    match path.split('?').next().unwrap_or(path) {
        "/search" => SEARCH_COSTS,
        page if page.starts_with("/item/") || page.starts_with("/category/") => 1,
        _ => 0,
    }
}

/// True for what the site has; what strangers try is not there.
pub(super) fn exists(path: &str) -> bool {
    !PROBES.contains(&path)
}

/// A search asks the API for several lists at once.
const SEARCH_COSTS: u64 = 4;

/// Items in the shop.
const ITEMS: u64 = 40_000;

/// What a page loads besides itself.
pub(super) const ASSETS: [&str; 7] = [
    "/assets/shop.4b1e.css",
    "/assets/shop.4b1e.js",
    "/assets/carousel.09d7.js",
    "/assets/logo.svg",
    "/assets/icons.woff2",
    "/assets/paper.webp",
    "/favicon.ico",
];

const CATEGORIES: [&str; 10] =
    ["lamps", "chairs", "bikes", "tents", "radios", "kettles", "boots", "puzzles", "ropes", "paint"];
const WORDS: [&str; 9] = [
    "desk+lamp",
    "oak",
    "%E9%9B%BB%E7%90%83",
    "25mm",
    "tent+2p",
    "fahrradschl%C3%B6sser",
    "red+boots",
    "door+hinge",
    "usb-c",
];
const PROBES: [&str; 8] = [
    "/.env",
    "/wp-login.php",
    "/.git/HEAD",
    "/xmlrpc.php",
    "/phpinfo.php",
    "/backup.sql",
    "/actuator/env",
    "/cgi-bin/luci/;stok=/locale",
];

/// What a crawler comes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CrawlTarget {
    /// Mostly items, some categories, a few searches, as links lead.
    Mixed,
    /// Item after item.
    Items,
    /// The lists.
    Categories,
    /// What others have typed.
    Searches,
    /// The front page only, to see whether it is up.
    Homepage,
    /// The feed.
    Feed,
    /// Holes.
    Probes,
}

impl CrawlTarget {
    /// One page of that.
    pub(super) fn page(self, chance: &mut Rng) -> String {
        match self {
            Self::Mixed => match chance.gen_f64() {
                dice if dice < 0.64 => Self::Items.page(chance),
                dice if dice < 0.92 => Self::Categories.page(chance),
                _ => Self::Searches.page(chance),
            },
            Self::Items => item(chance.gen_below(ITEMS)),
            Self::Categories => format!("/category/{}?page={}", chance.choose(&CATEGORIES), 1 + chance.gen_below(150)),
            Self::Searches => match chance.gen_bool(0.6) {
                true => format!("/search?q={}", chance.choose(&WORDS)),
                false => format!("/search?q={}&page={}", chance.choose(&WORDS), 2 + chance.gen_below(30)),
            },
            Self::Homepage => "/".to_owned(),
            Self::Feed => "/feed.xml".to_owned(),
            Self::Probes => (*chance.choose(&PROBES)).to_owned(),
        }
    }
}

/// An item as people find them: a few are asked for much more than the rest.
pub(super) fn popular_item(chance: &mut Rng) -> String {
    let place = chance.gen_f64().powi(4);
    item((place * ITEMS as f64) as u64)
}

fn item(number: u64) -> String {
    format!("/item/{}", 100_000 + number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_lists_and_searches_cost_and_nothing_else_does() {
        assert_eq!(cost("/item/100042"), 1);
        assert_eq!(cost("/category/lamps?page=3"), 1);
        assert_eq!(cost("/search?q=oak"), 4);
        for free in ["/", "/robots.txt", "/feed.xml", "/assets/logo.svg", "/.env", "/searching"] {
            assert_eq!(cost(free), 0, "{free}");
        }
    }
}
