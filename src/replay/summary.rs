//! Terminal summary of a report. Pure function from report to text.

use super::assumptions::Assumptions;
use super::display_zone::{DisplayZone, seconds};
use super::report::{
    AgreementReport, AssumptionsReport, ClassReport, ComparisonReport, DifferenceReport, LogReport, PolicyReport,
    QuotaReport, Report, ServedHourReport, WindowReport,
};
use crate::terminal::{Align, ColorMode, columns, format_duration, group_digits, wrap};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Renders the report as text and tables.
pub fn summary(report: &Report, ink: ColorMode) -> String {
    let clock = Clock(DisplayZone::of(report));
    let mut out = log(&report.log, &clock, ink);
    out += &assumed(&report.assumptions, ink);
    for policy in &report.policies {
        let _ = write!(out, "\n{}", ink.bold(&format!("Under {}", policy.name)));
        out += &self::policy(policy, report.log.requests, &clock, ink);
    }
    if let (Some(comparison), [first, second]) = (&report.comparison, &report.policies[..]) {
        out += &self::comparison(comparison, first, second, ink);
    }
    out
}

/// Time zone in which times are shown.
struct Clock(DisplayZone);

impl Clock {
    /// Formats a time like `2026-09-04 06:00`, with seconds unless they are zero: windows may be shorter than a minute.
    fn day_and_time(&self, time: &str) -> String {
        let at = seconds(time);
        self.0.format(at, if at % 60 == 0 { "%Y-%m-%d %H:%M" } else { "%Y-%m-%d %H:%M:%S" })
    }

    /// `4 Sep 06:00:05`
    fn moment(&self, time: &str) -> String {
        self.0.format(seconds(time), "%-d %b %H:%M:%S")
    }
}

fn log(log: &LogReport, clock: &Clock, ink: ColorMode) -> String {
    let mut out = String::new();
    let day_and_time = |time: &Option<String>| time.as_deref().map_or("-".to_owned(), |time| clock.day_and_time(time));
    let (first, last) = (day_and_time(&log.first), day_and_time(&log.last));
    let _ = writeln!(
        out,
        "{}",
        ink.bold(&format!("{} requests in {}", group_digits(log.requests), format_duration(log.span_s)))
    );
    let _ = writeln!(out, "  {} lines, {first} to {last} ({})", group_digits(log.lines), clock.0.name());
    let first = log.first_non_request.as_deref().unwrap_or("-");
    for (count, what) in [
        (log.empty, "empty".to_owned()),
        (log.non_requests, format!("invalid requests (first: {first})")),
        (log.out_of_order, "out of order, sorted".to_owned()),
        (log.late, format!("more than {} late, moved to the latest time before them", format_duration(log.window_s))),
    ] {
        if count > 0 {
            out += &note(&format!("{} {what}", group_digits(count)));
        }
    }
    for broken in log.invalid_lines.values() {
        out += &note(&format!("{} skipped: {} (first: {})", group_digits(broken.lines), broken.what, broken.first));
    }
    for lack in &log.missing_fields {
        let all = if lack.lines == log.requests { "all".to_owned() } else { group_digits(lack.lines) };
        out += &dimmed(&format!("{all} lines: {}", lack.instead), ink);
    }
    out
}

/// Renders the assumptions that differ from the defaults.
fn assumed(assumptions: &AssumptionsReport, ink: ColorMode) -> String {
    let usual = Assumptions::default().report().sentences();
    let asked_for = assumptions.sentences().into_iter().filter(|told| !usual.contains(told));
    asked_for.map(|told| dimmed(&format!("assumed: {told}"), ink)).collect()
}

