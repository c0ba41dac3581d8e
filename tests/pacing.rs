//! Weeks of traffic against the decision code on made-up time: does an allowance last, and is the afternoon like
//! the morning?
//!
//! `cargo test --release --test pacing -- --nocapture measured` prints the table of docs/PACING.md.

mod support;

use support::pacing::{Asked, Day, Measured, Policy, Week, measure, seen_by_label};
use support::shared;

/// How many times the allowance is asked for.
const DEMANDS: [f64; 3] = [1.2, 2.0, 5.0];
const LOS_ANGELES: &str = "America/Los_Angeles";
const TOKYO: &str = "Asia/Tokyo";

#[test]
fn measured_weeks_are_served_alike_all_day() {
    for seed in 1..=3 {
        holds(&format!("made-up {seed}"), &Week::of(seed, &[]), LOS_ANGELES, true);
    }
}

#[test]
fn measured_weeks_with_crowds_and_holidays_refuse_no_people() {
    let odd = Week::of(4, &[(2, Day::Crowd), (3, Day::Holiday), (4, Day::Surge)]);
    holds("made-up, with a crowd, a holiday and a surge", &odd, LOS_ANGELES, false);
}

#[test]
fn measured_weeks_of_the_shared_generator() {
    let Some(shared) = shared() else { return };
    let generator = shared.join("tools/synth_day.py");
    let usual = "baseline";
    let odd = "baseline,baseline,crowd,surge,baseline,crawl-delay";
    for (seed, zone, scenarios) in [(1, LOS_ANGELES, usual), (2, TOKYO, usual), (3, TOKYO, usual), (4, TOKYO, odd)] {
        let asked = seen_by_label(&generator, seed, scenarios);
        let odd = if scenarios == usual { "" } else { ", with a crowd, a surge and crawl delays" };
        holds(&format!("synthetic {seed}{odd}"), &asked, zone, odd.is_empty());
    }
}

/// Measures each policy on each demand, and holds `learned` to what is promised of it. Without optimisation only that
/// one: the others are for the table.
fn holds(name: &str, asked: &[Asked], zone: &str, alike: bool) {
    for demand in DEMANDS {
        let policies = if cfg!(debug_assertions) { &[Policy::Learned][..] } else { &Policy::ALL };
        let measured: Vec<Measured> = policies.iter().map(|policy| measure(asked, zone, *policy, demand)).collect();
        let each = |of: &dyn Fn(&Measured) -> String| measured.iter().map(of).collect::<Vec<_>>().join(" / ");
        println!(
            "| {name} | {zone} | {demand} times | {} | {} | {} | {} |",
            each(&|of| of.people_refused.to_string()),
            each(&|of| format!("{:.1} %", of.unused * 100.0)),
            each(&|of| format!("{:.2}", of.hours)),
            each(&|of| format!("{:.2}", of.hours_of_a_day)),
        );
        let Some(&Measured { people_refused, unused, hours, .. }) = measured.last() else { unreachable!() };
        assert!(measured.iter().all(|of| of.overspent == 0), "{name}, {demand} times");
        assert_eq!(people_refused, 0, "{name}, {demand} times");
        assert!(!alike || unused <= 0.01, "{name}, {demand} times: {unused} unused");
        assert!(!alike || hours >= 0.85, "{name}, {demand} times: {hours}");
    }
}
