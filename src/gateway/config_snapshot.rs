//! All that follows from one reading of the settings. A reload makes a new one; requests under way keep theirs.

use super::crawl_policy::CrawlPolicy;
use super::rate_limit_headers::RateLimitHeaders;
use super::untrusted_proxy::UntrustedProxy;
use crate::config::Settings;
use crate::engine::{Admission, Engine};
use crate::policy::Timestamp;
use crate::policy::address_lists::{AddressLists, ListSet};
use arc_swap::ArcSwap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The settings, and what is made of them once so that no request has to.
pub(super) struct ConfigSnapshot {
    pub(super) settings: Settings,
    pub(super) admission: Admission,
    pub(super) announcements: RateLimitHeaders,
    pub(super) crawl_policy: CrawlPolicy,
    pub(super) untrusted_proxy: UntrustedProxy,
    /// Where its origin is, as last resolved; empty until it has been. Each generation has its own, so that no request is
    /// sent to the origin of another.
    pub(super) addresses: ArcSwap<Vec<SocketAddr>>,
    /// The networks of the address lists of its settings, as last read.
    lists: ArcSwap<AddressLists>,
}

impl ConfigSnapshot {
    pub(super) fn new(settings: Settings, lists: AddressLists, engine: &Arc<Engine>, now: Timestamp) -> Self {
        let rules = Arc::clone(&settings.rules);
        Self {
            admission: engine.admission(Arc::clone(&rules), now),
            announcements: RateLimitHeaders::new(&settings.headers, &rules),
            crawl_policy: CrawlPolicy::default(),
            untrusted_proxy: UntrustedProxy::default(),
            addresses: ArcSwap::from_pointee(settings.origin.address().into_iter().collect()),
            lists: ArcSwap::from_pointee(lists),
            settings,
        }
    }

    /// The address lists that `address` stands on; nobody looks where there are none.
    pub(super) fn lists_containing(&self, address: IpAddr) -> ListSet {
        match self.settings.rules.lists.is_empty() {
            true => ListSet::default(),
            false => self.lists.load().lookup(address),
        }
    }

    /// The networks of the address lists, as last read.
    pub(super) fn lists(&self) -> Arc<AddressLists> {
        self.lists.load_full()
    }

    /// Puts networks that were read anew in force.
    pub(super) fn replace_lists(&self, lists: AddressLists) {
        self.lists.store(Arc::new(lists));
    }

    /// The same, at the addresses that `before` knows of, if it had the same origin.
    pub(super) fn with_addresses_from(self, before: &Self) -> Self {
        let (ours, theirs) = (&self.settings.origin, &before.settings.origin);
        if (&ours.host, ours.port) == (&theirs.host, theirs.port) {
            self.addresses.store(before.addresses.load_full());
        }
        self
    }
}
