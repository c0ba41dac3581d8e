//! The record of a request, for the access log and the metrics.

use super::{EvaluatedRequest, RequestContext, RequestStage};
use crate::gateway::exchange::target;
use smallvec::SmallVec;
use tidegate_access_log::{QuotaCharge, Record, RecordedOutcome, UnexpectedCost, UpstreamCall, redacted, redacted_url};
use tidegate_engine::{Charged, Evaluation, QuotaUsage};
use tidegate_http1::Name;
use tidegate_policy::Units;
use tidegate_policy::bot_detection::HeadersSeen;
use tidegate_policy::exempt::Exemption;

impl RequestContext {
    /// Stores the record of a request that is not settled, so that it can be explained.
    pub(in crate::gateway) fn preview(&self) {
        self.with_record(|record| self.worker.telemetry().preview(record));
    }

    /// Calls `use_record` with the record.
    pub(in crate::gateway) fn with_record(&self, use_record: impl FnOnce(&Record<'_>)) {
        let rules = &self.current.settings.rules;
        let head = &self.client_request.head;
        let EvaluatedRequest { client_address, signed, observation, evaluation, .. } = &*self.evaluated;
        let Evaluation { classification: classified, key, decision, .. } = evaluation;
        let names = self.worker.names(&self.current);
        let charges: SmallVec<[QuotaCharge<'_>; 2]> = decision
            .quota_usage
            .iter()
            .map(|usage| QuotaCharge {
                quota_name: &rules[usage.quota].name,
                cost: usage.cost,
                charged: self.charged(usage).map_or(Units::ZERO, |charged| charged.settled),
                used: usage.used,
                sequence: usage.sequence,
                settle_sequence: self.charged(usage).map_or(usage.sequence, |charged| charged.sequence),
                retry_sequence: self.charged(usage).and_then(|charged| charged.retry_sequence),
            })
            .collect();
        let is_unexpected = |charged: &&Charged| !decision.quota_usage.iter().any(|usage| usage.quota == charged.quota);
        let unexpected_costs: SmallVec<[_; 2]> = self
            .receipt
            .iter()
            .filter(&is_unexpected)
            .map(|charged| UnexpectedCost {
                quota_name: &rules[charged.quota].name,
                charged: charged.settled,
                settle_sequence: charged.sequence,
            })
            .collect();
        let is_learned = |charged: &&Charged| {
            !self.route().costs.iter().any(|(quota, _)| *quota == charged.quota) && !is_unexpected(charged)
        };
        let learned_charges = self.receipt.iter().filter(is_learned).map(|charged| charged.settled).sum();
        let saved: SmallVec<[_; 2]> =
            self.saved.iter().map(|(quota, units)| (rules[*quota].name.as_str(), *units)).collect();
        let redact = &self.current.settings.log.redact;
        let query = head.target.query().map(|query| redacted(query, redact));
        let referer = self.client_fields().get(Name::Referer).map(|referer| redacted_url(referer, redact));
        let settled = self.worker.now();
        use_record(&Record {
            admitted_at: decision.decided_at,
            settled_at: settled,
            id: self.id,
            client: client_address.client,
            key: *key,
            method: &head.method,
            host: target::host(head),
            path: self.client_request.sent_target().path(),
            query: query.as_deref(),
            version: head.version,
            status: self.status.as_u16(),
            bytes: self.bytes,
            user_agent: self.client_fields().get(Name::UserAgent).unwrap_or_default(),
            referer: referer.as_deref(),
            headers_seen: observation
                .map_or(HeadersSeen::USER_AGENT, |observation| observation.headers())
                .with(HeadersSeen::PREFLIGHT, self.exemption() == Some(Exemption::Preflight)),
            kind: classified.kind,
            class: classified.class,
            class_name: &rules[classified.class].name,
            operator: classified.operator,
            evidence: &classified.evidence,
            signed: *signed,
            bot_score: observation.and_then(|observation| observation.score()),
            route_name: &self.route().name,
            charges: &charges,
            unexpected_costs: &unexpected_costs,
            bucket_sequence: decision.bucket.map(|bucket| bucket.sequence),
            outcome: match self.refusal_reason {
                Some(reason) => RecordedOutcome::Refused(reason),
                None => RecordedOutcome::Admitted { shadow_reason: decision.verdict.shadow() },
            },
            switch: self.evaluated.evaluation.switch.map(|switch| switch.effect),
            fill: self.fill,
            retry_after_s: self.retry_after,
            scope: self.refusing_scope.as_deref(),
            tier: decision.quota_usage.iter().map(|usage| usage.tier).max(),
            guard_admitted: self.refusal_reason.is_none()
                && decision.quota_usage.iter().any(|usage| usage.guard_admitted),
            scope_wait: self.scope_wait,
            origin: match self.stage {
                RequestStage::Evaluated | RequestStage::Delegated { .. } => None,
                RequestStage::AtOrigin { .. } => Some((None, self.time_at_origin(settled))),
                RequestStage::Answered { status, duration, .. } => Some((status, duration)),
            }
            .map(|(status, duration)| UpstreamCall { scopes: &self.route().scopes, status, duration }),
            total: match self.stage {
                RequestStage::Delegated { answered_after } => answered_after,
                _ => settled.saturating_duration_since(self.received_at),
            },
            cut: self.cut,
            cache: self.cache_result,
            learned_charges,
            saved: &saved,
            names: &names,
        });
    }

    /// Returns the charge of a quota; `None` if the request was refused.
    fn charged(&self, usage: &QuotaUsage) -> Option<&Charged> {
        self.receipt.iter().find(|charged| charged.quota == usage.quota)
    }
}
