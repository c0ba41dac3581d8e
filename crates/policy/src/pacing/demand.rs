//! Demand model of one class: typical demand per hour of week, and how recent days compare with it.
//!
//! Refused requests count: demand is what would be used if there were enough units. An hour above twice its forecast
//! and twice the hour before counts as twice that. A burst of one hour says little about the next day; a lasting one is
//! accepted in its second hour. What a single operator requests beyond its usual demand is apart ([`super::surge`]). A new day
//! has the level that the last hours show.

use super::surge::{OperatorDemands, OperatorProfile};
use super::week::{
    DEFAULT_DISPERSION, HOURS_PER_DAY, HOURS_PER_WEEK, HourProfile, WeekTime, WeeklyProfile, max_counted,
};
use crate::Timestamp;
use crate::ids::OperatorId;
use crate::tier::Share;
use crate::units::Units;
use std::f64::consts::FRAC_PI_2;
use std::time::Duration;

/// Seconds in an hour.
const SECONDS_PER_HOUR: f64 = 3600.0;
/// Decay of recent demand per hour; halves in ten hours.
const RECENT_DECAY: f64 = 0.93;
/// Decay of the demand level per hour; halves in four hours.
const LEVEL_DECAY: f64 = 0.85;
/// Number of hours that show the level of a new day.
const LEVEL_HOURS_OF_NEW_DAY: usize = 3;
/// Minimum variance of the level between days: their standard deviation is at least a twentieth.
const LEVEL_VARIANCE: f64 = 0.0025;
/// Number of variances of random demand from which on a deviation of the level is significant.
const SIGNIFICANCE: f64 = 4.0;
/// Lower bound of the typical demand, in units, so that the level is defined if that demand is zero.
const MIN_TYPICAL: f64 = 1.0;
/// Decay per hour of the current level's deviation in a forecast.
const LEVEL_PERSISTENCE: f64 = 0.99;
/// Part of an hour's excess that persists into the next hour.
const EXCESS_PERSISTENCE: f64 = 0.4;
/// Upper bound of the dispersion.
const MAX_DISPERSION: f64 = 1e6;
/// Minimum observed part of an hour that is recorded.
const MIN_OBSERVED: f64 = 0.5;
/// Minimum observed part of an hour for estimating a rate.
const MIN_OBSERVED_FOR_RATE: f64 = 0.25;
/// Prior weight of the cost ratio 1, in units: a few requests do not determine actual costs.
const COST_PRIOR_UNITS: f64 = 10.0;

/// Demand model of a class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DemandModel {
    week: WeeklyProfile,
    recent: RecentHours,
    errors: ForecastErrors,
    cost_ratio: CostRatio,
    now: CurrentHour,
    operators: OperatorDemands,
}

/// Recent hours, with exponential decay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct RecentHours {
    requested: f64,
    /// Decayed number of hours.
    hours: f64,
    /// Demand of the busiest hour.
    busiest: f64,
    /// Demand of the last hour.
    last: f64,
    /// Level relative to the typical demand.
    level: DemandLevel,
    /// The last [`LEVEL_HOURS_OF_NEW_DAY`] hours.
    last_levels: [DemandLevel; LEVEL_HOURS_OF_NEW_DAY],
}

/// Demand and typical demand of recent hours; decays faster than [`RecentHours`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct DemandLevel {
    requested: f64,
    typical: f64,
}

/// Recent forecast errors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ForecastErrors {
    count: f64,
    expected: f64,
    /// Sum of absolute errors, in units.
    absolute_error: f64,
    /// Error of the last hour, in units; negative if its demand was below the forecast.
    last_error: f64,
}

/// Expected and actual costs, for their ratio.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct CostRatio {
    expected: f64,
    actual: f64,
}

/// Current hour.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct CurrentHour {
    requested: Units,
    /// Part of the hour at which observation started.
    from: f64,
}

