//! Forwarding to the origin, and the response for the client.

use super::answer::compress::{encode_response, restore_validators};
use super::answer::fetch::is_failure;
use super::answer::head::prepare_client_response;
use super::client_connection::RequestHandler;
use super::lookup::CopyReason;
use crate::gateway::cache::{CacheFetch, Recorder};
use crate::gateway::exchange::header_rules::{change_request, change_response};
use crate::gateway::exchange::headers;
use crate::gateway::exchange::journal::{EvaluatedRequest, RequestContext};
use crate::gateway::exchange::problem::Problem;
use crate::gateway::exchange::response_body::{ResponseBody, scan_to_end};
use crate::gateway::exchange::target;
use crate::gateway::transport::proxy_protocol::ProxiedClient;
use crate::gateway::upstream::{ForwardError, RequestBody, UpstreamResponse, UpstreamTarget};
use bytes::Bytes;
use http::{StatusCode, Version};
use hyper::body::Body;
use smallvec::SmallVec;
use std::fmt::{self, Write};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;
use tidegate_config::settings::HeaderRules;
use tidegate_engine::{SlotGuard, ThrottleRejection};
use tidegate_http_cache::CacheStatus;
use tidegate_http_cache::storage::Unstorable;
use tidegate_http1::client::OnInterim;
use tidegate_http1::{Fields, Name, RequestHead, Response};
use tidegate_policy::identity::ClientAddress;

impl RequestHandler {
    /// Forwards the request to the origin and returns the response for the client.
    pub(in crate::gateway) async fn forward(
        self: Rc<Self>,
        body: RequestBody,
        mut context: Box<RequestContext>,
        slots: Option<SlotGuard>,
    ) -> Response<ResponseBody> {
        let current = Rc::clone(context.current());
        let upgrade = match self.wanted_upgrade(&context) {
            Ok(upgrade) => upgrade,
            Err(error) => return self.respond_to_origin_failure(context, &error, None),
        };
        self.prepare_upstream_request(&mut context);
        if let Some(upgrade) = &upgrade {
            let (_, _, head) = context.upstream_parts();
            head.fields.append(Name::Connection, b"Upgrade");
            head.fields.append(Name::Upgrade, &upgrade.protocol);
        }
        if let Some(rules) = self.fetch_rules(&current, context.evaluation().route) {
            context.prepare_fetch(rules, self.worker.now());
        }
        context.resolve_target();
        let head = changed_head(&context);
        let client = self.proxied_client(&context);
        let (result, backoff) = self.send_upstream(head.as_deref(), body, &mut context, slots, client).await;
        let in_place_of_error = context.copy_in_place_of_error();
        let in_place_of_refusal = context.copy_in_place_of_refusal();
        let fetch = context.take_fetch();
        let upstream = match result {
            Ok(upstream) => upstream,
            Err(error) => {
                if let Some(copy) = in_place_of_error {
                    context.settle_unknown();
                    self.worker.record_upstream_failure(&error);
                    return self.respond_from_copy(context, &copy, CopyReason::Error);
                }
                return self.respond_to_origin_failure(context, &error, backoff);
            }
        };
        let rules = &current.settings.rules;
        let revalidation_costs = fetch
            .as_ref()
            .filter(|fetch| fetch.copy.is_some() && upstream.response.status == StatusCode::NOT_MODIFIED)
            .and_then(|_| Some(rules[context.evaluation().route].cache.as_ref()?.revalidation_costs.as_slice()))
            .unwrap_or_default();
        let expected_cost = |id: tidegate_policy::QuotaId, expected| {
            revalidation_costs.iter().find(|(quota, _)| *quota == id).map_or(expected, |(_, cost)| *cost)
        };
        let Response { status, fields, .. } = &upstream.response;
        context.settle(|context, id, expected| context.actual_cost(id, expected_cost(id, expected), fields));
        context.charge_unexpected_costs(*status, fields);
        context.sync_quotas(*status, fields);
        // A success would be one of the CONNECT over HTTP/2 (RFC 8441 section 5).
        let is_success_of_connect =
            upgrade.is_some() && context.client_request().head.version == Version::HTTP_2 && status.is_success();
        if *status == StatusCode::SWITCHING_PROTOCOLS || is_success_of_connect {
            return self.respond_upgraded(context, upstream, upgrade);
        }
        // Overload 429 of the origin: all clients get the same response of the gateway.
        if let Some(ThrottleRejection { reason, retry_after, .. }) =
            backoff.filter(|_| *status == StatusCode::TOO_MANY_REQUESTS)
        {
            Box::pin(scan_to_end(upstream.response.body, &upstream.deadline, &mut context)).await;
            if let Some(copy) = in_place_of_refusal {
                return self.respond_from_copy(context, &copy, CopyReason::Refused);
            }
            let problem = Problem::throttled(reason, retry_after, 0.0);
            context.set_retry_after(problem.retry_after());
            return self.respond_with_problem(context, problem);
        }
        if is_failure(upstream.response.status)
            && let Some(copy) = in_place_of_error
        {
            Box::pin(scan_to_end(upstream.response.body, &upstream.deadline, &mut context)).await;
            return self.respond_from_copy(context, &copy, CopyReason::Error);
        }
        match fetch {
            Some(fetch) => self.respond_to_fetch(context, upstream, fetch),
            None => {
                self.invalidate(&context, &upstream.response);
                self.stream_response(context, upstream, Bytes::new(), None)
            }
        }
    }

