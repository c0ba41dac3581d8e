//! Admission under one configuration: the only place where a [`Permit`] is created.

use super::cost_estimates::ExpectedCost;
use super::exempt_costs::ExemptCosts;
use super::ignored_reports::IgnoredReport;
use super::permit::{CountedKey, Reservation};
use super::quota::QuotaCounter;
use super::throttle::{AcquireOutcome, RouteScopes, ScopeState, SlotRequest};
use super::{BucketUsage, CrawledPage, Engine, Permit, QuotaUsage};
use crate::InlineVec;
use http::Method;
use parking_lot::MutexGuard;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::bucket::BucketState;
use tidegate_policy::budget::{Budget, Payer};
use tidegate_policy::class::Class;
use tidegate_policy::cost::Cost;
use tidegate_policy::crawler_guard::CrawlerGuard;
use tidegate_policy::decide::{self, DecisionRequest, QuotaSnapshot};
use tidegate_policy::exempt::Exemption;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::key_lease::KeyBalance;
use tidegate_policy::quota_state::QuotaState;
use tidegate_policy::quota_sync::{OriginQuotaEvent, OriginReport};
use tidegate_policy::route::Route;
use tidegate_policy::throttle::overload::RequestSource;
use tidegate_policy::throttle::partition::PartitionInput;
use tidegate_policy::tier::ShedState;
use tidegate_policy::{
    ClassId, OperatorId, QuotaId, Reason, Refusal, RouteId, Rules, StableClassId, Timestamp, Units, Verdict,
};

/// Idle time after which a client with a full bucket is evicted.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// Decides under one configuration, on quota counters that outlive it.
pub struct Admission {
    pub(super) engine: Arc<Engine>,
    pub(super) rules: Arc<Rules>,
    pub(super) counters: Vec<Arc<QuotaCounter>>,
    pub(super) class_ids: Vec<StableClassId>,
    /// Expected costs of each route, in the lock order of the quota counters.
    charges: Vec<Vec<(QuotaId, ExpectedCost)>>,
    /// Quotas of each route in which it has no cost and the origin reports costs.
    pub(super) reported_only: Vec<Vec<QuotaId>>,
    /// Throttled scopes of each route; `None` if no scope of the route is throttled.
    route_scopes: Vec<Option<RouteScopes>>,
    pub(super) exempt_costs: ExemptCosts,
}

/// A decision, with the state that it was based on.
pub struct Decision {
    /// Verdict of the rules.
    pub verdict: Verdict,
    /// Permission to send the request to the origin once. Present if the verdict admits the request.
    pub permit: Option<Permit>,
    /// Time of the decision: the time passed in, or the latest time seen by one of its quotas, if that is later.
    pub decided_at: Timestamp,
    /// Usage of each quota of the request, in the order of [`Refusal::quotas`].
    pub quota_usage: InlineVec<QuotaUsage>,
    /// State of the client's bucket; `None` if its class has none.
    pub bucket: Option<BucketUsage>,
}

/// Class, payer and guarded crawler that a charge is made for.
#[derive(Clone, Copy)]
pub(super) struct ChargeContext {
    pub(super) class: ClassId,
    pub(super) class_id: StableClassId,
    pub(super) payer: Payer,
    /// Client whose share of quotas is limited, if it is.
    pub(super) limited_client: Option<ClientKey>,
    pub(super) crawler: Option<GuardedCrawler>,
}

/// A verified crawler whose class has a crawler guard.
#[derive(Clone, Copy)]
pub(super) struct GuardedCrawler {
    guard: CrawlerGuard,
    operator: OperatorId,
    is_overdue: bool,
}

/// Quota of a request, whose counter is locked for the decision.
struct LockedQuota<'a> {
    counter: &'a Arc<QuotaCounter>,
    state: MutexGuard<'a, QuotaState>,
    charge: &'a (QuotaId, ExpectedCost),
    /// Id of the window of the key that units are reserved for.
    key_window: u64,
}

