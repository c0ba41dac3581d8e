//! What a class may take at this moment: it fills at the planned rate up to the burst, and every request pays.
//!
//! Beside it goes a share, which is carried out exactly: of any run of n requests n times the share is served, give or
//! take one. A share of everything leaves the purse alone to decide.

use crate::policy::tier::{Share, ShedState};
use crate::policy::time::Timestamp;
use crate::policy::units::Units;
use std::time::Duration;

/// What the plan has for one class now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacingRate {
    /// The share of its requests that is served.
    pub share: Share,
    /// The share that will have been served in the end: of a purse that is empty many want the next unit.
    pub long_run_share: Share,
    /// Units that its purse gains in an hour.
    pub refill_per_hour: Units,
    /// The most that its purse holds.
    pub burst: Units,
}

/// What a class may take, and what it has of that at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacingAllowance {
    /// By the plan.
    pub rate: PacingRate,
    /// At this moment.
    pub bucket: PacingBucket,
}

/// The purse of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacingBucket {
    /// Thousandths of a unit; below zero after a request that cost more than the purse can hold.
    milli: i64,
    /// Up to when it has been filled.
    refilled_at: Timestamp,
    shedding: ShedState,
}

/// Until when a class is told to wait that is refused by its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacingRefused(pub Duration);

/// By then there is another plan.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// A class served in part is told to come back so that about one request a minute of each client gets through.
const PARTIAL_RETRY_INTERVAL: Duration = Duration::from_secs(60);

const NANOSECONDS_PER_HOUR: u128 = 3_600_000_000_000;

impl PacingBucket {
    /// A full purse.
    pub fn full(rate: &PacingRate, now: Timestamp) -> Self {
        Self { milli: milli(rate.burst), refilled_at: now, shedding: ShedState::default() }
    }

    /// What was in it when it was last looked into; nothing, where it owes.
    pub fn balance(&self) -> Units {
        Units::from_milli(u64::try_from(self.milli).unwrap_or(0))
    }

    /// Counts one request of `cost` against the offer: the purse after it, and whether the request is refused. It may go
    /// before so many others of its class, which are refused in its place. A request that is let through for other reasons
    /// pays as well ([`PacingBucket::take`]).
    pub fn try_take(
        mut self,
        rate: &PacingRate,
        cost: Units,
        before: u32,
        now: Timestamp,
    ) -> (Self, Result<(), PacingRefused>) {
        self.refill(rate, now);
        let (is_refused, shedding) = match rate.share {
            // Nobody is refused in another's place any more.
            Share::ALL => (false, ShedState::default()),
            share => self.shedding.record_borrowing(share.complement(), before),
        };
        self.shedding = shedding;
        let needed = milli(cost.min(rate.burst));
        let has = self.milli.saturating_add(needed.saturating_mul(i64::from(before)));
        let said = match is_refused {
            true => Err(PacingRefused(time_to_next_admit(rate.long_run_share))),
            false if has < needed => {
                let refilled_at = refill_time(needed - self.milli, rate.refill_per_hour);
                Err(PacingRefused(refilled_at.max(time_to_next_admit(rate.long_run_share))))
            }
            false => Ok(()),
        };
        (self, said)
    }

    /// As it is at `now`.
    #[must_use]
    pub fn refilled(mut self, rate: &PacingRate, now: Timestamp) -> Self {
        self.refill(rate, now);
        self
    }

    /// The same, where the share has just refused one: the next is served.
    #[must_use]
    pub fn assuming_turn(self) -> Self {
        Self { shedding: ShedState::default(), ..self }
    }

    /// Takes `cost` out.
    pub fn take(&mut self, cost: Units) {
        self.milli = self.milli.saturating_sub(milli(cost));
    }

    /// Whole thousandths only; what is left of the time counts towards the next.
    fn refill(&mut self, offer: &PacingRate, now: Timestamp) {
        let passed = now.saturating_duration_since(self.refilled_at).as_nanos();
        let rate = u128::from(offer.refill_per_hour.milli());
        let gained = passed * rate / NANOSECONDS_PER_HOUR;
        let room = milli(offer.burst).saturating_sub(self.milli);
        match i64::try_from(gained) {
            Ok(gained) if gained < room => {
                self.milli += gained;
                let used =
                    (u128::from(gained.unsigned_abs()) * NANOSECONDS_PER_HOUR).checked_div(rate).unwrap_or(passed);
                self.refilled_at += Duration::from_nanos(u64::try_from(used).unwrap_or(u64::MAX));
            }
            _ => {
                self.milli = self.milli.max(milli(offer.burst));
                self.refilled_at = self.refilled_at.max(now);
            }
        }
        // A clock that was set back does not keep it waiting until it has come round again.
        self.refilled_at = self.refilled_at.min(now);
    }
}

fn refill_time(missing: i64, refill_per_hour: Units) -> Duration {
    let missing = u128::from(missing.unsigned_abs()) * NANOSECONDS_PER_HOUR;
    let nanoseconds = missing.div_ceil(u128::from(refill_per_hour.milli()).max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX)).min(MAX_WAIT)
}

fn time_to_next_admit(long_run_share: Share) -> Duration {
    if long_run_share == Share::ALL {
        return Duration::ZERO;
    }
    let wait = Duration::try_from_secs_f64(PARTIAL_RETRY_INTERVAL.as_secs_f64() / long_run_share.ratio());
    wait.unwrap_or(MAX_WAIT).min(MAX_WAIT)
}

fn milli(units: Units) -> i64 {
    i64::try_from(units.milli()).unwrap_or(i64::MAX)
}
