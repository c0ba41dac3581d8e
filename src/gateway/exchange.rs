//! The life of one request: facts, identity, class, route and cost, admission, the way to the origin and back.

use super::announce::Told;
use super::body::{ClientBody, RequestBody, ResponseBody};
use super::reply::{Problem, Reader};
use super::target::{Malformed, Target};
use super::upstream::{Answer, ForwardError, Route};
use super::visit::{Visit, Visitor};
use super::watch::Watch;
use super::worker::{Current, Worker};
use super::{cost, headers};
use crate::engine::{Permit, Ruling};
use crate::policy::identity::{AddressSource, Origin};
use crate::policy::{Claim, Facts, Proof, Refusal, Timestamp};
use http::{HeaderMap, HeaderValue, Request, Response, Version, header};
use hyper::body::Body;
use smallvec::SmallVec;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

/// A client connection's way into the gate.
#[derive(Clone)]
pub(super) struct Exchange(Rc<Caller>);

/// Who is on the other end of the connection.
struct Caller {
    worker: Rc<Worker>,
    watch: Rc<Watch>,
    peer: IpAddr,
    peer_text: HeaderValue,
}

impl Exchange {
    pub(super) fn new(worker: Rc<Worker>, watch: Rc<Watch>, peer: SocketAddr) -> Self {
        let peer = peer.ip().to_canonical();
        let peer_text = HeaderValue::from_str(&peer.to_string()).expect("an address is plain text");
        Self(Rc::new(Caller { worker, watch, peer, peer_text }))
    }

    /// Answers one request, whatever happens.
    pub(super) async fn handle(self, request: Request<ClientBody>) -> Response<ResponseBody> {
        let Caller { worker, watch, .. } = &*self.0;
        let (now, current) = (worker.now(), worker.current());
        let reader = Reader::of(&request);
        watch.request_begins(request.version());
        match self.judge(&request, &current, now) {
            Err(fault) => {
                watch.request_ends(false);
                self.leave_unread(request);
                self.reject(fault, reader)
            }
            Ok((visit, Ruling::Refused(refusal))) => {
                self.leave_unread(request);
                self.refuse(visit, &refusal, reader)
            }
            Ok((visit, Ruling::Admitted(permit))) => self.forward(request, visit, permit, reader).await,
        }
    }

    /// Everything up to the verdict. Nothing here waits, and nothing of the body has been read.
    fn judge(
        &self,
        request: &Request<ClientBody>,
        current: &Rc<Current>,
        now: Timestamp,
    ) -> Result<(Box<Visit>, Ruling), Malformed> {
        let Caller { worker, watch, .. } = &*self.0;
        let rules = &current.settings.rules;
        let target = Target::of(request, &worker.shared().via.pseudonym, current.settings.limits.max_body_size)?;
        let origin = self.identify(&rules.trust, request.headers());
        let user_agent = request.headers().get(header::USER_AGENT);
        let agent_text = user_agent.map_or(&b""[..], HeaderValue::as_bytes);
        let claim = worker.claim(agent_text);
        let proof = match claim {
            Claim::Bot { operator: Some(operator), .. } => worker.shared().operators.proof(operator, origin.client),
            _ => Proof::Unknown,
        };
        let (host, path) = (target.normal_host(), target.normal_path()?);
        let facts = Facts {
            method: request.method(),
            host: &host,
            path: &path,
            query: target.path_and_query.query(),
            client: origin.client,
            user_agent: agent_text,
            claim,
            proof,
        };
        let classified = rules.classify(&facts);
        let route = rules.route(&facts);
        let key = rules.trust.key(origin.client);
        let decision = current.admission.admit(key, classified.class, route, &path, now);
        drop((host, path));
        let visitor = Visitor {
            origin,
            key,
            method: request.method().clone(),
            version: request.version(),
            target,
            user_agent: user_agent.cloned(),
            referer: request.headers().get(header::REFERER).cloned(),
            classified,
            route,
        };
        let id = worker.next_decision();
        let visit = Visit::new(Rc::clone(worker), Rc::clone(watch), Rc::clone(current), visitor, &decision, id, now);
        Ok((visit, decision.ruling))
    }

    fn identify(&self, trust: &crate::policy::identity::Trust, fields: &HeaderMap) -> Origin {
        let name = match &trust.source {
            AddressSource::Peer => return Origin { client: self.0.peer, hops: Vec::new() },
            AddressSource::XForwardedFor => &headers::FORWARDED_FOR,
            AddressSource::Forwarded => &header::FORWARDED,
            AddressSource::Header(name) => name,
        };
        let lines: SmallVec<[&[u8]; 2]> = fields.get_all(name).iter().map(HeaderValue::as_bytes).collect();
        trust.client(self.0.peer, &lines)
    }

    fn refuse(&self, mut visit: Box<Visit>, refusal: &Refusal, reader: Reader) -> Response<ResponseBody> {
        let current = visit.current();
        let rules = &current.settings.rules;
        let told = Told { refusal: Some(refusal), ..visit.told() };
        let spread = current.settings.headers.retry_after_spread.ratio() * visit.chance();
        let mut scratch = self.0.worker.scratch();
        let problem = Problem::refused(rules, told, spread).expect("a refusal was handed in");
        let (status, retry_after) = (problem.status(), problem.retry_after());
        let (mut response, bytes) = problem.into_response(reader, visit.id(), &mut scratch);
        let fields = response.headers_mut();
        current.announcements.write(rules, told, &mut scratch, visit.began(), status, fields);
        drop(scratch);
        visit.refused(refusal.reason, retry_after);
        visit.answered(status, bytes);
        response
    }

