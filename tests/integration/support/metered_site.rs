//! Sites with a cost for each page: the configuration of the gateway, and origins that count independently.

use super::origin::{Origin, OriginConnection, ReceivedRequest};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use tidegate::demo;

/// A site: its configuration and its actual costs.
#[derive(Clone, Copy)]
pub struct MeteredSite {
    pub routes: &'static str,
    /// Actual cost of a target that the origin does not have in its cache, in units.
    pub cost: fn(&str) -> u64,
}

/// The shop of the synthetic day.
pub const SHOP: MeteredSite = MeteredSite {
    routes: r#"
  - { match: "/item/*", cost: { api: 1 } }
  - { match: "/category/*", cost: { api: 1 } }
  - { match: "/search", cost: { api: 4 } }"#,
    cost: demo::site::cost,
};

/// A site like those of the real logs: all paths that are not listed as free have a cost.
pub const SITE: MeteredSite = MeteredSite {
    routes: r#"
  - { match: "/presentations/**" }
  - { match: "/images/**" }
  - { match: "/favicon.ico" }
  - { match: "/*.css" }
  - { match: "/blog/**", cost: { api: 4 } }
  - { match: "/wp-cron.php", cost: { api: 4 } }
  - { match: "/**", cost: { api: 1 } }"#,
    cost: |target| {
        let path = target.split(['?', '#']).next().unwrap_or(target).trim_start_matches('/');
        let (first, rest) = path.split_once('/').map_or((path, None), |(first, rest)| (first, Some(rest)));
        match first {
            "presentations" | "images" | "favicon.ico" | "robots.txt" => 0,
            _ if rest.is_none() && first.ends_with(".css") => 0,
            "blog" | "wp-cron.php" => 4,
            _ => 1,
        }
    },
};

/// Mode of the origin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OriginMode {
    /// Responds to every request and charges every page.
    Steady,
    /// Cached pages cost nothing, and one request in twenty gets a connection reset, before the response or in the
    /// middle of it.
    Moody,
}

/// Counters of the origin.
#[derive(Default)]
pub struct OriginCounters {
    asked: u64,
    pub spent: u64,
    /// Number of reset connections.
    pub broken: u64,
    made: BTreeSet<String>,
}

impl MeteredSite {
    /// Starts the site's origin. Returns it with its counters.
    pub fn start_origin(self, mood: OriginMode) -> (Origin, Arc<Mutex<OriginCounters>>) {
        let books = Arc::new(Mutex::new(OriginCounters::default()));
        let kept = Arc::clone(&books);
        (Origin::with_script(move |request, wire| serve(request, wire, self, mood, &kept)), books)
    }
}

fn serve(
    request: &ReceivedRequest,
    wire: &mut OriginConnection,
    site: MeteredSite,
    mood: OriginMode,
    books: &Mutex<OriginCounters>,
) {
    let cost = (site.cost)(&request.target);
    let (breaks_off, spent) = {
        let mut books = books.lock();
        books.asked += 1;
        let breaks_off = mood == OriginMode::Moody && books.asked.is_multiple_of(20);
        books.broken += u64::from(breaks_off);
        let has_it = mood == OriginMode::Moody && !books.made.insert(request.target.clone());
        let spent = if has_it { 0 } else { cost };
        books.spent += spent;
        (breaks_off.then_some(books.broken), spent)
    };
    // The origin does not report the usual cost.
    let said = if spent < cost { "X-API-Cost: 0\r\n" } else { "" };
    match breaks_off {
        Some(number) if number % 2 == 0 => wire.reset(),
        Some(_) => {
            wire.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n{said}\r\nand then"));
            wire.reset();
        }
        None if request.method == "HEAD" => {
            wire.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n{said}\r\n"));
        }
        None => wire.reply("200 OK", said, b"page"),
    }
}
