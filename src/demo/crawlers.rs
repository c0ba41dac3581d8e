//! Profiles of the demo's crawlers and other bots: volume, schedule, user agents and networks.
//!
//! Verifiable crawlers use networks that their operators publish. All other clients use blocks reserved for
//! documentation and benchmarks, so that no real network is named.

use super::site::CrawlTarget;
use crate::policy::ClientKind;

/// Traffic of one crawler on a full-size day.
pub(super) struct CrawlerProfile {
    /// Name of the actor, for the summary. It also seeds the crawler's traffic.
    pub(super) actor: &'static str,
    /// True kind of the client.
    pub(super) label: ClientKind,
    pub(super) user_agents: &'static [&'static str],
    pub(super) networks: &'static [&'static str],
    /// Number of its addresses.
    pub(super) addresses: u64,
    /// Number of page requests per day, including robots.txt.
    pub(super) requests_per_day: u32,
    /// Number of requests for robots.txt per day.
    pub(super) robots_per_day: u32,
    pub(super) hours: &'static HourWeights,
    pub(super) target: CrawlTarget,
    /// True for constant intervals, as of a timer; false for random times.
    pub(super) is_periodic: bool,
    /// Mean number of assets loaded per page.
    pub(super) assets: f64,
    pub(super) method: http::Method,
}

/// Relative weight of each hour of the day.
pub(super) type HourWeights = [u32; 24];

/// Weights of people in one country: lowest at four, a peak at noon, highest in the evening.
pub(super) const HUMAN_HOURS: HourWeights =
    [28, 16, 10, 7, 7, 10, 20, 36, 44, 50, 54, 58, 70, 60, 54, 52, 56, 62, 70, 80, 92, 96, 84, 54];
const CONSTANT_HOURS: HourWeights = [1; 24];
const NIGHT_HOURS: HourWeights = [7, 9, 10, 10, 9, 7, 5, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 4, 5, 6];
const BURST_HOURS: HourWeights = [1, 1, 5, 9, 3, 1, 1, 5, 9, 2, 1, 1, 1, 4, 9, 4, 1, 1, 2, 8, 6, 1, 1, 1];

const GOOGLEBOT: &str = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)";
const GOOGLEBOT_PHONE: &str = "Mozilla/5.0 (Linux; Android 6.0.1; Nexus 5X Build/MMB29P) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.7390.54 Mobile Safari/537.36 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)";
const BINGBOT: &str = "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm) Chrome/136.0.0.0 Safari/537.36";
const OLD_CHROME: &str = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/94.0.4606.81 Safari/537.36";

/// Networks of a fictional hosting company, from which no browsers connect.
pub const HOSTING_NETWORKS: [&str; 2] = ["198.19.64.0/22", "203.0.113.128/25"];

const BASE_PROFILE: CrawlerProfile = CrawlerProfile {
    actor: "",
    label: ClientKind::DeclaredBot,
    user_agents: &[],
    networks: &[],
    addresses: 1,
    requests_per_day: 0,
    robots_per_day: 0,
    hours: &CONSTANT_HOURS,
    target: CrawlTarget::Mixed,
    is_periodic: false,
    assets: 0.0,
    method: http::Method::GET,
};

