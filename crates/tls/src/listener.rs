//! TLS of one listener: protocol versions, certificates, tickets and client certificates.

use super::authorities::authorities;
use super::certificate::Certificate;
use super::challenges::PendingChallenges;
use super::resolver::CertificateResolver;
use super::tickets::{TicketKeys, Ticketer};
use arc_swap::ArcSwap;
use aws_lc_rs::digest::{SHA256, digest};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs as provider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use std::sync::Arc;

/// Protocols by preference. A client that names none speaks HTTP/1.1.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// TLS of one listener, which may be replaced while it is in use.
#[derive(Debug)]
pub struct TlsListener {
    config: ArcSwap<ServerConfig>,
    tickets: Arc<TicketKeys>,
    /// Challenges of an ACME server, if the certificate comes from one.
    challenges: Option<Arc<PendingChallenges>>,
}

/// Verification of client certificates.
#[derive(Clone, Debug)]
pub struct ClientAuthentication {
    verifier: Arc<dyn ClientCertVerifier>,
    /// Digest of the authority, and whether a certificate is required.
    fingerprint: Vec<u8>,
}

impl ClientAuthentication {
    /// Creates the verification by the authorities in `pem`. The error is its reason.
    pub fn new(pem: &[u8], is_required: bool) -> Result<Self, String> {
        let authorities = Arc::new(authorities(pem)?);
        let builder = WebPkiClientVerifier::builder_with_provider(authorities, Arc::new(provider::default_provider()));
        let builder = if is_required { builder } else { builder.allow_unauthenticated() };
        let verifier = builder.build().map_err(|error| error.to_string())?;
        let fingerprint = [&[u8::from(is_required)], digest(&SHA256, pem).as_ref()].concat();
        Ok(Self { verifier, fingerprint })
    }
}

impl TlsListener {
    /// Creates the TLS of a listener; the first certificate is the default. Without a certificate, every
    /// handshake is refused, except for those that validate a domain for `challenges`.
    pub fn new<'a>(
        certificates: impl IntoIterator<Item = &'a Certificate>,
        clients: Option<&ClientAuthentication>,
        tickets: Arc<TicketKeys>,
        challenges: Option<Arc<PendingChallenges>>,
    ) -> Arc<Self> {
        let config = ArcSwap::from_pointee(config(certificates, clients, &tickets));
        Arc::new(Self { config, tickets, challenges })
    }

    /// Replaces the certificates for the next handshakes.
    pub fn replace<'a>(
        &self,
        certificates: impl IntoIterator<Item = &'a Certificate>,
        clients: Option<&ClientAuthentication>,
    ) {
        self.config.store(Arc::new(config(certificates, clients, &self.tickets)));
    }

    /// Returns the configuration for a handshake that begins with `client`.
    pub fn config(&self, client: &ClientHello<'_>) -> Arc<ServerConfig> {
        let answer = self.challenges.as_ref().and_then(|challenges| challenges.tls_answer(client));
        answer.unwrap_or_else(|| self.config.load_full())
    }
}

/// Returns the configuration: all cipher suites of rustls are AEAD with an ephemeral key exchange.
fn config<'a>(
    certificates: impl IntoIterator<Item = &'a Certificate>,
    clients: Option<&ClientAuthentication>,
    tickets: &Arc<TicketKeys>,
) -> ServerConfig {
    let resolver = CertificateResolver::new(certificates);
    let builder = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .expect("the provider has suites of both versions");
    let builder = match clients {
        Some(clients) => builder.with_client_cert_verifier(Arc::clone(&clients.verifier)),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(resolver));
    // All suites are good; scanners expect that the server, and not its clients, prefers the strongest.
    config.ignore_client_order = true;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    let scope = clients.map_or(Vec::new(), |clients| clients.fingerprint.clone());
    config.ticketer = Arc::new(Ticketer { keys: Arc::clone(tickets), scope });
    // Tickets need no memory here, and no lock.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config
}
