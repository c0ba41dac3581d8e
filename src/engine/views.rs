//! What the engine shows of itself, for metrics, the admin API and the dashboard.

use super::quota::QuotaState;
use super::{Admission, Engine, StableClassId};
use crate::policy::identity::ClientKey;
use crate::policy::pacing::{PacingMode, Role};
use crate::policy::quota::Quota;
use crate::policy::tier::Share;
use crate::policy::{ClassId, OperatorId, QuotaId, Reason, Timestamp, Units};
use std::time::Duration;

/// One quota as it stands.
#[derive(Clone, Debug)]
pub struct QuotaView {
    /// Its name.
    pub name: String,
    /// Units that were bought for the window.
    pub limit: Units,
    /// False: it refuses nobody, and may be overspent.
    pub enforce: bool,
    /// Units that are settled, by all gates.
    pub used: Units,
    /// Units that are set aside for requests of this gate under way.
    pub reserved: Units,
    /// What the origin said was spent beyond the limit, since the process began.
    pub overrun: Units,
    /// Units that count as spent since a gate died, though nobody knows whether they were; since the process began.
    pub lost: Units,
    /// What the origin has counted beyond what is counted here, in thousandths; below zero where it has counted less.
    pub drift: i64,
    /// Nothing is let through before this moment: the origin has said so.
    pub closed_until: Option<Timestamp>,
    /// When the window began.
    pub window_start: Timestamp,
    /// When it ends.
    pub window_end: Timestamp,
    /// How it is spread over its window, if it is.
    pub plan: Option<PlanView>,
    /// Each class of the rules in force.
    pub by_class: Vec<ClassView>,
}

/// The plan of one quota, as it was last made.
#[derive(Clone, Copy, Debug)]
pub struct PlanView {
    /// What it goes by.
    pub forecast: PacingMode,
    /// What would be taken by now, had it been followed from the beginning.
    pub planned: Units,
    /// Units that are put aside for those served first.
    pub earmarked: Units,
}

/// What a plan has for one class.
#[derive(Clone, Debug)]
pub struct ClassPlan {
    /// The share of its requests that is served; `None` for a class that is served first.
    pub admit_share: Option<Share>,
    /// What it may take at once; `None` for a class that is served first.
    pub tokens: Option<Units>,
    /// What that gains in an hour; `None` for a class that is served first.
    pub refill_per_hour: Option<Units>,
    /// Units that it is expected to ask for in each of the next 24 hours, from now on.
    pub next_hours: Vec<f64>,
}

/// One class in one quota.
#[derive(Clone, Debug)]
pub struct ClassView {
    /// Its name.
    pub class: String,
    /// Units charged since the process began.
    pub charged: Units,
    /// The share of its requests that its tier refuses now.
    pub shed: Share,
    /// How many of its tiers have been entered.
    pub tier: u8,
    /// Units that the guard has let through since the process began.
    pub guard_admitted: Units,
    /// What the plan has for it, where there is one and the class may have anything.
    pub plan: Option<ClassPlan>,
}

/// One client that has been refused.
#[derive(Clone, Debug)]
pub struct ClientView {
    /// Its address or network, or what else says who pays; never a secret.
    pub key: String,
    /// Its class.
    pub class: String,
    /// How often it was refused since it was last forgotten.
    pub refused: u32,
    /// Tokens left in its bucket, if it has one.
    pub tokens: Option<u32>,
    /// What of its own would refuse it now: its bucket, or a block of its class. Tiers and quotas are not its own.
    pub limited_by: Option<Reason>,
    /// How long until that is over by itself; a block never is.
    pub limited_for: Option<Duration>,
}

/// There is no quota of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownQuota;

impl Engine {
    /// How many clients are remembered.
    pub fn clients_tracked(&self) -> usize {
        self.clients.tracked()
    }

    /// For how long the page that has been refused longest to each verified crawler has been, as of its last refusal.
    pub fn longest_refusals(&self) -> Vec<(OperatorId, Duration)> {
        self.refused_pages.longest_by_operator()
    }

    /// How many clients have been forgotten.
    pub fn clients_evicted(&self) -> u64 {
        self.clients.evicted()
    }
}

