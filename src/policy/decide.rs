//! The rules of the gate, in the order in which they are asked.

use super::Timestamp;
use super::bucket::{Bucket, BucketState, EmptyUntil};
use super::class::{Class, ClassId};
use super::crawler_guard::GuardState;
use super::pacing::PlanSnapshot;
use super::pacing::bucket::PacingRefused;
use super::quota::Quota;
use super::route::Route;
use super::tier::{Share, ShedState};
use super::time::{ceil_seconds, with_spread};
use super::units::Units;
use http::Method;
use std::time::Duration;

/// The path that is never refused to GET and HEAD: a crawler that cannot read it takes everything for allowed, or nothing.
pub const ROBOTS_TXT_PATH: &str = "/robots.txt";

/// Where the gate tells crawlers what they may do, if it is to: never refused either, for whom it concerns most is refused.
pub const CRAWL_POLICY_PATH: &str = "/.well-known/crawl-policy";

/// Returns whether a request with `method` for the normalised `path` reads robots.txt.
pub fn reads_robots_txt(method: &Method, path: &str) -> bool {
    path == ROBOTS_TXT_PATH && reads(method)
}

/// Returns whether `method` only reads: GET and HEAD.
pub fn reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// A request that has been classified and routed, with all that a verdict depends on.
#[derive(Clone, Copy, Debug)]
pub struct DecisionRequest<'a> {
    /// The client's class ...
    pub class: ClassId,
    /// ... and what the settings say of it.
    pub class_rules: &'a Class,
    /// The route of the request.
    pub route: &'a Route,
    /// The request is [never refused](super::Rules::is_exempt).
    pub never_refused: bool,
}

impl DecisionRequest<'_> {
    /// Returns whether the request costs nothing. What is never refused never does, whatever its route says: it would take
    /// what is no longer there.
    pub fn is_free(&self) -> bool {
        self.never_refused || self.route.is_free()
    }

    /// Returns the bucket of the class, where the request takes a token of it.
    pub fn bucket(&self) -> Option<&Bucket> {
        self.class_rules.bucket.as_ref().filter(|bucket| !(bucket.costed_only && self.is_free()))
    }

    /// Returns whether a refusal by the tiers of `quota` is carried out.
    pub fn enforces_tiers(&self, quota: &Quota) -> bool {
        self.class_rules.enforce && quota.enforced_for(self.class)
    }
}

/// A quota, by its place in the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuotaId(pub u16);

/// One quota as the request finds it.
#[derive(Clone, Copy, Debug)]
pub struct QuotaSnapshot<'a> {
    /// Which quota.
    pub id: QuotaId,
    /// What the settings say of it.
    pub quota: &'a Quota,
    /// What the request is expected to cost.
    pub cost: Units,
    /// Settled and reserved together, by all gates.
    pub taken: Units,
    /// What may be taken in all.
    pub limit: Units,
    /// What the ledger has handed out of it so far: at most the limit.
    pub leased: Units,
    /// When the window ends.
    pub resets_at: Timestamp,
    /// Where the client's class stands on its ladder.
    pub shedding: ShedState,
    /// What the plan has for it, where the quota is paced.
    pub planned: Option<PlanSnapshot>,
    /// How its operator has fared, where it is a crawler that is guarded.
    pub guarded: Option<GuardState>,
    /// Set by [`decide`]: its tier or the plan refused it, and the guard let it through.
    pub guard_admitted: bool,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on. `shadow` is what would have refused it, were that rule enforced.
    Admit {
        /// The bucket after it.
        level: BucketState,
        /// The first rule in shadow mode that said no.
        shadow: Option<Reason>,
    },
    /// It is turned away.
    Refuse(Refusal),
}

/// Why a request is turned away, and when to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What said no.
    pub reason: Reason,
    /// Which of the request's quotas said no, by position: bit 0 is the first.
    pub quotas: u8,
    /// How long until it makes sense to ask again.
    pub wait: Duration,
}

