//! Requests that the gateway makes itself to fill the cache.

/// Reason of a request that the gateway makes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheFill {
    /// An administrator warms the cache (`tidegate cache warm`). The request is one of its class, with all limits.
    Warm,
    /// Surplus units refresh a stored response (`cache.refresh: surplus`).
    Refresh,
}

impl CacheFill {
    /// Returns the name in the access log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Refresh => "refresh",
        }
    }

    /// Returns the reason with a name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Warm, Self::Refresh].into_iter().find(|fill| fill.name() == name)
    }
}
