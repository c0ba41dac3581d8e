use super::*;
use crate::bucket::Bucket;
use crate::crawler_guard::CrawlerGuard;
use crate::exempt::Exemption;
use crate::fixtures;
use crate::pacing::bucket::{PacingAllowance, PacingBucket, PacingRate};
use crate::quota::ClassTiers;
use crate::switches::{Switch, SwitchEffect};
use crate::time::ceil_seconds;
use proptest::prelude::*;

const NOON: Timestamp = Timestamp::from_seconds(43_200);
const MIDNIGHT: Timestamp = Timestamp::from_seconds(86_400);

/// Fixture: a quota of 1,000 units, one class with optional tiers, and one costly route.
struct DecisionFixture {
    quota: Quota,
    class: Class,
    route: Route,
    exemption: Option<Exemption>,
    switch: Option<Switch>,
    taken: u64,
    leased: u64,
    cost: u64,
    client_used: Option<Units>,
    shedding: ShedState,
    guard_state: Option<GuardState>,
    plan: Option<PlanSnapshot>,
    bucket_state: BucketState,
    now: Timestamp,
}

impl DecisionFixture {
    fn new() -> Self {
        Self {
            quota: fixtures::quota("api", 1000),
            class: fixtures::class("bot"),
            route: fixtures::route(&[(0, 1)]),
            exemption: None,
            switch: None,
            taken: 0,
            leased: 1000,
            cost: 1,
            client_used: None,
            shedding: ShedState::default(),
            guard_state: None,
            plan: None,
            bucket_state: BucketState::default(),
            now: NOON,
        }
    }

    fn with_tier(mut self, above: u64, percent: u32, enforce: bool) -> Self {
        let tiers = fixtures::class_tiers(self.quota.limit, &[(above, percent)]);
        self.quota.class_tiers = vec![Some(ClassTiers { enforce, ..tiers })];
        self
    }

    /// Adds an enforced pacing plan whose allowance for the class is overdrawn.
    fn with_spent_plan(mut self, earmarked: u64) -> Self {
        self.quota.pacing = Some(fixtures::pacing(&[]));
        let rate = PacingRate {
            share: Share::ALL,
            long_run_share: Share::ALL,
            refill_per_hour: Units::from_whole(1),
            burst: Units::from_whole(1),
        };
        let mut bucket = PacingBucket::full(&rate, self.now);
        bucket.take(Units::from_whole(4));
        let (earmarked, allowance) = (Units::from_whole(earmarked), Some(PacingAllowance { rate, bucket }));
        self.plan = Some(PlanSnapshot { is_ahead: true, earmarked, refresh_limit: Units::ZERO, allowance });
        self
    }

    fn decide_once(&mut self) -> Verdict {
        self.decide_with(&mut ())
    }

    fn request(&self) -> DecisionRequest<'_> {
        DecisionRequest {
            class: ClassId(0),
            class_rules: &self.class,
            route: &self.route,
            has_learned_cost: false,
            exemption: self.exemption,
            switch: self.switch,
            has_copy: false,
            is_refresh: false,
        }
    }

    /// Decides on a request that is charged to no quota.
    fn decide_free(&self) -> Verdict {
        let request = self.request();
        assert!(request.is_free());
        decide(&request, self.bucket_state, &mut [], self.now)
    }

    fn decide_with(&mut self, observer: &mut impl CheckObserver) -> Verdict {
        let request = self.request();
        let mut snapshots = [self.snapshot()];
        let verdict = decide_observed(&request, self.bucket_state, &mut snapshots, self.now, observer);
        self.shedding = snapshots[0].shedding;
        verdict
    }

    fn snapshot(&self) -> QuotaSnapshot<'_> {
        QuotaSnapshot {
            id: QuotaId(0),
            quota: &self.quota,
            cost: Units::from_whole(self.cost),
            taken: Units::from_whole(self.taken),
            limit: self.quota.limit,
            leased: Units::from_whole(self.leased),
            client_used: self.client_used,
            client_resets_at: MIDNIGHT,
            resets_at: MIDNIGHT,
            shedding: self.shedding,
            plan: self.plan,
            guard_state: self.guard_state,
            guard_admitted: false,
        }
    }

    fn refusal_reason(&mut self) -> Option<Reason> {
        self.decide_once().refusal().map(|refusal| refusal.reason)
    }

    fn shadow_reason(&mut self) -> Option<Reason> {
        let verdict = self.decide_once();
        assert_eq!(verdict.refusal(), None);
        verdict.shadow()
    }
}

