//! Which Redis, and who we are to it.

use std::fmt;

/// A server that speaks the Redis protocol: Redis, Valkey, or a proxy before one.
#[derive(Clone)]
pub struct RedisEndpoint {
    /// Its host: a name, or an address without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The user, where it is not the default one.
    pub user: Option<String>,
    /// The password, if it asks for one.
    pub password: Option<String>,
    /// The number of the database; a cluster has 0 only.
    pub database: u32,
}

impl RedisEndpoint {
    /// The same, at another address: where a cluster says that a quota lies.
    pub(super) fn with_address(&self, host: &str, port: u16) -> Self {
        Self { host: host.to_owned(), port, ..self.clone() }
    }
}

impl fmt::Display for RedisEndpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(out, "redis at [{}]:{}", self.host, self.port),
            false => write!(out, "redis at {}:{}", self.host, self.port),
        }
    }
}

impl fmt::Debug for RedisEndpoint {
    /// As displayed: neither user nor password is anybody's business.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}
