//! Steps of the admission rules, in evaluation order.

use super::assessment::Assessment;
use super::cache;
use super::input::ExplainInput;
use super::pacing;
use super::step::{Stage, Step, StepResult};
use crate::terminal::{decimal, format_duration};
use tidegate_access_log::rfc3339;
use tidegate_config::SettingPath;
use tidegate_policy::decide::{Check, DecisionRequest, QuotaSnapshot};
use tidegate_policy::exempt::Exemption;
use tidegate_policy::switches::SwitchEffect;
use tidegate_policy::tier::{Share, TierSet};
use tidegate_policy::{Reason, Units};

/// Returns a step for each admission rule. Rules that the decision does not reach are skipped.
pub(super) fn steps(input: &ExplainInput<'_>, assessment: &Assessment<'_>) -> Vec<Step> {
    let steps = steps_of_rules(input, assessment);
    debug_assert!(
        assessment.refusing_checks().all(|check| steps.iter().any(|step| step.step == Stage::from(check))),
        "a check refuses and has no step: {steps:?}"
    );
    steps
}

fn steps_of_rules(input: &ExplainInput<'_>, assessment: &Assessment<'_>) -> Vec<Step> {
    let request = input.decision_request_for(input.classification().class);
    if let Some(exemption) = request.exemption {
        let message = match exemption {
            Exemption::RobotsTxt | Exemption::CrawlPolicy | Exemption::Usage => {
                format!("{} is never refused", input.request.path)
            }
            Exemption::AcmeChallenge | Exemption::Preflight => format!("free: {}", exemption.description()),
        };
        let mut steps = vec![Step::new(Stage::Exempt, StepResult::Passed, message)];
        if exemption.is_bounded() {
            steps.extend(switch(&request, assessment));
            steps.push(exempt_bucket(input, assessment));
        }
        return steps;
    }
    let mut steps: Vec<Step> = switch(&request, assessment).into_iter().collect();
    steps.extend([block(input, &request, assessment), bucket(input, &request, assessment)]);
    steps.extend(cache::step(input, assessment));
    steps.extend(
        assessment.quota_snapshots().iter().filter_map(|snapshot| client_share(input, &request, snapshot, assessment)),
    );
    for snapshot in assessment.quota_snapshots() {
        match assessment.step_result(Check::Tier(snapshot.id)) {
            Some(result) => {
                steps.push(tier(input, &request, snapshot, result));
                steps.extend(pacing::step(input, &request, snapshot, assessment));
                steps.push(remaining(input, snapshot, assessment));
            }
            None => {
                let skipped = |stage| Step::skipped(stage).with_quota(&snapshot.quota.name);
                steps.extend([Stage::Tier, Stage::Quota].map(skipped));
            }
        }
    }
    steps
}

/// Returns the step of the switch that applied to the client; `None` without one.
fn switch(request: &DecisionRequest<'_>, assessment: &Assessment<'_>) -> Option<Step> {
    let message = match request.switch?.effect {
        SwitchEffect::Block => "an administrator has blocked the client (tidegate block)",
        SwitchEffect::Allow => "an administrator has allowed the client (tidegate allow): only missing units refuse it",
        SwitchEffect::Maintenance => "the site is in maintenance (tidegate maintenance)",
    };
    Some(Step::new(Stage::Switch, assessment.step_result(Check::Switch)?, message))
}

fn block(input: &ExplainInput<'_>, request: &DecisionRequest<'_>, assessment: &Assessment<'_>) -> Step {
    let Some(result) = assessment.step_result(Check::Block) else { return Step::skipped(Stage::Block) };
    let not = if result == StepResult::Passed { "not " } else { "" };
    let status = match request.class_rules.refuse_with.as_u16() {
        status @ (401 | 403) if result != StepResult::Passed => format!(", with status {status}"),
        _ => String::new(),
    };
    let message = format!("the class {} is {not}blocked{status}", request.class_rules.name);
    let path = SettingPath::of_class(request.class.index()).block();
    Step::new(Stage::Block, result, message).with_rule(input.environment.rule(&path))
}

