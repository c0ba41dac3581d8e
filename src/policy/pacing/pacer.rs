//! Keeps the plan of one quota: watches what is asked, and plans anew every few seconds of the time that is handed in.

use super::bucket::{PacingAllowance, PacingBucket, PacingRate};
use super::demand::{DemandForecast, DemandModel};
use super::plan::{ClassAllocation, ClassDemand, PlanInput};
use super::week::{HOURS, WeekTime};
use super::{Pacing, PacingMode, Role};
use crate::policy::tier::Share;
use crate::policy::time::Timestamp;
use crate::policy::units::Units;
use crate::policy::window::Span;
use std::time::Duration;

/// The plan of one quota, and all that it is made from. Classes are known by a number of the keeper's own choice.
#[derive(Clone, Debug, Default)]
pub struct Pacer {
    classes: Vec<PacedClass>,
    hour: Option<ObservedHour>,
    due: Timestamp,
    window: Option<Timestamp>,
    /// This gate's part of what all expect to be asked for: of what remains it plans with as much.
    local_share: Option<f64>,
    planned: Units,
    /// By how much more may be taken before tiers hold.
    tier_slack: Units,
    earmarked: Units,
}

/// One class of the quota.
#[derive(Clone, Debug, Default)]
pub struct PacedClass {
    /// What it asks for.
    pub demand: DemandModel,
    /// What it may take now, once it was planned for.
    pub allotment: Option<PacingAllowance>,
    /// The share that was planned for it when the window began, or when its hours were first known in it.
    usual: Option<Share>,
}

/// The account as the plan finds it.
#[derive(Clone, Copy, Debug)]
pub struct QuotaTotals {
    /// What may be taken in all.
    pub limit: Units,
    /// Settled and reserved by all gates, or lost with one of them.
    pub taken: Units,
    /// What other gates expect to be asked for until the window ends, where that is known.
    pub expected_elsewhere: Option<Units>,
    /// The window.
    pub span: Span,
    /// When it is, by the clocks of the quota's zone.
    pub week: WeekTime,
}

/// The hour that is watched.
#[derive(Clone, Copy, Debug)]
struct ObservedHour {
    start: Timestamp,
    of_week: usize,
}

const HOUR: Duration = Duration::from_secs(3600);
/// A day is ahead of its plan when it is so by more than this many deviations of what comes by chance, beyond the burst.
const CHANCE_DEVIATIONS: f64 = 3.0;
/// A plan is made anew at least this often, and of a short window a thousand times.
const MAX_PLAN_AGE: Duration = Duration::from_secs(10);
const MIN_PLAN_AGE: Duration = Duration::from_millis(100);
const PLANS_PER_WINDOW: u32 = 1000;
/// After a longer silence nobody says what the hours between have been like.
const MAX_GAP_HOURS: u64 = 24;

impl Pacer {
    /// True when it is time for another plan.
    pub fn is_due(&self, now: Timestamp) -> bool {
        now >= self.due || self.hour.is_none_or(|hour| now < hour.start)
    }

