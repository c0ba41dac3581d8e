//! What one class asks for: what the hours of the week usually bring, and how these days compare with that.
//!
//! Refused requests count: demand is what would be taken if there were enough. An hour that comes to more than twice of
//! what was expected, and of the hour before, counts as twice that: a crowd that is there for an hour and gone says
//! little about tomorrow, and one that stays is believed in the second hour.

use super::week::{DAY, HOURS, HourProfile, WeekTime, WeeklyProfile};
use crate::policy::tier::Share;
use crate::policy::units::Units;
use std::f64::consts::FRAC_PI_2;
use std::time::Duration;

/// An hour in seconds.
const HOUR: f64 = 3600.0;
/// What these days have been fades by this with each hour: after ten of them it is half.
const RECENT_DECAY: f64 = 0.93;
/// By how much they are busier than usual, faster: after four.
const LEVEL_DECAY: f64 = 0.85;
/// Days differ from each other by at least a twentieth: by its square the variance of their level.
const LEVEL_VARIANCE: f64 = 0.0025;
/// What differs by this many variances of chance is no chance: the days are different by as much as they seem to be.
const SIGNIFICANCE: f64 = 4.0;
/// Nothing is so many times as much as nothing.
const MIN_TYPICAL: f64 = 1.0;
/// What today is unlike other days holds for the hours to come, less by this with each.
const LEVEL_PERSISTENCE: f64 = 0.99;
/// So much of what an hour brought out of turn the next brings, too.
const EXCESS_PERSISTENCE: f64 = 0.4;
/// Beyond so many times of what is expected, it is something else than usual.
const OUTLIER_RATIO: f64 = 2.0;
/// Before more is known: units come a few at a time, as people do who read some pages.
const DEFAULT_DISPERSION: f64 = 4.0;
/// The most that is believed of it.
const MAX_DISPERSION: f64 = 1e6;
/// An hour that was watched for less than half says too little.
const MIN_OBSERVED: f64 = 0.5;
/// Of so little of an hour nobody concludes what it brings.
const MIN_OBSERVED_FOR_RATE: f64 = 0.25;
/// What requests cost in the end is not known from a few: so many units stand for those that cost what was expected.
const COST_PRIOR_UNITS: f64 = 10.0;

/// What a class asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DemandModel {
    week: WeeklyProfile,
    recent: RecentHours,
    errors: ForecastErrors,
    paid: CostRatio,
    now: CurrentHour,
}

/// The hours of late, the older the less they count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct RecentHours {
    asked: f64,
    /// How many they are.
    hours: f64,
    /// What the busiest of them came to ...
    busiest: f64,
    /// ... and the last.
    last: f64,
    /// How they compare with what is usual.
    level: DemandLevel,
}

/// What the hours of late brought, and what they usually bring; these fade faster.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct DemandLevel {
    asked: f64,
    usual: f64,
}

/// How good expectations have been, of late.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ForecastErrors {
    count: f64,
    expected: f64,
    /// By how much they were missed, to either side.
    missed: f64,
    /// By how much the last hour came to more than expected; below zero where it was less.
    last: f64,
}

/// How much of what requests are expected to cost they cost in the end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct CostRatio {
    expected: f64,
    actual: f64,
}

/// The hour that is not over yet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct CurrentHour {
    asked: Units,
    /// At which part of the hour watching it began.
    from: f64,
}

/// What will be asked for, and how far off that may be.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DemandForecast {
    /// Units, as they will be paid for.
    pub units: f64,
    /// Their variance.
    pub variance: f64,
}

impl DemandForecast {
    /// Both together.
    pub fn add(self, other: Self) -> Self {
        Self { units: self.units + other.units, variance: self.variance + other.variance }
    }

    /// Of its requests this share.
    pub fn scale(self, share: Share) -> Self {
        Self { units: self.units * share.ratio(), variance: self.variance * share.ratio() }
    }
}

impl DemandModel {
    /// Demand as it was learned in an earlier life.
    pub fn of(hours: [HourProfile; HOURS]) -> Self {
        Self { week: WeeklyProfile::of(hours), ..Self::default() }
    }

