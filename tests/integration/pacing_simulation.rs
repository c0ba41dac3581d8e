//! Pacing simulation: weeks of traffic against the decision code on simulated time. The quota lasts, and the admit
//! ratio is the same in the morning and in the afternoon.
//!
//! `cargo test --release --test integration pacing_simulation::measured -- --nocapture` prints the table of docs/PACING.md.

use crate::support::pacing_harness::{
    BotTreatment, DayKind, PacingPolicy, SyntheticWeek, TraceRequest, WeekMetrics, measure, measure_cached,
    trace_from_labels, trace_from_log,
};
use crate::support::shared_data;

/// Demand, as a multiple of the quota.
const DEMANDS: [f64; 3] = [1.2, 2.0, 5.0];
const LOS_ANGELES: &str = "America/Los_Angeles";
const TOKYO: &str = "Asia/Tokyo";

#[test]
fn measured_weeks_are_served_evenly() {
    for seed in 1..=3 {
        assert_guarantee(
            &format!("bundled {seed}"),
            &SyntheticWeek::generate(seed, &[]),
            LOS_ANGELES,
            BotTreatment::Paced,
            Guarantee::EvenRatio,
        );
    }
}

/// Surplus units refresh stored pages: hardly any are left over, and no person is refused for it. Where the forecast is too
/// low, bots find up to 5 % less of what they would have got at the end of the window. Builds without optimization measure
/// one week only.
#[test]
fn measured_surplus_is_used_for_fresh_pages() {
    const LIFETIME: u64 = 2 * 3600;
    let weeks = [(4, &[(2, DayKind::FlashCrowd), (4, DayKind::Surge)][..]), (1, &[]), (2, &[])];
    let measured = if cfg!(debug_assertions) { 1 } else { weeks.len() };
    for (seed, special_days) in weeks.into_iter().take(measured) {
        let requests = SyntheticWeek::generate(seed, special_days);
        // Units a day: more than requests need, about as many, and fewer.
        for limit in [19_000, 16_000, 12_000] {
            for policy in [PacingPolicy::Even, PacingPolicy::Learned] {
                let measure = |refreshes| measure_cached(&requests, LOS_ANGELES, policy, (limit, LIFETIME, refreshes));
                let (without, with) = (measure(false), measure(true));
                println!(
                    "week {seed}, {limit} units, {policy:?}: unused {:.2} % without, {:.2} % with; fresh for search engines \
                     {:.1} %, {:.1} %; refused people {} and {}, bots {} and {}",
                    without.max_unused * 100.0,
                    with.max_unused * 100.0,
                    without.fresh_share * 100.0,
                    with.fresh_share * 100.0,
                    without.human_refusals,
                    with.human_refusals,
                    without.bot_refusals,
                    with.bot_refusals,
                );
                assert_eq!((with.max_overspend, with.human_refusals), (0, without.human_refusals), "{with:?}");
                assert!(with.max_unused < 0.005, "{with:?}");
                assert!(with.bot_refusals <= without.bot_refusals + without.bot_refusals / 20, "{without:?} {with:?}");
                assert!(with.fresh_share >= without.fresh_share - 0.005, "{without:?} {with:?}");
            }
        }
    }
}

#[test]
fn measured_weeks_with_bursts_refuse_no_humans() {
    let requests = SyntheticWeek::generate(4, &[(2, DayKind::FlashCrowd), (3, DayKind::Holiday), (4, DayKind::Surge)]);
    assert_guarantee(
        "bundled 4, with bursts and a holiday",
        &requests,
        LOS_ANGELES,
        BotTreatment::Paced,
        Guarantee::FullUse,
    );
}

#[test]
fn measured_search_only_weeks_use_the_whole_limit() {
    assert_guarantee(
        "bundled 1, other bots excluded",
        &SyntheticWeek::generate(1, &[]),
        LOS_ANGELES,
        BotTreatment::Refused,
        Guarantee::FullUse,
    );
}

