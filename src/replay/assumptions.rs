//! What no log tells: what a request really cost, how long it took, what its client did next.

use crate::policy::Units;
use std::time::Duration;

/// What is taken for true where the log is silent.
#[derive(Clone, Debug, PartialEq)]
pub struct Assumptions {
    /// A page that was fetched costs nothing for this long: the site keeps its pages. None: it does not.
    pub cache_ttl: Option<Duration>,
    /// How long a request holds what was set aside for it.
    pub latency: Duration,
    /// What clients do that are refused.
    pub clients: Clients,
    /// What requests of a route really cost, by the route's name.
    pub costs: Vec<(String, Units)>,
}

/// What clients do that are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clients {
    /// Whatever the log says: each request comes once, at its time.
    #[default]
    Deaf,
    /// Bots ask nothing until their `Retry-After` has passed; then they ask again, and for what they would have asked
    /// for meanwhile, as far apart as in the log. People do not come back.
    Obey,
    /// Verified bots obey, all others are deaf.
    AsKnown,
}

impl Default for Assumptions {
    fn default() -> Self {
        Self { cache_ttl: None, latency: Duration::from_millis(200), clients: Clients::Deaf, costs: Vec::new() }
    }
}

impl Clients {
    /// Its name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deaf => "deaf",
            Self::Obey => "obey",
            Self::AsKnown => "as-known",
        }
    }
}