fn policy(policy: &PolicyReport, requests: u64, clock: &Clock, ink: ColorMode) -> String {
    let mut out = String::new();
    let _ = writeln!(out, ": {} admitted, {} refused", group_digits(policy.admitted), group_digits(policy.refused));
    if policy.requests != requests {
        let (decided, asked) = (group_digits(policy.requests), group_digits(requests));
        out += &note(&format!("{decided} decisions on {asked} requests: refused clients retry or pause"));
    }
    out += &classes(&policy.classes);
    policy.quotas.iter().for_each(|quota| out += &self::quota(quota, clock, ink));
    let served = &policy.verified_bots;
    if served.costly > 0 {
        let share = percent(served.admitted as f64 / served.costly as f64);
        let _ = writeln!(out, "\n  verified bots: {share} of their requests with a cost admitted");
        for (what, hour) in [("worst", &served.worst), ("best", &served.best)] {
            if let Some(ServedHourReport { start, costly, admit_ratio: served }) = hour {
                let (share, all, from) = (percent(*served), group_digits(*costly), clock.day_and_time(start));
                let _ = writeln!(out, "    {what} hour  {share} of {all} from {from}");
            }
        }
    }
    out += &bots(policy);
    policy.agreement.iter().for_each(|agreement| out += &self::agreement(agreement, ink));
    if policy.abandoned > 0 {
        out += &note(&format!("{} deferred requests were never retried", group_digits(policy.abandoned)));
    }
    for untried in &policy.unsupported {
        out += &dimmed(&format!("not tested: {untried}"), ink);
    }
    out
}

fn classes(classes: &[ClassReport]) -> String {
    let heading = ["class", "requests", "admitted", "refused", "units", "by"].map(str::to_owned).to_vec();
    let row = |class: &ClassReport| {
        let units: f64 = class.units.values().sum();
        let reasons = |told: &BTreeMap<&'static str, u64>, what: &str| {
            told.iter().map(|(reason, count)| format!("{what}{reason} {}", group_digits(*count))).collect::<Vec<_>>()
        };
        let by = [reasons(&class.refused, ""), reasons(&class.shadow, "shadow ")].concat().join(", ");
        let refused = class.requests - class.admitted;
        vec![
            class.name.clone(),
            group_digits(class.requests),
            group_digits(class.admitted),
            group_digits(refused),
            amount(units),
            by,
        ]
    };
    let alignment = [Align::Left, Align::Right, Align::Right, Align::Right, Align::Right, Align::Left];
    columns(2, &alignment, [heading].into_iter().chain(classes.iter().map(row)))
}

fn quota(quota: &QuotaReport, clock: &Clock, ink: ColorMode) -> String {
    let mut out = format!("\n  {} {} units\n", ink.bold(&quota.name), amount(quota.limit));
    let heading = ["from", "used", "left", "first refused", "spent"].map(str::to_owned).to_vec();
    let row = |window: &WindowReport| {
        let share = window.used / quota.limit.max(0.001);
        let moment = |time: &Option<String>| time.as_deref().map_or("-".to_owned(), |time| clock.moment(time));
        vec![
            clock.day_and_time(&window.start),
            ink.by_level(share, &amount(window.used)),
            amount(window.left),
            moment(&window.first_refused),
            moment(&window.spent),
        ]
    };
    let alignment = [Align::Left, Align::Right, Align::Right, Align::Left, Align::Left];
    let skipped = quota.windows.len().saturating_sub(MAX_WINDOWS_SHOWN);
    if skipped > 0 {
        let before = quota.windows_in_all - MAX_WINDOWS_SHOWN as u64;
        let _ = writeln!(out, "    {}", ink.dim(&format!("{} earlier windows", group_digits(before))));
    }
    out += &columns(4, &alignment, [heading].into_iter().chain(quota.windows.iter().skip(skipped).map(row)));
    let overrun: f64 = quota.windows.iter().map(|window| window.overrun).sum();
    if overrun > 0.0 {
        let _ =
            writeln!(out, "    {} units overrun: charged beyond the limit, reported by the origin", amount(overrun));
    }
    out
}

fn bots(policy: &PolicyReport) -> String {
    if policy.bots.is_empty() {
        return String::new();
    }
    let heading = ["bot", "kind", "requests", "refused", "units", "asked for"].map(str::to_owned).to_vec();
    let rows = policy.bots.iter().take(MAX_BOTS_SHOWN).map(|bot| {
        vec![
            bot.name.clone(),
            bot.kind.to_owned(),
            group_digits(bot.requests),
            group_digits(bot.refused),
            amount(bot.units),
            amount(bot.units_asked),
        ]
    });
    let alignment = [Align::Left, Align::Left, Align::Right, Align::Right, Align::Right, Align::Right];
    format!("\n{}", columns(2, &alignment, [heading].into_iter().chain(rows)))
}