impl Admission {
    pub(super) fn new(
        engine: Arc<Engine>,
        rules: Arc<Rules>,
        counters: Vec<Arc<QuotaCounter>>,
        class_ids: Vec<StableClassId>,
    ) -> Self {
        let in_lock_order = |route: &Route| {
            let expectation = |&(id, cost): &(QuotaId, Cost)| {
                let quota = &rules[id].name;
                (id, engine.cost_estimates.expected_cost(&estimate_name(route), quota, cost))
            };
            let mut charges: Vec<_> = route.costs.iter().map(expectation).collect();
            charges.sort_by_key(|(quota, _)| counters[quota.index()].lock_order());
            charges
        };
        let charges = rules.routes.iter().map(in_lock_order).collect();
        let scopes_of = |route: &Route| {
            engine.throttle.route_scopes(route.scopes.iter().filter_map(|scope| rules.scopes.get(scope.index())))
        };
        let route_scopes = rules.routes.iter().map(scopes_of).collect();
        let reported_only = rules.routes.iter().map(|route| reported_only(&rules, route)).collect();
        let exempt_costs = ExemptCosts::new(rules.routes.len());
        Self { engine, rules, counters, class_ids, charges, reported_only, route_scopes, exempt_costs }
    }

    /// Returns the configuration of this admission.
    pub fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    /// Decides on one GET request of `class` for `path`, on `route`.
    ///
    /// Charges the expected cost to all quotas of the request, or to none.
    pub fn admit(&self, key: ClientKey, class: ClassId, route: RouteId, path: &str, now: Timestamp) -> Decision {
        let request = DecisionRequest {
            class,
            class_rules: &self.rules[class],
            route: &self.rules[route],
            has_learned_cost: false,
            exemption: self.rules.read_exemption(&Method::GET, path),
            switch: None,
            has_copy: false,
            is_refresh: false,
        };
        self.admit_guarded(Payer::of(key), &request, route, None, now)
    }

    /// Decides on one request. `page` is set for a verified crawler, whose class may guard it from permanent refusal.
    pub fn admit_guarded(
        &self,
        payer: Payer,
        request: &DecisionRequest<'_>,
        route: RouteId,
        page: Option<CrawledPage<'_>>,
        now: Timestamp,
    ) -> Decision {
        self.admit_with_costs(payer, request, self.charges(request, route), page, now)
    }

    /// Decides on one request with these expected costs, as [`Self::admit_guarded`] does.
    pub(super) fn admit_with_costs(
        &self,
        payer: Payer,
        request: &DecisionRequest<'_>,
        charges: &[(QuotaId, ExpectedCost)],
        page: Option<CrawledPage<'_>>,
        now: Timestamp,
    ) -> Decision {
        let DecisionRequest { class, class_rules, .. } = *request;
        // A refresh is of no client.
        if request.is_refresh || (request.bucket().is_none() && charges.is_empty()) {
            return self.decide(request, payer, (None, None), &mut BucketState::default(), charges, now);
        }
        let key = payer.client;
        let pages = &self.engine.refused_pages;
        let page = page.filter(|_| !charges.is_empty());
        let crawler = self.guarded_crawler(class_rules, page.as_ref(), now);
        let operator = page.map(|page| page.operator);
        let decision = self.engine.clients.with(key, self.class_id(class), |client| {
            let mut level = client.bucket_state();
            let mut decision = self.decide(request, payer, (operator, crawler), &mut level, charges, now);
            if class_rules.bucket.is_none() {
                level.refilled_at = level.refilled_at.max(decision.decided_at);
            }
            client.set_bucket_state(level);
            if decision.permit.is_none() && !decision.verdict.waits_for_lease() {
                client.record_refusal();
            }
            decision.bucket = request.bucket().map(|bucket| {
                let sequence = self.engine.clients.next_sequence(key);
                BucketUsage { sequence, ..BucketUsage::new(bucket, level, decision.decided_at) }
            });
            decision
        });
        if let Some((_, page)) = crawler.zip(page) {
            match &decision.verdict {
                Verdict::Admit { .. } => pages.record_admit(&page),
                verdict if verdict.waits_for_lease() => {}
                Verdict::Refuse(_) => pages.record_refusal(&page, decision.decided_at),
            }
        }
        decision
    }

