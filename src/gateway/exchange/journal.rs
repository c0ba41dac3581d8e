//! Per-request context. Collects the outcome of one request and writes exactly one access log line and one metrics
//! update when it is dropped.

mod feedback;
mod record;

use super::quota_sync::BodyScan;
use super::switch_subject::SwitchSubject;
use super::target::ClientRequest;
use super::unknown_paths::UnknownPath;
use crate::gateway::cache::{CacheFetch, FetchRules, Saving, StoredResponse};
use crate::gateway::in_place::boxed_in_place;
use crate::gateway::transport::connection_memory::{ConnectionMemory, MemoryCharge, REQUEST};
use crate::gateway::transport::connection_timeouts::{ConnectionCommand, ConnectionState};
use crate::gateway::upstream::ForwardState;
use crate::gateway::worker::{CurrentConfig, Worker};
use http::StatusCode;
use smallvec::SmallVec;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tidegate_access_log::{CLIENT_CLOSED_REQUEST, ResponseCut};
use tidegate_config::settings::HeaderRules;
use tidegate_crawlers::robots::FetchSlot;
use tidegate_engine::{Decision, Evaluation, Observation, Permit, Receipt, SlotGuard};
use tidegate_http_cache::{CacheResult, ForwardReason};
use tidegate_http1::{Fields, RequestHead};
use tidegate_policy::cache::CacheFill;
use tidegate_policy::exempt::Exemption;
use tidegate_policy::identity::{ClientAddress, ClientKey};
use tidegate_policy::rng::ratio_from_id;
use tidegate_policy::{OperatorId, QuotaId, Reason, Timestamp, Units};
use tidegate_rate_limit_headers::RateLimitSnapshot;

/// A request with its evaluation and what is known of its client.
pub(in crate::gateway) struct EvaluatedRequest {
    pub(in crate::gateway) client_address: ClientAddress,
    /// Operator that the client claims to belong to.
    pub(in crate::gateway) claimed: Option<OperatorId>,
    /// True if a signature was checked, whatever the result.
    pub(in crate::gateway) signed: bool,
    /// Operator of the crawler, verified or claimed without evidence against it.
    pub(in crate::gateway) crawler: Option<OperatorId>,
    /// Observation for bot detection; `None` for declared bots.
    pub(in crate::gateway) observation: Option<Observation>,
    /// Class, route and decision. Its permit is held until the cost is known.
    pub(in crate::gateway) evaluation: Evaluation,
    /// State until the response of the origin, if the cost of the path is unknown.
    pub(in crate::gateway) unknown_path: UnknownPath,
}

/// Stage of an admitted request on its way to the origin and back.
enum RequestStage {
    /// Not sent: refused, waiting for slots, or responded to without the origin.
    Evaluated,
    /// Waiting for the response head of the origin.
    AtOrigin {
        /// Slots in the scopes, held until the response is complete.
        slots: Option<SlotGuard>,
    },
    /// Admitted for another proxy, which forwards it.
    Delegated {
        /// Time from the first byte of the request to the answer.
        answered_after: Duration,
    },
    /// The origin responded or failed.
    Answered {
        slots: Option<SlotGuard>,
        /// Status of the response; `None` after a failure.
        status: Option<u16>,
        duration: Duration,
    },
}