/// Forecast demand.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DemandForecast {
    /// Demand in units, at actual costs.
    pub units: f64,
    /// Variance of the demand.
    pub variance: f64,
}

impl DemandForecast {
    /// Returns the sum of two forecasts.
    pub fn plus(self, other: Self) -> Self {
        Self { units: self.units + other.units, variance: self.variance + other.variance }
    }

    /// Returns the forecast for `share` of the requests.
    pub fn scale(self, share: Share) -> Self {
        Self { units: self.units * share.ratio(), variance: self.variance * share.ratio() }
    }
}

impl DemandModel {
    /// Restores a model learned by a previous incarnation that did not distinguish operators.
    pub fn from_hours(hours: [HourProfile; HOURS_PER_WEEK]) -> Self {
        Self::restored(hours, None)
    }

    /// Restores a model learned by a previous incarnation, with the profiles of operators if it distinguished them.
    pub fn restored(hours: [HourProfile; HOURS_PER_WEEK], operators: Option<Vec<OperatorProfile>>) -> Self {
        let (week, operators) = (WeeklyProfile::from_hours(hours), OperatorDemands::restored(operators));
        let recent = RecentHours::usual(week.mean());
        Self { week, recent, operators, ..Self::default() }
    }

    /// Returns the typical demand per hour of week.
    pub fn week(&self) -> &WeeklyProfile {
        &self.week
    }

    /// Records a request of expected cost `cost`, admitted or refused.
    pub fn record_request(&mut self, cost: Units) {
        self.now.requested = self.now.requested.saturating_add(cost);
    }

    /// Records that `operator` sent a request of expected cost `cost` among those of its class.
    pub fn record_operator(&mut self, operator: OperatorId, cost: Units) {
        self.operators.record_request(operator, cost, &self.week);
    }

    /// Returns the demand of single operators.
    pub fn operators(&self) -> &OperatorDemands {
        &self.operators
    }

    /// Detects surges of single operators until `now`. Returns true if the forecast has changed for a new or past surge.
    pub fn update_surges(&mut self, week: WeekTime, now: Timestamp) -> bool {
        self.operators.update(week, now)
    }

    /// Counts all current surges, because units are short. Returns true if the forecast has changed.
    pub fn count_surges(&mut self) -> bool {
        self.operators.count_surges()
    }

    /// Records the expected and the actual cost of a request.
    pub fn record_cost(&mut self, expected: Units, actual: Units) {
        self.cost_ratio.expected += expected.as_f64();
        self.cost_ratio.actual += actual.as_f64();
    }

    /// Starts observation at this point of an hour; its earlier demand is unknown.
    pub fn start_hour_at(&mut self, time: WeekTime) {
        self.now = CurrentHour { requested: Units::ZERO, from: time.hour_fraction() };
        self.operators.start_hour();
    }

    /// Finishes the observed hour, at `index` of the week.
    pub fn finish_hour(&mut self, index: usize) {
        let CurrentHour { requested, from } = std::mem::take(&mut self.now);
        let observed = 1.0 - from;
        let is_observed = observed >= MIN_OBSERVED;
        let excess = self.operators.finish_hour(index, is_observed.then_some(observed));
        if !is_observed {
            return;
        }
        let demand = ((requested.as_f64() - excess.units) / observed).max(0.0);
        let typical = self.week.typical().filter(|_| self.week.is_known(index)).map(|typical| typical[index]);
        // For an hour without history, the previous hour is the best forecast.
        let expected = typical.map_or(self.recent.last, |typical| typical * self.level());
        let max_demand = max_counted(expected.max(self.recent.last));
        let counted = if typical.is_some() { demand.min(max_demand) } else { demand };
        let with_lasting = counted + excess.lasting / observed;
        let learned = typical.map_or(counted, |typical| with_lasting.min(max_counted(typical)).max(counted));
        let typical = typical.unwrap_or(demand);
        self.errors.record(expected, counted - expected);
        self.recent.record(typical, counted, demand, observed);
        self.cost_ratio = CostRatio {
            expected: self.cost_ratio.expected * RECENT_DECAY,
            actual: self.cost_ratio.actual * RECENT_DECAY,
        };
        if (index + 1).is_multiple_of(HOURS_PER_DAY) {
            self.recent.start_day();
        }
        self.week.record(index, learned);
    }