    /// Returns a permit for a request that was sent to the origin and has a cost in `quota` that its route does not expect.
    /// It reserves nothing; settle it with the reported cost. The window at the time of the decision is charged.
    pub fn unexpected_permit(&self, payer: Payer, class: ClassId, quota: QuotaId, decided_at: Timestamp) -> Permit {
        let counter = self.counter(quota);
        let reservation = Reservation {
            counter: Arc::clone(counter),
            quota,
            counted_for: self.counted_for(quota, class, payer),
            expected: Units::ZERO,
            learned: None,
            key_window: 0,
            window: counter.lock_from(decided_at).window_id_at(decided_at),
            unexpected_at: Some(decided_at),
            charged: Units::ZERO,
            retry_sequence: None,
        };
        Permit::new(self.class_id(class), smallvec![reservation])
    }

    /// Returns a permit for a request of `class` that only the origin's own cache may answer, which costs nothing.
    pub fn origin_cache_permit(&self, class: ClassId) -> Permit {
        Permit::new(self.class_id(class), SmallVec::new())
    }

    /// Records that an exempt request of `route` has cost units, so that further ones are ordinary requests for an hour. Returns
    /// true for the first.
    pub fn record_exempt_cost(&self, exemption: Exemption, route: RouteId, now: Timestamp) -> bool {
        self.exempt_costs.record_cost(exemption, route, now)
    }

    /// Records that the origin has answered an exempt request of `route`, and that it cost nothing.
    pub fn record_exempt_answer(&self, exemption: Exemption, route: RouteId) {
        self.exempt_costs.record_answer(exemption, route);
    }

    /// Returns whether any scope of a route is throttled.
    pub fn is_throttled(&self, route: RouteId) -> bool {
        self.route_scopes[route.index()].is_some()
    }

    /// Acquires slots in all scopes of the route for an admitted request, queues it, or rejects it if it cannot be
    /// served in time. The partition input selects the partitions. `random` is a number from 0 to 1 for jitter.
    /// `uptime` is monotonic time, so that a change of the wall clock does not extend pauses. A request that may not wait
    /// takes only what is free.
    pub fn acquire_slots(
        &self,
        source: RequestSource,
        class: ClassId,
        input: &PartitionInput<'_>,
        random: f64,
        may_wait: bool,
        uptime: Timestamp,
    ) -> AcquireOutcome {
        match &self.route_scopes[source.route.index()] {
            None => AcquireOutcome::Acquired(None),
            Some(scopes) => {
                let priority = self.rules[class].priority;
                let request = SlotRequest { source, priority, random, may_wait };
                self.engine.throttle.acquire(scopes, input, request, uptime)
            }
        }
    }

    /// Records that the scopes of an admitted request rejected it.
    pub fn record_scope_refusal(&self, key: ClientKey, class: ClassId, now: Timestamp) {
        self.engine.clients.with(key, self.class_id(class), |client| {
            let level = client.bucket_state();
            if self.rules[class].bucket.is_none() {
                client.set_bucket_state(BucketState { refilled_at: level.refilled_at.max(now), ..level });
            }
            client.record_refusal();
        });
    }

    /// Returns snapshots of all throttled scopes.
    pub fn scopes(&self, uptime: Timestamp) -> Vec<ScopeState> {
        self.engine.throttle.snapshots(uptime)
    }

    /// Returns the `count` busiest partitions of `scope`, each named by its value.
    pub fn busiest_partitions(&self, scope: &str, count: usize, uptime: Timestamp) -> Vec<ScopeState> {
        self.engine.throttle.busiest_partitions(scope, count, uptime)
    }

    /// Synchronizes `quota` with the usage that the origin reported in a response charged to `window`. Returns an event
    /// to log, if there is one.
    pub fn sync_quota_with_origin(
        &self,
        quota: QuotaId,
        window: u64,
        report: OriginReport,
        now: Timestamp,
    ) -> Option<OriginQuotaEvent> {
        self.counter(quota).sync_with_origin(window, report, now)
    }

    /// Counts a report of the origin's own count of `quota` that was ignored. Returns true if it is to be logged.
    pub fn count_ignored_report(&self, quota: QuotaId, cause: IgnoredReport, now: Timestamp) -> bool {
        self.counter(quota).ignored_reports().record(cause, now)
    }

