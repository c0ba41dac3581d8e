//! Challenges by which a server checks that a domain leads to this gateway, and their answers.

use aws_lc_rs::digest::{SHA256, digest};
use instant_acme::ChallengeType;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tidegate_tls::{ChallengeAnswer, PendingChallenges};

/// How a server checks that a domain leads to this gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChallengeKind {
    /// It asks port 80 for a token.
    #[serde(rename = "http-01")]
    Http01,
    /// It asks port 443 for a handshake.
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
}

/// A challenge of one domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// Kind.
    pub kind: ChallengeKind,
    /// Domain.
    pub domain: String,
    /// Token that the server chose.
    pub token: String,
    /// Key authorization (RFC 8555 section 8.1): the token and the thumbprint of the key of the account.
    pub authorization: String,
}

impl Challenge {
    /// Answers the challenge on the listeners of this gateway, until the answer is dropped.
    pub fn answer(
        &self,
        pending: &Arc<PendingChallenges>,
    ) -> Result<ChallengeAnswer, Box<dyn std::error::Error + Send + Sync>> {
        match self.kind {
            ChallengeKind::Http01 => Ok(pending.answer_http(&self.token, &self.authorization)),
            ChallengeKind::TlsAlpn01 => {
                let mut params = CertificateParams::new(vec![self.domain.clone()])?;
                let hash = digest(&SHA256, self.authorization.as_bytes());
                params.custom_extensions = vec![CustomExtension::new_acme_identifier(hash.as_ref())];
                let key = KeyPair::generate()?;
                let certificate = params.self_signed(&key)?;
                let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
                Ok(pending.answer_tls(&self.domain, certificate.der().to_vec(), &key)?)
            }
        }
    }
}

impl ChallengeKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Http01 => "HTTP-01",
            Self::TlsAlpn01 => "TLS-ALPN-01",
        }
    }

    pub(super) fn challenge_type(self) -> ChallengeType {
        match self {
            Self::Http01 => ChallengeType::Http01,
            Self::TlsAlpn01 => ChallengeType::TlsAlpn01,
        }
    }
}