#[test]
fn observer_receives_the_checks_that_the_decision_reaches() {
    let results = |mut fixture: DecisionFixture| {
        let mut results = Vec::new();
        fixture.decide_with(&mut results);
        results.into_iter().map(|found| (found.check, found.result)).collect::<Vec<_>>()
    };
    let (tier, pacing, remaining) = (Check::Tier(QuotaId(0)), Check::Pacing(QuotaId(0)), Check::Remaining(QuotaId(0)));
    let passed = Ok(Pass::Rule);
    let class_checks = [(Check::Block, passed), (Check::Bucket, passed)];
    let admitted = [&class_checks[..], &[(tier, passed), (pacing, passed), (remaining, passed)]].concat();
    assert_eq!(results(DecisionFixture::new()), admitted);
    let shed = |enforce| DecisionFixture { taken: 1, ..DecisionFixture::new().with_tier(0, 100, enforce) };
    let refused = [(tier, Err(Reason::Tier)), (pacing, Ok(Pass::Skipped)), (remaining, passed)];
    assert_eq!(results(shed(true)), [&class_checks[..], &refused].concat());
    let shadowed = [(tier, Err(Reason::Tier)), (pacing, passed), (remaining, passed)];
    assert_eq!(results(shed(false)), [&class_checks[..], &shadowed].concat());
    let mut blocked = DecisionFixture::new();
    blocked.class.blocked = true;
    assert_eq!(results(blocked), [(Check::Block, Err(Reason::Blocked))]);
}

#[test]
fn client_is_refused_once_its_share_is_used() {
    let with_share = |used: u64, cost: u64| {
        let mut fixture = DecisionFixture { cost, ..DecisionFixture::new() };
        fixture.quota.client_limit = Some(Units::from_whole(20));
        fixture.client_used = Some(Units::from_whole(used));
        fixture
    };
    for (used, cost, reason) in
        [(0, 20, None), (19, 1, None), (20, 1, Some(Reason::ClientShare)), (17, 4, Some(Reason::ClientShare))]
    {
        assert_eq!(with_share(used, cost).refusal_reason(), reason, "{used} used, cost {cost}");
    }
    let wait = MIDNIGHT.saturating_duration_since(NOON);
    let refusal = Refusal { reason: Reason::ClientShare, quotas: RefusedQuotas::from_indexes([0]), wait };
    assert_eq!(with_share(20, 1).decide_once(), Verdict::Refuse(refusal));

    let mut in_shadow = with_share(20, 1);
    in_shadow.quota.enforce = false;
    assert_eq!(in_shadow.shadow_reason(), Some(Reason::ClientShare));
    let mut class_in_shadow = with_share(20, 1);
    class_in_shadow.class.enforce = false;
    assert_eq!(class_in_shadow.shadow_reason(), Some(Reason::ClientShare));
    let mut without_limits = with_share(20, 1);
    without_limits.class.has_client_limits = false;
    assert_eq!((without_limits.refusal_reason(), without_limits.shadow_reason()), (None, None));
}

#[test]
fn client_beyond_its_share_changes_no_tier() {
    let mut fixture = DecisionFixture { taken: 1, ..DecisionFixture::new().with_tier(0, 50, true) };
    fixture.quota.client_limit = Some(Units::from_whole(20));
    fixture.client_used = Some(Units::from_whole(20));
    let before = fixture.shedding;
    let mut results = Vec::new();
    fixture.decide_with(&mut results);
    assert_eq!(fixture.shedding, before);
    assert_eq!(results.last().map(|result| result.check), Some(Check::ClientShare(QuotaId(0))));
}