    /// Counts a cost in `quota` that the origin reported and that was implausibly high. Returns true for the first.
    pub fn count_implausible_cost(&self, quota: QuotaId) -> bool {
        self.counter(quota).count_implausible_cost() == 0
    }

    /// Records that a client in `network` was sent uncertain evidence that the origin's quota of a window is exhausted.
    /// Returns true if one in another network was, too.
    pub fn confirms_exhaustion(&self, quota: QuotaId, window: u64, network: u64) -> bool {
        self.counter(quota).confirms_exhaustion(window, network)
    }

    /// Evicts clients that have been idle for ten minutes with a full bucket, which changes no decision. Evicts
    /// refused pages that crawlers no longer request.
    pub fn evict_idle(&self, now: Timestamp) {
        self.engine.refused_pages.evict_idle(now);
        self.engine.clients.evict_idle(|class_id, level| {
            let class = self.class_ids.iter().position(|&id| id == class_id);
            let bucket = class.and_then(|class| self.rules.classes[class].bucket.as_ref());
            let full_at = bucket.map_or(level.refilled_at, |bucket| bucket.full_at(level));
            now.saturating_duration_since(full_at.max(level.refilled_at)) >= IDLE_TIMEOUT
        });
    }

    pub(super) fn decide(
        &self,
        request: &DecisionRequest<'_>,
        payer: Payer,
        (operator, crawler): (Option<OperatorId>, Option<GuardedCrawler>),
        level: &mut BucketState,
        charges: &[(QuotaId, ExpectedCost)],
        now: Timestamp,
    ) -> Decision {
        let class_id = self.class_id(request.class);
        let limited_client = request.class_rules.has_client_limits.then_some(payer.client);
        let context = ChargeContext { class: request.class, class_id, payer, limited_client, crawler };
        // Fill the lists in place: collecting them would copy them once more.
        let mut locked: InlineVec<LockedQuota<'_>> = SmallVec::new();
        locked.extend(charges.iter().map(|charge| {
            let counter = self.counter(charge.0);
            LockedQuota { counter, state: counter.lock_at(now), charge, key_window: 0 }
        }));
        // Use one time for all quotas, because a request that read the clock earlier may get the locks later.
        let now = locked.iter().map(|quota| quota.state.latest_time()).max().unwrap_or(now);
        locked.iter_mut().for_each(|quota| quota.counter.advance_to(&mut quota.state, now));
        let mut snapshots: InlineVec<QuotaSnapshot<'_>> = SmallVec::new();
        for LockedQuota { state, charge, .. } in &mut locked {
            state.next_sequence();
            snapshots.push(self.quota_snapshot(state, charge, context));
        }

        let verdict = decide::decide(request, *level, &mut snapshots, now);

        for (LockedQuota { counter, state, key_window, .. }, snapshot) in locked.iter_mut().zip(&snapshots) {
            match verdict {
                // A request refused for missing lease units is retried shortly, and must count once.
                Verdict::Refuse(Refusal { reason: Reason::Ledger, .. }) => {
                    counter.request_refill_for(state, snapshot.cost);
                    if let Some(CountedKey { key, limit }) = context.counted_for(snapshot) {
                        counter.request_key_lease(state, key, limit, snapshot.cost);
                    }
                }
                Verdict::Refuse(_) if request.is_refresh => state.record_refresh(),
                Verdict::Refuse(_) => state.record_decision(class_id, operator, snapshot, &verdict),
                Verdict::Admit { .. } => {
                    match request.is_refresh {
                        true => state.record_refresh(),
                        false => state.record_decision(class_id, operator, snapshot, &verdict),
                    }
                    state.reserve(snapshot.cost);
                    if let Some(counted) = context.counted_for(snapshot) {
                        *key_window = counter.reserve_for_key(state, counted.key, counted.limit, snapshot.cost);
                    }
                    if let Some(crawler) = crawler {
                        let guard_admitted = if snapshot.guard_admitted { snapshot.cost } else { Units::ZERO };
                        state.record_guard_admit(class_id, crawler.operator, guard_admitted);
                    }
                    counter.request_refill_if_low(state);
                }
            }
        }
        let is_admitted = verdict.refusal().is_none();
        let usage = |(LockedQuota { state, .. }, snapshot): (&LockedQuota<'_>, &QuotaSnapshot<'_>)| {
            let (window, sequence) = (state.window_id(), state.sequence());
            let used = match &snapshot.quota.budget {
                Some(_) if is_admitted => snapshot.taken.saturating_add(snapshot.cost),
                Some(_) => snapshot.taken,
                None => state.taken(),
            };
            QuotaUsage { window, sequence, ..QuotaUsage::new(request, snapshot, used) }
        };
        let mut usages = InlineVec::new();
        usages.extend(locked.iter().zip(&snapshots).map(usage));
        let permit = match verdict {
            Verdict::Refuse(_) => None,
            Verdict::Admit { bucket_state: after, .. } => {
                *level = after;
                let mut reservations = InlineVec::new();
                let reserved = locked.iter().zip(&snapshots);
                reservations.extend(reserved.map(|(quota, snapshot)| quota.reservation(snapshot, context)));
                Some(Permit::new(class_id, reservations))
            }
        };
        Decision { verdict, permit, decided_at: now, quota_usage: usages, bucket: None }
    }

