//! Settings of the cache.

use super::super::ClientKind;
use super::super::ids::QuotaId;
use super::super::units::Units;
use super::query_filter::ParameterPattern;
use std::sync::Arc;
use std::time::Duration;

/// Settings of the cache for all routes.
#[derive(Clone, Debug)]
pub struct CacheRules {
    /// Largest body that is stored, in bytes.
    pub max_object: u64,
    /// Query parameters that are no part of the key.
    pub ignored_parameters: Vec<ParameterPattern>,
    /// Time after its lifetime for which a response is sent in place of a refusal.
    pub stale_when_refused: Duration,
    /// Time after its lifetime for which a response is sent if the origin fails and its response did not say.
    pub stale_if_error: Duration,
    /// Time after its lifetime for which a response is sent while a crowd requests it; zero for none.
    pub crowd_max_age: Duration,
    /// Clients that may ask for a fresher response than the stored one.
    pub reload: ReloadPolicy,
    /// Names, in lower case, of request fields that are sent although they are no part of the key.
    pub unkeyed_headers: Vec<String>,
}

impl CacheRules {
    /// Returns the time after its lifetime for which a response is useful.
    pub fn useful_stale(&self) -> Duration {
        self.stale_when_refused.max(self.stale_if_error).max(self.crowd_max_age)
    }
}

/// Clients whose directives for a fresher response count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReloadPolicy {
    /// People.
    #[default]
    People,
    /// All clients.
    All,
    /// No client.
    None,
}

impl ReloadPolicy {
    /// Returns true if the directives of a client of `kind` count.
    pub fn includes(self, kind: ClientKind) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::People => kind == ClientKind::Human,
        }
    }
}

/// Settings of the cache for one route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteCacheRules {
    /// Freshness lifetime of responses without one.
    pub ttl: Option<Duration>,
    /// Expected cost of a validation that finds the copy unchanged, by quota; empty for the cost of the route.
    pub revalidation_costs: Vec<(QuotaId, Units)>,
    /// Name of the origin as a part of the key; `None` if all routes have the same origin.
    pub key_origin: Option<String>,
    /// Conditions of the route on header fields and cookies, which are part of the key: no other request may get its copies.
    pub key_conditions: Vec<Arc<str>>,
    /// Names, in lower case, of request fields that are part of the key.
    pub key_headers: Vec<String>,
    /// Cookies that are part of the key, the only ones that are sent; `None` if cookies keep a request from the cache,
    /// unless the response is `public`.
    pub key_cookies: Option<Vec<String>>,
    /// Query parameters that are part of the key, the only ones that are sent; `None` for all.
    pub key_parameters: Option<Vec<ParameterPattern>>,
}
