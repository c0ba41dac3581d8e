use super::bucket::{PacingBucket, PacingRate, PacingRefused};
use super::demand::{DemandForecast, DemandModel};
use super::pacer::{Pacer, QuotaTotals};
use super::plan::{ClassDemand, PlanInput};
use super::week::{HOURS_PER_WEEK, HourProfile, WeekTime};
use super::*;
use crate::Timestamp;
use crate::fixtures;
use crate::ids::OperatorId;
use crate::units::Units;
use crate::window::Span;
use proptest::prelude::*;
use std::time::Duration;

const HUMANS: usize = 0;
const SEARCH: usize = 1;
const DAY: u64 = 86_400;
/// Plans are made every ten seconds.
const STEPS_PER_HOUR: u64 = 360;

fn plan_input(left: u64, unpaced: f64, paced: &[(f64, f64)]) -> PlanInput {
    let demand =
        |&(weight, units): &(f64, f64)| ClassDemand { weight, units, burst: 500.0, priority: 0, initial_share: None };
    PlanInput {
        left: Units::from_whole(left),
        limit: Units::from_whole(10_000),
        unpaced_demand: DemandForecast { units: unpaced, variance: unpaced },
        is_share_based: true,
        paced_classes: paced.iter().map(demand).collect(),
    }
}

fn admit_shares(input: &PlanInput) -> Vec<f64> {
    let rounded = |share: Share| (share.ratio() * 100.0).round() / 100.0;
    input.plan().allocations.iter().map(|part| rounded(part.share)).collect()
}

#[test]
fn class_without_a_role_is_unpaced() {
    let roles = [PacingRole::Excluded, PacingRole::Paced(NonZeroU32::MIN)];
    let pacing = fixtures::pacing(&roles);
    assert_eq!([0, 1, 2].map(|class| pacing.role(ClassId(class))), [roles[0], roles[1], PacingRole::Unpaced]);
    assert_eq!([0, 1, 2].map(|class| pacing.is_paced(ClassId(class))), [false, true, false]);
    assert_eq!([PacingMode::Even, PacingMode::Learned].map(PacingMode::name), ["even", "learned"]);
}

#[test]
fn unpaced_demand_is_earmarked_rest_divided_by_weight() {
    assert_eq!(
        admit_shares(&plan_input(6000, 2000.0, &[(1.0, 8000.0)])),
        [0.49],
        "a margin is kept for unforeseen demand"
    );
    assert_eq!(admit_shares(&plan_input(6000, 2000.0, &[(3.0, 10_000.0), (1.0, 10_000.0)])), [0.3, 0.1]);
    assert_eq!(
        admit_shares(&plan_input(6000, 2000.0, &[(1.0, 500.0), (1.0, 10_000.0)])),
        [1.0, 0.35],
        "the excess of one class goes to the other"
    );
    assert_eq!(admit_shares(&plan_input(6000, 7000.0, &[(1.0, 10_000.0)])), [0.0], "unpaced demand comes first");
    assert_eq!(admit_shares(&plan_input(6000, 100.0, &[(1.0, 10.0)])), [1.0]);
}

#[test]
fn units_that_a_class_cannot_use_are_divided_by_weight_again() {
    let mut input = plan_input(340, 0.0, &[(1.0, 1000.0), (1.0, 1000.0), (1.0, 50.0), (4.0, 100.0)]);
    (input.is_share_based, input.unpaced_demand.variance) = (false, 0.0);
    let units: Vec<f64> = input.plan().allocations.iter().map(|part| part.units.round()).collect();
    assert_eq!(units, [95.0, 95.0, 50.0, 100.0], "the last two need less than their part");
}

#[test]
fn class_keeps_no_lower_share_than_leaves_the_others_what_they_can_use() {
    let mut input = plan_input(300, 0.0, &[(1.0, 1000.0), (1.0, 10.0)]);
    (input.is_share_based, input.unpaced_demand.variance) = (false, 0.0);
    input.paced_classes[0].initial_share = Some(Share::NONE);
    assert_eq!(admit_shares(&input), [0.29, 1.0]);
}

#[test]
fn kept_share_deviates_from_the_weight_by_at_most_the_burst() {
    let shares_with = |initial: Share| {
        let mut input = plan_input(4000, 0.0, &[(1.0, 5000.0), (1.0, 5000.0)]);
        (input.is_share_based, input.unpaced_demand.variance) = (false, 0.0);
        input.paced_classes[0].initial_share = Some(initial);
        admit_shares(&input)
    };
    assert_eq!(shares_with(Share::NONE), [0.3, 0.5], "2000 units each, less and more 500");
    assert_eq!(shares_with(Share::ALL), [0.5, 0.3]);
}

#[test]
fn share_is_kept_within_the_unused_tolerance() {
    let planned = |mut input: PlanInput, hundredths: u32| {
        input.paced_classes[0].initial_share = Some(Share::from_millionths(10_000 * hundredths));
        admit_shares(&input)[0]
    };
    let (early, late) = (plan_input(9000, 3000.0, &[(1.0, 12_000.0)]), plan_input(600, 200.0, &[(1.0, 800.0)]));
    assert_eq!([40, 45, 49].map(|share| planned(late.clone(), share)), [0.4, 0.45, 0.49]);
    assert_eq!(
        [30, 55].map(|share| planned(late.clone(), share)),
        [0.4, 0.49],
        "the remainder would leave the tolerance"
    );
    assert_eq!([45, 49, 55].map(|share| planned(early.clone(), share)), [0.5; 3], "slight change of the whole day");
}

#[test]
fn class_of_the_lowest_priority_reserves_half_of_its_units() {
    let shares_with = |demand: f64, priorities: [u8; 2]| {
        let mut input = plan_input(4050, 0.0, &[(1.0, 2000.0), (1.0, demand)]);
        input.unpaced_demand.variance = 0.0;
        (input.paced_classes[0].priority, input.paced_classes[1].priority) = (priorities[0], priorities[1]);
        admit_shares(&input)
    };
    assert_eq!(shares_with(20_000.0, [0, 0]), [1.0, 0.1]);
    assert_eq!(shares_with(20_000.0, [1, 0]), [1.0, 0.05]);
    assert_eq!(shares_with(2500.0, [1, 0]), [1.0, 0.61], "not more than it is refused anyway");
    assert_eq!(shares_with(1900.0, [1, 0]), [1.0, 1.0]);
}

#[test]
fn class_of_the_lowest_priority_reserves_the_random_variation_of_unpaced_demand() {
    let admitted_with = |deviation: f64| {
        let mut input = plan_input(4045, 2000.0, &[(8.0, 10_000.0), (1.0, 10_000.0)]);
        (input.paced_classes[0].priority, input.unpaced_demand.variance) = (1, deviation.powi(2));
        input.plan().allocations.iter().map(|part| (part.share.ratio() * 10_000.0).round()).collect::<Vec<_>>()
    };
    assert_eq!(admitted_with(0.0), [1778.0, 111.0], "half of 222 units");
    assert_eq!(admitted_with(152.0), [1778.0, 70.0], "what exceeds a standard deviation");
    assert_eq!(admitted_with(500.0), [1778.0, 0.0]);
}

