//! Feedback of the origin's responses to the scopes and the quotas.

use super::{RequestContext, RequestStage};
use crate::gateway::exchange::cost;
use crate::gateway::exchange::quota_sync::{self, BodyScan};
use crate::gateway::exchange::target::ClientRequest;
use crate::gateway::exchange::unknown_paths::UnknownPath;
use crate::gateway::upstream::{ForwardError, OriginBody, rate_limit};
use http::StatusCode;
use smallvec::SmallVec;
use std::rc::Rc;
use tidegate_engine::{Charged, Evaluation, ThrottleRejection};
use tidegate_http1::{Fields, Name, Response};
use tidegate_policy::cost::highest_plausible;
use tidegate_policy::exempt::Exemption;
use tidegate_policy::quota_sync::OriginReport;
use tidegate_policy::throttle;
use tidegate_policy::throttle::autothrottle::Adjustment;
use tidegate_policy::{QuotaId, Units};
use tracing::{info, warn};

impl RequestContext {
    /// Reports the upstream outcome to the scopes. Returns the rejection if a scope entered backoff.
    pub(in crate::gateway) fn report_to_scopes(
        &self,
        result: Result<&Response<OriginBody>, &ForwardError>,
    ) -> Option<ThrottleRejection> {
        let RequestStage::Answered { slots: Some(slots), duration: latency, .. } = &self.stage else { return None };
        // A 504 means that the origin's cache has no response, which is no overload.
        if self.is_for_origin_cache {
            return None;
        }
        let (status, retry_after) = match result {
            // Not caused by the origin.
            Err(ForwardError::ClientBody(_)) => return None,
            Err(error) if error.is_capacity() => return None,
            Err(_) => (None, None),
            Ok(Response { status, fields, .. }) => {
                let is_error = status.is_client_error() || status.is_server_error();
                let parse = if is_error { rate_limit::retry_after } else { rate_limit::exhausted_for };
                (Some(status.as_u16()), parse(fields, self.worker.now()))
            }
        };
        let measured =
            self.route().is_latency_sampled && !result.is_ok_and(|response| cost::was_cache_hit(&response.fields));
        let is_unreachable =
            matches!(result, Err(ForwardError::ConnectTimedOut { .. } | ForwardError::ConnectFailed { .. }));
        let outcome = throttle::OriginOutcome {
            status,
            latency: *latency,
            latency_counts: measured,
            retry_after,
            is_unreachable,
        };
        let feedback = slots.record_response(&outcome, self.random(), self.worker.monotonic_now());
        feedback.delay_adjustments.iter().for_each(|(scope, adjustment)| log_delay_adjustment(scope, adjustment));
        let cause = if is_unreachable { "unreachable" } else { "overloaded" };
        for (scope, wait) in &feedback.entered_backoff {
            let wait_s = wait.as_secs_f64();
            warn!(%scope, backoff_ms = wait.as_millis(), "Origin {cause}: scope {scope} backs off for {wait_s:.1} s");
        }
        let rejection = feedback.backoff?;
        Some(ThrottleRejection { retry_after: rejection.retry_after.max(retry_after.unwrap_or_default()), ..rejection })
    }

    /// Handles a response body that was aborted or timed out: reports it to the scopes and releases the slots.
    pub(in crate::gateway) fn upstream_body_aborted(&mut self) {
        let RequestStage::Answered { slots, duration: latency, .. } = &mut self.stage else { return };
        let latency = *latency;
        if let Some(slots) = slots.take() {
            let outcome = throttle::OriginOutcome {
                status: None,
                latency,
                latency_counts: false,
                retry_after: None,
                is_unreachable: false,
            };
            slots.record_response(&outcome, self.random(), self.worker.monotonic_now());
        }
    }

    /// Returns what a response of the origin costs in a quota of the request, which expects `expected`: without a report,
    /// a cost that was learned for the path alone is none.
    pub(in crate::gateway) fn actual_cost(&self, id: QuotaId, expected: Units, fields: &Fields) -> Units {
        let route = self.route();
        let is_learned = !route.costs.iter().any(|(quota, _)| *quota == id);
        let unreported = if is_learned { Units::ZERO } else { expected };
        let cost = cost::actual_cost(&self.current.settings.rules[id], unreported, fields);
        self.plausible_cost(id, expected, cost)
    }

    /// Returns `cost`, or the highest plausible one if it is implausible: counts it, and logs the first of each quota.
    fn plausible_cost(&self, id: QuotaId, expected: Units, cost: Units) -> Units {
        let quota = &self.current.settings.rules[id];
        let highest = highest_plausible(expected, quota.limit);
        if cost <= highest {
            return cost;
        }
        if self.current.admission.count_implausible_cost(id) {
            let (route, quota) = (&self.route().name, &quota.name);
            warn!(
                %route, %quota, %cost,
                "the origin reports {cost} of {quota} for a request of route {route} that was expected to cost {expected}: charging \
                 {highest}"
            );
        }
        highest
    }

