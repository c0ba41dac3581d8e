//! Site of the demo: its paths and their costs.

use tidegate_policy::rng::Rng;

/// Returns the cost of a request for `path` in units, if nothing is cached.
pub fn cost(path: &str) -> u64 {
    match path.split('?').next().unwrap_or(path) {
        "/search" => SEARCH_COST,
        page if page.starts_with("/item/") || page.starts_with("/category/") => 1,
        _ => 0,
    }
}

/// Returns the content type and body of a page.
pub(super) fn page(target: &str) -> (&'static str, &'static str) {
    match target {
        "/robots.txt" => ("text/plain; charset=utf-8", "User-agent: *\nDisallow: /cart\n"),
        _ => ("text/html; charset=utf-8", "<!doctype html><title>Shop</title><p>Generated from a paid API.\n"),
    }
}

/// Returns true if the path exists; the paths of vulnerability probes do not.
pub(super) fn exists(path: &str) -> bool {
    !PROBES.contains(&path)
}

/// Cost of a search, in units: the API is called for several lists.
const SEARCH_COST: u64 = 4;

/// Number of items in the shop.
const ITEM_COUNT: u64 = 40_000;

/// Assets that a page loads.
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

/// Pages that a crawler fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CrawlTarget {
    /// Mostly items, some categories, a few searches, as when following links.
    Mixed,
    /// Only items.
    Items,
    /// Only category pages.
    Categories,
    /// Only searches.
    Searches,
    /// Only the front page, for monitoring.
    Homepage,
    /// Only the feed.
    Feed,
    /// Paths of vulnerability probes.
    Probes,
}

impl CrawlTarget {
    /// Returns a random page of the target.
    pub(super) fn page(self, rng: &mut Rng) -> String {
        match self {
            Self::Mixed => match rng.gen_f64() {
                sample if sample < 0.64 => Self::Items.page(rng),
                sample if sample < 0.92 => Self::Categories.page(rng),
                _ => Self::Searches.page(rng),
            },
            Self::Items => item(rng.gen_below(ITEM_COUNT)),
            Self::Categories => format!("/category/{}?page={}", rng.choose(&CATEGORIES), 1 + rng.gen_below(150)),
            Self::Searches => match rng.gen_bool(0.6) {
                true => format!("/search?q={}", rng.choose(&WORDS)),
                false => format!("/search?q={}&page={}", rng.choose(&WORDS), 2 + rng.gen_below(30)),
            },
            Self::Homepage => "/".to_owned(),
            Self::Feed => "/feed.xml".to_owned(),
            Self::Probes => (*rng.choose(&PROBES)).to_owned(),
        }
    }
}

/// Returns a random item, with few items much more popular than the rest.
pub(super) fn popular_item(rng: &mut Rng) -> String {
    let position = rng.gen_f64().powi(4);
    item((position * ITEM_COUNT as f64) as u64)
}

fn item(number: u64) -> String {
    format!("/item/{}", 100_000 + number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_items_lists_and_searches_cost_units() {
        assert_eq!(cost("/item/100042"), 1);
        assert_eq!(cost("/category/lamps?page=3"), 1);
        assert_eq!(cost("/search?q=oak"), 4);
        for free in ["/", "/robots.txt", "/feed.xml", "/assets/logo.svg", "/.env", "/searching"] {
            assert_eq!(cost(free), 0, "{free}");
        }
    }
}
