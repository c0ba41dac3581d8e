use super::*;
use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::ServerName;
use rustls::server::Acceptor;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// A directory with certificates of several sites.
struct Site {
    dir: TempDir,
    roots: RootCertStore,
}

impl Site {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("temporary directory"), roots: RootCertStore::empty() }
    }

    /// Writes the files `NAME.pem` and `NAME.key` of a new certificate, which clients trust.
    fn write(&mut self, name: &str, domains: &[&str]) -> CertificatePaths {
        let key = KeyPair::generate().expect("key");
        let domains = domains.iter().map(ToString::to_string).collect::<Vec<_>>();
        let certificate = CertificateParams::new(domains).expect("names").self_signed(&key).expect("certificate");
        self.roots.add(certificate.der().clone()).expect("valid root");
        let paths = self.paths(name);
        fs::write(&paths.certificate.0, certificate.pem()).expect("write file");
        fs::write(&paths.key.0, key.serialize_pem()).expect("write file");
        paths
    }

    fn paths(&self, name: &str) -> CertificatePaths {
        let path = |extension| (self.dir.path().join(format!("{name}.{extension}")), format!("{extension} of {name}"));
        CertificatePaths { certificate: path("pem"), key: path("key"), ocsp: None }
    }

    fn files(&self, certificates: Vec<CertificatePaths>) -> Result<TlsFiles, String> {
        let source = TlsSource { certificates, acme: None, client_authority: None };
        TlsFiles::read([source], TicketKeys::generate(0)).map_err(|errors| errors.to_string())
    }

    /// Returns the names of the certificate that a client of `server_name` receives.
    fn names_for(&self, files: &TlsFiles, server_name: &'static str) -> Vec<String> {
        self.names_and_ocsp_for(files, server_name).0
    }

    /// Returns the names of the certificate, and the OCSP response, that a client of `server_name` receives.
    fn names_and_ocsp_for(&self, files: &TlsFiles, server_name: &'static str) -> (Vec<String>, Vec<u8>) {
        struct AnyCertificate(Arc<rustls::crypto::CryptoProvider>, Arc<Mutex<Vec<u8>>>);
        let ocsp = Arc::<Mutex<Vec<u8>>>::default();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.dangerous().set_certificate_verifier(Arc::new(AnyCertificate(provider, Arc::clone(&ocsp))));
        let name = ServerName::try_from(server_name).expect("valid name");
        let mut client = ClientConnection::new(Arc::new(config), name).expect("client");
        let listener = files.listeners().next().expect("a listener");
        let mut acceptor = Acceptor::default();
        let mut sent = Vec::new();
        client.write_tls(&mut sent).expect("client writes");
        acceptor.read_tls(&mut sent.as_slice()).expect("server reads");
        let accepted = acceptor.accept().expect("valid ClientHello").expect("whole ClientHello");
        let config = listener.config(&accepted.client_hello());
        let mut server = accepted.into_connection(config).expect("server accepts");
        while client.is_handshaking() || server.is_handshaking() {
            let mut sent = Vec::new();
            client.write_tls(&mut sent).expect("client writes");
            server.read_tls(&mut sent.as_slice()).expect("server reads");
            server.process_new_packets().expect("server accepts");
            sent.clear();
            server.write_tls(&mut sent).expect("server writes");
            client.read_tls(&mut sent.as_slice()).expect("client reads");
            client.process_new_packets().expect("client accepts");
        }
        let certificates = client.peer_certificates().expect("a certificate");
        let names = x509::CertificateFacts::parse(&certificates[0]).expect("valid certificate").dns_names;
        let received = ocsp.lock().clone();
        return (names, received);

        impl std::fmt::Debug for AnyCertificate {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("AnyCertificate")
            }
        }

        impl rustls::client::danger::ServerCertVerifier for AnyCertificate {
            fn verify_server_cert(
                &self,
                _: &rustls::pki_types::CertificateDer<'_>,
                _: &[rustls::pki_types::CertificateDer<'_>],
                _: &ServerName<'_>,
                ocsp: &[u8],
                _: rustls::pki_types::UnixTime,
            ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
                *self.1.lock() = ocsp.to_vec();
                Ok(rustls::client::danger::ServerCertVerified::assertion())
            }

            fn verify_tls12_signature(
                &self,
                message: &[u8],
                certificate: &rustls::pki_types::CertificateDer<'_>,
                signature: &rustls::DigitallySignedStruct,
            ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
                let algorithms = &self.0.signature_verification_algorithms;
                rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
            }

            fn verify_tls13_signature(
                &self,
                message: &[u8],
                certificate: &rustls::pki_types::CertificateDer<'_>,
                signature: &rustls::DigitallySignedStruct,
            ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
                let algorithms = &self.0.signature_verification_algorithms;
                rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
            }

            fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
                self.0.signature_verification_algorithms.supported_schemes()
            }
        }
    }
}

#[test]
fn certificate_is_chosen_by_name() {
    let mut site = Site::new();
    let certificates = vec![
        site.write("default", &["example.com"]),
        site.write("shop", &["shop.example", "www.shop.example"]),
        site.write("wildcard", &["*.shop.example"]),
    ];
    let files = site.files(certificates).expect("valid files");
    for (server_name, first_name) in [
        ("example.com", "example.com"),
        ("shop.example", "shop.example"),
        ("www.shop.example", "shop.example"),
        ("api.shop.example", "*.shop.example"),
        ("a.api.shop.example", "example.com"),
        ("elsewhere.example", "example.com"),
        ("192.0.2.1", "example.com"),
    ] {
        assert_eq!(site.names_for(&files, server_name)[0], first_name, "{server_name}");
    }
}

