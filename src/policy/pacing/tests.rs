use super::bucket::{PacingBucket, PacingRate, PacingRefused};
use super::demand::DemandForecast;
use super::pacer::{Pacer, QuotaTotals};
use super::plan::{ClassDemand, PlanInput};
use super::week::{HOURS, WeekTime};
use super::*;
use crate::policy::time::Timestamp;
use crate::policy::units::Units;
use crate::policy::window::Span;
use proptest::prelude::*;
use std::time::Duration;

const PEOPLE: usize = 0;
const SEARCH: usize = 1;
const DAY: u64 = 86_400;

fn outlook(left: u64, first: f64, paced: &[(f64, f64)]) -> PlanInput {
    let appetite = |&(weight, units): &(f64, f64)| ClassDemand { weight, units, priority: 0, share: None };
    PlanInput {
        left: Units::from_whole(left),
        limit: Units::from_whole(10_000),
        unpaced_demand: DemandForecast { units: first, variance: first },
        by_share: true,
        burst: Units::from_whole(500),
        paced: paced.iter().map(appetite).collect(),
    }
}

fn served(outlook: &PlanInput) -> Vec<f64> {
    let rounded = |share: Share| (share.ratio() * 100.0).round() / 100.0;
    outlook.plan().parts.iter().map(|part| rounded(part.share)).collect()
}

#[test]
fn people_are_put_aside_and_the_rest_is_divided_by_weight() {
    assert_eq!(
        served(&outlook(6000, 2000.0, &[(1.0, 8000.0)])),
        [0.49],
        "a little is kept for those who come unforeseen"
    );
    assert_eq!(served(&outlook(6000, 2000.0, &[(3.0, 10_000.0), (1.0, 10_000.0)])), [0.3, 0.1]);
    assert_eq!(
        served(&outlook(6000, 2000.0, &[(1.0, 500.0), (1.0, 10_000.0)])),
        [1.0, 0.35],
        "what one leaves the other has"
    );
    assert_eq!(served(&outlook(6000, 7000.0, &[(1.0, 10_000.0)])), [0.0], "people come first");
    assert_eq!(served(&outlook(6000, 100.0, &[(1.0, 10.0)])), [1.0]);
}

#[test]
fn a_share_stays_as_long_as_little_is_left_over() {
    let planned = |mut outlook: PlanInput, hundredths: u32| {
        outlook.paced[0].share = Some(Share::from_millionths(10_000 * hundredths));
        served(&outlook)[0]
    };
    let (early, late) = (outlook(9000, 3000.0, &[(1.0, 12_000.0)]), outlook(600, 200.0, &[(1.0, 800.0)]));
    assert_eq!([40, 45, 49].map(|share| planned(late.clone(), share)), [0.4, 0.45, 0.49]);
    assert_eq!(
        [30, 55].map(|share| planned(late.clone(), share)),
        [0.4, 0.49],
        "too much would be left, or too little"
    );
    assert_eq!([45, 49, 55].map(|share| planned(early.clone(), share)), [0.5; 3], "a little more all day long");
}

#[test]
fn the_share_of_a_lower_priority_changes_first() {
    let shares_with = |left, priorities: [u8; 2]| {
        let mut outlook = outlook(left, 2000.0, &[(1.0, 5000.0), (1.0, 5000.0)]);
        for (class, priority) in outlook.paced.iter_mut().zip(priorities) {
            (class.priority, class.share) = (priority, Some(Share::from_millionths(400_000)));
        }
        served(&outlook)
    };
    assert_eq!(shares_with(6000, [0, 0]), [0.4, 0.39]);
    assert_eq!(shares_with(5500, [1, 0]), [0.4, 0.29], "people have asked for 500 more than was expected");
    assert_eq!(shares_with(5500, [0, 1]), [0.29, 0.4]);
    assert_eq!(shares_with(5500, [1, 1]), [0.4, 0.29], "the earlier in the file, where both are alike");
    assert_eq!(shares_with(4000, [1, 0]), [0.3, 0.1], "no further than the burst from half of what there is");
    assert_eq!(shares_with(2200, [1, 0]), [0.04, 0.0]);
    assert_eq!(shares_with(12_000, [1, 0]), [0.99, 1.0]);
}

