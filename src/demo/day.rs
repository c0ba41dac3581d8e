//! Generates a synthetic day of traffic.
//!
//! Each request is labeled with the true kind of its client, which the gateway can only derive from address, user agent
//! and behavior. The same seed and scale always give the same day.

use super::crawlers::{self, CRAWLERS};
use super::people;
use super::traffic::DemoRequest;

/// Generates a day with `scale` times the normal traffic, ordered by time. Scale 1 is about 50,000 requests.
pub fn generate(seed: u64, scale: f64) -> Vec<DemoRequest> {
    let mut requests = people::requests(seed, scale);
    requests.extend(CRAWLERS.iter().flat_map(|crawler| crawlers::requests(crawler, seed, scale)));
    requests.sort_by_key(|request| request.at);
    requests
}

#[cfg(test)]
mod tests {
    use super::super::site;
    use super::super::traffic::DAY;
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use tidegate_policy::ClientKind;

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
