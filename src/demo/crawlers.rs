//! Traffic of the demo's crawlers and other bots.
//!
//! Verifiable crawlers use networks that their operators publish. All other clients use blocks reserved for
//! documentation and benchmarks, so that no real network is named.

use super::people::BROWSERS;
use super::site::CrawlTarget::{self, Categories, Feed, Homepage, Items, Mixed, Probes, Searches};
use super::site::{self, ASSETS};
use super::traffic::{DAY, DemoRequest, HUMAN_HOURS, HourWeights, LAST_INSTANT, random_time, scaled};
use http::Method;
use ipnet::Ipv4Net;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use tidegate_policy::ClientKind::{self, DeclaredBot, Impostor, SuspectedBot, VerifiedBot};
use tidegate_policy::exempt::ROBOTS_TXT_PATH;
use tidegate_policy::rng::Rng;

/// Traffic of one crawler on a full-size day.
pub(super) struct CrawlerProfile {
    /// True kind of the client.
    kind: ClientKind,
    /// Name of the actor, for the summary. It also seeds the crawler's traffic.
    pub(super) actor: &'static str,
    /// Number of requests without those for assets.
    requests: u32,
    /// Number of requests for robots.txt.
    robots: u32,
    /// Number of addresses.
    addresses: u32,
    /// `None` for constant intervals, as of a timer.
    hours: Option<&'static HourWeights>,
    /// Networks, separated by spaces.
    networks: &'static str,
    user_agents: &'static [&'static str],
    target: CrawlTarget,
    /// Mean number of assets loaded per page.
    assets: f64,
}

const fn crawler(
    kind: ClientKind,
    actor: &'static str,
    [requests, robots, addresses]: [u32; 3],
    hours: Option<&'static HourWeights>,
    networks: &'static str,
    user_agents: &'static [&'static str],
) -> CrawlerProfile {
    let (target, assets) = (Mixed, 0.0);
    CrawlerProfile { kind, actor, requests, robots, addresses, hours, networks, user_agents, target, assets }
}

impl CrawlerProfile {
    const fn target(self, target: CrawlTarget) -> Self {
        Self { target, ..self }
    }

    const fn assets(self, assets: f64) -> Self {
        Self { assets, ..self }
    }
}

const PERIODIC: Option<&HourWeights> = None;
const CONSTANT: Option<&HourWeights> = Some(&[1; 24]);
const DAYTIME: Option<&HourWeights> = Some(&HUMAN_HOURS);
const NIGHT: Option<&HourWeights> = Some(&[7, 9, 10, 10, 9, 7, 5, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 4, 5, 6]);
const BURSTS: Option<&HourWeights> = Some(&[1, 1, 5, 9, 3, 1, 1, 5, 9, 2, 1, 1, 1, 4, 9, 4, 1, 1, 2, 8, 6, 1, 1, 1]);

