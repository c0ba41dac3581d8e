//! Per-request context. Collects the outcome of one request and writes exactly one access log line and one metrics
//! update when it is dropped.

mod feedback;
mod record;

use super::connection_timeouts::ConnectionState;
use super::quota_sync::BodyScan;
use super::worker::{CurrentConfig, Worker};
use crate::engine::{AdmissionOutcome, BucketUsage, Decision, Observation, Permit, QuotaUsage, Receipt, SlotGuard};
use crate::http1::RequestHead;
use crate::policy::identity::{ClientAddress, ClientKey};
use crate::policy::rng::ratio_from_id;
use crate::policy::{Classification, QuotaId, Reason, Timestamp, Units};
use crate::rate_limit_headers::RateLimitSnapshot;
use crate::telemetry::CLIENT_CLOSED_REQUEST;
use http::StatusCode;
use smallvec::SmallVec;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A classified client request.
pub(super) struct ClientRequest {
    /// Request head; the one for the origin once the request is forwarded.
    pub(super) head: RequestHead,
    pub(super) client_address: ClientAddress,
    pub(super) key: ClientKey,
    /// True if a signature was checked, whatever the result.
    pub(super) signed: bool,
    pub(super) classification: Classification,
    /// Observation for bot detection; `None` for declared bots.
    pub(super) observation: Option<Observation>,
    pub(super) route: usize,
}

/// Context of a request in flight.
pub(super) struct RequestContext {
    worker: Rc<Worker>,
    connection_state: Rc<ConnectionState>,
    current: Rc<CurrentConfig>,
    client_request: ClientRequest,
    id: u64,
    started_at: Timestamp,
    quota_usage: SmallVec<[QuotaUsage; 2]>,
    bucket: Option<BucketUsage>,
    shadow_reason: Option<Reason>,
    refusal_reason: Option<Reason>,
    /// Scope that refused the request.
    refusing_scope: Option<Arc<str>>,
    retry_after: Option<u64>,
    /// Permit, held from admission until the cost is known.
    permit: Option<Permit>,
    /// Slots in the scopes, held until the response is complete.
    slots: Option<SlotGuard>,
    /// Time the request waited for slots.
    scope_wait: Duration,
    receipt: Receipt,
    status: StatusCode,
    bytes: u64,
    is_upstream: bool,
    /// Key of the response in the connection's timeouts.
    response_key: Option<usize>,
    origin_status: Option<u16>,
    upstream_duration: Option<Duration>,
    /// Scans of the response body for the exhaustion text of a quota.
    body_scans: Vec<BodyScan>,
    is_complete: bool,
}

impl RequestContext {
    /// Returns the context of a request that was evaluated.
    pub(super) fn new(
        worker: Rc<Worker>,
        connection_state: Rc<ConnectionState>,
        current: Rc<CurrentConfig>,
        client_request: ClientRequest,
        decision: &Decision,
        id: u64,
    ) -> Box<Self> {
        // Boxed, because it is moved often.
        Box::new(Self {
            worker,
            connection_state,
            current,
            client_request,
            id,
            started_at: decision.decided_at,
            quota_usage: decision.quota_usage.clone(),
            bucket: decision.bucket,
            shadow_reason: decision.shadow,
            refusal_reason: match &decision.outcome {
                AdmissionOutcome::Refused(refusal) => Some(refusal.reason),
                AdmissionOutcome::Admitted(_) => None,
            },
            refusing_scope: None,
            retry_after: None,
            permit: None,
            slots: None,
            scope_wait: Duration::ZERO,
            receipt: Receipt::new(),
            status: StatusCode::from_u16(CLIENT_CLOSED_REQUEST).expect("valid status"),
            bytes: 0,
            is_upstream: false,
            response_key: None,
            origin_status: None,
            upstream_duration: None,
            body_scans: Vec::new(),
            is_complete: false,
        })
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Returns a number in [0, 1] derived from the request id, for jitter.
    pub(super) fn random(&self) -> f64 {
        ratio_from_id(self.id)
    }

    /// Returns the jitter of `Retry-After` as a ratio of the wait, so that clients refused together do not retry
    /// together.
    pub(super) fn retry_after_spread(&self) -> f64 {
        self.current.settings.headers.retry_after_spread.ratio() * self.random()
    }

    pub(super) fn started_at(&self) -> Timestamp {
        self.started_at
    }

    pub(super) fn uptime(&self) -> Timestamp {
        self.worker.monotonic_tick().get()
    }

    pub(super) fn current(&self) -> Rc<CurrentConfig> {
        Rc::clone(&self.current)
    }

    pub(super) fn client_request(&self) -> &ClientRequest {
        &self.client_request
    }

    /// Returns the client request, to be rewritten for the origin.
    pub(super) fn client_request_mut(&mut self) -> &mut ClientRequest {
        &mut self.client_request
    }

    /// Returns the usage for the rate-limit fields.
    pub(super) fn rate_limit_snapshot(&self) -> RateLimitSnapshot<'_> {
        RateLimitSnapshot {
            class: self.client_request.classification.class,
            route: self.client_request.route,
            usages: &self.quota_usage,
            bucket: self.bucket,
            refusal: None,
        }
    }