#[test]
fn a_purse_fills_to_the_thousandth_however_often_it_is_looked_into() {
    let offer = PacingRate {
        share: Share::ALL,
        long_run_share: Share::ALL,
        refill_per_hour: Units::from_milli(1234),
        burst: Units::from_whole(5),
    };
    let start = Timestamp::from_seconds(1000);
    let mut often = PacingBucket::full(&offer, start);
    often.take(Units::from_whole(10));
    let mut once = often;
    for second in 1..=36_000 {
        (often, _) = often.try_take(&offer, Units::from_whole(5), 0, start + Duration::from_secs(second));
    }
    let end = start + Duration::from_secs(36_000);
    (once, _) = once.try_take(&offer, Units::from_whole(5), 0, end);
    assert_eq!(often, once);
    let (_, said) = once.try_take(&offer, Units::from_whole(5), 0, end);
    assert!(said.is_ok(), "12.34 units came in ten hours, and five were owed");
}

#[test]
fn who_waits_as_told_for_the_purse_finds_enough_in_it() {
    let offer = PacingRate {
        share: Share::ALL,
        long_run_share: Share::ALL,
        refill_per_hour: Units::from_whole(60),
        burst: Units::from_whole(2),
    };
    let start = Timestamp::from_seconds(1000);
    let mut purse = PacingBucket::full(&offer, start);
    purse.take(Units::from_whole(2));
    let (purse, Err(PacingRefused(wait))) = purse.try_take(&offer, Units::from_whole(1), 0, start) else {
        panic!("it is empty")
    };
    assert_eq!(wait, Duration::from_secs(60));
    assert!(purse.try_take(&offer, Units::from_whole(1), 0, start + wait - Duration::from_nanos(1)).1.is_err());
    assert!(purse.try_take(&offer, Units::from_whole(1), 0, start + wait).1.is_ok());
    assert!(
        purse.try_take(&offer, Units::from_whole(50), 0, start + 2 * wait).1.is_ok(),
        "a full purse pays for any page, and owes"
    );
}

#[test]
fn of_an_empty_purse_nobody_is_told_to_come_back_at_once_where_few_are_served() {
    let offer = PacingRate {
        share: Share::ALL,
        long_run_share: Share::from_millionths(200_000),
        refill_per_hour: Units::from_whole(3600),
        burst: Units::from_whole(2),
    };
    let mut purse = PacingBucket::full(&offer, Timestamp(0));
    purse.take(Units::from_whole(2));
    let (_, said) = purse.try_take(&offer, Units::from_whole(1), 0, Timestamp(0));
    assert_eq!(said, Err(PacingRefused(Duration::from_secs(300))), "not in the second in which the next unit comes");
}

#[test]
fn a_request_that_goes_before_pays_with_the_turn_of_the_next() {
    let (offer, now) = (shared_offer(500_000), Timestamp(0));
    let mut purse = PacingBucket::full(&offer, now);
    let mut asks = |before: u32| {
        let (after, said) = purse.try_take(&offer, Units::from_whole(1), before, now);
        purse = after;
        said.is_ok()
    };
    assert_eq!([asks(0), asks(1), asks(0), asks(0), asks(0)], [true, true, false, false, true]);
    let everything = PacingRate { share: Share::ALL, ..offer };
    assert!(
        purse
            .try_take(&offer, Units::from_whole(1), 1, now)
            .0
            .try_take(&everything, Units::from_whole(1), 0, now)
            .1
            .is_ok()
    );
}

fn shared_offer(millionths: u32) -> PacingRate {
    let share = Share::from_millionths(millionths);
    PacingRate { share, long_run_share: share, refill_per_hour: Units::ZERO, burst: Units::from_whole(1000) }
}

/// A quota of 1,000 units a day, whose days go by hour by hour.
struct Site {
    pacing: Pacing,
    pacer: Pacer,
    taken: u64,
}

