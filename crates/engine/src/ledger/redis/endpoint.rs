//! Address and credentials of a Redis server.

use std::fmt;
use std::path::PathBuf;
use tokio_rustls::TlsConnector;

/// A server with the Redis protocol: Redis, Valkey, or a proxy for one.
#[derive(Clone)]
pub struct RedisEndpoint {
    /// Where the server is.
    pub address: RedisAddress,
    /// TLS to the server, and to the Sentinels that name it; `None` for plain text.
    pub tls: Option<TlsConnector>,
    /// User name; `None` for the default user.
    pub user: Option<String>,
    /// Password, if required.
    pub password: Option<String>,
    /// Number of the database; a cluster has only 0.
    pub database: u32,
}

/// Place of a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RedisAddress {
    /// A server, or any node of a cluster.
    Tcp(HostPort),
    /// A Unix socket.
    Unix(PathBuf),
    /// The primary that one of several Sentinels names.
    Sentinel {
        /// The Sentinels. One of them is asked at each attempt to connect, another one after a failure.
        sentinels: Vec<HostPort>,
        /// Name of the primary in the configuration of the Sentinels.
        primary: String,
    },
}

/// A host and its port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// Host name, or an address without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl RedisEndpoint {
    /// Returns this endpoint with another address, to which a cluster redirects a key or which a Sentinel names.
    pub(super) fn with_address(&self, address: RedisAddress) -> Self {
        Self { address, ..self.clone() }
    }
}

impl fmt::Display for RedisEndpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "redis at {}", self.address)
    }
}

impl fmt::Debug for RedisEndpoint {
    /// Formats the address without user and password.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl fmt::Display for RedisAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(server) => server.fmt(out),
            Self::Unix(path) => path.display().fmt(out),
            Self::Sentinel { sentinels, primary } => {
                write!(out, "{primary} of Sentinel")?;
                sentinels
                    .iter()
                    .enumerate()
                    .try_for_each(|(index, sentinel)| write!(out, "{}{sentinel}", if index == 0 { " " } else { ", " }))
            }
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(out, "[{}]:{}", self.host, self.port),
            false => write!(out, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
impl RedisEndpoint {
    /// Returns the server at a port of this host.
    pub(super) fn local(port: u16) -> Self {
        let address = RedisAddress::Tcp(HostPort { host: "127.0.0.1".into(), port });
        Self { address, tls: None, user: None, password: None, database: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host_port(host: &str, port: u16) -> HostPort {
        HostPort { host: host.into(), port }
    }

    #[test]
    fn endpoint_is_shown_by_its_address_alone() {
        let secret = || Some("hunter2".to_owned());
        let endpoint = RedisEndpoint { user: secret(), password: secret(), database: 3, ..RedisEndpoint::local(1) };
        assert_eq!(format!("{endpoint} {endpoint:?}"), "redis at 127.0.0.1:1 redis at 127.0.0.1:1");
        let redirected = endpoint.with_address(RedisAddress::Tcp(host_port("::1", 2)));
        assert_eq!(redirected.to_string(), "redis at [::1]:2");
        assert_eq!((redirected.user, redirected.password, redirected.database), (secret(), secret(), 3));
    }

    #[test]
    fn addresses_are_shown_as_their_kind_is_written() {
        let sentinels = vec![host_port("a", 26379), host_port("::1", 1)];
        let named = RedisAddress::Sentinel { sentinels, primary: "mymaster".into() };
        assert_eq!(named.to_string(), "mymaster of Sentinel a:26379, [::1]:1");
        assert_eq!(RedisAddress::Unix("/run/redis.sock".into()).to_string(), "/run/redis.sock");
    }
}
