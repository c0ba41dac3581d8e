//! What a cache did, as text for the terminal and the page.

use super::format::{amount, percent};
use super::report::{CacheReport, CacheStoreReport, PolicyReport};
use crate::terminal::group_digits;

/// Returns the number and share of the requests that stored responses answered.
pub(super) fn answered(cache: &CacheReport) -> String {
    let CacheReport { requests, hits, hit_share, replaced_refusals, .. } = cache;
    let share = hit_share.map_or_else(String::new, |share| format!(" ({})", percent(share)));
    let (hits, requests) = (group_digits(*hits), group_digits(*requests));
    let instead = match replaced_refusals {
        0 => String::new(),
        count => format!(", and {} refused ones", group_digits(*count)),
    };
    format!("answered {hits} of {requests} admitted requests{share}{instead}")
}

/// Returns the units saved; `None` if there are none.
pub(super) fn saved(cache: &CacheReport) -> Option<String> {
    let saved: Vec<String> =
        cache.saved.iter().map(|(quota, units)| format!("{} units of {quota}", amount(*units))).collect();
    (!saved.is_empty()).then(|| format!("saved {}", saved.join(", ")))
}

/// Returns where the results come from: a simulated cache with its contents at the end, or the log.
pub(super) fn source(cache: &CacheReport) -> String {
    cache.store.map_or_else(
        || "as the log says: a gateway with a cache wrote it, so that none is simulated".to_owned(),
        stored,
    )
}

/// Returns the note on a comparison under a log that names what a cache did; `None` if it names nothing.
pub(super) fn comparison_note(policies: [&PolicyReport; 2]) -> Option<&'static str> {
    let is_logged = |policy: &PolicyReport| policy.cache.as_ref().is_some_and(|cache| cache.store.is_none());
    policies.into_iter().any(is_logged).then_some(
        "the log comes from a gateway with its cache on: both policies are replayed with the copies that it sent, also \
         one without a cache, so the figures do not show what a cache saves; for that, replay a log from before the cache \
         was on, or the log of the server in front of the gateway",
    )
}

/// Returns what a simulated cache contains at the end.
fn stored(store: CacheStoreReport) -> String {
    let CacheStoreReport { entries, bytes, evictions } = store;
    let mebibytes = group_digits(bytes.div_ceil(1 << 20));
    format!(
        "simulated: {} responses ({mebibytes} MiB) stored at the end, {} displaced before",
        group_digits(entries),
        group_digits(evictions)
    )
}
