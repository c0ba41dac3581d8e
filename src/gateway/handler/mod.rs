//! The life of one request: facts, identity, class, route and cost, admission, the way to the origin and back.

mod crawl_policy;
mod robots;

use super::rate_limit_headers::RateLimitSnapshot;
use super::body::{ClientBody, RequestBody, ResponseBody, hear_out};
use super::problem::{Problem, ResponseFormat};
use super::observe;
use super::target::{self, RequestError, Target};
use super::upstream::{UpstreamResponse, ForwardError, UpstreamTarget};
use super::request_context::{RequestContext, ClientRequest};
use super::connection_timeouts::ConnectionState;
use super::worker::{CurrentConfig, TICK, Worker};
use super::{cost, headers};
use crate::engine::{ThrottleRejection, Decision, AcquireOutcome, Evaluation, Observation, SlotGuard, AdmissionOutcome, QueuePoll, QueuedRequest};
use crate::http1::{Fields, Name, Request, RequestHead, Response};
use crate::policy::decide;
use crate::policy::facts::claimed_operator;
use crate::policy::identity::{CredentialSource, ClientKey, ClientAddress, ProxyTrust, cookie};
use crate::policy::route::normalise;
use crate::policy::throttle::partition::{self, PartitionInput};
use crate::policy::{Claim, Classification, Facts, ClientKind, OperatorId, Proof, Reason, Refusal, Signature, Timestamp};
use crate::verify::signature::{SignedMessage, VerifyTime, SignaturePolicy};
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

/// Longest wait of a request for a lease. A burst may take more than was leased ahead; the next lease is usually a few
/// milliseconds away, on a busy disk a second.
const LEDGER_TIMEOUT: Duration = Duration::from_secs(2);

/// A client connection's way into the gate.
#[derive(Clone)]
pub(super) struct RequestHandler(Rc<ConnectionContext>);