#[test]
fn reserved_units_are_used_by_the_end() {
    let steps = 24 * STEPS_PER_HOUR;
    for (search, bots) in [(0.0, 11_000.0), (2000.0, 9000.0), (8000.0, 60_000.0), (30_000.0, 30_000.0)] {
        let mut left = 10_000.0;
        for step in 0..steps {
            let ahead = (steps - step) as f64 / steps as f64;
            let mut input = plan_input(left as u64, 0.0, &[(8.0, search * ahead), (1.0, bots * ahead)]);
            input.paced_classes[0].priority = 1;
            let shares = input.plan().allocations;
            left -= (shares[0].share.ratio() * search + shares[1].share.ratio() * bots) / steps as f64;
        }
        assert!((0.0..=100.0).contains(&left), "{left} of 10000 left");
    }
}

#[test]
fn the_share_of_a_lower_priority_changes_first() {
    let shares_with = |left, priorities: [u8; 2]| {
        let mut input = plan_input(left, 2000.0, &[(1.0, 5000.0), (1.0, 5000.0)]);
        for (class, priority) in input.paced_classes.iter_mut().zip(priorities) {
            (class.priority, class.initial_share) = (priority, Some(Share::from_millionths(400_000)));
        }
        admit_shares(&input)
    };
    assert_eq!(shares_with(6000, [0, 0]), [0.4, 0.39]);
    assert_eq!(shares_with(5500, [1, 0]), [0.4, 0.15], "unpaced demand exceeds the forecast by 500 units");
    assert_eq!(shares_with(5500, [0, 1]), [0.15, 0.4]);
    assert_eq!(shares_with(5500, [1, 1]), [0.4, 0.29], "on equal priority, the first class of the file");
    assert_eq!(shares_with(4000, [1, 0]), [0.3, 0.05], "within the burst of half the budget");
    assert_eq!(shares_with(2200, [1, 0]), [0.04, 0.0]);
    assert_eq!(shares_with(12_000, [1, 0]), [0.99, 1.0]);
}

#[test]
fn bucket_refill_is_exact_for_any_polling() {
    let rate = PacingRate {
        share: Share::ALL,
        long_run_share: Share::ALL,
        refill_per_hour: Units::from_milli(1234),
        burst: Units::from_whole(5),
    };
    let start = Timestamp::from_seconds(1000);
    let mut polled = PacingBucket::full(&rate, start);
    polled.take(Units::from_whole(10));
    let mut once = polled;
    for second in 1..=36_000 {
        (polled, _) = polled.try_take(&rate, Units::from_whole(5), 0, start + Duration::from_secs(second));
    }
    let end = start + Duration::from_secs(36_000);
    (once, _) = once.try_take(&rate, Units::from_whole(5), 0, end);
    assert_eq!(polled, once);
    let (_, result) = once.try_take(&rate, Units::from_whole(5), 0, end);
    assert!(result.is_ok(), "12.34 units added in ten hours, 5 units in debt");
}

#[test]
fn pacing_wait_is_exact() {
    let rate = PacingRate {
        share: Share::ALL,
        long_run_share: Share::ALL,
        refill_per_hour: Units::from_whole(60),
        burst: Units::from_whole(2),
    };
    let start = Timestamp::from_seconds(1000);
    let mut bucket = PacingBucket::full(&rate, start);
    bucket.take(Units::from_whole(2));
    let (bucket, Err(PacingRefused(wait))) = bucket.try_take(&rate, Units::from_whole(1), 0, start) else {
        panic!("not empty")
    };
    assert_eq!(wait, Duration::from_secs(60));
    assert!(bucket.try_take(&rate, Units::from_whole(1), 0, start + wait - Duration::from_nanos(1)).1.is_err());
    assert!(bucket.try_take(&rate, Units::from_whole(1), 0, start + wait).1.is_ok());
    assert!(
        bucket.try_take(&rate, Units::from_whole(50), 0, start + 2 * wait).1.is_ok(),
        "a full bucket pays any cost and may go negative"
    );
}

#[test]
fn empty_bucket_with_small_share_delays_the_retry() {
    let rate = PacingRate {
        share: Share::ALL,
        long_run_share: Share::from_millionths(200_000),
        refill_per_hour: Units::from_whole(3600),
        burst: Units::from_whole(2),
    };
    let mut bucket = PacingBucket::full(&rate, Timestamp(0));
    bucket.take(Units::from_whole(2));
    let (_, result) = bucket.try_take(&rate, Units::from_whole(1), 0, Timestamp(0));
    assert_eq!(
        result,
        Err(PacingRefused(Duration::from_secs(300))),
        "the wait is longer than the time to the next unit"
    );
}

#[test]
fn borrowed_turn_is_paid_by_the_next_request() {
    let (rate, now) = (rate_with_share(500_000), Timestamp(0));
    let mut bucket = PacingBucket::full(&rate, now);
    let mut admits = |borrowable: u32| {
        let (after, result) = bucket.try_take(&rate, Units::from_whole(1), borrowable, now);
        bucket = after;
        result.is_ok()
    };
    assert_eq!([admits(0), admits(1), admits(0), admits(0), admits(0)], [true, true, false, false, true]);
    let full_rate = PacingRate { share: Share::ALL, ..rate };
    assert!(
        bucket
            .try_take(&rate, Units::from_whole(1), 1, now)
            .0
            .try_take(&full_rate, Units::from_whole(1), 0, now)
            .1
            .is_ok()
    );
}

fn rate_with_share(millionths: u32) -> PacingRate {
    let share = Share::from_millionths(millionths);
    PacingRate { share, long_run_share: share, refill_per_hour: Units::ZERO, burst: Units::from_whole(1000) }
}

/// Simulated quota of 1,000 units a day.
struct PacedSite {
    pacing: Pacing,
    pacer: Pacer,
    taken: u64,
    limit: u64,
}

impl PacedSite {
    fn new(forecast: PacingMode) -> Self {
        let roles = vec![PacingRole::Unpaced, PacingRole::Paced(NonZeroU32::MIN)];
        let (burst, priorities) = (Share::from_millionths(50_000), Vec::new());
        let pacing = Pacing { forecast, burst_share: burst, roles, priorities, enforce: true };
        Self { pacing, pacer: Pacer::default(), taken: 0, limit: 1000 }
    }

    fn plan(&mut self, now: u64) {
        let day = now / DAY * DAY;
        let span = Span { start: Timestamp::from_seconds(day), end: Timestamp::from_seconds(day + DAY) };
        let taken = Units::from_whole(self.taken);
        let week = WeekTime(((now + 3 * DAY) % (7 * DAY)) as f64);
        let limit = Units::from_whole(self.limit);
        let totals = QuotaTotals { limit, taken, expected_by_others: None, span, week };
        self.pacer.plan(&self.pacing, |index| index, &totals, Timestamp::from_seconds(now));
    }

    /// Simulates an hour with the demand of humans and of search engines, in units.
    fn run_hour(&mut self, now: u64, human: u64, search: u64) {
        self.taken = if now.is_multiple_of(DAY) { 0 } else { self.taken };
        self.plan(now);
        for (class, units) in [(HUMANS, human), (SEARCH, search)] {
            self.pacer.class(class).demand.record_request(Units::from_whole(units));
        }
        let admitted = self.share().of_units(Units::from_whole(search)).floor();
        self.taken = (self.taken + human + admitted).min(1000);
    }

