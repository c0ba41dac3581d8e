//! Simulator of one policy on the virtual clock: each line takes the same steps as a live request.

mod native_log;

use super::assumptions::{Assumptions, RetryModel};
use super::decision::ReplayedDecision;
use super::in_flight::{Completion, InFlight, PendingCharge};
use super::log::{LogLine, NativeFields, OrderedLine};
use super::logged_evidence::LoggedEvidence;
use super::observer::{FnObserver, Observer, PendingRequest};
use super::origin_cache::{OriginCache, PageNumber};
use super::policy::Policy;
use super::report::PolicyReport;
use super::request::ReplayRequest;
use super::retry_queue::{ClientHash, DeferredRequest, RetryQueue};
use super::stats::ReplayStats;
use super::unsupported::unsupported;
use crate::engine::{Admission, AdmissionOutcome, Engine, Evaluation, Observation, ObservedRequest, QuotaUsage};
use crate::policy::address_lists::ListSet;
use crate::policy::facts::claimed_operator;
use crate::policy::{
    BotId, Claim, ClientKind, Facts, OperatorId, Proof, QuotaId, Reason, Rules, Signature, Timestamp, Units,
};
use crate::user_agents::ClaimCache;
use foldhash::fast::RandomState;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;

/// Simulation of one policy.
pub struct Simulator {
    policy: Policy,
    rules: Arc<Rules>,
    engine: Arc<Engine>,
    admission: Admission,
    /// Latest start time of the gateway process that wrote the lines, for the gateway's own log.
    run: Option<u64>,
    claims: ClaimCache,
    latency: Duration,
    /// Actual cost of the requests of each route, if assumed (`--actual-cost`).
    costs: Vec<Option<Units>>,
    cache: Option<OriginCache>,
    clients: RetryModel,
    in_flight: InFlight,
    retry_queue: RetryQueue,
    tally: ReplayStats,
    /// By quota, true if the usage before the log began has been set.
    initial_usage_known: Vec<bool>,
    last_evicted: Timestamp,
}

impl Simulator {
    /// Creates a simulator that starts at `now`.
    pub fn new(policy: Policy, assumptions: &Assumptions, now: Timestamp) -> Self {
        let rules = Arc::clone(&policy.settings.rules);
        let engine = Engine::deterministic(policy.settings.limits.max_clients);
        let cost = |name: &str| assumptions.costs.iter().find(|(route, _)| route == name).map(|(_, cost)| *cost);
        Self {
            admission: engine.admission(Arc::clone(&rules), now),
            engine,
            run: None,
            claims: ClaimCache::new(RandomState::default()),
            latency: assumptions.latency,
            costs: rules.routes.iter().map(|route| cost(&route.name)).collect(),
            cache: assumptions.cache_ttl.map(OriginCache::new),
            clients: assumptions.clients,
            in_flight: InFlight::default(),
            retry_queue: RetryQueue::default(),
            tally: ReplayStats::new(&rules),
            initial_usage_known: vec![false; rules.quotas.len()],
            last_evicted: now,
            rules,
            policy,
        }
    }

    /// Processes the next line, after all retries due before it. Calls `tell` after every decision.
    pub fn process(
        &mut self,
        next: OrderedLine<'_>,
        line: &LogLine<'_>,
        request: &ReplayRequest<'_>,
        tell: &mut impl FnMut(&Self, &ReplayedDecision),
    ) {
        self.process_observed(next, line, request, &mut FnObserver(tell));
    }

    /// Like [`Self::process`], with an observer that is also called before every decision.
    pub(super) fn process_observed(
        &mut self,
        next: OrderedLine<'_>,
        line: &LogLine<'_>,
        request: &ReplayRequest<'_>,
        listener: &mut impl Observer,
    ) {
        self.run_due_retries(next.at, listener);
        if self.retry_queue.is_deferred(|| ClientHash::of(request)) {
            return self.retry_queue.defer(ClientHash::of(request), DeferredRequest::new(next));
        }
        let decided = self.submit(next, line, request, listener);
        if let Some(wait) = self.retry_delay(&decided) {
            self.retry_queue.on_refused(ClientHash::of(request), DeferredRequest::new(next), next.at, wait);
        }
        listener.after_decision(self, &decided);
    }

