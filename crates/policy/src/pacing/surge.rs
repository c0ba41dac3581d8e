//! Surges of single operators: an operator that suddenly requests several times as much as usual.
//!
//! A surge that counts is expected to continue, and what it requests beyond the usual demand counts neither as the level of its
//! class nor, until it has lasted for more than [`MAX_FORECAST`], as the demand of the same hours of other weeks. It counts once it
//! has lasted for [`SETTLING_SECONDS`], and from its first minute on where its class lacks units anyway. Where the usual demand fits what is left, a group of requests thus refuses nobody.

use super::week::{HOURS_PER_WEEK, HourProfile, WeekTime, WeeklyProfile, max_counted};
use crate::Timestamp;
use crate::ids::OperatorId;
use crate::units::Units;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of operators of a class with a profile of their own. The demand of others counts for the class alone.
pub const MAX_OPERATORS: usize = 16;
/// Multiple of the expected demand from which on an operator surges.
const SURGE_RATIO: f64 = 3.0;
/// Multiple of it in the last minute, so that a surge has not just ended.
const MINUTE_RATIO: f64 = 1.7;
/// Weight of the prior that an operator requests as much as usual, in units.
const PRIOR_UNITS: f64 = 4.0;
/// Time constant, in seconds, of the demand that is compared with the expected one.
const RECENT_SECONDS: f64 = 300.0;
/// Time constant, in seconds, of the demand that first estimates the rate of a surge.
const MINUTE_SECONDS: f64 = 60.0;
/// Time constant, in seconds, of the rate of a lasting surge.
const RATE_SECONDS: f64 = 1800.0;
/// Age, in seconds, up to which the rate of a surge is being estimated, and from which on every surge counts.
const SETTLING_SECONDS: f64 = 600.0;
/// Part of a surge's rate below which it has ended.
const END_RATIO: f64 = 0.5;
/// Maximum time for which a surge is expected to last. One that lasts longer becomes usual.
const MAX_FORECAST: Duration = Duration::from_secs(86_400);
/// Time without a plan after which recent demand is unknown.
const MAX_GAP_SECONDS: f64 = 600.0;
const SECONDS_PER_HOUR: f64 = 3600.0;

/// Usual demand of an operator by hour of the week.
pub type OperatorProfile = (OperatorId, [HourProfile; HOURS_PER_WEEK]);

/// Demand of the operators of a class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OperatorDemands {
    operators: Vec<OperatorDemand>,
    updated_at: Option<Timestamp>,
    /// True if the operators of hours before this process are unknown.
    has_unknown_past: bool,
}

/// Demand of one operator.
#[derive(Clone, Debug, PartialEq)]
struct OperatorDemand {
    operator: OperatorId,
    week: Arc<WeeklyProfile>,
    /// Units requested in the current hour.
    requested: f64,
    /// Part of `requested` that surges that count requested beyond the usual demand.
    excess: f64,
    /// Units requested since the last update.
    pending: f64,
    recent: DecayedDemand,
    minute: DecayedDemand,
    surge: Option<Surge>,
}

/// Requested and usual units, with exponential decay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct DecayedDemand {
    requested: f64,
    usual: f64,
}

/// A current surge.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Surge {
    /// Time since its start, in seconds.
    age: f64,
    /// Units beyond the usual demand, decayed.
    units: f64,
    /// Observed time, in seconds, decayed.
    seconds: f64,
    /// True if it is expected to continue.
    is_counted: bool,
    /// Units beyond the usual demand in the current hour before it counted.
    uncounted: f64,
}

/// What surges that count requested in an hour beyond the usual demand.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SurgeExcess {
    /// Demand of all of them, in units.
    pub units: f64,
    /// Part of `units` of those that have lasted for more than [`MAX_FORECAST`].
    pub lasting: f64,
}

impl OperatorDemands {
    /// Restores profiles learned by a previous incarnation; `None` if it did not distinguish operators.
    pub fn restored(learned: Option<Vec<OperatorProfile>>) -> Self {
        let has_unknown_past = learned.is_none();
        let profiles = learned.unwrap_or_default().into_iter().take(MAX_OPERATORS);
        let operators =
            profiles.map(|(operator, hours)| OperatorDemand::new(operator, WeeklyProfile::from_hours(hours)));
        Self { operators: operators.collect(), updated_at: None, has_unknown_past }
    }