const APPLEBOT: &str = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.4 Safari/605.1.15 (Applebot/0.1; +http://www.apple.com/go/applebot)";
const GPTBOT: &str =
    "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.3; +https://openai.com/gptbot)";
const CLAUDEBOT: &str =
    "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; ClaudeBot/1.0; +claudebot@anthropic.com)";
const BYTESPIDER: &str = "Mozilla/5.0 (Linux; Android 5.0) AppleWebKit/537.36 (KHTML, like Gecko) Mobile Safari/537.36 (compatible; Bytespider; spider-feedback@bytedance.com)";
const AHREFSBOT: &str = "Mozilla/5.0 (compatible; AhrefsBot/7.0; +http://ahrefs.com/robot/)";
const SEMRUSHBOT: &str = "Mozilla/5.0 (compatible; SemrushBot/7~bl; +http://www.semrush.com/bot.html)";
const MJ12BOT: &str = "Mozilla/5.0 (compatible; MJ12bot/v1.4.8; http://mj12bot.com/)";
const FEEDLY: &str = "Feedly/1.0 (+http://www.feedly.com/fetcher.html; like FeedFetcher-Google)";
const TINY_TINY_RSS: &str = "Tiny Tiny RSS/24.04 (https://tt-rss.org/)";
const UPTIME_ROBOT: &str = "Mozilla/5.0+(compatible; UptimeRobot/2.0; http://www.uptimerobot.com/)";
const SLACKBOT: &str = "Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)";
const DISCORDBOT: &str = "Mozilla/5.0 (compatible; Discordbot/2.0; +https://discordapp.com)";
const FALSE_BINGBOT: &str = "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)";
const HEADLESS_CHROME: &str =
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/131.0.6778.85 Safari/537.36";
const GOOGLEBOT: &str = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)";
const GOOGLEBOT_PHONE: &str = "Mozilla/5.0 (Linux; Android 6.0.1; Nexus 5X Build/MMB29P) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.7390.54 Mobile Safari/537.36 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)";
const BINGBOT: &str = "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm) Chrome/136.0.0.0 Safari/537.36";
const OLD_CHROME: &str = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/94.0.4606.81 Safari/537.36";

/// Profiles of all crawlers and other bots. A fictional hosting company owns `198.19.64.0/22` and `203.0.113.128/25`.
pub(super) static CRAWLERS: [CrawlerProfile; 21] = [
    crawler(
        VerifiedBot,
        "bingbot",
        [10_700, 70, 40],
        BURSTS,
        "40.77.167.0/24 157.55.39.0/24 207.46.13.0/24 52.167.144.0/24",
        &[BINGBOT],
    ),
    crawler(
        VerifiedBot,
        "googlebot",
        [2_600, 4, 18],
        CONSTANT,
        "66.249.66.0/27 66.249.66.32/27 66.249.79.128/27",
        &[GOOGLEBOT, GOOGLEBOT_PHONE, GOOGLEBOT_PHONE],
    )
    .assets(0.05),
    crawler(VerifiedBot, "applebot", [380, 12, 8], CONSTANT, "17.241.208.160/27 17.241.193.160/27", &[APPLEBOT])
        .assets(0.1),
    crawler(VerifiedBot, "gptbot", [1_900, 24, 10], NIGHT, "20.171.206.0/24 52.230.152.0/24", &[GPTBOT]),
    crawler(VerifiedBot, "claudebot", [1_250, 20, 12], NIGHT, "216.73.216.0/24", &[CLAUDEBOT]),
    crawler(DeclaredBot, "bytespider", [3_900, 0, 120], NIGHT, "198.19.20.0/23", &[BYTESPIDER]),
    crawler(VerifiedBot, "ahrefsbot", [3_100, 40, 30], CONSTANT, "15.235.27.0/24 51.81.104.32/28", &[AHREFSBOT]),
    crawler(DeclaredBot, "semrushbot", [2_500, 30, 20], CONSTANT, "198.19.17.0/24", &[SEMRUSHBOT]),
    crawler(DeclaredBot, "mj12bot", [1_700, 60, 60], CONSTANT, "198.19.18.0/23", &[MJ12BOT]),
    crawler(DeclaredBot, "feed readers", [340, 0, 6], PERIODIC, "198.19.25.0/26", &[FEEDLY, TINY_TINY_RSS])
        .target(Feed),
    crawler(DeclaredBot, "uptime monitor", [288, 0, 3], PERIODIC, "198.19.26.0/28", &[UPTIME_ROBOT]).target(Homepage),
    crawler(DeclaredBot, "link previews", [130, 25, 20], DAYTIME, "198.19.25.128/25", &[SLACKBOT, DISCORDBOT]),
    crawler(DeclaredBot, "python script", [900, 0, 1], NIGHT, "203.0.113.7/32", &["python-requests/2.32.3"])
        .target(Searches),
    crawler(DeclaredBot, "curl in cron", [144, 0, 1], PERIODIC, "203.0.113.44/32", &["curl/8.9.1"]).target(Categories),
    crawler(Impostor, "false googlebot, three addresses", [2_200, 0, 3], BURSTS, "203.0.113.64/30", &[GOOGLEBOT]),
    crawler(Impostor, "false googlebot, many addresses", [780, 0, 90], CONSTANT, "198.51.100.0/25", &[GOOGLEBOT_PHONE]),
    crawler(Impostor, "false bingbot", [560, 0, 2], NIGHT, "192.0.2.16/30", &[FALSE_BINGBOT]),
    crawler(SuspectedBot, "scraper, one address", [3_500, 0, 1], BURSTS, "203.0.113.130/32", &[OLD_CHROME])
        .target(Items),
    crawler(SuspectedBot, "scraper, rented addresses", [2_300, 0, 400], CONSTANT, "198.19.64.0/22", &BROWSERS)
        .target(Items),
    crawler(SuspectedBot, "headless browser", [420, 0, 2], NIGHT, "203.0.113.200/31", &[HEADLESS_CHROME])
        .target(Categories)
        .assets(3.0),
    crawler(SuspectedBot, "scanner", [600, 0, 9], BURSTS, "192.0.2.128/28", &[OLD_CHROME, ""]).target(Probes),
];