impl Site {
    fn new(forecast: PacingMode) -> Self {
        let roles = vec![Role::Unpaced, Role::Paced(NonZeroU32::MIN)];
        let (burst, priorities) = (Share::from_millionths(50_000), Vec::new());
        let pacing = Pacing { forecast, burst_share: burst, roles, priorities, enforce: true };
        Self { pacing, pacer: Pacer::default(), taken: 0 }
    }

    fn plan(&mut self, now: u64) {
        let day = now / DAY * DAY;
        let span = Span { start: Timestamp::from_seconds(day), end: Timestamp::from_seconds(day + DAY) };
        let taken = Units::from_whole(self.taken);
        let week = WeekTime(((now + 3 * DAY) % (7 * DAY)) as f64);
        let books = QuotaTotals { limit: Units::from_whole(1000), taken, expected_elsewhere: None, span, week };
        self.pacer.plan(&self.pacing, |place| place, &books, Timestamp::from_seconds(now));
    }

    /// An hour in which people and search engines ask for so many units.
    fn hour(&mut self, now: u64, people: u64, search: u64) {
        self.taken = if now.is_multiple_of(DAY) { 0 } else { self.taken };
        self.plan(now);
        for (class, units) in [(PEOPLE, people), (SEARCH, search)] {
            self.pacer.class(class).demand.record_request(Units::from_whole(units));
        }
        let served = self.share().of_units(Units::from_whole(search)).floor();
        self.taken = (self.taken + people + served).min(1000);
    }

    fn share(&self) -> Share {
        self.pacer.classes().get(SEARCH).map_or(Share::ALL, |class| class.share())
    }
}

#[test]
fn from_the_second_day_on_the_share_is_the_same_in_every_hour() {
    let mut site = Site::new(PacingMode::Learned);
    for hour in 0..24 * 3 {
        site.hour(hour * 3600, if hour % 24 < 12 { 10 } else { 30 }, if hour % 4 == 0 { 200 } else { 20 });
        // In the last hours what was kept back is released.
        if hour >= 25 && hour % 24 < 22 {
            let share = site.share().ratio();
            assert!((share - 520.0 / 1560.0).abs() < 0.04, "{share} in hour {hour}");
        }
    }
    assert!(site.pacer.earmarked() < Units::from_whole(50), "of the last hour");
}

