//! Step of the pacing plan of a quota.

use super::admission::{amount, percent, refused_result};
use super::assessment::Assessment;
use super::input::ExplainInput;
use super::step::{Stage, Step, StepResult};
use crate::engine::{ClassPlan, PlanView};
use crate::policy::Reason;
use crate::policy::decide::{self, DecisionRequest, QuotaSnapshot};
use crate::policy::pacing::bucket::PacingAllowance;
use crate::policy::pacing::{Pacing, Role};
use crate::policy::tier::Share;

/// Returns the step of a quota's pacing plan; `None` without pacing. `may_be` lists its possible usages.
pub(super) fn step(
    case: &ExplainInput<'_>,
    asked: &DecisionRequest<'_>,
    may_be: Vec<QuotaSnapshot<'_>>,
    outcome: &Assessment<'_>,
) -> Option<Step> {
    let position = *may_be.first()?;
    let (quota, pacing) = (position.quota, position.quota.pacing.as_ref()?);
    let class = &asked.class_rules.name;
    let (finding, says) = match pacing.role(asked.class) {
        Role::Unpaced => (StepResult::Passed, format!("{class} is unpaced")),
        Role::Excluded => {
            (StepResult::Passed, format!("no units planned for {class}: a tier refuses it from the first unit"))
        }
        Role::Paced(_) => plan_result(case, asked, may_be, outcome),
    };
    let step = Step::new(Stage::Pacing, finding, says)
        .of_quota(&quota.name)
        .by(case.known.quota_rule(position.id, ".pacing"))
        .with("mode", pacing.forecast.name())
        .with("burst", pacing.burst_share.of_units(quota.limit).as_f64());
    Some(match case.plan(&quota.name, class) {
        Some(plan) => with_plan(step, case, pacing, plan, position.planned.and_then(|planned| planned.allowance)),
        None => step,
    })
}

/// Returns the result of a plan for a request of a paced class, and its message.
fn plan_result(
    case: &ExplainInput<'_>,
    asked: &DecisionRequest<'_>,
    mut may_be: Vec<QuotaSnapshot<'_>>,
    outcome: &Assessment<'_>,
) -> (StepResult, String) {
    let class = &asked.class_rules.name;
    let not_asked = || (StepResult::Skipped, "not evaluated after the refusal".to_owned());
    if let Some(decided) = case.decided().filter(|_| case.found.is_none() && !outcome.differs_from_log) {
        return match decided.reason {
            Some(Reason::Pacing) => (StepResult::Refused, format!("{class} was ahead of its plan")),
            Some(Reason::Tier) => not_asked(),
            _ => {
                (StepResult::Passed, format!("{class} was within its plan, or the crawler guard admitted the request"))
            }
        };
    }
    let by_tier = |position: &mut QuotaSnapshot<'_>| {
        decide::check_tier(asked.class, position, case.now).is_err() && asked.enforces_tiers(position.quota)
    };
    if may_be.iter_mut().all(by_tier) {
        return not_asked();
    }
    let Some(position) = may_be.first_mut() else { return not_asked() };
    let enforced = asked.class_rules.enforce && position.quota.enforced_pacing().is_some();
    if case.found.is_none() {
        let who_knows = "only a running gateway or a replay of a log (--log) has the units of its plan";
        let finding = if enforced { StepResult::Depends } else { StepResult::Unknown };
        return (finding, format!("{class} is paced: {who_knows}"));
    }
    let before = QuotaSnapshot { guard_admitted: false, ..*position };
    *position = before;
    match decide::check_pacing(position, case.now) {
        Ok(()) if position.guard_admitted => {
            (StepResult::Passed, format!("{class} is ahead of its plan, but the crawler guard admits the request"))
        }
        Ok(()) => (StepResult::Passed, format!("{class} is within its plan")),
        Err(_) if is_share_refusal(before, case) => (
            refused_result(enforced),
            format!("the plan admits a share of {class}, and this request is not part of it"),
        ),
        Err(_) => {
            let holds = position.planned.and_then(|planned| planned.allowance).map(|of| of.bucket.balance());
            let holds = amount(holds.unwrap_or_default());
            (
                refused_result(enforced),
                format!("{class} is ahead of its plan: {} requested, {holds} available", amount(before.cost)),
            )
        }
    }
}

/// Returns true if the plan refuses the request only because of its position in the admit share.
fn is_share_refusal(position: QuotaSnapshot<'_>, case: &ExplainInput<'_>) -> bool {
    decide::check_pacing(&mut at_next_admit(position), case.now).is_ok()
}

/// Returns `position` with a state in which the admit share admits the next request of the class.
pub(super) fn at_next_admit(mut position: QuotaSnapshot<'_>) -> QuotaSnapshot<'_> {
    position.shedding.carry = 0;
    if let Some(allotment) = position.planned.as_mut().and_then(|planned| planned.allowance.as_mut()) {
        allotment.bucket = allotment.bucket.assuming_turn();
    }
    position
}

/// Adds the plan to the step: the one that a replay found, or the current one of a running gateway. The plan at the
/// time of a logged decision is not stored.
fn with_plan(
    step: Step,
    case: &ExplainInput<'_>,
    pacing: &Pacing,
    (plan, of_class): (&PlanView, Option<&ClassPlan>),
    found: Option<PacingAllowance>,
) -> Step {
    let (line, aside) = (amount(plan.planned), amount(plan.earmarked));
    let mut evidence = vec![match case.found {
        Some(_) => format!("the plan would have used {line} units of the window by then"),
        None => format!("the current plan would have used {line} units of the window by now"),
    }];
    evidence.push(format!("{aside} are earmarked for unpaced classes"));
    let mut step = step.with("planned", plan.planned.as_f64()).with("aside", plan.earmarked.as_f64());
    let now = of_class.and_then(|of_class| Some((of_class.admit_share?, of_class.tokens?, of_class.refill_per_hour?)));
    let offered = found.map(|found| {
        let purse = found.bucket.refilled(&found.rate, case.now);
        (found.rate.share, purse.balance(), found.rate.refill_per_hour)
    });
    if let Some((share, purse, per_hour)) = offered.or(now) {
        let of_purse = format!("its pacing bucket holds {} and gains {} an hour", amount(purse), amount(per_hour));
        evidence.push(match share {
            Share::ALL => format!("requests of the class are admitted while tokens last: {of_purse}"),
            share => format!("{}% of the requests of its class are admitted; {of_purse}", percent(share)),
        });
        step = step.with("share", share.ratio()).with("purse", purse.as_f64()).with("per_hour", per_hour.as_f64());
    }
    if !pacing.enforce {
        evidence.push("not enforced (enforce: false)".to_owned());
    }
    step.because(evidence)
}
