//! Errors of forwarded requests.

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
    /// The origin did not respond in time.
    #[error("origin response timed out after {after:?}")]
    TimedOut {
        /// Time limit.
        after: Duration,
    },
    /// The origin timed out within a response body that the gateway reads.
    #[error("origin response body timed out")]
    BodyTimedOut,
    /// The request body failed: aborted, timed out, or too large.
    #[error("client aborted the request body")]
    ClientBody {
        /// True if it was larger than allowed.
        too_large: bool,
    },
}
