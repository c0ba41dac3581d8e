//! Crowds: pages that many people request at the same time.

use crate::Timestamp;
use crate::hash::mix;
use crate::identity::ClientKey;
use std::time::Duration;

/// Length of an interval. A crowd is found by the current interval and the one before: five minutes.
const INTERVAL: Duration = Duration::from_secs(150);
/// Part of the requests, as a divisor, that a page of a crowd takes.
const CROWD_DIVISOR: u32 = 5;
/// Minimum number of requests of a crowd.
const MIN_REQUESTS: u32 = 20;
/// Minimum number of allocations of a crowd, of the 64 that are told apart: no client, no network and no provider makes a crowd
/// alone.
const MIN_ALLOCATIONS: u32 = 8;
/// Number of pages that are counted. The requests of a page are underestimated by at most a thirty-third of all.
const MAX_PAGES: usize = 32;
/// Number of requests that are remembered, so that a network counts once for each page: 4 KiB an interval.
const MAX_SEEN: usize = 1024;

/// Finds the pages that take at least a fifth of people's requests in five minutes. A network counts once for each page in an
/// interval. Its size is bounded, whatever is requested: about 10 KiB.
#[derive(Debug, Default)]
pub struct CrowdDetector {
    /// Number of the current interval.
    interval: u64,
    current: Requests,
    previous: Requests,
}

/// Requests of an interval.
#[derive(Debug, Default)]
struct Requests {
    count: u32,
    /// The most requested pages (Misra and Gries).
    pages: Vec<PageRequests>,
    /// Hashes of network and page, by their remainder; empty until the first request.
    seen: Vec<u32>,
}

/// Requests for one page.
#[derive(Clone, Copy, Debug, Default)]
struct PageRequests {
    page: u64,
    count: u32,
    /// Allocations of addresses, by the remainder of their hash.
    allocations: u64,
}

impl CrowdDetector {
    /// Records that the person `client` requests `page`, a hash that no client can choose, which costs units unless a copy answers.
    pub fn record(&mut self, page: u64, client: ClientKey, now: Timestamp) {
        self.advance_to(now);
        self.current.record(page, client);
    }

    /// Returns true if `page` takes at least a fifth of the requests, and those come from several allocations of addresses.
    pub fn is_crowded(&self, page: u64, now: Timestamp) -> bool {
        let intervals: &[&Requests] = match interval(now).checked_sub(self.interval) {
            Some(0) => &[&self.current, &self.previous],
            Some(1) => &[&self.current],
            _ => &[],
        };
        let (mut count, mut all, mut allocations) = (0_u32, 0_u32, 0_u64);
        for requests in intervals {
            let of_page = requests.of(page);
            count = count.saturating_add(of_page.count);
            all = all.saturating_add(requests.count);
            allocations |= of_page.allocations;
        }
        count >= MIN_REQUESTS && count >= all.div_ceil(CROWD_DIVISOR) && allocations.count_ones() >= MIN_ALLOCATIONS
    }

    fn advance_to(&mut self, now: Timestamp) {
        match interval(now).checked_sub(self.interval) {
            Some(0) => return,
            Some(1) => self.previous = std::mem::take(&mut self.current),
            _ => (self.current, self.previous) = (Requests::default(), Requests::default()),
        }
        self.interval = interval(now);
    }
}

/// Returns the number of the interval of `time`.
fn interval(time: Timestamp) -> u64 {
    time.seconds() / INTERVAL.as_secs()
}

impl Requests {
    fn record(&mut self, page: u64, client: ClientKey) {
        let hash = mix(page ^ mix(client.network()));
        self.seen.resize(MAX_SEEN, 0);
        let seen = &mut self.seen[hash as usize % MAX_SEEN];
        let tag = (hash >> 32) as u32 | 1;
        if std::mem::replace(seen, tag) == tag {
            return;
        }
        self.count = self.count.saturating_add(1);
        let bit = 1 << (mix(client.allocation()) % u64::from(u64::BITS));
        if let Some(counted) = self.pages.iter_mut().find(|counted| counted.page == page) {
            counted.count = counted.count.saturating_add(1);
            counted.allocations |= bit;
        } else if self.pages.len() < MAX_PAGES {
            self.pages.push(PageRequests { page, count: 1, allocations: bit });
        } else {
            self.pages.iter_mut().for_each(|counted| counted.count -= 1);
            self.pages.retain(|counted| counted.count > 0);
        }
    }

