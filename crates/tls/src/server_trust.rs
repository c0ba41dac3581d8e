//! Servers that the gateway trusts as a client.

use super::authorities::{authorities, public_authorities};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WantsClientCert, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    WantsVerifier,
};
use std::sync::Arc;

/// Servers that a client trusts: those with a certificate that an authority has issued, and those whose own certificate is
/// named.
#[derive(Clone, Debug)]
pub struct ServerTrust {
    /// `None` trusts all servers.
    authorities: Option<RootCertStore>,
    certificates: Vec<CertificateDer<'static>>,
}

impl ServerTrust {
    /// Returns trust in the public authorities.
    pub fn public() -> Self {
        public_authorities().into()
    }

    /// Returns trust in all servers, whatever certificate they have, if they have its key.
    pub fn any() -> Self {
        Self { authorities: None, certificates: Vec::new() }
    }

    /// Returns trust in the authorities in `pem`, and in servers that have one of these certificates themselves. The error is
    /// its reason.
    pub fn from_pem(pem: &[u8]) -> Result<Self, String> {
        let authorities = Some(authorities(pem)?);
        Ok(Self { authorities, certificates: CertificateDer::pem_slice_iter(pem).flatten().collect() })
    }

    /// Sets the trust of a client.
    pub fn apply(
        self,
        builder: ConfigBuilder<ClientConfig, WantsVerifier>,
    ) -> ConfigBuilder<ClientConfig, WantsClientCert> {
        let provider = Arc::clone(builder.crypto_provider());
        let issued = match self.authorities {
            None => None,
            Some(authorities) if self.certificates.is_empty() => return builder.with_root_certificates(authorities),
            Some(authorities) => {
                let verifier =
                    WebPkiServerVerifier::builder_with_provider(Arc::new(authorities), Arc::clone(&provider));
                Some(verifier.build().expect("there are authorities"))
            }
        };
        let verifier = Verifier { issued, named: self.certificates, provider };
        builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
    }
}

impl From<RootCertStore> for ServerTrust {
    fn from(authorities: RootCertStore) -> Self {
        Self { authorities: Some(authorities), certificates: Vec::new() }
    }
}

/// Returns the configuration of a client that trusts `servers` and has no certificate.
pub fn client_config(servers: ServerTrust) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(Arc::new(provider::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider supports TLS 1.2 and 1.3");
    servers.apply(builder).with_no_client_auth()
}

/// Verifier that also accepts a certificate of an authority as that of a server, if exactly it is named: many internal servers
/// have one that they have signed themselves.
#[derive(Debug)]
struct Verifier {
    /// `None` accepts any certificate.
    issued: Option<Arc<WebPkiServerVerifier>>,
    named: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(issued) = &self.issued else { return Ok(ServerCertVerified::assertion()) };
        let verified = issued.verify_server_cert(certificate, intermediates, name, ocsp_response, now);
        // The validity was checked before: an expired certificate has another error.
        if !matches!(&verified, Err(error) if is_authority_as_server(error)) || !self.named.contains(certificate) {
            return verified;
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Returns true if a server has the certificate of an authority (CA:TRUE).
pub fn is_authority_as_server(error: &Error) -> bool {
    matches!(error, Error::InvalidCertificate(CertificateError::Other(other)) if other.to_string().contains("CaUsedAsEndEntity"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
    use std::time::Duration;

    /// Returns a certificate for `origin.internal` that its owner has signed, valid in 2026.
    fn self_signed(is_authority: bool) -> rcgen::Certificate {
        let mut params = CertificateParams::new(["origin.internal".to_owned()]).expect("a valid name");
        if is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(2027, 1, 1));
        params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate")
    }

    fn verify(named: &str, shown: &rcgen::Certificate, name: &str, seconds: u64) -> Result<(), Error> {
        let ServerTrust { authorities, certificates } = ServerTrust::from_pem(named.as_bytes()).expect("certificates");
        let provider = Arc::new(provider::default_provider());
        let authorities = Arc::new(authorities.expect("authorities"));
        let issued = WebPkiServerVerifier::builder_with_provider(authorities, Arc::clone(&provider));
        let verifier = Verifier { issued: issued.build().ok(), named: certificates, provider };
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        verifier.verify_server_cert(shown.der(), &[], &name, &[], now).map(|_| ())
    }

    const IN_2026: u64 = 1_780_000_000;
    const IN_2028: u64 = 1_830_000_000;

    #[test]
    fn exactly_the_named_certificate_is_accepted_for_its_name_while_it_is_valid() {
        for is_authority in [true, false] {
            let (own, other) = (self_signed(is_authority), self_signed(is_authority));
            let both = own.pem() + &other.pem();
            let reason = |result: Result<(), Error>| result.expect_err("it is refused");
            assert_eq!(verify(&own.pem(), &own, "origin.internal", IN_2026), Ok(()), "CA: {is_authority}");
            assert_eq!(verify(&both, &other, "origin.internal", IN_2026), Ok(()), "CA: {is_authority}");
            let foreign = reason(verify(&own.pem(), &other, "origin.internal", IN_2026));
            assert!(!is_authority || is_authority_as_server(&foreign), "{foreign:?}");
            let misnamed = reason(verify(&own.pem(), &own, "other.internal", IN_2026));
            assert!(
                matches!(misnamed, Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. })),
                "{misnamed:?}"
            );
            let expired = reason(verify(&own.pem(), &own, "origin.internal", IN_2028));
            assert!(
                matches!(expired, Error::InvalidCertificate(CertificateError::ExpiredContext { .. })),
                "{expired:?}"
            );
        }
    }

    #[test]
    fn certificates_of_a_named_authority_are_accepted_as_before() {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = params.self_signed(&key).expect("a certificate");
        let issuer = rcgen::Issuer::new(params, key);
        let server = CertificateParams::new(["origin.internal".to_owned()]).expect("a valid name");
        let server = server.signed_by(&KeyPair::generate().expect("a key"), &issuer).expect("a certificate");
        assert_eq!(verify(&authority.pem(), &server, "origin.internal", IN_2026), Ok(()));
        assert!(verify(&authority.pem(), &server, "other.internal", IN_2026).is_err());
    }
}
