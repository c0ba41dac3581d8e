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
use crate::verify::OperatorProofMethod;
use serde_json::Map;
use std::{fmt, iter};

/// Returns the changes that would admit the request, each alone; empty if it is admitted under every history.
pub(super) fn remedies(case: &ExplainInput<'_>, outcome: &Assessment<'_>) -> Vec<Remedy> {
    let Some(refusal) = outcome.refusal() else { return Vec::new() };
    let is_paced = refusal.reason == Reason::Pacing;
    if matches!(refusal.reason, Reason::Throttle | Reason::Backoff) || (is_paced && outcome.is_as_logged) {
        let says = "a retry once Retry-After has passed";
        let later = Remedy::new(ChangeKind::Time, says).with("at", moment(case.now + refusal.wait));
        let unpaced = other_class(case).filter(|_| is_paced);
        return iter::once(later).chain(unpaced).collect();
    }
    // A spent lease is followed by another one; lower usage would not provide it.
    let less_used = lower_usage(case).filter(|_| refusal.reason != Reason::Ledger);
    let found =
        [proof(case), less_used, other_position(case, outcome), retry_later(case, outcome, refusal), lower_cost(case)];
    found.into_iter().flatten().chain(other_class(case)).collect()
}

/// Returns verification as the claimed operator, if it would admit the request.
fn proof(case: &ExplainInput<'_>) -> Option<Remedy> {
    let claimed = case.claimed()?;
    let who = ClientAttributes {
        proof: Proof::Proven(ProofMethod::Address),
        signature: Signature::Absent,
        ..case.who.clone()
    };
    let proven = ExplainInput { who, ..case.clone() };
    let class = proven.classified().class;
    if proven.classified().operator == case.classified().operator {
        return None;
    }
    let through = AdmitChance::of(&proven, class)?;
    let operator = case.known.operators.name(claimed);
    let ways = [(OperatorProofMethod::Address, "published ranges"), (OperatorProofMethod::Dns, "DNS")];
    let ways = ways.into_iter().filter(|(method, _)| case.known.operators.supports(claimed, *method));
    let ways: Vec<&str> = ways.map(|(_, way)| way).collect();
    let way = if ways.is_empty() { "a signature".to_owned() } else { ways.join(" or ") };
    let class = case.known.class_name(class);
    let says = format!("verification as {operator} by {way}, which leads to the class {class}{through}");
    Some(Remedy::new(ChangeKind::Proof, says).with("operator", operator).with("class", class))
}

/// Returns lower usage of the refusing quotas, if it would admit the request.
fn lower_usage(case: &ExplainInput<'_>) -> Option<Remedy> {
    let class = case.classified().class;
    let mut lowered = case.clone();
    let (mut says, mut used) = (Vec::new(), Map::new());
    for position in lowered.positions.iter_mut().filter(|position| !admits(case, class, **position)) {
        let (taken, quota) = (position.taken, &position.quota.name);
        let most = most_taken(taken, |taken| admits(case, class, case.with_taken(*position, taken)))?;
        says.push(format!(
            "{} units of {quota} fewer used: {} at most",
            amount(taken.saturating_sub(most)),
            amount(most)
        ));
        used.insert(quota.clone(), most.as_f64().into());
        *position = case.with_taken(*position, most);
    }
    let is_enough = !used.is_empty() && AdmitChance::of(&lowered, class) == Some(AdmitChance::Always);
    is_enough.then(|| Remedy::new(ChangeKind::Used, says.join(", and ")).with("used_at_most", used))
}

/// Returns true if a quota alone admits the request under every history.
fn admits<'a>(case: &ExplainInput<'a>, class: ClassId, position: QuotaSnapshot<'a>) -> bool {
    let alone = ExplainInput { positions: vec![position], level: BucketState::default(), ..case.clone() };
    AdmitChance::of(&alone, class) == Some(AdmitChance::Always)
}

/// Returns the largest amount below `taken` that satisfies `is_good`; `None` if not even zero does. No rule gets
/// stricter with lower usage, so a binary search finds it.
fn most_taken(taken: Units, is_good: impl Fn(Units) -> bool) -> Option<Units> {
    is_good(Units::ZERO).then(|| {
        let (mut good, mut bad) = (0, taken.milli());
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            match is_good(Units::from_milli(middle)) {
                true => good = middle,
                false => bad = middle,
            }
        }
        // Whole units are easier to read.
        let (exact, whole) = (Units::from_milli(good), Units::from_whole(Units::from_milli(good).floor()));
        if whole.is_zero() { exact } else { whole }
    })
}

/// Returns another position among the requests of the class, where a share of them is admitted.
fn other_position(case: &ExplainInput<'_>, outcome: &Assessment<'_>) -> Option<Remedy> {
    let class = case.classified().class;
    let shares = outcome.refused_positions().iter().filter_map(|position| {
        let by_tier =
            position.quota.tiers_for(class).map_or(Share::NONE, |ladder| ladder.shed_share(position.shedding.tier));
        let by_plan = position.planned.and_then(|planned| planned.allowance).filter(|_| case.found.is_some());
        let by_plan = by_plan.map_or(Share::NONE, |allotment| allotment.rate.share.complement());
        let share = by_tier.max(by_plan);
        (share > Share::NONE && share < Share::ALL).then_some(share)
    });
    let through = shares.max()?.complement();
    let in_turn =
        ExplainInput { positions: case.positions.iter().copied().map(pacing::at_next_admit).collect(), ..case.clone() };
    AdmitChance::of(&in_turn, class)?;
    let says =
        format!("another position among the requests of its class, of which {}% are admitted now", percent(through));
    Some(Remedy::new(ChangeKind::Position, says).with("let_through", through.ratio()))
}

