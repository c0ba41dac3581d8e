//! Generates a synthetic day of traffic.
//!
//! Each request is labeled with the true kind of its client, which the gateway can only derive from address, user agent
//! and behavior. The same seed and scale always give the same day.

use super::crawlers::{CRAWLERS, CrawlerProfile, HourWeights};
use super::people;
use super::site::{self, ASSETS};
use crate::policy::ClientKind;
use crate::policy::decide::ROBOTS_TXT_PATH;
use crate::policy::rng::Rng;
use ipnet::Ipv4Net;
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Length of the day.
pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);
pub(super) const LAST_INSTANT: Duration = DAY.saturating_sub(Duration::from_millis(1));

/// One request of the day.
#[derive(Clone, Debug, PartialEq)]
pub struct DemoRequest {
    /// Time since the start of the day.
    pub at: Duration,
    /// Address of the client.
    pub client: IpAddr,
    /// Request method.
    pub method: http::Method,
    /// Request path with query.
    pub path: String,
    /// User agent; empty if none is sent.
    pub user_agent: Cow<'static, str>,
    /// URL of the referring page.
    pub referer: Option<String>,
    /// True kind of the client.
    pub label: ClientKind,
    /// Name of the actor, for the summary.
    pub actor: &'static str,
    /// Cost of the response in units, if the origin has not cached it.
    pub cost: u64,
}

/// Generates a day with `scale` times the normal traffic, ordered by time. Scale 1 is about 50,000 requests.
pub fn generate(seed: u64, scale: f64) -> Vec<DemoRequest> {
    let mut requests = people::requests(seed, scale);
    for crawler in &CRAWLERS {
        requests.extend(crawl(crawler, seed, scale));
    }
    requests.sort_by_key(|request| request.at);
    requests
}

fn crawl(crawler: &CrawlerProfile, seed: u64, scale: f64) -> Vec<DemoRequest> {
    let mut rng = Rng::from_seed(seed, crawler.actor);
    let addresses: Vec<IpAddr> = (0..crawler.addresses).map(|index| address(crawler, index, &mut rng)).collect();
    let count = scaled(f64::from(crawler.requests_per_day), scale);
    let robots = if crawler.robots_per_day == 0 { 0 } else { scaled(f64::from(crawler.robots_per_day), scale) };
    let mut requests = Vec::new();
    for number in 0..count {
        let at = if crawler.is_periodic { periodic_time(number, count) } else { random_time(&mut rng, crawler.hours) };
        let reads_robots = number < robots;
        let index = rng.gen_below(crawler.addresses);
        let request = |at: Duration, path: String| DemoRequest {
            at,
            client: addresses[index as usize],
            method: crawler.method.clone(),
            cost: site::cost(&path),
            path,
            // Each address always sends the same user agent.
            user_agent: crawler.user_agents[index as usize % crawler.user_agents.len()].into(),
            referer: None,
            label: crawler.label,
            actor: crawler.actor,
        };
        let page = if reads_robots { ROBOTS_TXT_PATH.to_owned() } else { crawler.target.page(&mut rng) };
        requests.push(request(at, page));
        for _ in 0..asset_count(&mut rng, crawler.assets) {
            let asset = (*rng.choose(&ASSETS)).to_owned();
            requests.push(request((at + Duration::from_millis(rng.gen_below(2000))).min(LAST_INSTANT), asset));
        }
    }
    requests
}

/// Scales `count` of a full-size day, to at least 1, so that every actor appears.
pub(super) fn scaled(count: f64, scale: f64) -> u64 {
    (count * scale).round().max(1.0) as u64
}

/// Returns a random time of the day, distributed by the weights of `hours`.
pub(super) fn random_time(rng: &mut Rng, hours: &HourWeights) -> Duration {
    let mut left = rng.gen_below(hours.iter().map(|&weight| u64::from(weight)).sum());
    let mut hour = 0;
    while hour < 23 && left >= u64::from(hours[hour]) {
        left -= u64::from(hours[hour]);
        hour += 1;
    }
    Duration::from_secs(hour as u64 * 3600) + Duration::from_millis(rng.gen_below(3_600_000))
}

fn periodic_time(number: u64, count: u64) -> Duration {
    let milliseconds = DAY.as_millis() as u64;
    Duration::from_millis(milliseconds / count * number + milliseconds / count / 2)
}

fn asset_count(rng: &mut Rng, mean: f64) -> u64 {
    mean.trunc() as u64 + u64::from(rng.gen_bool(mean.fract()))
}

fn address(crawler: &CrawlerProfile, index: u64, rng: &mut Rng) -> IpAddr {
    let network = crawler.networks[index as usize % crawler.networks.len()];
    let network: Ipv4Net = network.parse().expect("the networks of CRAWLERS are valid CIDR");
    let size = 1u64 << (32 - u32::from(network.prefix_len()));
    let offset = if size > 2 { 1 + rng.gen_below(size - 2) } else { rng.gen_below(size) };
    Ipv4Addr::from_bits(network.network().to_bits() + offset as u32).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn traffic_is_deterministic_per_seed() {
        assert_eq!(generate(1, 0.02), generate(1, 0.02));
        assert_ne!(generate(1, 0.02), generate(2, 0.02));
    }

    #[test]
    fn traffic_is_sorted_and_within_the_day() {
        let day = generate(3, 0.1);
        assert!(day.is_sorted_by_key(|request| request.at));
        assert!(day.iter().all(|request| request.at < DAY && request.path.starts_with('/')));
        assert!(day.iter().all(|request| request.cost == site::cost(&request.path)));
    }

    #[test]
    fn smallest_traffic_contains_every_crawler() {
        let actors: BTreeSet<&str> = generate(1, 0.0).iter().map(|request| request.actor).collect();
        assert!(CRAWLERS.iter().all(|crawler| actors.contains(crawler.actor)), "{actors:?}");
    }

    #[test]
    fn only_verified_crawlers_have_real_addresses() {
        let reserved: Vec<ipnet::IpNet> =
            ["198.18.0.0/15", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32"]
                .map(|network| network.parse().expect("a network"))
                .into();
        for request in generate(5, 0.1) {
            let is_reserved = reserved.iter().any(|network| network.contains(&request.client));
            assert_eq!(is_reserved, request.label != ClientKind::VerifiedBot, "{request:?}");
        }
    }

    #[test]
    fn human_traffic_dips_at_night_crawlers_dominate_cost() {
        let day = generate(1, 1.0);
        let people_at = |hour: u64| {
            day.iter()
                .filter(|request| request.label == ClientKind::Human && request.at.as_secs() / 3600 == hour)
                .count()
        };
        assert!(people_at(21) > 5 * people_at(4), "{} {}", people_at(21), people_at(4));
        let mut units: BTreeMap<ClientKind, u64> = BTreeMap::new();
        for request in &day {
            *units.entry(request.label).or_default() += request.cost;
        }
        let people = units.remove(&ClientKind::Human).unwrap_or(0);
        assert!(people > 0 && units.values().sum::<u64>() > 5 * people, "{people} {units:?}");
        assert!((40_000..65_000).contains(&day.len()), "{}", day.len());
    }
}
