//! What the hours of a week usually bring.

use std::time::Duration;

/// Hours in a week.
pub const HOURS: usize = 168;
/// Hours in a day.
pub const DAY: usize = 24;
/// An hour in seconds.
const HOUR: f64 = 3600.0;
/// The last few weeks count: each moves what is known of an hour by a quarter at least.
const WEEKS: f64 = 4.0;
/// With fewer of the hours of a day known the next day cannot be told from this one.
const KNOWN_DAY: usize = 20;

/// A moment by its second of the week, by the clocks of the quota's zone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeekTime(pub f64);

/// What is known of one hour of the week.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HourProfile {
    /// Units that are asked for in it, on the mean.
    pub units: f64,
    /// In how many weeks it was watched; the older ones are forgotten.
    pub weeks: f64,
}

/// What is known of all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct WeeklyProfile {
    hours: [HourProfile; HOURS],
    /// What each hour usually brings: by this hour of the week, and by this hour of all days.
    usual: Option<[f64; HOURS]>,
    knows_a_day: bool,
}

impl WeekTime {
    /// Which hour of the week it is.
    pub fn hour(self) -> usize {
        ((self.0.max(0.0) / HOUR) as usize) % HOURS
    }

    /// How much of that hour has passed, from 0 to 1.
    pub fn into_hour(self) -> f64 {
        (self.0.max(0.0) / HOUR).fract()
    }

    /// How long ago that hour began.
    pub fn since_hour(self) -> Duration {
        Duration::from_secs_f64(self.into_hour() * HOUR)
    }

    /// The moment so long before this one.
    pub fn before(self, span: Duration) -> Self {
        Self((self.0 - span.as_secs_f64()).rem_euclid(HOURS as f64 * HOUR))
    }

    /// The hours of the week that the `span` from here goes through, and how much of each. Clocks that are set meanwhile
    /// are not looked at: what is told of the hours after that is an hour off until it has happened.
    pub fn hours(self, span: Duration) -> impl Iterator<Item = (usize, f64)> {
        let mut left = span.as_secs_f64() / HOUR;
        let (mut hour, mut next) = (self.hour(), self.into_hour());
        std::iter::from_fn(move || {
            if left <= 0.0 {
                return None;
            }
            let part = (1.0 - next).min(left);
            let told = (hour, part);
            (left, next, hour) = (left - part, 0.0, (hour + 1) % HOURS);
            Some(told)
        })
    }
}

impl Default for WeeklyProfile {
    fn default() -> Self {
        Self { hours: [HourProfile::default(); HOURS], usual: None, knows_a_day: false }
    }
}

impl WeeklyProfile {
    /// A week that was learned in an earlier life, from Monday 00:00 on.
    pub fn of(hours: [HourProfile; HOURS]) -> Self {
        let mut week = Self { hours, ..Self::default() };
        week.recompute();
        week
    }

    /// What is known of each hour, from Monday 00:00 on.
    pub fn hours(&self) -> &[HourProfile; HOURS] {
        &self.hours
    }

    /// Notes that the hour at `place` brought so many units.
    pub fn record(&mut self, place: usize, units: f64) {
        let hour = &mut self.hours[place];
        hour.weeks = (hour.weeks + 1.0).min(WEEKS);
        hour.units += (units - hour.units) / hour.weeks;
        self.recompute();
    }

    /// What each hour usually brings; `None` while nobody knows any.
    pub fn typical(&self) -> Option<&[f64; HOURS]> {
        self.usual.as_ref()
    }

    /// What the `span` from `from` on usually brings.
    pub fn typical_over(&self, from: WeekTime, span: Duration) -> f64 {
        self.typical().map_or(0.0, |usual| from.hours(span).map(|(hour, part)| usual[hour] * part).sum())
    }

    /// True once a day's hours are known, so that the next ones can be told from them.
    pub fn has_daily_profile(&self) -> bool {
        self.knows_a_day
    }

    /// True where the hour at `place`, or the same hour of another day, has been watched.
    pub fn is_known(&self, place: usize) -> bool {
        self.same_hour_each_day(place % DAY).any(|hour| hour.weeks > 0.0)
    }

    fn same_hour_each_day(&self, hour_of_day: usize) -> impl Iterator<Item = &HourProfile> {
        self.hours.iter().skip(hour_of_day).step_by(DAY)
    }

    /// What each day brought of which every hour is known, by any 24 hours on end.
    fn days(&self) -> impl Iterator<Item = Option<f64>> {
        self.hours.chunks(DAY).map(|day| day.iter().map(known_mean).sum())
    }

    /// What follows from the hours: it is asked far more often than they change.
    fn recompute(&mut self) {
        self.knows_a_day = (0..DAY).filter(|hour| self.is_known(*hour)).count() >= KNOWN_DAY;
        self.usual = self.compute_typical();
    }

    fn compute_typical(&self) -> Option<[f64; HOURS]> {
        let watched = self.hours.iter().filter_map(known_mean);
        let (count, sum) = watched.fold((0.0, 0.0), |(count, sum), units| (count + 1.0, sum + units));
        if count == 0.0 {
            return None;
        }
        let on_any_day: [f64; DAY] =
            std::array::from_fn(|hour| median(self.same_hour_each_day(hour).map(known_mean)).unwrap_or(sum / count));
        // Who comes seldom and stays for hours is in the middle of no hour, but in that of days.
        let lumps = median(self.days()).map_or(1.0, |day| day / on_any_day.iter().sum::<f64>().max(f64::MIN_POSITIVE));
        let mut usual = [0.0; HOURS];
        for (place, usual) in usual.iter_mut().enumerate() {
            let HourProfile { units, weeks } = self.hours[place];
            *usual = (units * weeks + on_any_day[place % DAY] * lumps.clamp(0.5, 2.0)) / (weeks + 1.0);
        }
        Some(usual)
    }
}

fn known_mean(hour: &HourProfile) -> Option<f64> {
    (hour.weeks > 0.0).then_some(hour.units)
}

/// The middle of what is known: a day that is unlike all others does not count.
fn median(units: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let mut known: Vec<f64> = units.flatten().collect();
    known.sort_by(f64::total_cmp);
    let (lower, upper) = (known.get(known.len().checked_sub(1)? / 2)?, known.get(known.len() / 2)?);
    Some((lower + upper) / 2.0)
}
