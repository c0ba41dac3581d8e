//! The TLS handshake of a connection, and the limits of handshakes in progress: each costs as much as hundreds of requests.

use super::client_stream::{ChargedTlsStream, ClientStream};
use super::connection_limits::AddressGuard;
use super::connection_memory::{MemoryCharge, TLS_CONNECTION};
use super::connection_timeouts::ConnectionState;
use super::tracked_stream::TrackedStream;
use crate::gateway::shared_count::CountGuard;
use crate::gateway::worker::Worker;
use crate::telemetry::HandshakeResult;
use rustls::HandshakeKind;
use rustls::server::Acceptor;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use tidegate_tls::{ACME_TLS, TlsListener};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::debug;

/// First byte of a TLS connection: the type of a handshake record.
const HANDSHAKE_RECORD: u8 = 22;

/// Name of HTTP/2 in the protocol negotiation (ALPN).
const HTTP2: &[u8] = b"h2";

/// Response to HTTP without TLS.
const PLAIN_HTTP_RESPONSE: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 58\r\n\
    Cache-Control: no-store\r\nConnection: close\r\n\r\nThis port requires TLS: write https:// instead of http://\n";
const PLAIN_HTTP_STATUS: u16 = 400;

/// Maximum bytes of a request without TLS that are read, so that its client can read the response.
const MAX_PLAIN_REQUEST: u64 = 64 * 1024;

/// A connection after its handshake.
pub(in crate::gateway) struct TlsConnection {
    pub(in crate::gateway) stream: ClientStream,
    /// True if the client chose HTTP/2.
    pub(in crate::gateway) is_http2: bool,
    /// Names in the certificate of the client; empty without one.
    pub(in crate::gateway) certificate_names: Vec<String>,
}

/// Performs the handshake. Returns `None` if it fails, if it only validates a domain, or if there are too many.
pub(in crate::gateway) async fn accept(
    worker: &Worker,
    listener: &TlsListener,
    mut stream: TcpStream,
    peer: IpAddr,
    connection_state: &Rc<ConnectionState>,
) -> Option<TlsConnection> {
    let telemetry = worker.telemetry();
    let Some(slot) = HandshakeSlot::try_acquire(worker, peer) else {
        telemetry.tls_handshake(HandshakeResult::Refused);
        return None;
    };
    let mut outcome = CountedOutcome { worker, result: HandshakeResult::Failed };
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(1) if first[0] == HANDSHAKE_RECORD => {}
        Ok(1) if first[0].is_ascii_alphabetic() => {
            telemetry.response_without_class(PLAIN_HTTP_STATUS);
            let _ = respond_without_tls(&mut stream).await;
            return None;
        }
        _ => return None,
    }
    let charge = MemoryCharge::new(connection_state.memory(), TLS_CONNECTION);
    let stream = TrackedStream::new(stream, Rc::clone(connection_state));
    match handshake(listener, stream).await {
        Ok(mut stream) => {
            drop(slot);
            let connection = stream.get_ref().1;
            outcome.result = match connection.handshake_kind() {
                Some(HandshakeKind::Resumed) => HandshakeResult::Resumed,
                _ => HandshakeResult::Full,
            };
            if connection.alpn_protocol() == Some(ACME_TLS) {
                let _ = stream.shutdown().await;
                return None;
            }
            let is_http2 = connection.alpn_protocol() == Some(HTTP2);
            let certificate = connection.peer_certificates().and_then(<[_]>::first);
            let certificate_names = certificate.map(|der| tidegate_tls::client_names(der)).unwrap_or_default();
            let stream = ClientStream::Tls(ChargedTlsStream::new(stream, charge));
            Some(TlsConnection { stream, is_http2, certificate_names })
        }
        Err(error) => {
            debug!(%error, "TLS handshake failed: {error}");
            None
        }
    }
}

async fn handshake(listener: &TlsListener, stream: TrackedStream) -> io::Result<TlsStream<TrackedStream>> {
    let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
    let config = listener.config(&start.client_hello());
    start.into_stream(config).await
}

/// Tells a client of HTTP without TLS what to write. Reads its request, because closing the connection earlier could
/// reset it before the client reads the response.
async fn respond_without_tls(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(PLAIN_HTTP_RESPONSE).await?;
    stream.shutdown().await?;
    tokio::io::copy(&mut stream.take(MAX_PLAIN_REQUEST), &mut tokio::io::sink()).await?;
    Ok(())
}

/// Counts the result of a handshake when it ends, also by a timeout.
struct CountedOutcome<'a> {
    worker: &'a Worker,
    result: HandshakeResult,
}

impl Drop for CountedOutcome<'_> {
    fn drop(&mut self) {
        self.worker.telemetry().tls_handshake(self.result);
    }
}

/// Slot of a handshake in progress.
struct HandshakeSlot {
    _count: CountGuard,
    /// Count of its address, if handshakes per address are limited.
    _address: Option<AddressGuard>,
}

impl HandshakeSlot {
    fn try_acquire(worker: &Worker, peer: IpAddr) -> Option<Self> {
        let config = worker.config();
        let (limits, trust) = (&config.settings.limits, &config.settings.rules.trust);
        let count = worker.handshakes().try_add(limits.max_handshakes)?;
        // A proxy has many clients.
        let address_limit = limits.max_handshakes_per_address.filter(|_| !trust.trusts(peer));
        let address = match address_limit {
            Some(max) => Some(worker.shared.handshake_counts.try_add(trust.key(peer), max)?),
            None => None,
        };
        Some(Self { _count: count, _address: address })
    }
}