    /// Simulates an hour in which an operator sends all requests of search engines, evenly. Returns the share that is admitted.
    fn run_surging_hour(&mut self, now: u64, human: u64, search: u64) -> f64 {
        self.taken = if now.is_multiple_of(DAY) { 0 } else { self.taken };
        let mut admitted = 0.0;
        for step in 0..STEPS_PER_HOUR {
            self.plan(now + step * 3600 / STEPS_PER_HOUR);
            let demand = &mut self.pacer.class(SEARCH).demand;
            demand.record_request(Units::from_whole(search / STEPS_PER_HOUR));
            demand.record_operator(OperatorId(3), Units::from_whole(search / STEPS_PER_HOUR));
            self.pacer.class(HUMANS).demand.record_request(Units::from_whole(human / STEPS_PER_HOUR));
            let units = self.share().ratio() * (search / STEPS_PER_HOUR) as f64;
            admitted += units;
            self.taken = (self.taken + human / STEPS_PER_HOUR + units.round() as u64).min(self.limit);
        }
        admitted / search as f64
    }

    fn share(&self) -> Share {
        self.pacer.classes().get(SEARCH).map_or(Share::ALL, |class| class.share())
    }
}

#[test]
fn share_is_even_from_the_second_day() {
    let mut site = PacedSite::new(PacingMode::Learned);
    for hour in 0..24 * 3 {
        site.run_hour(hour * 3600, if hour % 24 < 12 { 10 } else { 30 }, if hour % 4 == 0 { 200 } else { 20 });
        // In the last hours the withheld units are released.
        if hour >= 25 && hour % 24 < 22 {
            let share = site.share().ratio();
            assert!((share - 520.0 / 1560.0).abs() < 0.04, "{share} in hour {hour}");
        }
    }
    assert!(site.pacer.earmarked() < Units::from_whole(50), "only the last hour is earmarked");
}

#[test]
fn reduced_share_recovers() {
    let mut site = PacedSite::new(PacingMode::Learned);
    (0..53).for_each(|hour| site.run_hour(hour * 3600, 10, 100));
    let (before, taken) = (site.share(), site.taken);
    site.taken = taken + 300;
    site.plan(53 * 3600);
    assert!(site.share() < before);
    site.taken = taken;
    site.plan(53 * 3600 + 10);
    let after = site.share();
    assert!(after.ratio() > before.ratio() - 0.01, "{after:?} after {before:?}");
}

#[test]
fn planned_usage_follows_the_typical_day() {
    let mut site = PacedSite::new(PacingMode::Learned);
    (0..48).for_each(|hour| site.run_hour(hour * 3600, if hour % 24 < 12 { 0 } else { 30 }, 0));
    site.plan(48 * 3600 + 6 * 3600);
    assert_eq!(site.pacer.planned(), Units::ZERO);
    let mut even = PacedSite::new(PacingMode::Even);
    even.plan(6 * 3600);
    assert_eq!(even.pacer.planned(), Units::from_whole(250));
    assert!(even.pacer.is_ahead(Units::from_whole(301)));
    assert!(!even.pacer.is_ahead(Units::from_whole(300)));
}

#[test]
fn single_spike_is_discounted_repeated_one_is_learned() {
    let learned_demand = |hours: &[u64]| {
        let mut demand = demand::DemandModel::default();
        for hour in 0..48 {
            demand.record_request(Units::from_whole(if hour >= 36 {
                hours.get(hour - 36).copied().unwrap_or(100)
            } else {
                100
            }));
            demand.finish_hour(hour);
        }
        demand.week().hours()[37].units
    };
    assert!(learned_demand(&[100, 1000]) < 210.0);
    assert!(learned_demand(&[1000, 1000]) > 900.0);
}

#[test]
fn unusual_days_are_detected_and_noise_is_not() {
    let expected = |today: &dyn Fn(u64) -> u64| {
        let mut demand = demand::DemandModel::default();
        for hour in 0..102 {
            demand.record_request(Units::from_whole(if hour < 96 { 20 + hour * 7 % 5 } else { today(hour) }));
            demand.finish_hour(hour as usize);
        }
        demand.forecast_learned(WeekTime(102.0 * 3600.0), Duration::from_secs(18 * 3600)).units
    };
    let (typical, holiday, weekend) = (expected(&|hour| 20 + hour * 7 % 5), expected(&|_| 6), expected(&|_| 80));
    assert!((390.0..=400.0).contains(&typical), "{typical}: about 18 hours of 22 units");
    assert!((100.0..=260.0).contains(&holiday), "{holiday}: close to 18 hours of 6 units");
    assert!((900.0..=1500.0).contains(&weekend), "{weekend}: close to 18 hours of 80 units");
    let noisy = expected(&|hour| 19 + hour * 7 % 5);
    assert!((370.0..=400.0).contains(&noisy), "{noisy}");
}

/// Returns the lowest of `shares` divided by the highest.
fn evenness(shares: &[f64]) -> f64 {
    let (lowest, highest) =
        (shares.iter().copied().fold(f64::MAX, f64::min), shares.iter().copied().fold(0.0, f64::max));
    lowest / highest
}

#[test]
fn surge_of_one_operator_is_spread_over_its_day_and_forgotten_on_the_next() {
    let mut site = PacedSite { limit: 45_000, ..PacedSite::new(PacingMode::Learned) };
    let mut run_day = |day: u64, search: u64| -> Vec<f64> {
        (0..24).map(|hour| site.run_surging_hour(day * DAY + hour * 3600, 360, search)).collect()
    };
    let days = [3600, 3600, 3600, 36_000, 3600].iter().enumerate().map(|(day, search)| run_day(day as u64, *search));
    let days: Vec<Vec<f64>> = days.collect();
    let (usual, surge, next) = (&days[2], &days[3], &days[4]);
    assert!(evenness(usual) > 0.9, "{usual:?}");
    assert!(evenness(&surge[..23]) > 0.7 && surge[0] < 0.2 * usual[0], "{surge:?}");
    assert!(evenness(&next[..23]) > 0.8 && next[0] > 0.9 * usual[0], "{next:?}");
}

#[test]
fn surge_counts_after_ten_minutes_where_units_suffice() {
    let mut site = PacedSite { limit: 1_000_000, ..PacedSite::new(PacingMode::Learned) };
    (0..72).for_each(|hour| _ = site.run_surging_hour(hour * 3600, 360, 3600));
    site.limit = 200_000;
    site.taken = 0;
    let mut counts_from = None;
    for step in 0..200 {
        let now = 72 * 3600 + step * 10;
        site.pacer.class(SEARCH).demand.record_request(Units::from_whole(270));
        site.pacer.class(SEARCH).demand.record_operator(OperatorId(3), Units::from_whole(270));
        site.plan(now);
        if site.share() < Share::ALL {
            counts_from.get_or_insert(step * 10);
        }
    }
    let counts_from = counts_from.expect("a lasting surge counts");
    assert!((540..700).contains(&counts_from), "from second {counts_from} on");
}

