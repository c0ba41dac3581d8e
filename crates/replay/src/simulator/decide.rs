//! Decision of one simulated request, from the facts of its log line to the scheduling of its completion.

use super::Simulator;
use crate::decision::ReplayedDecision;
use crate::evidence::LineEvidence;
use crate::in_flight::{Completion, PendingCharge};
use crate::log::{LogLine, OrderedLine};
use crate::observer::{Observer, PendingRequest, logged_hash};
use crate::page_hash::PageHash;
use crate::request::ReplayRequest;
use crate::response_cache::CacheRole;
use http::Method;
use smallvec::{SmallVec, smallvec};
use std::hash::BuildHasher;
use tidegate_access_log::CLIENT_CLOSED_REQUEST;
use tidegate_access_log::read::{LoggedEvidence, NativeFields, QuotaFields};
use tidegate_engine::{Classified, Evaluation, LearnedCosts, Observation, ObservedRequest, RequestPurpose};
use tidegate_policy::bot_detection::{FetchMode, ResourceKind};
use tidegate_policy::budget::Payer;
use tidegate_policy::cache::CacheFill;
use tidegate_policy::identity::CredentialSource;
use tidegate_policy::rng::ratio_from_id;
use tidegate_policy::session::{RETURN_AFTER, Session};
use tidegate_policy::{
    BotId, Claim, Classification, ClientFacts, Facts, QuotaId, Reason, RefusedQuotas, RouteId, Timestamp, Units,
};

impl Simulator {
    pub(super) fn decide(
        &mut self,
        next: OrderedLine<'_>,
        line: &LogLine<'_>,
        request: &ReplayRequest<'_>,
        observer: &mut impl Observer,
    ) -> ReplayedDecision {
        let (at, native) = (next.at, line.native.as_deref());
        let (claim, browser) = self.claims.claim(&self.policy.user_agents, request.user_agent);
        let logged =
            native.map(|native| LoggedEvidence::parse(native, &self.rules, |name| self.policy.operators.id(name)));
        let (mut observation, admission) = (None, &self.admission);
        let logged_session = self.policy.settings.sessions.as_ref().and(logged.as_ref());
        let observed = ObservedRequest {
            request: request.facts(self.rules.path_policy),
            client: request.client,
            browser,
            referer: request.referer,
            headers: request.headers_seen,
            session: logged_session.and_then(|logged| logged.session),
            session_id: logged_session.map_or(0, |logged| logged.session_id),
        };
        let mut evidence = LineEvidence {
            request,
            claim,
            logged,
            rules: &self.rules,
            operators: &self.policy.operators,
            lists: &self.policy.lists,
            network_databases: &self.policy.network_databases,
            observes_all: self.learned_until.is_some(),
            reclassifies: self.reclassifies,
            bot_score: || {
                observation = Observation::observe(&observed, admission, at);
                observation.and_then(|observation| observation.score_if_suspected(admission))
            },
        };
        let client = ClientFacts::gather(request.client, &mut evidence);
        let secret = evidence.logged.as_ref().and_then(|logged| logged.credential_hash);
        let customer = evidence.logged.as_ref().and_then(|logged| logged.customer);
        let credential_hash = |source: &CredentialSource| logged_hash(source, &self.rules.customer, customer, secret);
        let facts = Facts { request: request.facts(self.rules.path_policy), client: &client };
        let mut classified =
            self.admission.classify(&facts, |_| native.and_then(NativeFields::logged_switch), credential_hash, at);
        let filled = native.filter(|native| native.fill.is_some());
        if let Some(class) = filled.and_then(|native| self.rules.class_id(&native.class)) {
            classified.classification.class = class;
        }
        let role = self.cache_role(line, request, &classified, at);
        let learned = self.logged_learned_costs(native, classified.route);
        observer.before_decision(&PendingRequest {
            position: next.position,
            at,
            line,
            facts: &facts,
            spread: self.retry_after_spread(native),
            role,
            credential_hash: secret,
            customer,
            learned: &learned,
            admission: &self.admission,
        });
        if native.is_some_and(|native| native.reason == Some(Reason::Ledger.name())) && !role.is_simulated_copy() {
            // The ledger refusal was the only one, and it changed no state.
            let refused = copy_logged_refusal(next, line, &classified, role);
            self.update_cache(line, request, role, &refused);
            return refused;
        }
        let purpose = match native.and_then(|native| native.fill) {
            _ if role.is_free() => RequestPurpose::Copy,
            Some(CacheFill::Refresh) => RequestPurpose::Refresh,
            Some(CacheFill::Warm) | None => RequestPurpose::Response,
        };
        let evaluation = self.admission.evaluate_classified(classified, &facts.request, &learned, purpose, at);
        let bot = match claim {
            Claim::Bot { bot, .. } => bot,
            _ => None,
        };
        let mut replayed = self.apply_decision(next, line, request, (evaluation, observation, bot), role);
        replayed.saved = self.saved_units(&replayed, role, native, request);
        replayed.asks_back = replayed.cache.is_none() && self.asks_back(&replayed, request, &client);
        if replayed.asks_back {
            replayed.retry_after_s = Some(RETURN_AFTER.as_secs());
        }
        self.update_cache(line, request, role, &replayed);
        replayed
    }

