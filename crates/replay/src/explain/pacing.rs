//! Step of the pacing plan of a quota.

use super::assessment::Assessment;
use super::input::{ExplainInput, History};
use super::step::{Stage, Step, StepResult};
use crate::terminal::decimal;
use tidegate_engine::{ClassPlan, PlanView};
use tidegate_policy::Reason;
use tidegate_policy::decide::{Check, CheckResult, DecisionRequest, Pass, QuotaSnapshot};
use tidegate_policy::pacing::bucket::PacingAllowance;
use tidegate_policy::pacing::{Pacing, PacingRole};
use tidegate_policy::tier::Share;

/// Returns the step of a quota's pacing plan; `None` without pacing.
pub(super) fn step(
    input: &ExplainInput<'_>,
    request: &DecisionRequest<'_>,
    snapshot: &QuotaSnapshot<'_>,
    assessment: &Assessment<'_>,
) -> Option<Step> {
    let (quota, pacing) = (snapshot.quota, snapshot.quota.pacing.as_ref()?);
    let class = &request.class_rules.name;
    let (result, message) = match pacing.role(request.class) {
        PacingRole::Unpaced => (StepResult::Passed, format!("{class} is unpaced")),
        PacingRole::Excluded => {
            (StepResult::Passed, format!("no units planned for {class}: a tier refuses it from the first unit"))
        }
        PacingRole::Paced(_) => plan_result(input, request, snapshot, assessment),
    };
    let step = Step::new(Stage::Pacing, result, message)
        .with_quota(&quota.name)
        .with_rule(input.environment.rule(&input.environment.quota_path(snapshot.id).pacing()))
        .with_number("mode", pacing.forecast.name())
        .with_number("burst", pacing.burst_share.of_units(quota.limit).as_f64());
    Some(match input.plan(&quota.name, class) {
        Some(plan) => with_plan(step, input, pacing, plan, snapshot.plan.and_then(|plan| plan.allowance)),
        None => step,
    })
}

/// Returns the result of a plan for a request of a paced class, and its message.
fn plan_result(
    input: &ExplainInput<'_>,
    request: &DecisionRequest<'_>,
    snapshot: &QuotaSnapshot<'_>,
    assessment: &Assessment<'_>,
) -> (StepResult, String) {
    let class = &request.class_rules.name;
    let check = Check::Pacing(snapshot.id);
    let skipped = || (StepResult::Skipped, "not evaluated after the refusal".to_owned());
    if let Some(decision) = input.logged_decision().filter(|_| input.replayed.is_none() && !assessment.differs_from_log)
    {
        return match decision.reason {
            Some(Reason::Pacing) => (StepResult::Refused, format!("the units that the plan had for {class} were used")),
            Some(Reason::Tier) => skipped(),
            _ => {
                (StepResult::Passed, format!("{class} was within its plan, or the crawler guard admitted the request"))
            }
        };
    }
    let is_skipped = |found: &CheckResult| found.result == Ok(Pass::Skipped);
    let Some(CheckResult { result, enforced, .. }) = assessment.results(check).find(|found| !is_skipped(found)) else {
        return skipped();
    };
    if input.replayed.is_none() {
        let source = "only a running gateway or a replay of a log (--log) has the units of its plan";
        let result = if enforced { StepResult::Depends } else { StepResult::Unknown };
        return (result, format!("{class} is paced: {source}"));
    }
    match result {
        Ok(Pass::Guard) => (
            StepResult::Passed,
            format!("the units that the plan has for {class} are used, but the crawler guard admits the request"),
        ),
        Ok(_) => (StepResult::Passed, format!("{class} is within its plan")),
        Err(_) if is_share_refusal(input, request, check) => (
            StepResult::refused(enforced),
            format!("the plan admits a share of {class}, and this request is not part of it"),
        ),
        Err(_) => {
            let available = snapshot.plan.and_then(|plan| plan.allowance).map(|allowance| allowance.bucket.balance());
            let (requested, available) = (decimal(snapshot.cost), decimal(available.unwrap_or_default()));
            let message = format!(
                "the units that the plan has for {class} are used: {requested} requested, {available} available"
            );
            (StepResult::refused(enforced), message)
        }
    }
}

/// Returns true if the plan refuses the request only because of its position in the admit share.
fn is_share_refusal(input: &ExplainInput<'_>, request: &DecisionRequest<'_>, check: Check) -> bool {
    let mut checks = Vec::new();
    input.at_next_admit().decide(request.class, History::BestCase, &mut checks);
    checks.iter().any(|found| found.check == check && found.result.is_ok())
}

