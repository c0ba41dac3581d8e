//! The cache in a simulated request: simulated, unless the log names what a cache did.

use super::Simulator;
use crate::decision::ReplayedDecision;
use crate::log::LogLine;
use crate::request::ReplayRequest;
use crate::response_cache::{CacheRole, LoggedUse, OriginResponse};
use smallvec::SmallVec;
use tidegate_access_log::read::NativeFields;
use tidegate_engine::Classified;
use tidegate_http_cache::CacheResult;
use tidegate_policy::{ClientKind, QuotaId, Timestamp, Units};

impl Simulator {
    /// Returns the part of the cache in a request.
    pub(super) fn cache_role(
        &mut self,
        line: &LogLine<'_>,
        request: &ReplayRequest<'_>,
        classified: &Classified,
        now: Timestamp,
    ) -> CacheRole {
        if let Some(native) = line.native.as_deref() {
            // A gateway with a cache names it on every route with one that it forwards. Lines without it are refusals,
            // and routes without a cache.
            self.log_names_cache |= native.cache.is_some();
            if self.log_names_cache {
                return logged_role(native);
            }
        }
        let Some(cache) = &mut self.response_cache else { return CacheRole::Unused };
        let is_person = classified.classification.kind == ClientKind::Human && classified.exemption.is_none();
        if is_person && self.admission.is_costly(classified.route, &request.facts(self.rules.path_policy)) {
            cache.record_person(request, classified.route, self.rules.trust.key(request.client), now);
        }
        cache.role(request, classified.route, line.status, now)
    }

    /// Returns the units that a stored response saves: the cost that the request would have had, less what it has.
    pub(super) fn saved_units(
        &self,
        decision: &ReplayedDecision,
        role: CacheRole,
        native: Option<&NativeFields<'_>>,
        request: &ReplayRequest<'_>,
    ) -> SmallVec<[(QuotaId, Units); 2]> {
        let is_copy = decision.cache.is_some_and(CacheResult::is_copy);
        // A refused request would have cost nothing; one of the gateway itself exists for the cache alone.
        let is_fill = native.is_some_and(|native| native.fill.is_some());
        if !is_copy || is_fill || decision.refusal_reason.is_some() {
            return SmallVec::new();
        }
        let expected = self.admission.expected_costs(decision.route);
        let full: SmallVec<[(QuotaId, Units); 2]> = match role.is_simulated_copy() {
            true => self.costs(expected, decision.route, native, self.is_cached_by_origin(request, decision.at)),
            false => expected.collect(),
        };
        let charged =
            |quota| decision.costs.iter().find(|(id, _)| *id == quota).map_or(Units::ZERO, |(_, units)| *units);
        full.into_iter().map(|(quota, cost)| (quota, cost.saturating_sub(charged(quota)))).collect()
    }

    /// Updates the simulated cache after a decision.
    pub(super) fn update_cache(
        &mut self,
        line: &LogLine<'_>,
        request: &ReplayRequest<'_>,
        role: CacheRole,
        decision: &ReplayedDecision,
    ) {
        let Some(cache) = &mut self.response_cache else { return };
        match (role, decision.refusal_reason) {
            (CacheRole::Copy(page), None) => {
                cache.record_use(page);
                // The log has charged what the simulation has not.
                self.has_left_log |= line.native.is_some();
            }
            (CacheRole::Fetch { page, .. }, Some(_)) if decision.cache.is_some() => cache.record_use(page),
            (_, Some(_)) => {}
            (_, None) => {
                cache.record_response(request, (role, decision.route), origin_response(line), decision.at);
            }
        }
    }
}

/// Returns the use of the cache that the log names.
fn logged_role(native: &NativeFields<'_>) -> CacheRole {
    native.cache.map_or(CacheRole::Unused, |result| {
        CacheRole::Logged(LoggedUse { result, is_free: native.has_copy, is_replacement: native.has_copy_of_refusal })
    })
}

/// Returns the response of the origin, also for a request that the log shows as refused by a gateway.
fn origin_response(line: &LogLine<'_>) -> OriginResponse {
    match line.native.as_deref().is_some_and(|native| native.reason.is_some()) {
        true => OriginResponse::UNKNOWN,
        false => OriginResponse::unconditional(line.status, line.bytes),
    }
}
