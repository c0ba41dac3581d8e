//! Whether the request's class is within what the plan of a quota has for it.

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

/// What the plan of a quota says; nothing, where it has none. `may_be` is where the quota may stand.
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
        Role::Unpaced => (StepResult::Passed, format!("{class} is served first: others are paced")),
        Role::Excluded => (StepResult::Passed, format!("plans nothing for {class}, which a tier shuts out")),
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

/// What a plan says to a request of a class that it paces.
fn plan_result(
    case: &ExplainInput<'_>,
    asked: &DecisionRequest<'_>,
    mut may_be: Vec<QuotaSnapshot<'_>>,
    outcome: &Assessment<'_>,
) -> (StepResult, String) {
    let class = &asked.class_rules.name;
    let not_asked = || (StepResult::Skipped, "not asked any more".to_owned());
    if let Some(decided) = case.decided().filter(|_| case.found.is_none() && !outcome.differs_from_log) {
        return match decided.reason {
            Some(Reason::Pacing) => (StepResult::Refused, format!("{class} was ahead of its plan")),
            Some(Reason::Tier) => not_asked(),
            _ => (StepResult::Passed, format!("{class} was within its plan, or the guard let it through")),
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
        let who_knows = "what its plan has for the class, only a running gate knows, or a replay of a log (--log)";
        let finding = if enforced { StepResult::Depends } else { StepResult::Unknown };
        return (finding, format!("{class} is paced: {who_knows}"));
    }
    let before = QuotaSnapshot { guard_admitted: false, ..*position };
    *position = before;
    match decide::check_pacing(position, case.now) {
        Ok(()) if position.guard_admitted => {
            (StepResult::Passed, format!("{class} is ahead of its plan, and the crawler guard lets it through"))
        }
        Ok(()) => (StepResult::Passed, format!("{class} is within its plan")),
        Err(_) if is_share_refusal(before, case) => {
            (refused_result(enforced), format!("the plan serves a share of {class}, and this one is not part of it"))
        }
        Err(_) => {
            let holds = position.planned.and_then(|planned| planned.allowance).map(|of| of.bucket.balance());
            let holds = amount(holds.unwrap_or_default());
            (
                refused_result(enforced),
                format!("{class} is ahead of its plan: {} asked for, {holds} to be had", amount(before.cost)),
            )
        }
    }
}

/// Whether the plan would let a request pass, were it its turn.
fn is_share_refusal(position: QuotaSnapshot<'_>, case: &ExplainInput<'_>) -> bool {
    decide::check_pacing(&mut at_next_admit(position), case.now).is_ok()
}

/// The same, with the next request of its class to be let through.
pub(super) fn at_next_admit(mut position: QuotaSnapshot<'_>) -> QuotaSnapshot<'_> {
    position.shedding.carry = 0;
    if let Some(allotment) = position.planned.as_mut().and_then(|planned| planned.allowance.as_mut()) {
        allotment.bucket = allotment.bucket.assuming_turn();
    }
    position
}

/// The plan as a replay finds it, or that of a running gate at this moment: what it was when a decision was made there nobody
/// has written down.
fn with_plan(
    step: Step,
    case: &ExplainInput<'_>,
    pacing: &Pacing,
    (plan, of_class): (&PlanView, Option<&ClassPlan>),
    found: Option<PacingAllowance>,
) -> Step {
    let (line, aside) = (amount(plan.planned), amount(plan.earmarked));
    let mut evidence = vec![match case.found {
        Some(_) => format!("by the plan, {line} units of the window would be taken by then"),
        None => format!("as the plan is now, {line} units of the window would be taken by now"),
    }];
    evidence.push(format!("{aside} are put aside for those served first"));
    let mut step = step.with("planned", plan.planned.as_f64()).with("aside", plan.earmarked.as_f64());
    let now = of_class.and_then(|of_class| Some((of_class.admit_share?, of_class.tokens?, of_class.refill_per_hour?)));
    let offered = found.map(|found| {
        let purse = found.bucket.refilled(&found.rate, case.now);
        (found.rate.share, purse.balance(), found.rate.refill_per_hour)
    });
    if let Some((share, purse, per_hour)) = offered.or(now) {
        let of_purse = format!("its purse holds {} and gains {} an hour", amount(purse), amount(per_hour));
        evidence.push(match share {
            Share::ALL => format!("the class is served as far as its purse goes: {of_purse}"),
            share => format!("{}% of the requests of its class are served; {of_purse}", percent(share)),
        });
        step = step.with("share", share.ratio()).with("purse", purse.as_f64()).with("per_hour", per_hour.as_f64());
    }
    if !pacing.enforce {
        evidence.push("it is not enforced: enforce: false".to_owned());
    }
    step.because(evidence)
}
