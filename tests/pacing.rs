//! Days and weeks of traffic against the decision code on made-up time: does an allowance last, and is the afternoon like
//! the morning?
//!
//! `cargo test --release --test pacing -- --nocapture measured` prints the table of docs/PACING.md.

#[path = "support/pacing.rs"]
mod pacing;

use pacing::{Asked, Day, Measured, Policy, Week, measure, seen_by_label};
use std::path::Path;

/// How many times the allowance is asked for.
const DEMANDS: [f64; 3] = [1.2, 2.0, 5.0];

#[test]
fn measured_weeks_are_served_alike_all_day() {
    for seed in 1..=3 {
        holds(&format!("made-up week {seed}"), &Week::of(seed, &[]), true);
    }
}

#[test]
fn measured_weeks_with_crowds_and_holidays_refuse_no_people() {
    let odd = Week::of(4, &[(2, Day::Crowd), (3, Day::Holiday), (4, Day::Surge)]);
    holds("week with a crowd, a holiday and a surge", &odd, false);
}

#[test]
fn measured_weeks_of_the_shared_generator() {
    let generator = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/tools/synth_day.py");
    let Some(asked) = seen_by_label(&generator, 7) else { return println!("skipped: no ../shared") };
    holds("synthetic week", &asked, true);
}

/// Measures each policy on each demand, and holds `learned` to what is promised of it.
fn holds(name: &str, asked: &[Asked], alike: bool) {
    println!("\n| {name}, asked | policy | people refused | overspent | unused at most | worst hour / best hour |");
    println!("|---|---|---|---|---|---|");
    for demand in DEMANDS {
        for policy in Policy::ALL {
            let Measured { people_refused, overspent, unused, hours } = measure(asked, policy, demand);
            println!(
                "| {demand} times | {} | {people_refused} | {overspent} | {:.1} % | {hours:.2} |",
                policy.name(),
                unused * 100.0
            );
            assert_eq!(overspent, 0, "{name}, {demand} times, {policy:?}");
            if policy == Policy::Learned {
                // One in a thousand, where people come by chance when the last of the allowance is being spent.
                let most = if demand < 5.0 { 0 } else { asked.len() as u64 / 1000 };
                assert!(people_refused <= most, "{name}, {demand} times: {people_refused} people refused");
                assert!(!alike || unused <= 0.01, "{name}, {demand} times: {unused} unused");
                // Of five times the allowance little is left for crawlers, and what people do by chance in a window's last
                // hours can no longer be evened out.
                let least = if demand < 5.0 { 0.8 } else { 0.65 };
                assert!(!alike || hours >= least, "{name}, {demand} times: {hours}");
            }
        }
    }
}
