//! Simulator of one policy on the virtual clock: each line takes the same steps as a live request.

mod cache;
mod decide;
mod learn;
mod native_log;
mod settlement;

use super::assumptions::{Assumptions, RetryModel};
use super::decision::ReplayedDecision;
use super::in_flight::InFlight;
use super::learned_state::LearnedState;
use super::log::{LogLine, OrderedLine};
use super::observer::{FnObserver, Observer};
use super::origin_cache::OriginCache;
use super::policy::Policy;
use super::report::PolicyReport;
use super::request::ReplayRequest;
use super::response_cache::ResponseCache;
use super::retry_queue::{ClientHash, DeferredRequest, RetryQueue};
use super::stats::ReplayStats;
use super::unsupported::unsupported;
use foldhash::fast::{FixedState, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tidegate_crawlers::user_agents::ClaimCache;
use tidegate_engine::{Admission, Engine, QuotaUsage, ReturnTable};
use tidegate_policy::{ClientKind, Rules, Timestamp, Units};

/// Simulation of one policy.
pub struct Simulator {
    policy: Policy,
    rules: Arc<Rules>,
    engine: Arc<Engine>,
    admission: Admission,
    /// Latest start time of the gateway process that wrote the lines, for the gateway's own log.
    started_us: Option<u64>,
    claims: ClaimCache,
    /// Clients that were asked to come back with a session.
    returns: ReturnTable,
    client_hasher: FixedState,
    latency: Duration,
    /// Actual cost of the requests of each route, if assumed (`--actual-cost`).
    costs: Vec<Option<Units>>,
    origin_cache: Option<OriginCache>,
    response_cache: Option<ResponseCache>,
    /// Behavior is judged anew, in place of the logged verdicts.
    reclassifies: bool,
    /// The log names what a cache of the gateway did, so that none is simulated for the gateway's own lines.
    log_names_cache: bool,
    /// A simulated response answered a request of the gateway's own log, so that the logged usage no longer applies.
    has_left_log: bool,
    retry_model: RetryModel,
    in_flight: InFlight,
    retry_queue: RetryQueue,
    stats: ReplayStats,
    /// By quota, true if the usage before the log began has been set.
    has_initial_usage: Vec<bool>,
    last_evicted_at: Timestamp,
    /// Time of the last plans, for a simulation that learns.
    learned_until: Option<Timestamp>,
}

impl Simulator {
    /// Creates a simulator that starts at `now`.
    pub fn new(policy: Policy, assumptions: &Assumptions, now: Timestamp) -> Self {
        let rules = Arc::clone(&policy.settings.rules);
        let engine = Engine::deterministic(policy.settings.limits.max_tracked_clients);
        let admission = engine.admission(Arc::clone(&rules), now);
        let LearnedState { demand, baseline } = &assumptions.learned;
        engine.restore_demand(demand);
        engine.restore_baseline(baseline, &rules, now);
        Self {
            admission,
            engine,
            started_us: None,
            claims: ClaimCache::new(RandomState::default()),
            returns: ReturnTable::default(),
            client_hasher: FixedState::default(),
            latency: assumptions.latency,
            costs: rules.routes.iter().map(|route| assumptions.costs.get(&route.name).copied()).collect(),
            origin_cache: assumptions.cache_ttl.map(OriginCache::new),
            response_cache: ResponseCache::new(&policy.settings, assumptions.max_age),
            reclassifies: assumptions.reclassify,
            log_names_cache: false,
            has_left_log: false,
            retry_model: assumptions.retry_model,
            in_flight: InFlight::default(),
            retry_queue: RetryQueue::default(),
            stats: ReplayStats::new(&rules),
            has_initial_usage: vec![false; rules.quotas.len()],
            last_evicted_at: now,
            learned_until: None,
            rules,
            policy,
        }
    }

    /// Processes the next line, after all retries due before it. Calls `on_decision` after every decision.
    pub fn process(
        &mut self,
        next: OrderedLine<'_>,
        line: &LogLine<'_>,
        request: &ReplayRequest<'_>,
        on_decision: &mut impl FnMut(&Policy, &ReplayedDecision),
    ) {
        self.process_observed(next, line, request, &mut FnObserver(on_decision));
    }

    /// Like [`Self::process`], with an observer that is also called before every decision.
    pub(super) fn process_observed(
        &mut self,
        next: OrderedLine<'_>,
        line: &LogLine<'_>,
        request: &ReplayRequest<'_>,
        observer: &mut impl Observer,
    ) {
        self.run_due_retries(next.at, observer);
        if self.retry_queue.is_deferred(|| ClientHash::from_request(request)) {
            return self.retry_queue.defer(ClientHash::from_request(request), DeferredRequest::new(next));
        }
        let decision = self.submit(next, line, request, observer);
        if let Some(wait) = self.retry_delay(&decision) {
            self.retry_queue.on_refused(ClientHash::from_request(request), DeferredRequest::new(next), next.at, wait);
        }
        observer.after_decision(&self.policy, &decision);
    }

    /// Ends the simulation: settles all requests in flight, drops deferred requests, and returns the results.
    pub fn finish(mut self) -> PolicyReport {
        self.settle_all(self.last_evicted_at);
        let simulated = self.response_cache.as_ref().filter(|_| !self.log_names_cache);
        let stored = simulated.map(ResponseCache::usage);
        let names =
            super::report::NameLookup { user_agents: &self.policy.user_agents, operators: &self.policy.operators };
        self.stats.report(
            &self.policy.name,
            &self.rules,
            &names,
            stored,
            self.retry_queue.dropped(),
            unsupported(&self.policy.settings),
        )
    }

    /// Returns the rules of the policy.
    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Submits the retries due by `now`.
    fn run_due_retries(&mut self, now: Timestamp, observer: &mut impl Observer) {
        while let Some((client, at, deferred)) = self.retry_queue.pop_due(now) {
            let decision = match LogLine::read(&deferred.text) {
                Ok(Some(line)) => ReplayRequest::from_line(&line).map(|request| {
                    self.submit(
                        OrderedLine { at, position: deferred.position, text: &deferred.text },
                        &line,
                        &request,
                        observer,
                    )
                }),
                _ => None,
            };
            match decision.as_ref().and_then(|decision| self.retry_delay(decision)) {
                Some(wait) => self.retry_queue.on_refused(client, deferred, at, wait),
                None => self.retry_queue.on_submitted(client),
            }
            decision.iter().for_each(|decision| observer.after_decision(&self.policy, decision));
        }
    }

    fn submit(
        &mut self,
        next: OrderedLine<'_>,
        line: &LogLine<'_>,
        request: &ReplayRequest<'_>,
        observer: &mut impl Observer,
    ) -> ReplayedDecision {
        self.advance_to(next.at);
        if let Some(native) = &line.native {
            self.sync_with_log(native, next);
        }
        let decision = self.decide(next, line, request, observer);
        self.stats.record_decision(&decision, request, &self.rules);
        for QuotaUsage { quota, .. } in &decision.quota_usage {
            if let Some(plan) = self.admission.plan(*quota, next.at) {
                self.stats.record_plan(*quota, plan.planned, next.at);
            }
        }
        if let Some(native) = &line.native {
            self.stats.record_agreement(&decision, native, &self.rules);
        }
        decision
    }

    /// Returns the time for which the client pauses after a refusal; `None` if it does not obey.
    fn retry_delay(&self, decision: &ReplayedDecision) -> Option<Duration> {
        let obeys = match self.retry_model {
            RetryModel::Ignore => false,
            RetryModel::Obey => decision.classification.kind != ClientKind::Human,
            RetryModel::VerifiedOnly => decision.classification.kind == ClientKind::VerifiedBot,
        };
        decision.retry_after_s.filter(|_| obeys && decision.refusal_reason.is_some()).map(Duration::from_secs)
    }
}
