//! Evaluation of a request: facts, class, route and admission.

use super::client_connection::RequestHandler;
use super::evidence::{LiveEvidence, credential};
use super::lookup::CacheRole;
use crate::gateway::exchange::journal::{EvaluatedRequest, RequestContext};
use crate::gateway::exchange::target::ClientRequest;
use crate::gateway::exchange::unknown_paths::UnknownPath;
use crate::gateway::transport::listener::ListenerKind;
use crate::gateway::worker::CurrentConfig;
use smallvec::SmallVec;
use std::hash::BuildHasher;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use tidegate_engine::{Classified, Evaluation, LearnedCosts, Observation, PathKnowledge, RequestPurpose};
use tidegate_http1::Fields;
use tidegate_policy::bot_detection::BrowserTraits;
use tidegate_policy::cache::CacheFill;
use tidegate_policy::identity::{ClientAddress, ClientKey, CredentialSource, ProxyTrust};
use tidegate_policy::path_shape::PathShape;
use tidegate_policy::{Classification, ClientFacts, ClientKind, Facts, OperatorId, RouteId, Signature, Timestamp};
use tokio::sync::Notify;
use tokio::time::sleep;

/// Maximum wait of a request for a lease. A burst can exceed the leased units; the next lease usually takes a few
/// milliseconds, on a busy disk a second.
const MAX_LEASE_WAIT: Duration = Duration::from_secs(2);

/// Maximum wait of a request for the response to another one, which says what both cost.
const MAX_COST_WAIT: Duration = Duration::from_secs(2);

/// A classified request with what is known of its client.
pub(in crate::gateway) struct ClassifiedRequest {
    pub(in crate::gateway) client_address: ClientAddress,
    /// Operator that the client claims to belong to.
    claimed: Option<OperatorId>,
    signed: bool,
    crawler: Option<OperatorId>,
    observation: Option<Observation>,
    pub(in crate::gateway) classified: Classified,
}

impl RequestHandler {
    /// Classifies and routes the request. Does not wait, and does not read the body.
    pub(in crate::gateway) fn classify(
        &self,
        request: &ClientRequest,
        current: &CurrentConfig,
        now: Timestamp,
    ) -> ClassifiedRequest {
        let rules = &current.settings.rules;
        let head = &request.head;
        if !self.is_behind_proxy(&rules.trust) {
            current.untrusted_proxy.observe(&rules.trust, self.peer, &head.fields);
        }
        let client_address = self.resolve_client_address(&rules.trust, &head.fields);
        let request_facts = request.facts();
        let mut evidence = LiveEvidence {
            handler: self,
            request,
            facts: request_facts,
            current,
            client_address: &client_address,
            now,
            browser: BrowserTraits::default(),
            observation: None,
        };
        let client = ClientFacts::gather(client_address.client, &mut evidence);
        let LiveEvidence { observation, .. } = evidence;
        let facts = Facts { request: request_facts, client: &client };
        let credential_hash = |source: &CredentialSource| {
            let hash = self.credential_hash(source, &head.fields)?;
            let address = rules.trust.key(client_address.client);
            let max = current.settings.limits.max_credentials_per_address;
            self.worker.shared().credentials.admit(address, hash, max, now).then_some(hash)
        };
        let switch = |classified: &Classification| {
            current.switches.find(client_address.client, classified, client.claimed_operator(), now)
        };
        let mut classified = current.admission.classify(&facts, switch, credential_hash, now);
        if let Some(class) = self.fill.as_ref().and_then(|fill| rules.class_id(&fill.class)) {
            classified.classification.class = class;
        }
        let is_costly = !rules[classified.route].is_free();
        let observation = observation.map(|observation| observation.with_costly(is_costly));
        let classification = &classified.classification;
        let crawler = match classification.kind {
            ClientKind::VerifiedBot => classification.operator.or(client.claimed_operator()),
            ClientKind::DeclaredBot => client.claimed_operator(),
            _ => None,
        };
        let signed = client.signature != Signature::Absent;
        let claimed = client.claimed_operator();
        ClassifiedRequest { client_address, claimed, signed, crawler, observation, classified }
    }