    /// Returns true if a refresh of a stored response of `route` may be admitted at `now`: each of its quotas has surplus
    /// units for it. A free route has no surplus to use.
    pub fn may_refresh(&self, route: RouteId, now: Timestamp) -> bool {
        let charges = &self.charges[route.index()];
        let may_refresh = |(quota, expectation): &(QuotaId, ExpectedCost)| {
            let state = self.counter(*quota).lock_at(now);
            state.may_refresh(expectation.units(state.limit()))
        };
        !charges.is_empty() && charges.iter().all(may_refresh)
    }

    /// Iterates over the expected costs of a request on `route`.
    pub fn expected_costs(&self, route: RouteId) -> impl Iterator<Item = (QuotaId, Units)> {
        self.charges[route.index()].iter().map(|(id, expectation)| (*id, expectation.units(self.rules[*id].limit)))
    }

    /// Returns the expected costs of a request by its route, in the lock order of the quota counters.
    pub(super) fn charges(&self, request: &DecisionRequest<'_>, route: RouteId) -> &[(QuotaId, ExpectedCost)] {
        if request.is_free() { &[] } else { &self.charges[route.index()] }
    }

    /// Returns the crawler that requests `page` if its class has a guard, otherwise `None`.
    pub(super) fn guarded_crawler(
        &self,
        class: &Class,
        page: Option<&CrawledPage<'_>>,
        now: Timestamp,
    ) -> Option<GuardedCrawler> {
        let (guard, page) = class.guard.zip(page)?;
        let refused_for = self.engine.refused_pages.refused_duration(page, now);
        let is_overdue = refused_for.is_some_and(|duration| duration >= guard.max_refused_for);
        Some(GuardedCrawler { guard, operator: page.operator, is_overdue })
    }

