//! A certificate with its private key.

use super::x509::CertificateFacts;
use rustls::Error;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::sync::Arc;

/// A certificate that proves the identity of the gateway, with its private key.
#[derive(Clone, Debug)]
pub struct Certificate {
    pub(super) key: Arc<CertifiedKey>,
    dns_names: Vec<String>,
    starts_at: u64,
    expires_at: u64,
}

/// Error of [`Certificate::parse`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateError {
    /// The certificate cannot be used, for this reason.
    Certificate(String),
    /// The private key cannot be used, for this reason.
    Key(String),
    /// The private key is that of another certificate.
    Mismatch,
}

impl Certificate {
    /// Parses a certificate with its intermediate certificates and its private key, in PEM, and an OCSP response in DER.
    pub fn parse(chain: &[u8], key: &[u8], ocsp: Option<Vec<u8>>) -> Result<Self, CertificateError> {
        let unusable = |error: &dyn std::fmt::Display| CertificateError::Certificate(error.to_string());
        let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| unusable(&format_args!("invalid PEM: {error}")))?;
        let first = chain.first().ok_or_else(|| unusable(&"contains no certificate"))?;
        let facts = CertificateFacts::parse(first).map_err(|error| unusable(&format_args!("invalid: {error}")))?;
        if !facts.has_extensions {
            return Err(unusable(&"is of X.509 version 1, which has no subjectAltName: issue it with that extension"));
        }
        // PKCS #8 and the older form of OpenSSL.
        let is_encrypted = [&b"BEGIN ENCRYPTED PRIVATE KEY"[..], b"Proc-Type: 4,ENCRYPTED"]
            .iter()
            .any(|mark| key.windows(mark.len()).any(|window| window == *mark));
        let no_key = if is_encrypted { "contains an encrypted private key" } else { "contains no private key" };
        let key = PrivateKeyDer::from_pem_slice(key).ok().filter(|_| !is_encrypted);
        let key = key.ok_or_else(|| CertificateError::Key(no_key.to_owned()))?;
        let key = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider());
        let mut key = key.map_err(|error| match error {
            Error::InconsistentKeys(_) => CertificateError::Mismatch,
            Error::InvalidCertificate(reason) => unusable(&format_args!("invalid: {reason:?}")),
            error => CertificateError::Key(format!("cannot be used: {error}")),
        })?;
        key.ocsp = ocsp;
        let CertificateFacts { dns_names, starts_at, expires_at, .. } = facts;
        Ok(Self { key: Arc::new(key), dns_names, starts_at, expires_at })
    }

    /// Returns the DNS names, in lower case; a name may be a wildcard.
    pub fn dns_names(&self) -> &[String] {
        &self.dns_names
    }

    /// Returns the start of the validity, in seconds since 1970.
    pub fn starts_at(&self) -> u64 {
        self.starts_at
    }

    /// Returns the end of the validity, in seconds since 1970.
    pub fn expires_at(&self) -> u64 {
        self.expires_at
    }
}
