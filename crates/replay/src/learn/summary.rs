//! Terminal summary of what was learned. Pure function from report to text of at most 80 columns.

use super::{BaselineLearning, BehaviorLearning, ClassLearning, LearnReport, QuotaLearning};
use crate::display_zone::DisplayZone;
use crate::format::percent;
use crate::summary::{TimeFormatter, log_lines, note};
use crate::terminal::{Align, ColorMode, columns, ellipsize, format_duration, group_digits, wrap};

/// Width of the summary, in columns.
const WIDTH: usize = 80;

/// Maximum width of the name of a quota.
const MAX_QUOTA_WIDTH: usize = 24;

/// Maximum width of the name of a class, beside demands of millions of units.
const MAX_CLASS_WIDTH: usize = 14;

/// Shortest time without requests that is worth a line, in seconds.
const MIN_GAP_S: u64 = 2 * 3600;

/// Longest time without requests that counts as observed, in seconds.
const MAX_OBSERVED_GAP_S: u64 = 24 * 3600;

/// Renders the report as text and tables.
pub fn summary(report: &LearnReport, color: ColorMode) -> String {
    let zone = report.quotas.iter().find_map(|quota| quota.zone.as_deref()).unwrap_or("UTC");
    let clock = TimeFormatter(DisplayZone::from_name(zone));
    let mut out = log_lines(&report.log, &clock, color);
    out += &gap(report, &clock);
    report.quotas.iter().for_each(|quota| out += &self::quota(quota, color));
    report.baseline.iter().for_each(|baseline| out += &self::baseline(baseline, color));
    out += "\n";
    match report.written.as_slice() {
        [] => out += "Nothing was written.\n",
        files => files.iter().for_each(|file| out += &format!("written: {file}\n")),
    }
    out
}

fn gap(report: &LearnReport, clock: &TimeFormatter) -> String {
    let (start, end) = (report.longest_gap.start, report.longest_gap.end);
    let seconds = end.saturating_duration_since(start).as_secs();
    let counted = match seconds {
        0..MIN_GAP_S => return String::new(),
        MIN_GAP_S..=MAX_OBSERVED_GAP_S => "counted as without demand",
        _ => "not counted",
    };
    note(&format!("no request for {} from {}: {counted}", format_duration(seconds), clock.day_and_time(start)))
}

fn quota(quota: &QuotaLearning, color: ColorMode) -> String {
    let zone = DisplayZone::from_name(quota.zone.as_deref().unwrap_or("UTC")).name();
    let name = ellipsize(&quota.name, MAX_QUOTA_WIDTH);
    let mut out = format!("\n{}", color.bold(&name));
    if quota.pacing.is_none() {
        return out + ": not paced, so nothing is learned\n";
    }
    if quota.classes.is_empty() {
        return out + ": no whole hour of the log with a request that has a cost in it\n";
    }
    let (days, hours) = (quota.hours / 24, quota.hours % 24);
    let known = format!("{} of 168 hours of a week", quota.hours_of_week);
    let learned = format!(": {days} d {hours} h learned, {known} ({zone})");
    out += &(wrap(&learned, name.chars().count(), 2, WIDTH) + "\n");
    let heading = ["class", "role", "units a day", "busiest", "quietest"].map(str::to_owned).to_vec();
    let alignment = [Align::Left, Align::Left, Align::Right, Align::Right, Align::Right];
    out += &columns(2, &alignment, [heading].into_iter().chain(quota.classes.iter().map(class_row)));
    out + &note(&first_plan(quota))
}

fn class_row(class: &ClassLearning) -> Vec<String> {
    let hours = || class.by_hour.iter().enumerate();
    let shown = |hour: Option<(usize, &f64)>| {
        let hour = hour.filter(|(_, units)| **units > 0.0);
        hour.map_or("-".to_owned(), |(hour, units)| format!("{} at {hour:02}:00", rounded(*units)))
    };
    // Of equal hours, the first.
    vec![
        ellipsize(&class.class, MAX_CLASS_WIDTH),
        class.role.to_owned(),
        rounded(class.units_per_day),
        shown(hours().rev().max_by(|(_, one), (_, other)| one.total_cmp(other))),
        shown(hours().min_by(|(_, one), (_, other)| one.total_cmp(other))),
    ]
}

/// Returns what pacing does with the demand when the gateway starts.
fn first_plan(quota: &QuotaLearning) -> String {
    match (quota.pacing, quota.missing_hours) {
        (Some("learned"), 0) => "Pacing forecasts by hour from the first request on.".into(),
        (Some("learned"), missing) => {
            let observed = if missing == 1 { "1 more hour has".into() } else { format!("{missing} more hours have") };
            format!("Pacing plans equal hours until {observed} been observed.")
        }
        (mode, _) => {
            format!("`pacing: {}` plans equal hours and does not use this; `learned` does.", mode.unwrap_or("off"))
        }
    }
}