    /// Returns true if a refusal asks a browser to come back with a session. A log shows navigations only by their path, and
    /// those of the gateway by `fetch_mode`.
    fn asks_back(&self, replayed: &ReplayedDecision, request: &ReplayRequest<'_>, client: &ClientFacts) -> bool {
        let Some(reason) = replayed.refusal_reason else { return false };
        let Classification { kind, class, evidence, .. } = &replayed.classification;
        self.policy.settings.sessions.as_ref().is_some_and(|sessions| sessions.enforce)
            && client.session == Session::None
            && kind.may_have_session()
            && self.rules[*class].asks_back(reason, evidence)
            && *request.method == Method::GET
            && request.headers_seen.fetch_mode() != Some(FetchMode::Subresource)
            && matches!(
                ResourceKind::from_request(request.method, &request.path, request.query, None),
                ResourceKind::Page(_)
            )
            && self.returns.admit(
                self.client_hasher.hash_one((request.client, request.user_agent, &request.path)),
                u32::try_from(replayed.at.seconds()).unwrap_or(u32::MAX),
            )
    }

    /// Applies a decision: schedules completion, settlement and observation of the request.
    fn apply_decision(
        &mut self,
        next: OrderedLine<'_>,
        line: &LogLine<'_>,
        request: &ReplayRequest<'_>,
        (evaluation, observation, bot): (Evaluation, Option<Observation>, Option<BotId>),
        role: CacheRole,
    ) -> ReplayedDecision {
        let (at, native) = (next.at, line.native.as_deref());
        let Evaluation { classified: paying, decision, .. } = evaluation;
        let Classified { classification: classified, route, .. } = paying;
        let mut replayed = ReplayedDecision {
            position: next.position,
            at,
            classification: classified,
            payer: paying.payer(),
            bot,
            route,
            refusal_reason: None,
            asks_back: false,
            shadow: decision.verdict.shadow(),
            refusing_quotas: RefusedQuotas::NONE,
            // The response to an admitted request may contain a Retry-After of the origin.
            retry_after_s: native.filter(|native| native.reason.is_none()).and_then(|native| native.retry_after_s),
            quota_usage: decision.quota_usage,
            costs: SmallVec::new(),
            cache: None,
            saved: SmallVec::new(),
        };
        let mut page = None;
        if replayed.is_costly() {
            page = self.page(request, at);
            let is_cached = page.is_some_and(|(_, is_cached)| is_cached);
            let expected = replayed.quota_usage.iter().map(|usage| (usage.quota, usage.cost));
            replayed.costs = self.costs(expected, route, native, is_cached);
        }
        let mut charge = None;
        if let Some(refusal) = decision.verdict.refusal() {
            replayed.refusal_reason = Some(refusal.reason);
            replayed.refusing_quotas = refusal.quotas;
            let class = &self.rules[classified.class];
            let by_rules = refusal.retry_after(class, self.retry_after_spread(native));
            // The log does not tell when a switch ends, except by this.
            let as_logged = native.filter(|native| native.switch.is_some());
            replayed.retry_after_s = as_logged.map_or(by_rules, |native| native.retry_after_s);
        }
        if let Some(permit) = decision.permit {
            // A simulated response waits for no slots.
            let refusing = native.filter(|_| !role.is_simulated_copy());
            match refusing.and_then(|it| Some((logged_origin_refusal(it)?, it))) {
                Some((reason, native)) => {
                    replayed.refusal_reason = Some(reason);
                    replayed.retry_after_s = native.retry_after_s;
                    // The request waited for slots; then its reservation was released.
                    charge = Some(PendingCharge {
                        permit,
                        class: classified.class,
                        costs: None,
                        settle_sequence: None,
                        page: None,
                    });
                }
                None if replayed.is_costly() => {
                    let fetched = page.filter(|(_, is_cached)| !is_cached).map(|(page, _)| page);
                    let costs = Some(replayed.costs.clone());
                    charge = Some(PendingCharge {
                        permit,
                        class: classified.class,
                        costs,
                        settle_sequence: None,
                        page: fetched,
                    });
                }
                None => {}
            }
        }
        replayed.cache = role.result(replayed.refusal_reason);
        if replayed.is_replaced_refusal() {
            // As in the gateway: the client got a page, and is not told to wait.
            replayed.retry_after_s = None;
        }
        let is_costly = !self.rules[route].is_free();
        let status =
            Some(line.status).filter(|status| replayed.refusal_reason.is_none() && *status != CLIENT_CLOSED_REQUEST);
        let observation = observation.map(|observation| (observation.with_costly(is_costly), status));
        let due = match native {
            _ if role.is_simulated_copy() => at,
            Some(native) => at + native.scope_wait + native.origin_latency.unwrap_or_default(),
            None => at + line.latency.unwrap_or(self.latency),
        };
        if let Some(sequences) =
            native.and_then(|native| self.sequences(native, &replayed.quota_usage, next.position.file))
            && let Some(charge) = charge.take()
        {
            self.settle_in_sequence(&sequences, charge, at);
        }
        self.schedule_completion(Completion { due, charge: charge.map(Box::new), observation });
        if !role.is_simulated_copy()
            && let Some(native) = native
        {
            self.charge_unexpected_costs(native, paying.payer(), &replayed);
        }
        replayed
    }

