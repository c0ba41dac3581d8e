//! Pacer: keeps the plan of one quota. Records demand, and replans every few seconds of the time handed in.

use super::bucket::{PacingAllowance, PacingBucket, PacingRate};
use super::demand::{DemandForecast, DemandModel};
use super::plan::{ClassAllocation, ClassDemand, Plan, PlanInput};
use super::recent_admission::RecentAdmission;
use super::week::{HOURS_PER_WEEK, WeekTime};
use super::{Pacing, PacingMode, PacingRole};
use crate::Timestamp;
use crate::tier::Share;
use crate::units::Units;
use crate::window::Span;
use std::time::Duration;

/// Plan of one quota, with its inputs. Classes are identified by indexes that the caller chooses.
#[derive(Clone, Debug, Default)]
pub struct Pacer {
    classes: Vec<PacedClass>,
    hour: Option<ObservedHour>,
    next_plan_at: Timestamp,
    window_start: Option<Timestamp>,
    /// This instance's part of the total forecast demand, as a ratio; it plans with this part of the remaining units.
    local_share: Option<f64>,
    planned: Units,
    /// Units by which usage may exceed the planned usage before tiers apply.
    tier_slack: Units,
    earmarked: Units,
    surplus: Surplus,
}

/// Units of a window that no request is expected to need.
#[derive(Clone, Copy, Debug, Default)]
struct Surplus {
    /// Surplus when the last part of the window began; `None` before.
    at_start: Option<Units>,
    /// Usage up to which stored responses may be refreshed.
    refresh_limit: Units,
}

/// Pacing state of one class.
#[derive(Clone, Debug, Default)]
pub struct PacedClass {
    /// Demand of the class.
    pub demand: DemandModel,
    /// What was admitted recently.
    pub recent: RecentAdmission,
    /// Current allowance, once planned.
    pub allowance: Option<PacingAllowance>,
    /// Admit share planned at the start of the window, or when its hourly profile first became known in it.
    initial_share: Option<Share>,
}

/// Usage of the quota as input of the plan.
#[derive(Clone, Copy, Debug)]
pub struct QuotaTotals {
    /// Limit of the window, in units.
    pub limit: Units,
    /// Units settled, reserved or lost, over all instances.
    pub taken: Units,
    /// Forecast demand of other instances until the end of the window, if known.
    pub expected_by_others: Option<Units>,
    /// Span of the window.
    pub span: Span,
    /// Current time of week in the quota's time zone.
    pub week: WeekTime,
}

/// Hour that is currently observed.
#[derive(Clone, Copy, Debug)]
struct ObservedHour {
    start: Timestamp,
    hour_of_week: usize,
}

const HOUR: Duration = Duration::from_secs(3600);
/// Number of standard deviations of random demand by which usage may exceed the plan, in addition to the burst.
const NOISE_DEVIATIONS: f64 = 3.0;
/// Maximum age of a plan. Short windows are replanned [`PLANS_PER_WINDOW`] times.
const MAX_PLAN_AGE: Duration = Duration::from_secs(10);
const MIN_PLAN_AGE: Duration = Duration::from_millis(100);
const PLANS_PER_WINDOW: u32 = 1000;
/// Last part of a window, in which surplus units are used, as a divisor. Before, forecasts of the rest are too uncertain, and
/// what is refreshed would be stale again at its end.
const SURPLUS_PART: u32 = 8;
/// Admit share below which a class lacks units: a surge of one of its operators then counts at once. A slight lack may be an
/// error of the forecast.
const SHORT_SHARE: Share = Share::from_millionths(900_000);
/// Maximum gap, in hours, over which hours without requests are recorded as observed.
const MAX_GAP_HOURS: u64 = 24;

impl Pacer {
    /// Returns true if a new plan is due.
    pub fn is_due(&self, now: Timestamp) -> bool {
        now >= self.next_plan_at || self.hour.is_none_or(|hour| now < hour.start)
    }

