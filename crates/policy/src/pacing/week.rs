//! Typical demand per hour of the week.

use std::time::Duration;

/// Hours in a week.
pub const HOURS_PER_WEEK: usize = 168;
/// Hours in a day.
pub const HOURS_PER_DAY: usize = 24;
/// Seconds in an hour.
const SECONDS_PER_HOUR: f64 = 3600.0;
/// Number of weeks remembered: each new week changes an hour's mean by at least a quarter.
const MAX_WEEKS: f64 = 4.0;
/// Minimum number of known hours of the day to forecast the next day.
pub const MIN_KNOWN_HOURS: usize = 20;

/// Ratio to the expected demand from which on an hour is an outlier.
pub(super) const OUTLIER_RATIO: f64 = 2.0;
/// Dispersion before any observation: requests arrive in small groups, like humans who read several pages.
pub(super) const DEFAULT_DISPERSION: f64 = 4.0;

/// Time of the week, in seconds since Monday 00:00 in the quota's time zone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeekTime(pub f64);

/// Demand learned for one hour of the week.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HourProfile {
    /// Mean demand in the hour, in units.
    pub units: f64,
    /// Number of weeks observed, at most `MAX_WEEKS`.
    pub weeks: f64,
}

/// Demand learned for all hours of the week.
#[derive(Clone, Debug, PartialEq)]
pub struct WeeklyProfile {
    hours: [HourProfile; HOURS_PER_WEEK],
    /// Typical demand per hour: combines this hour of the week with this hour of all days.
    typical: Option<[f64; HOURS_PER_WEEK]>,
    has_daily_profile: bool,
}

impl WeekTime {
    /// Returns the hour of the week.
    pub fn hour(self) -> usize {
        ((self.0.max(0.0) / SECONDS_PER_HOUR) as usize) % HOURS_PER_WEEK
    }

    /// Returns the elapsed part of the hour, 0 to 1.
    pub fn hour_fraction(self) -> f64 {
        (self.0.max(0.0) / SECONDS_PER_HOUR).fract()
    }

    /// Returns the time since the start of the hour.
    pub fn time_into_hour(self) -> Duration {
        Duration::from_secs_f64(self.hour_fraction() * SECONDS_PER_HOUR)
    }

    /// Returns the time of week `span` earlier.
    pub fn before(self, span: Duration) -> Self {
        Self((self.0 - span.as_secs_f64()).rem_euclid(HOURS_PER_WEEK as f64 * SECONDS_PER_HOUR))
    }

    /// Returns the hours of the week that `span` covers from here on, with the part of each. Ignores clock changes
    /// within the span: later hours are off by one until the change has happened.
    pub fn hours(self, span: Duration) -> impl Iterator<Item = (usize, f64)> {
        let mut left = span.as_secs_f64() / SECONDS_PER_HOUR;
        let (mut hour, mut offset) = (self.hour(), self.hour_fraction());
        std::iter::from_fn(move || {
            if left <= 0.0 {
                return None;
            }
            let part = (1.0 - offset).min(left);
            let item = (hour, part);
            (left, offset, hour) = (left - part, 0.0, (hour + 1) % HOURS_PER_WEEK);
            Some(item)
        })
    }
}

impl Default for WeeklyProfile {
    fn default() -> Self {
        Self { hours: [HourProfile::default(); HOURS_PER_WEEK], typical: None, has_daily_profile: false }
    }
}

impl WeeklyProfile {
    /// Restores a profile learned by a previous incarnation, from Monday 00:00 on.
    pub fn from_hours(hours: [HourProfile; HOURS_PER_WEEK]) -> Self {
        let mut week = Self { hours, ..Self::default() };
        week.recompute();
        week
    }

    /// Returns the profile of each hour, from Monday 00:00 on.
    pub fn hours(&self) -> &[HourProfile; HOURS_PER_WEEK] {
        &self.hours
    }

