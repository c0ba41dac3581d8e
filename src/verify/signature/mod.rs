//! Verification of signatures: requests that an agent signs with a published key (HTTP message signatures, RFC 9421, as
//! in Web Bot Auth: Ed25519, tag `web-bot-auth`).
//!
//! On a request's path, [`fields`] parses three fields, [`key_cache`] looks up the key in memory, [`message`] builds
//! the signature base, and [`keys`] verifies it. Keys are fetched in the background; a request never waits for them.
//! Without a valid signature, a client is classified by its other evidence.

mod agent;
mod fields;
mod key_cache;
mod key_fetch;
mod keys;
mod limits;
mod message;
mod outcome;
#[cfg(test)]
mod tests;

use crate::http1::Fields;
use crate::policy::identity::ClientKey;
use crate::policy::{OperatorId, Signature, Timestamp};
use agent::AgentUrl;
use fields::{SignatureClaim, SignatureFields, SignatureParams};
use key_cache::{AgentListing, KeyCache};
use keys::AgentKey;
use limits::{FailureLimiter, NonceCache};
pub use message::SignedMessage;
use outcome::{SignatureError, SignatureOutcome, UnverifiedReason};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tracing::info;

/// Minimum interval between log lines about invalid signatures.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Verifies signatures of agents.
#[derive(Debug)]
pub struct SignatureVerifier {
    operators: HashMap<AgentUrl, OperatorId>,
    memory: Mutex<VerifierState>,
    named: Notify,
    /// Key for hashes of clients and nonces, so that clients cannot compute them.
    secrets: RandomState,
}

#[derive(Debug, Default)]
struct VerifierState {
    directories: KeyCache,
    nonces: NonceCache,
    failures: FailureLimiter,
    /// Time of the last log line about an invalid signature.
    last_logged: Option<Timestamp>,
}

/// Rules for accepting signatures.
#[derive(Clone, Copy, Debug)]
pub struct SignaturePolicy {
    /// True if the keys of agents of no known operator are fetched, too.
    pub unlisted: bool,
    /// Maximum lifetime of a signature.
    pub max_lifetime: Duration,
}

/// Time of a request, by wall clock and monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct VerifyTime {
    /// Wall clock time.
    pub now: Timestamp,
    /// Monotonic time.
    pub uptime: Timestamp,
}

/// Agent in whose name a request is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimedAgent {
    /// No agent, or the fields cannot be parsed.
    None,
    /// An agent of no known operator.
    Unlisted,
    /// An agent of this operator.
    Listed(OperatorId),
}

impl ClaimedAgent {
    const fn operator(self) -> Option<OperatorId> {
        match self {
            Self::Listed(operator) => Some(operator),
            Self::None | Self::Unlisted => None,
        }
    }
}

/// Input of a verification.
struct VerifyRequest<'a> {
    message: &'a SignedMessage<'a>,
    /// Hash of the client.
    client: u64,
    terms: SignaturePolicy,
    moment: VerifyTime,
}