/// Generates all requests of a crawler on the day, unordered.
pub(super) fn requests(crawler: &CrawlerProfile, seed: u64, scale: f64) -> Vec<DemoRequest> {
    let mut rng = Rng::from_seed(seed, crawler.actor);
    let addresses: Vec<IpAddr> = (0..crawler.addresses).map(|index| address(crawler, index, &mut rng)).collect();
    let count = scaled(crawler.requests.into(), scale);
    let robots = if crawler.robots == 0 { 0 } else { scaled(crawler.robots.into(), scale) };
    let mut requests = Vec::new();
    for number in 0..count {
        let at = crawler.hours.map_or_else(|| periodic_time(number, count), |hours| random_time(&mut rng, hours));
        let index = rng.gen_below(crawler.addresses.into());
        let request = |at: Duration, path: String| DemoRequest {
            at,
            client: addresses[index as usize],
            method: if crawler.target == Homepage { Method::HEAD } else { Method::GET },
            cost: site::cost(&path),
            path,
            // Each address always sends the same user agent.
            user_agent: crawler.user_agents[index as usize % crawler.user_agents.len()].into(),
            referer: None,
            label: crawler.kind,
            actor: crawler.actor,
        };
        let page = if number < robots { ROBOTS_TXT_PATH.to_owned() } else { crawler.target.page(&mut rng) };
        requests.push(request(at, page));
        for _ in 0..asset_count(&mut rng, crawler.assets) {
            let asset = (*rng.choose(&ASSETS)).to_owned();
            requests.push(request((at + Duration::from_millis(rng.gen_below(2000))).min(LAST_INSTANT), asset));
        }
    }
    requests
}

fn periodic_time(number: u64, count: u64) -> Duration {
    let milliseconds = DAY.as_millis() as u64;
    Duration::from_millis(milliseconds / count * number + milliseconds / count / 2)
}

fn asset_count(rng: &mut Rng, mean: f64) -> u64 {
    mean.trunc() as u64 + u64::from(rng.gen_bool(mean.fract()))
}

fn address(crawler: &CrawlerProfile, index: u32, rng: &mut Rng) -> IpAddr {
    let networks: Vec<&str> = crawler.networks.split(' ').collect();
    let network: Ipv4Net =
        networks[index as usize % networks.len()].parse().expect("the networks of CRAWLERS are valid CIDR");
    let size = 1u64 << (32 - u32::from(network.prefix_len()));
    let offset = if size > 2 { 1 + rng.gen_below(size - 2) } else { rng.gen_below(size) };
    Ipv4Addr::from_bits(network.network().to_bits() + offset as u32).into()
}
