//! What the gateway needs to know of a certificate besides its key.

use x509_cert::certificate::{Certificate, Version};
use x509_cert::der::{Decode, Error};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// Names and expiry of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CertificateFacts {
    /// DNS names of the subject, in lower case and in the order of the certificate; its common name if there are none.
    pub(super) dns_names: Vec<String>,
    /// Common name of the subject.
    pub(super) common_name: Option<String>,
    /// Email addresses and URIs of the subject.
    pub(super) other_names: Vec<String>,
    /// Start of the validity, in seconds since 1970.
    pub(super) starts_at: u64,
    /// End of the validity, in seconds since 1970.
    pub(super) expires_at: u64,
    /// False for X.509 of version 1, which has no extensions, and no place for the names of a site.
    pub(super) has_extensions: bool,
}

impl CertificateFacts {
    /// Parses a certificate in DER.
    pub(super) fn parse(der: &[u8]) -> Result<Self, Error> {
        let certificate = Certificate::from_der(der)?;
        let subject = certificate.tbs_certificate();
        let names = subject.get_extension::<SubjectAltName>()?.map(|(_, names)| names.0).unwrap_or_default();
        let (mut dns_names, mut other_names) = (Vec::new(), Vec::new());
        for name in &names {
            match name {
                GeneralName::DnsName(name) => dns_names.push(name.as_str().to_ascii_lowercase()),
                GeneralName::Rfc822Name(name) | GeneralName::UniformResourceIdentifier(name) => {
                    other_names.push(name.as_str().to_owned());
                }
                _ => {}
            }
        }
        let common_name = subject.subject().common_name()?.map(|name| name.value().into_owned());
        if dns_names.is_empty() {
            dns_names.extend(common_name.as_deref().map(str::to_ascii_lowercase));
        }
        let starts_at = subject.validity().not_before.to_unix_duration().as_secs();
        let expires_at = subject.validity().not_after.to_unix_duration().as_secs();
        let has_extensions = subject.version() != Version::V1;
        Ok(Self { dns_names, common_name, other_names, starts_at, expires_at, has_extensions })
    }
}