    /// Plans anew. `class_of` says by which number each of the settings' classes is known.
    pub fn plan(&mut self, pacing: &Pacing, class_of: impl Fn(usize) -> usize, books: &QuotaTotals, now: Timestamp) {
        self.advance_hours(books.week, now);
        let span = books.span;
        let is_same_window = self.window.replace(span.start) == Some(span.start);
        let left = span.end.saturating_duration_since(now);
        let local_share = self.local_share(books, left);
        let limit = part_of(books.limit, local_share);
        let numbers: Vec<usize> = (0..pacing.roles.len()).map(&class_of).collect();
        let roles: Vec<(usize, Role)> = numbers.into_iter().zip(pacing.roles.iter().copied()).collect();
        let (week, forecast) = (books.week, pacing.forecast);

        let mut outlook = PlanInput {
            left: part_of(books.limit.saturating_sub(books.taken), local_share),
            limit,
            unpaced_demand: DemandForecast::default(),
            by_share: false,
            burst: pacing.burst_share.of_units(limit),
            paced: Vec::new(),
        };
        for (place, &(number, role)) in roles.iter().enumerate() {
            let class = self.class(number);
            class.usual = class.usual.filter(|_| is_same_window && class.uses_hourly_forecast(forecast));
            let expected = class.expected_demand(forecast, week, left);
            match role {
                Role::Unpaced => {
                    let first = if class.uses_hourly_forecast(forecast) {
                        expected
                    } else {
                        class.demand.forecast_peak(week, left)
                    };
                    outlook.unpaced_demand = outlook.unpaced_demand.add(first);
                }
                Role::Paced(weight) => {
                    outlook.by_share |= class.uses_hourly_forecast(forecast);
                    outlook.paced.push(ClassDemand {
                        weight: f64::from(weight.get())
                            * class.demand.remaining_fraction(week, now.saturating_duration_since(span.start), left),
                        units: expected.units,
                        priority: pacing.priorities.get(place).copied().unwrap_or_default(),
                        share: class.usual,
                    });
                }
                Role::Excluded => {}
            }
        }
        let plan = outlook.plan();
        let planned = self.planned_until(&roles, forecast, books, now);
        self.planned = units(planned.units);
        self.tier_slack =
            pacing.burst_share.of_units(books.limit).saturating_add(units(CHANCE_DEVIATIONS * planned.variance.sqrt()));
        let behind = self.planned.saturating_sub(books.taken);

        let paced = roles.iter().filter(|(_, role)| matches!(role, Role::Paced(_)));
        for ((number, _), of_class) in paced.zip(&plan.parts) {
            let class = self.class(*number);
            if class.uses_hourly_forecast(forecast) {
                class.usual.get_or_insert(of_class.share);
            }
            let offer = class.class_rate(forecast, week, left, of_class, pacing.burst_share.of_units(limit));
            // Whoever comes anew has no more at once than all have left of what was planned until now.
            let begun = PacingRate { burst: offer.burst.min(behind), ..offer };
            let mut purse = class.allotment.map_or_else(|| PacingBucket::full(&begun, now), |before| before.bucket);
            purse.take(purse.balance().saturating_sub(offer.burst));
            class.allotment = Some(PacingAllowance { rate: offer, bucket: purse });
        }
        self.earmarked = plan.earmarked;
        let rest_of_hour = self.hour.map_or(HOUR, |hour| (hour.start + HOUR).saturating_duration_since(now));
        let lasts = (span.length() / PLANS_PER_WINDOW).clamp(MIN_PLAN_AGE, MAX_PLAN_AGE);
        self.due = now + lasts.min(rest_of_hour).min(left.max(MIN_PLAN_AGE));
    }

    /// What is kept for the class of this number.
    pub fn class(&mut self, number: usize) -> &mut PacedClass {
        if number >= self.classes.len() {
            self.classes.resize_with(number + 1, PacedClass::default);
        }
        &mut self.classes[number]
    }

    /// All classes, by their numbers.
    pub fn classes(&self) -> &[PacedClass] {
        &self.classes
    }

    /// True when more is `taken` than was planned until now, and than the burst and chance allow.
    pub fn is_ahead(&self, taken: Units) -> bool {
        taken > self.planned.saturating_add(self.tier_slack)
    }

    /// What would be taken by now, had the plan been followed from the beginning.
    pub fn planned(&self) -> Units {
        self.planned
    }

    /// What is put aside for those served first.
    pub fn earmarked(&self) -> Units {
        self.earmarked
    }

    /// What is taken, or may be, was changed from outside.
    pub fn replan_now(&mut self) {
        self.due = Timestamp::default();
    }

    /// What all classes together are expected to ask for from `week` on for `span`.
    pub fn expected_demand(&self, week: WeekTime, span: Duration) -> Units {
        units(self.classes.iter().map(|class| class.expected_demand(PacingMode::Learned, week, span).units).sum())
    }

    /// This gate's part of what is expected of all, from 0 to 1; as it was, where nobody has said of the others.
    fn local_share(&mut self, books: &QuotaTotals, left: Duration) -> f64 {
        if let Some(elsewhere) = books.expected_elsewhere {
            // One unit more, so that a gate that nobody has asked yet does not plan with nothing.
            let here = self.expected_demand(books.week, left).as_f64() + 1.0;
            let all = here + elsewhere.as_f64();
            self.local_share = Some(here / all);
        }
        self.local_share.unwrap_or(1.0)
    }

