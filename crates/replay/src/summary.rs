//! Terminal summary of a report. Pure function from report to text.

use super::assumptions::Assumptions;
use super::budget_text;
use super::cache_text;
use super::display_zone::{DisplayZone, seconds};
use super::format::{amount, percent};
use super::log::ClientNotes;
use super::report::{
    AdmitHourReport, AgreementReport, CacheReport, ClassCacheReport, ClassReport, ComparisonReport, DifferenceReport,
    LogReport, PolicyReport, QuotaReport, Report, RouteReport, SpenderReport, SpendersReport, WindowReport,
};
use super::spike_text;
use crate::terminal::{Align, ColorMode, columns, ellipsize, format_duration, group_digits, printable, wrap};
use std::collections::BTreeMap;
use std::fmt::Write;
use tidegate_policy::{Timestamp, Units};

/// Renders the report as text and tables.
pub fn summary(report: &Report, color: ColorMode) -> String {
    let clock = TimeFormatter(DisplayZone::for_report(report));
    let mut out = log_lines(&report.log, &clock, color);
    out += &assumption_lines(&report.assumptions, color);
    for policy in &report.policies {
        let _ = write!(out, "\n{}", color.bold(&format!("Under {}", policy.name)));
        out += &self::policy(policy, report.log.requests, &clock, color);
    }
    if let (Some(comparison), [first, second]) = (&report.comparison, &report.policies[..]) {
        out += &self::comparison(comparison, first, second, color);
    }
    out
}

/// Time zone in which times are shown.
pub(super) struct TimeFormatter(pub(super) DisplayZone);

impl TimeFormatter {
    /// Formats a time like `2026-09-04 06:00`, with seconds unless they are zero: windows may be shorter than a minute.
    pub(super) fn day_and_time(&self, time: Timestamp) -> String {
        let at = seconds(time);
        self.0.format(at, if at % 60 == 0 { "%Y-%m-%d %H:%M" } else { "%Y-%m-%d %H:%M:%S" })
    }

    /// `4 Sep 06:00:05`
    fn exact_time(&self, time: Timestamp) -> String {
        self.0.format(seconds(time), "%-d %b %H:%M:%S")
    }
}

/// Renders what was read, and what the lines lack.
pub(super) fn log_lines(log: &LogReport, clock: &TimeFormatter, color: ColorMode) -> String {
    let mut out = String::new();
    let (first, last) = (clock.day_and_time(log.first), clock.day_and_time(log.last));
    let _ = writeln!(
        out,
        "{}",
        color.bold(&format!("{} requests in {}", group_digits(log.requests), format_duration(log.span_s)))
    );
    let _ = writeln!(out, "  {} lines, {first} to {last} ({})", group_digits(log.lines), clock.0.name());
    out += &client_lines(&log.clients);
    let first = log.first_non_request.as_deref().unwrap_or("-");
    for (count, label) in [
        (log.empty, "empty".to_owned()),
        (log.non_requests, format!("invalid requests (first: {first})")),
        (log.out_of_order, "out of order, sorted".to_owned()),
        (log.late, format!("more than {} late, moved to the latest time before them", format_duration(log.window_s))),
    ] {
        if count > 0 {
            out += &note(&format!("{} {label}", group_digits(count)));
        }
    }
    for error in log.invalid_lines.values() {
        out += &note(&format!("{} skipped: {} (first: {})", group_digits(error.lines), error.what, error.first));
    }
    for missing in &log.missing_fields {
        let all = if missing.lines == log.requests { "all".to_owned() } else { group_digits(missing.lines) };
        out += &dimmed(&format!("{all} lines: {}", missing.instead), color);
    }
    out
}

/// Renders the formats of the log, and how its clients were found.
pub(super) fn client_lines(clients: &ClientNotes) -> String {
    let formats = clients.formats.iter().map(|format| note(&format!("format: {format}")));
    let columns = clients.columns.iter().map(|column| note(&format!("client: {column}")));
    formats.chain(columns).chain(clients.warnings.iter().map(|warning| note(&format!("warning: {warning}")))).collect()
}