/// Who is on the other end of the connection.
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

    /// Answers one request, whatever happens.
    pub(super) async fn handle(self, request: Request<ClientBody>) -> Response<ResponseBody> {
        let ConnectionContext { worker, watch, .. } = &*self.0;
        let mut current = worker.current();
        let Request { head, body } = request;
        watch.request_begins(head.version);
        let arrival = IncomingRequest { head: &head, has_body: !body.is_end_stream(), signature: OnceCell::new() };
        let mut judged = self.judge(&arrival, &current, worker.now());
        if judged.as_ref().is_ok_and(EvaluatedRequest::ran_short)
            && let Some(answers) = &worker.shared().ledger_answers
        {
            (current, judged) = Box::pin(self.judge_again(&arrival, answers)).await;
        }
        let judged = match judged {
            Ok(judged) => judged,
            Err(fault) => {
                watch.request_ends(false);
                self.leave_unread(&head, body);
                return self.reject(fault, ResponseFormat::of(&head));
            }
        };
        let EvaluatedRequest { origin, key, signed, crawler, classified, observation, route, decision, asks_policy, asks_robots } =
            judged;
        if let Some(operator) = crawler {
            worker.shared().conduct.saw(operator, asks_robots, worker.time());
        }
        let visitor = ClientRequest { head, origin, key, signed, classified, observation, route };
        let id = worker.next_decision();
        let mut visit = RequestContext::new(Rc::clone(worker), Rc::clone(watch), current, visitor, &decision, id);
        match decision.ruling {
            AdmissionOutcome::Refused(refusal) => {
                self.leave_unread(&visit.visitor().head, body);
                self.refuse(visit, &refusal)
            }
            AdmissionOutcome::Admitted(permit) if asks_policy => {
                visit.holds(permit);
                self.tell_crawl_policy(body, visit)
            }
            AdmissionOutcome::Admitted(permit) => {
                visit.holds(permit);
                match asks_robots {
                    // Apart, so that the others carry nothing around for it.
                    true => Box::pin(self.bring_robots(body, visit)).await,
                    false => self.bring_to_origin(body, visit).await,
                }
            }
        }
    }

    /// Forwards once it is the request's turn in all of its scopes. The permit is held meanwhile; where the turn does not
    /// come, its units go back.
    async fn bring_to_origin(&self, body: ClientBody, mut visit: Box<RequestContext>) -> Response<ResponseBody> {
        let turn = match self.enter_scopes(&visit) {
            AcquireOutcome::Open(pass) => Ok(pass),
            AcquireOutcome::Closed(closed) => Err(closed),
            AcquireOutcome::Line(waiting) => {
                // Apart, so that those who need not wait carry nothing around for it.
                let turn = Box::pin(self.wait_in_line(waiting)).await;
                visit.has_waited();
                turn.map(Some)
            }
        };
        match turn {
            Ok(pass) => self.forward(body, visit, pass).await,
            Err(ThrottleRejection { scope, reason, wait }) => {
                visit.close();
                self.leave_unread(&visit.visitor().head, body);
                let problem = Problem::not_now(reason, wait, visit.spread());
                visit.refused_by_scope(scope, reason, problem.retry_after());
                self.speak(visit, problem)
            }
        }
    }

    fn enter_scopes(&self, visit: &RequestContext) -> AcquireOutcome {
        let (current, visitor) = (visit.current(), visit.visitor());
        if !current.admission.is_throttled(visitor.route) {
            return AcquireOutcome::Open(None);
        }
        // As the rules saw it.
        let head = &visitor.head;
        let Ok(path) = normalise(head.target.path()) else { return AcquireOutcome::Open(None) };
        let said = PartitionInput {
            route: &current.settings.rules.routes[visitor.route].name,
            host: &target::asked_host(head),
            path: &path,
            query: head.target.query(),
            header: &|name| partition::agreed(head.fields.named(name.as_str())),
        };
        let class = visitor.classified.class;
        current.admission.enter(visitor.key, class, visitor.route, &said, visit.chance(), self.0.worker.time())
    }

    async fn wait_in_line(&self, mut waiting: QueuedRequest) -> Result<SlotGuard, ThrottleRejection> {
        let worker = &self.0.worker;
        let mut alarm = pin!(sleep(Duration::ZERO));
        std::future::poll_fn(|context| {
            loop {
                let now = worker.time();
                let look_again = match waiting.poll(context.waker(), now) {
                    QueuePoll::Come(pass) => return Poll::Ready(Ok(pass)),
                    QueuePoll::Gone(closed) => return Poll::Ready(Err(closed)),
                    QueuePoll::NotYet { look_again } => look_again,
                };
                // The runtime's clock need not be the gate's: it is asked again before long.
                alarm.set(sleep(look_again.since(now).min(TICK)));
                if alarm.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Everything up to the verdict. Nothing here waits, and nothing of the body has been read.
    fn judge(&self, arrival: &IncomingRequest<'_>, current: &CurrentConfig, now: Timestamp) -> Result<EvaluatedRequest, RequestError> {
        let worker = &self.0.worker;
        let rules = &current.settings.rules;
        let head = arrival.head;
        let target = Target::of(head, &worker.shared().via.pseudonym, current.settings.limits.max_body_size)?;
        current.untrusted_proxy.observe(&rules.trust, self.0.peer, &head.fields);
        let origin = self.identify(&rules.trust, &head.fields);
        let user_agent = head.fields.get(Name::UserAgent).unwrap_or_default();
        let (claim, browser) = worker.claim(user_agent);
        let signature = self.signature(arrival, current, origin.client, now);
        let claimed = claimed_operator(claim, signature);
        let proof = match claimed {
            Some(operator) => worker.shared().operators.proof(operator, origin.client, worker.time()),
            None => Proof::Unknown,
        };
        let admission = &current.admission;
        // Who signs as an agent, or names a bot, does not say that it is a person.
        let observation = match claim {
            Claim::Browser | Claim::Nothing if rules.behaviour.is_some() && !signature.names_an_agent() => {
                let seen = observe::seen(head, rules, &origin, self.0.peer);
                let look = observe::look(head, &target, (origin.client, browser), seen);
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
            listed: current.listed(origin.client),
            user_agent,
            claim,
            proof,
            signature,
            holds_key_of: &rules.keys_held(|carrier| sent(carrier, &head.fields)),
            suspicion: observation.and_then(|observation| observation.suspicion(admission)),
        };
        let secret = |carrier: &CredentialSource| self.secret(carrier, &head.fields);
        let Evaluation { classified, route, key, decision } = admission.judge(&facts, secret, now);
        let observation = observation.map(|observation| observation.that_is(!rules.routes[route].is_free()));
        let crawler = match classified.kind {
            ClientKind::VerifiedBot => classified.operator.or(claimed),
            ClientKind::DeclaredBot => claimed,
            _ => None,
        };
        let signed = signature != Signature::Absent;
        let asks_policy = rules.tells_crawl_policy_at(&target.path);
        let asks_robots = decide::reads_robots_txt(&head.method, &target.path);
        Ok(EvaluatedRequest { origin, key, signed, crawler, classified, observation, route, decision, asks_policy, asks_robots })
    }

    /// What its signature proves, found out once: a signature may be for one use.
    fn signature(&self, arrival: &IncomingRequest<'_>, current: &CurrentConfig, client: IpAddr, now: Timestamp) -> Signature {
        let IncomingRequest { head, has_body, signature } = arrival;
        let Some(terms) = &current.settings.verify.signatures else { return Signature::Absent };
        if !head.fields.contains(Name::SignatureAgent) {
            return Signature::Absent;
        }
        *signature.get_or_init(|| {
            let ConnectionContext { worker, peer, .. } = &*self.0;
            let trust = &current.settings.rules.trust;
            // TLS ends before us, if anywhere.
            let secure = trust.believes(*peer)
                && head.fields.get(Name::ForwardedProto).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https"));
            let message = SignedMessage { head, authority: target::host(head), secure, has_body: *has_body };
            let terms = SignaturePolicy { unlisted: terms.unlisted_agents, longest: terms.max_lifetime };
            let moment = VerifyTime { now, uptime: worker.time() };
            worker.shared().signatures.judge(&message, trust.key(client), terms, moment)
        })
    }

    /// The verdict once the ledger has leased more, or as it is after [`LEDGER_TIMEOUT`].
    async fn judge_again(&self, arrival: &IncomingRequest<'_>, answers: &Notify) -> (Rc<CurrentConfig>, Result<EvaluatedRequest, RequestError>) {
        let worker = &self.0.worker;
        let mut late = pin!(sleep(LEDGER_TIMEOUT));
        loop {
            let mut answer = pin!(answers.notified());
            // Heard from here on: what was answered a moment ago is asked for first.
            answer.as_mut().enable();
            let current = worker.current();
            let judged = self.judge(arrival, &current, worker.now());
            if !judged.as_ref().is_ok_and(EvaluatedRequest::ran_short) || late.is_elapsed() {
                return (current, judged);
            }
            tokio::select! { () = answer => {} () = &mut late => {} }
        }
    }

    fn identify(&self, trust: &ProxyTrust, fields: &Fields) -> ClientAddress {
        let Some(name) = trust.source.header() else { return ClientAddress { client: self.0.peer, hops: Vec::new() } };
        let lines: SmallVec<[&[u8]; 2]> = fields.named(name).collect();
        trust.client(self.0.peer, &lines)
    }

    /// A hash of what the client sends to be known by: SipHash under a key of this process, as what is hashed may be known
    /// to whoever reads the log.
    fn secret(&self, carrier: &CredentialSource, fields: &Fields) -> Option<u64> {
        sent(carrier, fields).map(|value| self.0.worker.shared().secrets.hash_one(value))
    }

    fn refuse(&self, mut visit: Box<RequestContext>, refusal: &Refusal) -> Response<ResponseBody> {
        let current = visit.current();
        let rules = &current.settings.rules;
        let told = RateLimitSnapshot { refusal: Some(refusal), ..visit.told() };
        let problem = Problem::refused(rules, told, visit.spread()).expect("a refusal was handed in");
        let retry_after = problem.retry_after();
        let (response, bytes) = self.put_into_words(&visit, problem, told);
        visit.refused(refusal.reason, retry_after);
        visit.answered(response.status, bytes);
        response
    }

    /// The answer that says `problem`, with what is `told` of the allowance; and how long its body is.
    fn put_into_words(&self, visit: &RequestContext, problem: Problem<'_>, told: RateLimitSnapshot<'_>) -> (Response<ResponseBody>, u64) {
        let current = visit.current();
        let status = problem.status();
        let reader = ResponseFormat::of(&visit.visitor().head);
        let (mut response, bytes) = problem.into_response(reader, visit.id(), &mut self.0.worker.scratch());
        let (rules, fields) = (&current.settings.rules, &mut response.fields);
        current.announcements.write(rules, told, visit.began(), status, fields);
        (response, bytes)
    }

    /// Answers what could not be understood as a request at all.
    pub(super) fn refuse_unread(&self, fault: crate::http1::Malformed) -> Response<ResponseBody> {
        self.reject(RequestError::Unreadable(fault), ResponseFormat::UNKNOWN)
    }

    fn reject(&self, fault: RequestError, reader: ResponseFormat) -> Response<ResponseBody> {
        let worker = &self.0.worker;
        let problem = Problem::malformed(fault);
        worker.telemetry().answered_unclassed(problem.status().as_u16());
        let id = worker.next_decision();
        problem.into_response(reader, id, &mut worker.scratch()).0
    }

    /// What goes to the origin, and what comes back.
    async fn forward(&self, body: ClientBody, mut visit: Box<RequestContext>, pass: Option<SlotGuard>) -> Response<ResponseBody> {
        let current = visit.current();
        let ConnectionContext { worker, watch, .. } = &*self.0;
        self.make_outbound(&mut visit);
        let limit = current.settings.limits.max_body_size;
        let body = RequestBody::streaming(body, limit, Rc::clone(watch), || worker.drain());
        let (answer, rest) = self.ask_origin(body, &mut visit, pass).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return self.origin_failed(visit, &error, rest),
        };
        let rules = &current.settings.rules;
        let quota = |id: crate::policy::QuotaId| &rules.quotas[usize::from(id.0)];
        let Response { status, fields, .. } = &answer.response;
        visit.settle(|id, expected| cost::actual(quota(id), expected, fields));
        visit.hear(*status, fields);
        // Everybody is kept away for now, and told so in one voice.
        if let Some(ThrottleRejection { reason, wait, .. }) = rest.filter(|_| *status == StatusCode::TOO_MANY_REQUESTS) {
            Box::pin(hear_out(answer.response.body, &answer.deadline, &mut visit)).await;
            let problem = Problem::not_now(reason, wait, 0.0);
            visit.told_to_wait(problem.retry_after());
            return self.speak(visit, problem);
        }
        self.pass_on(visit, answer, Bytes::new())
    }

    /// Sends what the permit of `visit` allows; the origin's answer, and how long its scopes rest where that was a complaint.
    async fn ask_origin(
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
        let uptime = worker.uptime().get();
        let clock = &worker.shared().clock;
        let route = UpstreamTarget { origin, addresses: &addresses, uptime, clock, most_connections };
        visit.goes_to_origin(pass);
        let (permit, head) = visit.departs();
        let answer = worker.upstream().send(permit, head, body, &route).await;
        visit.origin_answered(worker.now(), answer.as_ref().map(|answer| answer.response.status).ok());
        let rest = visit.scopes_hear(answer.as_ref().map(|answer| &answer.response));
        (answer, rest)
    }

    /// Passes the origin's answer on as it comes; `beginning` of its body has been read already.
    fn pass_on(&self, mut visit: Box<RequestContext>, answer: UpstreamResponse, beginning: Bytes) -> Response<ResponseBody> {
        let UpstreamResponse { response: Response { status, mut fields, body }, lease, deadline } = answer;
        make_inbound(&visit, status, &mut fields);
        visit.has_status(status);
        Response { status, fields, body: ResponseBody::streamed(beginning, body, lease, deadline, visit) }
    }

    /// The origin has failed: the client is told so, and not to come back before the scopes have had their `rest`.
    fn origin_failed(
        &self,
        mut visit: Box<RequestContext>,
        error: &ForwardError,
        rest: Option<ThrottleRejection>,
    ) -> Response<ResponseBody> {
        visit.close();
        self.0.worker.note_failure(error);
        let rest = rest.map_or(Duration::ZERO, |rest| rest.wait);
        let problem = Problem::origin_failed(error, rest);
        if let ForwardError::NoRoom = error {
            visit.found_no_room(problem.retry_after());
        }
        self.speak(visit, problem)
    }

    /// Answers an admitted request in the origin's place.
    fn speak(&self, visit: Box<RequestContext>, problem: Problem<'_>) -> Response<ResponseBody> {
        let (response, bytes) = self.put_into_words(&visit, problem, visit.told());
        visit.answered(response.status, bytes);
        response
    }

    /// Makes the request what the origin gets: unchanged but for what concerns only this connection, and what we add.
    fn make_outbound(&self, visit: &mut RequestContext) {
        let ConnectionContext { worker, peer, peer_text, .. } = &*self.0;
        let current = visit.current();
        let rules = &current.settings.rules;
        let ClientRequest { head, origin, classified, .. } = visit.visitor_mut();
        let host: SmallVec<[u8; 64]> = SmallVec::from_slice(target::host(head));
        let fields = &mut head.fields;
        headers::strip_hop_by_hop(fields);
        headers::strip_claims(fields, &rules.trust.source, rules.trust.believes(*peer));
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
            false => write_chain(text, origin, *peer),
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

    /// A request that is turned away before its body was read: what is already on its way is read and thrown away, or
    /// the client would be cut off before it sees why. Not if it waits for our leave to send (100-continue).
    fn leave_unread(&self, head: &RequestHead, body: ClientBody) {
        if !body.is_end_stream() && !head.fields.contains(Name::Expect) {
            body.leave_unread(&self.0.worker.drain());
        }
    }
}

/// What a client sends to be known by, if it sends anything.
fn sent<'a>(carrier: &'a CredentialSource, fields: &'a Fields) -> Option<&'a [u8]> {
    match carrier {
        CredentialSource::Header(name) => fields.named(name.as_str()).next().filter(|value| !value.is_empty()),
        CredentialSource::Cookie(name) => cookie(fields.all(Name::Cookie), name),
    }
}

/// Makes the head of the origin's answer what the client gets: without what concerns only that connection, with what we
/// add.
fn make_inbound(visit: &RequestContext, status: StatusCode, fields: &mut Fields) {
    let current = visit.current();
    headers::strip_hop_by_hop(fields);
    current.announcements.write(&current.settings.rules, visit.told(), visit.began(), status, fields);
}

/// The client and the hops that were believed, then the peer.
fn write_chain(text: &mut impl Write, origin: &ClientAddress, peer: IpAddr) -> fmt::Result {
    write!(text, "{}", origin.client)?;
    origin.hops.iter().chain([&peer]).try_for_each(|hop| write!(text, ", {hop}"))
}

impl EvaluatedRequest {
    /// True when nothing was in the way but that the ledger had not handed out enough yet.
    fn ran_short(&self) -> bool {
        matches!(self.decision.ruling, AdmissionOutcome::Refused(Refusal { reason: Reason::Ledger, .. }))
    }
}

/// A request that nothing is known of yet.
struct IncomingRequest<'a> {
    head: &'a RequestHead,
    has_body: bool,
    /// What its signature proves, once somebody has asked.
    signature: OnceCell<Signature>,
}

/// What is known of a request once the verdict is there.
struct EvaluatedRequest {
    origin: ClientAddress,
    key: ClientKey,
    /// Its signature was looked at, whatever that said.
    signed: bool,
    /// Whose crawler it is, by proof or by its own word where nothing speaks against it.
    crawler: Option<OperatorId>,
    classified: Classification,
    observation: Option<Observation>,
    route: usize,
    decision: Decision,
    /// It asks for the crawl policy, which is told here.
    asks_policy: bool,
    /// It wants the robots.txt that is kept.
    asks_robots: bool,
}