    /// Decides on a classified request. Waits only for a lease, and for the cost of a path that is unknown while a quota is
    /// nearly spent; `current` is another one if it changed meanwhile.
    pub(in crate::gateway) async fn evaluate(
        &self,
        classified: ClassifiedRequest,
        request: &ClientRequest,
        role: &CacheRole,
        current: Rc<CurrentConfig>,
        now: Timestamp,
    ) -> (Rc<CurrentConfig>, Box<EvaluatedRequest>) {
        let (learned, unknown_path) = match self.path_knowledge(&classified, request, role, &current) {
            PathKnowledge::Free => (LearnedCosts::new(), UnknownPath::None),
            PathKnowledge::Costs(costs) => (costs, UnknownPath::None),
            // A client that sends slowly would keep the path from others.
            PathKnowledge::Unknown if self.receives_body(&classified, request, &current) => {
                (LearnedCosts::new(), UnknownPath::AwaitsBody)
            }
            PathKnowledge::Unknown => {
                let client = current.settings.rules.trust.key(classified.client_address.client);
                // Boxed to keep the future of other requests small.
                Box::pin(self.wait_for_cost(classified.classified.route, client, request, &current)).await
            }
        };
        let mut evaluated = self.decide(classified, request, &learned, role, &current, now);
        evaluated.unknown_path = unknown_path;
        match &self.worker.shared().ledger_responses {
            Some(ledger_responses) if evaluated.evaluation.decision.verdict.waits_for_lease() => {
                // Boxed to keep the future of other requests small.
                let (current, mut again) = Box::pin(self.reevaluate_after_lease(request, role, ledger_responses)).await;
                again.unknown_path = evaluated.unknown_path;
                (current, again)
            }
            _ => (current, evaluated),
        }
    }

    /// Returns what was learned about the costs of the request beyond those of its route.
    fn path_knowledge(
        &self,
        request: &ClassifiedRequest,
        client_request: &ClientRequest,
        role: &CacheRole,
        current: &CurrentConfig,
    ) -> PathKnowledge {
        let Classified { route, exemption, .. } = request.classified;
        let is_known = role.is_free() || exemption.is_some() || !current.admission.learns_path_costs(route);
        match is_known {
            true => PathKnowledge::Free,
            false => current.admission.path_knowledge(route, &client_request.facts()),
        }
    }

    /// Returns true if the body of a request is received before it is sent to the origin.
    fn receives_body(&self, request: &ClassifiedRequest, client: &ClientRequest, current: &CurrentConfig) -> bool {
        let is_streamed = current.settings.rules[request.classified.route].streams_body;
        client.has_body && !is_streamed && self.listener.kind == ListenerKind::Site
    }

    /// Waits, if a quota is nearly spent, until a request of `client` may be the one of its shape in flight. Returns the costs
    /// that were learned meanwhile, or a guard for the request. A request that waited in vain is decided like one that costs.
    async fn wait_for_cost(
        &self,
        route: RouteId,
        client: ClientKey,
        client_request: &ClientRequest,
        current: &CurrentConfig,
    ) -> (LearnedCosts, UnknownPath) {
        let (admission, facts) = (&current.admission, client_request.facts());
        // Another proxy does not say when it has the response.
        if self.listener.kind == ListenerKind::ForwardAuth {
            return (LearnedCosts::new(), UnknownPath::None);
        }
        let paths = &self.worker.shared().unknown_paths;
        let mut timeout = pin!(sleep(MAX_COST_WAIT));
        loop {
            let mut ended = pin!(paths.ended.notified());
            // Enabled before the costs are read, so that no notification is missed.
            ended.as_mut().enable();
            let costs = admission.costs_if_nearly_spent(route, self.worker.now());
            if costs.is_empty() {
                return (costs, UnknownPath::None);
            }
            match admission.path_knowledge(route, &facts) {
                PathKnowledge::Free => return (LearnedCosts::new(), UnknownPath::None),
                PathKnowledge::Costs(costs) => return (costs, UnknownPath::None),
                PathKnowledge::Unknown => {}
            }
            let free_after = match paths.enter(PathShape::of(&facts), client, self.worker.monotonic_now()) {
                Ok(guard) => {
                    // Learned between the two looks.
                    return match admission.path_knowledge(route, &facts) {
                        PathKnowledge::Unknown => (LearnedCosts::new(), UnknownPath::InFlight(Box::new(guard))),
                        PathKnowledge::Free => (LearnedCosts::new(), UnknownPath::None),
                        PathKnowledge::Costs(costs) => (costs, UnknownPath::None),
                    };
                }
                Err(free_after) => free_after.unwrap_or(MAX_COST_WAIT),
            };
            if timeout.is_elapsed() {
                return (costs, UnknownPath::None);
            }
            tokio::select! { () = ended => {} () = &mut timeout => {} () = sleep(free_after) => {} }
        }
    }

