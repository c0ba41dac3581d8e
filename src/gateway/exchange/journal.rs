//! The journal of a request from its decision to its end. Dropping it settles what is not settled, and writes exactly one access
//! log line and one metrics update.

use super::cache_trip::CacheTrip;
use super::charges::settle_late_cost;
use super::client_side::ClientSide;
use super::known::Known;
use super::origin_trip::{OriginStage, OriginTrip};
use crate::gateway::cache::FillOutcome;
use crate::gateway::in_place::boxed_in_place;
use crate::gateway::message::target;
use crate::gateway::session::SessionToken;
use crate::gateway::unknown_paths::UnknownPath;
use crate::gateway::worker::Worker;
use http::{Method, StatusCode};
use smallvec::SmallVec;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_access_log::{
    CLIENT_CLOSED_REQUEST, QuotaCharge, Record, RecordedClient, RecordedDecision, RecordedMore, RecordedOutcome,
    RecordedRequest, RecordedResponse, RecordedUnits, UnexpectedCost, UpstreamCall, redacted, redacted_url,
};
use tidegate_engine::{BucketUsage, Charged, Classified, Decision, Evaluation, InlineVec, QuotaUsage, SlotGuard};
use tidegate_http_cache::{CacheStatus, HitDetail};
use tidegate_http1::Name;
use tidegate_policy::bot_detection::HeadersSeen;
use tidegate_policy::decide::Verdict;
use tidegate_policy::exempt::Exemption;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::{Reason, Units};
use tidegate_traces::{Choice, Spans};

/// A decided request in flight.
pub(in crate::gateway) struct Journal {
    pub(in crate::gateway) known: Box<Known>,
    /// Verdict of the rules.
    pub(in crate::gateway) verdict: Verdict,
    pub(in crate::gateway) quota_usage: InlineVec<QuotaUsage>,
    pub(in crate::gateway) bucket: Option<BucketUsage>,
    /// Reason of the refusal by the rules, or by a scope after admission.
    refusal_reason: Option<Reason>,
    /// Scope that refused the request.
    refusing_scope: Option<Arc<str>>,
    pub(in crate::gateway) client: ClientSide,
    pub(in crate::gateway) cache: CacheTrip,
    pub(in crate::gateway) origin: OriginTrip,
}

impl Journal {
    /// Returns the journal of a request with its evaluation.
    pub(in crate::gateway) fn new(known: Box<Known>, evaluation: Evaluation, unknown_path: UnknownPath) -> Box<Self> {
        // Boxed where it is made, because it is moved often; what is known apart, because the allocator is slow above a
        // kilobyte.
        boxed_in_place(|| {
            let mut known = known;
            let Evaluation { classified, decision, exempt } = evaluation;
            known.classified = classified;
            let Decision { verdict, permit, decided_at, quota_usage, bucket } = decision;
            let aborts_on_disconnect = known.config.settings.origin(known.classified.route).aborts_on_disconnect;
            let (connection, fields) = (&known.connection.connection_state, &known.request.head.fields);
            let client = ClientSide::new(connection, fields, aborts_on_disconnect);
            let refusal_reason = verdict.refusal().map(|refusal| refusal.reason);
            let origin = OriginTrip::new(permit, exempt, unknown_path, decided_at);
            let cache = CacheTrip::default();
            Self { known, verdict, quota_usage, bucket, refusal_reason, refusing_scope: None, client, cache, origin }
        })
    }

    pub(in crate::gateway) fn worker(&self) -> &Rc<Worker> {
        self.known.worker()
    }

    /// Replaces the evaluation of a request that was not sent, and whose permit is settled.
    pub(in crate::gateway) fn set_evaluation(&mut self, evaluation: Evaluation) {
        let Evaluation { classified, decision, exempt } = evaluation;
        let Decision { verdict, permit, decided_at, quota_usage, bucket } = decision;
        self.refusal_reason = verdict.refusal().map(|refusal| refusal.reason);
        self.known.classified = classified;
        (self.verdict, self.quota_usage, self.bucket) = (verdict, quota_usage, bucket);
        (self.origin.units, self.origin.exempt, self.origin.decided_at) = (permit.into(), exempt, decided_at);
    }

    /// Records a refusal by a scope after admission.
    pub(in crate::gateway) fn refuse_by_scope(&mut self, scope: Arc<str>, reason: Reason, retry_after: Option<u64>) {
        self.refusing_scope = Some(scope);
        self.record_late_refusal(reason, retry_after);
    }

    /// Records that the gateway had no connection to the origin, or no space for the body. The request was not sent.
    pub(in crate::gateway) fn refuse_without_capacity(&mut self, retry_after: Option<u64>) {
        self.end_at_origin();
        self.origin.stage = OriginStage::Unsent;
        self.record_late_refusal(Reason::Throttle, retry_after);
    }

    /// Records a refusal after admission: by a scope, or for lack of capacity.
    fn record_late_refusal(&mut self, reason: Reason, retry_after: Option<u64>) {
        let Classified { key, classification, .. } = &self.known.classified;
        self.known.config.admission.record_scope_refusal(*key, classification.class, self.origin.decided_at);
        self.refusal_reason = Some(reason);
        self.client.retry_after = retry_after;
    }