    /// Ends the simulation: settles all requests in flight, drops deferred requests, and returns the results.
    pub fn end(mut self) -> PolicyReport {
        self.settle_all(self.last_evicted);
        let names = super::report::NameLookup { agents: &self.policy.agents, operators: &self.policy.operators };
        self.tally.report(
            &self.policy.name,
            &self.rules,
            &names,
            self.retry_queue.dropped(),
            unsupported(&self.policy.settings),
        )
    }

    /// Returns the rules of the policy.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns the name of the policy.
    pub fn name(&self) -> &str {
        &self.policy.name
    }

    /// Returns the name of a bot.
    pub fn bot(&self, bot: BotId) -> &str {
        self.policy.agents.name(bot)
    }

    /// Returns the name of an operator.
    pub fn operator(&self, operator: OperatorId) -> &str {
        self.policy.operators.name(operator)
    }

    /// Submits the retries due by `now`.
    fn run_due_retries(&mut self, now: Timestamp, listener: &mut impl Observer) {
        while let Some((client, at, later)) = self.retry_queue.pop_due(now) {
            let decided = match LogLine::read(&later.text) {
                Ok(Some(line)) => ReplayRequest::of(&line).map(|request| {
                    self.submit(OrderedLine { at, place: later.place, text: &later.text }, &line, &request, listener)
                }),
                _ => None,
            };
            match decided.as_ref().and_then(|decided| self.retry_delay(decided)) {
                Some(wait) => self.retry_queue.on_refused(client, later, at, wait),
                None => self.retry_queue.on_submitted(client),
            }
            decided.iter().for_each(|decided| listener.after_decision(self, decided));
        }
    }

    fn submit(
        &mut self,
        next: OrderedLine<'_>,
        line: &LogLine<'_>,
        request: &ReplayRequest<'_>,
        listener: &mut impl Observer,
    ) -> ReplayedDecision {
        self.advance_to(next.at);
        if let Some(own) = &line.native {
            self.sync_with_log(own, next);
        }
        let decided = self.decide(next, line, request, listener);
        self.tally.record_decision(&decided, request);
        for QuotaUsage { quota, .. } in &decided.standings {
            if let Some(plan) = self.admission.plan(*quota, next.at) {
                self.tally.record_plan(*quota, plan.planned, next.at);
            }
        }
        if let Some(own) = &line.native {
            self.tally.record_agreement(&decided, own, &self.rules);
        }
        decided
    }

    /// Returns the time for which the client pauses after a refusal; `None` if it does not obey.
    fn retry_delay(&self, decided: &ReplayedDecision) -> Option<Duration> {
        let obeys = match self.clients {
            RetryModel::Ignore => false,
            RetryModel::Obey => decided.classified.kind != ClientKind::Human,
            RetryModel::VerifiedOnly => decided.classified.kind == ClientKind::VerifiedBot,
        };
        decided.retry_after_s.filter(|_| obeys && decided.refused.is_some()).map(Duration::from_secs)
    }

    /// Settles the requests that completed by `now`, updates bot detection, and evicts idle clients.
    fn advance_to(&mut self, now: Timestamp) {
        while let Some(ending) = self.in_flight.pop_completed(now) {
            self.settle(ending);
        }
        if now.saturating_duration_since(self.last_evicted) >= EVICTION_INTERVAL {
            self.admission.evict_idle(now);
            self.last_evicted = now;
        }
    }

    /// Settles all requests in flight.
    fn settle_all(&mut self, now: Timestamp) {
        while let Some(ending) = self.in_flight.pop_completed(Timestamp(u64::MAX)) {
            self.settle(ending);
        }
        while let Some(bill) = self.in_flight.pop_any() {
            self.settle_charge(bill, now);
        }
    }

    fn settle(&mut self, ending: Completion) {
        let Completion { due, charge: bill, observation: lesson } = ending;
        if let Some(bill) = bill {
            self.settle_charge(*bill, due);
        }
        if let Some((observation, status)) = lesson {
            observation.finish(status, &self.admission);
        }
    }

    fn settle_charge(&mut self, bill: PendingCharge, now: Timestamp) {
        let PendingCharge { permit, class, costs, page, .. } = bill;
        let receipt = match costs {
            Some(costs) => permit.settle_total(|quota, expected| {
                costs.iter().find(|(known, _)| *known == quota).map_or(expected, |(_, cost)| *cost)
            }),
            None => permit.settle_unknown(),
        };
        self.tally.record_settlement(class, &receipt, now);
        if let Some((cache, page)) = self.cache.as_mut().zip(page) {
            cache.insert(page, now);
        }
    }

