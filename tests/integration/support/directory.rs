//! A server of HTTPS on loopback that publishes what a test tells it to, and an authority that vouches for it.

use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use tidegate::service::ExternalAccess;
use tidegate::verify::fetch::{AllowedAddresses, Fetcher};

/// A server of one document.
pub struct Directory {
    address: SocketAddr,
    roots: RootCertStore,
    answer: Arc<Mutex<String>>,
    asked: Arc<Mutex<usize>>,
}

impl Directory {
    /// A server that has nothing yet.
    pub fn empty() -> Self {
        let (roots, config) = authority();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let answer = Arc::new(Mutex::new(String::new()));
        let directory = Self { address, roots, answer: Arc::clone(&answer), asked: Arc::default() };
        directory.answers("404 Not Found", "", "");
        let asked = Arc::clone(&directory.asked);
        // The thread ends with the process, as an origin's does.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let connection = ServerConnection::new(Arc::clone(&config)).expect("a good configuration");
                serve(StreamOwned::new(connection, stream), &answer.lock().clone());
                *asked.lock() += 1;
            }
        });
        directory
    }

    /// From now on it answers so.
    pub fn answers(&self, status: &str, fields: &str, body: &str) {
        let length = body.len();
        *self.answer.lock() =
            format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    }

    /// From now on it publishes these keys.
    pub fn publishes(&self, keys: &str) {
        let media_type = "Content-Type: application/http-message-signatures-directory+json\r\n";
        self.answers("200 OK", &format!("{media_type}Cache-Control: max-age=600\r\n"), keys);
    }

    /// Its address, by the name of this machine.
    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }

    /// How often it was asked.
    pub fn asked(&self) -> usize {
        *self.asked.lock()
    }

    /// A world in which it is trusted, and in which what a request names is asked if it is within `reach`.
    pub fn world(&self, reach: AllowedAddresses) -> ExternalAccess {
        ExternalAccess { fetcher: Fetcher::with_roots(self.roots.clone()), reach }
    }
}

fn serve(mut stream: StreamOwned<ServerConnection, TcpStream>, answer: &str) {
    let mut head = [0; 4096];
    let Ok(_) = stream.read(&mut head) else { return };
    let _ = stream.write_all(answer.as_bytes());
    stream.conn.send_close_notify();
    let _ = stream.flush();
}

/// An authority of this test's own, and a server that it vouches for.
fn authority() -> (RootCertStore, Arc<ServerConfig>) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(issuer.der().clone()).expect("a certificate");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("TLS 1.2 and 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .expect("a key that fits");
    (roots, Arc::new(config))
}
