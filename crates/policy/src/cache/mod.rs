//! Rules of the site for the cache: which responses are stored beyond what the origin says, by what key, and whose reloads
//! count. What RFC 9111 asks of every cache is in `tidegate_http_cache`.

pub mod crowd;
mod fill;
pub mod query_filter;
mod rules;

pub use fill::CacheFill;
pub use rules::{CacheRules, ReloadPolicy, RouteCacheRules};
