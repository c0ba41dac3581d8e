//! Address and credentials of a Redis server.

use std::fmt;

/// A server with the Redis protocol: Redis, Valkey, or a proxy for one.
#[derive(Clone)]
pub struct RedisEndpoint {
    /// Host name, or an address without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// User name; `None` for the default user.
    pub user: Option<String>,
    /// Password, if required.
    pub password: Option<String>,
    /// Number of the database; a cluster has only 0.
    pub database: u32,
}

impl RedisEndpoint {
    /// Returns this endpoint with another address, to which a cluster redirects a quota.
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
    /// Formats the address without user and password.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_shown_by_its_address_alone() {
        let secret = || Some("hunter2".to_owned());
        let endpoint = RedisEndpoint { host: "a".into(), port: 1, user: secret(), password: secret(), database: 3 };
        assert_eq!(format!("{endpoint} {endpoint:?}"), "redis at a:1 redis at a:1");
        let redirected = endpoint.with_address("::1", 2);
        assert_eq!(redirected.to_string(), "redis at [::1]:2");
        assert_eq!((redirected.user, redirected.password, redirected.database), (secret(), secret(), 3));
    }
}