/// Returns a class of which `operator` has requested 60 units in each of 48 hours, evenly, and then `rate` times as much
/// for `minutes`.
fn surging_demand(operator: OperatorId, rate: u64, minutes: u64) -> (DemandModel, WeekTime) {
    let mut demand = DemandModel::default();
    let request = |demand: &mut DemandModel, minute: u64, units: u64| {
        demand.record_request(Units::from_whole(units));
        demand.record_operator(operator, Units::from_whole(units));
        let now = WeekTime((minute * 60) as f64);
        demand.update_surges(now, Timestamp::from_seconds(minute * 60));
        now
    };
    let mut now = WeekTime(0.0);
    for minute in 1..=48 * 60 {
        now = request(&mut demand, minute, 1);
        if minute % 60 == 0 {
            demand.finish_hour(minute as usize / 60 - 1);
        }
    }
    for minute in 1..=minutes {
        now = request(&mut demand, 48 * 60 + minute, rate);
    }
    (demand, now)
}

#[test]
fn surge_is_believed_within_minutes_and_ends_with_it() {
    let next_hours = |rate, minutes| {
        let (mut demand, now) = surging_demand(OperatorId(0), rate, minutes);
        demand.count_surges();
        demand.forecast_learned(now, Duration::from_secs(10 * 3600)).units
    };
    let usual = next_hours(1, 30);
    assert!((590.0..610.0).contains(&usual), "{usual}");
    let early = next_hours(20, 3);
    assert!((7_000.0..16_000.0).contains(&early), "{early}: 20 units a minute for ten hours");
    let (demand, now) = surging_demand(OperatorId(0), 20, 3);
    let uncounted = demand.forecast_learned(now, Duration::from_secs(10 * 3600)).units;
    assert!((600.0..700.0).contains(&uncounted), "{uncounted}: units are not short");
    let lasting = next_hours(20, 30);
    assert!((11_000.0..13_000.0).contains(&lasting), "{lasting}");
    assert!(next_hours(2, 30) < 1000.0, "twice as much is no surge");
    let (mut demand, _) = surging_demand(OperatorId(0), 20, 30);
    for minute in 48 * 60 + 31..48 * 60 + 45 {
        demand.record_operator(OperatorId(0), Units::from_whole(1));
        demand.update_surges(WeekTime((minute * 60) as f64), Timestamp::from_seconds(minute * 60));
    }
    assert!(demand.operators().forecast(Duration::from_secs(3600)) < 1e-9, "the surge is over");
    let is_over_after = |seconds: u64| {
        let (mut demand, _) = surging_demand(OperatorId(0), 50, 30);
        demand.count_surges();
        for second in (10..=seconds).step_by(10).map(|second| (48 * 60 + 30) * 60 + second) {
            demand.update_surges(WeekTime(second as f64), Timestamp::from_seconds(second));
        }
        demand.operators().forecast(Duration::from_secs(3600)) < 1e-9
    };
    assert!(!is_over_after(20) && is_over_after(90), "a large one ends within two minutes");
}

#[test]
fn surge_teaches_nothing_on_its_first_day_and_at_most_twice_the_usual_demand_later() {
    let (mut demand, _) = surging_demand(OperatorId(0), 20, 60);
    let usual = demand.week().typical().expect("known")[47];
    demand.finish_hour(48);
    for minute in 49 * 60 + 1..=74 * 60_usize {
        demand.record_request(Units::from_whole(20));
        demand.record_operator(OperatorId(0), Units::from_whole(20));
        demand.update_surges(WeekTime((minute * 60) as f64), Timestamp::from_seconds(minute as u64 * 60));
        if minute % 60 == 0 {
            demand.finish_hour(minute / 60 - 1);
        }
    }
    let (_, operator) = demand.operators().profiles().next().expect("one operator");
    for week in [demand.week().hours(), &operator] {
        let learned = |hour: usize| week[hour].units / usual;
        assert!((48..72).all(|hour| (0.9..1.3).contains(&learned(hour))), "{:?}", &week[48..72]);
        assert!((1.9..2.1).contains(&learned(72)), "{:?}", week[72]);
    }
}

#[test]
fn operators_are_bounded_and_unknown_after_an_older_version() {
    let mut demand = DemandModel::default();
    (0..100).for_each(|operator| demand.record_operator(OperatorId(operator), Units::from_whole(1)));
    assert_eq!(demand.operators().profiles().count(), surge::MAX_OPERATORS);
    let hours = [HourProfile { units: 60.0, weeks: 2.0 }; HOURS_PER_WEEK];
    let excess_of_new_operator = |mut demand: DemandModel| {
        for minute in 0..30 {
            demand.record_operator(OperatorId(0), Units::from_whole(20));
            demand.update_surges(WeekTime((minute * 60) as f64), Timestamp::from_seconds(minute * 60));
        }
        demand.operators().excess()
    };
    assert!(excess_of_new_operator(DemandModel::from_hours(hours)) < 1e-9, "it may have sent the usual demand");
    assert!(excess_of_new_operator(DemandModel::restored(hours, Some(Vec::new()))) > 400.0);
}

#[test]
fn first_hour_after_a_start_changes_the_level_like_one_of_several() {
    let level_after_one_hour = |units: u64| {
        let mut demand = DemandModel::from_hours([HourProfile { units: 100.0, weeks: 1.0 }; HOURS_PER_WEEK]);
        demand.record_request(Units::from_whole(units));
        demand.finish_hour(0);
        // The excess of the hour itself has faded by then.
        demand.hourly_forecast(WeekTime(3600.0))[20] / 100.0
    };
    for (units, levels) in [(100, 0.99..1.01), (140, 1.01..1.03), (190, 1.1..1.2), (60, 0.97..0.99)] {
        assert!(levels.contains(&level_after_one_hour(units)), "{units}: {}", level_after_one_hour(units));
    }
}

#[test]
fn level_of_a_new_day_is_that_of_its_last_hours() {
    let level_of_new_day = |evening: u64| {
        let mut demand = DemandModel::default();
        for hour in 0..96 {
            let units = if (72..93).contains(&hour) {
                300
            } else if hour >= 93 {
                evening
            } else {
                100
            };
            demand.record_request(Units::from_whole(units));
            demand.finish_hour(hour as usize);
        }
        let now = WeekTime(96.0 * 3600.0);
        demand.forecast_learned(now, Duration::from_secs(DAY)).units
            / demand.typical(now, Duration::from_secs(DAY)).units
    };
    assert!((0.8..1.1).contains(&level_of_new_day(100)), "{}", level_of_new_day(100));
    assert!(level_of_new_day(300) > 1.5, "{}", level_of_new_day(300));
}

#[test]
fn clock_jumps_create_no_demand() {
    let mut site = PacedSite::new(PacingMode::Learned);
    (0..30).for_each(|hour| site.run_hour(hour * 3600, 10, 10));
    let before = site.pacer.classes()[HUMANS].demand.week().clone();
    for now in [3600, 400 * DAY, 0, 30 * 3600] {
        site.plan(now);
    }
    assert_eq!(site.pacer.classes()[HUMANS].demand.week(), &before);
}

