//! Steps of the admission rules, in evaluation order.

use super::assessment::Assessment;
use super::input::ExplainInput;
use super::pacing;
use super::step::{Stage, Step, StepResult};
use crate::policy::decide::{self, DecisionRequest, QuotaSnapshot};
use crate::policy::tier::{Share, TierSet};
use crate::policy::{Reason, Units};
use crate::telemetry::rfc3339;
use crate::terminal::{decimal, format_duration};

/// Returns a step for each admission rule, evaluated alone. Rules after a certain refusal are skipped.
pub(super) fn steps(case: &ExplainInput<'_>, outcome: &Assessment<'_>) -> Vec<Step> {
    let asked = case.decision_request_for(case.classified().class);
    if asked.never_refused {
        return vec![Step::new(Stage::Exempt, StepResult::Passed, format!("{} is never refused", case.asked.path))];
    }
    let said_no = |reason| outcome.certain_refusal().is_some_and(|refusal| refusal.reason == reason);
    let mut steps = vec![block(case, &asked)];
    steps.push(if said_no(Reason::Blocked) { skipped_step(Stage::Bucket) } else { bucket(case, &asked) });
    let quotas_are_asked = !said_no(Reason::Blocked) && !said_no(Reason::Bucket);
    for (place, position) in case.positions.iter().enumerate() {
        let quota = &position.quota.name;
        // Usage under each possible history.
        let may_be = || outcome.pasts.iter().map(|past| case.quotas_for(asked.class, *past)[place]).collect();
        match quotas_are_asked {
            true => {
                steps.push(tier(case, &asked, may_be()));
                steps.extend(pacing::step(case, &asked, may_be(), outcome));
                steps.push(remaining_step(case, position));
            }
            false => steps.extend([Stage::Tier, Stage::Quota].map(|stage| skipped_step(stage).of_quota(quota))),
        }
    }
    steps
}

pub(super) fn skipped_step(stage: Stage) -> Step {
    Step::new(stage, StepResult::Skipped, "not evaluated after the refusal")
}

/// Returns the result of a rule that refuses: enforced or in shadow mode.
pub(super) fn refused_result(enforced: bool) -> StepResult {
    if enforced { StepResult::Refused } else { StepResult::Shadow }
}

fn block(case: &ExplainInput<'_>, asked: &DecisionRequest<'_>) -> Step {
    let class = asked.class_rules;
    let (finding, says) = match decide::check_block(class) {
        Err(_) => (refused_result(class.enforce), format!("the class {} is blocked", class.name)),
        Ok(()) => (StepResult::Passed, format!("the class {} is not blocked", class.name)),
    };
    Step::new(Stage::Block, finding, says).by(case.known.class_rule(asked.class, ".block"))
}

fn bucket(case: &ExplainInput<'_>, asked: &DecisionRequest<'_>) -> Step {
    let class = asked.class_rules;
    let Some(bucket) = &class.bucket else {
        return Step::new(Stage::Bucket, StepResult::Passed, format!("the class {} has no bucket", class.name));
    };
    if asked.bucket().is_none() {
        return Step::new(Stage::Bucket, StepResult::Passed, "counts only requests with a cost")
            .by(case.known.class_rule(asked.class, ".bucket.counts"));
    }
    let left = bucket.remaining(case.level, case.now);
    let holds = format!("capacity {}, refill {} every {:?}", bucket.capacity, bucket.fill, bucket.interval);
    let (finding, says) = match decide::check_bucket(asked, case.level, case.now) {
        Ok(_) if case.happened.is_some() && case.found.is_none() => {
            (StepResult::Passed, format!("{holds}: a token was available"))
        }
        Ok(_) if left == bucket.capacity => (StepResult::Passed, format!("{holds}: full, as for a new client")),
        Ok(_) => (StepResult::Passed, format!("{holds}: {left} remaining")),
        Err(_) => (refused_result(class.enforce), format!("{holds}: empty")),
    };
    Step::new(Stage::Bucket, finding, says)
        .by(case.known.class_rule(asked.class, ".bucket"))
        .with("capacity", bucket.capacity)
        .with("tokens", left)
}

