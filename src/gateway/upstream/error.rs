//! Errors of forwarded requests.

use super::MAX_RESPONSE_HEAD;
use rustix::io::Errno;
use std::io;
use std::time::Duration;
use tidegate_http1::client;

/// Error of a forwarded request.
#[derive(Debug, thiserror::Error)]
pub(in crate::gateway) enum ForwardError {
    /// All connections are busy, and none became free in time.
    #[error("origin connection pool exhausted")]
    PoolExhausted,
    /// The system gives the gateway no socket: open files or memory are used up.
    #[error("no connection to the origin can be opened: {source}")]
    NoSocket {
        /// Error of the system.
        source: io::Error,
    },
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
        source: io::Error,
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
    /// The origin does not take the request for an upgrade.
    #[error("{source}, to a request for an upgrade")]
    NotUpgraded {
        /// Error of the request.
        source: Box<Self>,
    },
    /// The request body failed.
    #[error("{0}")]
    ClientBody(ClientBodyError),
}

impl ForwardError {
    /// Returns the error of a connection that could not be opened.
    pub(super) fn connect_failed(source: io::Error) -> Self {
        if is_own_shortage(&source) { Self::NoSocket { source } } else { Self::ConnectFailed { source } }
    }

    /// Returns true if the origin refuses connections, or does not take one in time.
    pub(in crate::gateway) fn is_unreachable(&self) -> bool {
        matches!(self, Self::ConnectTimedOut { .. } | Self::ConnectFailed { .. })
    }

    /// Returns the error of a request for an upgrade. Only a connection that the system could not open says anything about the
    /// origin: clients choose whether they ask for an upgrade, and an origin that knows none may refuse HTTP/1.1, not respond, or
    /// close the connection.
    pub(in crate::gateway) fn of_upgrade(self) -> Self {
        match self {
            Self::ConnectFailed { ref source } if source.raw_os_error().is_some() => self,
            Self::ConnectFailed { .. }
            | Self::OriginClosed { .. }
            | Self::ResponseHeadTooLarge { .. }
            | Self::TimedOut { .. } => Self::NotUpgraded { source: Box::new(self) },
            _ => self,
        }
    }

    /// Returns true if the error says that the origin is unwell.
    pub(in crate::gateway) fn is_of_origin(&self) -> bool {
        !self.is_capacity() && !matches!(self, Self::NotUpgraded { .. } | Self::ClientBody(_))
    }

    /// Returns true if the gateway lacks the capacity to send the request.
    pub(in crate::gateway) fn is_capacity(&self) -> bool {
        match self {
            Self::PoolExhausted
            | Self::NoSocket { .. }
            | Self::TooManyUpgrades
            | Self::ClientBody(ClientBodyError::NoSpace) => true,
            Self::ConnectTimedOut { .. }
            | Self::ConnectFailed { .. }
            | Self::OriginClosed { .. }
            | Self::ResponseHeadTooLarge { .. }
            | Self::TimedOut { .. }
            | Self::BodyTimedOut
            | Self::NotUpgraded { .. }
            | Self::ClientBody(_) => false,
        }
    }
}

/// Returns true if the system gave the gateway no socket, which says nothing about the origin: clients can cause it by open
/// connections.
pub(super) fn is_own_shortage(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
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