    /// Ends the hours that are over.
    fn advance_hours(&mut self, week: WeekTime, now: Timestamp) {
        let ended = self.hour.map(|hour| (hour, now.saturating_duration_since(hour.start).as_secs() / HOUR.as_secs()));
        match ended {
            Some((hour, 0)) if now >= hour.start => return,
            Some((hour, ended @ 1..=MAX_GAP_HOURS)) => {
                for passed in 0..ended as usize {
                    let of_week = (hour.of_week + passed) % HOURS;
                    self.classes.iter_mut().for_each(|class| class.demand.finish_hour(of_week));
                }
            }
            _ => self.classes.iter_mut().for_each(|class| class.demand.start_hour_at(week)),
        }
        self.hour = Some(ObservedHour { start: now - week.since_hour(), of_week: week.hour() });
    }

    /// Where the plan would be by now: as much of the limit as usually falls into the part of the window that has passed.
    fn planned_until(
        &self,
        roles: &[(usize, Role)],
        forecast: PacingMode,
        books: &QuotaTotals,
        now: Timestamp,
    ) -> DemandForecast {
        let (passed, left) =
            (now.saturating_duration_since(books.span.start), books.span.end.saturating_duration_since(now));
        let planned = |from: WeekTime, span: Duration| {
            let of_class = |&(number, role): &(usize, Role)| {
                let class = self.classes.get(number)?;
                let served = match role {
                    Role::Unpaced => Share::ALL,
                    Role::Paced(_) => class.share(),
                    Role::Excluded => Share::NONE,
                };
                Some(class.demand.typical(from, span).scale(served))
            };
            roles.iter().filter_map(of_class).fold(DemandForecast::default(), DemandForecast::add)
        };
        let is_learned = forecast == PacingMode::Learned
            && roles.iter().all(|(number, _)| {
                self.classes.get(*number).is_some_and(|class| class.demand.week().has_daily_profile())
            });
        let by_time = |span: Duration| DemandForecast { units: span.as_secs_f64(), variance: 0.0 };
        let (before, after) = match is_learned {
            true => (planned(books.week.before(passed), passed), planned(books.week, left)),
            false => (by_time(passed), by_time(left)),
        };
        match before.units + after.units {
            0.0 => DemandForecast { units: books.limit.as_f64(), ..before },
            all => DemandForecast { units: books.limit.as_f64() * before.units / all, ..before },
        }
    }
}

impl PacedClass {
    /// The share of its requests that is served: all of them, as long as nothing was planned.
    pub fn share(&self) -> Share {
        self.allotment.map_or(Share::ALL, |allotment| allotment.rate.share)
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

    /// What it is offered of its `local_share`: by share where its hours are known, evenly over the time where they are not.
    fn class_rate(
        &self,
        forecast: PacingMode,
        week: WeekTime,
        left: Duration,
        local_share: &ClassAllocation,
        burst: Units,
    ) -> PacingRate {
        let soon = left.min(HOUR).max(MIN_PLAN_AGE);
        let left = left.max(MIN_PLAN_AGE);
        let (all, of_soon) =
            (self.expected_demand(forecast, week, left).units, self.expected_demand(forecast, week, soon).units);
        let falls_to_soon = if all > 0.0 { of_soon / all } else { hours(soon) / hours(left) };
        let per_hour = local_share.units * falls_to_soon / hours(soon) / self.demand.cost_ratio();
        let share = if self.uses_hourly_forecast(forecast) { local_share.share } else { Share::ALL };
        let chance = if all > 0.0 { Share::from_ratio(local_share.units / all).min(share) } else { share };
        PacingRate { share, long_run_share: chance, refill_per_hour: units(per_hour), burst }
    }
}

fn part_of(whole: Units, local_share: f64) -> Units {
    Share::from_ratio(local_share).of_units(whole)
}

fn hours(span: Duration) -> f64 {
    span.as_secs_f64() / HOUR.as_secs_f64()
}

fn units(amount: f64) -> Units {
    Units::from_milli((amount * 1000.0) as u64)
}
