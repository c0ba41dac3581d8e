//! Whether the request's class is within what the plan of a quota has for it.

use super::admission::{amount, percent};
use super::case::Case;
use super::outcome::Outcome;
use super::step::{Finding, Stage, Step};
use crate::engine::{ClassPlan, PlanView};
use crate::policy::Reason;
use crate::policy::decide::{Asked, Position};
use crate::policy::pacing::{Pacing, Role};

/// What the plan of a quota says; nothing, where it has none.
pub(super) fn step(case: &Case<'_>, asked: &Asked<'_>, position: &Position<'_>, outcome: &Outcome<'_>) -> Option<Step> {
    let pacing = position.quota.pacing.as_ref()?;
    let quota = &position.quota.name;
    let (finding, says) = match pacing.role(asked.class) {
        Role::First => (Finding::Passed, format!("{} is served first: others are paced", asked.class_rules.name)),
        Role::ShutOut => {
            (Finding::Passed, format!("plans nothing for {}, which a tier shuts out", asked.class_rules.name))
        }
        Role::Paced(_) => said(case, asked, outcome),
    };
    let step = Step::new(Stage::Pacing, finding, says)
        .of_quota(quota)
        .by(case.known.quota_rule(position.id, ".pacing"))
        .with("mode", pacing.forecast.name())
        .with("burst", pacing.burst.of(position.quota.limit).as_f64());
    Some(match case.plan(quota, &asked.class_rules.name) {
        Some(plan) => with_plan(step, pacing, plan),
        None => step,
    })
}

/// What a plan said to a request of a class that it paces.
fn said(case: &Case<'_>, asked: &Asked<'_>, outcome: &Outcome<'_>) -> (Finding, String) {
    let class = &asked.class_rules.name;
    let Some(decided) = case.decided().filter(|_| !outcome.differs_from_log) else {
        let only_a_gate = "what its plan has for the class, only a running gate knows; here it is taken for enough";
        return (Finding::Unknown, format!("{class} is paced: {only_a_gate}"));
    };
    match decided.reason {
        Some(Reason::Pacing) => (Finding::Refused, format!("{class} was ahead of its plan")),
        Some(Reason::Tier) => (Finding::NotAsked, "not asked any more".to_owned()),
        _ => (Finding::Passed, format!("{class} was within its plan, or the guard let it through")),
    }
}

/// The plan of today: what it was when the request came nobody has written down.
fn with_plan(step: Step, pacing: &Pacing, (plan, of_class): (&PlanView, Option<&ClassPlan>)) -> Step {
    let (line, aside) = (amount(plan.line), amount(plan.aside));
    let mut evidence = vec![format!("as the plan is now, {line} units of the window would be taken by now")];
    evidence.push(format!("{aside} are put aside for those served first"));
    let mut step = step.with("planned", plan.line.as_f64()).with("aside", plan.aside.as_f64());
    if let Some((share, purse)) = of_class.and_then(|of_class| Some((of_class.share?, of_class.purse?))) {
        let holds = if purse.is_zero() { "is empty".to_owned() } else { format!("holds {}", amount(purse)) };
        evidence.push(format!("{}% of the requests of its class are served, and its purse {holds}", percent(share)));
        step = step.with("share", share.ratio()).with("purse", purse.as_f64());
    }
    if !pacing.enforce {
        evidence.push("it is not enforced: enforce: false".to_owned());
    }
    step.because(evidence)
}
