//! Certificates of a test, and clients that trust them.

use super::TIMEOUT;
use super::client::Client;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

/// Client over TLS.
pub type TlsClient = Client<StreamOwned<ClientConnection, TcpStream>>;

/// A certificate authority, and a directory with certificates that it signed.
pub struct Certificates {
    dir: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Certificates {
    /// Creates an authority, whose certificate is the file `ca.pem`, and its key `ca.key`.
    pub fn new() -> Self {
        let mut params = CertificateParams::new(["authority.internal".to_owned()]).expect("a valid name");
        // A name of its own: OpenSSL reads a certificate with the name of its issuer as self-signed.
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("generated key");
        let secret = key.serialize_pem();
        let issuer = CertifiedIssuer::self_signed(params, key).expect("valid authority");
        let certificates = Self { dir: tempfile::tempdir().expect("temporary directory"), issuer };
        fs::write(certificates.path("ca.key"), secret).expect("file can be written");
        fs::write(certificates.path("ca.pem"), certificates.issuer.pem()).expect("file can be written");
        certificates
    }

    /// Writes the files `NAME.pem` and `NAME.key` of a new certificate for `domains`. Returns the YAML that names them.
    pub fn issue(&self, name: &str, domains: &[&str]) -> String {
        let domains: Vec<String> = domains.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(domains).expect("valid names");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("generated key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed certificate");
        let (pem, secret) = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        fs::write(&pem, certificate.pem()).expect("file can be written");
        fs::write(&secret, key.serialize_pem()).expect("file can be written");
        format!("certificate: {}, key: {}", pem.display(), secret.display())
    }

    /// Returns the path of a file.
    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    /// Returns the authority.
    pub fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("valid certificate");
        roots
    }

    /// Returns the configuration of a client that trusts the authority.
    pub fn client_config(&self) -> ClientConfig {
        self.verified_by_authority().with_no_client_auth()
    }

    /// Returns the configuration of a client with the certificate `name`.
    pub fn client_config_with(&self, name: &str) -> ClientConfig {
        let chain = CertificateDer::from_pem_file(self.path(&format!("{name}.pem"))).expect("certificate");
        let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key"))).expect("key");
        self.verified_by_authority().with_client_auth_cert(vec![chain], key).expect("key of the certificate")
    }

    fn verified_by_authority(&self) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("provider supports TLS 1.2 and 1.3")
            .with_root_certificates(self.roots())
    }

    /// Connects by HTTP/1.1 over TLS to `domain` at `address`.
    pub fn connect(&self, address: SocketAddr, domain: &'static str) -> TlsClient {
        let stream = TcpStream::connect(address).expect("gateway listens");
        try_connect(stream, domain, &Arc::new(self.client_config())).expect("handshake succeeds")
    }

    /// Returns the names of the certificate of `domain` at `address`.
    pub fn common_name_at(&self, address: SocketAddr, domain: &'static str) -> io::Result<String> {
        let stream = TcpStream::connect(address).expect("gateway listens");
        let mut client = try_connect(stream, domain, &Arc::new(self.client_config()))?;
        let certificates = client.stream().conn.peer_certificates().expect("server has a certificate");
        Ok(tidegate_tls::client_names(&certificates[0])[0].clone())
    }
}

/// Performs the handshake with `domain` on an open connection.
pub fn try_connect(stream: TcpStream, domain: &'static str, config: &Arc<ClientConfig>) -> io::Result<TlsClient> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from(domain).expect("valid name");
    let connection = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(Client::over(stream))
}
