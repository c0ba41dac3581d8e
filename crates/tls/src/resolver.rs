//! Chooses the certificate by the name that a client asks for (server name indication, RFC 6066 section 3).

use super::certificate::Certificate;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::sync::Arc;

/// Certificates of a listener by name.
#[derive(Debug)]
pub(super) struct CertificateResolver {
    /// Certificates by name; a wildcard `*.example.com` is at `.example.com`.
    by_name: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// Certificate for a client that asks for no name, or for an unknown one. Without one, such a client is refused.
    default: Option<Arc<CertifiedKey>>,
}

impl CertificateResolver {
    /// Creates a resolver; the first certificate is the default.
    pub(super) fn new<'a>(certificates: impl IntoIterator<Item = &'a Certificate>) -> Self {
        let (mut by_name, mut default) = (HashMap::<String, Vec<_>>::new(), None);
        for certificate in certificates {
            default.get_or_insert_with(|| Arc::clone(&certificate.key));
            for name in certificate.dns_names() {
                let name = name.strip_prefix('*').unwrap_or(name);
                by_name.entry(name.to_owned()).or_default().push(Arc::clone(&certificate.key));
            }
        }
        Self { by_name, default }
    }

    /// Returns the certificates with `name`, exactly, else as a wildcard, which covers one label.
    fn with_name(&self, name: &str) -> &[Arc<CertifiedKey>] {
        let parent = || self.by_name.get(&name[name.find('.')?..]);
        self.by_name.get(name).or_else(parent).map_or(&[], Vec::as_slice)
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = client.server_name().map_or(&[][..], |name| self.with_name(name));
        // Of an ECDSA and an RSA certificate with the same name, one that the client can verify.
        let is_usable = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(client.signature_schemes()).is_some();
        named.iter().find(is_usable).or(named.first()).or(self.default.as_ref()).cloned()
    }
}
