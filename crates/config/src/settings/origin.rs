//! Settings of an origin: its servers, and the connections to them.

use crate::SettingPath;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Servers behind the gateway that answer for the same pages.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Name in `origins`; empty for the only one, of `origin`.
    pub name: String,
    /// Path of its keys.
    pub path: SettingPath,
    /// Servers; at least one.
    pub servers: Vec<OriginServer>,
    /// TLS to servers with `https://`.
    pub tls: OriginTls,
    /// True if requests are sent over HTTP/2, by servers with TLS if they choose it.
    pub http2: bool,
    /// Version of the PROXY protocol that names the client at the start of each connection; excludes `http2`.
    pub proxy_protocol: Option<ProxyProtocolVersion>,
    /// When a server is sent no requests.
    pub health: OriginHealth,
    /// Maximum time to connect, including the TLS handshake.
    pub connect_timeout: Duration,
    /// Maximum time to the response head, and between parts of the body.
    pub response_timeout: Duration,
    /// Maximum time between parts of an event stream.
    pub event_stream_timeout: Duration,
    /// Time until an unused connection is closed.
    pub idle_timeout: Duration,
    /// Maximum number of connections to the origin; at least 1.
    pub max_connections: usize,
    /// True if the origin stops its work when a connection closes.
    pub aborts_on_disconnect: bool,
    /// True if the origin has a cache that is asked for what the rules refuse.
    pub only_if_cached: bool,
}

/// Version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocolVersion {
    /// Version 1: text.
    V1,
    /// Version 2: binary.
    V2,
}

/// Server of the origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginServer {
    /// Where it listens.
    pub endpoint: OriginEndpoint,
    /// True for `https://`.
    pub is_tls: bool,
}

/// Endpoint of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginEndpoint {
    /// TCP.
    Tcp {
        /// Host: a name, or an address without brackets.
        host: String,
        /// Port number.
        port: u16,
    },
    /// Socket in the file system.
    Unix(PathBuf),
}

/// TLS to the origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginTls {
    /// PEM file with the certificates that are trusted; `None` for those of public authorities.
    pub ca: Option<PathBuf>,
    /// Name in the certificate of each server; `None` for the host of its URL.
    pub server_name: Option<String>,
    /// PEM files of the certificate, and its key, that the gateway shows to the origin.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// False if any certificate is accepted.
    pub verifies: bool,
}

/// When a server of several is sent no requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginHealth {
    /// Consecutive failures after which it is ejected; at least 1.
    pub max_failures: u32,
    /// Time until one request tries an ejected server again; not zero.
    pub eject_for: Duration,
    /// Requests of the gateway itself.
    pub check: Option<HealthCheck>,
}

/// Active check of each server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Path and query of the request.
    pub path: String,
    /// Time between two checks; not zero.
    pub interval: Duration,
    /// Maximum time of a check; not zero.
    pub timeout: Duration,
}

impl Origin {
    /// Returns the names of the servers, without their scheme.
    pub fn authorities(&self) -> String {
        let names: Vec<_> = self.servers.iter().map(OriginServer::authority).collect();
        names.join(", ")
    }

    /// Returns the URLs of the servers.
    pub fn urls(&self) -> String {
        let urls: Vec<_> = self.servers.iter().map(OriginServer::to_string).collect();
        urls.join(", ")
    }
}

impl OriginServer {
    /// Returns host and port as in a `Host` field: the port only if it is not that of the scheme, IPv6 in brackets.
    pub fn authority(&self) -> String {
        let (host, port) = match &self.endpoint {
            OriginEndpoint::Tcp { host, port } => (host, *port),
            OriginEndpoint::Unix(path) => return format!("unix:{}", path.display()),
        };
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        if port == default_port(self.is_tls) { host } else { format!("{host}:{port}") }
    }

    /// Returns the address of the server; `None` if its host is a name, or it has none.
    pub fn address(&self) -> Option<SocketAddr> {
        let OriginEndpoint::Tcp { host, port } = &self.endpoint else { return None };
        host.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, *port))
    }
}

impl fmt::Display for OriginServer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match &self.endpoint {
            OriginEndpoint::Unix(_) => "",
            OriginEndpoint::Tcp { .. } if self.is_tls => "https://",
            OriginEndpoint::Tcp { .. } => "http://",
        };
        write!(out, "{scheme}{}", self.authority())
    }
}

/// Returns the port of a URL without one.
pub const fn default_port(is_tls: bool) -> u16 {
    if is_tls { 443 } else { 80 }
}