#[test]
fn measured_weeks_of_the_shared_generator() {
    let Some(shared) = shared_data() else { return };
    let generator = shared.join("tools/synth_day.py");
    let usual = "baseline";
    let special = "baseline,baseline,crowd,surge,baseline,crawl-delay";
    for (seed, zone, scenarios, bots) in [
        (1, LOS_ANGELES, usual, BotTreatment::Paced),
        (2, TOKYO, usual, BotTreatment::Paced),
        (3, TOKYO, usual, BotTreatment::Paced),
        (4, TOKYO, special, BotTreatment::Paced),
        (2, TOKYO, usual, BotTreatment::Refused),
    ] {
        let requests = trace_from_labels(&generator, seed, scenarios);
        let days = if scenarios == usual { "" } else { ", with bursts and crawl delays" };
        let excluded = if bots == BotTreatment::Paced { "" } else { ", other bots excluded" };
        let guarantee = match (scenarios == usual, bots) {
            (true, BotTreatment::Paced) => Guarantee::EvenRatio,
            (true, BotTreatment::Refused) => Guarantee::FullUse,
            (false, _) => Guarantee::NoHumanRefusals,
        };
        assert_guarantee(&format!("external {seed}{days}{excluded}"), &requests, zone, bots, guarantee);
    }
}

#[test]
fn measured_days_of_real_logs() {
    let Some(shared) = shared_data() else { return };
    for name in ["semicomplete-2015", "wordpress-2022"] {
        let requests = trace_from_log(&shared.join(format!("data/logs/{name}.combined.log.gz")));
        assert_guarantee(name, &requests, "UTC", BotTreatment::Paced, Guarantee::NoAvoidableRefusals);
    }
}

/// Guarantee of `learned` pacing in a scenario.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Guarantee {
    /// No refused human requests, at most 1 % of the quota unused, and the same admit ratio of search engines all day.
    EvenRatio,
    /// No refused human requests, and at most 1 % of the quota unused.
    FullUse,
    /// No refused human requests.
    NoHumanRefusals,
    /// No refused human requests, except in windows in which human demand alone exceeds the quota.
    NoAvoidableRefusals,
}

/// Measures each policy at each demand, and asserts the guarantee of `learned`. Builds without optimization measure
/// only `learned`; the other policies are for the table.
fn assert_guarantee(name: &str, requests: &[TraceRequest], zone: &str, bots: BotTreatment, guarantee: Guarantee) {
    for demand in DEMANDS {
        let policies = if cfg!(debug_assertions) { &[PacingPolicy::Learned][..] } else { &PacingPolicy::ALL };
        let measured: Vec<WeekMetrics> =
            policies.iter().map(|policy| measure(requests, zone, (*policy, bots), demand)).collect();
        let each =
            |render: &dyn Fn(&WeekMetrics) -> String| measured.iter().map(render).collect::<Vec<_>>().join(" / ");
        let or_dash = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
        println!(
            "| {name} | {zone} | {demand} times | {} | {} | {} | {} |",
            each(&|week| week.human_refusals.to_string()),
            each(&|week| or_dash(week.max_unused.map(|ratio| format!("{:.1} %", ratio * 100.0)))),
            each(&|week| or_dash(week.hour_evenness.map(|ratio| format!("{ratio:.2}")))),
            each(&|week| or_dash(week.daily_hour_evenness.map(|ratio| format!("{ratio:.2}")))),
        );
        let Some(learned) = measured.last() else { unreachable!() };
        assert!(measured.iter().all(|week| week.max_overspend == 0), "{name}, {demand} times");
        let unavoidable = if guarantee == Guarantee::NoAvoidableRefusals { learned.unavoidable_refusals } else { 0 };
        assert_eq!(learned.human_refusals, unavoidable, "{name}, {demand} times");
        let unused = learned.max_unused.unwrap_or_default();
        assert!(
            matches!(guarantee, Guarantee::NoHumanRefusals | Guarantee::NoAvoidableRefusals) || unused <= 0.01,
            "{name}, {demand} times: {unused} unused"
        );
        if guarantee == Guarantee::EvenRatio {
            let unguarded: Vec<TraceRequest> =
                requests.iter().map(|request| TraceRequest { page: None, ..*request }).collect();
            let unguarded = measure(&unguarded, zone, (PacingPolicy::Learned, bots), demand);
            for (measured, min) in [(learned, 0.8), (&unguarded, 0.85)] {
                assert!(
                    measured.hour_evenness.is_some_and(|evenness| evenness >= min),
                    "{name}, {demand} times: {:?}",
                    measured.hour_evenness
                );
            }
        }
    }
}
