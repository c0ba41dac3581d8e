//! Heading and key figures.

use super::html::Html;
use super::time::TimeAxis;
use crate::display_zone::DisplayZone;
use crate::format::{amount, percent};
use crate::report::{ClassReport, LogReport, PolicyReport, QuotaReport, Report, WindowReport};
use crate::terminal::{self, group_digits};
use tidegate_policy::{Timestamp, Units};

/// Writes the heading, the sentences of a promise if there are any, and the key figures.
pub(super) fn write(out: &mut Html, report: &Report, promise: &[String], axis: TimeAxis<'_>, zone: &DisplayZone) {
    let log = &report.log;
    let heading = if promise.is_empty() { "Replay of an access log" } else { "What a policy keeps" };
    out.raw("<header>\n<h1>").raw(heading).raw("</h1>\n<p>");
    out.text(group_digits(log.requests))
        .raw(" requests in ")
        .text(terminal::format_duration(log.span_s))
        .raw(" of ")
        .text(log.files.join(", "));
    let [first, last] = [log.first, log.last].map(|time| axis.format_time(time));
    out.raw(", from ").text(first).raw(" to ").text(last).raw(" (").text(zone.name()).raw("), under ");
    for (index, policy) in report.policies.iter().enumerate() {
        out.raw(if index > 0 { " and under " } else { "" }).raw("<strong>").text(&policy.name).raw("</strong>");
    }
    out.raw(".</p>\n");
    if !promise.is_empty() {
        out.raw("<ul class=\"verdict\">\n");
        for sentence in promise {
            out.raw("<li>").text(sentence).raw("</li>\n");
        }
        out.raw("</ul>\n");
    }
    for policy in &report.policies {
        out.raw("<p class=\"verdict\">").text(verdict(policy, axis)).raw("</p>\n");
    }
    out.raw("</header>\n<section>\n<h2>At a glance</h2>\n");
    write_cards(out, &report.policies, log, axis);
    out.raw("<p class=\"note\">Class admitted: share of its requests with a cost.</p>\n</section>\n");
}

/// Writes a card for each figure, with the figures of all policies.
fn write_cards(out: &mut Html, policies: &[PolicyReport], log: &LogReport, axis: TimeAxis<'_>) {
    let figures: Vec<Vec<(String, String)>> = policies.iter().map(|policy| key_figures(policy, log, axis)).collect();
    let names = figures.iter().flatten().map(|(name, _)| name);
    let mut shown: Vec<&str> = Vec::new();
    out.raw("<dl class=\"cards\">\n");
    for name in names {
        if shown.contains(&name.as_str()) {
            continue;
        }
        shown.push(name);
        out.raw("<div><dt>").text(name).raw("</dt>");
        for (policy, figures) in policies.iter().zip(&figures) {
            let figure = figures.iter().find(|(other, _)| other == name).map_or("-", |(_, figure)| figure);
            let (main, detail) = figure.split_once(" (").unwrap_or((figure, ""));
            out.raw("<dd><strong>").text(main).raw("</strong>");
            if !detail.is_empty() {
                out.raw(" ").text(detail.trim_end_matches(')'));
            }
            if policies.len() > 1 {
                out.raw(" <small>").add(&Html::breakable(&policy.name)).raw("</small>");
            }
            out.raw("</dd>");
        }
        out.raw("</div>\n");
    }
    out.raw("</dl>\n");
}

