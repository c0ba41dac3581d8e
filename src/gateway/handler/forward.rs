//! Forwarding to the origin, and the response for the client.

use super::{ConnectionContext, RequestHandler};
use crate::engine::{SlotGuard, ThrottleRejection};
use crate::gateway::body::{ClientBody, RequestBody, ResponseBody, scan_to_end};
use crate::gateway::problem::Problem;
use crate::gateway::request_context::{ClientRequest, RequestContext};
use crate::gateway::upstream::{ForwardError, UpstreamResponse, UpstreamTarget};
use crate::gateway::{cost, headers, target};
use crate::http1::{Fields, Name, Response};
use crate::policy::identity::ClientAddress;
use bytes::Bytes;
use http::{StatusCode, Version};
use smallvec::SmallVec;
use std::fmt::{self, Write};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

impl RequestHandler {
    /// Forwards the request to the origin and returns the response for the client.
    pub(super) async fn forward(
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
    pub(super) async fn send_upstream(
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
    pub(super) fn stream_response(
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
    pub(super) fn origin_failed(
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

    /// Prepares the head for the origin: removes connection-specific fields and adds the gateway's own.
    pub(super) fn prepare_upstream_request(&self, visit: &mut RequestContext) {
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
}

/// Prepares the head of the origin's response for the client: removes connection-specific fields and adds the gateway's
/// own.
pub(super) fn prepare_client_response(visit: &RequestContext, status: StatusCode, fields: &mut Fields) {
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