fn tier(case: &ExplainInput<'_>, asked: &DecisionRequest<'_>, mut may_be: Vec<QuotaSnapshot<'_>>) -> Step {
    let known = case.known;
    let said: Vec<bool> =
        may_be.iter_mut().map(|position| decide::check_tier(asked.class, position, case.now).is_ok()).collect();
    let Some(position) = may_be.first() else { return skipped_step(Stage::Tier) };
    let quota = position.quota;
    let Some(ladder) = quota.tiers_for(asked.class) else {
        let says = format!("the class {} has no tiers; refused only when nothing is left", asked.class_rules.name);
        let rule = known.quota_rule(position.id, ".tiers");
        return Step::new(Stage::Tier, StepResult::Passed, says).of_quota(&quota.name).by(rule);
    };
    let enforced = asked.enforces_tiers(quota);
    let finding = match (said.contains(&true), said.contains(&false)) {
        (_, false) => StepResult::Passed,
        (true, true) if enforced => StepResult::Depends,
        _ => refused_result(enforced),
    };
    let tier = position.shedding.tier;
    let share = ladder.shed_share(tier);
    let place = usize::from(tier).saturating_sub(1);
    let rests = quota.used_for_tiers(position.taken, position.planned.map(|planned| planned.is_ahead)).is_zero();
    let says = match rests && tier == 0 && !position.taken.is_zero() {
        true => format!(
            "{} of {} used; tiers are inactive unless the class is ahead of its plan",
            amount(position.taken),
            amount(quota.limit)
        ),
        false => tier_text(ladder, tier, position.taken, quota.limit),
    };
    Step::new(Stage::Tier, finding, says)
        .of_quota(&quota.name)
        .because(guard(position, share).into_iter().collect())
        .by(known.tier_rule(position.id, asked.class, place))
        .with("used", position.taken.as_f64())
        .with("limit", quota.limit.as_f64())
        .with("tier", tier)
        .with("shed", share.ratio())
}

/// Returns the effect of the crawler guard on a request of a shed class.
fn guard(position: &QuotaSnapshot<'_>, share: Share) -> Option<String> {
    let guarded = position.guarded.filter(|_| share > Share::NONE)?;
    let every = format_duration(guarded.guard.admit_interval.as_secs());
    Some(format!("crawler guard: one of its requests is admitted every {every}"))
}

/// Returns the usage and the current tier of a class, in words.
fn tier_text(ladder: &TierSet, tier: u8, taken: Units, limit: Units) -> String {
    let used = format!("{} of {} used", amount(taken), amount(limit));
    let Some(place) = usize::from(tier).checked_sub(1) else {
        let first = ladder.tiers().first().map_or(Units::ZERO, |step| step.above);
        return format!("{used}; the first tier begins at {}", amount(first));
    };
    let Some(step) = ladder.tiers().get(place) else { return used };
    let refused = match step.shed {
        Share::ALL => "everything is".to_owned(),
        share => format!("{}% are", percent(share)),
    };
    format!("{used}: tier {tier}, in which {refused} refused, begins at {}", amount(step.above))
}

fn remaining_step(case: &ExplainInput<'_>, position: &QuotaSnapshot<'_>) -> Step {
    let quota = position.quota;
    let left = position.limit.saturating_sub(position.taken);
    let asks = format!("{} remaining, {} requested", amount(left), amount(position.cost));
    let (finding, says) = match decide::check_remaining(position, case.now) {
        Ok(()) => (StepResult::Passed, asks),
        Err((Reason::Ledger, _)) => {
            (refused_result(quota.enforce), format!("{asks}, but the ledger has not leased enough of it yet"))
        }
        Err(_) => (refused_result(quota.enforce), asks),
    };
    Step::new(Stage::Quota, finding, says)
        .of_quota(&quota.name)
        .by(case.known.quota_rule(position.id, ".limit"))
        .with("limit", quota.limit.as_f64())
        .with("left", left.as_f64())
        .with("cost", position.cost.as_f64())
        .with("resets_at", rfc3339(position.resets_at))
}

pub(super) fn amount(units: Units) -> String {
    decimal(&units.to_string())
}

pub(super) fn percent(share: Share) -> String {
    Units::from_milli(u64::from(share.millionths()) / 10).to_string()
}
