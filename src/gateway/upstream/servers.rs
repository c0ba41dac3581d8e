//! Servers of the origin, as all workers see them: their addresses, the requests in flight, and which of them respond.

use super::origin_health::{OriginOutage, OutageRecord};
use super::stream::OriginStream;
use super::tls::{TlsFiles, handshake_error, server_name};
use crate::gateway::shared_count::{CountGuard, SharedCount};
use crate::gateway::transport::proxy_protocol::{ProxiedClient, header};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tidegate_config::settings::{self, Origin, OriginEndpoint, OriginHealth, ProxyProtocolVersion};
use tidegate_config::{SettingPath, Settings};
use tidegate_policy::Timestamp;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tracing::{info, warn};

/// Least time between two requests without a response that count.
const FAILURE_INTERVAL: Duration = Duration::from_millis(100);

/// Names of the protocols in TLS (RFC 7301).
const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

/// Servers of an origin.
pub struct OriginServers {
    /// Name of the origin.
    name: String,
    servers: Box<[OriginServer]>,
    health: OriginHealth,
    tls_files: TlsFiles,
    tls: settings::OriginTls,
    /// True if requests are sent over HTTP/2, by servers with TLS if they choose it.
    pub(super) http2: bool,
    /// Version of the PROXY protocol at the start of each connection.
    proxy_protocol: Option<ProxyProtocolVersion>,
    /// Where the search for a server begins, so that servers with equally many requests take turns.
    turn: AtomicUsize,
    /// Responses and failures of the origin as a whole.
    pub(in crate::gateway) outages: OutageRecord,
}

/// Server of the origin.
struct OriginServer {
    settings: settings::OriginServer,
    tls: Option<ServerTls>,
    /// Addresses as last resolved; empty before the first lookup.
    addresses: ArcSwap<Vec<SocketAddr>>,
    /// Requests in flight; counted only beside other servers.
    in_flight: SharedCount,
    /// Failures since the last response.
    failures: AtomicU32,
    /// Monotonic time in nanoseconds of the last request without a response that counted; 0 if there was none.
    last_no_response: AtomicU64,
    /// Monotonic time in nanoseconds at which one request may try the server; 0 unless it is ejected.
    ejected_until: AtomicU64,
    last_error: Mutex<String>,
    /// Failure of the last lookup of the name; empty if it succeeded.
    lookup_failure: Mutex<String>,
}

/// TLS to a server.
struct ServerTls {
    /// Offers HTTP/1.1, and HTTP/2 if requests may be sent over it.
    connector: TlsConnector,
    /// Offers HTTP/1.1.
    http1_connector: TlsConnector,
    /// Name in the certificate.
    name: ServerName<'static>,
    /// Path of the keys of the origin.
    section: SettingPath,
}

/// A new connection to a server.
pub(super) struct Connected {
    pub(super) stream: OriginStream,
    pub(super) is_http2: bool,
}

/// State of an origin.
#[derive(Clone, Debug)]
pub struct OriginView {
    /// Name where there are several.
    pub name: Option<String>,
    /// Names of the servers, without their scheme.
    pub authorities: String,
    /// True once a server has a known address.
    pub is_resolved: bool,
    /// Addresses of all servers, as last resolved.
    pub addresses: Vec<SocketAddr>,
    /// State of each server.
    pub servers: Vec<OriginServerView>,
    /// Requests to which it has not responded; `None` if it responded to the last one.
    pub outage: Option<OriginOutage>,
}

/// State of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginServerView {
    /// URL.
    pub url: String,
    /// False if it is ejected.
    pub is_healthy: bool,
    /// Requests in flight; 0 for the only server.
    pub in_flight: usize,
    /// Failures since the last response.
    pub failures: u32,
    /// Last failure since the last response.
    pub last_error: Option<String>,
}

/// Servers by their index; at most 64.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServerSet(u64);

