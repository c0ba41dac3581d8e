//! Decides whether a request is admitted: evaluates the rules of the gateway in their fixed order.

use super::Timestamp;
use super::bucket::{Bucket, BucketState, EmptyUntil};
use super::class::Class;
use super::crawler_guard::GuardState;
use super::exempt::Exemption;
use super::ids::{ClassId, QuotaId};
use super::pacing::PlanSnapshot;
use super::pacing::bucket::PacingRefused;
use super::quota::Quota;
use super::reason::Reason;
use super::refused_quotas::RefusedQuotas;
use super::route::Route;
use super::switches::{Switch, SwitchEffect};
use super::tier::{Share, ShedState};
use super::time::{ceil_seconds, with_spread};
use super::units::Units;
use http::StatusCode;
use std::time::Duration;

/// A classified and routed request, with everything its verdict depends on.
#[derive(Clone, Copy, Debug)]
pub struct DecisionRequest<'a> {
    /// Class of the client.
    pub class: ClassId,
    /// Settings of the class.
    pub class_rules: &'a Class,
    /// Route of the request.
    pub route: &'a Route,
    /// True if a cost of the path was learned in a quota in which its route has none.
    pub has_learned_cost: bool,
    /// Why the request is not use.
    pub exemption: Option<Exemption>,
    /// Switch of an administrator that applies to the client.
    pub switch: Option<Switch>,
    /// True if the response is a stored one, which costs nothing.
    pub has_copy: bool,
    /// True if the gateway refreshes a stored response on its own: only surplus units are for it.
    pub is_refresh: bool,
}

impl DecisionRequest<'_> {
    /// Returns true if the request costs nothing. An exempt request is free on every route, since it is admitted when
    /// no units are left.
    pub fn is_free(&self) -> bool {
        self.exemption.is_some() || self.has_copy || (self.route.is_free() && !self.has_learned_cost)
    }

    /// Returns the bucket that the request takes a token from: that of its exemption or of its class.
    pub fn bucket(&self) -> Option<&Bucket> {
        if self.bounded_exemption().is_some() {
            return Some(&Exemption::BUCKET).filter(|_| !self.is_allowed());
        }
        let bucket = self.class_rules.bucket.as_ref().filter(|_| !self.is_allowed() && !self.is_refresh);
        bucket.filter(|bucket| !(bucket.costed_only && self.is_free()))
    }

    /// Returns the exemption of a request that takes no token of its class.
    pub fn bounded_exemption(&self) -> Option<Exemption> {
        self.exemption.filter(|exemption| exemption.is_bounded())
    }

    /// Returns the switch that the decision heeds. Maintenance does not stop validations: a certificate must not expire
    /// meanwhile.
    fn effective_switch(&self) -> Option<Switch> {
        let is_validation = self.exemption == Some(Exemption::AcmeChallenge);
        self.switch.filter(|switch| !is_validation || switch.effect != SwitchEffect::Maintenance)
    }

    /// Returns true if an administrator allows the request: only missing units refuse it.
    fn is_allowed(&self) -> bool {
        self.switch.is_some_and(|switch| switch.effect == SwitchEffect::Allow)
    }

    /// Returns true if refusals by the tiers of `quota` are enforced.
    pub fn enforces_tiers(&self, quota: &Quota) -> bool {
        self.class_rules.enforce && quota.enforced_for(self.class)
    }
}

/// State of one quota at the decision on a request.
#[derive(Clone, Copy, Debug)]
pub struct QuotaSnapshot<'a> {
    /// Index of the quota.
    pub id: QuotaId,
    /// Settings of the quota.
    pub quota: &'a Quota,
    /// Expected cost of the request.
    pub cost: Units,
    /// Units settled and reserved, over all instances.
    pub taken: Units,
    /// Limit of the window, in units.
    pub limit: Units,
    /// Units that the ledger has leased so far; at most the limit.
    pub leased: Units,
    /// Units of the window that the client has used; `None` without a limit per client.
    pub client_used: Option<Units>,
    /// Time at which the client has units of its share again: that of the quota, unless it slides.
    pub client_resets_at: Timestamp,
    /// End of the window; of a sliding one, the time at which the request can be paid or more units are left.
    pub resets_at: Timestamp,
    /// Tier state of the client's class.
    pub shedding: ShedState,
    /// Pacing plan for the class, if the quota is paced.
    pub plan: Option<PlanSnapshot>,
    /// Guard state of the operator, if the client is a guarded crawler.
    pub guard_state: Option<GuardState>,
    /// Set by [`decide`]: true if a tier or the plan refused the request and the crawler guard admitted it.
    pub guard_admitted: bool,
}

/// Decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request is admitted.
    Admit {
        /// Bucket after the request.
        bucket_state: BucketState,
        /// First rule in shadow mode that would have refused the request.
        shadow: Option<Reason>,
    },
    /// The request is refused.
    Refuse(Refusal),
}

impl Verdict {
    /// Returns the refusal; `None` if the request is admitted.
    pub const fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Admit { .. } => None,
            Self::Refuse(refusal) => Some(refusal),
        }
    }

    /// Returns the first rule in shadow mode that would have refused the admitted request.
    pub const fn shadow(&self) -> Option<Reason> {
        match self {
            Self::Admit { shadow, .. } => *shadow,
            Self::Refuse(_) => None,
        }
    }

    /// Returns true if the only reason for the refusal is a missing lease.
    pub const fn waits_for_lease(&self) -> bool {
        matches!(self, Self::Refuse(Refusal { reason: Reason::Ledger, .. }))
    }
}

/// Reason for a refusal, and the time to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Rule that refused the request.
    pub reason: Reason,
    /// Quotas that refused the request; empty if another rule did.
    pub quotas: RefusedQuotas,
    /// Time until a retry may be admitted.
    pub wait: Duration,
}

/// One check of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The switch that applies to the client does not refuse the request. Reached only if there is a switch.
    Switch,
    /// The class is not blocked.
    Block,
    /// The bucket of the client has a token.
    Bucket,
    /// The client has units of its share of the quota left.
    ClientShare(QuotaId),
    /// The tier of the class in the quota admits the request.
    Tier(QuotaId),
    /// The pacing plan of the quota admits the request.
    Pacing(QuotaId),
    /// The quota has enough units left.
    Remaining(QuotaId),
}

/// Reason for which a check passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The rule does not refuse the request.
    Rule,
    /// The rule refuses the request, but the crawler guard admits it.
    Guard,
    /// Not evaluated: the tier of the quota has refused the request, or a switch allows it.
    Skipped,
}

/// Result of one check of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// The check.
    pub check: Check,
    /// True if a refusal is enforced.
    pub enforced: bool,
    /// Result of the check.
    pub result: Result<Pass, Reason>,
}

/// Observer of a decision. `()` ignores all results.
pub trait CheckObserver {
    /// Receives the result of each check that the decision reaches, in order.
    fn checked(&mut self, _result: CheckResult) {}
}

impl CheckObserver for () {}

impl CheckObserver for Vec<CheckResult> {
    fn checked(&mut self, result: CheckResult) {
        self.push(result);
    }
}

/// `Retry-After` of a blocked client.
const BLOCKED_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// `Retry-After` during maintenance without an announced end.
const MAINTENANCE_RETRY_AFTER: Duration = Duration::from_secs(600);

/// `Retry-After` while a lease is used up: a new one takes milliseconds, unless the ledger is unavailable.
const LEDGER_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Interval at which a client of a partly shed class gets about one request admitted.
const PARTIAL_SHED_INTERVAL: Duration = Duration::from_secs(60);

