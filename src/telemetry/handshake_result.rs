//! Results of TLS handshakes.

/// Result of a TLS handshake with a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeResult {
    /// Completed, with a new session.
    Full,
    /// Completed, with an earlier session.
    Resumed,
    /// Not completed: an error, a timeout, or no TLS.
    Failed,
    /// Closed at its start, because there were too many.
    Refused,
}

impl HandshakeResult {
    pub(super) const ALL: [Self; 4] = [Self::Full, Self::Resumed, Self::Failed, Self::Refused];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Resumed => "resumed",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }
}