/// Profiles of all crawlers and other bots.
pub(super) static CRAWLERS: [CrawlerProfile; 21] = [
    CrawlerProfile {
        actor: "bingbot",
        label: ClientKind::VerifiedBot,
        user_agents: &[BINGBOT],
        networks: &["40.77.167.0/24", "157.55.39.0/24", "207.46.13.0/24", "52.167.144.0/24"],
        addresses: 40,
        requests_per_day: 10_700,
        robots_per_day: 70,
        hours: &BURST_HOURS,
        ..BASE_PROFILE
    },
    CrawlerProfile {
        actor: "googlebot",
        label: ClientKind::VerifiedBot,
        user_agents: &[GOOGLEBOT, GOOGLEBOT_PHONE, GOOGLEBOT_PHONE],
        networks: &["66.249.66.0/27", "66.249.66.32/27", "66.249.79.128/27"],
        addresses: 18,
        requests_per_day: 2_600,
        robots_per_day: 4,
        assets: 0.05,
        ..BASE_PROFILE
    },
    CrawlerProfile {
        actor: "applebot",
        label: ClientKind::VerifiedBot,
        user_agents: &[
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.4 Safari/605.1.15 (Applebot/0.1; +http://www.apple.com/go/applebot)",
        ],
        networks: &["17.241.208.160/27", "17.241.193.160/27"],
        addresses: 8,
        requests_per_day: 380,
        robots_per_day: 12,
        assets: 0.1,
        ..BASE_PROFILE
    },
    CrawlerProfile {
        actor: "gptbot",
        label: ClientKind::VerifiedBot,
        user_agents: &[
            "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.3; +https://openai.com/gptbot)",
        ],
        networks: &["20.171.206.0/24", "52.230.152.0/24"],
        addresses: 10,
        requests_per_day: 1_900,
        robots_per_day: 24,
        hours: &NIGHT_HOURS,
        ..BASE_PROFILE
    },
    CrawlerProfile {
        actor: "claudebot",
        label: ClientKind::VerifiedBot,
        user_agents: &[
            "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; ClaudeBot/1.0; +claudebot@anthropic.com)",
        ],
        networks: &["216.73.216.0/24"],
        addresses: 12,
        requests_per_day: 1_250,
        robots_per_day: 20,
        hours: &NIGHT_HOURS,
        ..BASE_PROFILE
    },
    CrawlerProfile {
        actor: "bytespider",
        user_agents: &[
            "Mozilla/5.0 (Linux; Android 5.0) AppleWebKit/537.36 (KHTML, like Gecko) Mobile Safari/537.36 (compatible; Bytespider; spider-feedback@bytedance.com)",
        ],
        networks: &["198.19.20.0/23"],
        addresses: 120,
        requests_per_day: 3_900,
        hours: &NIGHT_HOURS,
        ..BASE_PROFILE
    },
    CrawlerProfile {
        actor: "ahrefsbot",
        label: ClientKind::VerifiedBot,
        user_agents: &["Mozilla/5.0 (compatible; AhrefsBot/7.0; +http://ahrefs.com/robot/)"],
        networks: &["15.235.27.0/24", "51.81.104.32/28"],
        addresses: 30,
        requests_per_day: 3_100,
        robots_per_day: 40,
        ..BASE_PROFILE
    },
    CrawlerProfile {
        actor: "semrushbot",
        user_agents: &["Mozilla/5.0 (compatible; SemrushBot/7~bl; +http://www.semrush.com/bot.html)"],
        networks: &["198.19.17.0/24"],
        addresses: 20,
        requests_per_day: 2_500,
        robots_per_day: 30,
        ..BASE_PROFILE
    },
    CrawlerProfile {
        actor: "mj12bot",
        user_agents: &["Mozilla/5.0 (compatible; MJ12bot/v1.4.8; http://mj12bot.com/)"],
        networks: &["198.19.18.0/23"],
        addresses: 60,
        requests_per_day: 1_700,
        robots_per_day: 60,
        ..BASE_PROFILE
    },
    CrawlerProfile {
        actor: "feed readers",
        user_agents: &[
            "Feedly/1.0 (+http://www.feedly.com/fetcher.html; like FeedFetcher-Google)",
            "Tiny Tiny RSS/24.04 (https://tt-rss.org/)",
        ],
        networks: &["198.19.25.0/26"],
        addresses: 6,
        requests_per_day: 340,
        target: CrawlTarget::Feed,
        is_periodic: true,
        ..BASE_PROFILE
    },
    CrawlerProfile {
        actor: "uptime monitor",
        user_agents: &["Mozilla/5.0+(compatible; UptimeRobot/2.0; http://www.uptimerobot.com/)"],
        networks: &["198.19.26.0/28"],
        addresses: 3,
        requests_per_day: 288,
        target: CrawlTarget::Homepage,
        is_periodic: true,
        method: http::Method::HEAD,
        ..BASE_PROFILE
    },
    CrawlerProfile {
        actor: "link previews",
        user_agents: &[
            "Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)",
            "Mozilla/5.0 (compatible; Discordbot/2.0; +https://discordapp.com)",
        ],
        networks: &["198.19.25.128/25"],
        addresses: 20,
        requests_per_day: 130,
        robots_per_day: 25,
        hours: &HUMAN_HOURS,
        ..BASE_PROFILE
    },
    CrawlerProfile {
        actor: "python script",
        user_agents: &["python-requests/2.32.3"],
        networks: &["203.0.113.7/32"],
        requests_per_day: 900,
        hours: &NIGHT_HOURS,
        target: CrawlTarget::Searches,
        ..BASE_PROFILE
    },
    CrawlerProfile {
        actor: "curl in cron",
        user_agents: &["curl/8.9.1"],
        networks: &["203.0.113.44/32"],
        requests_per_day: 144,
        target: CrawlTarget::Categories,
        is_periodic: true,
        ..BASE_PROFILE
    },
    CrawlerProfile {
        actor: "false googlebot, three addresses",
        label: ClientKind::Impostor,
        user_agents: &[GOOGLEBOT],
        networks: &["203.0.113.64/30"],
        addresses: 3,
        requests_per_day: 2_200,
        hours: &BURST_HOURS,
        ..BASE_PROFILE
    },
    CrawlerProfile {
        actor: "false googlebot, many addresses",
        label: ClientKind::Impostor,
        user_agents: &[GOOGLEBOT_PHONE],
        networks: &["198.51.100.0/25"],
        addresses: 90,
        requests_per_day: 780,
        ..BASE_PROFILE
    },
    CrawlerProfile {
        actor: "false bingbot",
        label: ClientKind::Impostor,
        user_agents: &["Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)"],
        networks: &["192.0.2.16/30"],
        addresses: 2,
        requests_per_day: 560,
        hours: &NIGHT_HOURS,
        ..BASE_PROFILE
    },
    CrawlerProfile {
        actor: "scraper, one address",
        label: ClientKind::SuspectedBot,
        user_agents: &[OLD_CHROME],
        networks: &["203.0.113.130/32"],
        requests_per_day: 3_500,
        hours: &BURST_HOURS,
        target: CrawlTarget::Items,
        ..BASE_PROFILE
    },
    CrawlerProfile {
        actor: "scraper, rented addresses",
        label: ClientKind::SuspectedBot,
        user_agents: &super::people::BROWSERS,
        networks: &["198.19.64.0/22"],
        addresses: 400,
        requests_per_day: 2_300,
        target: CrawlTarget::Items,
        ..BASE_PROFILE
    },
    CrawlerProfile {
        actor: "headless browser",
        label: ClientKind::SuspectedBot,
        user_agents: &[
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/131.0.6778.85 Safari/537.36",
        ],
        networks: &["203.0.113.200/31"],
        addresses: 2,
        requests_per_day: 420,
        hours: &NIGHT_HOURS,
        target: CrawlTarget::Categories,
        assets: 3.0,
        ..BASE_PROFILE
    },
    CrawlerProfile {
        actor: "scanner",
        label: ClientKind::SuspectedBot,
        user_agents: &[OLD_CHROME, ""],
        networks: &["192.0.2.128/28"],
        addresses: 9,
        requests_per_day: 600,
        hours: &BURST_HOURS,
        target: CrawlTarget::Probes,
        ..BASE_PROFILE
    },
];