    /// Records that the hour at `index` had a demand of `units`.
    pub fn record(&mut self, index: usize, units: f64) {
        let hour = &mut self.hours[index];
        hour.weeks = (hour.weeks + 1.0).min(MAX_WEEKS);
        hour.units += (units - hour.units) / hour.weeks;
        self.recompute();
    }

    /// Returns the typical demand of each hour; `None` while no hour is known.
    pub fn typical(&self) -> Option<&[f64; HOURS_PER_WEEK]> {
        self.typical.as_ref()
    }

    /// Returns the mean typical demand of an hour; zero while no hour is known.
    pub fn mean(&self) -> f64 {
        self.typical().map_or(0.0, |typical| typical.iter().sum::<f64>() / HOURS_PER_WEEK as f64)
    }

    /// Returns the typical demand of `span` from `from` on.
    pub fn typical_over(&self, from: WeekTime, span: Duration) -> f64 {
        self.typical().map_or(0.0, |typical| from.hours(span).map(|(hour, part)| typical[hour] * part).sum())
    }

    /// Returns true once enough hours of the day are known to forecast a day.
    pub fn has_daily_profile(&self) -> bool {
        self.has_daily_profile
    }

    /// Returns true if the hour at `index`, or the same hour of another day, was observed.
    pub fn is_known(&self, index: usize) -> bool {
        self.same_hour_each_day(index % HOURS_PER_DAY).any(|hour| hour.weeks > 0.0)
    }

    /// Returns the number of hours of the day that were observed on any day.
    pub fn known_hours_of_day(&self) -> usize {
        (0..HOURS_PER_DAY).filter(|hour| self.is_known(*hour)).count()
    }

    fn same_hour_each_day(&self, hour_of_day: usize) -> impl Iterator<Item = &HourProfile> {
        self.hours.iter().skip(hour_of_day).step_by(HOURS_PER_DAY)
    }

    /// Returns the demand of each day of which every hour is known.
    fn days(&self) -> impl Iterator<Item = Option<f64>> {
        self.hours.chunks(HOURS_PER_DAY).map(|day| day.iter().map(known_mean).sum())
    }

    /// Recomputes the derived values, which are read far more often than the hours change.
    fn recompute(&mut self) {
        self.has_daily_profile = self.known_hours_of_day() >= MIN_KNOWN_HOURS;
        self.typical = self.compute_typical();
    }

    fn compute_typical(&self) -> Option<[f64; HOURS_PER_WEEK]> {
        let observed = self.hours.iter().filter_map(known_mean);
        let (count, sum) = observed.fold((0.0, 0.0), |(count, sum), units| (count + 1.0, sum + units));
        if count == 0.0 {
            return None;
        }
        let by_hour_of_day: [f64; HOURS_PER_DAY] =
            std::array::from_fn(|hour| median(self.same_hour_each_day(hour).map(known_mean)).unwrap_or(sum / count));
        // Demand of rare visits that last for hours is absent from the median of each hour, but not from that of days.
        let day_factor =
            median(self.days()).map_or(1.0, |day| day / by_hour_of_day.iter().sum::<f64>().max(f64::MIN_POSITIVE));
        let mut typical = [0.0; HOURS_PER_WEEK];
        for (index, typical) in typical.iter_mut().enumerate() {
            let HourProfile { units, weeks } = self.hours[index];
            *typical =
                (units * weeks + by_hour_of_day[index % HOURS_PER_DAY] * day_factor.clamp(0.5, 2.0)) / (weeks + 1.0);
        }
        Some(typical)
    }
}

/// Returns the maximum demand that an hour counts as, if `expected` was expected: one unusual hour teaches little.
pub(super) fn max_counted(expected: f64) -> f64 {
    OUTLIER_RATIO * expected + DEFAULT_DISPERSION
}

fn known_mean(hour: &HourProfile) -> Option<f64> {
    (hour.weeks > 0.0).then_some(hour.units)
}

/// Returns the median of the known values: a single unusual day has no effect.
fn median(units: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let mut values: Vec<f64> = units.flatten().collect();
    values.sort_by(f64::total_cmp);
    let (lower, upper) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some((lower + upper) / 2.0)
}
