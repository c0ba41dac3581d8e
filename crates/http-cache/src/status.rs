//! `Cache-Status` of a response (RFC 9211).

use super::storage::Unstorable;
use std::fmt;

/// Name of the gateway in `Cache-Status`.
const CACHE_NAME: &str = "tidegate";

/// What the cache did for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheStatus {
    /// A copy was sent that stays fresh for `ttl` seconds, or has been stale for `-ttl`.
    Hit {
        /// Seconds of freshness that are left.
        ttl: i64,
        /// Reason for which a stale copy was sent.
        detail: Option<HitDetail>,
    },
    /// The request was forwarded.
    Forward {
        /// Reason.
        reason: ForwardReason,
        /// Status of the origin's response, if it differs from that of the response.
        status: Option<u16>,
        /// Whether the response was stored; `None` for a request that uses no copies.
        stored: Option<Result<(), Unstorable>>,
    },
    /// A copy was sent that another request had fetched meanwhile.
    Collapsed {
        /// Reason for which the request waited.
        reason: ForwardReason,
    },
}

/// Result of the cache for a request, in logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CacheResult {
    /// A fresh copy was sent.
    Hit,
    /// A stale copy was sent.
    Stale,
    /// The origin confirmed a copy, which was sent.
    Revalidated,
    /// The origin responded, and the response may be stored.
    Miss,
    /// The origin responded, and the request did not use the cache.
    Bypass,
}

impl CacheResult {
    /// All results.
    pub const ALL: [Self; 5] = [Self::Hit, Self::Stale, Self::Revalidated, Self::Miss, Self::Bypass];

    /// Returns the result with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|result| result.name() == name)
    }

    /// Returns true if a copy was sent.
    pub const fn is_copy(self) -> bool {
        match self {
            Self::Hit | Self::Stale | Self::Revalidated => true,
            Self::Miss | Self::Bypass => false,
        }
    }

    /// Returns the name of the result.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Stale => "stale",
            Self::Revalidated => "revalidated",
            Self::Miss => "miss",
            Self::Bypass => "bypass",
        }
    }
}

/// Reason for which a stale copy was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HitDetail {
    /// The gateway would have refused the request.
    Refused,
    /// The origin failed.
    Error,
    /// Many clients request the page, and one of them pays for a new response at a time.
    Crowd,
}

/// Reason for which a request was forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardReason {
    /// The route or the request does not use the cache.
    Bypass,
    /// Copies do not answer the method.
    Method,
    /// There is no copy of the URL.
    UriMiss,
    /// No copy of the URL is for a request like this one.
    VaryMiss,
    /// The request asked for a fresher response.
    Request,
    /// The copy was stale.
    Stale,
    /// The copy is not whole.
    Partial,
}

impl ForwardReason {
    /// All reasons.
    pub const ALL: [Self; 7] =
        [Self::Bypass, Self::Method, Self::UriMiss, Self::VaryMiss, Self::Request, Self::Stale, Self::Partial];

    /// Returns the name of the reason, in `Cache-Status`.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Request => "request",
            Self::Stale => "stale",
            Self::Partial => "partial",
        }
    }
}

impl fmt::Display for CacheStatus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without format strings, which take several times as long: each hit has the field.
        out.write_str(CACHE_NAME)?;
        match self {
            Self::Hit { ttl, detail } => {
                out.write_str("; hit; ttl=")?;
                ttl.fmt(out)?;
                match detail {
                    Some(HitDetail::Refused) => out.write_str("; detail=refused"),
                    Some(HitDetail::Error) => out.write_str("; detail=error"),
                    Some(HitDetail::Crowd) => out.write_str("; detail=crowd"),
                    None => Ok(()),
                }
            }
            Self::Forward { reason, status, stored } => {
                write!(out, "; fwd={}", reason.text())?;
                status.map_or(Ok(()), |status| write!(out, "; fwd-status={status}"))?;
                match stored {
                    Some(Ok(())) => out.write_str("; stored"),
                    Some(Err(unstorable)) => write!(out, "; detail={}", unstorable.name()),
                    None => Ok(()),
                }
            }
            Self::Collapsed { reason } => write!(out, "; fwd={}; collapsed", reason.text()),
        }
    }
}
