//! Heading and key figures.

use super::html::Html;
use super::table;
use super::time::TimeAxis;
use crate::display_zone::DisplayZone;
use crate::format::{amount, percent};
use crate::report::{PolicyReport, Report};
use crate::terminal::{self, Align, group_digits};
use tidegate_policy::Units;

/// Writes the heading and the key figures.
pub(super) fn write(out: &mut Html, report: &Report, span: TimeAxis<'_>, zone: &DisplayZone) {
    let log = &report.log;
    out.raw("<header>\n<h1>Replay of an access log</h1>\n<p>");
    out.text(group_digits(log.requests))
        .raw(" requests in ")
        .text(terminal::format_duration(log.span_s))
        .raw(" of ")
        .text(log.files.join(", "));
    let [first, last] = [log.first, log.last].map(|time| span.format_time(time));
    out.raw(", from ").text(first).raw(" to ").text(last).raw(" (").text(zone.name()).raw("), under ");
    for (index, policy) in report.policies.iter().enumerate() {
        out.raw(if index > 0 { " and under " } else { "" }).raw("<strong>").text(&policy.name).raw("</strong>");
    }
    out.raw(".</p>\n</header>\n<section>\n<h2>At a glance</h2>\n");
    match &report.policies[..] {
        [first, second] => {
            write_comparison(out, [first, second].map(|policy| (policy, key_figures(policy, log.requests, span))));
        }
        policies => policies.iter().for_each(|policy| write_single(out, key_figures(policy, log.requests, span))),
    }
    out.raw("<p class=\"note\">Class admitted: share of its requests with a cost.</p>\n</section>\n");
}

fn write_single(out: &mut Html, figures: Vec<(String, String)>) {
    let rows = figures.into_iter().map(|(name, figure)| vec![Html::from_text(name), Html::from_text(figure)]);
    table::write(out, &[("", Align::Left), ("", Align::Right)], rows);
}

fn write_comparison(
    out: &mut Html,
    [(first, first_figures), (second, second_figures)]: [(&PolicyReport, Vec<(String, String)>); 2],
) {
    let of_second =
        |name: &str| second_figures.iter().find(|(other, _)| other == name).map_or("-", |(_, figure)| figure);
    let row = |(name, figure): (String, String)| {
        vec![Html::from_text(&name), Html::from_text(figure), Html::from_text(of_second(&name))]
    };
    let head = [("", Align::Left), (first.name.as_str(), Align::Right), (second.name.as_str(), Align::Right)];
    table::write(out, &head, first_figures.into_iter().map(row));
}

/// Returns the key figures of a policy with their names; `requests` is the number of requests in the log.
fn key_figures(policy: &PolicyReport, requests: u64, span: TimeAxis<'_>) -> Vec<(String, String)> {
    let mut figures = vec![
        ("requests admitted".to_owned(), group_digits(policy.admitted)),
        ("requests refused".to_owned(), group_digits(policy.refused)),
    ];
    if policy.requests != requests {
        let label = "decisions (refused clients retry or pause)";
        figures.push((label.to_owned(), group_digits(policy.requests)));
    }
    for class in policy.classes.iter().filter(|class| class.costly > 0) {
        let admit_share = percent(class.costly_admitted as f64 / class.costly as f64);
        figures.push((format!("{} admitted", class.name), admit_share));
    }
    if let Some(worst) = &policy.verified_bots.worst {
        let time = span.format_time(worst.start);
        let figure = format!("{} ({time})", percent(worst.admit_ratio));
        figures.push(("verified bots admitted in their worst hour".into(), figure));
    }
    for quota in &policy.quotas {
        let used: Units = quota.windows.iter().map(|window| window.used).sum();
        let total_limit = quota.limit.as_f64() * quota.windows.len() as f64;
        let share = if total_limit > 0.0 { percent(used.as_f64() / total_limit) } else { "-".into() };
        figures.push((format!("{} used", quota.name), format!("{} units ({share})", amount(used))));
    }
    figures
}