impl ServerSet {
    pub(super) fn insert(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    pub(super) fn with(mut self, index: usize) -> Self {
        self.insert(index);
        self
    }

    pub(super) fn contains(self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }
}

impl OriginServers {
    /// Returns the servers of all origins, in their order. Reads the files of TLS; the error names a key of the settings.
    pub fn all(settings: &Settings) -> Result<Vec<Self>, String> {
        settings.origins.iter().map(Self::new).collect()
    }

    fn new(origin: &Origin) -> Result<Self, String> {
        let mut tls_files = TlsFiles::default();
        let mut connectors = None;
        if origin.servers.iter().any(|server| server.is_tls) {
            tls_files = TlsFiles::read(origin)?;
            let connector = |protocols: &[&[u8]]| {
                tls_files.client_config(origin, protocols).map(|config| TlsConnector::from(Arc::new(config)))
            };
            let http1 = connector(&[HTTP1])?;
            let any = if origin.http2 { connector(&[HTTP2, HTTP1])? } else { http1.clone() };
            connectors = Some((any, http1));
        }
        let new_server = |settings: &settings::OriginServer| {
            let tls = match (&connectors, &settings.endpoint) {
                (Some((connector, http1_connector)), OriginEndpoint::Tcp { host, .. }) if settings.is_tls => {
                    let name = server_name(&origin.tls, host)
                        .map_err(|error| format!("{}: {settings}: {error}", origin.path))?;
                    let section = origin.path.clone();
                    Some(ServerTls {
                        connector: connector.clone(),
                        http1_connector: http1_connector.clone(),
                        name,
                        section,
                    })
                }
                _ => None,
            };
            Ok(OriginServer {
                tls,
                addresses: ArcSwap::from_pointee(settings.address().into_iter().collect()),
                settings: settings.clone(),
                in_flight: SharedCount::default(),
                failures: AtomicU32::default(),
                last_no_response: AtomicU64::default(),
                ejected_until: AtomicU64::default(),
                last_error: Mutex::default(),
                lookup_failure: Mutex::default(),
            })
        };
        let servers = origin.servers.iter().map(new_server).collect::<Result<_, String>>()?;
        let (health, tls) = (origin.health.clone(), origin.tls.clone());
        Ok(Self {
            name: origin.name.clone(),
            servers,
            health,
            tls_files,
            tls,
            http2: origin.http2,
            proxy_protocol: origin.proxy_protocol,
            turn: AtomicUsize::default(),
            outages: OutageRecord::default(),
        })
    }

    /// Returns those of `before` that are the same, with what is known of them, and their connections.
    pub(in crate::gateway) fn or_unchanged(self, before: &[Arc<Self>]) -> Arc<Self> {
        if let Some(same) = before.iter().find(|before| self.is_same(before)) {
            return Arc::clone(same);
        }
        for server in &self.servers {
            let mut known = before.iter().flat_map(|origin| &origin.servers);
            if let Some(known) = known.find(|known| known.settings == server.settings) {
                server.addresses.store(known.addresses.load_full());
            }
        }
        Arc::new(self)
    }

    fn is_same(&self, other: &Self) -> bool {
        let settings =
            |servers: &Self| servers.servers.iter().map(|server| server.settings.clone()).collect::<Vec<_>>();
        self.name == other.name
            && settings(self) == settings(other)
            && (&self.health, &self.tls, &self.tls_files) == (&other.health, &other.tls, &other.tls_files)
            && (self.http2, self.proxy_protocol) == (other.http2, other.proxy_protocol)
    }

    /// Returns the server for a request at the monotonic time `now`: of those that respond, and that are not in `tried`,
    /// the one with the fewest requests in flight. An ejected server is tried with one request at a time. If no server
    /// responds, all are tried.
    pub(super) fn choose(&self, tried: ServerSet, now: Timestamp) -> Option<usize> {
        let count = self.servers.len();
        if count == 1 {
            return (!tried.contains(0)).then_some(0);
        }
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        let candidates =
            || (0..count).map(|offset| first.wrapping_add(offset) % count).filter(|index| !tried.contains(*index));
        let probed = candidates().find(|&index| self.servers[index].begin_probe(now + self.health.eject_for, now));
        let least = |ejected: bool| {
            candidates()
                .filter(|&index| self.servers[index].is_ejected() == ejected)
                .min_by_key(|&index| self.servers[index].in_flight.get())
        };
        probed.or_else(|| least(false)).or_else(|| least(true))
    }

