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
    Unstable,
}

/// Counters of the origin.
#[derive(Default)]
pub struct OriginCounters {
    request_count: u64,
    pub spent: u64,
    /// Number of reset connections.
    pub reset_count: u64,
    cached_targets: BTreeSet<String>,
}

impl MeteredSite {
    /// Starts the site's origin. Returns it with its counters.
    pub fn start_origin(self, mode: OriginMode) -> (Origin, Arc<Mutex<OriginCounters>>) {
        let counters = Arc::new(Mutex::new(OriginCounters::default()));
        let shared = Arc::clone(&counters);
        (Origin::with_script(move |request, connection| serve(request, connection, self, mode, &shared)), counters)
    }
}

fn serve(
    request: &ReceivedRequest,
    connection: &mut OriginConnection,
    site: MeteredSite,
    mode: OriginMode,
    counters: &Mutex<OriginCounters>,
) {
    let cost = (site.cost)(&request.target);
    let (reset_number, spent) = {
        let mut counters = counters.lock();
        counters.request_count += 1;
        let is_reset = mode == OriginMode::Unstable && counters.request_count.is_multiple_of(20);
        counters.reset_count += u64::from(is_reset);
        let is_repeated = mode == OriginMode::Unstable && !counters.cached_targets.insert(request.target.clone());
        let spent = if is_repeated { 0 } else { cost };
        counters.spent += spent;
        (is_reset.then_some(counters.reset_count), spent)
    };
    // The origin does not report the usual cost.
    let cost_field = if spent < cost { "X-API-Cost: 0\r\n" } else { "" };
    match reset_number {
        Some(number) if number % 2 == 0 => connection.reset(),
        Some(_) => {
            connection.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n{cost_field}\r\nand then"));
            connection.reset();
        }
        None if request.method == "HEAD" => {
            connection.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n{cost_field}\r\n"));
        }
        None => connection.reply("200 OK", cost_field, b"page"),
    }
}
