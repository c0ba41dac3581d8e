//! What a cache did, as text for the terminal and the page.

use super::format::{amount, percent};
use super::report::{CacheReport, CacheStoreReport};
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

/// Returns what a simulated cache contains at the end.
pub(super) fn stored(store: CacheStoreReport) -> String {
    let CacheStoreReport { entries, bytes, evictions } = store;
    let mebibytes = group_digits(bytes.div_ceil(1 << 20));
    format!(
        "simulated: {} responses ({mebibytes} MiB) stored at the end, {} displaced before",
        group_digits(entries),
        group_digits(evictions)
    )
}
