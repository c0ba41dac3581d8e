//! TLS to the origin.

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CertificateError, ClientConfig};
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};
use tidegate_config::SettingPath;
use tidegate_config::settings::{Origin, OriginTls};
use tidegate_tls::{ServerTrust, is_authority_as_server};

/// Contents of the files that the settings of TLS name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TlsFiles {
    ca: Option<Vec<u8>>,
    /// Certificate and key.
    client: Option<(Vec<u8>, Vec<u8>)>,
}

impl TlsFiles {
    /// Reads the files. The error names the key of the settings.
    pub(super) fn read(Origin { path: section, tls, .. }: &Origin) -> Result<Self, String> {
        let read = |key: &str, path: &Path| {
            fs::read(path).map_err(|error| format!("{section}.{key}: cannot read {}: {error}", path.display()))
        };
        let ca = tls.ca.as_deref().map(|path| read("ca", path)).transpose()?;
        let client = match &tls.client_certificate {
            Some((certificate, key)) => Some((read("certificate", certificate)?, read("key", key)?)),
            None => None,
        };
        Ok(Self { ca, client })
    }

    /// Returns the configuration of a client that offers `protocols`. The error names the key of the settings.
    pub(super) fn client_config(&self, origin: &Origin, protocols: &[&[u8]]) -> Result<ClientConfig, String> {
        let Origin { path: section, tls, .. } = origin;
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| format!("{section}: {error}"))?;
        let builder = self.trust(origin)?.apply(builder);
        let mut config = match (&self.client, &tls.client_certificate) {
            (Some((certificate, key)), Some((certificate_path, key_path))) => {
                let chain = certificates(certificate)
                    .map_err(|reason| format!("{section}.certificate: {} {reason}", certificate_path.display()))?;
                let invalid = |error: &dyn std::fmt::Display| format!("{section}.key: {}: {error}", key_path.display());
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| invalid(&error))?;
                builder.with_client_auth_cert(chain, key).map_err(|error| invalid(&error))?
            }
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(config)
    }

    fn trust(&self, Origin { path: section, tls, .. }: &Origin) -> Result<ServerTrust, String> {
        if !tls.verifies {
            return Ok(ServerTrust::any());
        }
        let (Some(ca), Some(path)) = (&self.ca, &tls.ca) else {
            return Ok(ServerTrust::public());
        };
        ServerTrust::from_pem(ca).map_err(|reason| {
            let path = path.display();
            format!("{section}.ca: {path} {reason}; write the authorities of the origin in PEM")
        })
    }
}

/// Returns the certificates in `pem`. The error is its reason.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| format!("has invalid PEM: {error}"))?;
    if found.is_empty() { Err("contains no certificate; write it in PEM".to_owned()) } else { Ok(found) }
}

/// Returns the name that the certificate of a server must have.
pub(super) fn server_name(tls: &OriginTls, host: &str) -> io::Result<ServerName<'static>> {
    let name = tls.server_name.as_deref().unwrap_or(host).to_owned();
    ServerName::try_from(name).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// Returns the error of a handshake with an origin, whose keys are at `section`, with what would do about the certificate.
pub(super) fn handshake_error(error: io::Error, section: &SettingPath) -> io::Error {
    let reason = error.get_ref().and_then(|reason| reason.downcast_ref::<rustls::Error>());
    let Some(refused @ rustls::Error::InvalidCertificate(reason)) = reason else { return error };
    let remedy = match reason {
        CertificateError::UnknownIssuer => format!("write its authority in {section}.ca"),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("write a name that it has in {section}.server_name")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "renew it".to_owned(),
        _ if is_authority_as_server(refused) => format!(
            "it is one of an authority: name exactly it in {section}.ca, or issue one for the server, without CA:TRUE"
        ),
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {remedy}"))
}