    /// Sends the request upstream, or `own_head` instead of its head, on a connection that names `client`. Returns the response, and the rejection if a scope
    /// entered backoff because of it.
    pub(in crate::gateway) async fn send_upstream(
        &self,
        own_head: Option<&RequestHead>,
        body: RequestBody,
        context: &mut RequestContext,
        slots: Option<SlotGuard>,
        client: Option<ProxiedClient>,
    ) -> (Result<UpstreamResponse, ForwardError>, Option<ThrottleRejection>) {
        let current = Rc::clone(context.current());
        let worker = &self.worker;
        let response_timeout = context.response_timeout();
        let mut target = UpstreamTarget { response_timeout, ..worker.upstream_target(&current, client) };
        target.requester = (current.settings.origin.http2 && !context.is_fill()).then(|| context.address_key());
        context.begin_upstream(slots);
        let state = Rc::clone(context.forward_state());
        let route = context.evaluation().route;
        let on_interim: OnInterim<'_> = &|status, fields| {
            if !state.client_left() {
                self.send_interim(status, fields, current.settings.header_rules(route));
            }
        };
        target.on_interim = self.takes_interim(context).then_some(on_interim);
        let (permit, client_head) = context.permit_and_head();
        let head = own_head.unwrap_or(client_head);
        let result = worker.upstream().send(permit, head, body, &target, &state).await;
        if result.is_ok() {
            worker.shared().origin_health.record_response();
        }
        context.record_upstream_response(worker.now(), result.as_ref().map(|upstream| upstream.response.status).ok());
        let backoff = context.report_to_scopes(result.as_ref().map(|upstream| &upstream.response));
        (result, backoff)
    }

    /// Returns the client that a connection to the origin names; `None` without the PROXY protocol, for a request of the
    /// gateway itself, and for a fetch whose response may be for other clients, too.
    pub(in crate::gateway) fn proxied_client(&self, context: &RequestContext) -> Option<ProxiedClient> {
        context.current().settings.origin.proxy_protocol?;
        let destination = self.listener.address.filter(|_| context.fetch().is_none_or(CacheFetch::may_name_client))?;
        Some(ProxiedClient { address: context.client_address(), destination })
    }

    /// Returns true if the client understands interim responses, and the gateway can send them: hyper sends none over HTTP/2.
    fn takes_interim(&self, context: &RequestContext) -> bool {
        context.client_request().head.version == Version::HTTP_11 && self.fill.is_none()
    }

    /// Sends the client an interim response of the origin (RFC 9110 section 15.2), with the changes of the route.
    fn send_interim(&self, status: StatusCode, mut fields: Fields, rules: Option<&HeaderRules>) {
        headers::strip_response(&mut fields);
        if let Some(rules) = rules {
            change_response(&mut fields, &rules.response);
        }
        self.connection_state.interim().push(status, &fields);
    }

    /// Streams the origin's response to the client; `beginning` is the part of its body already read. `recorder` stores
    /// it, if the request is a fetch for the cache and its response may be stored.
    pub(in crate::gateway) fn stream_response(
        &self,
        mut context: Box<RequestContext>,
        upstream: UpstreamResponse,
        beginning: Bytes,
        recorder: Option<Result<Box<Recorder>, Unstorable>>,
    ) -> Response<ResponseBody> {
        let UpstreamResponse { response: Response { status, mut fields, body }, pool_guard: lease, deadline } =
            upstream;
        let is_event_stream = body.size_hint().exact().is_none() && is_event_stream(&fields);
        let compressor = encode_response(&context, status, &mut fields);
        prepare_client_response(&context, status, &mut fields);
        if let Some(reason) = context.forward_reason() {
            let stored = recorder.as_ref().map(|recorder| recorder.as_ref().map(|_| ()).map_err(|reason| *reason));
            let cache_status = CacheStatus::Forward { reason, status: None, stored };
            fields.append_with(Name::CacheStatus, |text| write!(text, "{cache_status}"));
        }
        context.begin_response(status);
        if is_event_stream {
            deadline.set_limit(context.begin_event_stream());
        }
        let recorder = recorder.and_then(Result::ok);
        let body = ResponseBody::relayed(beginning, body, lease, deadline, recorder, compressor, context);
        Response { status, fields, body }
    }

    /// Responds to a failure of the origin. `Retry-After` covers the backoff of the scopes.
    pub(in crate::gateway) fn respond_to_origin_failure(
        &self,
        mut context: Box<RequestContext>,
        error: &ForwardError,
        backoff: Option<ThrottleRejection>,
    ) -> Response<ResponseBody> {
        context.settle_unknown();
        self.worker.record_upstream_failure(error);
        let retry_after = backoff.map_or(Duration::ZERO, |rejection| rejection.retry_after);
        let problem = Problem::origin_failed(error, retry_after);
        if error.is_capacity() {
            context.refuse_without_capacity(problem.retry_after());
        }
        self.respond_with_problem(context, problem)
    }

    /// Writes the address of the client, and of the proxies that it came by.
    pub(in crate::gateway) fn write_client_address(&self, fields: &mut Fields, origin: &ClientAddress) {
        let Self { peer, peer_text, .. } = self;
        fields.insert_with(Name::ForwardedFor, |text| match origin.client == *peer && origin.hops.is_empty() {
            true => text.write_str(peer_text),
            false => write_forwarded_for(text, origin, *peer),
        });
    }

    /// Prepares the head for the origin: removes connection-specific fields and adds the gateway's own.
    pub(in crate::gateway) fn prepare_upstream_request(&self, context: &mut RequestContext) {
        let worker = &self.worker;
        let (current, evaluated, head) = context.upstream_parts();
        let rules = &current.settings.rules;
        let EvaluatedRequest { client_address: origin, evaluation, .. } = evaluated;
        let classified = &evaluation.classification;
        let host: SmallVec<[u8; 64]> = SmallVec::from_slice(target::host(head));
        let fields = &mut head.fields;
        headers::strip_hop_by_hop(fields);
        restore_validators(rules, fields);
        headers::strip_untrusted(fields, &rules.trust.source, self.is_trusted(&rules.trust));
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
        self.write_client_address(fields, origin);
        if !fields.contains(Name::ForwardedProto) {
            fields.append(Name::ForwardedProto, if self.listener.tls.is_some() { b"https" } else { b"http" });
        }
        if !fields.contains(Name::ForwardedHost) {
            fields.append(Name::ForwardedHost, &host);
        }
        fields.append(Name::Via, via.as_bytes());
        fields.append(Name::Class, rules[classified.class].name.as_bytes());
        if let Some(operator) = classified.operator {
            fields.append(Name::Operator, worker.shared().operators.name(operator).as_bytes());
        }
    }
}

/// Returns true for a stream of server-sent events, which pauses while nothing happens.
fn is_event_stream(fields: &Fields) -> bool {
    let media_type = fields.get(Name::ContentType).unwrap_or_default().split(|&byte| byte == b';').next();
    media_type.is_some_and(|media_type| media_type.trim_ascii().eq_ignore_ascii_case(b"text/event-stream"))
}

/// Returns the head for the origin with the changes of the route; `None` if there are none. The context keeps the head
/// without them, for the log and the cache: what is the same for all requests of a route selects no response.
pub(in crate::gateway) fn changed_head(context: &RequestContext) -> Option<Box<RequestHead>> {
    let changes = Some(&context.header_rules()?.request).filter(|changes| !changes.is_empty())?;
    let mut head = Box::new(context.client_request().head.clone());
    change_request(&mut head.fields, changes);
    Some(head)
}

/// Writes the client, the trusted hops and the peer.
fn write_forwarded_for(text: &mut impl Write, origin: &ClientAddress, peer: IpAddr) -> fmt::Result {
    write!(text, "{}", origin.client)?;
    origin.hops.iter().chain([&peer]).try_for_each(|hop| write!(text, ", {hop}"))
}
