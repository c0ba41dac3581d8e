//! Finds remedies: the decision is repeated with one change, and changes that admit the request are returned.

use super::admission::{amount, percent};
use super::assessment::Assessment;
use super::class::any_of;
use super::input::{ClientAttributes, ExplainInput, History};
use super::pacing;
use super::remedy::{ChangeKind, Remedy};
use crate::policy::bucket::BucketState;
use crate::policy::decide::QuotaSnapshot;
use crate::policy::tier::Share;
use crate::policy::time::ceil_seconds;
use crate::policy::{ClassId, Proof, ProofMethod, Reason, Refusal, Signature, Timestamp, Units, Verdict};
use crate::telemetry::rfc3339;
use serde_json::Map;
use std::{fmt, iter};

/// Returns the changes that would admit the request, each alone; empty if it is admitted under every history.
pub(super) fn remedies(input: &ExplainInput<'_>, assessment: &Assessment<'_>) -> Vec<Remedy> {
    let Some(refusal) = assessment.refusal() else { return Vec::new() };
    let is_paced = refusal.reason == Reason::Pacing;
    if matches!(refusal.reason, Reason::Throttle | Reason::Backoff) || (is_paced && assessment.is_logged_response) {
        let message = "a retry once Retry-After has passed";
        let retry =
            Remedy::new(ChangeKind::Time, message).with_number("at", format_retry_time(input.now + refusal.wait));
        let unpaced = other_class(input).filter(|_| is_paced);
        return iter::once(retry).chain(unpaced).collect();
    }
    // A spent lease is followed by another one; lower usage would not provide it.
    let lowered = lower_usage(input).filter(|_| refusal.reason != Reason::Ledger);
    let found = [
        proof(input),
        lowered,
        other_position(input, assessment),
        retry_later(input, assessment, refusal),
        lower_cost(input),
    ];
    found.into_iter().flatten().chain(other_class(input)).collect()
}

/// Returns verification as the claimed operator, if it would admit the request.
fn proof(input: &ExplainInput<'_>) -> Option<Remedy> {
    let claimed = input.claimed_operator()?;
    let client = ClientAttributes {
        proof: Proof::Proven(ProofMethod::Address),
        signature: Signature::Absent,
        ..input.client.clone()
    };
    let proven = ExplainInput { client, ..input.clone() };
    let class = proven.classification().class;
    if proven.classification().operator == input.classification().operator {
        return None;
    }
    let chance = AdmitExtent::for_class(&proven, class)?;
    let operator = input.environment.operators.name(claimed);
    let methods = [(ProofMethod::Address, "published ranges"), (ProofMethod::Dns, "DNS")];
    let methods = methods.into_iter().filter(|(method, _)| input.environment.operators.supports(claimed, *method));
    let methods: Vec<&str> = methods.map(|(_, method)| method).collect();
    let method = if methods.is_empty() { "a signature".to_owned() } else { methods.join(" or ") };
    let class = input.environment.class_name(class);
    let message = format!("verification as {operator} by {method}, which leads to the class {class}{chance}");
    Some(Remedy::new(ChangeKind::Proof, message).with_number("operator", operator).with_number("class", class))
}

/// Returns lower usage of the refusing quotas, if it would admit the request.
fn lower_usage(input: &ExplainInput<'_>) -> Option<Remedy> {
    let class = input.classification().class;
    let mut lowered = input.clone();
    let (mut messages, mut used) = (Vec::new(), Map::new());
    for snapshot in lowered.quota_snapshots.iter_mut().filter(|snapshot| !admits(input, class, **snapshot)) {
        let (taken, quota) = (snapshot.taken, &snapshot.quota.name);
        let max_used = max_taken(taken, |taken| admits(input, class, input.with_taken(*snapshot, taken)))?;
        messages.push(format!(
            "{} units of {quota} fewer used: {} at most",
            amount(taken.saturating_sub(max_used)),
            amount(max_used)
        ));
        used.insert(quota.clone(), max_used.as_f64().into());
        *snapshot = input.with_taken(*snapshot, max_used);
    }
    let is_enough = !used.is_empty() && AdmitExtent::for_class(&lowered, class) == Some(AdmitExtent::Always);
    is_enough.then(|| Remedy::new(ChangeKind::Used, messages.join(", and ")).with_number("used_at_most", used))
}