fn bucket(input: &ExplainInput<'_>, request: &DecisionRequest<'_>, assessment: &Assessment<'_>) -> Step {
    let Some(result) = assessment.step_result(Check::Bucket) else { return Step::skipped(Stage::Bucket) };
    let class = request.class_rules;
    let Some(bucket) = &class.bucket else {
        return Step::new(Stage::Bucket, result, format!("the class {} has no bucket", class.name));
    };
    let path = SettingPath::of_class(request.class.index()).bucket();
    if request.bucket().is_none() {
        return Step::new(Stage::Bucket, result, "counts only requests with a cost")
            .with_rule(input.environment.rule(&path.counts()));
    }
    let left = bucket.remaining(input.bucket_state, input.now);
    let state = match result {
        StepResult::Passed if input.logged.is_some() && input.replayed.is_none() => "a token was available".to_owned(),
        StepResult::Passed if left == bucket.capacity => "full, as for a new client".to_owned(),
        StepResult::Passed => format!("{left} remaining"),
        _ => "empty".to_owned(),
    };
    let message = format!("capacity {}, refill {} every {:?}: {state}", bucket.capacity, bucket.fill, bucket.interval);
    Step::new(Stage::Bucket, result, message)
        .with_rule(input.environment.rule(&path))
        .with_number("capacity", bucket.capacity)
        .with_number("tokens", left)
}

/// Returns the step of the bucket of exempt requests.
fn exempt_bucket(input: &ExplainInput<'_>, assessment: &Assessment<'_>) -> Step {
    let Some(result) = assessment.step_result(Check::Bucket) else { return Step::skipped(Stage::Bucket) };
    let bucket = Exemption::BUCKET;
    let message = format!(
        "capacity {}, refill {} every {:?}, of such requests alone",
        bucket.capacity, bucket.fill, bucket.interval
    );
    Step::new(Stage::Bucket, result, message)
        .with_number("capacity", bucket.capacity)
        .with_number("tokens", bucket.remaining(input.bucket_state, input.now))
}

/// Returns the step for the client's share of a quota, if it has one.
fn client_share(
    input: &ExplainInput<'_>,
    request: &DecisionRequest<'_>,
    snapshot: &QuotaSnapshot<'_>,
    assessment: &Assessment<'_>,
) -> Option<Step> {
    let (limit, used) = snapshot.quota.client_limit_of(request.class_rules).zip(snapshot.client_used)?;
    let name = &snapshot.quota.name;
    let Some(result) = assessment.step_result(Check::ClientShare(snapshot.id)) else {
        return Some(Step::skipped(Stage::Share).with_quota(name));
    };
    let is_usage_known = input.logged.is_none() || input.replayed.is_some();
    let message = match result {
        _ if is_usage_known => format!("{} of {} {} of the client used", decimal(used), decimal(limit), limit.noun()),
        StepResult::Passed => format!("the client had units of its {} left", decimal(limit)),
        _ => format!(
            "the client had less than {} of its {} {} left",
            decimal(snapshot.cost),
            decimal(limit),
            limit.noun()
        ),
    };
    let rule = input.environment.rule(&SettingPath::of_quota(name).per_client());
    let step = Step::new(Stage::Share, result, message).with_quota(name).with_rule(rule);
    let step = step.with_number("client_limit", limit.as_f64());
    Some(if is_usage_known { step.with_number("client_used", used.as_f64()) } else { step })
}