/// Renders the assumptions that differ from the defaults.
fn assumption_lines(assumptions: &Assumptions, color: ColorMode) -> String {
    let defaults = Assumptions::default().sentences();
    let differing = assumptions.sentences().into_iter().filter(|sentence| !defaults.contains(sentence));
    differing.map(|sentence| dimmed(&format!("assumed: {sentence}"), color)).collect()
}

fn policy(policy: &PolicyReport, requests: u64, clock: &TimeFormatter, color: ColorMode) -> String {
    let mut out = String::new();
    let _ = writeln!(out, ": {} admitted, {} refused", group_digits(policy.admitted), group_digits(policy.refused));
    if policy.requests != requests {
        let (decisions, requests) = (group_digits(policy.requests), group_digits(requests));
        out += &note(&format!("{decisions} decisions on {requests} requests: refused clients retry or pause"));
    }
    out += &classes(&policy.classes);
    policy.quotas.iter().for_each(|quota| out += &self::quota(quota, clock, color));
    for budget in &policy.budgets {
        let _ = writeln!(out, "\n  {} a budget for each key", color.bold(&budget.name));
        let _ = writeln!(out, "    {}", budget_text::describe(budget, |time| clock.day_and_time(time)));
    }
    policy.cache.iter().for_each(|cache| out += &self::cache(cache, color));
    for spike in &policy.spikes {
        let text = spike_text::describe(spike, |time| clock.day_and_time(time));
        out += &note(&format!("spike: {}", printable(&text)));
    }
    let verified_bots = &policy.verified_bots;
    if verified_bots.costly > 0 {
        let share = percent(verified_bots.admitted as f64 / verified_bots.costly as f64);
        let _ = writeln!(out, "\n  verified bots: {share} of their requests with a cost admitted");
        for (label, hour) in [("worst", &verified_bots.worst), ("best", &verified_bots.best)] {
            if let Some(AdmitHourReport { start, costly, admit_ratio }) = hour {
                let (share, all, from) = (percent(*admit_ratio), group_digits(*costly), clock.day_and_time(*start));
                let _ = writeln!(out, "    {label} hour  {share} of {all} from {from}");
            }
        }
    }
    out += &bots(policy);
    out += &routes(&policy.routes);
    let SpendersReport { clients, networks, paths, user_agents } = &policy.spenders;
    for (name, rows) in [("client", clients), ("network", networks), ("path", paths), ("user agent", user_agents)] {
        out += &spenders(name, rows);
    }
    policy.agreement.iter().for_each(|agreement| out += &self::agreement(agreement, color));
    if policy.abandoned > 0 {
        out += &note(&format!("{} deferred requests were never retried", group_digits(policy.abandoned)));
    }
    for setting in &policy.unsupported {
        out += &dimmed(&format!("not tested: {setting}"), color);
    }
    out
}

fn classes(classes: &[ClassReport]) -> String {
    let heading = ["class", "requests", "admitted", "refused", "units", "refused by"].map(str::to_owned).to_vec();
    let row = |class: &ClassReport| {
        let units = class.units.values().copied().sum();
        let reasons = |counts: &BTreeMap<&'static str, u64>, suffix: &str| {
            counts
                .iter()
                .map(|(reason, count)| format!("{} by {reason}{suffix}", group_digits(*count)))
                .collect::<Vec<_>>()
        };
        let refused_by = [reasons(&class.refused, ""), reasons(&class.shadow, " (shadow)")].concat().join(", ");
        let refused = class.requests - class.admitted;
        vec![
            class.name.clone(),
            group_digits(class.requests),
            group_digits(class.admitted),
            group_digits(refused),
            amount(units),
            refused_by,
        ]
    };
    let alignment = [Align::Left, Align::Right, Align::Right, Align::Right, Align::Right, Align::Left];
    columns(2, &alignment, [heading].into_iter().chain(classes.iter().map(row)))
}

