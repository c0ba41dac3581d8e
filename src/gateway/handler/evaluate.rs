//! Evaluation of a request: facts, identity, signature, class, route and admission.

use super::request_handler::RequestHandler;
use crate::gateway::observe;
use crate::gateway::request_context::EvaluatedRequest;
use crate::gateway::target::{self, ClientRequest};
use crate::gateway::worker::CurrentConfig;
use smallvec::SmallVec;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use tidegate_crawlers::verify::signature::{SignaturePolicy, SignedMessage, VerifyTime};
use tidegate_engine::{AdmissionOutcome, Decision, Evaluation, Observation};
use tidegate_http1::{Fields, Name};
use tidegate_policy::facts::claimed_operator;
use tidegate_policy::identity::{ClientAddress, CredentialSource, ProxyTrust, cookie};
use tidegate_policy::{Claim, ClientKind, Facts, Proof, Reason, Refusal, Signature, Timestamp};
use tokio::sync::Notify;
use tokio::time::sleep;

/// Maximum wait of a request for a lease. A burst can exceed the leased units; the next lease usually takes a few
/// milliseconds, on a busy disk a second.
const MAX_LEASE_WAIT: Duration = Duration::from_secs(2);

impl RequestHandler {
    /// Evaluates the request up to the verdict. Does not wait, and does not read the body.
    pub(super) fn evaluate(
        &self,
        request: &ClientRequest,
        current: &CurrentConfig,
        now: Timestamp,
    ) -> (EvaluatedRequest, Decision) {
        let worker = &self.worker;
        let rules = &current.settings.rules;
        let head = &request.head;
        current.untrusted_proxy.observe(&rules.trust, self.peer, &head.fields);
        let client_address = self.resolve_client_address(&rules.trust, &head.fields);
        let user_agent = head.fields.get(Name::UserAgent).unwrap_or_default();
        let (claim, browser) = worker.user_agent_claim(user_agent);
        let signature = self.signature(request, current, client_address.client, now);
        let claimed = claimed_operator(claim, signature);
        let proof = match claimed {
            Some(operator) => worker.shared().operators.verify(operator, client_address.client, worker.monotonic_now()),
            None => Proof::Unknown,
        };
        let admission = &current.admission;
        // A signed agent or a named bot does not claim to be a browser.
        let observation = match claim {
            Claim::Browser | Claim::NoUserAgent if rules.bot_detection.is_some() && !signature.identifies_agent() => {
                let seen = observe::headers_seen(head, rules, &client_address, self.peer);
                let observed = observe::observed_request(request, (client_address.client, browser), seen);
                Observation::observe(&observed, admission, now)
            }
            _ => None,
        };
        let facts = Facts {
            method: &head.method,
            host: request.host(),
            path: request.path(),
            query: request.query(),
            client: client_address.client,
            address_lists: current.lists_containing(client_address.client),
            user_agent,
            claim,
            proof,
            signature,
            api_key_classes: &rules.api_key_classes(|source| credential(source, &head.fields)),
            bot_score: observation.and_then(|observation| observation.score_if_suspected(admission)),
        };
        let credential_hash = |source: &CredentialSource| self.credential_hash(source, &head.fields);
        let Evaluation { classification, route, key, decision } = admission.evaluate(&facts, credential_hash, now);
        let observation = observation.map(|observation| observation.with_costly(!rules[route].is_free()));
        let crawler = match classification.kind {
            ClientKind::VerifiedBot => classification.operator.or(claimed),
            ClientKind::DeclaredBot => claimed,
            _ => None,
        };
        let signed = signature != Signature::Absent;
        (EvaluatedRequest { client_address, key, signed, crawler, classification, observation, route }, decision)
    }

    /// Verifies the signature of the request. Done once, because a nonce may be valid once only.
    fn signature(&self, request: &ClientRequest, current: &CurrentConfig, client: IpAddr, now: Timestamp) -> Signature {
        let ClientRequest { head, has_body, signature, .. } = request;
        let Some(config) = &current.settings.verify.signatures else { return Signature::Absent };
        if !head.fields.contains(Name::SignatureAgent) {
            return Signature::Absent;
        }
        *signature.get_or_init(|| {
            let Self { worker, peer, .. } = self;
            let trust = &current.settings.rules.trust;
            // TLS, if any, ends at a proxy before the gateway.
            let secure = trust.trusts(*peer)
                && head.fields.get(Name::ForwardedProto).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https"));
            let message = SignedMessage { head, authority: target::host(head), secure, has_body: *has_body };
            let policy =
                SignaturePolicy { fetch_unlisted_keys: config.fetch_unlisted_keys, max_lifetime: config.max_lifetime };
            let time = VerifyTime { now, uptime: worker.monotonic_now() };
            worker.shared().signatures.verify(&message, trust.key(client), policy, time)
        })
    }

    /// Evaluates again once the ledger has granted a lease, or after [`MAX_LEASE_WAIT`].
    pub(super) async fn reevaluate_after_lease(
        &self,
        request: &ClientRequest,
        ledger_responses: &Notify,
    ) -> (Rc<CurrentConfig>, (EvaluatedRequest, Decision)) {
        let worker = &self.worker;
        let mut timeout = pin!(sleep(MAX_LEASE_WAIT));
        loop {
            let mut notified = pin!(ledger_responses.notified());
            // Enabled before the lease state is read, so that no notification is missed.
            notified.as_mut().enable();
            let current = worker.current();
            let evaluated = self.evaluate(request, &current, worker.now());
            if !waits_for_lease(&evaluated.1) || timeout.is_elapsed() {
                return (current, evaluated);
            }
            tokio::select! { () = notified => {} () = &mut timeout => {} }
        }
    }

    fn resolve_client_address(&self, trust: &ProxyTrust, fields: &Fields) -> ClientAddress {
        let Some(name) = trust.source.header() else { return ClientAddress { client: self.peer, hops: Vec::new() } };
        let lines: SmallVec<[&[u8]; 2]> = fields.get_all_by_text(name).collect();
        trust.client(self.peer, &lines)
    }

    /// Returns a hash of the client's credential: SipHash with a per-process key, because readers of the log may have
    /// the credential itself.
    fn credential_hash(&self, source: &CredentialSource, fields: &Fields) -> Option<u64> {
        credential(source, fields).map(|value| self.worker.shared().credential_hasher.hash_one(value))
    }
}

/// Returns true if the only reason for the refusal is a missing lease.
pub(super) fn waits_for_lease(decision: &Decision) -> bool {
    matches!(decision.outcome, AdmissionOutcome::Refused(Refusal { reason: Reason::Ledger, .. }))
}

/// Returns the credential that the client sends, if any.
fn credential<'a>(source: &'a CredentialSource, fields: &'a Fields) -> Option<&'a [u8]> {
    match source {
        CredentialSource::Header(name) => {
            fields.get_all_by_text(name.as_str()).next().filter(|value| !value.is_empty())
        }
        CredentialSource::Cookie(name) => cookie(fields.all(Name::Cookie), name),
    }
}
