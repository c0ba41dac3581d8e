//! robots.txt: the origin's text with added directives, a cache that serves it when the origin fails, and the
//! crawlers' compliance with it.
//!
//! [`merge_directives`] adds the directives. A [`RobotsCache`] stores the text of each site and renders a
//! [`RobotsDocument`] once per set of directives. [`CrawlCompliance`] counts. The gateway fetches and serves.
//! [`check_robots`] finds what has no effect in a text, for its author.

mod cache;
mod check;
mod compliance;
mod directives;
mod document;
mod fetch_scope;
mod freshness;
mod merge;
mod override_file;
mod parser;
mod terms;
mod writer;

pub use cache::{CacheLookup, CachedRobots, MAX_ROBOTS_BYTES, Requester, RobotsCache};
pub use check::{CrawlerAccess, DecidingRule, RobotsCheck, RobotsFinding, check_robots};
pub use compliance::CrawlCompliance;
pub use directives::RobotsDirectives;
pub use document::{OriginRobots, RobotsDocument};
pub use fetch_scope::{FetchSlot, FetchedHost};
pub use freshness::ttl_from_cache_control;
pub use merge::merge_directives;
pub use override_file::{OverrideFile, read as read_own};
pub use terms::usage_lines;