/// Context of a request in flight.
pub(in crate::gateway) struct RequestContext {
    worker: Rc<Worker>,
    connection_state: Rc<ConnectionState>,
    current: Rc<CurrentConfig>,
    client_request: ClientRequest,
    evaluated: Box<EvaluatedRequest>,
    /// Time at which the first byte of the request was received.
    received_at: Timestamp,
    id: u64,
    /// Reason of the refusal by the rules, or by a scope after admission.
    refusal_reason: Option<Reason>,
    /// Scope that refused the request.
    refusing_scope: Option<Arc<str>>,
    retry_after: Option<u64>,
    stage: RequestStage,
    /// True from sending the request until the origin has sent the whole response.
    is_at_origin: bool,
    forward_state: Rc<ForwardState>,
    /// Time the request waited for slots.
    scope_wait: Duration,
    /// Time at which the request was received and had its slots.
    ready_at: Timestamp,
    receipt: Receipt,
    status: StatusCode,
    bytes: u64,
    /// Why the response of the origin ended before its end.
    cut: Option<ResponseCut>,
    /// Scans of the response body for the exhaustion text of a quota.
    body_scans: Vec<BodyScan>,
    /// Slot of the fetch whose response is streamed to the client.
    fetch_slot: Option<FetchSlot>,
    /// Fields as the client sent them, if the origin is sent others because of the cache.
    client_fields: Option<Fields>,
    /// Fetch whose response may be stored, until the response is received.
    fetch: Option<Box<CacheFetch>>,
    /// Result of the cache; `None` if the route is not cached.
    cache_result: Option<CacheResult>,
    /// Reason for which the request is forwarded in spite of the cache.
    forward_reason: Option<ForwardReason>,
    /// Stored response that the request could not use: it may take the place of a failure.
    bypassed_copy: Option<Arc<StoredResponse>>,
    /// Why the gateway makes the request itself.
    fill: Option<CacheFill>,
    /// Only the origin's own cache may answer: the rules refused the request.
    is_for_origin_cache: bool,
    /// Units that a stored response saved.
    saved: SmallVec<[(QuotaId, Units); 2]>,
    is_complete: bool,
    /// Memory of the request, until it has ended.
    _memory: MemoryCharge,
}

impl RequestContext {
    /// Returns the context of a request that was evaluated.
    pub(in crate::gateway) fn new(
        worker: Rc<Worker>,
        connection_state: Rc<ConnectionState>,
        current: Rc<CurrentConfig>,
        client_request: ClientRequest,
        evaluated: Box<EvaluatedRequest>,
        received_at: Timestamp,
        id: u64,
    ) -> Box<Self> {
        let forward_state = ForwardState::new(current.settings.origin.aborts_on_disconnect);
        let memory = REQUEST + client_request.head.fields.memory();
        let memory = MemoryCharge::new(connection_state.memory(), memory);
        let ready_at = evaluated.evaluation.decision.decided_at;
        let refusal_reason = evaluated.evaluation.decision.verdict.refusal().map(|refusal| refusal.reason);
        // Boxed, because it is moved often; its evaluation apart, because the allocator is slow above a kilobyte.
        boxed_in_place(|| Self {
            worker,
            connection_state,
            current,
            client_request,
            evaluated,
            received_at,
            id,
            refusal_reason,
            refusing_scope: None,
            retry_after: None,
            stage: RequestStage::Evaluated,
            is_at_origin: false,
            forward_state,
            scope_wait: Duration::ZERO,
            ready_at,
            receipt: Receipt::new(),
            status: StatusCode::from_u16(CLIENT_CLOSED_REQUEST).expect("valid status"),
            bytes: 0,
            cut: None,
            body_scans: Vec::new(),
            fetch_slot: None,
            client_fields: None,
            fetch: None,
            cache_result: None,
            forward_reason: None,
            bypassed_copy: None,
            fill: None,
            is_for_origin_cache: false,
            saved: SmallVec::new(),
            is_complete: false,
            _memory: memory,
        })
    }

    pub(in crate::gateway) fn id(&self) -> u64 {
        self.id
    }

    /// Returns a number in [0, 1] derived from the request id, for jitter.
    pub(in crate::gateway) fn random(&self) -> f64 {
        ratio_from_id(self.id)
    }

    /// Returns the jitter of `Retry-After` as a ratio of the wait, so that clients refused together do not retry
    /// together.
    pub(in crate::gateway) fn retry_after_spread(&self) -> f64 {
        self.current.settings.headers.retry_after_spread.ratio() * self.random()
    }

    /// Returns the time of the decision.
    pub(in crate::gateway) fn started_at(&self) -> Timestamp {
        self.decision().decided_at
    }

    pub(in crate::gateway) fn uptime(&self) -> Timestamp {
        self.worker.monotonic_tick().get()
    }

    pub(in crate::gateway) fn current(&self) -> &Rc<CurrentConfig> {
        &self.current
    }