/// Adds the plan to the step: the one that a replay found, or the current one of a running gateway. The plan at the
/// time of a logged decision is not stored.
fn with_plan(
    step: Step,
    input: &ExplainInput<'_>,
    pacing: &Pacing,
    (plan, class_plan): (&PlanView, Option<&ClassPlan>),
    allowance: Option<PacingAllowance>,
) -> Step {
    let (planned, earmarked) = (decimal(plan.planned), decimal(plan.earmarked));
    let mut evidence = vec![match input.replayed {
        Some(_) => format!("the plan would have used {planned} units of the window by then"),
        None => format!("the current plan would have used {planned} units of the window by now"),
    }];
    evidence.push(format!("{earmarked} are earmarked for unpaced classes"));
    let mut step = step.with_number("planned", plan.planned.as_f64()).with_number("earmarked", plan.earmarked.as_f64());
    let current = class_plan
        .and_then(|class_plan| Some((class_plan.admit_share?, class_plan.tokens?, class_plan.refill_per_hour?)));
    // Without a replay, the allowance is only an assumption about the history.
    let replayed = allowance.filter(|_| input.replayed.is_some()).map(|allowance| {
        let tokens = allowance.bucket.refilled(&allowance.rate, input.now);
        (allowance.rate.share, tokens.balance(), allowance.rate.refill_per_hour)
    });
    if let Some((share, tokens, per_hour)) = replayed.or(current) {
        let tokens_text =
            format!("its pacing bucket holds {} and gains {} an hour", decimal(tokens), decimal(per_hour));
        evidence.push(match share {
            Share::ALL => format!("requests of the class are admitted while tokens last: {tokens_text}"),
            share => format!("{share} of the requests of its class are admitted; {tokens_text}"),
        });
        step = step
            .with_number("admit_share", share.ratio())
            .with_number("tokens", tokens.as_f64())
            .with_number("refill_per_hour", per_hour.as_f64());
    }
    if !pacing.enforce {
        evidence.push("not enforced (enforce: false)".to_owned());
    }
    step.with_evidence(evidence)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{CLIENT, CURL, NOON, PolicyFixture, step};
    use super::super::input::ReplayedState;
    use super::*;
    use serde_json::json;
    use tidegate_policy::Units;
    use tidegate_policy::pacing::PlanSnapshot;
    use tidegate_policy::pacing::bucket::{PacingBucket, PacingRate};

    const PACED: &str = r#"
quotas:
  api:
    limit: 100
    window: { calendar: day, zone: UTC }
    pacing: { mode: even, burst: 5%, weights: { bot: 1 } }
    tiers: { bot: [ { above: 20%, shed: 50% } ] }
classes: [ { name: bot, when: { kind: declared_bot } } ]
routes: [ { match: "/item/*", cost: { api: 1 } } ]
"#;

    #[test]
    fn logged_tier_refusal_shows_the_current_plan() {
        let policy = PolicyFixture::new(PACED);
        let refused = json!({"verdict": "refused", "reason": "tier", "tier": 1, "used": {"api": 61}, "status": 429});
        let quotas = policy.quotas();
        let pacing = step(&policy.logged(&refused).with_quotas(&quotas), Stage::Pacing);
        assert_eq!(pacing.finding, StepResult::Skipped);
        assert_eq!((&pacing.numbers["admit_share"], &pacing.numbers["tokens"]), (&json!(1.0), &json!(4.0)));
        let current = "requests of the class are admitted while tokens last: its pacing bucket holds 4 and gains";
        assert!(pacing.evidence.iter().any(|entry| entry.starts_with(current)), "{pacing:?}");
    }

    #[test]
    fn hypothetical_request_depends_on_the_plan() {
        let policy = PolicyFixture::new(PACED);
        let pacing = step(&policy.request(CURL, CLIENT, "/item/1", 10), Stage::Pacing);
        assert_eq!(pacing.finding, StepResult::Depends);
        let unenforced = PolicyFixture::new(&PACED.replace("mode: even,", "mode: even, enforce: false,"));
        let pacing = step(&unenforced.request(CURL, CLIENT, "/item/1", 10), Stage::Pacing);
        assert_eq!(pacing.finding, StepResult::Unknown);
    }

    #[test]
    fn unpaced_class_passes() {
        let policy = PolicyFixture::new(PACED);
        let pacing = step(&policy.request("", CLIENT, "/item/1", 10), Stage::Pacing);
        assert_eq!(pacing.finding, StepResult::Passed);
        assert!(pacing.message.ends_with(" is unpaced"), "{pacing:?}");
    }

    #[test]
    fn replayed_plan_refuses_a_position_or_an_empty_bucket() {
        let policy = PolicyFixture::new(PACED);
        let one = Units::from_whole(1);
        let half = Share::from_millionths(500_000);
        let rate = |share| PacingRate { share, long_run_share: share, burst: one, ..PacingRate::default() };
        let full = |share| PacingBucket::full(&rate(share), NOON);
        let outcome = |share, bucket| {
            let pacing = step(&replayed(&policy, PacingAllowance { rate: rate(share), bucket }), Stage::Pacing);
            (pacing.finding, pacing.message)
        };
        let passed = (StepResult::Passed, "bot is within its plan".to_owned());
        assert_eq!(outcome(half, full(half)), passed);
        let message = "the plan admits a share of bot, and this request is not part of it".to_owned();
        let (second, _) = full(half).try_take(&rate(half), one, 0, NOON);
        assert_eq!(outcome(half, second), (StepResult::Refused, message));
        let mut empty = full(Share::ALL);
        empty.take(one);
        let message = "the units that the plan has for bot are used: 1 requested, 0 available".to_owned();
        assert_eq!(outcome(Share::ALL, empty), (StepResult::Refused, message));
    }

    /// Returns the input of a request that a replay reaches with this allowance of its class.
    fn replayed(policy: &PolicyFixture, allowance: PacingAllowance) -> ExplainInput<'_> {
        let mut input = policy.request(CURL, CLIENT, "/item/1", 10);
        let plan = PlanSnapshot {
            is_ahead: false,
            earmarked: Units::ZERO,
            refresh_limit: Units::ZERO,
            allowance: Some(allowance),
        };
        input.quota_snapshots.iter_mut().for_each(|snapshot| snapshot.plan = Some(plan));
        let by_class = vec![input.quota_snapshots.clone(); input.environment.rules().classes.len()];
        input.replayed = Some(ReplayedState { class: input.classification().class, by_class });
        input
    }
}