#[test]
fn class_without_tiers_is_refused_only_at_exhaustion() {
    let mut fixture = DecisionFixture::new();
    assert_eq!(fixture.refusal_reason(), None);
    fixture.taken = 999;
    assert_eq!(fixture.refusal_reason(), None, "the last unit is usable");
    fixture.taken = 1000;
    let wait = MIDNIGHT.saturating_duration_since(NOON);
    assert_eq!(
        fixture.decide_once(),
        Verdict::Refuse(Refusal { reason: Reason::Quota, quotas: RefusedQuotas::from_indexes([0]), wait })
    );
}

#[test]
fn cheap_request_passes_with_one_unit_remaining() {
    let mut fixture = DecisionFixture { taken: 999, ..DecisionFixture::new() };
    assert_eq!(fixture.refusal_reason(), None);
    fixture.cost = 12;
    assert_eq!(fixture.refusal_reason(), Some(Reason::Quota));
}

#[test]
fn only_a_request_that_lacks_a_lease_waits_for_one() {
    let waits =
        |taken, leased| DecisionFixture { taken, leased, ..DecisionFixture::new() }.decide_once().waits_for_lease();
    assert_eq!([waits(499, 500), waits(500, 500), waits(1000, 1000)], [false, true, false]);
}

#[test]
fn exhausted_lease_is_not_an_exhausted_quota() {
    let mut fixture = DecisionFixture { taken: 500, leased: 500, ..DecisionFixture::new() };
    let wait = Duration::from_secs(1);
    assert_eq!(
        fixture.decide_once(),
        Verdict::Refuse(Refusal { reason: Reason::Ledger, quotas: RefusedQuotas::from_indexes([0]), wait })
    );
    fixture.taken = 1000;
    assert_eq!(fixture.refusal_reason(), Some(Reason::Quota), "a used-up quota outranks a missing lease");
    fixture.quota.enforce = false;
    fixture.taken = 500;
    assert_eq!(fixture.shadow_reason(), None, "a quota in shadow mode does not wait for leases");
}

#[test]
fn a_quota_that_only_lacks_a_lease_is_not_blamed_for_what_another_refuses() {
    let spent = DecisionFixture { taken: 1000, ..DecisionFixture::new() };
    let short = DecisionFixture { leased: 0, ..DecisionFixture::new() };
    let soon = NOON + Duration::from_millis(1);
    for (resets_at, spent_at) in [(MIDNIGHT, 0), (MIDNIGHT, 1), (soon, 0), (soon, 1)] {
        let mut snapshots = [short.snapshot(), short.snapshot()];
        snapshots[spent_at] = QuotaSnapshot { resets_at, ..spent.snapshot() };
        let verdict = decide(&spent.request(), BucketState::default(), &mut snapshots, NOON);
        let (quotas, wait) = (RefusedQuotas::from_indexes([spent_at]), resets_at.saturating_duration_since(NOON));
        assert_eq!(verdict, Verdict::Refuse(Refusal { reason: Reason::Quota, quotas, wait }), "quota {spent_at}");
    }
}

#[test]
fn tier_refuses_its_share_with_reason_tier() {
    let mut fixture = DecisionFixture { taken: 600, ..DecisionFixture::new().with_tier(500, 50, true) };
    let reasons: Vec<_> = (0..4).map(|_| fixture.refusal_reason()).collect();
    assert_eq!(reasons, [None, Some(Reason::Tier), None, Some(Reason::Tier)]);
}