/// Returns true if a quota alone admits the request under every history.
fn admits<'a>(input: &ExplainInput<'a>, class: ClassId, snapshot: QuotaSnapshot<'a>) -> bool {
    let alone = ExplainInput { quota_snapshots: vec![snapshot], bucket_state: BucketState::default(), ..input.clone() };
    AdmitExtent::for_class(&alone, class) == Some(AdmitExtent::Always)
}

/// Returns the largest amount below `taken` that satisfies `is_admitted`; `None` if not even zero does. No rule gets
/// stricter with lower usage, so a binary search finds it.
fn max_taken(taken: Units, is_admitted: impl Fn(Units) -> bool) -> Option<Units> {
    is_admitted(Units::ZERO).then(|| {
        let (mut low, mut high) = (0, taken.milli());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match is_admitted(Units::from_milli(middle)) {
                true => low = middle,
                false => high = middle,
            }
        }
        // Whole units are easier to read.
        let (exact, whole) = (Units::from_milli(low), Units::from_whole(Units::from_milli(low).floor()));
        if whole.is_zero() { exact } else { whole }
    })
}

/// Returns another position among the requests of the class, where a share of them is admitted.
fn other_position(input: &ExplainInput<'_>, assessment: &Assessment<'_>) -> Option<Remedy> {
    let class = input.classification().class;
    let shares = assessment.refused_snapshots().iter().filter_map(|snapshot| {
        let by_tier =
            snapshot.quota.tiers_for(class).map_or(Share::NONE, |tiers| tiers.shed_share(snapshot.shedding.tier));
        let by_plan = snapshot.plan.and_then(|planned| planned.allowance).filter(|_| input.replayed.is_some());
        let by_plan = by_plan.map_or(Share::NONE, |allowance| allowance.rate.share.complement());
        let share = by_tier.max(by_plan);
        (share > Share::NONE && share < Share::ALL).then_some(share)
    });
    let admit_share = shares.max()?.complement();
    let next_admitted = ExplainInput {
        quota_snapshots: input.quota_snapshots.iter().copied().map(pacing::at_next_admit).collect(),
        ..input.clone()
    };
    AdmitExtent::for_class(&next_admitted, class)?;
    let message = format!(
        "another position among the requests of its class, of which {}% are admitted now",
        percent(admit_share)
    );
    Some(Remedy::new(ChangeKind::Position, message).with_number("admit_share", admit_share.ratio()))
}

/// Returns a retry at a later time, if it would admit the request.
fn retry_later<'a>(input: &ExplainInput<'a>, assessment: &Assessment<'a>, refusal: &Refusal) -> Option<Remedy> {
    let class = input.classification().class;
    let retry_at = input.now + refusal.wait;
    let (at, message, later_input) = match refusal.reason {
        Reason::Bucket => {
            (retry_at, "a retry once its bucket has a token again", ExplainInput { now: retry_at, ..input.clone() })
        }
        Reason::Tier | Reason::Quota => {
            let at = renewed_at(input)?;
            (at, "a retry once the quota is renewed", ExplainInput { now: at, ..input.clone() }.with_used(|_| None))
        }
        Reason::Ledger => (retry_at, "a retry once the ledger has leased more", input.clone().with_full_lease()),
        Reason::Pacing => {
            // By then its pacing bucket has more tokens, and the admit share may include the request.
            let positions = assessment.refused_snapshots().to_vec();
            let later_input = ExplainInput { now: retry_at, quota_snapshots: positions, ..input.clone() };
            (
                retry_at,
                "a retry once the plan has more units for its class, unless other requests use them first",
                later_input,
            )
        }
        Reason::Blocked | Reason::Throttle | Reason::Backoff => return None,
    };
    let by_calendar = matches!(refusal.reason, Reason::Tier | Reason::Quota);
    let remedy = || Remedy::new(ChangeKind::Time, message).with_number("at", format_retry_time(at));
    let is_enough = AdmitExtent::for_class(&later_input, class)? == AdmitExtent::Always;
    is_enough.then(|| match renewal_zone(input).filter(|_| by_calendar) {
        Some(zone) => remedy().with_number("zone", zone),
        None => remedy(),
    })
}

