//! URLs of receivers that the gateway sends something to.

use super::default_port;
use std::fmt;
use tidegate_policy::secret::Secret;

/// URL of a receiver. It is displayed without its path, which may be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverUrl {
    /// True for https.
    pub is_tls: bool,
    /// Host in lower case, an IPv6 address without its brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path and query.
    pub target: Secret,
}

impl fmt::Display for ReceiverUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.is_tls { "https://" } else { "http://" })?;
        out.write_str(&self.authority())
    }
}

impl ReceiverUrl {
    /// Returns host and port, as the field `Host` has them.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match self.port == default_port(self.is_tls) {
            true => host,
            false => format!("{host}:{}", self.port),
        }
    }
}