impl Admission {
    /// What all admissions share.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Every quota of the rules in force, in their order.
    pub fn quotas(&self, now: Timestamp) -> Vec<QuotaView> {
        self.accounts
            .iter()
            .zip(&self.rules.quotas)
            .map(|(account, quota)| {
                let book = account.lock_at(now);
                let by_class = self.rules.classes.iter().enumerate().map(|(place, class)| {
                    let slot = self.class_ids[place];
                    let kept = book.classes().get(usize::from(slot)).copied().unwrap_or_default();
                    let ladder = quota.class_tiers.get(place).and_then(Option::as_ref).map(|of_class| &of_class.ladder);
                    let counted = book.used_for_tiers(quota);
                    let tier = ladder.map_or(0, |ladder| ladder.tier_at(kept.shedding.tier, counted));
                    let shed = ladder.map_or(Share::NONE, |ladder| ladder.shed_share(tier));
                    ClassView {
                        class: class.name.clone(),
                        charged: kept.charged,
                        shed,
                        tier,
                        guard_admitted: kept.guarded,
                        plan: class_plan(&book, quota, ClassId(place as u16), slot),
                    }
                });
                let span = book.effective_span();
                QuotaView {
                    name: account.name().to_owned(),
                    limit: book.limit(),
                    enforce: quota.enforce,
                    used: book.used(),
                    reserved: book.current.reserved,
                    overrun: book.overrun,
                    lost: book.lost,
                    drift: book.drift,
                    closed_until: book.exhausted_until(),
                    window_start: span.start,
                    window_end: span.end,
                    plan: plan(&book, quota),
                    by_class: by_class.collect(),
                }
            })
            .collect()
    }

    /// The `count` most refused clients, most refused first; `name` is that of an operator.
    pub fn top_clients<'a>(
        &self,
        count: usize,
        name: impl Fn(OperatorId) -> &'a str,
        now: Timestamp,
    ) -> Vec<ClientView> {
        let view = |(key, slot, state): (ClientKey, StableClassId, super::clients::ClientState)| {
            let class = self.rules.classes.get(self.class_ids.iter().position(|&of_class| of_class == slot)?)?;
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
                refused: state.refused(),
                tokens,
                limited_by,
                limited_for,
            })
        };
        self.engine.clients.most_refused(count).into_iter().filter_map(view).collect()
    }

    /// The plan of one quota, as it was last made; `None` for one that is not paced.
    pub fn plan(&self, quota: QuotaId, now: Timestamp) -> Option<PlanView> {
        let rules = &self.rules.quotas[usize::from(quota.0)];
        rules.pacing.as_ref()?;
        plan(&self.account(quota).lock_at(now), rules)
    }

    /// Corrects by hand what a quota has used; returns what it was and what it is now.
    pub fn set_used(&self, quota: &str, used: Units, now: Timestamp) -> Result<(Units, Units), UnknownQuota> {
        let account = self.accounts.iter().find(|account| account.name() == quota).ok_or(UnknownQuota)?;
        Ok(account.set_used(used, now))
    }

    /// Brings what is taken of a quota to what a log says; true where the books said something else.
    pub fn sync_used_from_log(&self, quota: QuotaId, taken: Units, now: Timestamp) -> bool {
        self.account(quota).sync_used_from_log(taken, now)
    }
}

fn plan(book: &QuotaState, quota: &Quota) -> Option<PlanView> {
    let (pacing, pacer) = quota.pacing.as_ref().zip(book.pacer())?;
    Some(PlanView { forecast: pacing.forecast, planned: pacer.planned(), earmarked: pacer.earmarked() })
}

fn class_plan(book: &QuotaState, quota: &Quota, class: ClassId, slot: StableClassId) -> Option<ClassPlan> {
    let (pacing, pacer) = quota.pacing.as_ref().zip(book.pacer())?;
    let paced = pacer.classes().get(usize::from(slot));
    let (admit_share, allotment) = match pacing.role(class) {
        Role::Unpaced => (None, None),
        Role::Paced(_) => {
            (Some(paced.map_or(Share::ALL, |class| class.share())), paced.and_then(|class| class.allotment))
        }
        Role::Excluded => return None,
    };
    Some(ClassPlan {
        admit_share,
        tokens: allotment.map(|allotment| allotment.bucket.balance()),
        refill_per_hour: allotment.map(|allotment| allotment.rate.refill_per_hour),
        next_hours: book.hourly_forecast(slot),
    })
}