    /// What the hours of the week usually bring.
    pub fn week(&self) -> &WeeklyProfile {
        &self.week
    }

    /// Notes that a request of `cost` is asked for.
    pub fn record_request(&mut self, cost: Units) {
        self.now.asked = self.now.asked.saturating_add(cost);
    }

    /// Notes that a request that was expected to cost `expected` cost `actual`.
    pub fn record_cost(&mut self, expected: Units, actual: Units) {
        self.paid.expected += expected.as_f64();
        self.paid.actual += actual.as_f64();
    }

    /// Begins to watch, at this moment of an hour: what was before it is not known.
    pub fn start_hour_at(&mut self, moment: WeekTime) {
        self.now = CurrentHour { asked: Units::ZERO, from: moment.into_hour() };
    }

    /// The hour that was watched is over; in the week it stands at `place`.
    pub fn finish_hour(&mut self, place: usize) {
        let CurrentHour { asked, from } = std::mem::take(&mut self.now);
        let watched = 1.0 - from;
        if watched < MIN_OBSERVED {
            return;
        }
        let came = asked.as_f64() / watched;
        let usual = self.week.typical().filter(|_| self.week.is_known(place)).map(|usual| usual[place]);
        // Of an hour that nobody knows, the best guess is the hour before.
        let expected = usual.map_or(self.recent.last, |usual| usual * self.level());
        let most = OUTLIER_RATIO * expected.max(self.recent.last) + DEFAULT_DISPERSION;
        let counted = if usual.is_some() { came.min(most) } else { came };
        let usual = usual.unwrap_or(came);
        self.errors.record(expected, counted - expected);
        self.recent.record(usual, counted, came, watched);
        self.paid = CostRatio { expected: self.paid.expected * RECENT_DECAY, actual: self.paid.actual * RECENT_DECAY };
        self.week.record(place, counted);
    }

    /// What will be asked for from `now` on for `span`: in each hour what that hour usually brings, as much more or less
    /// as these days do, and for an hour or two what is out of turn just now.
    pub fn forecast_learned(&self, now: WeekTime, span: Duration) -> DemandForecast {
        let Some(usual) = self.week.typical() else { return self.forecast_even(now, span) };
        let (mut lead, mut beyond) = (self.level() - 1.0, self.recent_excess(now) * EXCESS_PERSISTENCE);
        let mut units = 0.0;
        for (hour, part) in now.hours(span) {
            units += (usual[hour] * (1.0 + lead) + beyond).max(0.0) * part;
            lead *= LEVEL_PERSISTENCE;
            beyond *= 1.0 - (1.0 - EXCESS_PERSISTENCE) * part;
        }
        self.scaled_by_cost(units)
    }

    /// The same, if it goes on as the last hours did on the whole.
    pub fn forecast_even(&self, now: WeekTime, span: Duration) -> DemandForecast {
        self.scaled_by_cost(self.mean_rate(now) * span.as_secs_f64() / HOUR)
    }

    /// The same, if it goes on as the busiest of the last hours did.
    pub fn forecast_peak(&self, now: WeekTime, span: Duration) -> DemandForecast {
        self.scaled_by_cost(self.mean_rate(now).max(self.recent.busiest) * span.as_secs_f64() / HOUR)
    }

    /// What each of the next 24 hours will bring.
    pub fn hourly_forecast(&self, now: WeekTime) -> Vec<f64> {
        let until = |hours: usize| self.forecast_learned(now, Duration::from_secs(3600 * hours as u64)).units;
        (0..DAY).map(|hour| until(hour + 1) - until(hour)).collect()
    }

    /// What the `span` from `from` on usually brings.
    pub fn typical(&self, from: WeekTime, span: Duration) -> DemandForecast {
        let units = self.week.typical_over(from, span);
        DemandForecast { units, variance: units * self.errors.dispersion() }
    }