    /// Forecasts the demand of `span` from `now` on: the typical demand of each hour, scaled to the current level, plus
    /// a recent excess that fades over the next hours.
    pub fn forecast_learned(&self, now: WeekTime, span: Duration) -> DemandForecast {
        let Some(typical) = self.week.typical() else { return self.forecast_even(now, span) };
        let (mut deviation, mut excess) = (self.level() - 1.0, self.recent_excess(now) * EXCESS_PERSISTENCE);
        let mut units = 0.0;
        for (hour, part) in now.hours(span) {
            units += (typical[hour] * (1.0 + deviation) + excess).max(0.0) * part;
            deviation *= LEVEL_PERSISTENCE;
            excess *= 1.0 - (1.0 - EXCESS_PERSISTENCE) * part;
        }
        self.scaled_by_cost(units + self.operators.forecast(span))
    }

    /// Forecasts the demand of `span` from `now` on at the average rate of the recent hours.
    pub fn forecast_even(&self, now: WeekTime, span: Duration) -> DemandForecast {
        self.scaled_by_cost(self.mean_rate(now) * span.as_secs_f64() / SECONDS_PER_HOUR)
    }

    /// Forecasts the demand of `span` from `now` on at the rate of the busiest recent hour.
    pub fn forecast_peak(&self, now: WeekTime, span: Duration) -> DemandForecast {
        self.scaled_by_cost(self.mean_rate(now).max(self.recent.busiest) * span.as_secs_f64() / SECONDS_PER_HOUR)
    }

    /// Returns the forecast demand of each of the next 24 hours.
    pub fn hourly_forecast(&self, now: WeekTime) -> Vec<f64> {
        let cumulative = |hours: usize| self.forecast_learned(now, Duration::from_secs(3600 * hours as u64)).units;
        (0..HOURS_PER_DAY).map(|hour| cumulative(hour + 1) - cumulative(hour)).collect()
    }

    /// Returns the typical demand of `span` from `from` on.
    pub fn typical(&self, from: WeekTime, span: Duration) -> DemandForecast {
        let units = self.week.typical_over(from, span);
        DemandForecast { units, variance: units * self.errors.dispersion() }
    }

    /// Returns the fraction of a window's typical demand that lies ahead, `elapsed` after its start and `left` before
    /// its end.
    pub fn remaining_fraction(&self, now: WeekTime, elapsed: Duration, left: Duration) -> f64 {
        let (before, after) = match self.week.has_daily_profile() {
            true => (self.week.typical_over(now.before(elapsed), elapsed), self.week.typical_over(now, left)),
            false => (elapsed.as_secs_f64(), left.as_secs_f64()),
        };
        // Never zero: demand outside of the typical hours may recur.
        (after / (before + after).max(f64::MIN_POSITIVE)).max(0.001)
    }

    /// Returns the ratio of actual to expected costs.
    pub fn cost_ratio(&self) -> f64 {
        ((self.cost_ratio.actual + COST_PRIOR_UNITS) / (self.cost_ratio.expected + COST_PRIOR_UNITS)).max(0.01)
    }

    /// Returns the level of recent demand relative to typical demand; 1 is typical. Empirical Bayes: the variance of
    /// levels is estimated from the deviation of this one, minus its random part.
    fn level(&self) -> f64 {
        let DemandLevel { requested, typical } = self.recent.level;
        let (dispersion, scale) = (self.errors.dispersion(), typical.max(MIN_TYPICAL));
        let variance = ((requested - typical) / scale).powi(2) - SIGNIFICANCE * dispersion / scale;
        let prior = dispersion / variance.max(LEVEL_VARIANCE);
        (requested + prior) / (typical + prior)
    }