impl SignatureVerifier {
    /// Creates a verifier for these agents, by `Signature-Agent`, without keys. Invalid URLs are ignored.
    pub fn of<'a>(agents: impl Iterator<Item = (&'a str, OperatorId)>) -> Self {
        let operators = agents.filter_map(|(agent, operator)| Some((AgentUrl::parse(agent).ok()?, operator)));
        Self {
            operators: operators.collect(),
            memory: Mutex::default(),
            named: Notify::new(),
            secrets: RandomState::new(),
        }
    }

    /// Verifies the signatures of a request. To be called once per request, because it consumes the nonce of a valid
    /// signature.
    pub fn verify(
        &self,
        message: &SignedMessage<'_>,
        client: ClientKey,
        terms: SignaturePolicy,
        moment: VerifyTime,
    ) -> Signature {
        let question = VerifyRequest { message, client: self.secrets.hash_one(client), terms, moment };
        let (finding, named) = self.verify_all(&question);
        if let (SignatureOutcome::Invalid(fault), ClaimedAgent::Listed(_)) = (&finding, named) {
            self.log_invalid(*fault, moment.uptime);
        }
        match (finding, named) {
            (SignatureOutcome::Absent, _) => Signature::Absent,
            (_, ClaimedAgent::None) => Signature::Unreadable,
            (SignatureOutcome::Verified, ClaimedAgent::Listed(operator)) => Signature::Verified(operator),
            (SignatureOutcome::Verified, ClaimedAgent::Unlisted) => Signature::Unlisted,
            (SignatureOutcome::Unknown(UnverifiedReason::Pending), ClaimedAgent::Listed(operator)) => {
                Signature::Pending(operator)
            }
            (SignatureOutcome::Unknown(_), named) => Signature::Unknown(named.operator()),
            (SignatureOutcome::Invalid(_), named) => Signature::Invalid(named.operator()),
        }
    }

    /// Logs an invalid signature in the name of an operator's agent, rate-limited, because any client can send one.
    fn log_invalid(&self, fault: SignatureError, uptime: Timestamp) {
        let last_logged = &mut self.memory.lock().last_logged;
        if last_logged.is_none_or(|before| uptime.saturating_duration_since(before) >= LOG_INTERVAL) {
            *last_logged = Some(uptime);
            info!("Invalid signature in the name of an operator's agent: {fault}");
        }
    }

    /// Returns the outcome and the agent of the first valid signature; otherwise those of the first signature that
    /// names an agent, or of the first one.
    fn verify_all(&self, question: &VerifyRequest<'_>) -> (SignatureOutcome, ClaimedAgent) {
        let claims = match SignatureFields::read(&question.message.head.fields) {
            Ok(claims) => claims,
            Err(finding) => return (finding, ClaimedAgent::None),
        };
        let mut last_logged = (SignatureOutcome::Absent, ClaimedAgent::None);
        for claim in claims.agent_signatures() {
            let examined = match claim.and_then(|claim| Ok((claim.agent()?, claim))) {
                Ok((agent, claim)) => {
                    let named = self
                        .operators
                        .get(&agent)
                        .map_or(ClaimedAgent::Unlisted, |operator| ClaimedAgent::Listed(*operator));
                    let lane =
                        if named == ClaimedAgent::Unlisted { AgentListing::Unlisted } else { AgentListing::Listed };
                    let known = match lane == AgentListing::Listed || question.terms.unlisted {
                        true => self.check(&claim, &agent, lane, question),
                        false => Err(UnverifiedReason::AgentUnknown.into()),
                    };
                    (known.err().unwrap_or(SignatureOutcome::Verified), named)
                }
                Err(finding) => (finding, ClaimedAgent::None),
            };
            if examined.0 == SignatureOutcome::Verified {
                return examined;
            }
            if last_logged.0 == SignatureOutcome::Absent
                || (last_logged.1 == ClaimedAgent::None && examined.1 != ClaimedAgent::None)
            {
                last_logged = examined;
            }
        }
        last_logged
    }

    fn check(
        &self,
        claim: &SignatureClaim<'_>,
        agent: &AgentUrl,
        lane: AgentListing,
        question: &VerifyRequest<'_>,
    ) -> Result<(), SignatureOutcome> {
        let particulars = claim.params()?;
        particulars.check(question.terms.max_lifetime, question.moment.now)?;
        let key = self.key(agent, lane, &particulars, question)?;
        let base = claim.signature_base(question.message)?;
        let fault = match key.verifies(&base, claim.signature()) {
            false => SignatureError::InvalidSignature,
            // After verification, so that only the key's owner can use up a nonce.
            true if !self.is_first_use(agent, &particulars) => SignatureError::Replayed,
            true => return Ok(()),
        };
        self.memory.lock().failures.record_failure(question.client, question.moment.uptime);
        Err(fault.into())
    }

    fn is_first_use(&self, agent: &AgentUrl, particulars: &SignatureParams) -> bool {
        let Some(nonce) = &particulars.nonce else { return true };
        let nonce = self.secrets.hash_one((agent, particulars.key, nonce));
        self.memory.lock().nonces.is_new(nonce)
    }

    fn key(
        &self,
        agent: &AgentUrl,
        lane: AgentListing,
        particulars: &SignatureParams,
        question: &VerifyRequest<'_>,
    ) -> Result<Arc<AgentKey>, SignatureOutcome> {
        let VerifyRequest { client, moment: VerifyTime { now, uptime }, .. } = *question;
        let mut memory = self.memory.lock();
        if memory.failures.is_limited(client, uptime) {
            return Err(UnverifiedReason::FailureLimit.into());
        }
        let key = memory.directories.key(agent, lane, &particulars.key, (now, uptime));
        if key.as_ref().err() == Some(&UnverifiedReason::Pending) {
            self.named.notify_waiters();
        }
        Ok(key?)
    }
}

/// Parses all signatures of a request and builds their signature bases. Returns whether all succeeded. For fuzz tests;
/// stores nothing.
#[doc(hidden)]
pub fn read_signed_fields(fields: Fields) -> bool {
    let target = http::Uri::from_static("/some/path?with=query&and=more");
    let head = crate::http1::RequestHead { method: http::Method::GET, target, version: http::Version::HTTP_11, fields };
    let message = SignedMessage { head: &head, authority: b"example.com", secure: true, has_body: false };
    let Ok(claims) = SignatureFields::read(&head.fields) else { return false };
    let mut read = claims.agent_signatures().map(|claim| {
        let claim = claim?;
        claim.agent()?;
        claim.params()?;
        claim.signature_base(&message)
    });
    read.all(|base| base.is_ok())
}