    /// Counts a request in flight, if there are other servers.
    pub(super) fn begin_request(&self, index: usize) -> Option<CountGuard> {
        (self.servers.len() > 1).then(|| self.servers[index].in_flight.add())
    }

    /// Records a response of a server, whatever its status.
    pub(super) fn record_response(&self, index: usize) {
        let server = &self.servers[index];
        if server.failures.load(Ordering::Relaxed) > 0 {
            server.failures.store(0, Ordering::Relaxed);
            if server.ejected_until.swap(0, Ordering::Relaxed) > 0 {
                info!("Origin server {} responds again", server.settings);
            }
        }
    }

    /// Records a request that was sent and that a server did not respond to. Those of one moment count once: one client can
    /// cause many, by requests that no server responds to, and a server that responds to others meanwhile is well.
    pub(super) fn record_no_response(&self, index: usize, error: &str, now: Timestamp) {
        let counted = &self.servers[index].last_no_response;
        let last = counted.load(Ordering::Relaxed);
        let is_due = last == 0 || now.saturating_duration_since(Timestamp(last)) >= FAILURE_INTERVAL;
        // Of workers that fail at once, one counts.
        if is_due && counted.compare_exchange(last, now.0.max(1), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.record_failure(index, error, now);
        }
    }

    /// Records a failure of a server: of a connection, of a check, or of a request.
    pub(super) fn record_failure(&self, index: usize, error: &str, now: Timestamp) {
        let server = &self.servers[index];
        let failures = server.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        *server.last_error.lock() = error.to_owned();
        if failures >= self.health.max_failures && self.servers.len() > 1 {
            let until = (now + self.health.eject_for).0;
            if server.ejected_until.swap(until, Ordering::Relaxed) == 0 {
                warn!("Origin server {} ejected after {failures} failures: {error}", server.settings);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.servers.len()
    }

    /// Returns the settings of active checks, which need several servers.
    pub(super) fn health_check(&self) -> Option<settings::HealthCheck> {
        self.health.check.clone().filter(|_| self.len() > 1)
    }

    /// Returns the `Host` field of the gateway's own requests to a server.
    pub(super) fn host(&self, index: usize) -> String {
        match &self.servers[index].settings.endpoint {
            OriginEndpoint::Tcp { .. } => self.servers[index].settings.authority(),
            OriginEndpoint::Unix(_) => "localhost".into(),
        }
    }

    /// Connects to a server, for requests of `client`. `needs_http1` offers no HTTP/2.
    pub(super) async fn connect(
        &self,
        index: usize,
        client: Option<ProxiedClient>,
        needs_http1: bool,
    ) -> io::Result<Connected> {
        let header = self.proxy_protocol.map_or_else(Vec::new, |version| header(version, client));
        self.servers[index].connect(&header, self.http2 && !needs_http1).await
    }

    /// Returns true once there is a server whose address is known.
    pub(in crate::gateway) fn is_resolved(&self) -> bool {
        self.servers.iter().any(|server| {
            matches!(server.settings.endpoint, OriginEndpoint::Unix(_)) || !server.addresses.load().is_empty()
        })
    }

    /// Returns the addresses of all servers, as last resolved.
    pub(in crate::gateway) fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().flat_map(|server| server.addresses.load().to_vec()).collect()
    }

    /// Returns the state of each server.
    pub(in crate::gateway) fn views(&self) -> Vec<OriginServerView> {
        let view = |server: &OriginServer| {
            let failures = server.failures.load(Ordering::Relaxed);
            OriginServerView {
                url: server.settings.to_string(),
                is_healthy: !server.is_ejected(),
                in_flight: server.in_flight.get(),
                failures,
                last_error: (failures > 0).then(|| server.last_error.lock().clone()),
            }
        };
        self.servers.iter().map(view).collect()
    }

    /// Resolves the names of the servers. A failed lookup keeps the previous addresses.
    pub(in crate::gateway) async fn resolve(&self) {
        for server in &self.servers {
            server.resolve(&self.name).await;
        }
    }
}

impl OriginServer {
    fn is_ejected(&self) -> bool {
        self.ejected_until.load(Ordering::Relaxed) > 0
    }