#[test]
fn crawler_guard_overrides_tiers_but_not_exhaustion() {
    let guard = CrawlerGuard {
        admit_interval: Duration::from_secs(300),
        max_refused_for: Duration::from_secs(86_400),
        budget: Share::from_millionths(20_000),
    };
    let never_admitted = GuardState {
        guard,
        last_admitted: Timestamp::default(),
        is_overdue: false,
        spent: Units::ZERO,
        window_elapsed: Share::ALL,
    };
    let mut fixture = DecisionFixture {
        taken: 600,
        guard_state: Some(never_admitted),
        ..DecisionFixture::new().with_tier(500, 100, true)
    };
    assert_eq!(fixture.refusal_reason(), None);
    fixture.guard_state = Some(GuardState { last_admitted: NOON, ..never_admitted });
    assert_eq!(fixture.refusal_reason(), Some(Reason::Tier), "admit interval not elapsed");
    fixture.guard_state = Some(never_admitted);
    fixture.taken = 1000;
    assert_eq!(fixture.refusal_reason(), Some(Reason::Quota));
}

#[test]
fn full_shed_waits_for_reset_partial_does_not() {
    let mut full = DecisionFixture { taken: 600, ..DecisionFixture::new().with_tier(500, 100, true) };
    let wait = MIDNIGHT.saturating_duration_since(NOON);
    assert_eq!(
        full.decide_once(),
        Verdict::Refuse(Refusal { reason: Reason::Tier, quotas: RefusedQuotas::from_indexes([0]), wait })
    );
    let mut partial = DecisionFixture { taken: 600, ..DecisionFixture::new().with_tier(500, 50, true) };
    partial.decide_once();
    let wait = Duration::from_secs(120);
    assert_eq!(
        partial.decide_once(),
        Verdict::Refuse(Refusal { reason: Reason::Tier, quotas: RefusedQuotas::from_indexes([0]), wait })
    );
}

#[test]
fn exempt_request_is_refused_only_by_its_bucket_and_by_switches() {
    use Exemption::{AcmeChallenge, CrawlPolicy, Preflight, RobotsTxt, Usage};
    let empty = BucketState { used_tokens: Exemption::BUCKET.capacity, refilled_at: NOON };
    let switch = |effect| Some(Switch { effect, until: None });
    let (block, maintenance) = (switch(SwitchEffect::Block), switch(SwitchEffect::Maintenance));
    let full = BucketState::default();
    for (exemption, bucket_state, switch, refusal) in [
        (Preflight, full, None, None),
        (Preflight, empty, None, Some(Reason::Bucket)),
        (Preflight, empty, switch(SwitchEffect::Allow), None),
        (Preflight, full, block, Some(Reason::Blocked)),
        (Preflight, full, maintenance, Some(Reason::Maintenance)),
        (AcmeChallenge, full, None, None),
        (AcmeChallenge, empty, None, Some(Reason::Bucket)),
        (AcmeChallenge, full, block, Some(Reason::Blocked)),
        (AcmeChallenge, full, maintenance, None),
        (RobotsTxt, empty, block, None),
        (CrawlPolicy, empty, maintenance, None),
        (Usage, empty, block, None),
    ] {
        // The quota and the share of the client are used up, and the class is blocked and has no bucket.
        let used = Some(Units::from_whole(1000));
        let mut fixture =
            DecisionFixture { taken: 1000, client_used: used, bucket_state, switch, ..DecisionFixture::new() };
        fixture.exemption = Some(exemption);
        fixture.class.blocked = true;
        assert_eq!(fixture.decide_free().refusal().map(|refusal| refusal.reason), refusal, "{exemption:?} {switch:?}");
    }
}

#[test]
fn exempt_request_passes_in_a_blocked_class() {
    let mut fixture = DecisionFixture { taken: 1000, exemption: Some(Exemption::RobotsTxt), ..DecisionFixture::new() };
    fixture.class.blocked = true;
    assert_eq!(fixture.refusal_reason(), None);
}

#[test]
fn blocked_class_is_refused_before_counting() {
    let mut fixture = DecisionFixture { taken: 600, ..DecisionFixture::new().with_tier(500, 50, true) };
    fixture.class.blocked = true;
    assert_eq!(fixture.refusal_reason(), Some(Reason::Blocked));
    assert_eq!(fixture.shedding, ShedState::default());
}

