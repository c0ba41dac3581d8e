//! Locks for fetching robots.txt on a cache miss: one request to the origin per site. Other requests wait for its
//! response, so that a burst of requests on a cold cache reaches the origin only once.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::watch;

/// Fetches in progress by site, at most one per client request. Clones share them.
#[derive(Clone, Default)]
pub struct FetchLocks(Arc<Mutex<HashMap<String, watch::Receiver<()>>>>);

/// Role of a request on a cache miss.
pub enum FetchRole {
    /// Fetch from the origin.
    Fetch(FetchGuard),
    /// Wait for the fetch of another request.
    Wait(FetchWaiter),
}

/// Guard of a fetch. Dropping it wakes all waiters.
pub struct FetchGuard {
    locks: FetchLocks,
    site: String,
    /// Dropped with the guard, which closes the channel of the waiters.
    _sender: watch::Sender<()>,
}

/// Waits for the end of another request's fetch.
pub struct FetchWaiter(watch::Receiver<()>);

impl FetchLocks {
    /// Returns the role of a request for the robots.txt of `site`.
    pub fn acquire(&self, site: &str) -> FetchRole {
        let mut fetches = self.0.lock();
        if let Some(receiver) = fetches.get(site) {
            return FetchRole::Wait(FetchWaiter(receiver.clone()));
        }
        let (sender, receiver) = watch::channel(());
        fetches.insert(site.to_owned(), receiver);
        FetchRole::Fetch(FetchGuard { locks: self.clone(), site: site.to_owned(), _sender: sender })
    }
}

impl FetchWaiter {
    /// Waits until the fetch ends, successful or not.
    pub async fn wait(mut self) {
        // No value is ever sent; the channel closes when the fetch ends.
        let _ = self.0.changed().await;
    }
}

impl Drop for FetchGuard {
    fn drop(&mut self) {
        self.locks.0.lock().remove(&self.site);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_request_per_site_fetches_and_others_wait() {
        let locks = FetchLocks::default();
        let FetchRole::Fetch(guard) = locks.acquire("a") else { panic!("no fetch is in progress") };
        let FetchRole::Wait(first) = locks.acquire("a") else { panic!("a fetch is in progress") };
        let FetchRole::Wait(second) = locks.acquire("a") else { panic!("a fetch is in progress") };
        assert!(matches!(locks.acquire("b"), FetchRole::Fetch(_)));
        drop(guard);
        first.wait().await;
        second.wait().await;
        assert!(matches!(locks.acquire("a"), FetchRole::Fetch(_)));
        assert!(locks.0.lock().is_empty(), "no fetch is in progress");
    }
}
