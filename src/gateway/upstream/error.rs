//! Errors of forwarded requests.

use super::MAX_RESPONSE_HEAD;
use std::time::Duration;
use tidegate_http1::client;

/// Error of a forwarded request.
#[derive(Debug, thiserror::Error)]
pub(in crate::gateway) enum ForwardError {
    /// All connections are busy, and none became free in time.
    #[error("origin connection pool exhausted")]
    PoolExhausted,
    /// The origin did not accept a connection in time.
    #[error("origin connect timed out after {after:?}")]
    ConnectTimedOut {
        /// Time limit.
        after: Duration,
    },
    /// The origin refused the connection, or has no address.
    #[error("origin connect failed: {source}")]
    ConnectFailed {
        /// Error of the system.
        source: std::io::Error,
    },
    /// The origin closed the connection, or sent invalid HTTP, before its response.
    #[error("origin closed the connection: {source}")]
    OriginClosed {
        /// Error of the connection.
        source: client::Error,
    },
    /// The head of the response exceeds a limit.
    #[error(
        "origin response head has more than {max_fields} fields (limits.max_response_headers), or more than {} bytes",
        MAX_RESPONSE_HEAD
    )]
    ResponseHeadTooLarge {
        /// Maximum number of fields.
        max_fields: usize,
    },
    /// The origin did not respond in time.
    #[error("origin response timed out after {after:?}")]
    TimedOut {
        /// Time limit.
        after: Duration,
    },
    /// The origin timed out within a response body that the gateway reads.
    #[error("origin response body timed out")]
    BodyTimedOut,
    /// All clients, or this one, have too many upgraded connections.
    #[error("too many upgraded connections")]
    TooManyUpgrades,
    /// The request body failed.
    #[error("{0}")]
    ClientBody(ClientBodyError),
}

impl ForwardError {
    /// Returns true if the gateway lacks the capacity to send the request.
    pub(in crate::gateway) fn is_capacity(&self) -> bool {
        matches!(self, Self::PoolExhausted | Self::TooManyUpgrades | Self::ClientBody(ClientBodyError::NoSpace))
    }
}

/// Reason for which a request body is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::gateway) enum ClientBodyError {
    /// The client closed the connection or sent a malformed body.
    #[error("client aborted the request body")]
    Aborted,
    /// The body is larger than `limits.max_body_size`.
    #[error("request body too large")]
    TooLarge,
    /// The client paused for `limits.request_body_timeout`, or was slower than `limits.min_rate`.
    #[error("client sent the request body too slowly")]
    TooSlow,
    /// The body cannot be stored.
    #[error("no space for the request body")]
    NoSpace,
}