/// Returns the result of a policy as one sentence: whether its quotas last, and whom it refuses.
fn verdict(policy: &PolicyReport, axis: TimeAxis<'_>) -> String {
    let mut parts: Vec<String> = policy
        .quotas
        .iter()
        .filter(|quota| !quota.windows.is_empty())
        .map(|quota| quota_verdict(quota, axis))
        .collect();
    parts.extend(policy.budgets.iter().map(|budget| {
        let (limited, keys) = (group_digits(budget.limited), group_digits(budget.keys));
        format!("{limited} of {keys} keys reach their limit of {}", budget.name)
    }));
    let refused = |class: &ClassReport| class.refused.values().sum::<u64>();
    parts.push(match policy.classes.iter().max_by_key(|class| refused(class)) {
        Some(class) if refused(class) > 0 => format!(
            "{} of {} requests are refused, most of them in the class {} ({})",
            group_digits(policy.refused),
            group_digits(policy.requests),
            class.name,
            group_digits(refused(class)),
        ),
        _ => "no request is refused".to_owned(),
    });
    let shadow: u64 = policy.classes.iter().flat_map(|class| class.shadow.values()).sum();
    let shadow_text = match shadow {
        0 => String::new(),
        shadow if policy.refused == 0 => format!(", but {} would be, were shadow mode off", group_digits(shadow)),
        shadow => format!("; {} more would be, were shadow mode off", group_digits(shadow)),
    };
    format!("Under {}, {}{shadow_text}.", policy.name, parts.join("; "))
}

fn quota_verdict(quota: &QuotaReport, axis: TimeAxis<'_>) -> String {
    let windows = quota.windows.len();
    let spent: Vec<Timestamp> = quota.windows.iter().filter_map(|window| window.spent).collect();
    match (windows, spent.first()) {
        (1, None) => format!("the quota {} lasts", quota.name),
        (_, None) => format!("the quota {} lasts in all {windows} windows", quota.name),
        (1, Some(first)) => format!("the quota {} is used up at {}", quota.name, axis.format_time(*first)),
        (_, Some(first)) => {
            let time = axis.format_time(*first);
            format!("the quota {} is used up in {} of {windows} windows, first at {time}", quota.name, spent.len())
        }
    }
}

/// Returns the usage of a quota, and its share of the limits of those windows of which the log has all.
fn usage(quota: &QuotaReport) -> String {
    let used = |windows: &[&WindowReport]| windows.iter().map(|window| window.used).sum::<Units>();
    let all: Vec<&WindowReport> = quota.windows.iter().collect();
    let whole: Vec<&WindowReport> = quota.windows.iter().filter(|window| window.whole).collect();
    let limits = quota.limit.as_f64() * whole.len() as f64;
    let units = format!("{} units", amount(used(&all)));
    match limits > 0.0 {
        true if whole.len() == all.len() => format!("{units} ({})", percent(used(&whole).as_f64() / limits)),
        true => {
            let share = percent(used(&whole).as_f64() / limits);
            let (count, all) = (whole.len(), all.len());
            let whole = if count == 1 { "whole window" } else { "whole windows" };
            format!("{units} ({share} of {count} {whole} of {all})")
        }
        false => format!("{units} (no whole window in the log)"),
    }
}

/// Returns the key figures of a policy with their names.
fn key_figures(policy: &PolicyReport, log: &LogReport, axis: TimeAxis<'_>) -> Vec<(String, String)> {
    let mut figures = vec![
        ("requests admitted".to_owned(), group_digits(policy.admitted)),
        ("requests refused".to_owned(), group_digits(policy.refused)),
    ];
    if policy.requests != log.requests {
        let label = "decisions (refused clients retry or pause)";
        figures.push((label.to_owned(), group_digits(policy.requests)));
    }
    for class in policy.classes.iter().filter(|class| class.costly > 0) {
        let admit_share = percent(class.costly_admitted as f64 / class.costly as f64);
        figures.push((format!("{} admitted", class.name), admit_share));
    }
    if let Some(worst) = &policy.verified_bots.worst {
        let time = axis.format_time(worst.start);
        let figure = format!("{} ({time})", percent(worst.admit_ratio));
        figures.push(("verified bots admitted in their worst hour".into(), figure));
    }
    for quota in &policy.quotas {
        figures.push((format!("{} used", quota.name), usage(quota)));
    }
    if let Some(cache) = &policy.cache {
        let share = cache.hit_share.map_or_else(|| "-".to_owned(), percent);
        figures.push(("answered by the cache".into(), share));
        let saved =
            cache.saved.iter().map(|(quota, units)| (format!("{quota} saved"), format!("{} units", amount(*units))));
        figures.extend(saved);
    }
    figures
}