    /// Records that the request is sent to the origin, and holds its slots.
    pub(in crate::gateway) fn begin_at_origin(&mut self, slots: Option<SlotGuard>) {
        self.origin.begin(slots);
        let (worker, known) = (self.worker(), &self.known);
        worker.telemetry().upstream_started(&known.route().scopes, &worker.names(&known.config));
    }

    /// Ends the request for the origin: releases its slots.
    pub(in crate::gateway) fn end_at_origin(&mut self) {
        if self.origin.end() {
            let (worker, known) = (self.worker(), &self.known);
            worker.telemetry().upstream_finished(&known.route().scopes, &worker.names(&known.config));
        }
    }

    /// Returns true if the request holds slots that its client cannot release by leaving.
    pub(in crate::gateway) fn holds_slots_without_client(&self) -> bool {
        (self.origin.answered_slots().is_some() || self.origin.fetch_slot.is_some())
            && self.client.forwarding.outlives_client()
    }

    /// Records the status at the start of the response, if the client waits for it.
    pub(in crate::gateway) fn begin_response(&mut self, status: StatusCode) {
        if !self.client.has_left() {
            self.client.status = status;
            self.cache.forget_copy();
        }
    }

    /// Finishes after the last body byte was sent.
    pub(in crate::gateway) fn finish(mut self: Box<Self>) {
        self.client.complete();
    }

    /// Finishes with a response generated by the gateway, with a body of `bytes` unless the request is HEAD.
    pub(in crate::gateway) fn finish_local_response(mut self: Box<Self>, status: StatusCode, bytes: u64) {
        self.begin_response(status);
        self.client.add_bytes(if self.known.request.head.method == Method::HEAD { 0 } else { bytes });
        self.finish();
    }

    /// Stores the record of a request that is not settled, so that it can be explained.
    pub(in crate::gateway) fn preview(&self) {
        self.with_record(|record| self.worker().telemetry().preview(record));
    }

    /// Reports to bot detection the status of the response of the site, or that there is none: the request was refused, it
    /// failed, or the gateway itself answered.
    fn finish_observation(&self) {
        if let Some(observation) = &self.known.client.observation {
            let status = match self.origin.stage {
                OriginStage::Answered { status, .. } => status,
                // The response of another proxy is not known, but the request was not refused.
                OriginStage::Delegated { .. } => Some(self.client.status.as_u16()),
                // A page of the cache is one that the client has read. It has left if it was sent nothing.
                OriginStage::Unsent => Some(self.client.status.as_u16())
                    .filter(|status| self.cache.is_from_copy() && *status != CLIENT_CLOSED_REQUEST),
                OriginStage::Sent => None,
            };
            let status = status.filter(|_| self.refusal_reason.is_none());
            observation.finish(status, &self.known.config.admission);
        }
    }

