//! One policy on the virtual clock: every line goes through the same steps as a live request.

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

/// A policy at work.
pub struct Simulator {
    policy: Policy,
    rules: Arc<Rules>,
    engine: Arc<Engine>,
    admission: Admission,
    /// The latest run of the gate that wrote the lines, where one did.
    run: Option<u64>,
    claims: ClaimCache,
    latency: Duration,
    /// What requests of each route really cost, where somebody says so.
    costs: Vec<Option<Units>>,
    cache: Option<OriginCache>,
    clients: RetryModel,
    in_flight: InFlight,
    retry_queue: RetryQueue,
    tally: ReplayStats,
    /// Of each quota, whether it is known what was used of it before the log began.
    initial_usage_known: Vec<bool>,
    last_evicted: Timestamp,
}

impl Simulator {
    /// Begins at `now`.
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

    /// Takes the next line, after all who come back before it. `tell` hears of every decision.
    pub fn process(
        &mut self,
        next: OrderedLine<'_>,
        line: &LogLine<'_>,
        request: &ReplayRequest<'_>,
        tell: &mut impl FnMut(&Self, &ReplayedDecision),
    ) {
        self.process_observed(next, line, request, &mut FnObserver(tell));
    }

    /// The same, heard by whoever wants to know what is about to be decided, too.
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

    /// Ends: what is under way is settled, and who would come back later does not.
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

    /// The settings that are tried.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// What the policy is called.
    pub fn name(&self) -> &str {
        &self.policy.name
    }

    /// What a bot calls itself.
    pub fn bot(&self, bot: BotId) -> &str {
        self.policy.agents.name(bot)
    }

    /// The name of an operator.
    pub fn operator(&self, operator: OperatorId) -> &str {
        self.policy.operators.name(operator)
    }

    /// Those come back who were told to by `now`.
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

    /// How long its client stays away, if it does.
    fn retry_delay(&self, decided: &ReplayedDecision) -> Option<Duration> {
        let obeys = match self.clients {
            RetryModel::Ignore => false,
            RetryModel::Obey => decided.classified.kind != ClientKind::Human,
            RetryModel::VerifiedOnly => decided.classified.kind == ClientKind::VerifiedBot,
        };
        decided.retry_after_s.filter(|_| obeys && decided.refused.is_some()).map(Duration::from_secs)
    }

    /// What is over by `now` is settled and learned from.
    fn advance_to(&mut self, now: Timestamp) {
        while let Some(ending) = self.in_flight.pop_completed(now) {
            self.settle(ending);
        }
        if now.saturating_duration_since(self.last_evicted) >= EVICTION_INTERVAL {
            self.admission.evict_idle(now);
            self.last_evicted = now;
        }
    }

    /// All that is under way is over.
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
            // Nothing was in its way but that, and it changed nothing.
            return self.copy_logged_refusal(next, line, &facts);
        }
        let judgement = self.admission.evaluate(&facts, |_| secret, at);
        let bot = match claim {
            Claim::Bot { bot, .. } => bot,
            _ => None,
        };
        self.apply_decision(next, line, request, (judgement, observation, bot))
    }

    /// A request that was turned away because the ledger had not handed out enough.
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

    /// What becomes of a request that has been judged, now and when it is over.
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
            // Who was let through may have been told so by the origin.
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
                    // It waited for its turn, and then gave its units back.
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

    /// What the gate has added to the `Retry-After` of a decision, as part of it.
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

    /// The page that a request asks for, and whether the site has it; nothing where none is kept.
    fn page(&self, request: &ReplayRequest<'_>, now: Timestamp) -> Option<(PageNumber, bool)> {
        let cache = self.cache.as_ref()?;
        let page = cache.page(request)?;
        Some((page, cache.is_fresh(page, now)))
    }

    /// What a request really costs: what the gate was told, else what somebody says of the route, else what is expected.
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

    /// What the published addresses say of a claim.
    fn proof(&self, claim: Claim, signature: Signature, request: &ReplayRequest<'_>) -> Proof {
        match claimed_operator(claim, signature).filter(|_| !request.is_named) {
            Some(operator) => self.policy.operators.verify(operator, request.client, Timestamp::default()),
            None => Proof::Unknown,
        }
    }
}

/// A refusal that followed from how the origin was: nobody can work that out again.
fn logged_origin_refusal(own: &NativeFields<'_>) -> Option<Reason> {
    let given = [Reason::Throttle, Reason::Backoff];
    given.into_iter().find(|reason| own.reason == Some(reason.name()))
}

/// The number between 0 and 1 that the gate drew for a decision.
fn chance(id: u64) -> f64 {
    f64::from((id >> 32) as u32) / f64::from(u32::MAX)
}

/// Clients are forgotten this often. It changes nothing, and looks at each of them.
const EVICTION_INTERVAL: Duration = Duration::from_secs(3600);

/// What the gate writes of clients that left before there was an answer.
const CLIENT_LEFT: u16 = 499;