fn agreement(agreement: &AgreementReport, ink: ColorMode) -> String {
    let all = agreement.same + agreement.different;
    let mut out = format!("\n  {} of {} verdicts agree with the log", group_digits(agreement.same), group_digits(all));
    if let Some(first) = agreement.first_different {
        out += &ink.red(&format!("; first difference: line {} of file {}", first.line, first.file));
    }
    out.push('\n');
    if agreement.copied_from_log > 0 {
        let given = group_digits(agreement.copied_from_log);
        let _ = writeln!(out, "  {given} refusals by throttle, backoff or ledger are copied from the log");
    }
    if agreement.restarts > 0 {
        let _ = writeln!(out, "  the gateway was restarted {} times", group_digits(agreement.restarts));
    }
    if agreement.corrections > 0 {
        let times = group_digits(agreement.corrections);
        let _ = writeln!(out, "  {times} corrections: the logged usage differs from what its requests explain");
    }
    out
}

fn comparison(comparison: &ComparisonReport, first: &PolicyReport, second: &PolicyReport, ink: ColorMode) -> String {
    let mut out = format!("\n{}\n", ink.bold("Side by side"));
    let heading = ["", &first.name, &second.name].map(str::to_owned).to_vec();
    let mut rows = vec![
        heading,
        vec!["admitted".into(), group_digits(first.admitted), group_digits(second.admitted)],
        vec!["refused".into(), group_digits(first.refused), group_digits(second.refused)],
    ];
    for class in &first.classes {
        let other = second.classes.iter().find(|other| other.name == class.name);
        let served = |class: &ClassReport| percent(class.costly_admitted as f64 / class.costly.max(1) as f64);
        if class.costly > 0 {
            let other = other.filter(|other| other.costly > 0).map_or_else(|| "-".to_owned(), served);
            rows.push(vec![format!("{} admitted", class.name), served(class), other]);
        }
    }
    for quota in &first.quotas {
        let used = |quota: &QuotaReport| amount(quota.windows.iter().map(|window| window.used).sum());
        let other = second.quotas.iter().find(|other| other.name == quota.name).map_or_else(|| "-".to_owned(), used);
        rows.push(vec![format!("{} used", quota.name), used(quota), other]);
    }
    out += &columns(2, &[Align::Left, Align::Right, Align::Right], rows.into_iter());
    let ComparisonReport { same, only_first_admits, only_second_admits, other_reason, other_class, .. } = comparison;
    out += &note(&format!(
        "{} lines have the same verdict; only the first policy admits {}, only the second {}; \
         both refuse {} for different reasons",
        group_digits(*same),
        group_digits(*only_first_admits),
        group_digits(*only_second_admits),
        group_digits(*other_reason),
    ));
    if !comparison.by_class.is_empty() {
        let heading = ["refused as", "only the first policy admits", "only the second admits"];
        let row = |(class, difference): (&String, &DifferenceReport)| {
            let DifferenceReport { only_first_admits, only_second_admits } = *difference;
            vec![class.clone(), group_digits(only_first_admits), group_digits(only_second_admits)]
        };
        let rows = [heading.map(str::to_owned).to_vec()].into_iter().chain(comparison.by_class.iter().map(row));
        out += &columns(4, &[Align::Left, Align::Right, Align::Right], rows);
    }
    if *other_class > 0 {
        out += &note(&format!(
            "{} lines have another class under the second policy: responses affect how their client is classified",
            group_digits(*other_class)
        ));
    }
    out
}

/// Formats a note.
fn note(text: &str) -> String {
    format!("  {}\n", wrap(text, 2, 4, WIDTH))
}

/// Formats a note of minor importance.
fn dimmed(text: &str, ink: ColorMode) -> String {
    format!("  {}\n", ink.dim(&wrap(text, 2, 4, WIDTH)))
}

/// Formats units like `1,234.5`.
pub(super) fn amount(units: f64) -> String {
    let thousandths = (units * 1000.0).round() as u64;
    let whole = group_digits(thousandths / 1000);
    match thousandths % 1000 {
        0 => whole,
        rest => format!("{whole}.{rest:03}").trim_end_matches('0').to_owned(),
    }
}

/// Formats a ratio like `12.3 %`.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Width of the text, for a terminal.
const WIDTH: usize = 80;

/// The last week of days; the JSON report contains all windows.
const MAX_WINDOWS_SHOWN: usize = 7;

/// The most expensive bots; the JSON report contains more.
const MAX_BOTS_SHOWN: usize = 10;
