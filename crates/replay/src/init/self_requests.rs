//! Requests of a site to itself: WordPress requests its own cron page on visits, to run scheduled tasks.
//!
//! The user agent proves nothing, but the address with most requests for this page is almost certainly the site itself.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Number of requests for the cron page, by client address.
#[derive(Debug, Default)]
pub(super) struct SelfRequests(BTreeMap<IpAddr, u64>);

impl SelfRequests {
    /// Records a request of a bot for a path.
    pub(super) fn record(&mut self, bot: &str, path: &str, client: IpAddr) {
        let is_cron_request = bot == WORDPRESS && path == CRON;
        if is_cron_request && (self.0.len() < MAX_ADDRESSES || self.0.contains_key(&client)) {
            *self.0.entry(client).or_default() += 1;
        }
    }

    /// Returns the address that sent more than half of the requests, and their number.
    pub(super) fn busiest(&self) -> Option<(IpAddr, u64)> {
        let all: u64 = self.0.values().sum();
        self.0.iter().map(|(client, calls)| (*client, *calls)).find(|(_, calls)| calls * 2 > all)
    }
}

/// Bot name of WordPress.
pub(super) const WORDPRESS: &str = "WordPress";

/// Path of the cron page.
pub(super) const CRON: &str = "/wp-cron.php";

/// Maximum number of tracked addresses; a site has few.
const MAX_ADDRESSES: usize = 64;
