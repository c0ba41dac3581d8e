//! Snapshots of the engine for metrics, the admin API and the dashboard.

use super::quota::QuotaCounter;
use super::{Admission, Engine};
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::budget::{BudgetKey, CustomerSource};
use tidegate_policy::identity::ClientKey;
use tidegate_policy::pacing::{PacingMode, PacingRole};
use tidegate_policy::quota::Quota;
use tidegate_policy::quota_state::QuotaState;
use tidegate_policy::tier::{Share, Tier};
use tidegate_policy::{ClassId, OperatorId, QuotaId, Reason, StableClassId, Timestamp, Units};

/// Snapshot of one quota.
#[derive(Clone, Debug)]
pub struct QuotaView {
    /// Name of the quota.
    pub name: String,
    /// Limit of the window, in units.
    pub limit: Units,
    /// False in shadow mode: the quota refuses no request and may be overspent.
    pub enforce: bool,
    /// Units settled by all instances.
    pub used: Units,
    /// Units reserved for requests in flight of this instance.
    pub reserved: Units,
    /// Units that the origin spent beyond the limit, since the process start.
    pub overrun: Units,
    /// Number of costs that the origin reported and that were implausibly high, since the process start.
    pub implausible_costs: u64,
    /// Number of reports of the origin's own count that were ignored, since the process start, in the order of
    /// [`IgnoredReport::ALL`](crate::IgnoredReport::ALL).
    pub ignored_reports: [u64; 2],
    /// Units counted as used because an instance crashed, since the process start. Their actual usage is unknown.
    pub lost: Units,
    /// Units that the origin counts beyond the gateway's count, in milli-units; negative if it counts fewer.
    pub drift: i64,
    /// End of the exhaustion that the origin reported; requests are refused until then.
    pub closed_until: Option<Timestamp>,
    /// Start of the window.
    pub window_start: Timestamp,
    /// End of the window.
    pub window_end: Timestamp,
    /// Length of the sliding window; `None` for other windows. A sliding window has no start and no end: these are of its
    /// latest part.
    pub sliding: Option<Duration>,
    /// Pacing plan; `None` if the quota is not paced.
    pub plan: Option<PlanView>,
    /// Usage by each class of the current configuration.
    pub by_class: Vec<ClassView>,
}

/// Usage of one budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetUsage {
    /// Settled plus reserved units.
    pub used: Units,
    /// Limit of the key, in units.
    pub limit: Units,
    /// End of the window; of a sliding one, the time at which more units are left.
    pub window_end: Timestamp,
}

/// Latest pacing plan of one quota.
#[derive(Clone, Copy, Debug)]
pub struct PlanView {
    /// Forecast that the plan uses.
    pub forecast: PacingMode,
    /// Planned usage by now, if the plan had been followed from the start of the window; whole units of a large limit.
    pub planned: Units,
    /// Units earmarked for unpaced classes, at most those that remain; whole units of a large limit.
    pub earmarked: Units,
    /// Forecast demand of unpaced classes until the end of the window, with its margin, as a multiple of the units that
    /// remain; `None` if none remain.
    pub unpaced_demand_ratio: Option<f64>,
}

/// Pacing plan of one class.
#[derive(Clone, Debug)]
pub struct ClassPlan {
    /// Share of the class's demand that was admitted in the last 5 to 10 minutes, or that the plan admits if there was
    /// none; `None` for an unpaced class.
    pub admit_share: Option<Share>,
    /// Tokens in the pacing bucket, in units; `None` for an unpaced class.
    pub tokens: Option<Units>,
    /// Refill of the pacing bucket per hour, in units; `None` for an unpaced class.
    pub refill_per_hour: Option<Units>,
    /// Forecast demand in each of the next 24 hours, in units.
    pub next_hours: Vec<f64>,
}

/// Usage of one quota by one class.
#[derive(Clone, Debug)]
pub struct ClassView {
    /// Name of the class.
    pub class: String,
    /// Units charged since the process start.
    pub charged: Units,
    /// Share of the requests that the current tier refuses.
    pub shed_share: Share,
    /// Number of tiers that the class has reached.
    pub tier: u8,
    /// Tiers of the class, lowest first.
    pub tiers: Vec<Tier>,
    /// Units admitted by the crawler guard since the process start.
    pub guard_admitted: Units,
    /// Pacing plan; `None` without a plan or for an excluded class.
    pub plan: Option<ClassPlan>,
}