    /// Returns the costs that the gateway had learned for a request in quotas in which its route has none, and those that it
    /// reserved where the body states costs: those in its log line. Other logs hold neither.
    fn logged_learned_costs(&self, native: Option<&NativeFields<'_>>, route: RouteId) -> LearnedCosts {
        let costs = native.iter().flat_map(|native| &native.quotas);
        let learned = |account: &QuotaFields<'_>| {
            let quota = self.rules.quota_id(&account.quota)?;
            let is_reported = self.rules[quota].has_reported_costs();
            let is_of_route = self.rules[route].has_cost_in(quota);
            let is_stated = self.rules[route].has_requested_cost_in(quota);
            ((is_reported && !is_of_route) || is_stated).then_some((quota, account.cost))
        };
        costs.filter_map(learned).collect()
    }

    /// Charges the logged costs in quotas in which the route has none, in the order of the logged settlements.
    fn charge_unexpected_costs(&mut self, native: &NativeFields<'_>, payer: Payer, replayed: &ReplayedDecision) {
        for cost in &native.unexpected_costs {
            let is_expected = |quota: QuotaId| replayed.quota_usage.iter().any(|usage| usage.quota == quota);
            let quota = self.rules.quota_id(&cost.quota).filter(|quota| !is_expected(*quota));
            let Some(quota) = quota else { continue };
            let class = replayed.classification.class;
            let permit = self.admission.unexpected_permit(payer, class, quota, replayed.at);
            let costs = Some(smallvec![(quota, cost.charged)]);
            let charge = PendingCharge { permit, class, costs, settle_sequence: None, page: None };
            self.add_charge((replayed.position.file, quota), cost.settle_sequence, charge, replayed.at);
        }
    }

    /// Returns the fraction of `retry_after_spread` that the gateway added to the `Retry-After` of a decision.
    fn retry_after_spread(&self, native: Option<&NativeFields<'_>>) -> f64 {
        native.map_or(0.0, |native| self.policy.settings.headers.retry_after_spread.ratio() * ratio_from_id(native.id))
    }

    /// Returns the requested page, and true if the origin's cache has it; `None` without such a cache.
    fn page(&self, request: &ReplayRequest<'_>, now: Timestamp) -> Option<(PageHash, bool)> {
        let cache = self.origin_cache.as_ref()?;
        let page = cache.page(request)?;
        Some((page, cache.is_fresh(page, now)))
    }

    /// Returns true if the origin would respond from its own cache.
    pub(super) fn is_cached_by_origin(&self, request: &ReplayRequest<'_>, now: Timestamp) -> bool {
        self.page(request, now).is_some_and(|(_, is_cached)| is_cached)
    }

    /// Returns the actual cost by quota: as logged, else as assumed for the route, else the expected cost.
    pub(super) fn costs(
        &self,
        expected: impl Iterator<Item = (QuotaId, Units)>,
        route: RouteId,
        native: Option<&NativeFields<'_>>,
        is_cached: bool,
    ) -> SmallVec<[(QuotaId, Units); 2]> {
        let cost = |(quota, expected): (QuotaId, Units)| {
            let name = &self.rules[quota].name;
            let logged = native.filter(|native| native.reason.is_none()).and_then(|native| native.charged(name));
            let assumed = || if is_cached { Units::ZERO } else { self.costs[route.index()].unwrap_or(expected) };
            (quota, logged.unwrap_or_else(assumed))
        };
        expected.map(cost).collect()
    }
}

/// Returns a refusal by `ledger` as logged: the missing units cannot be reproduced.
fn copy_logged_refusal(
    next: OrderedLine<'_>,
    line: &LogLine<'_>,
    classified: &Classified,
    role: CacheRole,
) -> ReplayedDecision {
    let cache = role.result(Some(Reason::Ledger));
    let retry_after_s = line.native.as_ref().and_then(|native| native.retry_after_s);
    ReplayedDecision {
        position: next.position,
        at: next.at,
        classification: classified.classification,
        payer: classified.payer(),
        bot: None,
        route: classified.route,
        refusal_reason: Some(Reason::Ledger),
        asks_back: false,
        shadow: None,
        refusing_quotas: RefusedQuotas::NONE,
        retry_after_s: retry_after_s.filter(|_| cache.is_none()),
        quota_usage: SmallVec::new(),
        costs: SmallVec::new(),
        cache,
        saved: SmallVec::new(),
    }
}

/// Returns the reason of a logged refusal that followed from the state of the origin and cannot be reproduced.
pub(super) fn logged_origin_refusal(native: &NativeFields<'_>) -> Option<Reason> {
    native.reason.and_then(Reason::from_name).filter(|reason| reason.is_of_scope())
}