    /// Answers what could not be understood as a request at all.
    pub(super) fn refuse_unread(&self, fault: crate::http1::Malformed) -> Response<ResponseBody> {
        self.reject(Malformed::Unreadable(fault), Reader::UNKNOWN)
    }

    fn reject(&self, fault: Malformed, reader: Reader) -> Response<ResponseBody> {
        let worker = &self.0.worker;
        let problem = Problem::malformed(fault);
        worker.telemetry().answered_unclassed(problem.status().as_u16());
        let id = worker.next_decision();
        problem.into_response(reader, id, &mut worker.scratch()).0
    }

    /// What goes to the origin, and what comes back.
    async fn forward(
        &self,
        request: Request<ClientBody>,
        mut visit: Box<Visit>,
        permit: Permit,
        reader: Reader,
    ) -> Response<ResponseBody> {
        let current = visit.current();
        let worker = &self.0.worker;
        let request = self.outbound(request, &visit);
        let addresses = current.addresses.load_full();
        let origin = &current.settings.origin;
        let most_connections = origin.max_connections.div_ceil(worker.shared().workers);
        let (uptime, now) = (worker.uptime().get(), visit.began());
        let route = Route { origin, addresses: &addresses, uptime, now, most_connections };
        visit.goes_to_origin(permit);
        let answer = worker.upstream().send(visit.permit(), request, &route).await;
        visit.origin_answered(worker.now(), answer.as_ref().map(|answer| answer.response.status()).ok());
        match answer {
            Ok(Answer { response, lease, deadline }) => {
                let rules = &current.settings.rules;
                let quota = |id: crate::policy::QuotaId| &rules.quotas[usize::from(id.0)];
                visit.settle(|id, expected| cost::actual(quota(id), expected, response.headers()));
                let (mut parts, body) = response.into_parts();
                parts.version = Version::HTTP_11;
                headers::strip_hop_by_hop(&mut parts.headers);
                let mut scratch = worker.scratch();
                let (told, fields) = (visit.told(), &mut parts.headers);
                current.announcements.write(rules, told, &mut scratch, visit.began(), parts.status, fields);
                drop(scratch);
                visit.has_status(parts.status);
                Response::from_parts(parts, ResponseBody::streamed(body, lease, deadline, visit))
            }
            Err(error) => {
                visit.close();
                worker.note_failure(&error);
                let problem = Problem::origin_failed(&error);
                let status = problem.status();
                if let ForwardError::NoRoom = error {
                    visit.found_no_room(problem.retry_after());
                }
                let mut scratch = worker.scratch();
                let (mut response, bytes) = problem.into_response(reader, visit.id(), &mut scratch);
                let (rules, fields) = (&current.settings.rules, response.headers_mut());
                current.announcements.write(rules, visit.told(), &mut scratch, visit.began(), status, fields);
                drop(scratch);
                visit.answered(status, bytes);
                response
            }
        }
    }

    /// The request as the origin gets it: unchanged but for what concerns only this connection, and what we add.
    fn outbound(&self, request: Request<ClientBody>, visit: &Visit) -> Request<RequestBody> {
        let Caller { worker, watch, peer, peer_text } = &*self.0;
        let current = visit.current();
        let (mut parts, body) = request.into_parts();
        let believed = current.settings.rules.trust.believes(*peer);
        let fields = &mut parts.headers;
        headers::strip_hop_by_hop(fields);
        headers::strip_claims(fields, believed);
        let http2 = parts.version == Version::HTTP_2;
        if http2 {
            headers::join_cookies(fields);
        }
        let visitor = visit.visitor();
        fields.insert(header::HOST, visitor.target.host.clone());
        fields.insert(headers::FORWARDED_FOR, self.forwarded_for(&visitor.origin).unwrap_or_else(|| peer_text.clone()));
        fields.entry(headers::FORWARDED_PROTO).or_insert(HeaderValue::from_static("http"));
        fields.entry(headers::FORWARDED_HOST).or_insert_with(|| visitor.target.host.clone());
        let via = &worker.shared().via;
        fields.append(header::VIA, if http2 { via.http2.clone() } else { via.http1.clone() });
        fields.insert(headers::CLASS, current.class_names[usize::from(visitor.classified.class.0)].clone());
        if let Some(operator) = visitor.classified.operator {
            let name = HeaderValue::from_str(worker.shared().operators.name(operator));
            fields.extend(name.ok().map(|name| (headers::OPERATOR, name)));
        }
        let limit = current.settings.limits.max_body_size;
        let mut outbound = Request::new(RequestBody::streaming(body, limit, Rc::clone(watch), worker.drain()));
        *outbound.method_mut() = parts.method;
        *outbound.uri_mut() = visitor.target.uri();
        *outbound.headers_mut() = parts.headers;
        outbound
    }

    /// The client and the hops that were believed, then the peer; `None` when the peer is all there is.
    fn forwarded_for(&self, origin: &Origin) -> Option<HeaderValue> {
        if origin.client == self.0.peer && origin.hops.is_empty() {
            return None;
        }
        self.0.worker.scratch().value(|text| {
            write!(text, "{}", origin.client)?;
            origin.hops.iter().chain([&self.0.peer]).try_for_each(|hop| write!(text, ", {hop}"))
        })
    }

    /// A request that is turned away before its body was read: what is already on its way is read and thrown away, or
    /// the client would be cut off before it sees why. Not if it waits for our leave to send (100-continue).
    fn leave_unread(&self, request: Request<ClientBody>) {
        if !request.body().is_end_stream() && !request.headers().contains_key(header::EXPECT) {
            request.into_body().leave_unread(&self.0.worker.drain());
        }
    }
}