    pub(in crate::gateway) fn client_request(&self) -> &ClientRequest {
        &self.client_request
    }

    pub(in crate::gateway) fn evaluation(&self) -> &Evaluation {
        &self.evaluated.evaluation
    }

    /// Returns the address of the client.
    pub(in crate::gateway) fn client_address(&self) -> IpAddr {
        self.evaluated.client_address.client
    }

    /// Returns the client, to which a switch may apply later.
    pub(in crate::gateway) fn switch_subject(&self) -> SwitchSubject {
        let classification = self.evaluation().classification;
        SwitchSubject::new(self.client_address(), classification, self.evaluated.claimed, &self.current.settings.rules)
    }

    /// Returns the key of the client's address, which a client cannot choose.
    pub(in crate::gateway) fn address_key(&self) -> ClientKey {
        self.current.settings.rules.trust.key(self.evaluated.client_address.client)
    }

    /// Returns the decision of the rules.
    pub(in crate::gateway) fn decision(&self) -> &Decision {
        &self.evaluated.evaluation.decision
    }

    /// Returns true if the request body is sent to the origin while it is received.
    pub(in crate::gateway) fn streams_body(&self) -> bool {
        self.route().streams_body
    }

    /// Returns true if the route redirects its requests.
    #[inline]
    pub(in crate::gateway) fn is_redirected(&self) -> bool {
        self.current.settings.redirect(self.evaluation().route).is_some()
    }

    /// Returns the changes of header fields on the route; `None` if there are none.
    #[inline]
    pub(in crate::gateway) fn header_rules(&self) -> Option<&HeaderRules> {
        self.current.settings.header_rules(self.evaluation().route)
    }

    /// Replaces the request target by the one for the origin.
    pub(in crate::gateway) fn resolve_target(&mut self) {
        self.client_request.resolve_target();
    }

    /// Returns the request head, to be rewritten for the origin, and what the rewriting needs.
    pub(in crate::gateway) fn upstream_parts(&mut self) -> (&CurrentConfig, &EvaluatedRequest, &mut RequestHead) {
        (&self.current, &self.evaluated, &mut self.client_request.head)
    }