    /// How much of a window's usual demand is yet to come, `passed` after its start and `left` before its end.
    pub fn remaining_fraction(&self, now: WeekTime, passed: Duration, left: Duration) -> f64 {
        let (before, after) = match self.week.has_daily_profile() {
            true => (self.week.typical_over(now.before(passed), passed), self.week.typical_over(now, left)),
            false => (passed.as_secs_f64(), left.as_secs_f64()),
        };
        // Never nothing: who has come out of turn until now may do so again.
        (after / (before + after).max(f64::MIN_POSITIVE)).max(0.001)
    }

    /// What a unit that is asked for comes to when it is paid for.
    pub fn cost_ratio(&self) -> f64 {
        ((self.paid.actual + COST_PRIOR_UNITS) / (self.paid.expected + COST_PRIOR_UNITS)).max(0.01)
    }

    /// By how much these days are busier than usual; below 1 where they are quieter. Empirical Bayes: the variance of
    /// levels is taken from how far off this one is, less what chance alone makes of it.
    fn level(&self) -> f64 {
        let DemandLevel { asked, usual } = self.recent.level;
        let (dispersion, least) = (self.errors.dispersion(), usual.max(MIN_TYPICAL));
        let variance = ((asked - usual) / least).powi(2) - SIGNIFICANCE * dispersion / least;
        let trusted = dispersion / variance.max(LEVEL_VARIANCE);
        (asked + trusted) / (usual + trusted)
    }

    /// What the last sixty minutes brought beyond what was expected of them; below zero where it was less.
    fn recent_excess(&self, now: WeekTime) -> f64 {
        let usual = self.week.typical().map_or(0.0, |usual| usual[now.hour()]);
        let of_this_hour = self.now.asked.as_f64() - usual * self.level() * self.observed_fraction(now);
        of_this_hour + self.errors.last * (1.0 - now.into_hour())
    }

    /// Units an hour, of late on the whole.
    fn mean_rate(&self, now: WeekTime) -> f64 {
        let hours = self.recent.hours + self.observed_fraction(now);
        match self.week.typical() {
            Some(usual) if hours < 1.0 => usual.iter().sum::<f64>() / HOURS as f64,
            _ => (self.recent.asked + self.now.asked.as_f64()) / hours.max(MIN_OBSERVED_FOR_RATE),
        }
    }

    /// How much of the present hour was watched.
    fn observed_fraction(&self, now: WeekTime) -> f64 {
        (now.into_hour() - self.now.from).max(0.0)
    }

    fn scaled_by_cost(&self, asked: f64) -> DemandForecast {
        let units = asked * self.cost_ratio();
        DemandForecast { units, variance: units * self.errors.dispersion() }
    }
}

impl RecentHours {
    fn record(&mut self, usual: f64, counted: f64, came: f64, watched: f64) {
        *self = Self {
            asked: self.asked * RECENT_DECAY + counted * watched,
            hours: self.hours * RECENT_DECAY + watched,
            busiest: counted.max(self.busiest * RECENT_DECAY),
            last: came,
            level: DemandLevel {
                asked: self.level.asked * LEVEL_DECAY + counted * watched,
                usual: self.level.usual * LEVEL_DECAY + usual * watched,
            },
        };
    }
}

impl ForecastErrors {
    fn record(&mut self, expected: f64, missed_by: f64) {
        *self = Self {
            count: self.count * RECENT_DECAY + 1.0,
            expected: self.expected * RECENT_DECAY + expected,
            missed: self.missed * RECENT_DECAY + missed_by.abs(),
            last: missed_by,
        };
    }

    /// By how many units requests come at a time: 1 where they have nothing to do with each other.
    ///
    /// By the mean deviation, not the mean square, in which one hour that is out of turn outweighs all others.
    fn dispersion(&self) -> f64 {
        if self.count <= 1.0 {
            return DEFAULT_DISPERSION;
        }
        // For chance alone the variance is this much of the mean deviation's square.
        let variance = FRAC_PI_2 * (self.missed / self.count).powi(2);
        let mean = (self.expected / self.count).max(f64::MIN_POSITIVE);
        (variance / mean).clamp(1.0, MAX_DISPERSION)
    }
}
