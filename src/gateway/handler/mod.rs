//! Handles requests: facts, identity, class, route, cost, admission, forwarding, response.

mod crawl_policy;
mod robots;

use super::body::{ClientBody, RequestBody, ResponseBody, scan_to_end};
use super::connection_timeouts::ConnectionState;
use super::observe;
use super::problem::{Problem, ResponseFormat};
use super::rate_limit_headers::RateLimitSnapshot;
use super::request_context::{ClientRequest, RequestContext};
use super::target::{self, RequestError, Target};
use super::upstream::{ForwardError, UpstreamResponse, UpstreamTarget};
use super::worker::{CurrentConfig, TICK, Worker};
use super::{cost, headers};
use crate::engine::{
    AcquireOutcome, AdmissionOutcome, Decision, Evaluation, Observation, QueuePoll, QueuedRequest, SlotGuard,
    ThrottleRejection,
};
use crate::http1::{Fields, Name, Request, RequestHead, Response};
use crate::policy::decide;
use crate::policy::facts::claimed_operator;
use crate::policy::identity::{ClientAddress, ClientKey, CredentialSource, ProxyTrust, cookie};
use crate::policy::route::normalize;
use crate::policy::throttle::partition::{self, PartitionInput};
use crate::policy::{
    Claim, Classification, ClientKind, Facts, OperatorId, Proof, Reason, Refusal, Signature, Timestamp,
};
use crate::verify::signature::{SignaturePolicy, SignedMessage, VerifyTime};
use bytes::Bytes;
use http::{StatusCode, Version};
use hyper::body::Body;
use smallvec::SmallVec;
use std::cell::OnceCell;
use std::fmt::{self, Write};
use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;

/// Maximum wait of a request for a lease. A burst can exceed the leased units; the next lease usually takes a few
/// milliseconds, on a busy disk a second.
const LEDGER_TIMEOUT: Duration = Duration::from_secs(2);

/// Request handler of one client connection.
#[derive(Clone)]
pub(super) struct RequestHandler(Rc<ConnectionContext>);

/// Client and worker of a connection.
struct ConnectionContext {
    worker: Rc<Worker>,
    watch: Rc<ConnectionState>,
    peer: IpAddr,
    peer_text: String,
}

impl RequestHandler {
    pub(super) fn new(worker: Rc<Worker>, watch: Rc<ConnectionState>, peer: SocketAddr) -> Self {
        let peer = peer.ip().to_canonical();
        Self(Rc::new(ConnectionContext { worker, watch, peer, peer_text: peer.to_string() }))
    }

    /// Handles one request. Always returns a response.
    pub(super) async fn handle(self, request: Request<ClientBody>) -> Response<ResponseBody> {
        let ConnectionContext { worker, watch, .. } = &*self.0;
        let mut current = worker.current();
        let Request { head, body } = request;
        watch.on_request_start(head.version);
        let arrival = IncomingRequest { head: &head, has_body: !body.is_end_stream(), signature: OnceCell::new() };
        let mut judged = self.evaluate(&arrival, &current, worker.now());
        if judged.as_ref().is_ok_and(EvaluatedRequest::waits_for_lease)
            && let Some(answers) = &worker.shared().ledger_answers
        {
            (current, judged) = Box::pin(self.reevaluate_after_lease(&arrival, answers)).await;
        }
        let judged = match judged {
            Ok(judged) => judged,
            Err(fault) => {
                watch.on_request_end(false);
                self.drain_body(&head, body);
                return self.reject(fault, ResponseFormat::of(&head));
            }
        };
        let EvaluatedRequest {
            origin,
            key,
            signed,
            crawler,
            classified,
            observation,
            route,
            decision,
            is_crawl_policy,
            is_robots_txt,
        } = judged;
        if let Some(operator) = crawler {
            worker.shared().conduct.record_request(operator, is_robots_txt, worker.monotonic_now());
        }
        let visitor = ClientRequest { head, origin, key, signed, classified, observation, route };
        let id = worker.next_decision_id();
        let mut visit = RequestContext::new(Rc::clone(worker), Rc::clone(watch), current, visitor, &decision, id);
        match decision.ruling {
            AdmissionOutcome::Refused(refusal) => {
                self.drain_body(&visit.client_request().head, body);
                self.refuse(visit, &refusal)
            }
            AdmissionOutcome::Admitted(permit) if is_crawl_policy => {
                visit.hold_permit(permit);
                self.serve_crawl_policy(body, visit)
            }
            AdmissionOutcome::Admitted(permit) => {
                visit.hold_permit(permit);
                match is_robots_txt {
                    // Boxed to keep the future of other requests small.
                    true => Box::pin(self.serve_robots(body, visit)).await,
                    false => self.throttle_and_forward(body, visit).await,
                }
            }
        }
    }

