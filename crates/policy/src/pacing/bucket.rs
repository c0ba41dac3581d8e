//! Pacing bucket: meters the units of one class. It refills at the planned rate up to the burst; every request pays.
//!
//! An exact admit share applies in addition: of any run of n requests, n times the share are admitted, within one
//! request. With a share of all requests, only the bucket decides.

use crate::Timestamp;
use crate::tier::{Share, ShedState};
use crate::units::Units;
use std::time::Duration;

/// Current rate of one class under the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacingRate {
    /// Admit share.
    pub share: Share,
    /// Long-run admit share: many requests compete for the next unit of an empty bucket.
    pub long_run_share: Share,
    /// Units added to the bucket per hour.
    pub refill_per_hour: Units,
    /// Capacity of the bucket, in units.
    pub burst: Units,
}

/// Planned rate of a class and the state of its bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacingAllowance {
    /// Planned rate.
    pub rate: PacingRate,
    /// Current bucket.
    pub bucket: PacingBucket,
}

/// Pacing bucket of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacingBucket {
    /// Balance in milli-units; negative after a request that cost more than the capacity.
    balance_milli: i64,
    /// Time of the last refill.
    refilled_at: Timestamp,
    shedding: ShedState,
}

/// Refusal by the pacing plan, with the time to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacingRefused(pub Duration);

/// Maximum wait; the plan changes before.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// Interval at which a client of a partly admitted class gets about one request admitted.
const PARTIAL_RETRY_INTERVAL: Duration = Duration::from_secs(60);

const NANOSECONDS_PER_HOUR: u128 = 3_600_000_000_000;

impl PacingBucket {
    /// Creates a full bucket.
    pub fn full(rate: &PacingRate, now: Timestamp) -> Self {
        Self { balance_milli: milli(rate.burst), refilled_at: now, shedding: ShedState::default() }
    }

    /// Returns the balance at the last refill; zero if negative.
    pub fn balance(&self) -> Units {
        Units::from_milli(u64::try_from(self.balance_milli).unwrap_or(0))
    }

    /// Counts one request of `cost` against the rate. Returns the bucket after it, and whether it is refused. It may
    /// borrow the turns of `borrowable` later requests of its class. Does not charge: admitted requests, also those
    /// admitted by other rules, pay by [`PacingBucket::take`].
    pub fn try_take(
        mut self,
        rate: &PacingRate,
        cost: Units,
        borrowable: u32,
        now: Timestamp,
    ) -> (Self, Result<(), PacingRefused>) {
        self.refill(rate, now);
        let (is_refused, state) = match rate.share {
            // With a share of all requests, no refusal is due in place of another request.
            Share::ALL => (false, ShedState::default()),
            share => self.shedding.record_borrowing(share.complement(), borrowable),
        };
        self.shedding = state;
        let needed = milli(cost.min(rate.burst));
        let available = self.balance_milli.saturating_add(needed.saturating_mul(i64::from(borrowable)));
        let result = match is_refused {
            true => Err(PacingRefused(time_to_next_admit(rate.long_run_share))),
            false if available < needed => {
                let refill_wait = refill_time(needed - self.balance_milli, rate.refill_per_hour);
                Err(PacingRefused(refill_wait.max(time_to_next_admit(rate.long_run_share))))
            }
            false => Ok(()),
        };
        (self, result)
    }

    /// Returns the bucket, refilled to `now`.
    #[must_use]
    pub fn refilled(mut self, rate: &PacingRate, now: Timestamp) -> Self {
        self.refill(rate, now);
        self
    }

    /// Returns the bucket after a refusal by the share, where the next request is admitted.
    #[must_use]
    pub fn assuming_turn(self) -> Self {
        Self { shedding: ShedState::default(), ..self }
    }

    /// Takes `cost` out of the bucket; the balance may become negative.
    pub fn take(&mut self, cost: Units) {
        self.balance_milli = self.balance_milli.saturating_sub(milli(cost));
    }

    /// Adds whole milli-units only; the remaining time counts towards the next refill.
    fn refill(&mut self, rate: &PacingRate, now: Timestamp) {
        let elapsed = now.saturating_duration_since(self.refilled_at).as_nanos();
        let per_hour = u128::from(rate.refill_per_hour.milli());
        let gained = elapsed * per_hour / NANOSECONDS_PER_HOUR;
        let free = milli(rate.burst).saturating_sub(self.balance_milli);
        match i64::try_from(gained) {
            Ok(gained) if gained < free => {
                self.balance_milli += gained;
                let used_ns =
                    (u128::from(gained.unsigned_abs()) * NANOSECONDS_PER_HOUR).checked_div(per_hour).unwrap_or(elapsed);
                self.refilled_at += Duration::from_nanos(u64::try_from(used_ns).unwrap_or(u64::MAX));
            }
            _ => {
                self.balance_milli = self.balance_milli.max(milli(rate.burst));
                self.refilled_at = self.refilled_at.max(now);
            }
        }
        // After a clock was set back, refilling continues from the new time.
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