fn quota(quota: &QuotaReport, clock: &TimeFormatter, color: ColorMode) -> String {
    let mut out = format!("\n  {} {} {}\n", color.bold(&quota.name), amount(quota.limit), quota.limit.noun());
    let heading = ["from", "used", "left", "first refused", "spent"].map(str::to_owned).to_vec();
    let row = |window: &WindowReport| {
        let share = window.used.as_f64() / quota.limit.as_f64().max(0.001);
        let format_time = |time: Option<Timestamp>| time.map_or("-".to_owned(), |time| clock.exact_time(time));
        vec![
            clock.day_and_time(window.start) + if window.whole { "" } else { " (part)" },
            color.by_level(share, &amount(window.used)),
            amount(window.left),
            format_time(window.first_refused),
            format_time(window.spent),
        ]
    };
    let alignment = [Align::Left, Align::Right, Align::Right, Align::Left, Align::Left];
    let skipped = quota.windows.len().saturating_sub(MAX_WINDOWS_SHOWN);
    if skipped > 0 {
        let earlier = quota.windows_in_all - MAX_WINDOWS_SHOWN as u64;
        let _ = writeln!(out, "    {}", color.dim(&format!("{} earlier windows", group_digits(earlier))));
    }
    out += &columns(4, &alignment, [heading].into_iter().chain(quota.windows.iter().skip(skipped).map(row)));
    let overrun: Units = quota.windows.iter().map(|window| window.overrun).sum();
    if !overrun.is_zero() {
        let _ =
            writeln!(out, "    {} units overrun: charged beyond the limit, reported by the origin", amount(overrun));
    }
    out
}

