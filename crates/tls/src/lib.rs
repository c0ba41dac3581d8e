//! TLS towards clients, and the servers that the gateway trusts.
//!
//! [`TlsFiles`] reads the certificates of all listeners and reads them again when they change. It keeps the [`TlsListener`]
//! of each, whose configuration a connection takes at its handshake. A [`Certificate`] is chosen by the name that the client
//! asks for; [`PendingChallenges`] answer an ACME server. [`TicketKeys`] are shared by all listeners and threads, so that a
//! client can resume a session on any of them.
//!
//! Nothing here does network I/O, and the time is a parameter.

mod authorities;
mod certificate;
mod challenges;
mod client_certificate;
mod files;
mod listener;
mod resolver;
mod server_trust;
#[cfg(test)]
mod tests;
mod tickets;
mod x509;

pub use authorities::{authorities, public_authorities};
pub use certificate::{Certificate, CertificateError};
pub use challenges::{ACME_TLS, ChallengeAnswer, PendingChallenges};
pub use client_certificate::client_names;
pub use files::{
    AcmeFile, CertificatePaths, CertificateState, ClientAuthorityFile, Location, TlsErrors, TlsFiles, TlsReload,
    TlsSource,
};
pub use listener::{ClientAuthentication, TlsListener};
pub use server_trust::{ServerTrust, client_config, is_authority_as_server};
pub use tickets::{TicketKey, TicketKeySet, TicketKeys};