    /// Returns the profile of each operator.
    pub fn profiles(&self) -> impl Iterator<Item = OperatorProfile> {
        self.operators.iter().map(|demand| (demand.operator, *demand.week.hours()))
    }

    /// Records a request of `operator`. `class_week` has the observed hours of its class: in those, an operator that is new
    /// requested nothing.
    pub fn record_request(&mut self, operator: OperatorId, cost: Units, class_week: &WeeklyProfile) {
        let index = self.operators.iter().position(|demand| demand.operator == operator);
        let index = match index {
            None if self.operators.len() >= MAX_OPERATORS => return,
            None => {
                let unseen = class_week.hours().map(|hour| HourProfile { units: 0.0, ..hour });
                let week =
                    if self.has_unknown_past { WeeklyProfile::default() } else { WeeklyProfile::from_hours(unseen) };
                self.operators.push(OperatorDemand::new(operator, week));
                self.operators.len() - 1
            }
            Some(index) => index,
        };
        let demand = &mut self.operators[index];
        demand.requested += cost.as_f64();
        demand.pending += cost.as_f64();
    }

    /// Starts observation within an hour; its earlier demand is unknown.
    pub fn start_hour(&mut self) {
        self.updated_at = None;
        self.operators.iter_mut().for_each(OperatorDemand::start_hour);
    }

    /// Finishes the hour at `index` of the week, of which the part `observed` was observed if that is enough to learn from.
    /// Returns what surges that count requested in it.
    pub fn finish_hour(&mut self, index: usize, observed: Option<f64>) -> SurgeExcess {
        let each = self.operators.iter_mut().map(|demand| demand.finish_hour(index, observed));
        each.fold(SurgeExcess::default(), |sum, excess| SurgeExcess {
            units: sum.units + excess.units,
            lasting: sum.lasting + excess.lasting,
        })
    }

    /// Returns the units that surges that count have requested in the current hour.
    pub fn excess(&self) -> f64 {
        self.operators.iter().map(|demand| demand.excess).sum()
    }

    /// Detects surges by the requests since the last update. Returns true while the rate of one that counts is being estimated,
    /// when one begins to count, and when one that counted has ended.
    pub fn update(&mut self, week: WeekTime, now: Timestamp) -> bool {
        let elapsed = self.updated_at.replace(now).map(|before| now.saturating_duration_since(before).as_secs_f64());
        let mut has_changed = false;
        for demand in &mut self.operators {
            let was_counted = demand.surge.is_some_and(|surge| surge.is_counted);
            match elapsed {
                Some(elapsed) if elapsed <= MAX_GAP_SECONDS => demand.update(week.hour(), elapsed),
                _ => demand.restart(),
            }
            let is_settled = demand.surge.is_some_and(|surge| surge.age >= SETTLING_SECONDS);
            if is_settled {
                demand.count_surge();
            }
            let is_counted = demand.surge.is_some_and(|surge| surge.is_counted);
            has_changed |= is_counted != was_counted || (is_counted && !is_settled);
        }
        has_changed
    }

    /// Counts all current surges, because units are short. Returns true if one did not count before.
    pub fn count_surges(&mut self) -> bool {
        self.operators.iter_mut().fold(false, |any, demand| any | demand.count_surge())
    }

    /// Returns the units that the surges that count are expected to request within `span` beyond the usual demand.
    pub fn forecast(&self, span: Duration) -> f64 {
        let rate: f64 = self
            .operators
            .iter()
            .filter_map(|demand| demand.surge.filter(|surge| surge.is_counted))
            .map(|surge| surge.rate())
            .sum();
        rate * span.min(MAX_FORECAST).as_secs_f64()
    }
}

impl OperatorDemand {
    fn new(operator: OperatorId, week: WeeklyProfile) -> Self {
        Self {
            operator,
            week: Arc::new(week),
            requested: 0.0,
            excess: 0.0,
            pending: 0.0,
            recent: DecayedDemand::default(),
            minute: DecayedDemand::default(),
            surge: None,
        }
    }

    /// Forgets recent demand.
    fn restart(&mut self) {
        let usual = DecayedDemand::default();
        (self.pending, self.recent, self.minute, self.surge) = (0.0, usual, usual, None);
    }

    fn start_hour(&mut self) {
        self.restart();
        (self.requested, self.excess) = (0.0, 0.0);
    }