#[test]
fn empty_bucket_refuses_before_the_quota_check() {
    let mut fixture = DecisionFixture { taken: 600, ..DecisionFixture::new().with_tier(500, 50, true) };
    fixture.class.bucket =
        Some(Bucket { capacity: 1, fill: 1, interval: Duration::from_secs(10), smooth: false, costed_only: false });
    fixture.bucket_state = BucketState { used_tokens: 1, refilled_at: NOON };
    assert_eq!(
        fixture.decide_once(),
        Verdict::Refuse(Refusal { reason: Reason::Bucket, quotas: RefusedQuotas::NONE, wait: Duration::from_secs(10) })
    );
    assert_eq!(fixture.shedding, ShedState::default());
}

#[test]
fn shadow_rule_reports_the_refusal_it_skipped() {
    let mut fixture = DecisionFixture { taken: 600, ..DecisionFixture::new().with_tier(500, 100, false) };
    assert_eq!(fixture.shadow_reason(), Some(Reason::Tier));
    fixture.quota.enforce = false;
    fixture.taken = 1000;
    fixture.quota.class_tiers = Vec::new();
    assert_eq!(fixture.shadow_reason(), Some(Reason::Quota));
    let mut shadow_class = DecisionFixture { taken: 600, ..DecisionFixture::new().with_tier(500, 100, true) };
    shadow_class.class.enforce = false;
    assert_eq!(shadow_class.shadow_reason(), Some(Reason::Tier));
}

#[test]
fn shadow_class_cannot_overspend() {
    let mut fixture = DecisionFixture { taken: 1000, ..DecisionFixture::new().with_tier(500, 100, true) };
    fixture.class.enforce = false;
    assert_eq!(fixture.refusal_reason(), Some(Reason::Quota));
}

#[test]
fn request_takes_no_token_only_if_it_is_free_and_the_bucket_counts_costed_requests() {
    let (costly, free) = (fixtures::route(&[(0, 1)]), fixtures::route(&[]));
    for (route, has_learned_cost, is_exempt, is_free) in [
        (&costly, false, false, false),
        (&costly, false, true, true),
        (&free, false, false, true),
        (&free, true, false, false),
        (&free, true, true, true),
    ] {
        for costed_only in [false, true] {
            let interval = Duration::from_secs(1);
            let bucket = Some(Bucket { capacity: 1, fill: 1, interval, smooth: false, costed_only });
            let class = Class { bucket, ..fixtures::class("bot") };
            let request = DecisionRequest {
                class: ClassId(0),
                class_rules: &class,
                route,
                has_learned_cost,
                exemption: is_exempt.then_some(Exemption::RobotsTxt),
                switch: None,
                has_copy: false,
                is_refresh: false,
            };
            assert_eq!((request.is_free(), request.bucket().is_none()), (is_free, is_free && costed_only));
        }
    }
}

#[test]
fn shadow_class_reports_its_empty_bucket_and_its_plan() {
    let interval = Duration::from_secs(10);
    let mut fixture = DecisionFixture::new();
    fixture.class.enforce = false;
    fixture.class.bucket = Some(Bucket { capacity: 1, fill: 1, interval, smooth: false, costed_only: false });
    fixture.bucket_state = BucketState { used_tokens: 1, refilled_at: NOON };
    assert_eq!(fixture.shadow_reason(), Some(Reason::Bucket));
    let mut ahead_of_plan = DecisionFixture::new().with_spent_plan(0);
    ahead_of_plan.class.enforce = false;
    assert_eq!(ahead_of_plan.shadow_reason(), Some(Reason::Pacing));
}

#[test]
fn refusal_with_the_longest_wait_decides_and_the_first_of_equal_waits() {
    let shed = |percent, taken, leased| {
        let mut fixture = DecisionFixture { taken, leased, ..DecisionFixture::new().with_tier(0, percent, true) };
        fixture.shedding.carry = 999_999;
        fixture.refusal_reason()
    };
    assert_eq!(shed(50, 1000, 1000), Some(Reason::Quota), "the reset is later than a retry in the tier");
    assert_eq!(shed(50, 500, 500), Some(Reason::Tier), "a lease takes a second");
    assert_eq!(shed(100, 1000, 1000), Some(Reason::Tier), "both wait for the reset");
}