    fn decide(
        &mut self,
        next: OrderedLine<'_>,
        line: &LogLine<'_>,
        request: &ReplayRequest<'_>,
        listener: &mut impl Observer,
    ) -> ReplayedDecision {
        let (at, own) = (next.at, line.native.as_deref());
        let (claim, browser) = self.claims.claim(&self.policy.agents, request.user_agent);
        let said = own.map(|own| LoggedEvidence::of(own, &self.rules, |name| self.policy.operators.id(name)));
        let signature = said.as_ref().map_or(Signature::Absent, |said| said.signature);
        let look = ObservedRequest {
            method: request.method,
            path: &request.path,
            query: request.query,
            client: request.client,
            user_agent: request.user_agent,
            browser,
            referer: request.referer,
            seen: request.seen,
        };
        let observation = match claim {
            Claim::Browser | Claim::NoUserAgent if own.is_none() && !signature.names_an_agent() => {
                Observation::of(&look, &self.admission, at)
            }
            _ => None,
        };
        let holds_key_of = said.as_ref().and_then(|said| said.holds_key_of);
        let facts = Facts {
            method: request.method,
            host: request.host,
            path: &request.path,
            query: request.query,
            client: request.client,
            address_lists: match self.rules.lists.is_empty() {
                true => ListSet::default(),
                false => self.policy.lists.lookup(request.client),
            },
            user_agent: request.user_agent,
            claim,
            proof: said.as_ref().and_then(|said| said.proof).unwrap_or_else(|| self.proof(claim, signature, request)),
            signature,
            api_key_classes: holds_key_of.as_slice(),
            bot_score: match &said {
                Some(said) => said.suspicion,
                None => observation.and_then(|observation| observation.score_if_suspected(&self.admission)),
            },
        };
        let secret = said.as_ref().and_then(|said| said.secret);
        listener.before_decision(&PendingRequest {
            place: next.place,
            at,
            line,
            facts: &facts,
            spread: self.retry_after_spread(own),
            secret,
            admission: &self.admission,
        });
        if own.is_some_and(|own| own.reason == Some(Reason::Ledger.name())) {
            // The ledger refusal was the only one, and it changed no state.
            return self.copy_logged_refusal(next, line, &facts);
        }
        let judgement = self.admission.evaluate(&facts, |_| secret, at);
        let bot = match claim {
            Claim::Bot { bot, .. } => bot,
            _ => None,
        };
        self.apply_decision(next, line, request, (judgement, observation, bot))
    }

    /// Returns a refusal by `ledger` as logged: the missing units cannot be reproduced.
    fn copy_logged_refusal(&self, next: OrderedLine<'_>, line: &LogLine<'_>, facts: &Facts<'_>) -> ReplayedDecision {
        ReplayedDecision {
            place: next.place,
            at: next.at,
            classified: self.rules.classify(facts),
            bot: None,
            route: self.rules.route(facts),
            refused: Some(Reason::Ledger),
            shadow: None,
            refused_by: 0,
            retry_after_s: line.native.as_ref().and_then(|own| own.retry_after_s),
            standings: SmallVec::new(),
            costs: SmallVec::new(),
        }
    }

