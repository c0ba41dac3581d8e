//! A certificate authority of a test, and certificates that it signs.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};

/// An authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key.
pub struct TestCertificate {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    /// Creates an authority.
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        // A name of its own: OpenSSL reads a certificate with the name of its issuer as self-signed.
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("generated key");
        Self(CertifiedIssuer::self_signed(params, key).expect("valid authority"))
    }

    /// Signs a certificate for these names and addresses.
    pub fn sign(&self, names: &[&str]) -> TestCertificate {
        let key = KeyPair::generate().expect("generated key");
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let certificate = CertificateParams::new(names).expect("valid names").signed_by(&key, &self.0);
        TestCertificate { certificate: certificate.expect("signed certificate"), key }
    }

    /// Returns the certificate of the authority.
    pub fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    /// Writes the certificate of the authority to a PEM file.
    pub fn write(&self, path: &Path) {
        std::fs::write(path, self.0.pem()).expect("file is writable");
    }
}

impl TestCertificate {
    /// Returns the certificate and its key.
    pub fn der(&self) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        (self.certificate.der().clone(), PrivateKeyDer::Pkcs8(self.key.serialize_der().into()))
    }

    /// Writes certificate and key to PEM files `NAME.pem` and `NAME.key` of a directory. Returns their paths.
    pub fn write(&self, dir: &Path, name: &str) -> (PathBuf, PathBuf) {
        let paths = (dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")));
        std::fs::write(&paths.0, self.certificate.pem()).expect("file is writable");
        std::fs::write(&paths.1, self.key.serialize_pem()).expect("file is writable");
        paths
    }
}
