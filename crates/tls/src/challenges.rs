//! Answers to the challenges of an ACME server, by which it checks that a domain leads to this gateway.
//!
//! HTTP-01 (RFC 8555 section 8.3) asks a listener without TLS for a token. TLS-ALPN-01 (RFC 8737) negotiates the protocol
//! `acme-tls/1` and expects a certificate made for the challenge.

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use std::collections::HashMap;
use std::sync::Arc;

/// Protocol that a validation by TLS-ALPN-01 negotiates.
pub const ACME_TLS: &[u8] = b"acme-tls/1";

/// Pending challenges, read by all threads. An answer is removed when its [`ChallengeAnswer`] is dropped.
#[derive(Debug, Default)]
pub struct PendingChallenges {
    /// Key authorizations by token.
    http: ArcSwap<HashMap<String, String>>,
    /// TLS by domain, with the certificate of the challenge.
    tls: ArcSwap<HashMap<String, Arc<ServerConfig>>>,
}

/// An answer that is given until this is dropped.
#[derive(Debug)]
pub struct ChallengeAnswer {
    challenges: Arc<PendingChallenges>,
    key: AnswerKey,
}

#[derive(Debug)]
enum AnswerKey {
    Token(String),
    Domain(String),
}

impl PendingChallenges {
    /// Answers requests for `token` with `authorization`.
    pub fn answer_http(self: &Arc<Self>, token: &str, authorization: &str) -> ChallengeAnswer {
        let (token, authorization) = (token.to_owned(), authorization.to_owned());
        let key = AnswerKey::Token(token.clone());
        self.http.rcu(|answers| with(answers, &token, &authorization));
        ChallengeAnswer { challenges: Arc::clone(self), key }
    }

    /// Answers handshakes that validate `domain` with a certificate. Returns an error if rustls cannot use it.
    pub fn answer_tls(
        self: &Arc<Self>,
        domain: &str,
        certificate: Vec<u8>,
        key: &PrivateKeyDer<'_>,
    ) -> Result<ChallengeAnswer, rustls::Error> {
        // rustls does not know the critical extension of the certificate, so it cannot compare it with the key.
        let certified =
            CertifiedKey::new(vec![CertificateDer::from(certificate)], provider::sign::any_supported_type(key)?);
        // Without client certificates: a validation server has none.
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = vec![ACME_TLS.to_vec()];
        // A session with a challenge is never resumed.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        let (domain, config) = (domain.to_ascii_lowercase(), Arc::new(config));
        self.tls.rcu(|answers| with(answers, &domain, &config));
        Ok(ChallengeAnswer { challenges: Arc::clone(self), key: AnswerKey::Domain(domain) })
    }

    /// Returns the key authorization of a pending token.
    pub fn http_answer(&self, token: &str) -> Option<String> {
        self.http.load().get(token).cloned()
    }

    /// Returns the TLS for a handshake that validates a domain; `None` if it is another handshake or none is pending.
    pub(super) fn tls_answer(&self, client: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        // A client of the site that also names this protocol is served the site.
        let mut protocols = client.alpn()?;
        let is_validation = protocols.next() == Some(ACME_TLS) && protocols.next().is_none();
        let answers = is_validation.then(|| self.tls.load())?;
        answers.get(&client.server_name()?.to_ascii_lowercase()).cloned()
    }
}

impl Drop for ChallengeAnswer {
    fn drop(&mut self) {
        match &self.key {
            AnswerKey::Token(token) => drop(self.challenges.http.rcu(|answers| without(answers, token))),
            AnswerKey::Domain(domain) => drop(self.challenges.tls.rcu(|answers| without(answers, domain))),
        }
    }
}

fn with<T: Clone>(answers: &HashMap<String, T>, key: &str, answer: &T) -> HashMap<String, T> {
    let mut answers = answers.clone();
    answers.insert(key.to_owned(), answer.clone());
    answers
}

fn without<T: Clone>(answers: &HashMap<String, T>, key: &str) -> HashMap<String, T> {
    let mut answers = answers.clone();
    answers.remove(key);
    answers
}