/// Snapshot of a client that has been refused.
#[derive(Clone, Debug)]
pub struct ClientView {
    /// Address, network or other key of the client; never a secret.
    pub key: String,
    /// Name of the class.
    pub class: String,
    /// Number of refusals since the client was last evicted.
    pub refusal_count: u32,
    /// Tokens in the bucket; `None` if the class has no bucket.
    pub tokens: Option<u32>,
    /// Reason why the client would be refused now: its bucket or a block of its class. Tiers and quotas are excluded.
    pub limited_by: Option<Reason>,
    /// Time until that limit ends; `None` for a block, which never ends by itself.
    pub limited_for: Option<Duration>,
}

/// Error: no quota has the given name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownQuota;

impl Engine {
    /// Returns the number of tracked clients.
    pub fn clients_tracked(&self) -> usize {
        self.clients.tracked_count()
    }

    /// Returns the longest refusal of a page for each verified crawler, as of its last refusal.
    pub fn longest_refusals(&self) -> Vec<(OperatorId, Duration)> {
        self.refused_pages.longest_by_operator()
    }

    /// Returns the number of evicted clients.
    pub fn clients_evicted(&self) -> u64 {
        self.clients.evicted_count()
    }
}

impl Admission {
    /// Returns the engine that all admissions share.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the name of a quota with budgets whose usage cannot be written to the state directory, so that its requests are
    /// refused; `None` if there is none.
    pub fn unrecorded_budget(&self, now: Timestamp) -> Option<&str> {
        let is_unrecorded = |counter: &&Arc<QuotaCounter>| !counter.is_recorded(&counter.lock_at(now));
        let with_budgets = self.counters.iter().zip(&self.rules.quotas).filter(|(_, quota)| quota.budget.is_some());
        with_budgets.map(|(counter, _)| counter).find(is_unrecorded).map(|counter| counter.name())
    }

    /// Returns the quotas with a budget for each customer of a listed key, in the order of the configuration.
    pub fn customer_budgets(&self) -> impl Iterator<Item = QuotaId> {
        let has_listed_customers = self.rules.customer == Some(CustomerSource::ApiKey);
        let is_of_customers = |quota: &Quota| quota.budget.as_ref().is_some_and(|it| it.per == BudgetKey::Customer);
        let quotas = self.rules.quotas.iter().enumerate();
        let quotas = quotas.filter(move |(_, quota)| has_listed_customers && is_of_customers(quota));
        quotas.map(|(index, _)| QuotaId::from_index(index))
    }

    /// Returns the units that a key has used of its budget, with its limit in `class`; `None` for a quota without budgets.
    pub fn budget_usage(&self, quota: QuotaId, class: ClassId, key: ClientKey, now: Timestamp) -> Option<BudgetUsage> {
        let (rules, counter) = (&self.rules[quota], self.counter(quota));
        let limit = rules.budget.as_ref()?.limit(class, key, rules.limit);
        let state = counter.lock_at(now);
        let used = counter.key_balance(&state, key, limit, Units::ZERO).taken;
        // Asks for what other instances have counted by the next call.
        counter.request_key_lease(&state, key, limit, Units::ZERO);
        let window_end = counter.key_renewal(&state, key, used, limit, Units::ZERO);
        Some(BudgetUsage { used, limit, window_end })
    }

    /// Returns snapshots of all quotas of the current configuration that have no budgets, in its order.
    pub fn quotas(&self, now: Timestamp) -> Vec<QuotaView> {
        self.counters
            .iter()
            .zip(&self.rules.quotas)
            .filter(|(_, quota)| quota.budget.is_none())
            .map(|(counter, quota)| {
                let state = counter.lock_at(now);
                let by_class = self.rules.classes.iter().enumerate().map(|(index, class)| {
                    let class_id = self.class_ids[index];
                    let usage = state.class(class_id);
                    let tiers =
                        quota.class_tiers.get(index).and_then(Option::as_ref).map(|class_tiers| &class_tiers.tiers);
                    let used = state.used_for_tiers(quota);
                    let tier = tiers.map_or(0, |tiers| tiers.tier_at(usage.shedding.tier, used));
                    let shed_share = tiers.map_or(Share::NONE, |tiers| tiers.shed_share(tier));
                    ClassView {
                        class: class.name.clone(),
                        charged: usage.charged,
                        shed_share,
                        tier,
                        tiers: tiers.map_or_else(Vec::new, |tiers| tiers.tiers().to_vec()),
                        guard_admitted: usage.guard_admitted,
                        plan: class_plan(&state, quota, ClassId::from_index(index), class_id),
                    }
                });
                let span = state.effective_span();
                QuotaView {
                    name: counter.name().to_owned(),
                    limit: state.limit(),
                    enforce: quota.enforce,
                    used: state.used(),
                    reserved: state.reserved(),
                    overrun: state.overrun(),
                    implausible_costs: counter.implausible_costs(),
                    ignored_reports: counter.ignored_reports().counts(),
                    lost: state.lost(),
                    drift: state.drift(),
                    closed_until: state.exhausted_until(),
                    window_start: span.start,
                    window_end: span.end,
                    sliding: quota.window.sliding_length(),
                    plan: plan(&state, quota),
                    by_class: by_class.collect(),
                }
            })
            .collect()
    }