/// Evaluates all rules in order; the first refusal decides.
///
/// Updates tier state, pacing bucket and `guard_admitted` in `snapshots` if the request reaches the quotas. A refusal
/// changes no other state.
pub fn decide(
    request: &DecisionRequest<'_>,
    bucket_state: BucketState,
    snapshots: &mut [QuotaSnapshot<'_>],
    now: Timestamp,
) -> Verdict {
    decide_observed(request, bucket_state, snapshots, now, &mut ())
}

/// Decides like [`decide`], and passes the result of each check to `observer`.
pub fn decide_observed(
    request: &DecisionRequest<'_>,
    bucket_state: BucketState,
    snapshots: &mut [QuotaSnapshot<'_>],
    now: Timestamp,
    observer: &mut impl CheckObserver,
) -> Verdict {
    if request.exemption.is_some() && request.bounded_exemption().is_none() {
        return Verdict::Admit { bucket_state, shadow: None };
    }
    if let Some(switch) = request.effective_switch() {
        let switch_result = check_switch(switch, now);
        let result = switch_result.map(|()| Pass::Rule).map_err(|refusal| refusal.reason);
        observer.checked(CheckResult { check: Check::Switch, enforced: true, result });
        if let Err(refusal) = switch_result {
            return Verdict::Refuse(refusal);
        }
    }
    if request.is_refresh {
        return match check_surplus(snapshots, now, observer) {
            Ok(()) => Verdict::Admit { bucket_state, shadow: None },
            Err(refusal) => Verdict::Refuse(refusal),
        };
    }
    if request.is_allowed() {
        return match check_quotas(request, snapshots, now, observer) {
            Ok(shadow) => Verdict::Admit { bucket_state, shadow },
            Err(refusal) => Verdict::Refuse(refusal),
        };
    }
    let mut shadow = None;
    let enforced = request.class_rules.enforce;

    let block_result = check_block(request);
    let result = block_result.map(|()| Pass::Rule).map_err(|refusal| refusal.reason);
    observer.checked(CheckResult { check: Check::Block, enforced, result });
    if let Err(refusal) = block_result {
        if enforced {
            return Verdict::Refuse(refusal);
        }
        shadow = shadow.or(Some(refusal.reason));
    }

    let mut after = bucket_state;
    let bucket_result = check_bucket(request, bucket_state, now);
    let result = bucket_result.map(|_| Pass::Rule).map_err(|refusal| refusal.reason);
    observer.checked(CheckResult { check: Check::Bucket, enforced, result });
    match bucket_result {
        Ok(state) => after = state,
        Err(refusal) if enforced => return Verdict::Refuse(refusal),
        Err(refusal) => shadow = shadow.or(Some(refusal.reason)),
    }

    match check_client_shares(request, snapshots, now, observer) {
        Ok(share_shadow) => shadow = shadow.or(share_shadow),
        Err(refusal) => return Verdict::Refuse(refusal),
    }

    match check_quotas(request, snapshots, now, observer) {
        Ok(tier_shadow) => Verdict::Admit { bucket_state: after, shadow: shadow.or(tier_shadow) },
        Err(refusal) => Verdict::Refuse(refusal),
    }
}

/// Refuses the request if an administrator blocks the client, also in shadow mode, or during maintenance.
fn check_switch(switch: Switch, now: Timestamp) -> Result<(), Refusal> {
    let (reason, default_wait) = match switch.effect {
        SwitchEffect::Allow => return Ok(()),
        SwitchEffect::Block => (Reason::Blocked, BLOCKED_RETRY_AFTER),
        SwitchEffect::Maintenance => (Reason::Maintenance, MAINTENANCE_RETRY_AFTER),
    };
    let wait = switch.until.map_or(default_wait, |until| until.saturating_duration_since(now));
    Err(Refusal { reason, quotas: RefusedQuotas::NONE, wait })
}

/// Refuses the request if its class is blocked. The class of an exempt request says nothing about who needs it: a preflight
/// carries no credentials and few of the fields of a browser, and a certificate authority is a bot.
fn check_block(request: &DecisionRequest<'_>) -> Result<(), Refusal> {
    match request.class_rules.blocked && request.exemption.is_none() {
        true => Err(Refusal { reason: Reason::Blocked, quotas: RefusedQuotas::NONE, wait: BLOCKED_RETRY_AFTER }),
        false => Ok(()),
    }
}

/// Takes a token if the bucket of the class counts the request; otherwise refuses it until the next token.
fn check_bucket(
    request: &DecisionRequest<'_>,
    bucket_state: BucketState,
    now: Timestamp,
) -> Result<BucketState, Refusal> {
    let Some(bucket) = request.bucket() else { return Ok(bucket_state) };
    bucket.take(bucket_state, now).map_err(|EmptyUntil(refill_at)| Refusal {
        reason: Reason::Bucket,
        quotas: RefusedQuotas::NONE,
        wait: refill_at.saturating_duration_since(now),
    })
}

/// Refuses a refresh unless every quota has units that its plan leaves for no request. A quota without a plan has none,
/// because the demand of later requests is unknown.
fn check_surplus(
    snapshots: &[QuotaSnapshot<'_>],
    now: Timestamp,
    observer: &mut impl CheckObserver,
) -> Result<(), Refusal> {
    for (index, snapshot) in snapshots.iter().enumerate() {
        let after = snapshot.taken.saturating_add(snapshot.cost);
        let surplus = match snapshot.plan.is_some_and(|plan| after <= plan.refresh_limit) {
            true => Ok(Pass::Rule),
            false => Err((Reason::Pacing, snapshot.resets_at.saturating_duration_since(now))),
        };
        for (check, result) in
            [(Check::Pacing(snapshot.id), surplus), (Check::Remaining(snapshot.id), check_remaining(snapshot, now))]
        {
            let result_of_rule = result.map_err(|(reason, _)| reason);
            observer.checked(CheckResult { check, enforced: true, result: result_of_rule });
            if let Err((reason, wait)) = result {
                let mut quotas = RefusedQuotas::NONE;
                quotas.insert(index);
                return Err(Refusal { reason, quotas, wait });
            }
        }
    }
    Ok(())
}

/// Checks the client's share of each quota. Precedes the quotas, so that requests of a client beyond its share change
/// neither the tiers nor the plan of its class.
fn check_client_shares(
    request: &DecisionRequest<'_>,
    snapshots: &[QuotaSnapshot<'_>],
    now: Timestamp,
    observer: &mut impl CheckObserver,
) -> Result<Option<Reason>, Refusal> {
    let mut refusal: Option<Refusal> = None;
    let mut shadow = None;
    for (index, snapshot) in snapshots.iter().enumerate() {
        let limit = snapshot.quota.client_limit_of(request.class_rules);
        let Some((used, limit)) = snapshot.client_used.zip(limit) else { continue };
        let enforced = request.class_rules.enforce && snapshot.quota.enforce;
        let is_exceeded = used.saturating_add(snapshot.cost) > limit;
        let result = if is_exceeded { Err(Reason::ClientShare) } else { Ok(Pass::Rule) };
        observer.checked(CheckResult { check: Check::ClientShare(snapshot.id), enforced, result });
        if is_exceeded && !enforced {
            shadow = Some(Reason::ClientShare);
        } else if is_exceeded {
            let wait = snapshot.client_resets_at.saturating_duration_since(now);
            let none = Refusal { reason: Reason::ClientShare, quotas: RefusedQuotas::NONE, wait };
            let merged = refusal.get_or_insert(none);
            merged.quotas.insert(index);
            merged.wait = merged.wait.max(wait);
        }
    }
    refusal.map_or(Ok(shadow), Err)
}

/// Checks all quotas; every one must admit the request. Each quota counts the request, whatever the others decide; the
/// refusal with the longest wait is returned. A missing lease refuses only what no rule refuses. Tier and plan are checked
/// before the remaining units, so that a class keeps its share up to the last unit. The plan counts only requests that the
/// tier admits.
fn check_quotas(
    request: &DecisionRequest<'_>,
    snapshots: &mut [QuotaSnapshot<'_>],
    now: Timestamp,
    observer: &mut impl CheckObserver,
) -> Result<Option<Reason>, Refusal> {
    let (mut refusal, mut missing_lease): (Option<Refusal>, Option<Refusal>) = (None, None);
    let mut shadow = None;
    for (index, snapshot) in snapshots.iter_mut().enumerate() {
        let quota = snapshot.quota;
        let tier_enforced = request.enforces_tiers(quota);
        let plan_enforced = request.class_rules.enforce && quota.enforced_pacing().is_some();
        let tier_result = match request.is_allowed() {
            true => Ok(Pass::Skipped),
            false => check_tier(request.class, snapshot, now),
        };
        let plan_result = match request.is_allowed() || (tier_result.is_err() && tier_enforced) {
            true => Ok(Pass::Skipped),
            false => check_pacing(snapshot, now),
        };
        for (check, result, enforced) in [
            (Check::Tier(snapshot.id), tier_result, tier_enforced),
            (Check::Pacing(snapshot.id), plan_result, plan_enforced),
            (Check::Remaining(snapshot.id), check_remaining(snapshot, now), quota.enforce),
        ] {
            observer.checked(CheckResult { check, enforced, result: result.map_err(|(reason, _)| reason) });
            let Err((reason, wait)) = result else { continue };
            if !enforced {
                shadow = shadow.or(Some(reason));
                continue;
            }
            let of_kind = if reason == Reason::Ledger { &mut missing_lease } else { &mut refusal };
            let merged = of_kind.get_or_insert(Refusal { reason, quotas: RefusedQuotas::NONE, wait });
            merged.quotas.insert(index);
            if wait > merged.wait {
                (merged.reason, merged.wait) = (reason, wait);
            }
        }
    }
    refusal.or(missing_lease).map_or(Ok(shadow), Err)
}

/// Counts the request in the shed share of the class's current tier; refuses it if it is due.
fn check_tier(class: ClassId, snapshot: &mut QuotaSnapshot<'_>, now: Timestamp) -> Result<Pass, (Reason, Duration)> {
    let Some(tiers) = snapshot.quota.tiers_for(class) else { return Ok(Pass::Rule) };
    let tier = tiers.tier_at(
        snapshot.shedding.tier,
        snapshot.quota.used_for_tiers(snapshot.taken, snapshot.plan.map(|plan| plan.is_ahead)),
    );
    let share = tiers.shed_share(tier);
    let (is_shed, state) = ShedState { tier, ..snapshot.shedding }.record(share);
    snapshot.shedding = state;
    match is_shed {
        false => Ok(Pass::Rule),
        true if snapshot.guard_admits(GuardState::admits, now) => Ok(Pass::Guard),
        true => Err((Reason::Tier, partial_shed_wait(share).min(snapshot.resets_at.saturating_duration_since(now)))),
    }
}

/// Takes the cost from the class's pacing bucket; refuses the request if the balance does not suffice.
fn check_pacing(snapshot: &mut QuotaSnapshot<'_>, now: Timestamp) -> Result<Pass, (Reason, Duration)> {
    let Some(PlanSnapshot { allowance: Some(allowance), earmarked, .. }) = &mut snapshot.plan else {
        return Ok(Pass::Rule);
    };
    let has_spare = snapshot.taken.saturating_add(*earmarked) < snapshot.limit;
    let borrowable = snapshot.guard_state.map_or(0, |state| state.borrowable_turns(now));
    let (bucket, result) = allowance.bucket.try_take(&allowance.rate, snapshot.cost, borrowable, now);
    allowance.bucket = bucket;
    match result {
        Ok(()) => Ok(Pass::Rule),
        Err(_) if has_spare && snapshot.guard_admits(GuardState::admits_beyond_plan, now) => Ok(Pass::Guard),
        Err(PacingRefused(wait)) => Err((Reason::Pacing, wait.min(snapshot.resets_at.saturating_duration_since(now)))),
    }
}

/// Refuses the request if its cost exceeds the remaining quota or the leased units.
fn check_remaining(snapshot: &QuotaSnapshot<'_>, now: Timestamp) -> Result<Pass, (Reason, Duration)> {
    let after = snapshot.taken.saturating_add(snapshot.cost);
    if after > snapshot.limit {
        return Err((Reason::Quota, snapshot.resets_at.saturating_duration_since(now)));
    }
    // A quota in shadow mode may be overspent, so it does not wait for leases.
    match after > snapshot.leased && snapshot.quota.enforce {
        true => Err((Reason::Ledger, LEDGER_RETRY_AFTER)),
        false => Ok(Pass::Rule),
    }
}

fn partial_shed_wait(share: Share) -> Duration {
    let admit_share = 1.0 - share.ratio();
    Duration::try_from_secs_f64(PARTIAL_SHED_INTERVAL.as_secs_f64() / admit_share).unwrap_or(Duration::MAX)
}

impl Refusal {
    /// Returns the status of the response to a request of `class`.
    pub fn status(&self, class: &Class) -> StatusCode {
        match self.reason {
            // In shadow mode, the class refuses no request: an administrator blocks the client.
            Reason::Blocked if class.blocked && class.enforce => class.refuse_with,
            reason => reason.status(),
        }
    }

    /// Returns `Retry-After` of the response to a request of `class`, in seconds, at least 1. `spread` is the jitter as a
    /// fraction of the wait. Returns `None` with 401 and 403: a client with the same credentials gets them again.
    pub fn retry_after(&self, class: &Class, spread: f64) -> Option<u64> {
        let is_limited = !matches!(self.status(class), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        is_limited.then(|| ceil_seconds(with_spread(self.wait, spread)).max(1))
    }
}

impl QuotaSnapshot<'_> {
    /// Returns true if `rule` of the crawler guard admits the request just refused; records the result.
    fn guard_admits(&mut self, rule: fn(&GuardState, Units, Units, Timestamp) -> bool, now: Timestamp) -> bool {
        self.guard_admitted = self.guard_state.is_some_and(|state| rule(&state, self.cost, self.quota.limit, now));
        self.guard_admitted
    }
}

#[cfg(test)]
mod tests;
