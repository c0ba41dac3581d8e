//! What would have let a request through: the rules are asked again with one thing changed, and what helps is told.

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

/// All that would have been enough, each by itself; nothing, where it is let through whatever came before.
pub(super) fn remedies(case: &ExplainInput<'_>, outcome: &Assessment<'_>) -> Vec<Remedy> {
    let Some(refusal) = outcome.refusal() else { return Vec::new() };
    let is_paced = refusal.reason == Reason::Pacing;
    if matches!(refusal.reason, Reason::Throttle | Reason::Backoff) || (is_paced && outcome.is_as_logged) {
        let says = "coming back when it was told to, at the earliest";
        let later = Remedy::new(ChangeKind::Time, says).with("at", moment(case.now + refusal.wait));
        let unpaced = other_class(case).filter(|_| is_paced);
        return iter::once(later).chain(unpaced).collect();
    }
    // A lease that has run out is made up for by another, whatever is used.
    let less_used = lower_usage(case).filter(|_| refusal.reason != Reason::Ledger);
    let found =
        [proof(case), less_used, other_position(case, outcome), retry_later(case, outcome, refusal), lower_cost(case)];
    found.into_iter().flatten().chain(other_class(case)).collect()
}

/// Proof of what it says that it is.
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
    let ways = [(OperatorProofMethod::Address, "its published ranges"), (OperatorProofMethod::Dns, "its names in DNS")];
    let ways = ways.into_iter().filter(|(method, _)| case.known.operators.supports(claimed, *method));
    let ways: Vec<&str> = ways.map(|(_, way)| way).collect();
    let way = if ways.is_empty() { "a signature".to_owned() } else { ways.join(" or ") };
    let class = case.known.class_name(class);
    let says = format!("proof by {way} that it is {operator}: then it is of the class {class}{through}");
    Some(Remedy::new(ChangeKind::Proof, says).with("operator", operator).with("class", class))
}

/// Less used of the quotas that said no.
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

/// Whether one quota alone lets the request pass, however the requests before it have gone.
fn admits<'a>(case: &ExplainInput<'a>, class: ClassId, position: QuotaSnapshot<'a>) -> bool {
    let alone = ExplainInput { positions: vec![position], level: BucketState::default(), ..case.clone() };
    AdmitChance::of(&alone, class) == Some(AdmitChance::Always)
}

/// The most below `taken` that is good, if anything is: with less taken, no rule gets stricter.
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
        // People count in whole units.
        let (exact, whole) = (Units::from_milli(good), Units::from_whole(Units::from_milli(good).floor()));
        if whole.is_zero() { exact } else { whole }
    })
}

/// Another turn, where a share is let through.
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
    let says = format!("its turn: {}% of the requests of its class are let through now", percent(through));
    Some(Remedy::new(ChangeKind::Position, says).with("let_through", through.ratio()))
}

/// Coming back at a time.
fn retry_later<'a>(case: &ExplainInput<'a>, outcome: &Assessment<'a>, refusal: &Refusal) -> Option<Remedy> {
    let class = case.classified().class;
    let back = case.now + refusal.wait;
    let (at, says, later) = match refusal.reason {
        Reason::Bucket => {
            (back, "coming back once its bucket holds a token again", ExplainInput { now: back, ..case.clone() })
        }
        Reason::Tier | Reason::Quota => {
            let at = renewed_at(case)?;
            (at, "coming back once the quota is renewed", ExplainInput { now: at, ..case.clone() }.with_used(|_| None))
        }
        Reason::Ledger => (back, "coming back once the ledger has handed out more", case.clone().with_ledger_open()),
        Reason::Pacing => {
            // By then its purse holds more, and the share may have come to it.
            let positions = outcome.refused_positions().to_vec();
            let later = ExplainInput { now: back, positions, ..case.clone() };
            (back, "coming back when the plan has more for its class, if nobody of it takes that before", later)
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

/// The zone by whose days and hours the quotas that say no are renewed, if there is one.
fn zone_of(case: &ExplainInput<'_>) -> Option<String> {
    let class = case.classified().class;
    let refusing = case.positions.iter().find(|position| !admits(case, class, **position))?;
    refusing.quota.window.zone().map(str::to_owned)
}

/// When all quotas that say no begin anew; some never do at once.
fn renewed_at(case: &ExplainInput<'_>) -> Option<Timestamp> {
    let class = case.classified().class;
    let refusing = case.positions.iter().filter(|position| !admits(case, class, **position));
    let renewed_at =
        |position: &QuotaSnapshot<'_>| (position.quota.window.lookback() == 0).then_some(position.resets_at);
    refusing.map(renewed_at).collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// From this moment on, in whole seconds: who comes then does not come too early.
fn moment(at: Timestamp) -> String {
    rfc3339(Timestamp::from_seconds(ceil_seconds(at.saturating_duration_since(Timestamp::default()))))
}

/// A request that costs what is left.
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
    let says = format!("a request that costs {} of {quota} at most{through}", amount(left));
    Some(Remedy::new(ChangeKind::Cost, says).with("cost_at_most", left.as_f64()))
}

/// Being of another class.
fn other_class(case: &ExplainInput<'_>) -> Option<Remedy> {
    let own = case.classified().class;
    let all = (0..case.known.rules().classes.len()).map(|place| ClassId(place as u16));
    let anew = ExplainInput { level: BucketState::default(), ..case.clone() };
    let classes: Vec<&str> = all
        .filter(|&class| class != own && AdmitChance::of(&anew, class) == Some(AdmitChance::Always))
        .map(|class| case.known.class_name(class))
        .collect();
    let own = case.known.class_name(own);
    let says = format!("being of the class {}, not {own}", any_of(&classes));
    (!classes.is_empty()).then(|| Remedy::new(ChangeKind::Class, says).with("classes", classes))
}

/// How many of the requests that are so are let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AdmitChance {
    Always,
    Sometimes,
}

impl AdmitChance {
    /// `None` where none is, were its client of `class`.
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
            Self::Sometimes => out.write_str(", of which some are let through now"),
        }
    }
}