    /// Applies a decision: schedules completion, settlement and observation of the request.
    fn apply_decision(
        &mut self,
        next: OrderedLine<'_>,
        line: &LogLine<'_>,
        request: &ReplayRequest<'_>,
        (judgement, observation, bot): (Evaluation, Option<Observation>, Option<BotId>),
    ) -> ReplayedDecision {
        let (at, own) = (next.at, line.native.as_deref());
        let Evaluation { classified, route, decision, .. } = judgement;
        let mut decided = ReplayedDecision {
            place: next.place,
            at,
            classified,
            bot,
            route,
            refused: None,
            shadow: decision.shadow,
            refused_by: 0,
            // The response to an admitted request may contain a Retry-After of the origin.
            retry_after_s: own.filter(|own| own.reason.is_none()).and_then(|own| own.retry_after_s),
            standings: decision.standings,
            costs: SmallVec::new(),
        };
        let mut page = None;
        if decided.is_costly() {
            page = self.page(request, at);
            let is_kept = page.is_some_and(|(_, is_kept)| is_kept);
            decided.costs = self.costs(&decided.standings, route, own, is_kept);
        }
        let mut bill = None;
        match decision.ruling {
            AdmissionOutcome::Refused(refusal) => {
                decided.refused = Some(refusal.reason);
                decided.refused_by = refusal.quotas;
                decided.retry_after_s = Some(refusal.retry_after(self.retry_after_spread(own)));
            }
            AdmissionOutcome::Admitted(permit) => match own.and_then(|own| Some((logged_origin_refusal(own)?, own))) {
                Some((reason, own)) => {
                    decided.refused = Some(reason);
                    decided.retry_after_s = own.retry_after_s;
                    // The request waited for slots; then its reservation was released.
                    bill = Some(PendingCharge {
                        permit,
                        class: classified.class,
                        costs: None,
                        then_settled: None,
                        page: None,
                    });
                }
                None if decided.is_costly() => {
                    let fetched = page.filter(|(_, is_kept)| !is_kept).map(|(page, _)| page);
                    let costs = Some(decided.costs.clone());
                    bill = Some(PendingCharge {
                        permit,
                        class: classified.class,
                        costs,
                        then_settled: None,
                        page: fetched,
                    });
                }
                None => {}
            },
        }
        let is_costly = !self.rules.routes[route].is_free();
        let status = Some(line.status).filter(|status| decided.refused.is_none() && *status != CLIENT_LEFT);
        let lesson = observation.map(|observation| (observation.with_costly(is_costly), status));
        let due = match own {
            Some(own) => at + own.scope_wait + own.origin.unwrap_or_default(),
            None => at + self.latency,
        };
        if let Some(turns) = own.and_then(|own| self.sequences(own, &decided.standings, next.place.file))
            && let Some(bill) = bill.take()
        {
            self.settle_in_sequence(&turns, bill, at);
        }
        self.schedule_completion(Completion { due, charge: bill.map(Box::new), observation: lesson });
        decided
    }

    /// Returns the fraction of `retry_after_spread` that the gateway added to the `Retry-After` of a decision.
    fn retry_after_spread(&self, own: Option<&NativeFields<'_>>) -> f64 {
        own.map_or(0.0, |own| self.policy.settings.headers.retry_after_spread.ratio() * chance(own.id))
    }

    fn schedule_completion(&mut self, ending: Completion) {
        if ending.charge.is_none() && ending.observation.is_none() {
            return;
        }
        if let Some(first) = self.in_flight.add(ending) {
            self.settle(first);
        }
    }

    /// Returns the requested page, and true if it is cached; `None` without a cache.
    fn page(&self, request: &ReplayRequest<'_>, now: Timestamp) -> Option<(PageNumber, bool)> {
        let cache = self.cache.as_ref()?;
        let page = cache.page(request)?;
        Some((page, cache.is_fresh(page, now)))
    }

    /// Returns the actual cost by quota: as logged, else as assumed for the route, else the expected cost.
    fn costs(
        &self,
        standings: &[QuotaUsage],
        route: usize,
        own: Option<&NativeFields<'_>>,
        is_kept: bool,
    ) -> SmallVec<[(QuotaId, Units); 2]> {
        let cost = |standing: &QuotaUsage| {
            let name = &self.rules.quotas[usize::from(standing.quota.0)].name;
            let told = own.filter(|own| own.reason.is_none()).and_then(|own| own.charged(name));
            let assumed = || if is_kept { Units::ZERO } else { self.costs[route].unwrap_or(standing.cost) };
            (standing.quota, told.unwrap_or_else(assumed))
        };
        standings.iter().map(cost).collect()
    }

    /// Verifies a claim by the published address ranges.
    fn proof(&self, claim: Claim, signature: Signature, request: &ReplayRequest<'_>) -> Proof {
        match claimed_operator(claim, signature).filter(|_| !request.is_named) {
            Some(operator) => self.policy.operators.verify(operator, request.client, Timestamp::default()),
            None => Proof::Unknown,
        }
    }
}

/// Returns the reason of a logged refusal that followed from the state of the origin and cannot be reproduced.
fn logged_origin_refusal(own: &NativeFields<'_>) -> Option<Reason> {
    let given = [Reason::Throttle, Reason::Backoff];
    given.into_iter().find(|reason| own.reason == Some(reason.name()))
}

/// Returns the random number in [0, 1] that the gateway derived from the decision id.
fn chance(id: u64) -> f64 {
    f64::from((id >> 32) as u32) / f64::from(u32::MAX)
}

/// Interval of evicting idle clients. Eviction does not change decisions and visits every client.
const EVICTION_INTERVAL: Duration = Duration::from_secs(3600);

/// Logged status of clients that disconnected before the response.
const CLIENT_LEFT: u16 = 499;