fn baseline(baseline: &BaselineLearning, color: ColorMode) -> String {
    let mut out = format!("\n{}\n", color.bold("bot detection"));
    out += &behavior("load the assets of pages", &baseline.assets);
    match &baseline.links {
        Some(links) => out += &behavior("send the referer of the previous page", links),
        None => {
            out += &note("Referers: not learned, because the log lacks hosts; the first visitors show them.");
        }
    }
    out
}

fn behavior(text: &str, behavior: &BehaviorLearning) -> String {
    let Some(ratio) = behavior.ratio else { return note(&format!("No client shows whether people {text}.")) };
    let expected = match behavior.confidence {
        low if low <= 0.0 => "not expected of people",
        full if full >= 1.0 => "expected of people",
        _ => "expected of people in part",
    };
    let clients = group_digits(behavior.clients.round() as u64);
    note(&format!("{} of {clients} clients {text}: {expected}.", percent(f64::from(ratio))))
}

/// Formats units as a whole number, or with one digit if there are few.
fn rounded(units: f64) -> String {
    match units < 10.0 {
        true => format!("{units:.1}"),
        false => group_digits(units.round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learn::GapReport;
    use crate::report::LogReport;
    use std::collections::BTreeMap;
    use tidegate_policy::Timestamp;

    fn report() -> LearnReport {
        let (first, last) = (Timestamp::from_seconds(1_717_743_600), Timestamp::from_seconds(1_718_434_800));
        let log = LogReport {
            files: vec!["access.log".into()],
            lines: 200_000,
            requests: 199_000,
            clients: crate::log::ClientNotes {
                formats: vec!["combined".to_owned()],
                columns: vec!["first column".to_owned()],
                warnings: Vec::new(),
            },
            empty: 0,
            invalid_lines: BTreeMap::new(),
            non_requests: 1000,
            first_non_request: Some("access.log:17".into()),
            out_of_order: 0,
            late: 0,
            window_s: 60,
            first,
            last,
            span_s: 691_200,
            missing_fields: Vec::new(),
        };
        let class = |class: &str, role: &'static str, units: f64| ClassLearning {
            class: class.into(),
            role,
            units_per_day: units * 36.0,
            by_hour: std::array::from_fn(|hour| units * (1.0 + f64::from(u8::from(hour >= 12)))),
        };
        let quota = |name: &str, pacing, missing_hours, classes| QuotaLearning {
            name: name.into(),
            zone: Some("America/Los_Angeles".into()),
            pacing,
            hours: 191,
            hours_of_week: 168,
            hours_of_day: 24,
            missing_hours,
            classes,
        };
        let classes = || {
            vec![
                class("person", "unpaced", 104.2),
                class("search", "paced", 1_234_567.5),
                class("a class whose name is far too long", "excluded", 0.25),
            ]
        };
        let behavior =
            |clients: f32, ratio: Option<f32>, confidence: f32| BehaviorLearning { clients, ratio, confidence };
        LearnReport {
            log,
            longest_gap: GapReport { start: first, end: Timestamp::from_seconds(1_717_743_600 + 5 * 3600) },
            quotas: vec![
                quota("places_api", Some("learned"), 0, classes()),
                quota("search_api", Some("learned"), 7, classes()),
                quota("even_api", Some("even"), 0, classes()),
                quota("unused", Some("learned"), 20, Vec::new()),
                quota("unpaced", None, 20, Vec::new()),
            ],
            baseline: Some(BaselineLearning { assets: behavior(1234.4, Some(0.97), 1.0), links: None }),
            written: vec!["/var/lib/tidegate/state/demand.json".into()],
        }
    }

    #[test]
    fn summary_fits_a_terminal() {
        let mut report = report();
        let text = summary(&report, ColorMode::Plain);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        insta::assert_snapshot!(text);

        report.written.clear();
        report.longest_gap.end = report.log.last;
        report.baseline = Some(BaselineLearning {
            assets: BehaviorLearning { clients: 0.0, ratio: None, confidence: 0.0 },
            links: Some(BehaviorLearning { clients: 12.0, ratio: Some(0.75), confidence: 0.4 }),
        });
        let text = summary(&report, ColorMode::Plain);
        for part in [
            "from 2024-06-07 00:00: not counted\n",
            "  No client shows whether people load the assets of pages.\n",
            "  75.0 % of 12 clients send the referer of the previous page: expected of people\n    in part.\n",
            "\nNothing was written.\n",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
    }
}