#[test]
fn tier_state_holds_the_entered_tier() {
    let mut fixture = DecisionFixture { taken: 600, ..DecisionFixture::new().with_tier(500, 50, true) };
    fixture.decide_once();
    assert_eq!(fixture.shedding, ShedState { tier: 1, carry: 500_000 });
    fixture.taken = 0;
    fixture.decide_once();
    assert_eq!(fixture.shedding.tier, 0);
}

#[test]
fn crawler_guard_admits_beyond_the_plan_only_units_that_are_not_earmarked() {
    let guard = CrawlerGuard {
        admit_interval: Duration::from_secs(300),
        max_refused_for: Duration::from_secs(86_400),
        budget: Share::from_millionths(20_000),
    };
    for (earmarked, last_admitted, reason) in [
        (399, Timestamp::default(), None),
        (400, Timestamp::default(), Some(Reason::Pacing)),
        (401, Timestamp::default(), Some(Reason::Pacing)),
        (399, NOON, Some(Reason::Pacing)),
    ] {
        let (spent, window_elapsed) = (Units::ZERO, Share::ALL);
        let guard_state = Some(GuardState { guard, last_admitted, is_overdue: false, spent, window_elapsed });
        let fixture = DecisionFixture { taken: 600, guard_state, ..DecisionFixture::new() };
        assert_eq!(fixture.with_spent_plan(earmarked).refusal_reason(), reason, "{earmarked} {last_admitted:?}");
    }
}

#[test]
fn retry_after_is_at_least_one_second_and_spread_upwards() {
    let retry_after = |ms, spread| {
        let wait = Duration::from_millis(ms);
        let refusal = Refusal { reason: Reason::Tier, quotas: RefusedQuotas::NONE, wait };
        refusal.retry_after(&fixtures::class("bot"), spread)
    };
    assert_eq!(
        [(0, 0.0), (1000, 0.0), (1001, 0.0), (2000, 0.5)].map(|(ms, spread)| retry_after(ms, spread)),
        [1, 1, 2, 3].map(Some)
    );
}

#[test]
fn only_the_block_of_a_class_has_its_status() {
    let class = Class { refuse_with: StatusCode::UNAUTHORIZED, ..fixtures::class("nokey") };
    let answer = |class: &Class, reason| {
        let refusal = Refusal { reason, quotas: RefusedQuotas::NONE, wait: Duration::from_secs(60) };
        (refusal.status(class).as_u16(), refusal.retry_after(class, 0.0))
    };
    let blocked = Class { blocked: true, ..class.clone() };
    assert_eq!(answer(&blocked, Reason::Blocked), (401, None));
    for reason in Reason::ALL.into_iter().filter(|reason| *reason != Reason::Blocked) {
        assert_eq!(answer(&blocked, reason), (reason.status().as_u16(), Some(60)), "{reason:?}");
    }
    assert_eq!(answer(&class, Reason::Blocked), (429, Some(60)), "an administrator blocks the client");
    let in_shadow_mode = Class { enforce: false, ..blocked };
    assert_eq!(answer(&in_shadow_mode, Reason::Blocked), (429, Some(60)), "an administrator blocks the client");
}