/// Returns noon of a day with `taken` of 100,000 units taken, and `elsewhere` as the forecast demand of other
/// instances.
fn totals_at_noon(taken: u64, elsewhere: Option<u64>) -> (QuotaTotals, Timestamp) {
    let span = Span { start: Timestamp(0), end: Timestamp::from_seconds(DAY) };
    let (week, taken) = (WeekTime((3 * DAY + DAY / 2) as f64), Units::from_whole(taken));
    let expected_elsewhere = elsewhere.map(Units::from_whole);
    (
        QuotaTotals { limit: Units::from_whole(100_000), taken, expected_by_others: expected_elsewhere, span, week },
        Timestamp::from_seconds(DAY / 2),
    )
}

#[test]
fn each_instance_plans_with_its_demand_share() {
    let mut site = PacedSite::new(PacingMode::Even);
    let mut rate = |elsewhere: Option<u64>| {
        let (totals, now) = totals_at_noon(40_000, elsewhere);
        site.pacer.plan(&site.pacing, |index| index, &totals, now);
        site.pacer.class(SEARCH).demand.record_request(Units::from_whole(100));
        site.pacer.classes()[SEARCH].allowance.expect("the class has a plan").rate.refill_per_hour.floor()
    };
    assert_eq!(rate(None), 5000, "60,000 units in 12 h, no other instance known");
    // 100 units in a quarter of an hour, the minimum for estimating a rate: 4,800 until midnight.
    assert!((1249..=1252).contains(&rate(Some(3 * 4800))), "a quarter of the units");
    let part = rate(None);
    assert!((1249..=1252).contains(&part), "{part}: the part is kept");
    assert!(rate(Some(0)) == 5000, "no other instance has demand");
}

#[test]
fn initial_burst_is_limited_to_the_unspent_plan() {
    let initial_balance = |taken| {
        let mut site = PacedSite::new(PacingMode::Even);
        let (totals, now) = totals_at_noon(taken, None);
        site.pacer.plan(&site.pacing, |index| index, &totals, now);
        site.pacer.classes()[SEARCH].allowance.expect("the class has a plan").bucket.balance()
    };
    assert_eq!(initial_balance(0), Units::from_whole(5000), "equals the burst");
    assert_eq!(initial_balance(47_000), Units::from_whole(3000));
    assert_eq!(initial_balance(50_000), Units::ZERO);
}

#[test]
fn first_units_of_a_window_find_one_burst_after_a_restart() {
    let initial_balance = |taken, units: f64| {
        let mut site = PacedSite::new(PacingMode::Learned);
        if units > 0.0 {
            site.pacer.class(SEARCH).demand =
                DemandModel::from_hours([HourProfile { units, weeks: 1.0 }; HOURS_PER_WEEK]);
        }
        let (totals, _) = totals_at_noon(taken, None);
        let totals = QuotaTotals { week: WeekTime((3 * DAY) as f64), ..totals };
        site.pacer.plan(&site.pacing, |index| index, &totals, Timestamp(0));
        site.pacer.classes()[SEARCH].allowance.expect("the class has a plan").bucket.balance()
    };
    assert_eq!(initial_balance(0, 100.0), Units::from_whole(5000), "as in a running gateway");
    assert_eq!(initial_balance(2000, 100.0), Units::from_whole(3000), "a second start finds what the first has left");
    assert_eq!(initial_balance(5000, 100.0), Units::ZERO);
    assert_eq!(initial_balance(0, 0.0), Units::ZERO, "nothing is known of the class");
}

#[test]
fn time_of_week_wraps_and_splits_into_hours() {
    let time = WeekTime(167.0 * 3600.0 + 900.0);
    assert_eq!((time.hour(), time.hour_fraction(), time.time_into_hour()), (167, 0.25, Duration::from_secs(900)));
    let hours: Vec<(usize, f64)> = time.hours(Duration::from_secs(2 * 3600)).collect();
    assert_eq!(hours, [(167, 0.75), (0, 1.0), (1, 0.25)]);
    assert_eq!(WeekTime(100.0).before(Duration::from_secs(200)).0, 604_700.0);
    assert_eq!(WeekTime(300.0).before(Duration::from_secs(200)).0, 100.0);
}

/// Rounds to thousandths, which hides the differences of math libraries.
fn rounded<const N: usize>(numbers: [f64; N]) -> [f64; N] {
    numbers.map(|number| (number * 1000.0).round() / 1000.0)
}

#[test]
fn forecasts_of_a_known_history_keep_their_values() {
    let forecasts = |model: &DemandModel, hour: f64| {
        let (now, span) = (WeekTime(hour * 3600.0), Duration::from_secs(5 * 3600));
        let hourly = model.hourly_forecast(now);
        let hourly_sum: f64 = hourly.iter().sum();
        let [learned, even, peak, typical] = [
            model.forecast_learned(now, span),
            model.forecast_even(now, span),
            model.forecast_peak(now, span),
            model.typical(now, span),
        ];
        assert_eq!(hourly.len(), 24);
        rounded([
            learned.units,
            learned.variance,
            even.units,
            peak.units,
            peak.variance,
            typical.units,
            typical.variance,
            hourly[0],
            hourly_sum,
            model.remaining_fraction(now, span, 2 * span),
            model.cost_ratio(),
        ])
    };
    let mut model = DemandModel::default();
    let mut actual = Vec::new();
    model.start_hour_at(WeekTime(0.25 * 3600.0));
    for hour in 0..200_u64 {
        let units = 20 + (hour % 24) * 7 + (hour * hour) % 11 + if hour % 50 == 49 { 400 } else { 0 };
        model.record_request(Units::from_whole(units));
        model.record_cost(Units::from_whole(units), Units::from_milli(units * 700));
        if [0, 30, 150, 199].contains(&hour) {
            actual.push(forecasts(&model, (hour % 168) as f64 + 0.6));
        }
        model.finish_hour((hour % 168) as usize);
    }
    let restored = DemandModel::from_hours(*model.week().hours());
    actual.push(forecasts(&restored, 20.1));
    model.start_hour_at(WeekTime(21.7 * 3600.0));
    model.record_request(Units::from_whole(900));
    model.finish_hour(21);
    actual.push(forecasts(&model, 22.4));
    let expected: [[f64; 11]; 6] = [
        [228.571, 914.286, 228.571, 228.571, 914.286, 0.0, 0.0, 45.714, 1097.143, 0.667, 0.8],
        [310.959, 310.959, 334.719, 413.62, 413.62, 421.172, 421.172, 57.344, 1776.343, 0.804, 0.703],
        [355.433, 355.433, 360.284, 427.955, 427.955, 421.142, 421.142, 67.069, 1992.187, 0.784, 0.702],
        [511.492, 511.492, 432.377, 432.377, 432.377, 452.393, 452.393, 155.158, 1962.007, 0.794, 0.702],
        [698.797, 2795.188, 529.183, 529.183, 2116.733, 709.584, 2838.336, 158.13, 2536.729, 0.566, 1.0],
        [311.236, 392.757, 338.934, 524.545, 661.937, 406.678, 513.197, 138.083, 2007.139, 0.481, 0.702],
    ];
    assert_eq!(actual, expected);
}