    /// Forwards the request once all its scopes grant slots. The permit is held meanwhile; a rejection releases its
    /// units.
    async fn throttle_and_forward(&self, body: ClientBody, mut visit: Box<RequestContext>) -> Response<ResponseBody> {
        let turn = match self.acquire_slots(&visit) {
            AcquireOutcome::Acquired(pass) => Ok(pass),
            AcquireOutcome::Rejected(closed) => Err(closed),
            AcquireOutcome::Queued(waiting) => {
                // Boxed to keep the future of requests that need not wait small.
                let turn = Box::pin(self.wait_for_slot(waiting)).await;
                visit.end_queue_wait();
                turn.map(Some)
            }
        };
        match turn {
            Ok(pass) => self.forward(body, visit, pass).await,
            Err(ThrottleRejection { scope, reason, retry_after: wait }) => {
                visit.settle_unknown();
                self.drain_body(&visit.client_request().head, body);
                let problem = Problem::throttled(reason, wait, visit.retry_after_spread());
                visit.set_refused_by_scope(scope, reason, problem.retry_after());
                self.respond_with_problem(visit, problem)
            }
        }
    }

    fn acquire_slots(&self, visit: &RequestContext) -> AcquireOutcome {
        let (current, visitor) = (visit.current(), visit.client_request());
        if !current.admission.is_throttled(visitor.route) {
            return AcquireOutcome::Acquired(None);
        }
        // The path and query that the rules matched.
        let head = &visitor.head;
        let Ok(path) = normalize(head.target.path()) else { return AcquireOutcome::Acquired(None) };
        let said = PartitionInput {
            route: &current.settings.rules.routes[visitor.route].name,
            host: &target::asked_host(head),
            path: &path,
            query: head.target.query(),
            header: &|name| partition::single_value(head.fields.get_all_by_text(name.as_str())),
        };
        let class = visitor.classified.class;
        current.admission.acquire_slots(
            visitor.key,
            class,
            visitor.route,
            &said,
            visit.random(),
            self.0.worker.monotonic_now(),
        )
    }