    /// Returns the usage for the rate-limit fields.
    pub(in crate::gateway) fn rate_limit_snapshot(&self) -> RateLimitSnapshot<'_> {
        let Evaluation { classification, route, decision, .. } = self.evaluation();
        RateLimitSnapshot {
            class: classification.class,
            route: *route,
            usages: &decision.quota_usage,
            // The policies in the fields are those of classes.
            bucket: decision.bucket.filter(|_| !self.exemption().is_some_and(Exemption::is_bounded)),
            refusal: decision.verdict.refusal(),
        }
    }

    /// Returns why the request is not use.
    pub(in crate::gateway) fn exemption(&self) -> Option<Exemption> {
        self.evaluation().exemption
    }

    /// Records a refusal by a scope after admission.
    pub(in crate::gateway) fn set_refused_by_scope(
        &mut self,
        scope: Arc<str>,
        reason: Reason,
        retry_after: Option<u64>,
    ) {
        self.refusing_scope = Some(scope);
        self.set_throttled(reason, retry_after);
    }

    fn set_throttled(&mut self, reason: Reason, retry_after: Option<u64>) {
        let Evaluation { key, classification, decision, .. } = self.evaluation();
        self.current.admission.record_scope_refusal(*key, classification.class, decision.decided_at);
        self.refusal_reason = Some(reason);
        self.retry_after = retry_after;
    }

    /// Records the `Retry-After` of the response.
    pub(in crate::gateway) fn set_retry_after(&mut self, retry_after: Option<u64>) {
        self.retry_after = retry_after;
    }

    /// Returns true if the cost of the path was unknown before the body was received.
    pub(in crate::gateway) fn awaits_cost(&self) -> bool {
        matches!(self.evaluated.unknown_path, UnknownPath::AwaitsBody)
    }

    /// Records whether the cost of the path is still unknown.
    pub(in crate::gateway) fn set_unknown_path(&mut self, unknown_path: UnknownPath) {
        self.evaluated.unknown_path = unknown_path;
    }

    /// Replaces the evaluation of a request that was not sent, and whose permit is settled.
    pub(in crate::gateway) fn set_evaluation(&mut self, evaluation: Evaluation) {
        self.refusal_reason = evaluation.decision.verdict.refusal().map(|refusal| refusal.reason);
        self.evaluated.evaluation = evaluation;
        self.receipt = Receipt::new();
    }

    /// Records that the request body was received, and that the request need not wait for the cost of its path.
    pub(in crate::gateway) fn end_reception(&mut self) {
        self.ready_at = self.worker.now();
    }

    /// Records the end of the queue wait.
    pub(in crate::gateway) fn end_queue_wait(&mut self) {
        let now = self.worker.now();
        self.scope_wait = now.saturating_duration_since(self.ready_at);
        self.ready_at = now;
    }

    /// Records why the gateway makes the request itself; `None` for one of a client.
    pub(in crate::gateway) fn set_fill(&mut self, fill: Option<CacheFill>) {
        self.fill = fill;
    }

    /// Records that the request is forwarded, and its response not stored.
    pub(in crate::gateway) fn set_cache_bypass(&mut self, reason: ForwardReason, copy: Option<Arc<StoredResponse>>) {
        self.forward_reason = Some(reason);
        self.bypassed_copy = copy;
        self.cache_result = Some(match reason {
            ForwardReason::Bypass | ForwardReason::Method => CacheResult::Bypass,
            _ => CacheResult::Miss,
        });
    }

    /// Records that the response is fetched for the cache.
    pub(in crate::gateway) fn set_fetch(&mut self, fetch: Box<CacheFetch>) {
        self.cache_result.get_or_insert(CacheResult::Miss);
        self.forward_reason = Some(fetch.reason);
        self.fetch = Some(fetch);
    }

    /// Sets the target and the fields of the fetch for the origin, if the response may be stored.
    pub(in crate::gateway) fn prepare_fetch(&mut self, rules: FetchRules<'_>, now: Timestamp) {
        if let Some(fetch) = &mut self.fetch {
            self.client_fields = Some(self.client_request.head.fields.clone());
            fetch.prepare(&mut self.client_request.head, rules, now);
            self.client_request.set_origin_target(fetch.url.path_and_query());
        }
    }

    /// Returns the fields that the client sent, as far as they are not rewritten for every request.
    pub(in crate::gateway) fn client_fields(&self) -> &Fields {
        self.client_fields.as_ref().unwrap_or(&self.client_request.head.fields)
    }

    /// Takes the fetch, once its response or failure is known.
    pub(in crate::gateway) fn take_fetch(&mut self) -> Option<Box<CacheFetch>> {
        self.fetch.take()
    }

    /// Returns the fetch for the cache that the request is.
    pub(in crate::gateway) fn fetch_mut(&mut self) -> Option<&mut CacheFetch> {
        self.fetch.as_deref_mut()
    }

    /// Returns the fetch for the cache that the request is.
    pub(in crate::gateway) fn fetch(&self) -> Option<&CacheFetch> {
        self.fetch.as_deref()
    }

    /// Returns the reason for which the request was forwarded; `None` if the route is not cached.
    pub(in crate::gateway) fn forward_reason(&self) -> Option<ForwardReason> {
        self.forward_reason
    }

    /// Records the result of the cache.
    pub(in crate::gateway) fn set_cache_result(&mut self, result: CacheResult) {
        self.cache_result = Some(result);
    }

    /// Returns the stored response to send in place of a refusal by a scope, or by the origin.
    pub(in crate::gateway) fn copy_in_place_of_refusal(&self) -> Option<Arc<StoredResponse>> {
        let limit = self.current.settings.rules.cache.as_ref()?.stale_when_refused;
        self.stored_copy().filter(|copy| copy.terms().may_replace_refusal(limit, self.worker.now()))
    }

    /// Returns the stored response to send after a failure of the origin.
    pub(in crate::gateway) fn copy_in_place_of_error(&self) -> Option<Arc<StoredResponse>> {
        let limit = self.current.settings.rules.cache.as_ref()?.stale_if_error;
        self.stored_copy().filter(|copy| copy.terms().may_replace_error(limit, self.worker.now()))
    }

    fn stored_copy(&self) -> Option<Arc<StoredResponse>> {
        match &self.fetch {
            Some(fetch) => fetch.copy.as_ref().map(|(_, copy)| Arc::clone(copy)),
            None => self.bypassed_copy.clone(),
        }
    }

    /// Returns true if the gateway makes the request itself.
    pub(in crate::gateway) fn is_fill(&self) -> bool {
        self.fill.is_some()
    }

    /// Counts the expected cost of the request as saved, less what was charged. A request of the gateway itself saves
    /// nothing: without the cache, there would be none.
    pub(in crate::gateway) fn count_saved_units(&mut self) {
        if self.is_fill() {
            return;
        }
        let charged = |quota| self.receipt.iter().find(|charged| charged.quota == quota).map(|charged| charged.settled);
        let expected = self.current.admission.expected_costs(self.evaluation().route);
        self.saved =
            expected.map(|(quota, cost)| (quota, cost.saturating_sub(charged(quota).unwrap_or_default()))).collect();
    }

    /// Returns the units that a stored response saved, of all quotas.
    pub(in crate::gateway) fn saved_units(&self) -> Units {
        self.saved.iter().map(|(_, units)| *units).sum()
    }

    /// Marks the start of the upstream request and stores the slots.
    pub(in crate::gateway) fn begin_upstream(&mut self, slots: Option<SlotGuard>) {
        self.stage = RequestStage::AtOrigin { slots };
        self.is_at_origin = true;
        self.worker.telemetry().upstream_started(&self.route().scopes, &self.worker.names(&self.current));
    }

    /// Ends the request for the origin: releases its slots.
    pub(in crate::gateway) fn end_upstream(&mut self) {
        drop(self.take_slots());
        if std::mem::take(&mut self.is_at_origin) {
            self.worker.telemetry().upstream_finished(&self.route().scopes, &self.worker.names(&self.current));
        }
    }

    /// Records that the gateway had no connection to the origin, or no space for the body. The request was not sent.
    pub(in crate::gateway) fn refuse_without_capacity(&mut self, retry_after: Option<u64>) {
        self.end_upstream();
        self.stage = RequestStage::Evaluated;
        self.set_throttled(Reason::Throttle, retry_after);
    }

    /// Records the time of the upstream response or failure.
    pub(in crate::gateway) fn record_upstream_response(&mut self, now: Timestamp, status: Option<StatusCode>) {
        let (slots, duration) = (self.take_slots(), self.time_at_origin(now));
        self.stage = RequestStage::Answered { slots, status: status.map(|status| status.as_u16()), duration };
    }

    /// Returns the time since the request was sent to the origin.
    fn time_at_origin(&self, now: Timestamp) -> Duration {
        now.saturating_duration_since(self.ready_at)
    }

    fn take_slots(&mut self) -> Option<SlotGuard> {
        match &mut self.stage {
            RequestStage::Evaluated | RequestStage::Delegated { .. } => None,
            RequestStage::AtOrigin { slots } | RequestStage::Answered { slots, .. } => slots.take(),
        }
    }

    /// Returns the permit to send the request, and its head.
    pub(in crate::gateway) fn permit_and_head(&mut self) -> (&mut Permit, &RequestHead) {
        let permit = self.evaluated.evaluation.decision.permit.as_mut().expect("sent upstream and not settled");
        (permit, &self.client_request.head)
    }

    /// Lets the refused request ask the origin's own cache.
    pub(in crate::gateway) fn ask_origin_cache(&mut self, fetch: Box<CacheFetch>) {
        let class = self.evaluation().classification.class;
        self.evaluated.evaluation.decision.permit = Some(self.current.admission.origin_cache_permit(class));
        self.is_for_origin_cache = true;
        self.set_fetch(fetch);
    }

    /// Ends the request to the origin's cache, which has no response. Nothing counts as sent.
    pub(in crate::gateway) fn end_without_origin_cache(&mut self) {
        self.settle_unknown();
        self.end_upstream();
        self.stage = RequestStage::Evaluated;
    }

    /// Charges what the decision expected, because the origin's cache was not what responded.
    pub(in crate::gateway) fn charge_as_unexpected(&mut self) {
        let current = Rc::clone(&self.current);
        let Evaluation { key, classification, ref decision, .. } = *self.evaluation();
        let expected: SmallVec<[_; 2]> = decision.quota_usage.iter().map(|usage| (usage.quota, usage.cost)).collect();
        for (quota, cost) in expected {
            let permit = current.admission.unexpected_permit(key, classification.class, quota, self.started_at());
            self.receipt.extend(permit.settle(|_, _| cost));
        }
    }

    /// Returns true if units were charged for the request.
    pub(in crate::gateway) fn has_charges(&self) -> bool {
        self.receipt.iter().any(|charged| !charged.settled.is_zero())
    }

    /// Returns what a copy of the response saves: the units charged for it. Where nothing was charged because the client is
    /// exempt from the quotas, or because the response is `from_cache`, the origin's own, it saves what the route is expected
    /// to cost.
    pub(in crate::gateway) fn saving_of_copy(&self, from_cache: bool) -> Saving {
        let saving = |quota: QuotaId, cost| Saving::of(cost, self.current.settings.rules[quota].limit);
        let charged = self.receipt.iter().map(|charged| saving(charged.quota, charged.settled)).max();
        let charged = charged.filter(|charged| *charged != Saving::NOTHING || !from_cache);
        // Neither tells what the page costs.
        let expected = || {
            let costs = self.current.admission.expected_costs(self.evaluation().route);
            costs.map(|(quota, cost)| saving(quota, cost)).max()
        };
        charged.or_else(expected).unwrap_or(Saving::NOTHING)
    }

    /// Settles the permit with the cost that `actual` returns for each quota.
    pub(in crate::gateway) fn settle(&mut self, mut actual: impl FnMut(&Self, QuotaId, Units) -> Units) {
        if let Some(permit) = self.evaluated.evaluation.decision.permit.take() {
            self.receipt = permit.settle(|quota, expected| actual(self, quota, expected));
        }
    }

    /// Settles without a known cost: releases the reservation if the request was not sent, charges the expected cost
    /// otherwise. Others for the path need not wait for the request any longer.
    pub(in crate::gateway) fn settle_unknown(&mut self) {
        self.evaluated.unknown_path = UnknownPath::None;
        if let Some(permit) = self.evaluated.evaluation.decision.permit.take() {
            self.receipt = permit.settle_unknown();
        }
    }

    /// Records that another proxy forwards the request: from now on, it costs the expected units unless settled.
    pub(in crate::gateway) fn delegate(&mut self) {
        if let Some(permit) = self.evaluated.evaluation.decision.permit.as_mut() {
            permit.mark_sent();
        }
        let answered_after = self.worker.now().saturating_duration_since(self.received_at);
        self.stage = RequestStage::Delegated { answered_after };
        self.begin_response(StatusCode::OK);
    }

    /// Returns the charged units by the names of quotas.
    pub(in crate::gateway) fn charges(&self) -> impl Iterator<Item = (&str, Units)> {
        let rules = &self.current.settings.rules;
        self.receipt.iter().map(|charged| (rules[charged.quota].name.as_str(), charged.settled))
    }

    pub(in crate::gateway) fn forward_state(&self) -> &Rc<ForwardState> {
        &self.forward_state
    }

    /// Holds `slot` until the response is complete.
    pub(in crate::gateway) fn hold_fetch_slot(&mut self, slot: FetchSlot) {
        self.fetch_slot = Some(slot);
    }

    /// Records the status at the start of the response, if the client waits for it.
    pub(in crate::gateway) fn begin_response(&mut self, status: StatusCode) {
        if !self.forward_state.client_left() {
            self.status = status;
            // Nothing replaces the response any more, and others may displace the copy.
            self.bypassed_copy = None;
        }
    }

    /// Returns the maximum time to the head of the response, and between parts of its body.
    pub(in crate::gateway) fn response_timeout(&self) -> Duration {
        self.current.settings.response_timeout(self.evaluation().route)
    }

    /// Lets the response be an event stream. Returns the maximum time between its parts.
    pub(in crate::gateway) fn begin_event_stream(&self) -> Duration {
        self.current.settings.event_stream_timeout(self.evaluation().route)
    }

    /// Records why the response ended before its end.
    pub(in crate::gateway) fn set_cut(&mut self, cut: ResponseCut) {
        self.cut = Some(cut);
    }

    /// Records the status at the start of a connection that is no longer HTTP. It has timeouts of its own.
    pub(in crate::gateway) fn begin_tunnel(&mut self, status: StatusCode) {
        self.status = status;
    }

    /// Adds `bytes` to the number of body bytes sent, if the client reads them.
    pub(in crate::gateway) fn add_body_bytes(&mut self, bytes: u64) {
        if !self.forward_state.client_left() {
            self.bytes += bytes;
        }
    }

    /// Finishes after the last body byte was sent.
    pub(in crate::gateway) fn finish(mut self: Box<Self>) {
        self.is_complete = true;
    }

    /// Finishes with a response generated by the gateway.
    pub(in crate::gateway) fn finish_local_response(mut self: Box<Self>, status: StatusCode, bytes: u64) {
        self.begin_response(status);
        self.add_body_bytes(bytes);
        self.finish();
    }

    /// Returns true if the response is sent on a stream of HTTP/2.
    pub(in crate::gateway) fn is_http2(&self) -> bool {
        self.connection_state.is_http2()
    }

    pub(in crate::gateway) fn connection_memory(&self) -> &Rc<ConnectionMemory> {
        self.connection_state.memory()
    }

    /// Charges the connection for `bytes` of memory.
    pub(in crate::gateway) fn charge_memory(&self, bytes: usize) -> MemoryCharge {
        MemoryCharge::new(self.connection_state.memory(), bytes)
    }

    /// Returns true if the request holds slots of the origin.
    pub(in crate::gateway) fn holds_slots(&self) -> bool {
        matches!(self.stage, RequestStage::Answered { slots: Some(_), .. })
    }

    /// Closes the connection of the client.
    pub(in crate::gateway) fn close_connection(&self) {
        self.connection_state.command(ConnectionCommand::Close);
    }

    /// Returns true if the request holds slots that its client cannot release by leaving.
    pub(in crate::gateway) fn holds_slots_without_client(&self) -> bool {
        (self.holds_slots() || self.fetch_slot.is_some()) && self.forward_state.outlives_client()
    }

    /// Ends the request for the connection of the client; `aborted` if the client left before the end of the response.
    pub(in crate::gateway) fn disconnect(&mut self, aborted: bool) {
        if !self.forward_state.client_left() {
            self.forward_state.set_client_left();
            self.connection_state.on_request_end(aborted);
        }
    }

    pub(in crate::gateway) fn worker(&self) -> Rc<Worker> {
        Rc::clone(&self.worker)
    }

    fn route(&self) -> &tidegate_policy::route::Route {
        &self.current.settings.rules[self.evaluation().route]
    }

    fn finish_observation(&self) {
        if let Some(observation) = &self.evaluated.observation {
            let status = match self.stage {
                RequestStage::Answered { status, .. } => status.filter(|_| self.refusal_reason.is_none()),
                // The response of another proxy is not known, but the request was not refused.
                RequestStage::Delegated { .. } => Some(self.status.as_u16()),
                _ => None,
            };
            observation.finish(status, &self.current.admission);
        }
    }
}

impl Drop for RequestContext {
    fn drop(&mut self) {
        self.disconnect(!self.is_complete);
        // In this order, because the record shows the charge and the bot score, and because a metrics scrape must find
        // the request in flight until its record counts it.
        self.settle_unknown();
        self.finish_observation();
        self.with_record(|record| self.worker.telemetry().record(record));
        self.end_upstream();
    }
}