    fn finish_hour(&mut self, index: usize, observed: Option<f64>) -> SurgeExcess {
        let (requested, units) = (std::mem::take(&mut self.requested), std::mem::take(&mut self.excess));
        let is_lasting = self.surge.is_some_and(|surge| surge.age > MAX_FORECAST.as_secs_f64());
        let excess = SurgeExcess { units, lasting: if is_lasting { units } else { 0.0 } };
        if let Some(surge) = &mut self.surge {
            surge.uncounted = 0.0;
        }
        let Some(observed) = observed else { return excess };
        let usual = self.usual(index);
        let max_learned = usual.map_or(f64::INFINITY, max_counted);
        let learned = (requested - excess.units + excess.lasting) / observed;
        Arc::make_mut(&mut self.week).record(index, learned.min(max_learned));
        excess
    }

    /// Returns the usual demand in the hour at `index` of the week, in units; `None` if unknown.
    fn usual(&self, index: usize) -> Option<f64> {
        self.week.typical().filter(|_| self.week.is_known(index)).map(|typical| typical[index])
    }

    fn update(&mut self, hour: usize, elapsed: f64) {
        let requested = std::mem::take(&mut self.pending);
        let Some(usual) = self.usual(hour).map(|usual| usual * elapsed / SECONDS_PER_HOUR) else { return };
        self.recent.record(requested, usual, elapsed / RECENT_SECONDS);
        self.minute.record(requested, usual, elapsed / MINUTE_SECONDS);
        match &mut self.surge {
            Some(surge) => {
                surge.record(requested - usual, elapsed);
                match surge.is_counted {
                    true => self.excess += requested - usual,
                    false => surge.uncounted += requested - usual,
                }
                let is_less = |demand: DecayedDemand, seconds: f64, prior: f64| {
                    demand.excess() + prior < END_RATIO * surge.excess_within(seconds)
                };
                // A few requests more or less in a minute say nothing.
                let has_ended =
                    is_less(self.recent, RECENT_SECONDS, 0.0) || is_less(self.minute, MINUTE_SECONDS, PRIOR_UNITS);
                if has_ended {
                    self.surge = None;
                    self.recent.requested = self.recent.usual;
                }
            }
            None if self.recent.is_surge(SURGE_RATIO) && self.minute.is_surge(MINUTE_RATIO) => {
                self.surge = Some(Surge::new(self.minute.excess(), self.recent.excess()));
            }
            None => {}
        }
        self.excess = self.excess.clamp(0.0, self.requested);
    }

    /// Counts the current surge, if any. Returns true if it did not count before.
    fn count_surge(&mut self) -> bool {
        let Some(surge) = self.surge.as_mut().filter(|surge| !surge.is_counted) else { return false };
        surge.is_counted = true;
        self.excess = (self.excess + std::mem::take(&mut surge.uncounted)).clamp(0.0, self.requested);
        true
    }
}

impl DecayedDemand {
    /// Records demand within `decay` time constants.
    fn record(&mut self, requested: f64, usual: f64, decay: f64) {
        let factor = (-decay).exp();
        *self = Self { requested: self.requested * factor + requested, usual: self.usual * factor + usual };
    }

    fn is_surge(&self, ratio: f64) -> bool {
        self.requested + PRIOR_UNITS >= ratio * (self.usual + PRIOR_UNITS)
    }

    fn excess(&self) -> f64 {
        self.requested - self.usual
    }
}

impl Surge {
    /// Returns a surge that has requested `units` beyond the usual demand in its first minute, and `uncounted` in the last ones.
    fn new(units: f64, uncounted: f64) -> Self {
        Self { age: MINUTE_SECONDS, units, seconds: MINUTE_SECONDS, is_counted: false, uncounted }
    }

    fn record(&mut self, units: f64, elapsed: f64) {
        let factor = (-elapsed / RATE_SECONDS).exp();
        let (units, seconds) = (self.units * factor + units, self.seconds * factor + elapsed);
        *self = Self { age: self.age + elapsed, units, seconds, ..*self };
    }

    /// Returns the rate beyond the usual demand, in units per second.
    fn rate(&self) -> f64 {
        (self.units / self.seconds).max(0.0)
    }

    /// Returns the excess of decayed demand with the time constant `seconds`, if the rate has not changed.
    fn excess_within(&self, seconds: f64) -> f64 {
        self.rate() * seconds * (1.0 - (-self.age / seconds).exp())
    }
}
