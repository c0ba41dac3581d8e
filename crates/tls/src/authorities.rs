//! Authorities that the gateway trusts as a client, and in certificates of clients.

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Returns the public authorities, as Mozilla has them.
pub fn public_authorities() -> RootCertStore {
    RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }
}

/// Returns the authorities in `pem`. The error is its reason.
pub fn authorities(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut authorities = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("invalid PEM: {error}"))?;
        authorities.add(certificate).map_err(|error| format!("invalid certificate: {error}"))?;
    }
    match authorities.is_empty() {
        true => Err("contains no certificate".to_owned()),
        false => Ok(authorities),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_are_certificates() {
        let reason = |pem: &[u8]| authorities(pem).expect_err("unusable");
        assert_eq!(reason(b"garbage"), "contains no certificate");
        let broken = reason(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        assert!(broken.starts_with("invalid certificate"), "{broken}");
    }
}