#[test]
fn all_unusable_files_are_reported() {
    let mut site = Site::new();
    let (valid, other) = (site.write("valid", &["a.example"]), site.write("other", &["b.example"]));
    let mixed = CertificatePaths { key: other.key, ..valid.clone() };
    let swapped = CertificatePaths { certificate: valid.key.clone(), key: valid.certificate.clone(), ocsp: None };
    let no_key = CertificatePaths { key: valid.certificate.clone(), ..valid.clone() };
    let errors = site.files(vec![valid, site.paths("missing"), mixed, swapped, no_key]).expect_err("invalid files");
    let dir = format!("{}/", site.dir.path().display());
    assert_eq!(
        errors.replace(&dir, "").lines().collect::<Vec<_>>(),
        [
            "pem of missing: missing.pem cannot be read: No such file or directory (os error 2); write the path of a file that \
             the gateway may read",
            "key of missing: missing.key cannot be read: No such file or directory (os error 2); write the path of a file that \
             the gateway may read",
            "key of other: other.key is not the key of the certificate valid.pem; write the key for which that certificate was \
             issued",
            "key of valid: valid.key contains no certificate; write a certificate in PEM, which begins with -----BEGIN \
             CERTIFICATE-----",
            "pem of valid: valid.pem contains no private key; write an unencrypted private key in PEM: ECDSA, Ed25519, or RSA \
             of at least 2048 bits",
        ]
    );
}

#[test]
fn encrypted_key_is_named() {
    let mut site = Site::new();
    let paths = site.write("site", &["a.example"]);
    for mark in ["-----BEGIN ENCRYPTED PRIVATE KEY-----", "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED"] {
        fs::write(&paths.key.0, format!("{mark}\nAAAA\n-----END PRIVATE KEY-----\n")).expect("write file");
        let error = site.files(vec![paths.clone()]).expect_err("a key that cannot be read");
        assert!(error.contains("contains an encrypted private key; write an unencrypted private key"), "{error}");
    }
}

#[test]
fn names_of_certificates_cover_hosts() {
    let mut site = Site::new();
    let paths = site.write("site", &["a.example", "*.b.example"]);
    let files = site.files(vec![paths]).expect("valid files");
    for (host, is_covered) in [
        ("a.example", true),
        ("x.b.example", true),
        ("b.example", false),
        ("x.y.b.example", false),
        ("c.example", false),
    ] {
        assert_eq!(files.covers(host), is_covered, "{host}");
    }
}

#[test]
fn changed_pair_replaces_the_certificate_and_a_bad_one_does_not() {
    let mut site = Site::new();
    let paths = site.write("site", &["a.example"]);
    let mut files = site.files(vec![paths.clone()]).expect("valid files");
    assert_eq!(files.reload_changed(), TlsReload::default());

    site.write("site", &["b.example"]);
    assert_eq!(files.reload_changed(), TlsReload { replaced: vec!["b.example".into()], errors: vec![] });
    assert_eq!(site.names_for(&files, "a.example"), ["b.example"]);

    let write_garbage = |path: &Path| fs::write(path, "garbage").expect("write file");
    write_garbage(&paths.certificate.0);
    let reload = files.reload_changed();
    assert_eq!((reload.replaced.len(), reload.errors.len()), (0, 1), "{reload:?}");
    assert!(files.states().next().is_some_and(|state| state.error.is_some() && state.domain == "b.example"));
    assert_eq!(files.reload_changed(), TlsReload::default(), "an error is reported once");
    assert_eq!(site.names_for(&files, "a.example"), ["b.example"]);

    site.write("site", &["c.example"]);
    assert_eq!(files.reload_changed().replaced, ["c.example"]);
    assert!(files.states().next().is_some_and(|state| state.error.is_none()));
}

#[test]
fn expired_certificate_is_a_warning() {
    let mut site = Site::new();
    let paths = site.write("site", &["a.example"]);
    let files = site.files(vec![paths]).expect("valid files");
    let expires_at = files.states().next().expect("a certificate").expires_at;
    assert!(files.expired_warnings(expires_at - 1).is_empty());
    assert_eq!(
        files.expired_warnings(expires_at),
        ["pem of site: the certificate of a.example has expired, and clients refuse it: renew it"]
    );
}

#[test]
fn ocsp_response_is_sent_along_and_read_again() {
    let mut site = Site::new();
    let file = site.dir.path().join("site.ocsp");
    fs::write(&file, b"first").expect("write file");
    let paths = CertificatePaths { ocsp: Some((file.clone(), "ocsp".into())), ..site.write("site", &["a.example"]) };
    let mut files = site.files(vec![paths]).expect("valid files");
    assert_eq!(site.names_and_ocsp_for(&files, "a.example").1, b"first");
    fs::write(&file, b"second").expect("write file");
    assert_eq!(files.reload_changed().replaced, ["a.example"]);
    assert_eq!(site.names_and_ocsp_for(&files, "a.example").1, b"second");
}
