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
pub(super) fn steps(input: &ExplainInput<'_>, assessment: &Assessment<'_>) -> Vec<Step> {
    let request = input.decision_request_for(input.classification().class);
    if request.is_exempt {
        return vec![Step::new(Stage::Exempt, StepResult::Passed, format!("{} is never refused", input.request.path))];
    }
    let is_refused_by = |reason| assessment.certain_refusal().is_some_and(|refusal| refusal.reason == reason);
    let mut steps = vec![block(input, &request)];
    steps.push(if is_refused_by(Reason::Blocked) { skipped_step(Stage::Bucket) } else { bucket(input, &request) });
    let quotas_are_evaluated = !is_refused_by(Reason::Blocked) && !is_refused_by(Reason::Bucket);
    for (index, snapshot) in input.quota_snapshots.iter().enumerate() {
        let quota = &snapshot.quota.name;
        // Usage under each possible history.
        let snapshots =
            || assessment.histories.iter().map(|history| input.quotas_for(request.class, *history)[index]).collect();
        match quotas_are_evaluated {
            true => {
                steps.push(tier(input, &request, snapshots()));
                steps.extend(pacing::step(input, &request, snapshots(), assessment));
                steps.push(remaining_step(input, snapshot));
            }
            false => steps.extend([Stage::Tier, Stage::Quota].map(|stage| skipped_step(stage).with_quota(quota))),
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

fn block(input: &ExplainInput<'_>, request: &DecisionRequest<'_>) -> Step {
    let class = request.class_rules;
    let (result, message) = match decide::check_block(class) {
        Err(_) => (refused_result(class.enforce), format!("the class {} is blocked", class.name)),
        Ok(()) => (StepResult::Passed, format!("the class {} is not blocked", class.name)),
    };
    Step::new(Stage::Block, result, message).with_rule(input.environment.class_rule(request.class, ".block"))
}

fn bucket(input: &ExplainInput<'_>, request: &DecisionRequest<'_>) -> Step {
    let class = request.class_rules;
    let Some(bucket) = &class.bucket else {
        return Step::new(Stage::Bucket, StepResult::Passed, format!("the class {} has no bucket", class.name));
    };
    if request.bucket().is_none() {
        return Step::new(Stage::Bucket, StepResult::Passed, "counts only requests with a cost")
            .with_rule(input.environment.class_rule(request.class, ".bucket.counts"));
    }
    let left = bucket.remaining(input.bucket_state, input.now);
    let bucket_text = format!("capacity {}, refill {} every {:?}", bucket.capacity, bucket.fill, bucket.interval);
    let (result, message) = match decide::check_bucket(request, input.bucket_state, input.now) {
        Ok(_) if input.logged.is_some() && input.replayed.is_none() => {
            (StepResult::Passed, format!("{bucket_text}: a token was available"))
        }
        Ok(_) if left == bucket.capacity => (StepResult::Passed, format!("{bucket_text}: full, as for a new client")),
        Ok(_) => (StepResult::Passed, format!("{bucket_text}: {left} remaining")),
        Err(_) => (refused_result(class.enforce), format!("{bucket_text}: empty")),
    };
    Step::new(Stage::Bucket, result, message)
        .with_rule(input.environment.class_rule(request.class, ".bucket"))
        .with_number("capacity", bucket.capacity)
        .with_number("tokens", left)
}

fn tier(input: &ExplainInput<'_>, request: &DecisionRequest<'_>, mut snapshots: Vec<QuotaSnapshot<'_>>) -> Step {
    let environment = input.environment;
    let passes: Vec<bool> =
        snapshots.iter_mut().map(|snapshot| decide::check_tier(request.class, snapshot, input.now).is_ok()).collect();
    let Some(snapshot) = snapshots.first() else { return skipped_step(Stage::Tier) };
    let quota = snapshot.quota;
    let Some(tiers) = quota.tiers_for(request.class) else {
        let message = format!("the class {} has no tiers; refused only when nothing is left", request.class_rules.name);
        let rule = environment.quota_rule(snapshot.id, ".tiers");
        return Step::new(Stage::Tier, StepResult::Passed, message).with_quota(&quota.name).with_rule(rule);
    };
    let enforced = request.enforces_tiers(quota);
    let result = match (passes.contains(&true), passes.contains(&false)) {
        (_, false) => StepResult::Passed,
        (true, true) if enforced => StepResult::Depends,
        _ => refused_result(enforced),
    };
    let tier = snapshot.shedding.tier;
    let share = tiers.shed_share(tier);
    let index = usize::from(tier).saturating_sub(1);
    let tiers_inactive = quota.used_for_tiers(snapshot.taken, snapshot.plan.map(|plan| plan.is_ahead)).is_zero();
    let message = match tiers_inactive && tier == 0 && !snapshot.taken.is_zero() {
        true => format!(
            "{} of {} used; tiers are inactive unless the class is ahead of its plan",
            decimal(snapshot.taken),
            decimal(quota.limit)
        ),
        false => tier_text(tiers, tier, snapshot.taken, quota.limit),
    };
    Step::new(Stage::Tier, result, message)
        .with_quota(&quota.name)
        .with_evidence(guard(snapshot, share).into_iter().collect())
        .with_rule(environment.tier_rule(snapshot.id, request.class, index))
        .with_number("used", snapshot.taken.as_f64())
        .with_number("limit", quota.limit.as_f64())
        .with_number("tier", tier)
        .with_number("shed", share.ratio())
}

/// Returns the effect of the crawler guard on a request of a shed class.
fn guard(snapshot: &QuotaSnapshot<'_>, share: Share) -> Option<String> {
    let guard_state = snapshot.guard_state.filter(|_| share > Share::NONE)?;
    let interval = format_duration(guard_state.guard.admit_interval.as_secs());
    Some(format!("crawler guard: one of its requests is admitted every {interval}"))
}

/// Returns the usage and the current tier of a class, in words.
fn tier_text(tiers: &TierSet, tier: u8, taken: Units, limit: Units) -> String {
    let used = format!("{} of {} used", decimal(taken), decimal(limit));
    let Some(index) = usize::from(tier).checked_sub(1) else {
        let first = tiers.tiers().first().map_or(Units::ZERO, |step| step.threshold);
        return format!("{used}; the first tier begins at {}", decimal(first));
    };
    let Some(step) = tiers.tiers().get(index) else { return used };
    let refused = match step.shed_share {
        Share::ALL => "everything is".to_owned(),
        share => format!("{share} are"),
    };
    format!("{used}: tier {tier}, in which {refused} refused, begins at {}", decimal(step.threshold))
}

fn remaining_step(input: &ExplainInput<'_>, snapshot: &QuotaSnapshot<'_>) -> Step {
    let quota = snapshot.quota;
    let left = snapshot.limit.saturating_sub(snapshot.taken);
    let amounts = format!("{} remaining, {} requested", decimal(left), decimal(snapshot.cost));
    let (result, message) = match decide::check_remaining(snapshot, input.now) {
        Ok(()) => (StepResult::Passed, amounts),
        Err((Reason::Ledger, _)) => {
            (refused_result(quota.enforce), format!("{amounts}, but the ledger has not leased enough of it yet"))
        }
        Err(_) => (refused_result(quota.enforce), amounts),
    };
    Step::new(Stage::Quota, result, message)
        .with_quota(&quota.name)
        .with_rule(input.environment.quota_rule(snapshot.id, ".limit"))
        .with_number("limit", quota.limit.as_f64())
        .with_number("remaining", left.as_f64())
        .with_number("cost", snapshot.cost.as_f64())
        .with_number("resets_at", rfc3339(snapshot.resets_at))
}