/// What can say no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The class is over its share of the quota.
    Tier,
    /// The quota is spent.
    Quota,
    /// The client's bucket is empty.
    Bucket,
    /// The class is blocked.
    Blocked,
    /// The origin has no room for another request.
    Throttle,
    /// The quota is not spent, but the ledger has not handed out enough of it yet.
    Ledger,
    /// The origin has complained, and is left alone for a while.
    Backoff,
    /// The class is ahead of the plan for the window.
    Pacing,
}

/// How long a blocked client is told to stay away.
const BLOCKED_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// A lease that has run out is made up for in milliseconds, unless the ledger cannot be reached.
const LEDGER_RETRY_AFTER: Duration = Duration::from_secs(1);

/// A class shed in part is told to come back so that about one request a minute of each client gets through.
const PARTIAL_SHED_INTERVAL: Duration = Duration::from_secs(60);

/// Asks every rule in order; the first that says no decides.
///
/// `positions` leave with their shedding and their purse moved on where the request came that far, and say whether the
/// guard let it through; nothing else of anyone's state is touched by a refusal.
pub fn decide(
    asked: &DecisionRequest<'_>,
    level: BucketState,
    positions: &mut [QuotaSnapshot<'_>],
    now: Timestamp,
) -> Verdict {
    if asked.never_refused {
        return Verdict::Admit { level, shadow: None };
    }
    let mut shadow = None;

    if let Err(refusal) = check_block(asked.class_rules) {
        if asked.class_rules.enforce {
            return Verdict::Refuse(refusal);
        }
        shadow = shadow.or(Some(refusal.reason));
    }

    let mut after = level;
    match bucket(asked, level, now) {
        Ok(taken) => after = taken,
        Err(refusal) if asked.class_rules.enforce => return Verdict::Refuse(refusal),
        Err(refusal) => shadow = shadow.or(Some(refusal.reason)),
    }

    match check_quotas(asked, positions, now) {
        Ok(tier_shadow) => Verdict::Admit { level: after, shadow: shadow.or(tier_shadow) },
        Err(refusal) => Verdict::Refuse(refusal),
    }
}

/// Says no to everybody of a class that is blocked.
pub fn check_block(class: &Class) -> Result<(), Refusal> {
    match class.blocked {
        true => Err(Refusal { reason: Reason::Blocked, quotas: 0, wait: BLOCKED_RETRY_AFTER }),
        false => Ok(()),
    }
}

/// Takes a token, where the class has a bucket that counts the request, or says when the next one comes.
pub fn bucket(asked: &DecisionRequest<'_>, level: BucketState, now: Timestamp) -> Result<BucketState, Refusal> {
    let Some(bucket) = asked.bucket() else { return Ok(level) };
    bucket.take(level, now).map_err(|EmptyUntil(moment)| Refusal {
        reason: Reason::Bucket,
        quotas: 0,
        wait: moment.saturating_duration_since(now),
    })
}

/// All quotas must say yes. Each counts the request against its own share, whatever the others say; the longest wait
/// is the one told. Tier and plan are asked before what is left, so that a class keeps its share up to the last unit; the
/// plan only about what the tier lets through.
fn check_quotas(
    asked: &DecisionRequest<'_>,
    positions: &mut [QuotaSnapshot<'_>],
    now: Timestamp,
) -> Result<Option<Reason>, Refusal> {
    let mut refusal: Option<Refusal> = None;
    let mut shadow = None;
    for (place, position) in positions.iter_mut().enumerate() {
        let quota = position.quota;
        let tier_counts = asked.enforces_tiers(quota);
        let plan_counts = asked.class_rules.enforce && quota.enforced_pacing().is_some();
        let by_tier = check_tier(asked.class, position, now);
        let by_plan = if by_tier.is_err() && tier_counts { Ok(()) } else { check_pacing(position, now) };
        for (said, counts) in
            [(by_tier, tier_counts), (by_plan, plan_counts), (check_remaining(position, now), quota.enforce)]
        {
            let Err((reason, wait)) = said else { continue };
            if !counts {
                shadow = shadow.or(Some(reason));
                continue;
            }
            let told = refusal.get_or_insert(Refusal { reason, quotas: 0, wait });
            told.quotas |= 1 << place.min(7);
            if wait > told.wait {
                (told.reason, told.wait) = (reason, wait);
            }
        }
    }
    refusal.map_or(Ok(shadow), Err)
}

/// Counts the request against the share that the class's tier refuses, and says no where it is its turn.
pub fn check_tier(class: ClassId, position: &mut QuotaSnapshot<'_>, now: Timestamp) -> Result<(), (Reason, Duration)> {
    let Some(ladder) = position.quota.tiers_for(class) else { return Ok(()) };
    let tier = ladder.tier_at(
        position.shedding.tier,
        position.quota.used_for_tiers(position.taken, position.planned.map(|planned| planned.is_ahead)),
    );
    let share = ladder.shed_share(tier);
    let (shed, shedding) = ShedState { tier, ..position.shedding }.record(share);
    position.shedding = shedding;
    match shed && !position.guard_admits(GuardState::admits, now) {
        true => Err((Reason::Tier, partial_shed_wait(share).min(position.resets_at.saturating_duration_since(now)))),
        false => Ok(()),
    }
}

/// Counts the request against what the plan has for its class, and says no where that is used up.
pub fn check_pacing(position: &mut QuotaSnapshot<'_>, now: Timestamp) -> Result<(), (Reason, Duration)> {
    let Some(PlanSnapshot { allowance: Some(allotment), earmarked: aside, .. }) = &mut position.planned else {
        return Ok(());
    };
    let is_spare = position.taken.saturating_add(*aside) < position.limit;
    let before = position.guarded.map_or(0, |guarded| guarded.borrowable_turns(now));
    let (purse, said) = allotment.bucket.try_take(&allotment.rate, position.cost, before, now);
    allotment.bucket = purse;
    match said {
        Err(PacingRefused(wait)) if !(is_spare && position.guard_admits(GuardState::admits_beyond_plan, now)) => {
            Err((Reason::Pacing, wait.min(position.resets_at.saturating_duration_since(now))))
        }
        _ => Ok(()),
    }
}

/// Says no where too little is left for the request, of the quota or of what the ledger has handed out.
pub fn check_remaining(position: &QuotaSnapshot<'_>, now: Timestamp) -> Result<(), (Reason, Duration)> {
    let after = position.taken.saturating_add(position.cost);
    if after > position.limit {
        return Err((Reason::Quota, position.resets_at.saturating_duration_since(now)));
    }
    // A quota in shadow may be overspent: nothing waits for its ledger.
    match after > position.leased && position.quota.enforce {
        true => Err((Reason::Ledger, LEDGER_RETRY_AFTER)),
        false => Ok(()),
    }
}

fn partial_shed_wait(share: Share) -> Duration {
    let let_through = 1.0 - share.ratio();
    Duration::try_from_secs_f64(PARTIAL_SHED_INTERVAL.as_secs_f64() / let_through).unwrap_or(Duration::MAX)
}

impl Refusal {
    /// The `Retry-After` of a client whose return is put off by `spread`, a share of its wait.
    pub fn retry_after(&self, spread: f64) -> u64 {
        ceil_seconds(with_spread(self.wait, spread)).max(1)
    }
}

impl QuotaSnapshot<'_> {
    /// Whether the guard lets through what was just refused, by its rule for what refused it.
    fn guard_admits(&mut self, rule: fn(&GuardState, Units, Units, Timestamp) -> bool, now: Timestamp) -> bool {
        self.guard_admitted = self.guarded.is_some_and(|guarded| rule(&guarded, self.cost, self.quota.limit, now));
        self.guard_admitted
    }
}

impl Reason {
    /// All reasons, in the order of their labels.
    pub const ALL: [Self; 8] = [
        Self::Tier,
        Self::Quota,
        Self::Bucket,
        Self::Blocked,
        Self::Throttle,
        Self::Ledger,
        Self::Backoff,
        Self::Pacing,
    ];

    /// Its name in logs, metrics and problem documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tier => "tier",
            Self::Quota => "quota",
            Self::Bucket => "bucket",
            Self::Blocked => "blocked",
            Self::Throttle => "throttle",
            Self::Ledger => "ledger",
            Self::Backoff => "backoff",
            Self::Pacing => "pacing",
        }
    }
}

#[cfg(test)]
mod tests;