/// Returns the time zone in which the windows of the refusing quotas are renewed, if they have one.
fn renewal_zone(input: &ExplainInput<'_>) -> Option<String> {
    let class = input.classification().class;
    let refusing = input.quota_snapshots.iter().find(|snapshot| !admits(input, class, **snapshot))?;
    refusing.quota.window.zone().map(str::to_owned)
}

/// Returns when all refusing quotas have been renewed; `None` if one of them has a sliding window.
fn renewed_at(input: &ExplainInput<'_>) -> Option<Timestamp> {
    let class = input.classification().class;
    let refusing = input.quota_snapshots.iter().filter(|snapshot| !admits(input, class, **snapshot));
    let renewed_at =
        |snapshot: &QuotaSnapshot<'_>| (snapshot.quota.window.lookback() == 0).then_some(snapshot.resets_at);
    refusing.map(renewed_at).collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// Formats a time, rounded up to whole seconds so that a retry at this time is not too early.
fn format_retry_time(at: Timestamp) -> String {
    rfc3339(Timestamp::from_seconds(ceil_seconds(at.saturating_duration_since(Timestamp::default()))))
}

/// Returns a lower cost that the remaining units cover, if there are some.
fn lower_cost(input: &ExplainInput<'_>) -> Option<Remedy> {
    let class = input.classification().class;
    let [snapshot] = input.quota_snapshots.as_slice() else { return None };
    let left = snapshot.limit.saturating_sub(snapshot.taken);
    if left.is_zero() || left >= snapshot.cost {
        return None;
    }
    let cheaper = ExplainInput { quota_snapshots: vec![QuotaSnapshot { cost: left, ..*snapshot }], ..input.clone() };
    let quota = &snapshot.quota.name;
    let chance = AdmitExtent::for_class(&cheaper, class)?;
    let message = format!("a cost of {} of {quota} at most{chance}", amount(left));
    Some(Remedy::new(ChangeKind::Cost, message).with_number("cost_at_most", left.as_f64()))
}

/// Returns the other classes of which the request would be admitted.
fn other_class(input: &ExplainInput<'_>) -> Option<Remedy> {
    let current = input.classification().class;
    let all = (0..input.environment.rules().classes.len()).map(|index| ClassId(index as u16));
    let fresh = ExplainInput { bucket_state: BucketState::default(), ..input.clone() };
    let classes: Vec<&str> = all
        .filter(|&class| class != current && AdmitExtent::for_class(&fresh, class) == Some(AdmitExtent::Always))
        .map(|class| input.environment.class_name(class))
        .collect();
    let current = input.environment.class_name(current);
    let message = format!("the class {} instead of {current}", any_of(&classes));
    (!classes.is_empty()).then(|| Remedy::new(ChangeKind::Class, message).with_number("classes", classes))
}

/// Extent to which a change admits requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AdmitExtent {
    Always,
    Sometimes,
}

impl AdmitExtent {
    /// Returns the chance of admission if the client were of `class`; `None` if there is none.
    fn for_class(input: &ExplainInput<'_>, class: ClassId) -> Option<Self> {
        let admits = |history: &History| matches!(input.decide(class, *history).0, Verdict::Admit { .. });
        let histories = input.histories();
        match (histories.iter().all(admits), histories.iter().any(admits)) {
            (true, _) => Some(Self::Always),
            (false, true) => Some(Self::Sometimes),
            (false, false) => None,
        }
    }
}

impl fmt::Display for AdmitExtent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => Ok(()),
            Self::Sometimes => out.write_str(", with part of its requests admitted now"),
        }
    }
}