proptest! {
    #[test]
    fn enforced_quota_never_admits_beyond_the_lease(
        taken in 0u64..1100, cost in 0u64..50, above in 0u64..1000, percent in 0u32..=100, carry in 0u32..1_000_000,
        granted in 0u64..=1000, class_enforces: bool, tier_enforces: bool,
    ) {
        let mut fixture = DecisionFixture { taken, leased: granted, cost, ..DecisionFixture::new().with_tier(above, percent, tier_enforces) };
        fixture.class.enforce = class_enforces;
        fixture.shedding.carry = carry;
        if let Verdict::Admit { .. } = fixture.decide_once() {
            prop_assert!(taken + cost <= granted);
        }
    }

    #[test]
    fn retry_after_is_exact(
        capacity in 1u32..50, fill in 1u32..50, interval_ms in 1u64..100_000, smooth: bool,
        pauses in proptest::collection::vec(0u64..20_000, 1..100),
    ) {
        let interval = Duration::from_millis(interval_ms);
        let mut fixture = DecisionFixture::new();
        fixture.class.bucket = Some(Bucket { capacity, fill, interval, smooth, costed_only: false });
        for pause in pauses {
            fixture.now += Duration::from_millis(pause);
            if let Verdict::Refuse(refusal) = fixture.decide_once() {
                prop_assert_eq!(refusal.reason, Reason::Bucket);
                let retry_at = fixture.now + refusal.wait;
                fixture.now = Timestamp(retry_at.0 - 1);
                prop_assert_eq!(fixture.refusal_reason(), Some(Reason::Bucket));
                // `Retry-After` has whole seconds: a retry after the rounded wait is admitted as well.
                fixture.now = retry_at + Duration::from_secs(ceil_seconds(refusal.wait)) - refusal.wait;
                prop_assert_eq!(fixture.refusal_reason(), None);
                fixture.now = retry_at;
            }
            match fixture.decide_once() {
                Verdict::Admit { bucket_state: level, .. } => fixture.bucket_state = level,
                Verdict::Refuse(refusal) => prop_assert!(false, "refused after the full wait: {refusal:?}"),
            }
        }
    }
}

#[test]
fn switch_blocks_also_in_shadow_mode_until_it_ends() {
    let mut fixture = DecisionFixture::new();
    fixture.class.enforce = false;
    let until = NOON + Duration::from_secs(90);
    for (effect, until, reason, wait) in [
        (SwitchEffect::Block, Some(until), Reason::Blocked, 90),
        (SwitchEffect::Block, None, Reason::Blocked, 3600),
        (SwitchEffect::Maintenance, Some(until), Reason::Maintenance, 90),
        (SwitchEffect::Maintenance, None, Reason::Maintenance, 600),
    ] {
        fixture.switch = Some(Switch { effect, until });
        let refusal = Refusal { reason, quotas: RefusedQuotas::NONE, wait: Duration::from_secs(wait) };
        assert_eq!(fixture.decide_once(), Verdict::Refuse(refusal), "{effect:?}");
        fixture.exemption = Some(Exemption::RobotsTxt);
        assert_eq!(fixture.refusal_reason(), None, "robots.txt");
        fixture.exemption = None;
    }
}

#[test]
fn allowed_client_passes_every_rule_except_the_limit() {
    let interval = Duration::from_secs(10);
    let mut fixture =
        DecisionFixture { taken: 999, ..DecisionFixture::new().with_tier(0, 100, true).with_spent_plan(0) };
    fixture.class.blocked = true;
    fixture.class.bucket = Some(Bucket { capacity: 1, fill: 1, interval, smooth: false, costed_only: false });
    fixture.bucket_state = BucketState { used_tokens: 1, refilled_at: NOON };
    fixture.quota.client_limit = Some(Units::from_whole(1));
    fixture.client_used = Some(Units::from_whole(1));
    let (bucket_state, shedding) = (fixture.bucket_state, fixture.shedding);
    assert_eq!(fixture.refusal_reason(), Some(Reason::Blocked));
    fixture.switch = Some(Switch { effect: SwitchEffect::Allow, until: Some(NOON + interval) });
    assert_eq!(fixture.decide_once(), Verdict::Admit { bucket_state, shadow: None });
    assert_eq!(fixture.shedding, shedding, "the tier does not count it");
    fixture.taken = 1000;
    assert_eq!(fixture.refusal_reason(), Some(Reason::Quota));
    (fixture.taken, fixture.leased) = (998, 998);
    assert_eq!(fixture.refusal_reason(), Some(Reason::Ledger));
}
