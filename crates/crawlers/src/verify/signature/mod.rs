//! Verification of signatures: requests that an agent signs with a published key (HTTP message signatures, RFC 9421, as
//! in Web Bot Auth, draft -01: tag `web-bot-auth`; Ed25519, ECDSA and RSA).
//!
//! On a request's path, [`fields`] parses three fields, [`key_cache`] looks up the key in memory, [`message`] builds
//! the signature base, and [`keys`] verifies it. Keys are fetched in the background; a request never waits for them.
//! Without a valid signature, a client is classified by its other evidence.

mod agent;
mod algorithm;
mod fields;
mod key_cache;
mod key_fetch;
mod keys;
mod limits;
mod message;
mod outcome;
#[cfg(test)]
mod tests;

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
use tidegate_http1::Fields;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::{OperatorId, Signature, Timestamp};
use tokio::sync::Notify;
use tracing::info;

/// Minimum interval between log lines about invalid signatures.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Verifies signatures of agents.
#[derive(Debug)]
pub struct SignatureVerifier {
    /// Operators by the names of their agents, with the URLs of the keys.
    operators: HashMap<String, (OperatorId, AgentUrl)>,
    state: Mutex<VerifierState>,
    fetch_requested: Notify,
    /// Key for hashes of clients and nonces, so that clients cannot compute them.
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct VerifierState {
    key_cache: KeyCache,
    nonces: NonceCache,
    failures: FailureLimiter,
    /// Time of the last log line about an invalid signature.
    last_logged: Option<Timestamp>,
}

/// Rules for accepting signatures.
#[derive(Clone, Copy, Debug)]
pub struct SignaturePolicy {
    /// True if the keys of agents of no known operator are fetched, too.
    pub fetch_unlisted_keys: bool,
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
    policy: SignaturePolicy,
    time: VerifyTime,
}

impl SignatureVerifier {
    /// Creates a verifier for these agents, by `Signature-Agent`, without keys. Invalid URLs are ignored.
    pub fn new<'a>(agents: impl Iterator<Item = (&'a str, OperatorId)>) -> Self {
        let operators = agents.filter_map(|(agent, operator)| {
            let url = AgentUrl::parse(agent).ok()?;
            Some((url.name().to_owned(), (operator, url)))
        });
        Self {
            operators: operators.collect(),
            state: Mutex::default(),
            fetch_requested: Notify::new(),
            hasher: RandomState::new(),
        }
    }

    /// Verifies the signatures of a request. To be called once per request, because it consumes the nonce of a valid
    /// signature.
    pub fn verify(
        &self,
        message: &SignedMessage<'_>,
        client: ClientKey,
        policy: SignaturePolicy,
        time: VerifyTime,
    ) -> Signature {
        let request = VerifyRequest { message, client: self.hasher.hash_one(client), policy, time };
        let (outcome, claimed_agent) = self.verify_all(&request);
        if let (SignatureOutcome::Invalid(error), ClaimedAgent::Listed(_)) = (&outcome, claimed_agent) {
            self.log_invalid(*error, time.uptime);
        }
        match (outcome, claimed_agent) {
            (SignatureOutcome::Absent, _) => Signature::Absent,
            (SignatureOutcome::Unknown(UnverifiedReason::AgentIgnored), _) => Signature::Unknown(None),
            (_, ClaimedAgent::None) => Signature::Malformed,
            (SignatureOutcome::Verified, ClaimedAgent::Listed(operator)) => Signature::Verified(operator),
            (SignatureOutcome::Verified, ClaimedAgent::Unlisted) => Signature::Unlisted,
            (SignatureOutcome::Unknown(UnverifiedReason::Pending), ClaimedAgent::Listed(operator)) => {
                Signature::Pending(operator)
            }
            (SignatureOutcome::Unknown(_), claimed_agent) => Signature::Unknown(claimed_agent.operator()),
            (SignatureOutcome::Invalid(_), claimed_agent) => Signature::Invalid(claimed_agent.operator()),
        }
    }

    /// Logs an invalid signature in the name of an operator's agent, rate-limited, because any client can send one.
    fn log_invalid(&self, error: SignatureError, uptime: Timestamp) {
        let last_logged = &mut self.state.lock().last_logged;
        if last_logged.is_none_or(|before| uptime.saturating_duration_since(before) >= LOG_INTERVAL) {
            *last_logged = Some(uptime);
            info!("Invalid signature in the name of an operator's agent: {error}");
        }
    }

    /// Returns the outcome and the agent of the first valid signature; otherwise those of the first signature that
    /// names an agent, or of the first one.
    fn verify_all(&self, request: &VerifyRequest<'_>) -> (SignatureOutcome, ClaimedAgent) {
        let claims = match SignatureFields::read(&request.message.head.fields) {
            Ok(claims) => claims,
            Err(outcome) => return (outcome, ClaimedAgent::None),
        };
        let mut best = (SignatureOutcome::Absent, ClaimedAgent::None);
        for claim in claims.agent_signatures() {
            let result = match claim.and_then(|claim| Ok((claim.agent()?, claim))) {
                Ok((agent, claim)) => {
                    let (claimed_agent, listing) = match self.operators.get(agent.name()) {
                        Some((operator, url)) if *url == agent => {
                            (ClaimedAgent::Listed(*operator), AgentListing::Listed)
                        }
                        // The same agent with another query: a URL that the client has invented, as that of an unlisted one.
                        Some((operator, _)) => (ClaimedAgent::Listed(*operator), AgentListing::Unlisted),
                        None => (ClaimedAgent::Unlisted, AgentListing::Unlisted),
                    };
                    let checked = match listing == AgentListing::Listed || request.policy.fetch_unlisted_keys {
                        true => self.check(&claim, &agent, listing, request),
                        false => Err(UnverifiedReason::AgentUnknown.into()),
                    };
                    (checked.err().unwrap_or(SignatureOutcome::Verified), claimed_agent)
                }
                Err(outcome) => (outcome, ClaimedAgent::None),
            };
            if result.0 == SignatureOutcome::Verified {
                return result;
            }
            if best.0 == SignatureOutcome::Absent || (best.1 == ClaimedAgent::None && result.1 != ClaimedAgent::None) {
                best = result;
            }
        }
        best
    }

    fn check(
        &self,
        claim: &SignatureClaim<'_>,
        agent: &AgentUrl,
        listing: AgentListing,
        request: &VerifyRequest<'_>,
    ) -> Result<(), SignatureOutcome> {
        let params = claim.params()?;
        params.check(request.policy.max_lifetime, request.time.now)?;
        let key = self.key(agent, listing, &params, request)?;
        let base = claim.signature_base(request.message)?;
        let error = match key.verifies(params.algorithm, &base, claim.signature()) {
            false => SignatureError::InvalidSignature,
            // After verification, so that only the key's owner can use up a nonce.
            true if !self.is_first_use(agent, &params) => SignatureError::Replayed,
            true => return Ok(()),
        };
        self.state.lock().failures.record_failure(request.client, request.time.uptime);
        Err(error.into())
    }

    fn is_first_use(&self, agent: &AgentUrl, params: &SignatureParams) -> bool {
        let Some(nonce) = &params.nonce else { return true };
        let nonce = self.hasher.hash_one((agent.name(), params.key, nonce));
        self.state.lock().nonces.is_new(nonce)
    }

    fn key(
        &self,
        agent: &AgentUrl,
        listing: AgentListing,
        params: &SignatureParams,
        request: &VerifyRequest<'_>,
    ) -> Result<Arc<AgentKey>, SignatureOutcome> {
        let VerifyRequest { client, time: VerifyTime { now, uptime }, .. } = *request;
        let mut state = self.state.lock();
        if state.failures.is_limited(client, uptime) {
            return Err(UnverifiedReason::FailureLimit.into());
        }
        let key = state.key_cache.key(agent, listing, &params.key, (now, uptime));
        if key.as_ref().err() == Some(&UnverifiedReason::Pending) {
            self.fetch_requested.notify_waiters();
        }
        Ok(key?)
    }
}

/// Parses all signatures of a request and builds their signature bases. Returns whether all succeeded. For fuzz tests;
/// stores nothing.
#[doc(hidden)]
pub fn read_signed_fields(fields: Fields) -> bool {
    let target = http::Uri::from_static("/some/path?with=query&and=more");
    let head =
        tidegate_http1::RequestHead { method: http::Method::GET, target, version: http::Version::HTTP_11, fields };
    let message = SignedMessage { head: &head, authority: b"example.com", secure: true, has_body: false };
    let Ok(claims) = SignatureFields::read(&head.fields) else { return false };
    let mut bases = claims.agent_signatures().map(|claim| {
        let claim = claim?;
        claim.agent()?;
        claim.params()?;
        claim.signature_base(&message)
    });
    bases.all(|base| base.is_ok())
}