#[test]
fn plans_of_a_known_history_keep_their_values() {
    let mut site = PacedSite::new(PacingMode::Learned);
    let mut actual = Vec::new();
    let mut plan = |site: &mut PacedSite| {
        let rate = site.pacer.classes()[SEARCH].allowance.expect("the class has a plan").rate;
        let week = WeekTime(7.5 * 3600.0);
        actual.push([
            u64::from(rate.share.millionths()),
            u64::from(rate.long_run_share.millionths()),
            rate.refill_per_hour.milli(),
            rate.burst.milli(),
            site.pacer.planned().milli(),
            site.pacer.earmarked().milli(),
            site.pacer.expected_demand(week, Duration::from_secs(7200)).milli(),
        ]);
    };
    for hour in 0..100 {
        site.run_hour(hour * 3600, 10 + (hour % 24) * 2, 30 + (hour * 7) % 13);
        if [2, 20, 40, 90].contains(&hour) {
            site.plan(hour * 3600 + 1800);
            plan(&mut site);
        }
    }
    let expected: [[u64; 7]; 4] = [
        [1_000_000, 652_535, 25_752, 50_000, 104_166, 312_325, 107_983],
        [0, 0, 0, 45_487, 854_166, 130_743, 156_516],
        [94_748, 94_748, 3_883, 47_594, 563_843, 390_983, 150_661],
        [17_599, 17_599, 758, 45_688, 669_545, 304_223, 154_573],
    ];
    assert_eq!(actual, expected);
}

#[test]
fn plan_is_due_at_its_age_the_end_of_the_hour_a_set_back_clock_and_on_request() {
    let mut site = PacedSite::new(PacingMode::Even);
    let at = |millis: u64| Timestamp(millis * 1_000_000);
    assert!(site.pacer.is_due(at(0)), "there is no plan");
    site.plan(7000);
    assert_eq!(
        [6_999_999, 7_000_000, 7_009_999, 7_010_000].map(|ms| site.pacer.is_due(at(ms))),
        [false, false, false, true]
    );
    assert_eq!([3_599_999, 3_600_000].map(|ms| site.pacer.is_due(at(ms))), [true, false], "before the observed hour");
    site.plan(7196);
    assert_eq!([7_199_999, 7_200_000].map(|ms| site.pacer.is_due(at(ms))), [false, true]);
    site.plan(7201);
    assert!(!site.pacer.is_due(at(7_202_000)));
    site.pacer.replan_now();
    assert!(site.pacer.is_due(at(7_202_000)));
}

#[test]
fn plan_of_a_short_window_is_renewed_often() {
    let mut site = PacedSite::new(PacingMode::Even);
    let (mut totals, now) = totals_at_noon(0, None);
    for (length_s, age_ms) in [(1000, 1000), (10, 100), (86_400, 10_000)] {
        totals.span = Span { start: now, end: now + Duration::from_secs(length_s) };
        site.pacer.plan(&site.pacing, |index| index, &totals, now);
        let is_due = [age_ms - 1, age_ms].map(|age_ms| site.pacer.is_due(now + Duration::from_millis(age_ms)));
        assert_eq!(is_due, [false, true], "{length_s} s");
    }
}

#[test]
fn next_request_is_admitted_in_an_assumed_turn() {
    let (rate, now) = (rate_with_share(200_000), Timestamp(0));
    let admits = |bucket: PacingBucket| bucket.try_take(&rate, Units::from_whole(1), 0, now);
    let mut bucket = PacingBucket::full(&rate, now);
    let mut admitted = 0;
    for _ in 0..10 {
        assert!(admits(bucket.assuming_turn()).1.is_ok());
        let (next, result) = admits(bucket);
        (bucket, admitted) = (next, admitted + usize::from(result.is_ok()));
    }
    assert_eq!(admitted, 2);
}

#[test]
fn forecast_scales_with_the_share_of_requests() {
    let forecast = DemandForecast { units: 80.0, variance: 20.0 };
    assert_eq!(forecast.scale(Share::from_millionths(250_000)), DemandForecast { units: 20.0, variance: 5.0 });
    assert_eq!((forecast.scale(Share::ALL), forecast.scale(Share::NONE)), (forecast, DemandForecast::default()));
}

/// Returns a model with 10 units in each hour of the week for which `is_busy`, and 1 in the others.
fn daily_demand(is_busy: impl Fn(usize) -> bool) -> DemandModel {
    let profile = |hour: usize| HourProfile { units: if is_busy(hour % 24) { 10.0 } else { 1.0 }, weeks: 2.0 };
    DemandModel::from_hours(std::array::from_fn(profile))
}

#[test]
fn weight_of_a_class_counts_for_the_demand_that_lies_ahead() {
    let mut pacing = PacedSite::new(PacingMode::Learned).pacing;
    let paced = |weight| PacingRole::Paced(NonZeroU32::new(weight).expect("not zero"));
    let mut units_per_hour = |weights: [u32; 2], demands: [DemandModel; 2]| {
        let mut pacer = Pacer::default();
        pacing.roles = weights.map(paced).to_vec();
        for (number, demand) in demands.into_iter().enumerate() {
            pacer.class(number).demand = demand;
        }
        let (totals, now) = totals_at_noon(980, None);
        pacer.plan(&pacing, |index| index, &QuotaTotals { limit: Units::from_whole(1000), ..totals }, now);
        [0, 1].map(|number| pacer.classes()[number].allowance.expect("planned").rate.refill_per_hour.as_f64())
    };
    let even = || daily_demand(|_| true);
    let [one, other] = units_per_hour([3, 1], [even(), even()]);
    assert!((one / other - 3.0).abs() < 0.01, "{one} and {other}");
    let [morning, evening] = units_per_hour([1, 1], [daily_demand(|hour| hour < 12), daily_demand(|hour| hour >= 12)]);
    assert!(evening > 5.0 * morning, "{morning} and {evening}");
}

#[test]
fn instance_without_demand_plans_with_a_small_part() {
    let mut site = PacedSite::new(PacingMode::Even);
    let (totals, now) = totals_at_noon(0, Some(999));
    site.pacer.plan(&site.pacing, |index| index, &totals, now);
    let rate = site.pacer.classes()[SEARCH].allowance.expect("the class has a plan").rate;
    assert_eq!(rate.burst, Units::from_whole(5), "a thousandth of 5000 units");
}

#[test]
fn rate_is_the_allocation_over_the_time_left_at_actual_costs() {
    let rate = |minutes_left: u64, actual: u64| {
        let mut site = PacedSite::new(PacingMode::Even);
        let (totals, noon) = totals_at_noon(40_000, None);
        let now = totals.span.end - Duration::from_secs(60 * minutes_left);
        site.pacer.class(SEARCH).demand.record_cost(Units::from_whole(1_000_000), Units::from_whole(actual));
        assert!(now >= noon);
        site.pacer.plan(&site.pacing, |index| index, &totals, now);
        site.pacer.classes()[SEARCH].allowance.expect("the class has a plan").rate.refill_per_hour.as_f64().round()
    };
    assert_eq!([720, 60, 30].map(|minutes| rate(minutes, 1_000_000)), [5000.0, 60_000.0, 120_000.0]);
    assert!((rate(720, 500_000) - 10_000.0).abs() < 1.0, "requests cost half of what is expected");
}