    /// Returns the `count` clients with the most refusals, in descending order. `name` returns the name of an operator.
    pub fn top_clients<'a>(
        &self,
        count: usize,
        name: impl Fn(OperatorId) -> &'a str,
        now: Timestamp,
    ) -> Vec<ClientView> {
        let view = |(key, class_id, state): (ClientKey, StableClassId, super::clients::ClientState)| {
            let class = self.rules.classes.get(self.class_ids.iter().position(|&id| id == class_id)?)?;
            let tokens = class.bucket.map(|bucket| bucket.remaining(state.bucket_state(), now));
            let (limited_by, limited_for) = match class.bucket {
                _ if !class.enforce => (None, None),
                _ if class.blocked => (Some(Reason::Blocked), None),
                Some(bucket) if tokens == Some(0) => (
                    Some(Reason::Bucket),
                    Some(bucket.next_token_at(state.bucket_state(), now).saturating_duration_since(now)),
                ),
                _ => (None, None),
            };
            let key = key.display(&name).to_string();
            Some(ClientView {
                key,
                class: class.name.clone(),
                refusal_count: state.refusal_count(),
                tokens,
                limited_by,
                limited_for,
            })
        };
        self.engine.clients.most_refused(count).into_iter().filter_map(view).collect()
    }

    /// Returns the latest plan of one quota, or `None` if it is not paced.
    pub fn plan(&self, quota: QuotaId, now: Timestamp) -> Option<PlanView> {
        let rules = &self.rules[quota];
        rules.pacing.as_ref()?;
        plan(&self.counter(quota).lock_at(now), rules)
    }

    /// Sets the used units of a quota manually. Returns the previous and the new value.
    pub fn set_used(&self, quota: &str, used: Units, now: Timestamp) -> Result<(Units, Units), UnknownQuota> {
        // The usage of all keys together limits nothing.
        let is_settable = |counter: &&Arc<QuotaCounter>| counter.name() == quota && !counter.has_budgets();
        let counter = self.counters.iter().find(is_settable).ok_or(UnknownQuota)?;
        Ok(counter.set_used(used, now))
    }

    /// Sets the taken units of a quota to the value of a log. Returns true if the count changed.
    pub fn sync_used_from_log(&self, quota: QuotaId, taken: Units, now: Timestamp) -> bool {
        // A log has the usage of the key that paid.
        self.rules[quota].budget.is_none() && self.counter(quota).lock_at(now).sync_used_from_log(taken)
    }
}

fn plan(state: &QuotaState, quota: &Quota) -> Option<PlanView> {
    let (pacing, pacer) = quota.pacing.as_ref().zip(state.pacer())?;
    let remaining = state.limit().saturating_sub(state.taken());
    let unpaced_demand_ratio = (!remaining.is_zero()).then(|| pacer.earmarked().as_f64() / remaining.as_f64());
    let round = |estimate: Units| match state.limit() >= MIN_LIMIT_OF_WHOLE_UNITS {
        true => Units::from_whole((estimate.milli() + 500) / 1000),
        false => estimate,
    };
    Some(PlanView {
        forecast: pacing.forecast,
        planned: round(pacer.planned()),
        earmarked: round(pacer.earmarked().min(remaining)),
        unpaced_demand_ratio,
    })
}

/// Limit from which on the fractions of planned units mean nothing.
const MIN_LIMIT_OF_WHOLE_UNITS: Units = Units::from_whole(100);

fn class_plan(state: &QuotaState, quota: &Quota, class: ClassId, class_id: StableClassId) -> Option<ClassPlan> {
    let (pacing, pacer) = quota.pacing.as_ref().zip(state.pacer())?;
    let paced = pacer.classes().get(usize::from(class_id));
    let (admit_share, allotment) = match pacing.role(class) {
        PacingRole::Unpaced => (None, None),
        PacingRole::Paced(_) => {
            let admit_share = paced.map_or(Share::ALL, |class| class.admitted_share(state.latest_time()));
            (Some(admit_share), paced.and_then(|class| class.allowance))
        }
        PacingRole::Excluded => return None,
    };
    Some(ClassPlan {
        admit_share,
        tokens: allotment.map(|allotment| allotment.bucket.balance()),
        refill_per_hour: allotment.map(|allotment| allotment.rate.refill_per_hour),
        next_hours: state.hourly_forecast(class_id),
    })
}