    /// Records a refusal by the quota rules.
    pub(super) fn set_refused(&mut self, reason: Reason, retry_after: Option<u64>) {
        self.refusal_reason = Some(reason);
        self.retry_after = retry_after;
    }

    /// Records a refusal by a scope after admission.
    pub(super) fn set_refused_by_scope(&mut self, scope: Arc<str>, reason: Reason, retry_after: Option<u64>) {
        self.refusing_scope = Some(scope);
        self.set_throttled(reason, retry_after);
    }

    fn set_throttled(&mut self, reason: Reason, retry_after: Option<u64>) {
        let ClientRequest { key, classification, .. } = &self.client_request;
        self.current.admission.record_scope_refusal(*key, classification.class, self.started_at);
        self.set_refused(reason, retry_after);
    }

    /// Stores the permit. Its reservation is released if the request ends before it is sent upstream.
    pub(super) fn hold_permit(&mut self, permit: Permit) {
        self.permit = Some(permit);
    }

    /// Records the `Retry-After` of an admitted request.
    pub(super) fn set_retry_after(&mut self, retry_after: Option<u64>) {
        self.retry_after = retry_after;
    }

    /// Records the end of the queue wait.
    pub(super) fn end_queue_wait(&mut self) {
        self.scope_wait = self.worker.now().saturating_duration_since(self.started_at);
    }

    /// Marks the start of the upstream request and stores the slots.
    pub(super) fn begin_upstream(&mut self, slots: Option<SlotGuard>) {
        self.slots = slots;
        self.is_upstream = true;
        self.worker.telemetry().upstream_started(&self.route().scopes, &self.worker.names(&self.current));
    }

    /// Records that the origin's connection pool was exhausted. The request was not sent.
    pub(super) fn pool_exhausted(&mut self, retry_after: Option<u64>) {
        self.end_upstream();
        self.set_throttled(Reason::Throttle, retry_after);
    }

    fn end_upstream(&mut self) {
        if std::mem::take(&mut self.is_upstream) {
            self.worker.telemetry().upstream_finished(&self.route().scopes, &self.worker.names(&self.current));
        }
    }

    /// Records the time of the upstream response or failure.
    pub(super) fn record_upstream_response(&mut self, now: Timestamp, status: Option<StatusCode>) {
        self.upstream_duration = Some(now.saturating_duration_since(self.started_at + self.scope_wait));
        self.origin_status = status.map(|status| status.as_u16());
    }

    /// Returns the permit to send the request, and its head.
    pub(super) fn permit_and_head(&mut self) -> (&mut Permit, &RequestHead) {
        let permit = self.permit.as_mut().expect("sent upstream and not settled");
        (permit, &self.client_request.head)
    }

    /// Settles the permit with the cost that `actual` returns for each quota.
    pub(super) fn settle(&mut self, actual: impl FnMut(QuotaId, Units) -> Units) {
        if let Some(permit) = self.permit.take() {
            self.receipt = permit.settle(actual);
        }
    }

    /// Settles without a known cost: releases the reservation if the request was not sent, charges the expected cost
    /// otherwise.
    pub(super) fn settle_unknown(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.receipt = permit.settle_unknown();
        }
    }

    /// Records the status at the start of the response.
    pub(super) fn begin_response(&mut self, status: StatusCode) {
        self.status = status;
        self.response_key = self.connection_state.on_response_start();
    }

    /// Adds `bytes` to the number of body bytes sent.
    pub(super) fn add_body_bytes(&mut self, bytes: u64) {
        self.bytes += bytes;
        if let Some(key) = self.response_key {
            self.connection_state.on_response_progress(key);
        }
    }

    /// Finishes after the last body byte was sent.
    pub(super) fn finish(mut self: Box<Self>) {
        self.is_complete = true;
    }

    /// Finishes with a response generated by the gateway.
    pub(super) fn finish_local_response(mut self: Box<Self>, status: StatusCode, bytes: u64) {
        self.begin_response(status);
        self.add_body_bytes(bytes);
        self.finish();
    }

    fn route(&self) -> &crate::policy::route::Route {
        &self.current.settings.rules.routes[self.client_request.route]
    }

    fn finish_observation(&self) {
        if let Some(observation) = &self.client_request.observation {
            let status = self.origin_status.filter(|_| self.refusal_reason.is_none());
            observation.finish(status, &self.current.admission);
        }
    }
}

impl Drop for RequestContext {
    fn drop(&mut self) {
        if let Some(key) = self.response_key {
            self.connection_state.on_response_end(key);
        }
        self.connection_state.on_request_end(!self.is_complete);
        // The client may have disconnected before the response, or before the request was sent.
        self.settle_unknown();
        self.finish_observation();
        self.record();
        self.end_upstream();
    }
}