fn tier(
    input: &ExplainInput<'_>,
    request: &DecisionRequest<'_>,
    snapshot: &QuotaSnapshot<'_>,
    result: StepResult,
) -> Step {
    let (environment, quota) = (input.environment, snapshot.quota);
    let Some(tiers) = quota.tiers_for(request.class) else {
        let message = format!("the class {} has no tiers; refused only when nothing is left", request.class_rules.name);
        let rule = environment.rule(&environment.quota_path(snapshot.id).tiers());
        return Step::new(Stage::Tier, result, message).with_quota(&quota.name).with_rule(rule);
    };
    let tier = snapshot.shedding.tier;
    let share = tiers.shed_share(tier);
    let index = usize::from(tier).saturating_sub(1);
    let tiers_inactive = quota.used_for_tiers(snapshot.taken, snapshot.plan.map(|plan| plan.is_ahead)).is_zero();
    let used = format!("{} of {} used", decimal(snapshot.taken), decimal(quota.limit));
    let message = match tiers_inactive && tier == 0 && !snapshot.taken.is_zero() {
        true => format!("{used}; tiers are inactive unless the class is ahead of its plan"),
        false => used + &tier_text(tiers, tier),
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

/// Returns the current tier of a class, in words that follow its usage.
fn tier_text(tiers: &TierSet, tier: u8) -> String {
    let Some(index) = usize::from(tier).checked_sub(1) else {
        let first = tiers.tiers().first().map_or(Units::ZERO, |step| step.threshold);
        return format!("; the first tier begins at {}", decimal(first));
    };
    let Some(step) = tiers.tiers().get(index) else { return String::new() };
    let refused = match step.shed_share {
        Share::ALL => "everything is".to_owned(),
        share => format!("{share} are"),
    };
    format!(": tier {tier}, in which {refused} refused, begins at {}", decimal(step.threshold))
}

fn remaining(input: &ExplainInput<'_>, snapshot: &QuotaSnapshot<'_>, assessment: &Assessment<'_>) -> Step {
    let check = Check::Remaining(snapshot.id);
    let Some(result) = assessment.step_result(check) else { return Step::skipped(Stage::Quota) };
    let quota = snapshot.quota;
    let left = snapshot.limit.saturating_sub(snapshot.taken);
    let is_unleased = assessment.results(check).any(|result| result.result == Err(Reason::Ledger));
    let unleased = if is_unleased { ", but the ledger has not leased enough of it yet" } else { "" };
    let message = format!("{} remaining, {} requested{unleased}", decimal(left), decimal(snapshot.cost));
    Step::new(Stage::Quota, result, message)
        .with_quota(&quota.name)
        .with_rule(input.environment.rule(&input.environment.quota_path(snapshot.id).limit()))
        .with_number("limit", quota.limit.as_f64())
        .with_number("remaining", left.as_f64())
        .with_number("cost", snapshot.cost.as_f64())
        .with_number("resets_at", rfc3339(snapshot.resets_at))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{CLIENT, CURL, GOOGLEBOT, GOOGLEBOT_ADDRESS, PolicyFixture, RULES, step};
    use super::*;
    use serde_json::json;

    const BROWSER: &str = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) \
                           Chrome/131.0.0.0 Safari/537.36";

    /// Returns result and message of a step of curl, which finds `used` units used.
    fn curl_step(stage: Stage, used: u64) -> (StepResult, String) {
        let Step { finding, message, .. } =
            step(&PolicyFixture::new(RULES).request(CURL, CLIENT, "/item/1", used), stage);
        (finding, message)
    }

    #[test]
    fn robots_txt_is_exempt() {
        let exempt = step(&PolicyFixture::new(RULES).request(CURL, CLIENT, "/robots.txt", 100), Stage::Exempt);
        assert_eq!((exempt.finding, exempt.message.as_str()), (StepResult::Passed, "/robots.txt is never refused"));
    }

    #[test]
    fn share_of_the_client_is_a_step_of_its_own() {
        let rules = RULES.replacen("limit: 100\n", "limit: 100\n    per_client: 30%\n", 1);
        assert_ne!(rules, RULES);
        let policy = PolicyFixture::new(&rules);
        let share = step(&policy.request(CURL, CLIENT, "/item/1", 0), Stage::Share);
        assert_eq!((share.finding, share.message.as_str()), (StepResult::Passed, "0 of 30 units of the client used"));
        let fields = json!({"verdict": "refused", "reason": "client_share", "retry_after_s": 4, "used": {"api": 50}});
        let share = step(&policy.logged(&fields), Stage::Share);
        assert_eq!(
            (share.finding, share.message.as_str()),
            (StepResult::Refused, "the client had less than 1 of its 30 units left")
        );
        assert!(share.numbers.iter().all(|(name, _)| *name != "client_used"), "its usage is not logged");
        let shadow = PolicyFixture::new(&rules.replacen("limit: 100\n", "enforce: false\n    limit: 100\n", 1));
        let fields = json!({"shadow_reason": "client_share", "used": {"api": 50}});
        assert_eq!(step(&shadow.logged(&fields), Stage::Share).finding, StepResult::Shadow);
    }

    #[test]
    fn rules_after_a_block_are_skipped() {
        let policy = PolicyFixture::new(RULES);
        let input = policy.request(GOOGLEBOT, CLIENT, "/item/1", 0);
        let results = [Stage::Block, Stage::Bucket, Stage::Tier, Stage::Quota].map(|stage| step(&input, stage).finding);
        let skipped = StepResult::Skipped;
        assert_eq!(results, [StepResult::Refused, skipped, skipped, skipped]);
    }

    #[test]
    fn block_of_an_unenforced_class_is_a_shadow_refusal() {
        let policy = PolicyFixture::new(&RULES.replace("block: true", "block: true, enforce: false"));
        let input = policy.request(GOOGLEBOT, CLIENT, "/item/1", 0);
        assert_eq!(step(&input, Stage::Block).finding, StepResult::Shadow);
        assert_eq!(step(&input, Stage::Bucket).finding, StepResult::Passed);
    }

    #[test]
    fn bucket_is_full_for_a_new_client() {
        let message = "capacity 3, refill 1 every 10s: full, as for a new client".to_owned();
        assert_eq!(curl_step(Stage::Bucket, 0), (StepResult::Passed, message));
    }

    #[test]
    fn bucket_is_empty_at_a_logged_bucket_refusal() {
        let fields = json!({"verdict": "refused", "reason": "bucket", "retry_after_s": 4, "used": {"api": 0}});
        let bucket = step(&PolicyFixture::new(RULES).logged(&fields), Stage::Bucket);
        assert_eq!(bucket.finding, StepResult::Refused);
        assert_eq!(bucket.message, "capacity 3, refill 1 every 10s: empty");
    }

    #[test]
    fn tier_refuses_from_its_threshold_on() {
        let below = "24 of 100 used; the first tier begins at 25".to_owned();
        assert_eq!(curl_step(Stage::Tier, 24), (StepResult::Passed, below));
        let above = "40 of 100 used: tier 1, in which everything is refused, begins at 25".to_owned();
        assert_eq!(curl_step(Stage::Tier, 40), (StepResult::Refused, above));
    }

    #[test]
    fn crawler_guard_makes_a_tier_depend_on_earlier_requests() {
        let policy = PolicyFixture::new(&RULES.replace("60%, shed: 50%", "60%, shed: 100%"));
        let tier = step(&policy.request(GOOGLEBOT, GOOGLEBOT_ADDRESS, "/item/1", 70), Stage::Tier);
        assert_eq!(tier.finding, StepResult::Depends);
        assert!(tier.evidence[0].starts_with("crawler guard: one of its requests is admitted every"), "{tier:?}");
    }

    #[test]
    fn class_without_tiers_is_refused_when_no_units_remain() {
        let policy = PolicyFixture::new(RULES);
        let input = policy.request(BROWSER, CLIENT, "/item/1", 100);
        assert_eq!(step(&input, Stage::Tier).finding, StepResult::Passed);
        let remaining = step(&input, Stage::Quota);
        assert_eq!((remaining.finding, remaining.message.as_str()), (StepResult::Refused, "0 remaining, 1 requested"));
    }

    #[test]
    fn missing_lease_is_not_an_exhausted_quota() {
        let fields = json!({"verdict": "refused", "reason": "ledger", "retry_after_s": 1, "used": {"api": 10}});
        let remaining = step(&PolicyFixture::new(RULES).logged(&fields), Stage::Quota);
        let message = "90 remaining, 1 requested, but the ledger has not leased enough of it yet";
        assert_eq!((remaining.finding, remaining.message.as_str()), (StepResult::Refused, message));
    }
}
