//! Raw section `bot_detection`.

use crate::scalars::Span;
use crate::section::{any, positive, section};
use std::time::Duration;

section! {
    /// Detection of bots that send a browser's user agent, by their behavior. No single signal suffices at the default
    /// threshold, so people with rare browsers are not affected. Profiles are kept in memory: a reload keeps them, a
    /// restart clears them. After a restart the gateway needs some visits of people to learn what is normal on the
    /// site.
    pub(crate) struct BotDetection {
        /// false: disables behavioral bot detection. No client is a `suspected_bot`, and it costs nothing.
        enabled: bool = true => bool, any;
        /// Bot score from which a client is a `suspected_bot`, 50 to 1000. Each signal adds 15 to 80 points; a lower
        /// threshold finds more bots, and sooner or later a person. 100 needs two signals of different kinds, 150 three
        /// or four; at 80 and below a single one suffices, and people are affected. `bot_score` in the access log shows
        /// the score of every client with a profile: compare before you change the threshold.
        threshold: u32 = 100 => u32, points;
        /// Duration after which a recorded signal counts half. More than 0.
        half_life: Duration = Duration::from_secs(24 * 60 * 60) => Span, positive;
        /// Maximum number of client profiles in memory, about 150 bytes each; beyond it, the longest idle ones are
        /// evicted. At least 1.
        max_clients: usize = 200_000 => u32, positive;
    }
}

fn points(threshold: &u32, _: Option<&u32>) -> Option<String> {
    let is_valid = (50..=1000).contains(threshold);
    (!is_valid).then(|| format!("found {threshold}, needs 50 to 1000; write 100, or `enabled: false` to disable it"))
}
