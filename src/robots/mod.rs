//! robots.txt: the origin's own text with what the gate asks of crawlers written in, kept for when the origin cannot
//! be asked, and how crawlers keep to it.
//!
//! [`merged`] writes the wishes in. A [`RobotsCache`] keeps the text of each site and makes an [`RobotsDocument`] of it, once for each
//! set of wishes. [`CrawlCompliance`] counts. Who fetches and who answers is the gateway's.

mod cache;
mod compliance;
mod directives;
mod document;
mod fetch_lock;
mod freshness;
mod merge;
mod override_file;
mod parser;
mod writer;

pub use cache::{CacheLookup, CachedRobots, MAX_ROBOTS_BYTES, Requester, RobotsCache};
pub use compliance::CrawlCompliance;
pub use directives::RobotsDirectives;
pub use document::{OriginRobots, RobotsDocument};
pub use fetch_lock::{FetchGuard, FetchRole};
pub use freshness::fresh_for;
pub use merge::merged;
pub use override_file::{OverrideFile, read as read_own};
