//! Finds remedies: the decision is repeated with one change, and changes that admit the request are returned.

use super::assessment::Assessment;
use super::class::any_of;
use super::input::{ExplainInput, History};
use super::remedy::{ChangeKind, Remedy};
use crate::terminal::decimal;
use serde_json::Map;
use std::iter;
use tidegate_access_log::rfc3339;
use tidegate_policy::bucket::BucketState;
use tidegate_policy::decide::QuotaSnapshot;
use tidegate_policy::tier::Share;
use tidegate_policy::time::ceil_seconds;
use tidegate_policy::{
    ClassId, ClientFacts, OperatorId, Proof, ProofMethod, Reason, Refusal, Signature, Timestamp, Units, Verdict,
};

/// Returns the changes that would admit the request, each alone; empty if it is admitted under every history.
pub(super) fn remedies(input: &ExplainInput<'_>, assessment: &Assessment<'_>) -> Vec<Remedy> {
    let Some(refusal) = assessment.refusal() else { return Vec::new() };
    let retry = || retry_remedy(input.now + refusal.wait, RETRY_UNLESS_USED);
    match refusal.reason {
        // Only the gateway had the state of the scopes, so no change can be evaluated.
        reason if reason.is_of_scope() => vec![retry()],
        // The log does not contain the state of the pacing plan. Another class may be unpaced.
        Reason::Pacing if assessment.is_logged_response => iter::once(retry()).chain(other_class(input)).collect(),
        reason => {
            // A spent lease is followed by another one; lower usage would not provide it.
            let lowered = if reason == Reason::Ledger { None } else { lower_usage(input) };
            let found = [
                proof(input),
                lowered,
                other_position(input, assessment),
                retry_later(input, assessment, refusal),
                lower_cost(input),
                other_class(input),
            ];
            found.into_iter().flatten().collect()
        }
    }
}

/// A retry that other requests may anticipate.
const RETRY_UNLESS_USED: &str = "a retry once Retry-After has passed, unless other requests use what is free by then";

/// Returns verification as the claimed operator, if it would admit the request.
fn proof(input: &ExplainInput<'_>) -> Option<Remedy> {
    let claimed = input.client.claimed_operator()?;
    let client = ClientFacts {
        proof: Proof::Proven(ProofMethod::Address),
        signature: Signature::Absent,
        ..input.client.clone()
    };
    let proven = ExplainInput { client, ..input.clone() };
    let classification = proven.classification();
    // Already verified, or classified by a user-agent rule.
    if classification.operator == input.classification().operator {
        return None;
    }
    let caveat = AdmitExtent::for_class(&proven, classification.class)?.caveat();
    let operator = input.environment.operators.name(claimed);
    let methods = verification_methods(input, claimed);
    let class = input.environment.class_name(classification.class);
    let message = format!("verification as {operator} by {methods}, which leads to the class {class}{caveat}");
    Some(Remedy::new(ChangeKind::Proof, message).with_number("operator", operator).with_number("class", class))
}

/// Returns the methods that can verify crawlers of `operator`, in words.
fn verification_methods(input: &ExplainInput<'_>, operator: OperatorId) -> String {
    let methods = [(ProofMethod::Address, "published ranges"), (ProofMethod::Dns, "DNS")];
    let supported = methods.into_iter().filter(|(method, _)| input.environment.operators.supports(operator, *method));
    let names: Vec<&str> = supported.map(|(_, name)| name).collect();
    if names.is_empty() { "a signature".to_owned() } else { names.join(" or ") }
}

/// Returns lower usage of the refusing quotas, if it would admit the request.
fn lower_usage(input: &ExplainInput<'_>) -> Option<Remedy> {
    let class = input.classification().class;
    let mut lowered = input.clone();
    let (mut messages, mut used_at_most) = (Vec::new(), Map::new());
    for snapshot in lowered.quota_snapshots.iter_mut().filter(|snapshot| !quota_admits(input, class, **snapshot)) {
        let (taken, quota) = (snapshot.taken, &snapshot.quota.name);
        let max_used = max_taken(taken, |taken| quota_admits(input, class, input.with_taken(*snapshot, taken)))?;
        let fewer = taken.saturating_sub(max_used);
        let (amount, unit, most) = (decimal(fewer), fewer.noun(), decimal(max_used));
        messages.push(format!("{amount} {unit} of {quota} fewer used: {most} at most"));
        used_at_most.insert(quota.clone(), max_used.as_f64().into());
        *snapshot = input.with_taken(*snapshot, max_used);
    }
    // Another rule may still refuse the request, such as the bucket of its class.
    if used_at_most.is_empty() || !always_admits(&lowered, class) {
        return None;
    }
    Some(Remedy::new(ChangeKind::Used, messages.join(", and ")).with_number("used_at_most", used_at_most))
}