    /// Computes a new plan. `class_of` maps indexes of the settings' classes to those of this pacer.
    pub fn plan(&mut self, pacing: &Pacing, class_of: impl Fn(usize) -> usize, totals: &QuotaTotals, now: Timestamp) {
        let numbers: Vec<usize> = (0..pacing.roles.len()).map(&class_of).collect();
        self.start_new_classes(&numbers, totals.week);
        self.advance_hours(totals.week, now);
        let updated = self.classes.iter_mut().map(|class| class.demand.update_surges(totals.week, now));
        let has_changed = updated.fold(false, |any, has_changed| any | has_changed);
        let span = totals.span;
        let is_same_window = self.window_start.replace(span.start) == Some(span.start);
        let left = span.end.saturating_duration_since(now);
        let local_share = self.local_share(totals, left);
        let limit = scale_units(totals.limit, local_share);
        let roles: Vec<(usize, PacingRole)> = numbers.into_iter().zip(pacing.roles.iter().copied()).collect();
        let (week, forecast) = (totals.week, pacing.forecast);
        let burst = pacing.burst_share.of_units(limit);
        for class in &mut self.classes {
            class.initial_share =
                class.initial_share.filter(|_| is_same_window && !has_changed && class.uses_hourly_forecast(forecast));
        }
        let available = scale_units(totals.limit.saturating_sub(totals.taken), local_share);
        let mut plan = self.plan_input(pacing, &roles, totals, (available, limit), now).plan();
        if self.count_surges_of_short_classes(&roles, &plan) {
            self.classes.iter_mut().for_each(|class| class.initial_share = None);
            plan = self.plan_input(pacing, &roles, totals, (available, limit), now).plan();
        }
        let planned = self.planned_usage(&roles, forecast, totals, now);
        self.planned = units(planned.units);
        self.tier_slack =
            pacing.burst_share.of_units(totals.limit).saturating_add(units(NOISE_DEVIATIONS * planned.variance.sqrt()));
        let planned = self.planned;

        let paced = roles.iter().filter(|(_, role)| matches!(role, PacingRole::Paced(_)));
        for ((number, _), allocation) in paced.zip(&plan.allocations) {
            let class = self.class(*number);
            if class.uses_hourly_forecast(forecast) {
                class.initial_share.get_or_insert(allocation.share);
            }
            let rate = class.class_rate(forecast, week, left, allocation, burst);
            // A new class starts with at most the planned units that are still unused; one that is known finds in the first units
            // of a window what is left of one burst.
            let first_units = if class.uses_hourly_forecast(forecast) { burst } else { Units::ZERO };
            let unused = planned.max(first_units).saturating_sub(totals.taken);
            let initial_rate = PacingRate { burst: rate.burst.min(unused), ..rate };
            let mut bucket =
                class.allowance.map_or_else(|| PacingBucket::full(&initial_rate, now), |allowance| allowance.bucket);
            bucket.take(bucket.balance().saturating_sub(rate.burst));
            class.allowance = Some(PacingAllowance { rate, bucket });
        }
        self.earmarked = plan.earmarked;
        let at_start = self.surplus.at_start.filter(|_| is_same_window);
        self.surplus = Surplus::new(at_start, totals, (plan.expected, plan.demanded), local_share, now);
        let rest_of_hour = self.hour.map_or(HOUR, |hour| (hour.start + HOUR).saturating_duration_since(now));
        let max_age = (span.length() / PLANS_PER_WINDOW).clamp(MIN_PLAN_AGE, MAX_PLAN_AGE);
        self.next_plan_at = now + max_age.min(rest_of_hour).min(left.max(MIN_PLAN_AGE));
    }