    /// Charges costs that were not expected: those that the origin reported, and those of a page in response to an exempt request.
    pub(in crate::gateway) fn charge_unexpected_costs(&mut self, status: StatusCode, fields: &Fields) {
        self.charge_reported_costs(status, fields);
        if let Some(exemption) = self.exemption().filter(|exemption| exemption.is_bounded()) {
            self.charge_exempt(exemption, status, fields);
        }
    }

    /// Charges an exempt request as a page if the origin has answered it with one. If it cost units, those of its route are
    /// ordinary requests for a while.
    fn charge_exempt(&mut self, exemption: Exemption, status: StatusCode, fields: &Fields) {
        self.evaluated.evaluation.exempt = None;
        let current = Rc::clone(&self.current);
        let route = self.evaluation().route;
        let is_page = is_page(exemption, status, fields);
        if is_page {
            for (quota, cost) in current.admission.expected_costs(route) {
                if cost::reported_cost(&current.settings.rules[quota], fields).is_none() && !cost.is_zero() {
                    self.charge_without_reservation(quota, cost);
                }
            }
        }
        let has_cost = self.has_charges();
        if !has_cost && !is_page && status.is_success() {
            current.admission.record_exempt_answer(exemption, route);
        }
        if has_cost && current.admission.record_exempt_cost(exemption, route, self.started_at()) {
            let (route, kind) = (&self.route().name, exemption.description());
            warn!(%route, "the origin answers with pages what is free on route {route}, {kind}: for an hour, it costs what pages cost");
        }
    }

    /// Charges costs that the origin reported in quotas in which the route has none, and learns them by the path. An exempt
    /// request costs nothing by its route, but what the origin says that it spent is gone; it teaches nothing of others.
    fn charge_reported_costs(&mut self, status: StatusCode, fields: &Fields) {
        if self.current.reported_quotas.is_empty() {
            return;
        }
        let is_exempt = self.exemption().is_some();
        let current = Rc::clone(&self.current);
        let rules = &current.settings.rules;
        let mut reported: SmallVec<[(QuotaId, Units); 2]> = SmallVec::new();
        let mut is_readable = true;
        for &id in &current.reported_quotas {
            if cost::is_unreadable(&rules[id], fields) {
                is_readable = false;
                self.warn_unreadable_cost(id);
            }
            if !is_exempt && self.route().costs.iter().any(|(quota, _)| *quota == id) {
                continue;
            }
            let cost = cost::reported_cost(&rules[id], fields).filter(|cost| !cost.is_zero());
            let charged = self.receipt.iter().find(|charged| charged.quota == id).copied();
            match (cost, charged) {
                (None, _) => {}
                (Some(_), Some(charged)) => reported.push((id, charged.settled)),
                (Some(cost), None) => {
                    let cost = self.plausible_cost(id, Units::ZERO, cost);
                    reported.push((id, cost));
                    self.charge_unexpected_cost(id, cost);
                }
            }
        }
        let route = self.evaluation().route;
        if !is_exempt && current.admission.learns_path_costs(route) {
            let is_conclusive = status.is_success() && is_readable && !cost::was_cache_hit(fields);
            let (facts, network) = (self.client_request.facts(), self.address_key().network());
            current.admission.record_path_costs(&facts, network, &reported, is_conclusive);
        }
        self.evaluated.unknown_path = UnknownPath::None;
    }

    fn warn_unreadable_cost(&self, id: QuotaId) {
        if self.current.is_first_unreadable_cost(self.evaluation().route) {
            let (route, quota) = (&self.route().name, &self.current.settings.rules[id].name);
            warn!(%route, %quota, "cost header of {quota} is no number for route {route}: charging the expected cost");
        }
    }

    /// Settles with the costs that another proxy reports, by the names of quotas. Quotas of the route that it does not name
    /// are charged as expected.
    pub(in crate::gateway) fn settle_reported(&mut self, costs: &[(String, Units)]) {
        let current = Rc::clone(&self.current);
        let rules = &current.settings.rules;
        let reported =
            |quota: QuotaId| costs.iter().find(|(name, _)| *name == rules[quota].name).map(|(_, cost)| *cost);
        self.settle(|context, quota, expected| {
            reported(quota).map_or(expected, |cost| context.plausible_cost(quota, expected, cost))
        });
        for id in (0..rules.quotas.len()).map(QuotaId::from_index) {
            let is_expected = self.receipt.iter().any(|charged| charged.quota == id);
            let cost = if is_expected { None } else { reported(id) };
            if let Some(cost) = cost.filter(|cost| !cost.is_zero()) {
                self.charge_unexpected_cost(id, self.plausible_cost(id, Units::ZERO, cost));
            }
        }
    }