/// Returns the quotas that refuse the request on their own, under at least one history.
fn refusing_snapshots<'i, 'a>(input: &'i ExplainInput<'a>) -> Vec<&'i QuotaSnapshot<'a>> {
    let class = input.classification().class;
    input.quota_snapshots.iter().filter(|snapshot| !quota_admits(input, class, **snapshot)).collect()
}

/// Returns true if a quota alone admits the request under every history.
fn quota_admits<'a>(input: &ExplainInput<'a>, class: ClassId, snapshot: QuotaSnapshot<'a>) -> bool {
    let alone = ExplainInput { quota_snapshots: vec![snapshot], bucket_state: BucketState::default(), ..input.clone() };
    always_admits(&alone, class)
}

/// Returns the largest amount below `taken` that satisfies `is_admitted`, rounded down to whole units unless they are
/// zero; `None` if not even zero satisfies it.
fn max_taken(taken: Units, is_admitted: impl Fn(Units) -> bool) -> Option<Units> {
    if !is_admitted(Units::ZERO) {
        return None;
    }
    // Binary search, because no rule gets stricter with lower usage.
    let (mut admitted, mut refused) = (0, taken.milli());
    while refused - admitted > 1 {
        let middle = admitted + (refused - admitted) / 2;
        match is_admitted(Units::from_milli(middle)) {
            true => admitted = middle,
            false => refused = middle,
        }
    }
    let exact = Units::from_milli(admitted);
    let whole = Units::from_whole(exact.floor());
    Some(if whole.is_zero() { exact } else { whole })
}

/// Returns another position among the requests of the class, where a share of them is admitted.
fn other_position(input: &ExplainInput<'_>, assessment: &Assessment<'_>) -> Option<Remedy> {
    let class = input.classification().class;
    let shed_shares = assessment.refused_snapshots().iter().map(|snapshot| shed_share(input, class, snapshot));
    let is_partial = |share: &Share| *share > Share::NONE && *share < Share::ALL;
    let admit_share = shed_shares.filter(is_partial).max()?.complement();
    AdmitExtent::for_class(&input.at_next_admit(), class)?;
    let message = format!("another position among the requests of its class, of which {admit_share} are admitted now");
    Some(Remedy::new(ChangeKind::Position, message).with_number("admit_share", admit_share.ratio()))
}

/// Returns the share of a class that a quota refuses: by its tiers or by its pacing plan, whichever refuses more.
fn shed_share(input: &ExplainInput<'_>, class: ClassId, snapshot: &QuotaSnapshot<'_>) -> Share {
    let tiers = snapshot.quota.tiers_for(class);
    let by_tier = tiers.map_or(Share::NONE, |tiers| tiers.shed_share(snapshot.shedding.tier));
    // Without a replay, the allowance is only an assumption.
    let allowance = snapshot.plan.and_then(|plan| plan.allowance).filter(|_| input.replayed.is_some());
    let by_plan = allowance.map_or(Share::NONE, |allowance| allowance.rate.share.complement());
    by_tier.max(by_plan)
}

/// Returns a retry at a later time, if it would admit the request.
fn retry_later<'a>(input: &ExplainInput<'a>, assessment: &Assessment<'a>, refusal: &Refusal) -> Option<Remedy> {
    let retry_at = input.now + refusal.wait;
    match refusal.reason {
        Reason::Bucket => {
            let later = ExplainInput { now: retry_at, ..input.clone() };
            retry_if_admitted(&later, retry_at, "a retry once its bucket has a token again")
        }
        Reason::Tier | Reason::Quota | Reason::ClientShare => {
            let renewed_at = renewed_at(input)?;
            let later = ExplainInput { now: renewed_at, ..input.clone() }.with_unused_quotas();
            let remedy = retry_if_admitted(&later, renewed_at, "a retry once the quota is renewed")?;
            Some(match renewal_zone(input) {
                Some(zone) => remedy.with_number("zone", zone),
                None => remedy,
            })
        }
        Reason::Ledger => {
            let leased = input.clone().with_full_lease();
            retry_if_admitted(&leased, retry_at, "a retry once the ledger has leased more")
        }
        Reason::Pacing => {
            // By then its pacing bucket has more tokens, and the admit share may include the request.
            let quota_snapshots = assessment.refused_snapshots().to_vec();
            let later = ExplainInput { now: retry_at, quota_snapshots, ..input.clone() };
            retry_if_admitted(
                &later,
                retry_at,
                "a retry once the plan has more units for its class, unless other requests use them first",
            )
        }
        Reason::Blocked | Reason::Maintenance if input.switch.is_some() => {
            let later = ExplainInput { switch: None, ..input.clone() };
            let class = later.classification().class;
            always_admits(&later, class).then(|| Remedy::new(ChangeKind::Time, "the end of the administrator's switch"))
        }
        Reason::Blocked | Reason::Maintenance | Reason::Throttle | Reason::Backoff => None,
    }
}