    /// Returns true if the server is ejected and the request may try it. No other one may until `until`.
    fn begin_probe(&self, until: Timestamp, now: Timestamp) -> bool {
        let ejected_until = self.ejected_until.load(Ordering::Relaxed);
        let is_due = ejected_until > 0 && now.0 >= ejected_until;
        is_due
            && self.ejected_until.compare_exchange(ejected_until, until.0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Connects, and sends `header` before all else.
    async fn connect(&self, header: &[u8], offers_http2: bool) -> io::Result<Connected> {
        if let OriginEndpoint::Unix(path) = &self.settings.endpoint {
            let mut stream = UnixStream::connect(path).await?;
            stream.write_all(header).await?;
            return Ok(Connected { stream: OriginStream::Unix(stream), is_http2: offers_http2 });
        }
        let mut stream = connect_tcp(&self.addresses.load_full()).await?;
        let _ = stream.set_nodelay(true);
        stream.write_all(header).await?;
        // Without TLS, nothing is negotiated.
        let Some(tls) = &self.tls else {
            return Ok(Connected { stream: OriginStream::Tcp(stream), is_http2: offers_http2 });
        };
        let connector = if offers_http2 { &tls.connector } else { &tls.http1_connector };
        let connected = connector.connect(tls.name.clone(), stream).await;
        let stream = connected.map_err(|error| handshake_error(error, &tls.section))?;
        let stream = OriginStream::Tls(Box::new(stream));
        let is_http2 = stream.protocol() == Some(HTTP2);
        Ok(Connected { stream, is_http2 })
    }

    /// Resolves the name of the server of the origin `name`, which is empty for the only one. Logs a failure once, until the next
    /// success or another failure.
    async fn resolve(&self, name: &str) {
        let OriginEndpoint::Tcp { host, port } = &self.settings.endpoint else { return };
        if self.settings.address().is_some() {
            return;
        }
        let failure = match tokio::net::lookup_host((host.as_str(), *port)).await.map(Vec::from_iter) {
            Ok(addresses) if !addresses.is_empty() => {
                if self.addresses.load().is_empty() {
                    info!("Origin {} resolved to {}", self.settings.authority(), addresses[0]);
                }
                self.addresses.store(Arc::new(addresses));
                String::new()
            }
            Ok(_) => "has no address records".to_owned(),
            Err(error) => format!("DNS lookup failed: {error}"),
        };
        if self.is_new_lookup_failure(&failure) {
            let separator = if name.is_empty() { "" } else { ": " };
            warn!("Origin {name}{separator}{host} {failure}");
        }
    }

    /// Records the failure of a lookup, or its success by an empty text. Returns true for a failure that differs from that of the
    /// lookup before.
    fn is_new_lookup_failure(&self, failure: &str) -> bool {
        let mut last = self.lookup_failure.lock();
        if *last == failure {
            return false;
        }
        failure.clone_into(&mut last);
        !failure.is_empty()
    }
}

async fn connect_tcp(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "origin has no address records");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn failure_of_lookups_is_new_once() {
        let text = "origin: http://origin.invalid\n";
        let settings = tidegate_config::load(Path::new("tidegate.yaml"), text, &[], &[], &[]).expect("valid settings");
        let origins = OriginServers::all(&settings).expect("no files of TLS");
        let server = &origins[0].servers[0];
        let failures = ["", "one", "one", "other", "", "", "other"];
        let expected = [false, true, false, true, false, false, true];
        assert_eq!(failures.map(|failure| server.is_new_lookup_failure(failure)), expected);
    }
}