    /// Returns the demand of the last 60 minutes in excess of its forecast; negative if below.
    fn recent_excess(&self, now: WeekTime) -> f64 {
        let typical = self.week.typical().map_or(0.0, |typical| typical[now.hour()]);
        let requested = self.now.requested.as_f64() - self.operators.excess();
        let current = requested - typical * self.level() * self.observed_fraction(now);
        current + self.errors.last_error * (1.0 - now.hour_fraction())
    }

    /// Returns the recent mean demand, in units per hour.
    fn mean_rate(&self, now: WeekTime) -> f64 {
        let hours = self.recent.hours + self.observed_fraction(now);
        match self.week.typical() {
            Some(_) if hours < 1.0 => self.week.mean(),
            _ => (self.recent.requested + self.now.requested.as_f64()) / hours.max(MIN_OBSERVED_FOR_RATE),
        }
    }

    /// Returns the observed part of the current hour.
    fn observed_fraction(&self, now: WeekTime) -> f64 {
        (now.hour_fraction() - self.now.from).max(0.0)
    }

    fn scaled_by_cost(&self, demand: f64) -> DemandForecast {
        let units = demand * self.cost_ratio();
        DemandForecast { units, variance: units * self.errors.dispersion() }
    }
}

impl DemandLevel {
    fn of(hours: &[Self]) -> Self {
        let sum = |sum: Self, hour: &Self| Self {
            requested: sum.requested + hour.requested,
            typical: sum.typical + hour.typical,
        };
        hours.iter().fold(Self::default(), sum)
    }
}

impl RecentHours {
    /// Returns the state before the first observed hour: the last ones had the usual demand, so that a single hour does not
    /// show the level.
    fn usual(typical: f64) -> Self {
        let last_levels = [DemandLevel { requested: typical, typical }; LEVEL_HOURS_OF_NEW_DAY];
        Self { level: DemandLevel::of(&last_levels), last_levels, ..Self::default() }
    }

    /// Keeps the level that the last hours show.
    fn start_day(&mut self) {
        self.level = DemandLevel::of(&self.last_levels);
    }

    fn record(&mut self, typical: f64, counted: f64, demand: f64, observed: f64) {
        let hour = DemandLevel { requested: counted * observed, typical: typical * observed };
        *self = Self {
            last_levels: [hour, self.last_levels[0], self.last_levels[1]],
            requested: self.requested * RECENT_DECAY + counted * observed,
            hours: self.hours * RECENT_DECAY + observed,
            busiest: counted.max(self.busiest * RECENT_DECAY),
            last: demand,
            level: DemandLevel {
                requested: self.level.requested * LEVEL_DECAY + counted * observed,
                typical: self.level.typical * LEVEL_DECAY + typical * observed,
            },
        };
    }
}

impl ForecastErrors {
    fn record(&mut self, expected: f64, error: f64) {
        *self = Self {
            count: self.count * RECENT_DECAY + 1.0,
            expected: self.expected * RECENT_DECAY + expected,
            absolute_error: self.absolute_error * RECENT_DECAY + error.abs(),
            last_error: error,
        };
    }

    /// Returns the dispersion, the group size in which units are requested; 1 if requests are independent.
    ///
    /// Uses the mean deviation, not the mean square, in which one outlier hour would dominate.
    fn dispersion(&self) -> f64 {
        if self.count <= 1.0 {
            return DEFAULT_DISPERSION;
        }
        // For random errors, the variance is this multiple of the squared mean deviation.
        let variance = FRAC_PI_2 * (self.absolute_error / self.count).powi(2);
        let mean = (self.expected / self.count).max(f64::MIN_POSITIVE);
        (variance / mean).clamp(1.0, MAX_DISPERSION)
    }
}