    /// Decides again on a request whose cost was unknown before its body was received, if it is known now or others for the
    /// path are in flight: waits for its cost as one without a body does. Waits for a lease, too.
    pub(in crate::gateway) async fn reevaluate_after_body(&self, context: &mut RequestContext) {
        let (current, client) = (Rc::clone(context.current()), context.address_key());
        let Evaluation { classification, route, key, switch, exemption, .. } = *context.evaluation();
        let classified = Classified { classification, route, key, switch, exemption };
        let request = context.client_request();
        let (learned, unknown_path) = match current.admission.path_knowledge(route, &request.facts()) {
            PathKnowledge::Free => (LearnedCosts::new(), UnknownPath::None),
            PathKnowledge::Costs(costs) => (costs, UnknownPath::None),
            PathKnowledge::Unknown => self.wait_for_cost(route, client, request, &current).await,
        };
        context.set_unknown_path(unknown_path);
        if learned.is_empty() {
            return;
        }
        // Releases what the first decision reserved: the second one reserves it again.
        context.settle_unknown();
        let mut timeout = pin!(sleep(MAX_LEASE_WAIT));
        loop {
            let ledger_responses = self.worker.shared().ledger_responses.as_deref();
            let mut notified = pin!(ledger_responses.map(Notify::notified));
            if let Some(notified) = notified.as_mut().as_pin_mut() {
                // Enabled before the lease state is read, so that no notification is missed.
                notified.enable();
            }
            let (facts, purpose, now) = (context.client_request().facts(), self.purpose(), self.worker.now());
            let evaluation = current.admission.evaluate_classified(classified, &facts, &learned, purpose, now);
            let waits_for_lease = evaluation.decision.verdict.waits_for_lease();
            match notified.as_pin_mut().filter(|_| waits_for_lease && !timeout.is_elapsed()) {
                Some(notified) => tokio::select! { () = notified => {} () = &mut timeout => {} },
                None => return context.set_evaluation(evaluation),
            }
        }
    }

    /// Decides on a classified request with these learned costs. Does not wait.
    fn decide(
        &self,
        request: ClassifiedRequest,
        client_request: &ClientRequest,
        learned: &LearnedCosts,
        role: &CacheRole,
        current: &CurrentConfig,
        now: Timestamp,
    ) -> Box<EvaluatedRequest> {
        let ClassifiedRequest { client_address, claimed, signed, crawler, observation, classified } = request;
        let facts = client_request.facts();
        let purpose = if role.is_free() { RequestPurpose::Copy } else { self.purpose() };
        let evaluation = current.admission.evaluate_classified(classified, &facts, learned, purpose, now);
        Box::new(EvaluatedRequest {
            client_address,
            claimed,
            signed,
            crawler,
            observation,
            evaluation,
            unknown_path: UnknownPath::None,
        })
    }

    /// Returns what a request that needs a response of the origin is for.
    fn purpose(&self) -> RequestPurpose {
        match self.fill_reason() {
            Some(CacheFill::Refresh) => RequestPurpose::Refresh,
            Some(CacheFill::Warm) | None => RequestPurpose::Response,
        }
    }

    /// Classifies and decides again once the ledger has granted a lease, or after [`MAX_LEASE_WAIT`].
    async fn reevaluate_after_lease(
        &self,
        request: &ClientRequest,
        role: &CacheRole,
        ledger_responses: &Notify,
    ) -> (Rc<CurrentConfig>, Box<EvaluatedRequest>) {
        let worker = &self.worker;
        let mut timeout = pin!(sleep(MAX_LEASE_WAIT));
        loop {
            let mut notified = pin!(ledger_responses.notified());
            // Enabled before the lease state is read, so that no notification is missed.
            notified.as_mut().enable();
            let current = worker.current();
            let classified = self.classify(request, &current, worker.now());
            let learned = match self.path_knowledge(&classified, request, role, &current) {
                PathKnowledge::Costs(costs) => costs,
                PathKnowledge::Free | PathKnowledge::Unknown => LearnedCosts::new(),
            };
            let evaluated = self.decide(classified, request, &learned, role, &current, worker.now());
            if !evaluated.evaluation.decision.verdict.waits_for_lease() || timeout.is_elapsed() {
                return (current, evaluated);
            }
            tokio::select! { () = notified => {} () = &mut timeout => {} }
        }
    }

    fn resolve_client_address(&self, trust: &ProxyTrust, fields: &Fields) -> ClientAddress {
        if self.listener.kind == ListenerKind::ForwardAuth {
            let lines: SmallVec<[&[u8]; 2]> = fields.get_all_by_text(trust.header_behind_proxy()).collect();
            return trust.client_behind(self.peer, &lines);
        }
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