    /// Charges a cost in a quota in which the route has none. Logs the first of each route.
    fn charge_unexpected_cost(&mut self, id: QuotaId, cost: Units) {
        let current = Rc::clone(&self.current);
        self.charge_without_reservation(id, cost);
        if current.is_first_unexpected_cost(self.evaluation().route) {
            let (route, quota) = (&self.route().name, &current.settings.rules[id].name);
            warn!(%route, %quota, %cost, "route {route} has no cost in {quota}, and the origin reports {cost}: give it one");
        }
    }

    fn charge_without_reservation(&mut self, id: QuotaId, cost: Units) {
        let Evaluation { key, classification, .. } = self.evaluation();
        let permit = self.current.admission.unexpected_permit(*key, classification.class, id, self.started_at());
        self.receipt.extend(permit.settle(|_, _| cost));
    }

    /// Synchronizes the charged quotas with the usage in the response headers (`sync_from`).
    pub(in crate::gateway) fn sync_quotas(&mut self, status: StatusCode, fields: &Fields) {
        let current = Rc::clone(&self.current);
        let mut now = None;
        for &Charged { quota, window, .. } in &self.receipt {
            let Some(sync) = &current.settings.rules[quota].sync_from else { continue };
            let now = *now.get_or_insert_with(|| self.worker.now());
            let ClientRequest { head, has_body, .. } = &self.client_request;
            let mut reported = quota_sync::read(sync, head, *has_body, status, fields, now);
            reported.report.exhausted &= reported.is_certain || self.confirms_exhaustion(quota, window);
            self.worker.report_origin_count(&current, quota, window, reported.report, now);
            if let Some(header) = reported.unreadable_header {
                self.worker.warn_unreadable_header(&current, quota, window, header);
            }
            if let Some(text) = reported.body_text {
                self.body_scans.push(BodyScan::new(quota, window, reported.report, text.clone()));
            }
        }
    }

    /// Returns true while the response body is scanned for exhaustion texts.
    pub(in crate::gateway) fn is_scanning_body(&self) -> bool {
        !self.body_scans.is_empty()
    }

    /// Scans a chunk of the response body for the exhaustion text.
    pub(in crate::gateway) fn scan_body(&mut self, data: &[u8]) {
        if !self.is_scanning_body() {
            return;
        }
        let mut scans = std::mem::take(&mut self.body_scans);
        scans.retain_mut(|scan| {
            let is_found = scan.scan(data);
            if is_found && (scan.is_certain() || self.confirms_exhaustion(scan.quota, scan.window)) {
                let count = OriginReport { exhausted: true, ..scan.report };
                self.worker.report_origin_count(&self.current, scan.quota, scan.window, count, self.worker.now());
            }
            !is_found && !scan.is_done()
        });
        self.body_scans = scans;
    }

    /// Returns true if a client in another network was also sent a text of exhaustion whose place is not named.
    fn confirms_exhaustion(&self, quota: QuotaId, window: u64) -> bool {
        self.current.admission.confirms_exhaustion(quota, window, self.address_key().network())
    }
}

/// Logs a delay adjustment of a scope whose autothrottle has `log_adjustments: true`.
/// Longest answer to a certificate authority: a token, a dot and a hash (RFC 8555 section 8.1).
const MAX_KEY_AUTHORIZATION: u64 = 512;

/// Returns true if the response to an exempt request is a page, because the origin does not know such requests. An answer to a
/// preflight lets pages of other origins send more than they may without one (the Fetch standard, section 4.8), or is empty.
fn is_page(exemption: Exemption, status: StatusCode, fields: &Fields) -> bool {
    let has = |name| fields.get_all_by_text(name).next().is_some();
    let length =
        fields.get(Name::ContentLength).and_then(|length| std::str::from_utf8(length).ok()?.parse::<u64>().ok());
    let is_answer = match exemption {
        Exemption::Preflight => {
            let allows_origin = has("access-control-allow-origin");
            allows_origin && (has("access-control-allow-methods") || has("access-control-allow-headers"))
        }
        Exemption::AcmeChallenge => {
            let is_html = fields.get(Name::ContentType).is_some_and(|kind| kind.starts_with(b"text/html"));
            !is_html && length.is_none_or(|length| length <= MAX_KEY_AUTHORIZATION)
        }
        Exemption::RobotsTxt | Exemption::CrawlPolicy => true,
    };
    status.is_success() && status != StatusCode::NO_CONTENT && length != Some(0) && !is_answer
}

fn log_delay_adjustment(scope: &str, adjustment: &Adjustment) {
    let Adjustment { outcome: throttle::OriginOutcome { status, latency, .. }, old_delay: old, new_delay: new, reason } =
        adjustment;
    info!(
        target: "autothrottle", scope, ?latency, status, ?old, ?new, why = reason,
        "Delay of {scope}: {old:?} -> {new:?}, {reason}"
    );
}
