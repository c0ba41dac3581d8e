//! What a site asks of itself: WordPress has a page that runs what is due, and calls it whenever somebody visits.
//!
//! Its name is of no proof, but whoever calls that page most is hardly anybody else.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Who calls the page, and how often.
#[derive(Debug, Default)]
pub(super) struct SelfRequests(BTreeMap<IpAddr, u64>);

impl SelfRequests {
    /// Takes a request of a bot for a path.
    pub(super) fn record(&mut self, bot: &str, path: &str, client: IpAddr) {
        let is_one = bot == WORDPRESS && path == CRON;
        if is_one && (self.0.len() < MAX_ADDRESSES || self.0.contains_key(&client)) {
            *self.0.entry(client).or_default() += 1;
        }
    }

    /// The address that most of them came from, and how many.
    pub(super) fn busiest(&self) -> Option<(IpAddr, u64)> {
        let all: u64 = self.0.values().sum();
        self.0.iter().map(|(client, calls)| (*client, *calls)).find(|(_, calls)| calls * 2 > all)
    }
}

/// What it calls itself.
pub(super) const WORDPRESS: &str = "WordPress";

/// What it calls.
pub(super) const CRON: &str = "/wp-cron.php";

/// A site has an address or two.
const MAX_ADDRESSES: usize = 64;