    async fn wait_for_slot(&self, mut waiting: QueuedRequest) -> Result<SlotGuard, ThrottleRejection> {
        let worker = &self.0.worker;
        let mut alarm = pin!(sleep(Duration::ZERO));
        std::future::poll_fn(|context| {
            loop {
                let now = worker.monotonic_now();
                let look_again = match waiting.poll(context.waker(), now) {
                    QueuePoll::Granted(pass) => return Poll::Ready(Ok(pass)),
                    QueuePoll::Rejected(closed) => return Poll::Ready(Err(closed)),
                    QueuePoll::Pending { poll_at: look_again } => look_again,
                };
                // The runtime's clock may differ from the gateway's: check again within a tick.
                alarm.set(sleep(look_again.saturating_duration_since(now).min(TICK)));
                if alarm.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Evaluates the request up to the verdict. Does not wait, and does not read the body.
    fn evaluate(
        &self,
        arrival: &IncomingRequest<'_>,
        current: &CurrentConfig,
        now: Timestamp,
    ) -> Result<EvaluatedRequest, RequestError> {
        let worker = &self.0.worker;
        let rules = &current.settings.rules;
        let head = arrival.head;
        let target = Target::of(head, &worker.shared().via.pseudonym, current.settings.limits.max_body_size)?;
        current.untrusted_proxy.observe(&rules.trust, self.0.peer, &head.fields);
        let origin = self.identify(&rules.trust, &head.fields);
        let user_agent = head.fields.get(Name::UserAgent).unwrap_or_default();
        let (claim, browser) = worker.user_agent_claim(user_agent);
        let signature = self.signature(arrival, current, origin.client, now);
        let claimed = claimed_operator(claim, signature);
        let proof = match claimed {
            Some(operator) => worker.shared().operators.verify(operator, origin.client, worker.monotonic_now()),
            None => Proof::Unknown,
        };
        let admission = &current.admission;
        // A signed agent or a named bot does not claim to be a browser.
        let observation = match claim {
            Claim::Browser | Claim::NoUserAgent if rules.behaviour.is_some() && !signature.names_an_agent() => {
                let seen = observe::headers_seen(head, rules, &origin, self.0.peer);
                let look = observe::observed_request(head, &target, (origin.client, browser), seen);
                Observation::of(&look, admission, now)
            }
            _ => None,
        };
        let facts = Facts {
            method: &head.method,
            host: &target.host,
            path: &target.path,
            query: target.query,
            client: origin.client,
            address_lists: current.lists_containing(origin.client),
            user_agent,
            claim,
            proof,
            signature,
            api_key_classes: &rules.api_key_classes(|carrier| credential(carrier, &head.fields)),
            bot_score: observation.and_then(|observation| observation.score_if_suspected(admission)),
        };
        let secret = |carrier: &CredentialSource| self.credential_hash(carrier, &head.fields);
        let Evaluation { classified, route, key, decision } = admission.evaluate(&facts, secret, now);
        let observation = observation.map(|observation| observation.with_costly(!rules.routes[route].is_free()));
        let crawler = match classified.kind {
            ClientKind::VerifiedBot => classified.operator.or(claimed),
            ClientKind::DeclaredBot => claimed,
            _ => None,
        };
        let signed = signature != Signature::Absent;
        let is_crawl_policy = rules.is_crawl_policy(&target.path);
        let is_robots_txt = decide::is_robots_txt_read(&head.method, &target.path);
        Ok(EvaluatedRequest {
            origin,
            key,
            signed,
            crawler,
            classified,
            observation,
            route,
            decision,
            is_crawl_policy,
            is_robots_txt,
        })
    }

    /// Verifies the signature of the request. Done once, because a nonce may be valid once only.
    fn signature(
        &self,
        arrival: &IncomingRequest<'_>,
        current: &CurrentConfig,
        client: IpAddr,
        now: Timestamp,
    ) -> Signature {
        let IncomingRequest { head, has_body, signature } = arrival;
        let Some(terms) = &current.settings.verify.signatures else { return Signature::Absent };
        if !head.fields.contains(Name::SignatureAgent) {
            return Signature::Absent;
        }
        *signature.get_or_init(|| {
            let ConnectionContext { worker, peer, .. } = &*self.0;
            let trust = &current.settings.rules.trust;
            // TLS, if any, ends at a proxy before the gateway.
            let secure = trust.trusts(*peer)
                && head.fields.get(Name::ForwardedProto).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https"));
            let message = SignedMessage { head, authority: target::host(head), secure, has_body: *has_body };
            let terms = SignaturePolicy { unlisted: terms.unlisted_agents, max_lifetime: terms.max_lifetime };
            let moment = VerifyTime { now, uptime: worker.monotonic_now() };
            worker.shared().signatures.verify(&message, trust.key(client), terms, moment)
        })
    }

    /// Evaluates again once the ledger has granted a lease, or after [`LEASE_WAIT_TIMEOUT`].
    async fn reevaluate_after_lease(
        &self,
        arrival: &IncomingRequest<'_>,
        answers: &Notify,
    ) -> (Rc<CurrentConfig>, Result<EvaluatedRequest, RequestError>) {
        let worker = &self.0.worker;
        let mut late = pin!(sleep(LEDGER_TIMEOUT));
        loop {
            let mut answer = pin!(answers.notified());
            // Enabled before the lease state is read, so that no notification is missed.
            answer.as_mut().enable();
            let current = worker.current();
            let judged = self.evaluate(arrival, &current, worker.now());
            if !judged.as_ref().is_ok_and(EvaluatedRequest::waits_for_lease) || late.is_elapsed() {
                return (current, judged);
            }
            tokio::select! { () = answer => {} () = &mut late => {} }
        }
    }

    fn identify(&self, trust: &ProxyTrust, fields: &Fields) -> ClientAddress {
        let Some(name) = trust.source.header() else { return ClientAddress { client: self.0.peer, hops: Vec::new() } };
        let lines: SmallVec<[&[u8]; 2]> = fields.get_all_by_text(name).collect();
        trust.client(self.0.peer, &lines)
    }

    /// Returns a hash of the client's credential: SipHash with a per-process key, because readers of the log may have
    /// the credential itself.
    fn credential_hash(&self, carrier: &CredentialSource, fields: &Fields) -> Option<u64> {
        credential(carrier, fields).map(|value| self.0.worker.shared().secrets.hash_one(value))
    }

    fn refuse(&self, mut visit: Box<RequestContext>, refusal: &Refusal) -> Response<ResponseBody> {
        let current = visit.current();
        let rules = &current.settings.rules;
        let told = RateLimitSnapshot { refusal: Some(refusal), ..visit.rate_limit_snapshot() };
        let problem = Problem::refused(rules, told, visit.retry_after_spread()).expect("refusal present");
        let retry_after = problem.retry_after();
        let (response, bytes) = self.render_problem(&visit, problem, told);
        visit.set_refused(refusal.reason, retry_after);
        visit.finish_local_response(response.status, bytes);
        response
    }

    /// Renders `problem` with the rate-limit fields of `told`. Returns the response and the length of its body.
    fn render_problem(
        &self,
        visit: &RequestContext,
        problem: Problem<'_>,
        told: RateLimitSnapshot<'_>,
    ) -> (Response<ResponseBody>, u64) {
        let current = visit.current();
        let status = problem.status();
        let reader = ResponseFormat::of(&visit.client_request().head);
        let (mut response, bytes) = problem.into_response(reader, visit.id(), &mut self.0.worker.scratch());
        let (rules, fields) = (&current.settings.rules, &mut response.fields);
        current.announcements.write(rules, told, visit.started_at(), status, fields);
        (response, bytes)
    }

    /// Responds to a request that could not be parsed.
    pub(super) fn reject_unparsed(&self, fault: crate::http1::Malformed) -> Response<ResponseBody> {
        self.reject(RequestError::Unreadable(fault), ResponseFormat::UNKNOWN)
    }

    fn reject(&self, fault: RequestError, reader: ResponseFormat) -> Response<ResponseBody> {
        let worker = &self.0.worker;
        let problem = Problem::malformed(fault);
        worker.telemetry().response_without_class(problem.status().as_u16());
        let id = worker.next_decision_id();
        problem.into_response(reader, id, &mut worker.scratch()).0
    }

    /// Forwards the request to the origin and returns the response for the client.
    async fn forward(
        &self,
        body: ClientBody,
        mut visit: Box<RequestContext>,
        pass: Option<SlotGuard>,
    ) -> Response<ResponseBody> {
        let current = visit.current();
        let ConnectionContext { worker, watch, .. } = &*self.0;
        self.prepare_upstream_request(&mut visit);
        let limit = current.settings.limits.max_body_size;
        let body = RequestBody::streaming(body, limit, Rc::clone(watch), || worker.drain());
        let (answer, rest) = self.send_upstream(body, &mut visit, pass).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return self.origin_failed(visit, &error, rest),
        };
        let rules = &current.settings.rules;
        let quota = |id: crate::policy::QuotaId| &rules.quotas[usize::from(id.0)];
        let Response { status, fields, .. } = &answer.response;
        visit.settle(|id, expected| cost::actual_cost(quota(id), expected, fields));
        visit.sync_quotas(*status, fields);
        // Overload 429 of the origin: all clients get the same response of the gateway.
        if let Some(ThrottleRejection { reason, retry_after: wait, .. }) =
            rest.filter(|_| *status == StatusCode::TOO_MANY_REQUESTS)
        {
            Box::pin(scan_to_end(answer.response.body, &answer.deadline, &mut visit)).await;
            let problem = Problem::throttled(reason, wait, 0.0);
            visit.set_retry_after(problem.retry_after());
            return self.respond_with_problem(visit, problem);
        }
        self.stream_response(visit, answer, Bytes::new())
    }

    /// Sends the request upstream. Returns the response, and the rejection if a scope entered backoff because of it.
    async fn send_upstream(
        &self,
        body: RequestBody,
        visit: &mut RequestContext,
        pass: Option<SlotGuard>,
    ) -> (Result<UpstreamResponse, ForwardError>, Option<ThrottleRejection>) {
        let current = visit.current();
        let worker = &self.0.worker;
        let addresses = current.addresses.load_full();
        let origin = &current.settings.origin;
        let most_connections = origin.max_connections.div_ceil(worker.shared().workers);
        let uptime = worker.monotonic_tick().get();
        let clock = &worker.shared().clock;
        let route = UpstreamTarget { origin, addresses: &addresses, uptime, clock, most_connections };
        visit.begin_upstream(pass);
        let (permit, head) = visit.permit_and_head();
        let answer = worker.upstream().send(permit, head, body, &route).await;
        visit.record_upstream_response(worker.now(), answer.as_ref().map(|answer| answer.response.status).ok());
        let rest = visit.report_to_scopes(answer.as_ref().map(|answer| &answer.response));
        (answer, rest)
    }

    /// Streams the origin's response to the client; `beginning` is the part of its body already read.
    fn stream_response(
        &self,
        mut visit: Box<RequestContext>,
        answer: UpstreamResponse,
        beginning: Bytes,
    ) -> Response<ResponseBody> {
        let UpstreamResponse { response: Response { status, mut fields, body }, lease, deadline } = answer;
        prepare_client_response(&visit, status, &mut fields);
        visit.begin_response(status);
        Response { status, fields, body: ResponseBody::streamed(beginning, body, lease, deadline, visit) }
    }

    /// Responds to a failure of the origin. `Retry-After` covers the backoff of the scopes.
    fn origin_failed(
        &self,
        mut visit: Box<RequestContext>,
        error: &ForwardError,
        rest: Option<ThrottleRejection>,
    ) -> Response<ResponseBody> {
        visit.settle_unknown();
        self.0.worker.note_failure(error);
        let rest = rest.map_or(Duration::ZERO, |rest| rest.retry_after);
        let problem = Problem::origin_failed(error, rest);
        if let ForwardError::PoolExhausted = error {
            visit.pool_exhausted(problem.retry_after());
        }
        self.respond_with_problem(visit, problem)
    }

    /// Responds to an admitted request instead of the origin.
    fn respond_with_problem(&self, visit: Box<RequestContext>, problem: Problem<'_>) -> Response<ResponseBody> {
        let (response, bytes) = self.render_problem(&visit, problem, visit.rate_limit_snapshot());
        visit.finish_local_response(response.status, bytes);
        response
    }

    /// Prepares the head for the origin: removes connection-specific fields and adds the gateway's own.
    fn prepare_upstream_request(&self, visit: &mut RequestContext) {
        let ConnectionContext { worker, peer, peer_text, .. } = &*self.0;
        let current = visit.current();
        let rules = &current.settings.rules;
        let ClientRequest { head, origin, classified, .. } = visit.client_request_mut();
        let host: SmallVec<[u8; 64]> = SmallVec::from_slice(target::host(head));
        let fields = &mut head.fields;
        headers::strip_hop_by_hop(fields);
        headers::strip_untrusted(fields, &rules.trust.source, rules.trust.trusts(*peer));
        let via = &worker.shared().via;
        let via = match head.version {
            Version::HTTP_2 => {
                headers::join_cookies(fields);
                &via.http2
            }
            _ => &via.http1,
        };
        if head.target.authority().is_some() || !fields.contains(Name::Host) {
            fields.insert(Name::Host, &host);
        }
        fields.insert_with(Name::ForwardedFor, |text| match origin.client == *peer && origin.hops.is_empty() {
            true => text.write_str(peer_text),
            false => write_forwarded_for(text, origin, *peer),
        });
        if !fields.contains(Name::ForwardedProto) {
            fields.append(Name::ForwardedProto, b"http");
        }
        if !fields.contains(Name::ForwardedHost) {
            fields.append(Name::ForwardedHost, &host);
        }
        fields.append(Name::Via, via.as_bytes());
        fields.append(Name::Class, rules.classes[usize::from(classified.class.0)].name.as_bytes());
        if let Some(operator) = classified.operator {
            fields.append(Name::Operator, worker.shared().operators.name(operator).as_bytes());
        }
    }

    /// Drains the body of a rejected request within bounds; otherwise the client would be disconnected before it reads
    /// the response. Bodies that wait for 100-continue are not drained.
    fn drain_body(&self, head: &RequestHead, body: ClientBody) {
        if !body.is_end_stream() && !head.fields.contains(Name::Expect) {
            body.drain(&self.0.worker.drain());
        }
    }
}

/// Returns the credential that the client sends, if any.
fn credential<'a>(carrier: &'a CredentialSource, fields: &'a Fields) -> Option<&'a [u8]> {
    match carrier {
        CredentialSource::Header(name) => {
            fields.get_all_by_text(name.as_str()).next().filter(|value| !value.is_empty())
        }
        CredentialSource::Cookie(name) => cookie(fields.all(Name::Cookie), name),
    }
}

/// Prepares the head of the origin's response for the client: removes connection-specific fields and adds the gateway's
/// own.
fn prepare_client_response(visit: &RequestContext, status: StatusCode, fields: &mut Fields) {
    let current = visit.current();
    headers::strip_hop_by_hop(fields);
    current.announcements.write(
        &current.settings.rules,
        visit.rate_limit_snapshot(),
        visit.started_at(),
        status,
        fields,
    );
}

/// Writes the client, the trusted hops and the peer.
fn write_forwarded_for(text: &mut impl Write, origin: &ClientAddress, peer: IpAddr) -> fmt::Result {
    write!(text, "{}", origin.client)?;
    origin.hops.iter().chain([&peer]).try_for_each(|hop| write!(text, ", {hop}"))
}

impl EvaluatedRequest {
    /// Returns true if the only reason for the refusal is a missing lease.
    fn waits_for_lease(&self) -> bool {
        matches!(self.decision.ruling, AdmissionOutcome::Refused(Refusal { reason: Reason::Ledger, .. }))
    }
}

/// A request before its evaluation.
struct IncomingRequest<'a> {
    head: &'a RequestHead,
    has_body: bool,
    /// Result of the signature verification; empty until it is needed.
    signature: OnceCell<Signature>,
}

/// A request with its evaluation.
struct EvaluatedRequest {
    origin: ClientAddress,
    key: ClientKey,
    /// True if a signature was checked, whatever the result.
    signed: bool,
    /// Operator of the crawler, verified or claimed without evidence against it.
    crawler: Option<OperatorId>,
    classified: Classification,
    observation: Option<Observation>,
    route: usize,
    decision: Decision,
    /// True for a request for the crawl policy, which the gateway serves.
    is_crawl_policy: bool,
    /// True for a request for the cached robots.txt.
    is_robots_txt: bool,
}