#[test]
fn class_without_demand_or_units_is_not_told_to_wait() {
    let mut site = PacedSite::new(PacingMode::Even);
    let (totals, now) = totals_at_noon(100_000, None);
    site.pacer.plan(&site.pacing, |index| index, &totals, now);
    let rate = site.pacer.classes()[SEARCH].allowance.expect("the class has a plan").rate;
    assert_eq!((rate.share, rate.long_run_share), (Share::ALL, Share::ALL));
    assert_eq!(admit_shares(&plan_input(0, 0.0, &[(1.0, 0.0), (1.0, 5.0)])), [1.0, 0.0]);
}

#[test]
fn planned_usage_is_by_time_in_even_mode_and_unlimited_without_demand() {
    let planned = |mode, demand: fn() -> DemandModel| {
        let mut site = PacedSite::new(mode);
        for class in [HUMANS, SEARCH] {
            site.pacer.class(class).demand = demand();
        }
        let (totals, now) = totals_at_noon(0, None);
        site.pacer.plan(&site.pacing, |index| index, &totals, now);
        site.pacer.planned().floor()
    };
    let morning = || daily_demand(|hour| hour < 12);
    let none = || DemandModel::from_hours([HourProfile { units: 0.0, weeks: 2.0 }; HOURS_PER_WEEK]);
    assert_eq!(planned(PacingMode::Even, morning), 50_000);
    assert!((85_000..95_000).contains(&planned(PacingMode::Learned, morning)), "most of the demand is over");
    assert_eq!(planned(PacingMode::Learned, none), 100_000);
}

#[test]
fn demand_is_recorded_in_its_hour_after_gaps_and_a_clock_set_back() {
    let mut site = PacedSite::new(PacingMode::Learned);
    let recorded = |site: &PacedSite, hour: u64| {
        let profile = site.pacer.classes()[HUMANS].demand.week().hours()[(72 + hour as usize) % HOURS_PER_WEEK];
        (profile.weeks > 0.0).then_some(profile.units.round())
    };
    for hour in 0..12 {
        site.run_hour(hour * 3600, 40, 0);
    }
    site.plan(15 * 3600);
    assert_eq!(
        [10, 11, 12, 14, 15].map(|hour| recorded(&site, hour)),
        [Some(40.0), Some(40.0), Some(0.0), Some(0.0), None]
    );
    let mut site = PacedSite::new(PacingMode::Learned);
    site.run_hour(10 * 3600, 40, 0);
    site.run_hour(8 * 3600, 40, 0);
    site.plan(9 * 3600);
    assert_eq!([8, 9, 10].map(|hour| recorded(&site, hour)), [Some(40.0), None, None]);
}

#[test]
fn half_an_observed_hour_is_recorded() {
    let is_recorded = |from: f64| {
        let mut demand = DemandModel::default();
        demand.start_hour_at(WeekTime(from * 3600.0));
        demand.finish_hour(0);
        demand.week().hours()[0].weeks > 0.0
    };
    assert_eq!([0.0, 0.5, 0.51].map(is_recorded), [true, true, false]);
}

#[test]
fn first_hour_of_a_class_counts_from_its_first_plan_on() {
    let first_hour = |start: u64| {
        let mut site = PacedSite::new(PacingMode::Learned);
        site.plan(start);
        site.pacer.class(HUMANS).demand.record_request(Units::from_whole(30));
        site.plan(DAY + 3600);
        site.pacer.classes()[HUMANS].demand.week().hours().iter().find(|hour| hour.weeks > 0.0).copied()
    };
    let whole = first_hour(DAY).expect("an observed hour");
    let half = first_hour(DAY + 1800).expect("half of an hour suffices");
    assert_eq!([whole.units, half.units], [30.0, 60.0], "what was requested before is unknown, not zero");
    assert_eq!(first_hour(DAY + 2400), None);
}

#[test]
fn usage_is_ahead_beyond_plan_and_burst() {
    let mut site = PacedSite::new(PacingMode::Even);
    site.plan(DAY / 2);
    assert_eq!(site.pacer.planned(), Units::from_whole(500));
    assert_eq!([550_000, 550_001].map(|milli| site.pacer.is_ahead(Units::from_milli(milli))), [false, true]);
}

