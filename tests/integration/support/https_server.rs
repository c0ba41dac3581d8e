//! An HTTPS server on loopback that publishes a document, and the certificate authority that signed its certificate.

use super::tls::Certificates;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use tidegate::service::ExternalAccess;
use tidegate_crawlers::verify::fetch::{AllowedAddresses, Fetcher};

/// A server with one document.
pub struct HttpsServer {
    address: SocketAddr,
    roots: RootCertStore,
    response: Arc<Mutex<String>>,
    targets: Arc<Mutex<Vec<String>>>,
}

impl HttpsServer {
    /// Starts a server without a document.
    pub fn without_document() -> Self {
        let (roots, config) = certificate_authority();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("socket is bound");
        let response = Arc::new(Mutex::new(String::new()));
        let directory = Self { address, roots, response: Arc::clone(&response), targets: Arc::default() };
        directory.set_response("404 Not Found", "", "");
        let targets = Arc::clone(&directory.targets);
        // The thread ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let connection = ServerConnection::new(Arc::clone(&config)).expect("valid TLS configuration");
                let target = serve(StreamOwned::new(connection, stream), &response.lock().clone());
                targets.lock().push(target.unwrap_or_default());
            }
        });
        directory
    }

    /// Sets the response to all further requests.
    pub fn set_response(&self, status: &str, fields: &str, body: &str) {
        let length = body.len();
        *self.response.lock() =
            format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    }

    /// Sets the keys that are published from now on.
    pub fn publish_keys(&self, keys: &str) {
        let media_type = "Content-Type: application/http-message-signatures-directory+json\r\n";
        self.set_response("200 OK", &format!("{media_type}Cache-Control: max-age=600\r\n"), keys);
    }

    /// Returns the URL of the server, with host `localhost`.
    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }

    /// Returns the number of requests received.
    pub fn request_count(&self) -> usize {
        self.targets.lock().len()
    }

    /// Returns the targets of the requests received.
    pub fn requested_targets(&self) -> Vec<String> {
        self.targets.lock().clone()
    }

    /// Returns network access that trusts this server and permits fetches from hosts within `allowed`.
    pub fn network(&self, allowed: AllowedAddresses) -> ExternalAccess {
        ExternalAccess { fetcher: Fetcher::with_roots(self.roots.clone()), allowed_addresses: allowed }
    }
}

/// Serves one request, and returns its target; `None` if none came.
fn serve(mut stream: StreamOwned<ServerConnection, TcpStream>, response: &str) -> Option<String> {
    let mut head = [0; 4096];
    let length = stream.read(&mut head).ok()?;
    let _ = stream.write_all(response.as_bytes());
    stream.conn.send_close_notify();
    let _ = stream.flush();
    String::from_utf8_lossy(&head[..length]).split(' ').nth(1).map(str::to_owned)
}

/// Creates a certificate authority, and the configuration of a server with a certificate that it signed.
fn certificate_authority() -> (RootCertStore, Arc<ServerConfig>) {
    let certificates = Certificates::new();
    certificates.issue("server", &["localhost"]);
    let certificate = CertificateDer::from_pem_file(certificates.path("server.pem")).expect("certificate");
    let key = PrivateKeyDer::from_pem_file(certificates.path("server.key")).expect("key");
    let roots = certificates.roots();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("provider supports TLS 1.2 and 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("key matches the certificate");
    (roots, Arc::new(config))
}