#[test]
fn a_share_that_had_to_give_way_comes_back() {
    let mut site = Site::new(PacingMode::Learned);
    (0..53).for_each(|hour| site.hour(hour * 3600, 10, 100));
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
fn the_line_follows_the_usual_day() {
    let mut site = Site::new(PacingMode::Learned);
    (0..48).for_each(|hour| site.hour(hour * 3600, if hour % 24 < 12 { 0 } else { 30 }, 0));
    site.plan(48 * 3600 + 6 * 3600);
    assert_eq!(site.pacer.planned(), Units::ZERO);
    let mut even = Site::new(PacingMode::Even);
    even.plan(6 * 3600);
    assert_eq!(even.pacer.planned(), Units::from_whole(250));
    assert!(even.pacer.is_ahead(Units::from_whole(301)));
    assert!(!even.pacer.is_ahead(Units::from_whole(300)));
}

#[test]
fn a_crowd_of_an_hour_says_little_about_tomorrow_and_one_that_stays_is_believed() {
    let usual_at_noon = |hours: &[u64]| {
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
    assert!(usual_at_noon(&[100, 1000]) < 210.0);
    assert!(usual_at_noon(&[1000, 1000]) > 900.0);
}

#[test]
fn days_that_are_nothing_like_the_others_are_seen_within_hours_and_chance_is_not() {
    let expected = |today: &dyn Fn(u64) -> u64| {
        let mut demand = demand::DemandModel::default();
        for hour in 0..102 {
            demand.record_request(Units::from_whole(if hour < 96 { 20 + hour * 7 % 5 } else { today(hour) }));
            demand.finish_hour(hour as usize);
        }
        demand.forecast_learned(WeekTime(102.0 * 3600.0), Duration::from_secs(18 * 3600)).units
    };
    let (usual, holiday, weekend) = (expected(&|hour| 20 + hour * 7 % 5), expected(&|_| 6), expected(&|_| 80));
    assert!((390.0..=400.0).contains(&usual), "{usual}: 18 hours of 22");
    assert!((100.0..=260.0).contains(&holiday), "{holiday}: more like 18 hours of 6");
    assert!((900.0..=1500.0).contains(&weekend), "{weekend}: more like 18 hours of 80");
    let by_chance = expected(&|hour| 19 + hour * 7 % 5);
    assert!((370.0..=400.0).contains(&by_chance), "{by_chance}");
}

#[test]
fn a_clock_that_is_set_back_or_far_ahead_makes_no_demand() {
    let mut site = Site::new(PacingMode::Learned);
    (0..30).for_each(|hour| site.hour(hour * 3600, 10, 10));
    let before = site.pacer.classes()[PEOPLE].demand.week().clone();
    for now in [3600, 400 * DAY, 0, 30 * 3600] {
        site.plan(now);
    }
    assert_eq!(site.pacer.classes()[PEOPLE].demand.week(), &before);
}

/// Noon of a day of which `taken` of 100,000 units are taken and other gates expect to be asked for so many more.
fn noon(taken: u64, elsewhere: Option<u64>) -> (QuotaTotals, Timestamp) {
    let span = Span { start: Timestamp(0), end: Timestamp::from_seconds(DAY) };
    let (week, taken) = (WeekTime((3 * DAY + DAY / 2) as f64), Units::from_whole(taken));
    let expected_elsewhere = elsewhere.map(Units::from_whole);
    (
        QuotaTotals { limit: Units::from_whole(100_000), taken, expected_elsewhere, span, week },
        Timestamp::from_seconds(DAY / 2),
    )
}

#[test]
fn of_several_gates_each_plans_with_its_own_part_of_what_all_are_asked_for() {
    let mut site = Site::new(PacingMode::Even);
    let mut rate = |elsewhere: Option<u64>| {
        let (books, now) = noon(40_000, elsewhere);
        site.pacer.plan(&site.pacing, |place| place, &books, now);
        site.pacer.class(SEARCH).demand.record_request(Units::from_whole(100));
        site.pacer.classes()[SEARCH].allotment.expect("it was planned").rate.refill_per_hour.floor()
    };
    assert_eq!(rate(None), 5000, "60,000 units in twelve hours, as nobody has said that there are others");
    // In a quarter of an hour, which is the least that anything follows from, it was asked for 100: 4,800 until midnight.
    assert!((1249..=1252).contains(&rate(Some(3 * 4800))), "a quarter of it");
    let part = rate(None);
    assert!((1249..=1252).contains(&part), "{part}: nobody has said otherwise since");
    assert!(rate(Some(0)) == 5000, "the others have gone");
}

#[test]
fn who_comes_anew_has_no_more_at_once_than_is_left_of_what_was_planned() {
    let begins_with = |taken| {
        let mut site = Site::new(PacingMode::Even);
        let (books, now) = noon(taken, None);
        site.pacer.plan(&site.pacing, |place| place, &books, now);
        site.pacer.classes()[SEARCH].allotment.expect("it was planned").bucket.balance()
    };
    assert_eq!(begins_with(0), Units::from_whole(5000), "the burst");
    assert_eq!(begins_with(47_000), Units::from_whole(3000));
    assert_eq!(begins_with(50_000), Units::ZERO);
}

proptest! {
    #[test]
    fn a_plan_gives_no_more_than_there_is_and_never_less_for_more(
        left in 0u64..10_000, more in 0u64..5000, first in 0.0..8000.0f64,
        paced in prop::collection::vec((1.0..1000.0f64, 0.0..20_000.0f64), 1..6),
    ) {
        let mut outlook = outlook(left, first, &paced);
        for class in &mut outlook.paced {
            class.share = Some(Share::NONE);
        }
        let before = outlook.plan();
        let given: f64 = before.parts.iter().zip(&paced).map(|(part, class)| part.share.ratio() * class.1).sum();
        prop_assert!(given <= (left as f64 - first).max(0.0) + 0.02 * paced.len() as f64, "{} of {}", given, left);
        prop_assert!(before.parts.iter().all(|part| part.units.is_finite() && part.units >= 0.0));
        outlook.left = Units::from_whole(left + more);
        for (before, after) in before.parts.iter().zip(&outlook.plan().parts) {
            prop_assert!(after.share >= before.share && after.units >= before.units - 1e-6);
        }
    }

    #[test]
    fn purses_of_all_gates_together_hold_no_more_than_one_burst_once_each_knows_its_part(
        expected in prop::collection::vec(1u64..100_000, 1..6), taken in 0u64..100_000,
    ) {
        let all: u64 = expected.iter().sum();
        let mut held = Units::ZERO;
        for here in &expected {
            let mut site = Site::new(PacingMode::Even);
            let (books, now) = noon(taken, None);
            site.pacer.plan(&site.pacing, |place| place, &books, now);
            // Twelve hours like a quarter of one.
            site.pacer.class(SEARCH).demand.record_request(Units::from_milli(here * 1000 / 48));
            let (books, now) = noon(taken, Some(all - here));
            site.pacer.plan(&site.pacing, |place| place, &books, now);
            held = held.saturating_add(site.pacer.classes()[SEARCH].allotment.expect("it was planned").bucket.balance());
        }
        // The unit that each counts for itself.
        let more = Units::from_whole(5000 * expected.len() as u64).milli() / all;
        prop_assert!(held.milli() <= Units::from_whole(5000).milli() + more + 10, "{} of 5000 and {}", held, more);
    }

    #[test]
    fn any_run_has_its_share_served_give_or_take_one(millionths in 0u32..=1_000_000, length in 1usize..500) {
        let offer = shared_offer(millionths);
        let mut purse = PacingBucket::full(&offer, Timestamp(0));
        let mut served = 0;
        for _ in 0..length {
            let (next, said) = purse.try_take(&offer, Units::from_whole(1), 0, Timestamp(0));
            served += usize::from(said.is_ok());
            purse = next;
        }
        prop_assert!((served as f64 - length as f64 * offer.share.ratio()).abs() <= 1.0);
    }

    #[test]
    fn whoever_goes_before_the_share_stays_what_it_is(
        millionths in 0u32..=1_000_000, urgent in prop::collection::vec(0u32..=2, 1..500),
    ) {
        let offer = shared_offer(millionths);
        let mut purse = PacingBucket::full(&offer, Timestamp(0));
        let mut served = 0.0;
        for before in &urgent {
            let (next, said) = purse.try_take(&offer, Units::from_whole(1), *before, Timestamp(0));
            served += f64::from(u8::from(said.is_ok()));
            purse = next;
        }
        let due = urgent.len() as f64 * offer.share.ratio();
        prop_assert!((due - 1.0..=due + 3.0).contains(&served), "{} of {}", served, due);
    }

    #[test]
    fn whatever_has_been_expectations_are_numbers(
        hours in prop::collection::vec((0u64..1_000_000_000, 0u64..1_000_000), 1..400), second in 0.0..604_800.0f64,
    ) {
        let mut demand = demand::DemandModel::default();
        for (place, (asked, paid)) in hours.into_iter().enumerate() {
            demand.record_request(Units::from_milli(asked));
            demand.record_cost(Units::from_milli(asked), Units::from_milli(paid));
            demand.finish_hour(place % HOURS);
        }
        let (now, span) = (WeekTime(second), Duration::from_secs(DAY));
        for DemandForecast { units, variance } in [demand.forecast_learned(now, span), demand.forecast_even(now, span), demand.forecast_peak(now, span)] {
            prop_assert!(units.is_finite() && units >= 0.0 && variance.is_finite() && variance >= 0.0);
        }
        prop_assert!(demand.cost_ratio() > 0.0 && (0.0..=1.0).contains(&demand.remaining_fraction(now, span, span)));
    }

    #[test]
    fn a_planned_share_is_released_at_the_end(asked in 1u64..200) {
        let mut site = Site::new(PacingMode::Learned);
        (0..47).for_each(|hour| site.hour(hour * 3600, 5, asked));
        site.taken = 500;
        site.plan(48 * 3600 - 60);
        prop_assert_eq!(site.share(), Share::ALL);
    }
}