    /// Builds the record of the request as it is now, and calls `use_record` with it.
    fn with_record(&self, use_record: impl FnOnce(&Record<'_>)) {
        let Self { known, client, cache, origin, quota_usage, .. } = self;
        let (rules, head, worker) = (known.rules(), &known.request.head, self.worker());
        let Classified { classification, key, customer, switch, exemption, .. } = &known.classified;
        let observation = &known.client.observation;
        let names = worker.names(&known.config);
        let charges: SmallVec<[QuotaCharge<'_>; 2]> = quota_usage
            .iter()
            .map(|usage| {
                let charged = origin.charged(usage.quota);
                QuotaCharge {
                    quota_name: &rules[usage.quota].name,
                    cost: usage.cost,
                    charged: charged.map_or(Units::ZERO, |charged| charged.settled),
                    used: usage.used,
                    sequence: usage.sequence,
                    settle_sequence: charged.map_or(usage.sequence, |charged| charged.sequence),
                    retry_sequence: charged.and_then(|charged| charged.retry_sequence),
                }
            })
            .collect();
        let is_unexpected = |charged: &&Charged| !quota_usage.iter().any(|usage| usage.quota == charged.quota);
        let unexpected_costs: SmallVec<[_; 2]> = origin
            .units
            .charges()
            .iter()
            .filter(&is_unexpected)
            .map(|charged| UnexpectedCost {
                quota_name: &rules[charged.quota].name,
                charged: charged.settled,
                settle_sequence: charged.sequence,
            })
            .collect();
        let is_learned = |charged: &&Charged| !known.route().has_cost_in(charged.quota) && !is_unexpected(charged);
        let learned_charges = origin.units.charges().iter().filter(is_learned).map(|charged| charged.settled).sum();
        let saved: SmallVec<[_; 2]> =
            cache.saved.iter().map(|(quota, units)| (rules[*quota].name.as_str(), *units)).collect();
        let more = known.client.more.as_deref();
        let field_classes: SmallVec<[&str; 2]> =
            more.iter().flat_map(|more| &more.field_classes).map(|class| rules[*class].name.as_str()).collect();
        let more = more.map(|more| RecordedMore {
            session: known.config.settings.sessions.as_ref().map(|_| more.session.state()),
            session_id: more.session.token.map_or(0, SessionToken::short_id),
            is_asked_back: client.is_asked_back,
            purpose: more.purpose,
            network_origin: more.network_origin,
            field_classes: &field_classes,
            customer: rules.customer.as_ref().map(|_| *customer).filter(ClientKey::is_credential),
            trace_id: more.trace.map(|trace| trace.trace_id),
        });
        let redact = &known.config.settings.log.redact;
        let query = head.target.query().map(|query| redacted(query, redact));
        let fields = cache.client_fields(&known.request);
        let referer = fields.get(Name::Referer).map(|referer| redacted_url(referer, redact));
        let settled_at = worker.now();
        let call = |status, duration| UpstreamCall { scopes: &known.route().scopes, status, duration };
        use_record(&Record {
            admitted_at: origin.decided_at,
            settled_at,
            id: known.id,
            client: RecordedClient {
                address: known.client_address(),
                key: *key,
                headers_seen: observation
                    .map_or(HeadersSeen::USER_AGENT, |observation| observation.headers())
                    .with(HeadersSeen::PREFLIGHT, *exemption == Some(Exemption::Preflight)),
                kind: classification.kind,
                class: classification.class,
                class_name: &rules[classification.class].name,
                operator: classification.operator,
                evidence: &classification.evidence,
                more: more.as_ref(),
                signed: known.client.signed,
                bot_score: observation.and_then(|observation| observation.score()),
            },
            request: RecordedRequest {
                method: &head.method,
                host: target::host(head),
                path: known.request.sent_target().path(),
                query: query.as_deref(),
                version: head.version,
                user_agent: fields.get(Name::UserAgent).unwrap_or_default(),
                referer: referer.as_deref(),
                fill: known.fill(),
                json: known.request.json.as_deref(),
                fields: known.request.field_match(),
            },
            decision: RecordedDecision {
                route: known.classified.route,
                route_name: &known.route().name,
                origin: known
                    .config
                    .settings
                    .origin_name(known.route().origin)
                    .filter(|_| !known.route().scopes.is_empty()),
                bucket_sequence: self.bucket.map(|bucket| bucket.sequence),
                outcome: match self.refusal_reason {
                    Some(reason) => RecordedOutcome::Refused(reason),
                    None => RecordedOutcome::Admitted { shadow_reason: self.verdict.shadow() },
                },
                switch: switch.map(|switch| switch.effect),
                retry_after_s: client.retry_after,
                scope: self.refusing_scope.as_deref(),
                tier: quota_usage.iter().map(|usage| usage.tier).max(),
                guard_admitted: self.refusal_reason.is_none() && quota_usage.iter().any(|usage| usage.guard_admitted),
                scope_wait: origin.scope_wait,
            },
            units: RecordedUnits {
                charges: &charges,
                unexpected_costs: &unexpected_costs,
                learned_charges,
                saved: &saved,
            },
            response: RecordedResponse {
                status: client.status.as_u16(),
                bytes: client.bytes,
                origin: match origin.stage {
                    OriginStage::Unsent | OriginStage::Delegated { .. } => None,
                    OriginStage::Sent => Some(call(None, origin.time_at_origin(settled_at))),
                    OriginStage::Answered { status, duration } => Some(call(status, duration)),
                },
                total: match origin.stage {
                    OriginStage::Delegated { answered_after } => answered_after,
                    _ => settled_at.saturating_duration_since(known.received_at),
                },
                cut: client.cut,
                cache: cache.result,
            },
            names: &names,
        });
    }
}

/// Writes the line of a request that has ended, counts it, and queues its spans if they are exported.
fn record_end(known: &Known, record: &Record<'_>) {
    let telemetry = known.worker().telemetry();
    telemetry.record(record);
    if let (Some(context), Some(traces)) = (known.client.trace(), &known.config.settings.traces)
        && Choice(traces).keeps(context, record)
    {
        telemetry.trace(Spans::new(record, *context));
    }
}

/// Returns what became of a request that the gateway made itself.
fn fill_outcome(journal: &Journal) -> FillOutcome {
    let Journal { client, cache, .. } = journal;
    let status = cache.final_status();
    let is_refusal_replaced = matches!(status, Some(CacheStatus::Hit { detail: Some(HitDetail::Refused), .. }));
    FillOutcome {
        status: client.status.as_u16(),
        // A time to retry also has who waited in vain for others, and who met an overload of the origin.
        is_refused: journal.refusal_reason.is_some() || client.retry_after.is_some() || is_refusal_replaced,
        is_stored: cache.is_stored,
        cache_status: status.map_or_else(String::new, |status| status.to_string()),
        retry_after_s: client.retry_after,
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.client.end();
        // In this order, because the record shows the charge and the bot score, and because a metrics scrape must find
        // the request in flight until its record counts it.
        self.origin.settle_unknown();
        settle_late_cost(&self.known, &mut self.origin, false);
        self.finish_observation();
        self.with_record(|record| record_end(&self.known, record));
        if let Some(fill) = &self.known.connection.fill {
            fill.end(fill_outcome(self));
        }
        self.end_at_origin();
    }
}