/// Returns a retry at `at`, if `later` is admitted: the request with the state at that time.
fn retry_if_admitted(later: &ExplainInput<'_>, at: Timestamp, message: &str) -> Option<Remedy> {
    let class = later.classification().class;
    always_admits(later, class).then(|| retry_remedy(at, message))
}

fn retry_remedy(at: Timestamp, message: &str) -> Remedy {
    Remedy::new(ChangeKind::Time, message).with_number("at", format_retry_time(at))
}

/// Returns the time zone in which the window of the first refusing quota is renewed, if it has one.
fn renewal_zone(input: &ExplainInput<'_>) -> Option<String> {
    refusing_snapshots(input).first()?.quota.window.zone().map(str::to_owned)
}

/// Returns when all refusing quotas have been renewed; `None` if one of them has a sliding window.
fn renewed_at(input: &ExplainInput<'_>) -> Option<Timestamp> {
    let refusing = refusing_snapshots(input);
    if refusing.iter().any(|snapshot| snapshot.quota.window.is_sliding()) {
        return None;
    }
    refusing.iter().map(|snapshot| snapshot.resets_at).max()
}

/// Formats a time, rounded up to whole seconds so that a retry at this time is not too early.
fn format_retry_time(at: Timestamp) -> String {
    rfc3339(Timestamp::from_seconds(ceil_seconds(at.saturating_duration_since(Timestamp::default()))))
}

/// Returns the highest cost that the remaining units cover, if it would admit the request. Considers only routes with a
/// single quota.
fn lower_cost(input: &ExplainInput<'_>) -> Option<Remedy> {
    let class = input.classification().class;
    let [snapshot] = input.quota_snapshots.as_slice() else { return None };
    let left = snapshot.limit.saturating_sub(snapshot.taken);
    if left.is_zero() || left >= snapshot.cost {
        return None;
    }
    let cheaper = ExplainInput { quota_snapshots: vec![QuotaSnapshot { cost: left, ..*snapshot }], ..input.clone() };
    let caveat = AdmitExtent::for_class(&cheaper, class)?.caveat();
    let quota = &snapshot.quota.name;
    let message = format!("a cost of {} of {quota} at most{caveat}", decimal(left));
    Some(Remedy::new(ChangeKind::Cost, message).with_number("cost_at_most", left.as_f64()))
}

/// Returns the change to one of the other classes, if there are any as which the request would be admitted.
fn other_class(input: &ExplainInput<'_>) -> Option<Remedy> {
    let current = input.classification().class;
    let all = (0..input.environment.rules().classes.len()).map(ClassId::from_index);
    // Each class has its own buckets.
    let fresh = ExplainInput { bucket_state: BucketState::default(), ..input.clone() };
    let admitted: Vec<&str> = all
        .filter(|&class| class != current && always_admits(&fresh, class))
        .map(|class| input.environment.class_name(class))
        .collect();
    let message = format!("the class {} instead of {}", any_of(&admitted), input.environment.class_name(current));
    (!admitted.is_empty()).then(|| Remedy::new(ChangeKind::Class, message).with_number("classes", admitted))
}

/// Returns true if the request is admitted under every history if the client is of `class`.
fn always_admits(input: &ExplainInput<'_>, class: ClassId) -> bool {
    AdmitExtent::for_class(input, class) == Some(AdmitExtent::Always)
}

/// Extent to which a change admits requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AdmitExtent {
    /// Admitted under every history.
    Always,
    /// Admitted under some histories.
    Sometimes,
}

impl AdmitExtent {
    /// Returns the extent to which the request is admitted if the client is of `class`; `None` if it is always refused.
    fn for_class(input: &ExplainInput<'_>, class: ClassId) -> Option<Self> {
        let admits = |history: &History| matches!(input.decide(class, *history, &mut ()).0, Verdict::Admit { .. });
        let histories = input.histories();
        match (histories.iter().all(admits), histories.iter().any(admits)) {
            (true, _) => Some(Self::Always),
            (false, true) => Some(Self::Sometimes),
            (false, false) => None,
        }
    }

    /// Returns the clause that a message needs if not all requests are admitted; otherwise empty.
    fn caveat(self) -> &'static str {
        match self {
            Self::Always => "",
            Self::Sometimes => ", with part of its requests admitted now",
        }
    }
}
