//! TLS between the clients of a test and its gateway, so that a test of plain connections is one of TLS, too
//! (`TIDEGATE_TEST_TLS=1`). A client connects to the tunnel, which opens a connection with TLS to the gateway and passes
//! bytes both ways. It holds few bytes itself: a client that does not read stops the gateway.

use super::tls::Certificates;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::SockRef;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, sink};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

const SITE: &str = "tunnel.example";
/// Bytes that the system keeps of a connection in each direction.
const SOCKET_BUFFER: u32 = 16 * 1024;

/// Tunnels of this process for HTTP/1.1, each with that for HTTP/2 to the same gateway.
static TUNNELS: Mutex<Vec<(SocketAddr, SocketAddr)>> = Mutex::new(Vec::new());

/// Returns true if tests run over TLS.
pub fn is_requested() -> bool {
    std::env::var_os("TIDEGATE_TEST_TLS").is_some()
}

/// Returns the address for HTTP/2 of the gateway at `address`: TLS negotiates the protocol.
pub fn for_http2(address: SocketAddr) -> SocketAddr {
    let tunnels = TUNNELS.lock();
    tunnels.iter().find(|(http1, _)| *http1 == address).map_or(address, |(_, http2)| *http2)
}

/// Certificate of a gateway, and the tunnels to it.
pub struct TlsTunnels {
    certificates: Certificates,
    address: Option<SocketAddr>,
}

impl TlsTunnels {
    pub fn new() -> Self {
        Self { certificates: Certificates::new(), address: None }
    }

    /// Returns the YAML of a listener.
    pub fn listener(&self) -> String {
        format!("listen: {{ address: '127.0.0.1:0', tls: {{ {} }} }}", self.certificates.issue("tunnel", &[SITE]))
    }

    /// Returns the address of the tunnel for HTTP/1.1.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Opens tunnels to a gateway that was started, in place of those to the one before. They pass on what a gateway sent
    /// before it stopped, so they stay open to the end of the process.
    pub fn start(&mut self, gateway: SocketAddr) {
        let (address_sender, addresses) = std::sync::mpsc::channel();
        let config = self.certificates.client_config();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let bind = || async { TcpListener::bind("127.0.0.1:0").await.expect("a free port") };
                let (http1, http2) = (bind().await, bind().await);
                let addresses = [&http1, &http2].map(|listener| listener.local_addr().expect("socket is bound"));
                address_sender.send(addresses).expect("the test waits");
                tokio::join!(
                    serve(http1, gateway, connector(config.clone(), b"http/1.1")),
                    serve(http2, gateway, connector(config, b"h2"))
                );
            });
        });
        let [http1, http2] = addresses.recv().expect("the tunnels are open");
        TUNNELS.lock().push((http1, http2));
        self.address = Some(http1);
    }
}

fn connector(mut config: ClientConfig, protocol: &[u8]) -> TlsConnector {
    config.alpn_protocols = vec![protocol.to_vec()];
    Arc::new(config).into()
}

/// Serves clients. The gateway accepts their connections in the order in which they came: a handshake is over before the
/// next one begins.
async fn serve(listener: TcpListener, gateway: SocketAddr, connector: TlsConnector) {
    SockRef::from(&listener).set_recv_buffer_size(SOCKET_BUFFER as usize).expect("socket option can be set");
    SockRef::from(&listener).set_send_buffer_size(SOCKET_BUFFER as usize).expect("socket option can be set");
    while let Ok((mut client, _)) = listener.accept().await {
        let Ok(stream) = connect(gateway).await else { continue };
        let name = ServerName::try_from(SITE).expect("a valid name");
        // A gateway may refuse a connection: so does the tunnel.
        let Ok(mut stream) = connector.connect(name, stream).await else { continue };
        let _ = client.set_nodelay(true);
        tokio::spawn(async move {
            let (mut from_client, mut to_client) = client.split();
            let (mut from_gateway, mut to_gateway) = tokio::io::split(&mut stream);
            let upward = pass(&mut from_client, &mut to_gateway);
            let downward = pass(&mut from_gateway, &mut to_client);
            let is_reset = tokio::select! {
                // A client that has reset its connection waits for nothing.
                End::SourceFailed = upward => true,
                // A gateway that reads no more may still send its response.
                end = downward => end != End::Complete,
            };
            if is_reset {
                let _ = SockRef::from(&client).set_linger(Some(std::time::Duration::ZERO));
                let _ = SockRef::from(stream.get_ref().0).set_linger(Some(std::time::Duration::ZERO));
            } else {
                // Unread data would reset the connection of a client that has not read the response.
                let _ = copy(&mut from_client, &mut sink()).await;
            }
        });
    }
}

async fn connect(gateway: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    socket.set_nodelay(true)?;
    socket.connect(gateway).await
}

/// End of one direction of a connection.
#[derive(PartialEq, Eq)]
enum End {
    Complete,
    SourceFailed,
    TargetFailed,
}

async fn pass(source: &mut (impl AsyncRead + Unpin), target: &mut (impl AsyncWrite + Unpin)) -> End {
    let mut block = [0; 8 * 1024];
    loop {
        let read = match source.read(&mut block).await {
            // A gateway that closes a connection without an end of TLS has not reset it: what it sent arrives.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            read => read,
        };
        match read {
            Err(_) => return End::SourceFailed,
            Ok(0) => {
                let _ = target.shutdown().await;
                return End::Complete;
            }
            Ok(length) => {
                if target.write_all(&block[..length]).await.is_err() || target.flush().await.is_err() {
                    return End::TargetFailed;
                }
            }
        }
    }
}