    /// Returns the input of a plan for `available` units of `limit`.
    fn plan_input(
        &self,
        pacing: &Pacing,
        roles: &[(usize, PacingRole)],
        totals: &QuotaTotals,
        (available, limit): (Units, Units),
        now: Timestamp,
    ) -> PlanInput {
        let (week, forecast, burst) = (totals.week, pacing.forecast, pacing.burst_share.of_units(limit));
        let left = totals.span.end.saturating_duration_since(now);
        let mut input = PlanInput {
            left: available,
            limit,
            unpaced_demand: DemandForecast::default(),
            is_share_based: false,
            paced_classes: Vec::new(),
        };
        for (index, &(number, role)) in roles.iter().enumerate() {
            let class = &self.classes[number];
            let expected = class.expected_demand(forecast, week, left);
            match role {
                PacingRole::Unpaced => {
                    let demand = if class.uses_hourly_forecast(forecast) {
                        expected
                    } else {
                        class.demand.forecast_peak(week, left)
                    };
                    input.unpaced_demand = input.unpaced_demand.plus(demand);
                }
                PacingRole::Paced(weight) => {
                    input.is_share_based |= class.uses_hourly_forecast(forecast);
                    input.paced_classes.push(ClassDemand {
                        weight: f64::from(weight.get())
                            * class.demand.remaining_fraction(
                                week,
                                now.saturating_duration_since(totals.span.start),
                                left,
                            ),
                        units: expected.units,
                        burst: burst.as_f64(),
                        priority: pacing.priorities.get(index).copied().unwrap_or_default(),
                        initial_share: class.initial_share,
                    });
                }
                PacingRole::Excluded => {}
            }
        }
        input
    }

    /// Counts the surges of the classes that lack units in `plan`. Returns true if one did not count before.
    fn count_surges_of_short_classes(&mut self, roles: &[(usize, PacingRole)], plan: &Plan) -> bool {
        let paced = roles.iter().filter(|(_, role)| matches!(role, PacingRole::Paced(_)));
        let short = paced.zip(&plan.allocations).filter(|(_, allocation)| allocation.share < SHORT_SHARE);
        short.fold(false, |any, ((number, _), _)| any | self.classes[*number].demand.count_surges())
    }

    /// Returns the state of the class at index `number`; creates it if missing.
    pub fn class(&mut self, number: usize) -> &mut PacedClass {
        if number >= self.classes.len() {
            self.classes.resize_with(number + 1, PacedClass::default);
        }
        &mut self.classes[number]
    }

    /// Returns all classes, by index.
    pub fn classes(&self) -> &[PacedClass] {
        &self.classes
    }

    /// Returns true if `taken` exceeds the planned usage by more than burst and random variation.
    pub fn is_ahead(&self, taken: Units) -> bool {
        taken > self.planned.saturating_add(self.tier_slack)
    }

    /// Returns the units that the plan would have used by now.
    pub fn planned(&self) -> Units {
        self.planned
    }

    /// Returns the units earmarked for unpaced classes.
    pub fn earmarked(&self) -> Units {
        self.earmarked
    }

    /// Returns the usage up to which stored responses may be refreshed.
    pub fn refresh_limit(&self) -> Units {
        self.surplus.refresh_limit
    }

    /// Returns true if a refresh after which `taken` units are used may be admitted in the window of `span`: by this plan,
    /// or perhaps by the next one, if that is due.
    pub fn may_refresh(&self, taken: Units, span: Span, now: Timestamp) -> bool {
        is_last_part(span, now) && (self.is_due(now) || taken <= self.surplus.refresh_limit)
    }

    /// Requests a new plan after an external change of the usage or limit.
    pub fn replan_now(&mut self) {
        self.next_plan_at = Timestamp::default();
    }

    /// Returns the forecast demand of all classes from `week` on for `span`.
    pub fn expected_demand(&self, week: WeekTime, span: Duration) -> Units {
        units(self.classes.iter().map(|class| class.expected_demand(PacingMode::Learned, week, span).units).sum())
    }

    /// Returns this instance's part of the total forecast demand, 0 to 1; the previous part if the others are unknown.
    fn local_share(&mut self, totals: &QuotaTotals, left: Duration) -> f64 {
        if let Some(elsewhere) = totals.expected_by_others {
            // Adds one unit, so that an instance without any demand yet does not plan with zero.
            let local = self.expected_demand(totals.week, left).as_f64() + 1.0;
            let total = local + elsewhere.as_f64();
            self.local_share = Some(local / total);
        }
        self.local_share.unwrap_or(1.0)
    }

