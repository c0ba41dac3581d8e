//! Admission under one set of rules: the only place where a [`Permit`] is made.

use super::cost_estimates::ExpectedCost;
use super::permit::Reservation;
use super::quota::{OriginQuotaEvent, QuotaCounter, QuotaState};
use super::throttle::{AcquireOutcome, RouteScopes, ScopeState, SlotRequest};
use super::{CrawledPage, Engine, Permit, StableClassId};
use crate::policy::bucket::{Bucket, BucketState};
use crate::policy::class::Class;
use crate::policy::cost::Cost;
use crate::policy::crawler_guard::CrawlerGuard;
use crate::policy::decide::{self, DecisionRequest, QuotaSnapshot};
use crate::policy::identity::ClientKey;
use crate::policy::quota_sync::OriginReport;
use crate::policy::route::Route;
use crate::policy::throttle::partition::PartitionInput;
use crate::policy::{ClassId, OperatorId, QuotaId, Reason, Refusal, Rules, Timestamp, Units, Verdict};
use http::Method;
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;

/// Most requests touch one quota, few two.
type InlineVec<T> = SmallVec<[T; 2]>;

/// An account that was charged, its book, what was decided on, and what it was told to expect.
type Charged<'a, 'b> =
    (((&'a &'b Arc<QuotaCounter>, &'a MutexGuard<'b, QuotaState>), &'a QuotaSnapshot<'b>), &'a (QuotaId, ExpectedCost));

/// A client that has not been seen for this long is forgotten once its bucket is full.
const IDLE_AFTER: Duration = Duration::from_secs(600);

/// Decides under one set of rules, on accounts that outlive it.
pub struct Admission {
    pub(super) engine: Arc<Engine>,
    pub(super) rules: Arc<Rules>,
    pub(super) accounts: Vec<Arc<QuotaCounter>>,
    pub(super) class_ids: Vec<StableClassId>,
    /// What each route is expected to cost, in the order in which accounts are locked.
    charges: Vec<Vec<(QuotaId, ExpectedCost)>>,
    /// Through which scopes the requests of each route go; `None` where none of them is throttled.
    route_scopes: Vec<Option<RouteScopes>>,
}

/// A decision, with the numbers it was made on.
pub struct Decision {
    /// What becomes of the request.
    pub ruling: AdmissionOutcome,
    /// When it was made: at the time that was handed in, or the later one to which its quotas had been brought before.
    pub at: Timestamp,
    /// The first rule in shadow mode that said no to an admitted request.
    pub shadow: Option<Reason>,
    /// Where each of the request's quotas stood, in the order of [`Refusal::quotas`].
    pub standings: InlineVec<QuotaUsage>,
    /// Where the client's bucket stands, if its class has one.
    pub bucket: Option<BucketUsage>,
}

/// What becomes of a request.
pub enum AdmissionOutcome {
    /// It may go to the origin, once.
    Admitted(Permit),
    /// It is turned away.
    Refused(Refusal),
}

/// Who asks, as an account knows it.
#[derive(Clone, Copy)]
pub(super) struct ChargeContext {
    pub(super) slot: StableClassId,
    pub(super) crawler: Option<GuardedCrawler>,
}

/// A verified crawler that its class guards.
#[derive(Clone, Copy)]
pub(super) struct GuardedCrawler {
    guard: CrawlerGuard,
    operator: OperatorId,
    is_overdue: bool,
}

/// One quota as a decision left it.
#[derive(Clone, Copy, Debug)]
pub struct QuotaUsage {
    /// Which quota.
    pub quota: QuotaId,
    /// What the request is expected to cost.
    pub cost: Units,
    /// Settled and reserved, with this request's share if it was admitted.
    pub used: Units,
    /// What is left for the client's class.
    pub remaining: Units,
    /// How many tiers the class has entered.
    pub tier: u8,
    /// A tier refused the request, and the guard let it through.
    pub guard_admitted: bool,
    /// When the window ends.
    pub resets_at: Timestamp,
    /// The window that pays.
    pub window: u64,
    /// The decision's number on this account: sorts decisions into the order in which they were made.
    pub sequence: u64,
}

/// One bucket as a decision left it.
#[derive(Clone, Copy, Debug)]
pub struct BucketUsage {
    /// Tokens that can be taken now.
    pub remaining: u32,
    /// How long until the next token comes back.
    pub next_after: Duration,
    /// How long until the bucket is full again.
    pub full_after: Duration,
    /// The decision's number among those on some clients' buckets: of two with the same rest by
    /// [`BucketUsage::SEQUENCE_SHARDS`], the smaller was made first.
    pub sequence: u64,
}

impl BucketUsage {
    /// In so many parts decisions on buckets are counted.
    pub const SEQUENCE_SHARDS: u64 = 64;
}

impl Admission {
    pub(super) fn new(
        engine: Arc<Engine>,
        rules: Arc<Rules>,
        accounts: Vec<Arc<QuotaCounter>>,
        class_ids: Vec<StableClassId>,
    ) -> Self {
        let in_lock_order = |route: &Route| {
            let expectation = |&(id, cost): &(QuotaId, Cost)| {
                let quota = &rules.quotas[usize::from(id.0)].name;
                (id, engine.experience.expectation(&route.name, quota, cost))
            };
            let mut charges: Vec<_> = route.costs.iter().map(expectation).collect();
            charges.sort_by_key(|(quota, _)| accounts[usize::from(quota.0)].number());
            charges
        };
        let charges = rules.routes.iter().map(in_lock_order).collect();
        let way = |route: &Route| {
            engine.throttle.route_scopes(route.scopes.iter().filter_map(|scope| rules.scopes.get(usize::from(scope.0))))
        };
        let route_scopes = rules.routes.iter().map(way).collect();
        Self { engine, rules, accounts, class_ids: class_ids, charges, route_scopes: route_scopes }
    }

    /// The rules in force.
    pub fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    /// Decides about one GET request: the client behind `key`, of `class`, asks for `path` on the route at place `route`.
    ///
    /// All its quotas are charged what it is expected to cost, or none is.
    pub fn admit(&self, key: ClientKey, class: ClassId, route: usize, path: &str, now: Timestamp) -> Decision {
        self.admit_guarded(key, class, route, self.rules.is_exempt(&Method::GET, path), None, now)
    }

    /// Decides about one request, which may be [never refused](Rules::is_exempt). A verified crawler asks for `page`:
    /// its class may guard it from meeting only refusals.
    pub fn admit_guarded(
        &self,
        key: ClientKey,
        class: ClassId,
        route: usize,
        never_refused: bool,
        page: Option<CrawledPage<'_>>,
        now: Timestamp,
    ) -> Decision {
        let class_rules = &self.rules.classes[usize::from(class.0)];
        let asked = DecisionRequest { class, class_rules, route: &self.rules.routes[route], never_refused };
        let charges = self.charges(&asked, route);
        if asked.bucket().is_none() && charges.is_empty() {
            return self.decide(&asked, None, &mut BucketState::default(), charges, now);
        }
        let pages = &self.engine.refused_pages;
        let page = page.filter(|_| !charges.is_empty());
        let crawler = self.crawler(class_rules, page.as_ref(), now);
        let decision = self.engine.clients.with(key, self.class_id(class), |client| {
            let mut level = client.bucket_state();
            let mut decision = self.decide(&asked, crawler, &mut level, charges, now);
            if class_rules.bucket.is_none() {
                level.since = level.since.max(decision.at);
            }
            client.set_bucket_state(level);
            if matches!(&decision.ruling, AdmissionOutcome::Refused(refusal) if refusal.reason != Reason::Ledger) {
                client.record_refusal();
            }
            decision.bucket = asked.bucket().map(|bucket| {
                let sequence = self.engine.clients.next_sequence(key);
                BucketUsage { sequence, ..BucketUsage::new(bucket, level, decision.at) }
            });
            decision
        });
        if let Some((_, page)) = crawler.zip(page) {
            match &decision.ruling {
                AdmissionOutcome::Admitted(_) => pages.record_admit(&page),
                AdmissionOutcome::Refused(Refusal { reason: Reason::Ledger, .. }) => {}
                AdmissionOutcome::Refused(_) => pages.record_refusal(&page, decision.at),
            }
        }
        decision
    }

    /// Returns whether anything throttles the requests of a route.
    pub fn is_throttled(&self, route: usize) -> bool {
        self.route_scopes[route].is_some()
    }

    /// Brings an admitted request to the scopes of its route: it enters all of them, waits for its turn, or is told
    /// that it cannot be served in time. Which scopes by value those are follows from what it has `said`. `chance` is a
    /// number from 0 to 1 of its own; `uptime` a time that nobody can set, or pauses would become hours with the clock.
    pub fn acquire_slots(
        &self,
        key: ClientKey,
        class: ClassId,
        route: usize,
        said: &PartitionInput<'_>,
        chance: f64,
        uptime: Timestamp,
    ) -> AcquireOutcome {
        match &self.route_scopes[route] {
            None => AcquireOutcome::Acquired(None),
            Some(way) => {
                let priority = self.rules.classes[usize::from(class.0)].priority;
                let comer = SlotRequest { client: key, priority, random: chance };
                self.engine.throttle.acquire(way, said, comer, uptime)
            }
        }
    }

    /// Notes that a client was refused after all: its scopes could not take it in time.
    pub fn record_scope_refusal(&self, key: ClientKey, class: ClassId, now: Timestamp) {
        self.engine.clients.with(key, self.class_id(class), |client| {
            let level = client.bucket_state();
            if self.rules.classes[usize::from(class.0)].bucket.is_none() {
                client.set_bucket_state(BucketState { since: level.since.max(now), ..level });
            }
            client.record_refusal();
        });
    }

    /// Every throttled scope as it stands.
    pub fn scopes(&self, uptime: Timestamp) -> Vec<ScopeState> {
        self.engine.throttle.snapshots(uptime)
    }

    /// The `count` busiest values of the scope of that name, each named by its value.
    pub fn busiest_partitions(&self, scope: &str, count: usize, uptime: Timestamp) -> Vec<ScopeState> {
        self.engine.throttle.busiest_partitions(scope, count, uptime)
    }

    /// The origin has told where its own count of `quota` stands, in an answer to a request that was charged to `window`.
    /// Returns what is worth telling of it.
    pub fn sync_quota_with_origin(
        &self,
        quota: QuotaId,
        window: u64,
        said: OriginReport,
        now: Timestamp,
    ) -> Option<OriginQuotaEvent> {
        self.account(quota).sync_with_origin(window, said, now)
    }

    /// Forgets clients that have been idle for ten minutes and whose bucket is full: forgetting them changes nothing.
    /// Forgets refused pages that no crawler asks for any more.
    pub fn evict_idle(&self, now: Timestamp) {
        self.engine.refused_pages.evict_idle(now);
        self.engine.clients.evict_idle(|slot, level| {
            let class = self.class_ids.iter().position(|&of_class| of_class == slot);
            let bucket = class.and_then(|class| self.rules.classes[class].bucket.as_ref());
            let full_at = bucket.map_or(level.since, |bucket| bucket.full_at(level));
            now.saturating_duration_since(full_at.max(level.since)) >= IDLE_AFTER
        });
    }

    fn decide(
        &self,
        asked: &DecisionRequest<'_>,
        crawler: Option<GuardedCrawler>,
        level: &mut BucketState,
        charges: &[(QuotaId, ExpectedCost)],
        now: Timestamp,
    ) -> Decision {
        let slot = self.class_id(asked.class);
        let asker = ChargeContext { slot, crawler };
        // Filled where they stand: a list that is collected is copied once more.
        let (mut accounts, mut books): (InlineVec<&Arc<QuotaCounter>>, InlineVec<MutexGuard<'_, QuotaState>>) =
            Default::default();
        accounts.extend(charges.iter().map(|(quota, _)| self.account(*quota)));
        books.extend(accounts.iter().map(|account| account.lock_at(now)));
        // One time for all: who looked at the clock first may come second.
        let now = books.iter().map(|book| book.latest_seen).max().unwrap_or(now);
        accounts.iter().zip(&mut books).for_each(|(account, book)| account.advance_to(book, now));
        let mut positions: InlineVec<QuotaSnapshot<'_>> = SmallVec::new();
        for (book, charge) in books.iter_mut().zip(charges) {
            book.sequence += 1;
            positions.push(self.quota_snapshot(book, charge, asker));
        }

        let verdict = decide::decide(asked, *level, &mut positions, now);

        for ((account, book), position) in accounts.iter().zip(&mut books).zip(&positions) {
            match verdict {
                // It is asked again in a moment, and counts once.
                Verdict::Refuse(Refusal { reason: Reason::Ledger, .. }) => {
                    account.request_refill_for(book, position.cost)
                }
                Verdict::Refuse(_) => book.record_decision(slot, position, &verdict),
                Verdict::Admit { .. } => {
                    book.record_decision(slot, position, &verdict);
                    book.reserve(position.cost);
                    if let Some(crawler) = crawler {
                        let guard_admitted = if position.guard_admitted { position.cost } else { Units::ZERO };
                        book.record_guard_admit(slot, crawler.operator, guard_admitted);
                    }
                    account.request_refill_if_low(book);
                }
            }
        }
        let standing = |(book, position): (&MutexGuard<'_, QuotaState>, &QuotaSnapshot<'_>)| {
            let (window, sequence) = (book.current.id, book.sequence);
            QuotaUsage { window, sequence, ..QuotaUsage::new(asked, position, book.taken()) }
        };
        let mut standings = InlineVec::new();
        standings.extend(books.iter().zip(&positions).map(standing));
        let (ruling, shadow) = match verdict {
            Verdict::Refuse(refusal) => (AdmissionOutcome::Refused(refusal), None),
            Verdict::Admit { level: after, shadow } => {
                *level = after;
                let reserve = |(((account, book), position), (quota, expectation)): Charged<'_, '_>| Reservation {
                    account: Arc::clone(account),
                    quota: *quota,
                    expected: position.cost,
                    learned: expectation.learned(),
                    window: book.current.id,
                    charged: Units::ZERO,
                    retry_sequence: None,
                };
                let mut reservations = InlineVec::new();
                reservations.extend(accounts.iter().zip(&books).zip(&positions).zip(charges).map(reserve));
                (AdmissionOutcome::Admitted(Permit::new(slot, reservations)), shadow)
            }
        };
        Decision { ruling, at: now, shadow, standings, bucket: None }
    }

    /// What a request is charged, in the order in which accounts are locked.
    pub(super) fn charges(&self, asked: &DecisionRequest<'_>, route: usize) -> &[(QuotaId, ExpectedCost)] {
        if asked.is_free() { &[] } else { &self.charges[route] }
    }

    /// The crawler that asks for `page`, where its class guards it.
    pub(super) fn crawler(
        &self,
        class: &Class,
        page: Option<&CrawledPage<'_>>,
        now: Timestamp,
    ) -> Option<GuardedCrawler> {
        let (guard, page) = class.guard.zip(page)?;
        let refused_for = self.engine.refused_pages.refused_duration(page, now);
        let is_overdue = refused_for.is_some_and(|span| span >= guard.max_refused_for);
        Some(GuardedCrawler { guard, operator: page.operator, is_overdue })
    }

    /// One of its quotas as a request finds it.
    pub(super) fn quota_snapshot(
        &self,
        book: &mut QuotaState,
        &(id, ref expectation): &(QuotaId, ExpectedCost),
        ChargeContext { slot, crawler }: ChargeContext,
    ) -> QuotaSnapshot<'_> {
        let quota = &self.rules.quotas[usize::from(id.0)];
        QuotaSnapshot {
            id,
            quota,
            cost: expectation.units(book.limit()),
            taken: book.taken(),
            limit: book.leased_limit(),
            leased: book.leased(),
            resets_at: book.resets_at(),
            shedding: book.class(slot).shedding,
            planned: quota.pacing.as_ref().map(|pacing| book.plan_for(pacing, &self.class_ids, slot)),
            guarded: crawler.map(|it| book.guard_state(slot, it.guard, it.operator, it.is_overdue)),
            guard_admitted: false,
        }
    }

    pub(super) fn class_id(&self, class: ClassId) -> StableClassId {
        self.class_ids[usize::from(class.0)]
    }

    pub(super) fn account(&self, quota: QuotaId) -> &Arc<QuotaCounter> {
        &self.accounts[usize::from(quota.0)]
    }
}

impl BucketUsage {
    /// Where a bucket stands that has come to `level`, in no order yet.
    pub fn new(bucket: &Bucket, level: BucketState, now: Timestamp) -> Self {
        Self {
            remaining: bucket.remaining(level, now),
            next_after: bucket.next_token_at(level, now).saturating_duration_since(now),
            full_after: bucket.full_at(level).saturating_duration_since(now),
            sequence: 0,
        }
    }
}

impl QuotaUsage {
    /// Where a request leaves a quota, of which `used` is taken now, in no window and no order yet. Tiers of a class in shadow
    /// mode leave the class all of it.
    pub fn new(asked: &DecisionRequest<'_>, position: &QuotaSnapshot<'_>, used: Units) -> Self {
        let ceiling = match asked.class_rules.enforce {
            true => position.quota.shutoff_level(asked.class),
            false => position.quota.limit,
        };
        Self {
            quota: position.id,
            cost: position.cost,
            used,
            remaining: ceiling.min(position.limit).saturating_sub(used),
            tier: position.shedding.tier,
            guard_admitted: position.guard_admitted,
            resets_at: position.resets_at,
            window: 0,
            sequence: 0,
        }
    }
}