/// Returns a retry at a later time, if it would admit the request.
fn retry_later<'a>(case: &ExplainInput<'a>, outcome: &Assessment<'a>, refusal: &Refusal) -> Option<Remedy> {
    let class = case.classified().class;
    let back = case.now + refusal.wait;
    let (at, says, later) = match refusal.reason {
        Reason::Bucket => {
            (back, "a retry once its bucket has a token again", ExplainInput { now: back, ..case.clone() })
        }
        Reason::Tier | Reason::Quota => {
            let at = renewed_at(case)?;
            (at, "a retry once the quota is renewed", ExplainInput { now: at, ..case.clone() }.with_used(|_| None))
        }
        Reason::Ledger => (back, "a retry once the ledger has leased more", case.clone().with_ledger_open()),
        Reason::Pacing => {
            // By then its pacing bucket has more tokens, and the admit share may include the request.
            let positions = outcome.refused_positions().to_vec();
            let later = ExplainInput { now: back, positions, ..case.clone() };
            (back, "a retry once the plan has more units for its class, unless other requests use them first", later)
        }
        Reason::Blocked | Reason::Throttle | Reason::Backoff => return None,
    };
    let by_calendar = matches!(refusal.reason, Reason::Tier | Reason::Quota);
    let remedy = || Remedy::new(ChangeKind::Time, says).with("at", moment(at));
    let is_enough = AdmitChance::of(&later, class)? == AdmitChance::Always;
    is_enough.then(|| match zone_of(case).filter(|_| by_calendar) {
        Some(zone) => remedy().with("zone", zone),
        None => remedy(),
    })
}

/// Returns the time zone in which the windows of the refusing quotas are renewed, if they have one.
fn zone_of(case: &ExplainInput<'_>) -> Option<String> {
    let class = case.classified().class;
    let refusing = case.positions.iter().find(|position| !admits(case, class, **position))?;
    refusing.quota.window.zone().map(str::to_owned)
}

/// Returns when all refusing quotas have been renewed; `None` if one of them has a sliding window.
fn renewed_at(case: &ExplainInput<'_>) -> Option<Timestamp> {
    let class = case.classified().class;
    let refusing = case.positions.iter().filter(|position| !admits(case, class, **position));
    let renewed_at =
        |position: &QuotaSnapshot<'_>| (position.quota.window.lookback() == 0).then_some(position.resets_at);
    refusing.map(renewed_at).collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// Formats a time, rounded up to whole seconds so that a retry at this time is not too early.
fn moment(at: Timestamp) -> String {
    rfc3339(Timestamp::from_seconds(ceil_seconds(at.saturating_duration_since(Timestamp::default()))))
}

/// Returns a lower cost that the remaining units cover, if there are some.
fn lower_cost(case: &ExplainInput<'_>) -> Option<Remedy> {
    let class = case.classified().class;
    let [position] = case.positions.as_slice() else { return None };
    let left = position.limit.saturating_sub(position.taken);
    if left.is_zero() || left >= position.cost {
        return None;
    }
    let cheap = ExplainInput { positions: vec![QuotaSnapshot { cost: left, ..*position }], ..case.clone() };
    let quota = &position.quota.name;
    let through = AdmitChance::of(&cheap, class)?;
    let says = format!("a cost of {} of {quota} at most{through}", amount(left));
    Some(Remedy::new(ChangeKind::Cost, says).with("cost_at_most", left.as_f64()))
}

/// Returns the other classes of which the request would be admitted.
fn other_class(case: &ExplainInput<'_>) -> Option<Remedy> {
    let own = case.classified().class;
    let all = (0..case.known.rules().classes.len()).map(|place| ClassId(place as u16));
    let anew = ExplainInput { level: BucketState::default(), ..case.clone() };
    let classes: Vec<&str> = all
        .filter(|&class| class != own && AdmitChance::of(&anew, class) == Some(AdmitChance::Always))
        .map(|class| case.known.class_name(class))
        .collect();
    let own = case.known.class_name(own);
    let says = format!("the class {} instead of {own}", any_of(&classes));
    (!classes.is_empty()).then(|| Remedy::new(ChangeKind::Class, says).with("classes", classes))
}

/// Extent to which a change admits requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AdmitChance {
    Always,
    Sometimes,
}

impl AdmitChance {
    /// Returns the chance of admission if the client were of `class`; `None` if there is none.
    fn of(case: &ExplainInput<'_>, class: ClassId) -> Option<Self> {
        let admits = |past: &History| matches!(case.decide(class, *past).0, Verdict::Admit { .. });
        let pasts = case.histories();
        match (pasts.iter().all(admits), pasts.iter().any(admits)) {
            (true, _) => Some(Self::Always),
            (false, true) => Some(Self::Sometimes),
            (false, false) => None,
        }
    }
}

impl fmt::Display for AdmitChance {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => Ok(()),
            Self::Sometimes => out.write_str(", with part of its requests admitted now"),
        }
    }
}