    fn of(&self, page: u64) -> PageRequests {
        self.pages.iter().find(|counted| counted.page == page).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u64 = 7;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_seconds(1_800_000_000 + second)
    }

    /// Returns the client in network `number` of IPv4, which is an allocation of its own.
    fn client(number: u64) -> ClientKey {
        ClientKey::from_u64((number % (1 << 24)) << 8)
    }

    /// Records `count` requests for [`PAGE`] and `others` for other pages, all of different networks.
    fn detector(count: u64, others: u64) -> CrowdDetector {
        let mut detector = CrowdDetector::default();
        (0..count).for_each(|network| detector.record(PAGE, client(network), at(0)));
        (0..others).for_each(|other| detector.record(1000 + other % 100, client(other), at(0)));
        detector
    }

    #[test]
    fn page_with_a_fifth_of_the_requests_is_crowded_for_five_minutes() {
        assert!(detector(200, 0).is_crowded(PAGE, at(0)));
        assert!(detector(200, 500).is_crowded(PAGE, at(0)));
        assert!(!detector(60, 600).is_crowded(PAGE, at(0)), "less than a tenth");
        assert!(!detector(MIN_REQUESTS.into(), 0).is_crowded(1000, at(0)), "another page");
        assert!(!detector(u64::from(MIN_REQUESTS) - 1, 0).is_crowded(PAGE, at(0)));
        let mut detector = detector(200, 0);
        assert_eq!([149, 299].map(|second| detector.is_crowded(PAGE, at(second))), [true; 2]);
        assert!(!detector.is_crowded(PAGE, at(300)));
        detector.record(PAGE, client(1), at(600));
        assert!(!detector.is_crowded(PAGE, at(0)), "the clock was set back");
    }

    #[test]
    fn few_allocations_make_no_crowd() {
        let of_networks = |request: u64| client(request % u64::from(MIN_ALLOCATIONS - 1));
        let of_networks_of_a_provider =
            |request: u64| ClientKey::from_u64(0x2001_0db8_0000_0000 | (request << 16) & 0x7_ffff_0000);
        for client in [&of_networks as &dyn Fn(u64) -> ClientKey, &of_networks_of_a_provider] {
            let mut detector = CrowdDetector::default();
            for request in 0..100_000 {
                detector.record(PAGE, client(request), at(request / 1000));
            }
            assert!(!detector.is_crowded(PAGE, at(100)));
        }
    }

    #[test]
    fn one_network_does_not_make_a_crowd_of_a_page_that_others_read() {
        let mut detector = detector(60, 600);
        for request in 0..100_000 {
            detector.record(PAGE, client(1 << 20), at(0));
            // Other pages, which may displace what is known of the network.
            detector.record(5000 + request % 3000, client(1 << 20), at(0));
        }
        assert!(!detector.is_crowded(PAGE, at(0)));
    }

    proptest! {
        /// A crowd is found whatever else is requested, and the memory is bounded.
        #[test]
        fn crowd_is_found_among_any_pages(others in prop::collection::vec(any::<u64>(), 0..2000), seed: u64) {
            let mut detector = CrowdDetector::default();
            let crowd = (others.len() as u64 * 2 / 5).max(100);
            let mut requests: Vec<(u64, u64)> = others.iter().map(|page| (page | 1, mix(*page))).collect();
            requests.extend((0..crowd).map(|network| (PAGE - 1, mix(network))));
            requests.sort_by_key(|(page, network)| mix(page ^ network ^ seed));
            for (page, network) in requests {
                detector.record(page, client(network), at(0));
            }
            prop_assert!(detector.is_crowded(PAGE - 1, at(0)));
            prop_assert!(detector.current.pages.len() <= MAX_PAGES && detector.current.seen.len() == MAX_SEEN);
        }
    }
}
