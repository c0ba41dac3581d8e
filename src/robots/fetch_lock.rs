//! Who is on the way to the origin for a robots.txt that is not kept: one at a time for each site. All others wait for
//! what that one brings, so that nobody can send a crowd to the origin that the shelf would have held back.

use parking_lot::Mutex;
use std::collections::HashMap;
use tokio::sync::watch;

/// All that are on the way, by site: no more than there are requests.
#[derive(Default)]
pub struct FetchLocks(Mutex<HashMap<String, watch::Receiver<()>>>);

/// What somebody is to do who needs a robots.txt that is not kept.
pub enum FetchRole<'e> {
    /// Ask the origin.
    Fetch(FetchGuard<'e>),
    /// Wait for somebody who is asking already.
    Wait(FetchWaiter),
}

/// Somebody's way to the origin, for as long as this is held.
pub struct FetchGuard<'e> {
    errands: &'e FetchLocks,
    site: String,
    /// Those who wait see that it is gone.
    _ends: watch::Sender<()>,
}

/// The end of somebody else's errand.
pub struct FetchWaiter(watch::Receiver<()>);

impl FetchLocks {
    /// Whose turn it is to ask the origin for the robots.txt of `site`.
    pub fn acquire(&self, site: &str) -> FetchRole<'_> {
        let mut under_way = self.0.lock();
        if let Some(ends) = under_way.get(site) {
            return FetchRole::Wait(FetchWaiter(ends.clone()));
        }
        let (begins, ends) = watch::channel(());
        under_way.insert(site.to_owned(), ends);
        FetchRole::Fetch(FetchGuard { errands: self, site: site.to_owned(), _ends: begins })
    }
}

impl FetchWaiter {
    /// Waits for it, whatever came of the errand.
    pub async fn wait(mut self) {
        // Nothing is ever sent: the errand ends, and with it the channel.
        let _ = self.0.changed().await;
    }
}

impl Drop for FetchGuard<'_> {
    fn drop(&mut self) {
        self.errands.0.lock().remove(&self.site);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_goes_for_each_site_and_the_others_wait() {
        let errands = FetchLocks::default();
        let FetchRole::Fetch(errand) = errands.acquire("a") else { panic!("nobody is on the way") };
        let FetchRole::Wait(first) = errands.acquire("a") else { panic!("somebody is") };
        let FetchRole::Wait(second) = errands.acquire("a") else { panic!("somebody is") };
        assert!(matches!(errands.acquire("b"), FetchRole::Fetch(_)));
        drop(errand);
        first.wait().await;
        second.wait().await;
        assert!(matches!(errands.acquire("a"), FetchRole::Fetch(_)));
        assert!(errands.0.lock().is_empty(), "all are back");
    }
}