    /// Creates the missing classes. They are observed from now on: what they requested earlier in this hour is unknown.
    fn start_new_classes(&mut self, numbers: &[usize], week: WeekTime) {
        let existing = self.classes.len();
        let count = numbers.iter().max().map_or(0, |last| last + 1);
        self.classes.resize_with(count.max(existing), PacedClass::default);
        self.classes[existing..].iter_mut().for_each(|class| class.demand.start_hour_at(week));
    }

    /// Records the hours that have ended.
    fn advance_hours(&mut self, week: WeekTime, now: Timestamp) {
        let elapsed =
            self.hour.map(|hour| (hour, now.saturating_duration_since(hour.start).as_secs() / HOUR.as_secs()));
        match elapsed {
            Some((hour, 0)) if now >= hour.start => return,
            Some((hour, elapsed @ 1..=MAX_GAP_HOURS)) => {
                for offset in 0..elapsed as usize {
                    let hour_of_week = (hour.hour_of_week + offset) % HOURS_PER_WEEK;
                    self.classes.iter_mut().for_each(|class| class.demand.finish_hour(hour_of_week));
                }
            }
            _ => self.classes.iter_mut().for_each(|class| class.demand.start_hour_at(week)),
        }
        self.hour = Some(ObservedHour { start: now - week.time_into_hour(), hour_of_week: week.hour() });
    }

    /// Returns the planned usage by now: the part of the limit that typically falls into the elapsed part of the
    /// window.
    fn planned_usage(
        &self,
        roles: &[(usize, PacingRole)],
        forecast: PacingMode,
        totals: &QuotaTotals,
        now: Timestamp,
    ) -> DemandForecast {
        let (elapsed, left) =
            (now.saturating_duration_since(totals.span.start), totals.span.end.saturating_duration_since(now));
        let planned = |from: WeekTime, span: Duration| {
            let class_demand = |&(number, role): &(usize, PacingRole)| {
                let class = self.classes.get(number)?;
                let admit_share = match role {
                    PacingRole::Unpaced => Share::ALL,
                    PacingRole::Paced(_) => class.share(),
                    PacingRole::Excluded => Share::NONE,
                };
                Some(class.demand.typical(from, span).scale(admit_share))
            };
            roles.iter().filter_map(class_demand).fold(DemandForecast::default(), DemandForecast::plus)
        };
        let is_learned = forecast == PacingMode::Learned
            && roles.iter().all(|(number, _)| {
                self.classes.get(*number).is_some_and(|class| class.demand.week().has_daily_profile())
            });
        let by_time = |span: Duration| DemandForecast { units: span.as_secs_f64(), variance: 0.0 };
        let (before, after) = match is_learned {
            true => (planned(totals.week.before(elapsed), elapsed), planned(totals.week, left)),
            false => (by_time(elapsed), by_time(left)),
        };
        match before.units + after.units {
            0.0 => DemandForecast { units: totals.limit.as_f64(), ..before },
            total => DemandForecast { units: totals.limit.as_f64() * before.units / total, ..before },
        }
    }
}

impl Surplus {
    /// Returns the surplus at `now`. This instance has the part `local_share` of the demand, and its requests are expected to
    /// use `expected` units until the end of the window, and ask for `demanded`. The surplus is released evenly over the last
    /// part of the window, so that a demand beyond its forecast finds the rest. Requests that the plan refuses count less
    /// and less: only what they leave at the very end is surplus.
    fn new(
        at_start: Option<Units>,
        totals: &QuotaTotals,
        (expected, demanded): (Units, Units),
        local_share: f64,
        now: Timestamp,
    ) -> Self {
        if !is_last_part(totals.span, now) || local_share <= 0.0 {
            return Self::default();
        }
        let left = totals.span.end.saturating_duration_since(now);
        let last_part = totals.span.length() / SURPLUS_PART;
        let left_part = left.as_secs_f64() / last_part.as_secs_f64().max(f64::MIN_POSITIVE);
        let needed = expected.as_f64() + demanded.saturating_sub(expected).as_f64() * left_part;
        let needed_by_all = units(needed / local_share);
        let surplus = totals.limit.saturating_sub(totals.taken).saturating_sub(needed_by_all);
        let at_start = at_start.unwrap_or(surplus);
        let held_back = scale_units(at_start, left_part);
        let refresh_limit = totals.limit.saturating_sub(needed_by_all).saturating_sub(held_back);
        Self { at_start: Some(at_start), refresh_limit }
    }
}

