//! Quotas with pacing.

use super::*;
use std::num::NonZeroU32;
use tidegate_policy::pacing::{Pacing, PacingMode, PacingRole};

const MORNING: Timestamp = Timestamp::from_seconds(3600);

fn paced_quota(limit: u64, enforce: bool) -> Quota {
    let roles = vec![PacingRole::Unpaced, PacingRole::Paced(NonZeroU32::MIN), PacingRole::Unpaced];
    let (burst, priorities) = (Share::from_millionths(50_000), Vec::new());
    let pacing = Pacing { forecast: PacingMode::Even, burst_share: burst, roles, priorities, enforce };
    Quota { pacing: Some(pacing), ..quota("api", limit, &[(limit / 2, 100)]) }
}

fn paced_admission(limit: u64, enforce: bool) -> Admission {
    Engine::new(LeaseMode::Local, 1000)
        .admission(rules(vec![paced_quota(limit, enforce)], vec![route(&[(0, 1)])]), MORNING)
}

/// Returns the number of bot requests, of `count`, that are admitted in the hour from `start`.
fn admitted_in_hour(admission: &Admission, start: Timestamp, count: u64) -> u64 {
    let at = |number: u64| start + Duration::from_secs(3600) * number as u32 / count as u32;
    let serve = |number: &u64| match try_admit(admission, BOT, 0, at(*number)) {
        Ok(permit) => {
            permit.settle(|_, expected| expected);
            true
        }
        Err(reason) => {
            assert!(matches!(reason, Reason::Pacing | Reason::Tier | Reason::Quota), "{reason:?}");
            false
        }
    };
    (0..count).filter(serve).count() as u64
}

#[test]
fn paced_quota_lasts_until_the_window_ends() {
    let admission = paced_admission(2300, true);
    let by_hour: Vec<u64> =
        (1..24).map(|hour| admitted_in_hour(&admission, Timestamp::from_seconds(hour * 3600), 400)).collect();
    assert!(by_hour.iter().skip(1).all(|hour| (80..=110).contains(hour)), "{by_hour:?}");
    let used = admission.quotas(TOMORROW - Duration::from_secs(1))[0].used.floor();
    assert!((2270..=2300).contains(&used), "tiers withhold no units of a paced quota: {used}");
}

#[test]
fn shadow_plan_refuses_nothing_and_tiers_still_apply() {
    let admission = paced_admission(1000, false);
    assert_eq!(
        admitted_in_hour(&admission, MORNING, 1000),
        500,
        "the tier refuses all requests from half of the limit"
    );
    assert_eq!(try_admit(&admission, BOT, 0, NOON).err(), Some(Reason::Tier));
}

#[test]
fn unpaced_class_can_use_the_whole_quota() {
    let admission = paced_admission(100, true);
    for _ in 0..100 {
        try_admit(&admission, PERSON, 0, MORNING).expect("units are left").settle(|_, expected| expected);
    }
    assert_eq!(try_admit(&admission, PERSON, 0, MORNING).err(), Some(Reason::Quota));
}

#[test]
fn learned_demand_survives_reload_and_restart() {
    let site = |engine: &Arc<Engine>, now| {
        engine.admission(rules(vec![paced_quota(10_000, true)], vec![route(&[(0, 1)])]), now)
    };
    let engine = Engine::new(LeaseMode::Local, 1000);
    let before = site(&engine, MORNING);
    for hour in 1..5 {
        admitted_in_hour(&before, Timestamp::from_seconds(hour * 3600), 50);
    }
    let after = site(&engine, NOON);
    admitted_in_hour(&after, NOON, 50);
    let learned = engine.learned_demand();
    let bot = learned.iter().find(|learned| learned.class == "bot").expect("the class sent requests");
    // 1 January 1970 was a Thursday.
    let hours: Vec<u64> = bot.week[3 * 24 + 1..3 * 24 + 5].iter().map(|hour| hour.units.round() as u64).collect();
    assert_eq!(hours, [50; 4]);

    let next = Engine::new(LeaseMode::Local, 1000);
    let _admission = site(&next, TOMORROW);
    next.restore_demand(&learned);
    assert_eq!(next.learned_demand(), learned);
}

#[test]
fn reload_without_changes_keeps_the_plan() {
    let engine = Engine::new(LeaseMode::Local, 1000);
    let at = |second| MORNING + Duration::from_secs(second);
    let planned = |limit: u64, second| {
        let quota = paced_quota(limit, true);
        let admission = engine.admission(rules(vec![quota], vec![route(&[(0, 1)])]), at(second));
        let _ = try_admit(&admission, BOT, 0, at(second));
        admission.plan(QuotaId(0), at(second)).expect("the quota is paced").planned
    };
    let first = planned(2400, 0);
    assert_eq!(planned(2400, 5), first, "a plan lasts ten seconds");
    assert!(planned(4800, 6) > first, "a new limit is planned for at once");
}

#[test]
fn request_without_lease_does_not_trigger_planning() {
    let engine = Engine::new(LeaseMode::Leased(Arc::new(|| ())), 1000);
    let admission = engine.admission(rules(vec![paced_quota(2400, true)], vec![route(&[(0, 1)])]), MORNING);
    let is_planned = || admission.plan(QuotaId(0), MORNING).is_some();
    assert_eq!((try_admit(&admission, PERSON, 0, MORNING).err(), is_planned()), (Some(Reason::Ledger), false));
    grant_all(&engine, MORNING);
    assert_eq!((try_admit(&admission, PERSON, 0, MORNING).err(), is_planned()), (None, true));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn paced_usage_never_exceeds_the_limit(
        limit in 1u64..200, steps in proptest::collection::vec((0u64..7200, any::<bool>(), any::<bool>()), 1..300),
    ) {
        let admission = paced_admission(limit, true);
        let mut now = MORNING;
        for (step, back, person) in steps {
            now = if back && step < 600 { now - Duration::from_secs(step) } else { now + Duration::from_secs(step) };
            if let Ok(permit) = try_admit(&admission, if person { PERSON } else { BOT }, 0, now) {
                permit.settle(|_, expected| expected);
            }
            let view = &admission.quotas(now)[0];
            prop_assert!(view.used.saturating_add(view.reserved) <= view.limit);
        }
    }
}
