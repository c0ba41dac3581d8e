//! Pacing simulation: weeks of traffic against the decision code on simulated time. The quota lasts, and the admit
//! ratio is the same in the morning and in the afternoon.
//!
//! `cargo test --release --test integration pacing::measured -- --nocapture` prints the table of docs/PACING.md.

use crate::support::pacing::{Asked, Bots, Day, Measured, Policy, Week, measure, seen_by_label, seen_by_the_gate};
use crate::support::shared;

/// Demand, as a multiple of the quota.
const DEMANDS: [f64; 3] = [1.2, 2.0, 5.0];
const LOS_ANGELES: &str = "America/Los_Angeles";
const TOKYO: &str = "Asia/Tokyo";

#[test]
fn measured_weeks_are_served_evenly() {
    for seed in 1..=3 {
        holds(&format!("bundled {seed}"), &Week::of(seed, &[]), LOS_ANGELES, Bots::Paced, Promised::All);
    }
}

#[test]
fn measured_weeks_with_bursts_refuse_no_humans() {
    let odd = Week::of(4, &[(2, Day::Crowd), (3, Day::Holiday), (4, Day::Surge)]);
    holds("bundled 4, with bursts and a holiday", &odd, LOS_ANGELES, Bots::Paced, Promised::AllLeft);
}

#[test]
fn measured_search_only_weeks_use_the_whole_limit() {
    holds("bundled 1, other bots excluded", &Week::of(1, &[]), LOS_ANGELES, Bots::ShutOut, Promised::AllLeft);
}

#[test]
fn measured_weeks_of_the_shared_generator() {
    let Some(shared) = shared() else { return };
    let generator = shared.join("tools/synth_day.py");
    let usual = "baseline";
    let odd = "baseline,baseline,crowd,surge,baseline,crawl-delay";
    for (seed, zone, scenarios, bots) in [
        (1, LOS_ANGELES, usual, Bots::Paced),
        (2, TOKYO, usual, Bots::Paced),
        (3, TOKYO, usual, Bots::Paced),
        (4, TOKYO, odd, Bots::Paced),
        (2, TOKYO, usual, Bots::ShutOut),
    ] {
        let asked = seen_by_label(&generator, seed, scenarios);
        let days = if scenarios == usual { "" } else { ", with bursts and crawl delays" };
        let shut_out = if bots == Bots::Paced { "" } else { ", other bots excluded" };
        let promised = match (scenarios == usual, bots) {
            (true, Bots::Paced) => Promised::All,
            (true, Bots::ShutOut) => Promised::AllLeft,
            (false, _) => Promised::People,
        };
        holds(&format!("external {seed}{days}{shut_out}"), &asked, zone, bots, promised);
    }
}

#[test]
fn measured_days_of_real_logs() {
    let Some(shared) = shared() else { return };
    for name in ["semicomplete-2015", "wordpress-2022"] {
        let asked = seen_by_the_gate(&shared.join(format!("data/logs/{name}.combined.log.gz")));
        holds(name, &asked, "UTC", Bots::Paced, Promised::WhatCanBe);
    }
}

/// Guarantee of `learned` pacing in a scenario.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Promised {
    /// No refused human requests, at most 1 % of the quota unused, and the same admit ratio of search engines all day.
    All,
    /// No refused human requests, and at most 1 % of the quota unused.
    AllLeft,
    /// No refused human requests.
    People,
    /// No refused human requests, except in windows in which human demand alone exceeds the quota.
    WhatCanBe,
}

/// Measures each policy at each demand, and asserts the guarantee of `learned`. Builds without optimization measure
/// only `learned`; the other policies are for the table.
fn holds(name: &str, asked: &[Asked], zone: &str, bots: Bots, promised: Promised) {
    for demand in DEMANDS {
        let policies = if cfg!(debug_assertions) { &[Policy::Learned][..] } else { &Policy::ALL };
        let measured: Vec<Measured> =
            policies.iter().map(|policy| measure(asked, zone, (*policy, bots), demand)).collect();
        let each = |of: &dyn Fn(&Measured) -> String| measured.iter().map(of).collect::<Vec<_>>().join(" / ");
        let or_dash = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
        println!(
            "| {name} | {zone} | {demand} times | {} | {} | {} | {} |",
            each(&|of| of.people_refused.to_string()),
            each(&|of| or_dash(of.unused.map(|part| format!("{:.1} %", part * 100.0)))),
            each(&|of| or_dash(of.hours.map(|ratio| format!("{ratio:.2}")))),
            each(&|of| or_dash(of.hours_of_a_day.map(|ratio| format!("{ratio:.2}")))),
        );
        let Some(learned) = measured.last() else { unreachable!() };
        assert!(measured.iter().all(|of| of.overspent == 0), "{name}, {demand} times");
        let unavoidably = if promised == Promised::WhatCanBe { learned.unavoidably } else { 0 };
        assert_eq!(learned.people_refused, unavoidably, "{name}, {demand} times");
        let unused = learned.unused.unwrap_or_default();
        assert!(
            matches!(promised, Promised::People | Promised::WhatCanBe) || unused <= 0.01,
            "{name}, {demand} times: {unused} unused"
        );
        if promised == Promised::All {
            let unguarded: Vec<Asked> = asked.iter().map(|asked| Asked { page: None, ..*asked }).collect();
            let unguarded = measure(&unguarded, zone, (Policy::Learned, bots), demand);
            for (measured, least) in [(learned, 0.8), (&unguarded, 0.85)] {
                assert!(
                    measured.hours.is_some_and(|hours| hours >= least),
                    "{name}, {demand} times: {:?}",
                    measured.hours
                );
            }
        }
    }
}