impl PacedClass {
    /// Returns the admit share; all requests while there is no plan.
    pub fn share(&self) -> Share {
        self.allowance.map_or(Share::ALL, |allowance| allowance.rate.share)
    }

    /// Returns the share of the class's recent demand that was admitted; without recent demand, the share that the plan
    /// admits in the long run.
    pub fn admitted_share(&self, now: Timestamp) -> Share {
        let planned = || self.allowance.map_or(Share::ALL, |allowance| allowance.rate.long_run_share);
        self.recent.share(now).unwrap_or_else(planned)
    }

    fn expected_demand(&self, forecast: PacingMode, week: WeekTime, span: Duration) -> DemandForecast {
        match self.uses_hourly_forecast(forecast) {
            true => self.demand.forecast_learned(week, span),
            false => self.demand.forecast_even(week, span),
        }
    }

    fn uses_hourly_forecast(&self, forecast: PacingMode) -> bool {
        forecast == PacingMode::Learned && self.demand.week().has_daily_profile()
    }

    /// Returns the burst of a class that lacks units: the less, the more requests compete for it.
    fn burst(&self, forecast: PacingMode, week: WeekTime, left: Duration, burst: Units) -> f64 {
        let level = match self.uses_hourly_forecast(forecast) {
            true => {
                self.demand.forecast_learned(week, left).units
                    / (self.demand.typical(week, left).units * self.demand.cost_ratio()).max(1.0)
            }
            false => 1.0,
        };
        burst.as_f64() / level.max(1.0)
    }

    /// Returns the rate for an allocation: by share if the hourly profile is known, otherwise evenly over time.
    fn class_rate(
        &self,
        forecast: PacingMode,
        week: WeekTime,
        left: Duration,
        allocation: &ClassAllocation,
        burst: Units,
    ) -> PacingRate {
        let next_hour = left.min(HOUR).max(MIN_PLAN_AGE);
        let left = left.max(MIN_PLAN_AGE);
        let (total, in_next_hour) =
            (self.expected_demand(forecast, week, left).units, self.expected_demand(forecast, week, next_hour).units);
        let next_hour_fraction = if total > 0.0 { in_next_hour / total } else { hours(next_hour) / hours(left) };
        let per_hour = allocation.units * next_hour_fraction / hours(next_hour) / self.demand.cost_ratio();
        let share = if self.uses_hourly_forecast(forecast) { allocation.share } else { Share::ALL };
        let burst = if share == Share::ALL { burst } else { units(self.burst(forecast, week, left, burst)) };
        let long_run_share = if total > 0.0 { Share::from_ratio(allocation.units / total).min(share) } else { share };
        PacingRate { share, long_run_share, refill_per_hour: units(per_hour), burst }
    }
}

/// Returns true in the part of a window in which surplus units are used.
fn is_last_part(span: Span, now: Timestamp) -> bool {
    span.end.saturating_duration_since(now) <= span.length() / SURPLUS_PART
}

fn scale_units(whole: Units, ratio: f64) -> Units {
    Share::from_ratio(ratio).of_units(whole)
}

fn hours(span: Duration) -> f64 {
    span.as_secs_f64() / HOUR.as_secs_f64()
}

fn units(amount: f64) -> Units {
    Units::from_milli((amount * 1000.0) as u64)
}
