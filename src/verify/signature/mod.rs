//! Proof by signature: requests that an agent signs with a key that it publishes (HTTP message signatures, RFC 9421, as
//! Web Bot Auth uses them: Ed25519, tag `web-bot-auth`).
//!
//! A request's own path reads three fields ([`fields`]), looks the key up in memory ([`key_cache`]), writes down what was
//! signed ([`message`]) and checks that ([`keys`]). Keys are fetched in the background, when an agent is named for the first
//! time and from then on; a request never waits for them. Whoever cannot be verified is what it says it is.

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

/// How often it is said at most what is wrong with a signature.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// All that is known of agents that sign.
#[derive(Debug)]
pub struct SignatureVerifier {
    operators: HashMap<AgentUrl, OperatorId>,
    memory: Mutex<VerifierState>,
    named: Notify,
    /// Turns what clients send into numbers that nobody else can compute.
    secrets: RandomState,
}

#[derive(Debug, Default)]
struct VerifierState {
    directories: KeyCache,
    nonces: NonceCache,
    failures: FailureLimiter,
    /// When it was last said what is wrong with one.
    last_logged: Option<Timestamp>,
}

/// Which signatures count.
#[derive(Clone, Copy, Debug)]
pub struct SignaturePolicy {
    /// Whether the keys of agents that no operator of the table has are fetched too.
    pub unlisted: bool,
    /// The longest that a signature may last.
    pub max_lifetime: Duration,
}

/// When a request came: by the clock, and on the scale that nobody can set.
#[derive(Clone, Copy, Debug)]
pub struct VerifyTime {
    /// By the clock.
    pub now: Timestamp,
    /// On that scale.
    pub uptime: Timestamp,
}

/// In whose name a request is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimedAgent {
    /// In no agent's, as far as can be read.
    None,
    /// In that of an agent that belongs to no operator of the table.
    Unlisted,
    /// In that of this operator's agent.
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

/// One request, to be judged.
struct VerifyRequest<'a> {
    message: &'a SignedMessage<'a>,
    /// A number for whoever sent it.
    client: u64,
    terms: SignaturePolicy,
    moment: VerifyTime,
}

impl SignatureVerifier {
    /// Knows whose `agents` are whose, by their `Signature-Agent`, and none of their keys. What is no address names nobody.
    pub fn of<'a>(agents: impl Iterator<Item = (&'a str, OperatorId)>) -> Self {
        let operators = agents.filter_map(|(agent, operator)| Some((AgentUrl::parse(agent).ok()?, operator)));
        Self {
            operators: operators.collect(),
            memory: Mutex::default(),
            named: Notify::new(),
            secrets: RandomState::new(),
        }
    }

    /// Says what the signature of a request proves. It is called once a request: a signature that says that it is for one use
    /// is used by it.
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

    /// Says what is wrong with a signature in the name of an operator's agent, now and then: anybody can send one.
    fn log_invalid(&self, fault: SignatureError, uptime: Timestamp) {
        let last_logged = &mut self.memory.lock().last_logged;
        if last_logged.is_none_or(|before| uptime.saturating_duration_since(before) >= LOG_INTERVAL) {
            *last_logged = Some(uptime);
            info!("A signature in the name of an operator's agent is wrong: {fault}");
        }
    }

    /// What the first signature proves that verifies, or else what is wrong with the first that names an agent, or else with
    /// the first; and whom it names.
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
            // After the key has said yes: nobody else can use a nonce up.
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

/// Reads whatever the fields of a request say of its signatures, down to what was signed. Returns whether all of it could be
/// read. For tests that send anything: nothing is remembered.
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