fn cache(cache: &CacheReport, color: ColorMode) -> String {
    let mut out = format!("\n  {}: {}\n", color.bold("cache"), cache_text::answered(cache));
    let heading = ["class", "requests", "hits", "hit share", "instead of refusals", "units saved"];
    let row = |class: &ClassCacheReport| {
        vec![
            class.name.clone(),
            group_digits(class.requests),
            group_digits(class.hits),
            class.hit_share.map_or_else(|| "-".to_owned(), percent),
            group_digits(class.replaced_refusals),
            amount(class.saved.values().copied().sum()),
        ]
    };
    let rows = [heading.map(str::to_owned).to_vec()].into_iter().chain(cache.classes.iter().map(row));
    let alignment = [Align::Left, Align::Right, Align::Right, Align::Right, Align::Right, Align::Right];
    out += &columns(4, &alignment, rows);
    for text in cache_text::saved(cache).into_iter().chain([cache_text::source(cache)]) {
        let _ = writeln!(out, "    {}", wrap(&text, 4, 6, WIDTH));
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

fn routes(routes: &[RouteReport]) -> String {
    if routes.len() < 2 {
        return String::new();
    }
    let heading = ["route", "requests", "refused", "units", "asked for"].map(str::to_owned).to_vec();
    let rows = routes.iter().take(MAX_SPENDERS_SHOWN).map(|route| {
        vec![
            ellipsize(&route.name, MAX_SPENDER_WIDTH),
            group_digits(route.requests),
            group_digits(route.refused),
            amount(route.units),
            amount(route.units_asked),
        ]
    });
    let alignment = [Align::Left, Align::Right, Align::Right, Align::Right, Align::Right];
    format!("\n{}", columns(2, &alignment, [heading].into_iter().chain(rows)))
}

fn spenders(name: &str, rows: &[SpenderReport]) -> String {
    if rows.iter().all(|row| row.units_asked.is_zero()) {
        return String::new();
    }
    let heading = [name, "requests", "refused", "units", "asked for"].map(str::to_owned).to_vec();
    let cells = |row: &SpenderReport| {
        let kind = row.kind.map_or(String::new(), |kind| format!(" ({})", kind.replace('_', " ")));
        let name = if row.name.is_empty() { "-".into() } else { printable(&row.name) };
        vec![
            ellipsize(&name, MAX_SPENDER_WIDTH) + &kind,
            group_digits(row.requests),
            group_digits(row.refused),
            amount(row.units),
            amount(row.units_asked),
        ]
    };
    let alignment = [Align::Left, Align::Right, Align::Right, Align::Right, Align::Right];
    let rows = rows.iter().take(MAX_SPENDERS_SHOWN).map(cells);
    format!("\n{}", columns(2, &alignment, [heading].into_iter().chain(rows)))
}

fn agreement(agreement: &AgreementReport, color: ColorMode) -> String {
    let all = agreement.same + agreement.different;
    let mut out = format!("\n  {} of {} verdicts agree with the log", group_digits(agreement.same), group_digits(all));
    if let Some(first) = agreement.first_different {
        out += &color.red(&format!("; first difference: line {} of file {}", first.line, first.file));
    }
    out.push('\n');
    if agreement.copied_from_log > 0 {
        let copied = group_digits(agreement.copied_from_log);
        let _ = writeln!(out, "  {copied} refusals by throttle, backoff or ledger are copied from the log");
    }
    if agreement.restarts > 0 {
        let _ = writeln!(out, "  the gateway was restarted {} times", group_digits(agreement.restarts));
    }
    if agreement.corrections > 0 {
        let corrections = group_digits(agreement.corrections);
        let _ = writeln!(out, "  {corrections} corrections: the logged usage differs from what its requests explain");
    }
    out
}

fn comparison(comparison: &ComparisonReport, first: &PolicyReport, second: &PolicyReport, color: ColorMode) -> String {
    let mut out = format!("\n{}\n", color.bold("Side by side"));
    let heading = ["", &first.name, &second.name].map(str::to_owned).to_vec();
    let mut rows = vec![
        heading,
        vec!["admitted".into(), group_digits(first.admitted), group_digits(second.admitted)],
        vec!["refused".into(), group_digits(first.refused), group_digits(second.refused)],
    ];
    for class in &first.classes {
        let other = second.classes.iter().find(|other| other.name == class.name);
        let admit_share = |class: &ClassReport| percent(class.costly_admitted as f64 / class.costly.max(1) as f64);
        if class.costly > 0 {
            let other = other.filter(|other| other.costly > 0).map_or_else(|| "-".to_owned(), admit_share);
            rows.push(vec![format!("{} admitted", class.name), admit_share(class), other]);
        }
    }
    for quota in &first.quotas {
        let used = |quota: &QuotaReport| amount(quota.windows.iter().map(|window| window.used).sum());
        let other = second.quotas.iter().find(|other| other.name == quota.name).map_or_else(|| "-".to_owned(), used);
        rows.push(vec![format!("{} used", quota.name), used(quota), other]);
    }
    for budget in &first.budgets {
        let other = second.budgets.iter().find(|other| other.name == budget.name);
        let other = other.map_or_else(|| "-".to_owned(), |other| amount(other.used));
        rows.push(vec![format!("{} used", budget.name), amount(budget.used), other]);
    }
    rows.extend(cache_rows(first, second));
    out += &columns(2, &[Align::Left, Align::Right, Align::Right], rows.into_iter());
    out.extend(cache_text::comparison_note([first, second]).map(note));
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

/// Returns what the caches of two policies did; no row if neither has a cache.
fn cache_rows(first: &PolicyReport, second: &PolicyReport) -> Vec<Vec<String>> {
    if first.cache.is_none() && second.cache.is_none() {
        return Vec::new();
    }
    let row = |label: String, figure: &dyn Fn(&CacheReport) -> String| {
        let cells = [first, second].map(|policy| policy.cache.as_ref().map_or_else(|| "-".to_owned(), figure));
        [label].into_iter().chain(cells).collect()
    };
    let mut rows = vec![
        row("cache hits".into(), &|cache| group_digits(cache.hits)),
        row("copies instead of refusals".into(), &|cache| group_digits(cache.replaced_refusals)),
    ];
    rows.extend(first.quotas.iter().map(|quota| {
        let saved = |cache: &CacheReport| amount(cache.saved.get(&quota.name).copied().unwrap_or_default());
        row(format!("{} saved", quota.name), &saved)
    }));
    rows
}

/// Formats a note.
pub(super) fn note(text: &str) -> String {
    format!("  {}\n", wrap(text, 2, 4, WIDTH))
}

/// Formats a note of minor importance.
fn dimmed(text: &str, color: ColorMode) -> String {
    format!("  {}\n", color.dim(&wrap(text, 2, 4, WIDTH)))
}

/// Width of the text, for a terminal.
const WIDTH: usize = 80;

/// The last week of days; the JSON report contains all windows.
const MAX_WINDOWS_SHOWN: usize = 7;

/// The most expensive bots; the JSON report contains more.
const MAX_BOTS_SHOWN: usize = 10;

/// Rows of the lists of routes and of spenders; the JSON report contains more.
const MAX_SPENDERS_SHOWN: usize = 5;

/// Width of their names, in columns.
const MAX_SPENDER_WIDTH: usize = 38;