    /// Returns the snapshot of one quota for a request.
    pub(super) fn quota_snapshot(
        &self,
        state: &mut QuotaState,
        &(id, ref expectation): &(QuotaId, ExpectedCost),
        context: ChargeContext,
    ) -> QuotaSnapshot<'_> {
        let ChargeContext { class, class_id, payer, limited_client, crawler } = context;
        let quota = &self.rules[id];
        if let Some(budget) = &quota.budget {
            return self.budget_snapshot(state, id, expectation, budget, class, payer);
        }
        let cost = expectation.units(state.limit());
        let client = limited_client.zip(quota.client_limit);
        let client = client.map(|(client, limit)| self.counter(id).client_used(state, client, limit, cost));
        QuotaSnapshot {
            id,
            quota,
            cost,
            taken: state.taken(),
            limit: state.leased_limit(),
            leased: state.leased(),
            client_used: client.map(|(used, _)| used),
            client_resets_at: client.map_or(state.resets_at(), |(_, resets_at)| resets_at),
            resets_at: state.resets_at(),
            shedding: state.class(class_id).shedding,
            plan: quota.pacing.as_ref().map(|pacing| state.plan_for(pacing, &self.class_ids, class_id)),
            guard_state: crawler.map(|it| state.guard_state(class_id, it.guard, it.operator, it.is_overdue)),
            guard_admitted: false,
        }
    }

    /// Returns the snapshot of a quota with budgets: that of the budget that pays.
    #[cold]
    fn budget_snapshot(
        &self,
        state: &QuotaState,
        id: QuotaId,
        expectation: &ExpectedCost,
        budget: &Budget,
        class: ClassId,
        payer: Payer,
    ) -> QuotaSnapshot<'_> {
        let (quota, counter) = (&self.rules[id], self.counter(id));
        let key = budget.key(class, payer);
        let limit = budget.limit(class, key, quota.limit);
        let cost = expectation.units(limit);
        let KeyBalance { taken, leased } = counter.key_balance(state, key, limit, cost);
        let resets_at = counter.key_renewal(state, key, taken, limit, cost);
        QuotaSnapshot {
            id,
            quota,
            cost,
            taken,
            limit,
            leased,
            client_used: None,
            client_resets_at: resets_at,
            resets_at,
            shedding: ShedState::default(),
            plan: None,
            guard_state: None,
            guard_admitted: false,
        }
    }

    /// Returns the key that the usage of a quota is counted for, if it is.
    fn counted_for(&self, quota: QuotaId, class: ClassId, payer: Payer) -> Option<CountedKey> {
        let quota = &self.rules[quota];
        match &quota.budget {
            Some(budget) => Some(CountedKey { key: budget.key(class, payer), limit: quota.limit_of(class, payer) }),
            None => {
                let limit = quota.client_limit_of(&self.rules[class])?;
                Some(CountedKey { key: payer.client, limit })
            }
        }
    }

    pub(super) fn class_id(&self, class: ClassId) -> StableClassId {
        self.class_ids[class.index()]
    }

    pub(super) fn class_ids(&self) -> &[StableClassId] {
        &self.class_ids
    }

    /// Returns the counters of all quotas, in the order of the rules.
    pub(super) fn counters(&self) -> &[Arc<QuotaCounter>] {
        &self.counters
    }

    pub(super) fn counter(&self, quota: QuotaId) -> &Arc<QuotaCounter> {
        &self.counters[quota.index()]
    }
}

impl ChargeContext {
    /// Returns the key that the usage of a quota is counted for, if it is.
    fn counted_for(&self, snapshot: &QuotaSnapshot<'_>) -> Option<CountedKey> {
        match &snapshot.quota.budget {
            Some(budget) => Some(CountedKey { key: budget.key(self.class, self.payer), limit: snapshot.limit }),
            None => {
                let limit = snapshot.client_used.and(snapshot.quota.client_limit)?;
                Some(CountedKey { key: self.payer.client, limit })
            }
        }
    }
}

impl LockedQuota<'_> {
    /// Returns the reservation of an admitted request.
    fn reservation(&self, snapshot: &QuotaSnapshot<'_>, context: ChargeContext) -> Reservation {
        let (quota, expectation) = self.charge;
        Reservation {
            counter: Arc::clone(self.counter),
            quota: *quota,
            counted_for: context.counted_for(snapshot),
            expected: snapshot.cost,
            learned: expectation.learned(),
            key_window: self.key_window,
            window: self.state.window_id(),
            unexpected_at: None,
            charged: Units::ZERO,
            retry_sequence: None,
        }
    }
}

/// Returns the name of the estimates of a route: its own, and its conditions on bodies and fields, in which routes of one path
/// differ.
fn estimate_name(route: &Route) -> String {
    let of_bodies = route.json.iter().map(|condition| &condition.text);
    let conditions = of_bodies.chain(route.fields.iter().map(|condition| &condition.text));
    conditions.fold(route.name.clone(), |name, text| format!("{name} {text}"))
}

/// Returns the quotas whose costs the origin reports and in which the route has none.
fn reported_only(rules: &Rules, route: &Route) -> Vec<QuotaId> {
    // A route without scopes does not reach the origin.
    let is_sent = !route.scopes.is_empty();
    let is_reported_only = |id: &QuotaId| is_sent && rules[*id].has_reported_costs() && !route.has_cost_in(*id);
    (0..rules.quotas.len()).map(QuotaId::from_index).filter(is_reported_only).collect()
}
