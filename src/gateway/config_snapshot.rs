//! A version of the configuration with all data derived from it. Requests in flight keep theirs during a reload.

use super::crawl_policy::CrawlPolicy;
use super::untrusted_proxy::UntrustedProxy;
use arc_swap::ArcSwap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tidegate_config::Settings;
use tidegate_engine::{Admission, Engine};
use tidegate_policy::Timestamp;
use tidegate_policy::address_lists::{AddressLists, ListSet};
use tidegate_rate_limit_headers::RateLimitHeaders;

/// Settings and the tables precomputed from them.
pub(super) struct ConfigSnapshot {
    pub(super) settings: Settings,
    pub(super) admission: Admission,
    pub(super) rate_limit_headers: RateLimitHeaders,
    pub(super) crawl_policy: CrawlPolicy,
    pub(super) untrusted_proxy: UntrustedProxy,
    /// Addresses of the origin as last resolved; empty before the first lookup. Each snapshot has its own, so that no
    /// request is sent to the origin of another one.
    pub(super) origin_addresses: ArcSwap<Vec<SocketAddr>>,
    /// Networks of the address lists, as last read.
    lists: ArcSwap<AddressLists>,
}

impl ConfigSnapshot {
    pub(super) fn new(settings: Settings, lists: AddressLists, engine: &Arc<Engine>, now: Timestamp) -> Self {
        let rules = Arc::clone(&settings.rules);
        Self {
            admission: engine.admission(Arc::clone(&rules), now),
            rate_limit_headers: RateLimitHeaders::new(&settings.headers, &rules),
            crawl_policy: CrawlPolicy::default(),
            untrusted_proxy: UntrustedProxy::default(),
            origin_addresses: ArcSwap::from_pointee(settings.origin.address().into_iter().collect()),
            lists: ArcSwap::from_pointee(lists),
            settings,
        }
    }

    /// Returns the address lists that contain `address`. Skips the lookup if there are no lists.
    pub(super) fn lists_containing(&self, address: IpAddr) -> ListSet {
        match self.settings.rules.address_list_names.is_empty() {
            true => ListSet::default(),
            false => self.lists.load().lookup(address),
        }
    }

    /// Returns the networks of the address lists, as last read.
    pub(super) fn lists(&self) -> Arc<AddressLists> {
        self.lists.load_full()
    }

    /// Activates newly read networks.
    pub(super) fn replace_lists(&self, lists: AddressLists) {
        self.lists.store(Arc::new(lists));
    }

    /// Takes the resolved addresses from `before` if both have the same origin.
    pub(super) fn with_addresses_from(self, before: &Self) -> Self {
        let (origin, previous) = (&self.settings.origin, &before.settings.origin);
        if (&origin.host, origin.port) == (&previous.host, previous.port) {
            self.origin_addresses.store(before.origin_addresses.load_full());
        }
        self
    }
}
