//! Shares of requests, and their text.

use crate::format;

/// Returns the ratio of a part; 1 if there is nothing.
pub(super) fn ratio((part, all): (u64, u64)) -> f64 {
    if all == 0 { 1.0 } else { part as f64 / all as f64 }
}

/// Formats a ratio in percent, never rounded up to all or down to nothing.
pub(super) fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    match percent {
        _ if percent > 99.9 && percent < 100.0 => "over 99.9 %".into(),
        _ if percent > 0.0 && percent < 0.1 => "under 0.1 %".into(),
        _ => format::percent(ratio),
    }
}