proptest! {
    /// Nobody is refused by a share while the forecast demand of all classes fits what is left, whatever the shares were before.
    #[test]
    fn demand_that_fits_is_admitted(
        unpaced in 0.0..3000.0f64, spare in 0u64..5000,
        paced in prop::collection::vec((1.0..1000.0f64, 0.0..2000.0f64, 0u8..3, prop::option::of(0u32..=1_000_000)), 1..4),
    ) {
        let demand = unpaced + paced.iter().map(|class| class.1).sum::<f64>();
        let left = demand as u64 + 101 + spare;
        let mut input = plan_input(left, unpaced, &paced.iter().map(|class| (class.0, class.1)).collect::<Vec<_>>());
        for (class, (.., priority, share)) in input.paced_classes.iter_mut().zip(&paced) {
            (class.priority, class.initial_share) = (*priority, share.map(Share::from_millionths));
        }
        prop_assert!(input.plan().allocations.iter().all(|part| part.share == Share::ALL), "{input:?}");
    }

    /// Requests of an operator that come in a group lower no share where the usual demand fits what is left: they are no surge
    /// that lasts.
    #[test]
    fn a_group_of_requests_refuses_nobody_where_units_suffice(
        human in 1u64..40, search in 1u64..40, group in 1u64..2000, second in 0u64..(20 * 3600), spread in 1u64..60,
    ) {
        let mut site = PacedSite { limit: 100 * (human + search) + 4 * group + 400, ..PacedSite::new(PacingMode::Learned) };
        for hour in 0..48 {
            site.run_hour(hour * 3600, human, search);
            site.pacer.class(SEARCH).demand.record_operator(OperatorId(3), Units::from_whole(search));
        }
        site.taken = 0;
        let start = 2 * DAY + second;
        for now in (2 * DAY..start).step_by(300).chain((start..start + 1800).step_by(10)) {
            let is_group = (start..start + spread).contains(&now);
            let units = if is_group { group / spread.div_ceil(10) } else { 0 };
            let demand = &mut site.pacer.class(SEARCH).demand;
            demand.record_request(Units::from_whole(units));
            demand.record_operator(OperatorId(3), Units::from_whole(units));
            site.taken += units;
            site.plan(now);
            prop_assert_eq!(site.share(), Share::ALL, "second {} of the group", now.saturating_sub(start));
        }
    }

    #[test]
    fn plan_fits_the_remaining_units_and_is_monotonic(
        left in 0u64..10_000, more in 0u64..5000, unpaced in 0.0..8000.0f64,
        paced in prop::collection::vec((1.0..1000.0f64, 0.0..20_000.0f64), 1..6),
    ) {
        let mut input = plan_input(left, unpaced, &paced);
        for class in &mut input.paced_classes {
            class.initial_share = Some(Share::NONE);
        }
        let before = input.plan();
        let allocated: f64 = before.allocations.iter().zip(&paced).map(|(part, class)| part.share.ratio() * class.1).sum();
        prop_assert!(allocated <= (left as f64 - unpaced).max(0.0) + 0.02 * paced.len() as f64, "{} of {}", allocated, left);
        prop_assert!(before.allocations.iter().all(|part| part.units.is_finite() && part.units >= 0.0));
        input.left = Units::from_whole(left + more);
        for (before, after) in before.allocations.iter().zip(&input.plan().allocations) {
            prop_assert!(after.share >= before.share && after.units >= before.units - 1e-6);
        }
    }

    /// No unit stays unused while a class lacks some, whatever the weights.
    #[test]
    fn budget_is_divided_completely(
        left in 0u64..10_000, unpaced in 0.0..8000.0f64, is_share_based: bool,
        paced in prop::collection::vec((1.0..1000.0f64, prop_oneof![0.0..20_000.0f64, 0.0..300.0f64], 0u8..3, prop::option::of(0u32..=1_000_000)), 1..6),
    ) {
        let mut input = plan_input(left, unpaced, &paced.iter().map(|class| (class.0, class.1)).collect::<Vec<_>>());
        (input.is_share_based, input.unpaced_demand.variance) = (is_share_based, 0.0);
        for (class, (.., priority, share)) in input.paced_classes.iter_mut().zip(&paced) {
            (class.priority, class.initial_share) = (*priority, share.map(Share::from_millionths));
        }
        let plan = input.plan();
        let mut used = 0.0;
        for (index, (part, class)) in plan.allocations.iter().zip(&paced).enumerate() {
            let admitted = part.share.ratio() * class.1;
            let is_covering = input.covering_class() == Some(index);
            // The reserve is half of the units, or the demand that is refused.
            used += if is_covering { (2.0 * admitted).min((admitted + class.1) / 2.0) } else { admitted };
        }
        let demand: f64 = paced.iter().map(|class| class.1).sum();
        // Shares are rounded to millionths. Admit shares of a window may leave a hundredth of the limit unused.
        let unused = if is_share_based { 100.0 } else { 0.0 };
        prop_assert!(used >= demand.min(left as f64 - unpaced - unused) - 0.1, "{used} of {left}, {demand} wanted");
    }

    /// A bucket has the same balance at any time, however often it was asked before.
    #[test]
    fn bucket_refill_does_not_depend_on_polling(
        milli_per_hour in 1u64..100_000_000, polls in prop::collection::vec(0u64..10_000_000_000, 1..50),
    ) {
        let rate = PacingRate { refill_per_hour: Units::from_milli(milli_per_hour), ..rate_with_share(1_000_000) };
        let mut polled = PacingBucket::full(&rate, Timestamp(0));
        polled.take(Units::from_whole(1000));
        let (once, mut now) = (polled, Timestamp(0));
        for interval in polls {
            now += Duration::from_nanos(interval);
            polled = polled.refilled(&rate, now);
        }
        let expected = once.refilled(&rate, now).balance().milli();
        prop_assert!(polled.balance().milli().abs_diff(expected) <= 1, "{polled:?}, not {expected}");
    }

    #[test]
    fn buckets_of_all_instances_share_one_burst(
        expected in prop::collection::vec(1u64..100_000, 1..6), taken in 0u64..100_000,
    ) {
        let total_demand: u64 = expected.iter().sum();
        let mut total = Units::ZERO;
        for units in &expected {
            let mut site = PacedSite::new(PacingMode::Even);
            let (totals, now) = totals_at_noon(taken, None);
            site.pacer.plan(&site.pacing, |index| index, &totals, now);
            // A quarter of an hour that extrapolates to `units` in twelve hours.
            site.pacer.class(SEARCH).demand.record_request(Units::from_milli(units * 1000 / 48));
            let (totals, now) = totals_at_noon(taken, Some(total_demand - units));
            site.pacer.plan(&site.pacing, |index| index, &totals, now);
            total = total.saturating_add(site.pacer.classes()[SEARCH].allowance.expect("the class has a plan").bucket.balance());
        }
        // The one unit that each instance adds to its own demand.
        let slack = Units::from_whole(5000 * expected.len() as u64).milli() / total_demand;
        prop_assert!(total.milli() <= Units::from_whole(5000).milli() + slack + 10, "holds {} of 5000 plus {}", total, slack);
    }

    #[test]
    fn admitted_share_is_exact_within_one_request(millionths in 0u32..=1_000_000, length in 1usize..500) {
        let rate = rate_with_share(millionths);
        let mut bucket = PacingBucket::full(&rate, Timestamp(0));
        let mut admitted = 0;
        for _ in 0..length {
            let (next, result) = bucket.try_take(&rate, Units::from_whole(1), 0, Timestamp(0));
            admitted += usize::from(result.is_ok());
            bucket = next;
        }
        prop_assert!((admitted as f64 - length as f64 * rate.share.ratio()).abs() <= 1.0);
    }

    #[test]
    fn borrowed_turns_do_not_change_the_share(
        millionths in 0u32..=1_000_000, borrowed_turns in prop::collection::vec(0u32..=2, 1..500),
    ) {
        let rate = rate_with_share(millionths);
        let mut bucket = PacingBucket::full(&rate, Timestamp(0));
        let mut admitted = 0.0;
        for borrowable in &borrowed_turns {
            let (next, result) = bucket.try_take(&rate, Units::from_whole(1), *borrowable, Timestamp(0));
            admitted += f64::from(u8::from(result.is_ok()));
            bucket = next;
        }
        let expected = borrowed_turns.len() as f64 * rate.share.ratio();
        prop_assert!((expected - 1.0..=expected + 3.0).contains(&admitted), "admitted {}, expected {}", admitted, expected);
    }

    #[test]
    fn forecasts_are_finite_for_any_history(
        hours in prop::collection::vec((0u64..1_000_000_000, 0u64..1_000_000), 1..400), second in 0.0..604_800.0f64,
    ) {
        let mut demand = demand::DemandModel::default();
        for (index, (expected, actual)) in hours.into_iter().enumerate() {
            demand.record_request(Units::from_milli(expected));
            demand.record_cost(Units::from_milli(expected), Units::from_milli(actual));
            demand.finish_hour(index % HOURS_PER_WEEK);
        }
        let (now, span) = (WeekTime(second), Duration::from_secs(DAY));
        for DemandForecast { units, variance } in [demand.forecast_learned(now, span), demand.forecast_even(now, span), demand.forecast_peak(now, span)] {
            prop_assert!(units.is_finite() && units >= 0.0 && variance.is_finite() && variance >= 0.0);
        }
        prop_assert!(demand.cost_ratio() > 0.0 && (0.0..=1.0).contains(&demand.remaining_fraction(now, span, span)));
    }

    #[test]
    fn a_planned_share_is_released_at_the_end(units in 1u64..200) {
        let mut site = PacedSite::new(PacingMode::Learned);
        (0..47).for_each(|hour| site.run_hour(hour * 3600, 5, units));
        site.taken = 500;
        site.plan(48 * 3600 - 60);
        prop_assert_eq!(site.share(), Share::ALL);
    }
}
