//! Synthetic traffic of people: sessions distributed over the day, with a few pages and their assets each.

use super::site::{self, ASSETS, CrawlTarget};
use super::traffic::{self, DemoRequest, HUMAN_HOURS};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use tidegate_policy::ClientKind;
use tidegate_policy::rng::Rng;

/// User agents of browsers; common ones are repeated as a weight.
pub(super) static BROWSERS: [&str; 12] = [
    IPHONE,
    IPHONE,
    IPHONE,
    ANDROID,
    ANDROID,
    WINDOWS,
    WINDOWS,
    WINDOWS,
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36 Edg/141.0.0.0",
    "Mozilla/5.0 (X11; Linux x86_64; rv:144.0) Gecko/20100101 Firefox/144.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Safari/605.1.15",
    "Mozilla/5.0 (Linux; Android 14; SAMSUNG SM-S918B) AppleWebKit/537.36 (KHTML, like Gecko) SamsungBrowser/28.0 Chrome/130.0.0.0 Mobile Safari/537.36",
];
const IPHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Mobile/15E148 Safari/604.1";
const ANDROID: &str =
    "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Mobile Safari/537.36";
const WINDOWS: &str =
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36";

/// Referring pages of sessions; empty for a bookmark.
const REFERRERS: [&str; 6] =
    ["https://www.google.com/", "https://www.google.com/", "https://www.bing.com/", "https://duckduckgo.com/", "", ""];

/// Number of sessions on a full-size day.
const SESSIONS: f64 = 940.0;
/// Ratio of sessions behind the few shared addresses of an office or a mobile carrier.
const NAT_RATIO: f64 = 0.12;
/// Ratio of the other sessions that use IPv6.
const IPV6_RATIO: f64 = 0.25;
/// Ratio of sessions with the assets in the browser cache.
const RETURNING_RATIO: f64 = 0.3;
/// Mean number of pages per session after the first.
const MEAN_EXTRA_PAGES: f64 = 1.7;
/// Number of very long sessions on a full-size day.
const LONG_SESSIONS: f64 = 6.0;
/// Mean time between two pages of a session, in seconds.
const MEAN_PAGE_TIME_S: f64 = 45.0;
/// Maximum number of pages after the first in a normal session.
const MAX_EXTRA_PAGES: u64 = 30;

/// Generates all requests of people on the day, unordered.
pub(super) fn requests(seed: u64, scale: f64) -> Vec<DemoRequest> {
    let mut rng = Rng::from_seed(seed, "people");
    let mut requests = Vec::new();
    let avid = traffic::scaled(LONG_SESSIONS, scale);
    for number in 0..traffic::scaled(SESSIONS, scale) + avid {
        let avid = number < avid;
        let pages = if avid {
            80 + rng.gen_below(100)
        } else {
            1 + (rng.exponential(MEAN_EXTRA_PAGES) as u64).min(MAX_EXTRA_PAGES)
        };
        session(&mut rng, if avid { "person, avid" } else { "person" }, pages, &mut requests);
    }
    requests
}

fn session(rng: &mut Rng, actor: &'static str, pages: u64, requests: &mut Vec<DemoRequest>) {
    let (client, actor) = address(rng, actor);
    let user_agent = *rng.choose(&BROWSERS);
    let returning = rng.gen_bool(RETURNING_RATIO);
    let mut at = traffic::random_time(rng, &HUMAN_HOURS);
    let mut referer = (*rng.choose(&REFERRERS)).to_owned();
    let mut path = if rng.gen_bool(0.7) { site::popular_item(rng) } else { "/".to_owned() };
    let request = |at, path: &str, referer: &str| DemoRequest {
        at,
        client,
        method: http::Method::GET,
        cost: site::cost(path),
        path: path.to_owned(),
        user_agent: user_agent.into(),
        referer: Some(referer.to_owned()).filter(|from| !from.is_empty()),
        label: ClientKind::Human,
        actor,
    };
    for page in 0..pages {
        if at >= traffic::DAY {
            break;
        }
        requests.push(request(at, &path, &referer));
        referer = format!("https://shop.example{path}");
        let assets = if page == 0 && !returning { ASSETS.len() } else { 0 };
        for asset in &ASSETS[..assets] {
            requests.push(request(asset_time(rng, at), asset, &referer));
        }
        for _ in 0..rng.gen_below(4) {
            let picture = format!("/assets/item/{}.webp", rng.gen_below(40_000));
            requests.push(request(asset_time(rng, at), &picture, &referer));
        }
        at += Duration::from_secs_f64(2.0 + rng.exponential(MEAN_PAGE_TIME_S));
        path = if rng.gen_bool(0.65) { site::popular_item(rng) } else { CrawlTarget::Mixed.page(rng) };
    }
}

fn asset_time(rng: &mut Rng, at: Duration) -> Duration {
    (at + Duration::from_millis(60 + rng.gen_below(1800))).min(traffic::LAST_INSTANT)
}

fn address(rng: &mut Rng, actor: &'static str) -> (IpAddr, &'static str) {
    if rng.gen_bool(NAT_RATIO) {
        return (Ipv4Addr::new(198, 18, 255, 1 + rng.gen_below(5) as u8).into(), "person, shared address");
    }
    if rng.gen_bool(IPV6_RATIO) {
        let network = rng.next_u64();
        let (site, subnet, host) = ((network >> 48) as u16, (network >> 32) as u16, network as u16);
        return (Ipv6Addr::new(0x2001, 0xdb8, site, subnet, 0, 0, 0, host).into(), actor);
    }
    let bits = rng.next_u64();
    (Ipv4Addr::new(198, 18, (bits >> 8) as u8 % 255, bits as u8).into(), actor)
}
