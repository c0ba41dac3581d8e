//! The report as one HTML page: charts, their figures as tables, and assumptions.
//!
//! The page is self-contained: no scripts, no fonts, no requests; its Content-Security-Policy forbids them. Charts are
//! SVG that stretches to the available width. Their text is HTML above the SVG, so that it stays readable on a phone.
//! All data from a log goes through [`Html::text`].

mod bots;
mod cache;
mod chart;
mod classes;
mod comparison;
mod header;
mod html;
mod log_section;
mod quota;
mod refused_pages;
mod routes;
mod scale;
mod served;
mod spenders;
mod spikes;
mod steps;
mod table;
mod time;
mod verdicts;

#[cfg(test)]
mod tests;

use super::budget_text;
use super::display_zone::DisplayZone;
use super::report::{PolicyReport, Report};
use html::Html;
use steps::Steps;
use time::TimeAxis;

/// Renders the page of a replay.
pub fn page(report: &Report) -> String {
    page_with_promise(report, &[])
}

/// Renders the page of a plan: of the replay of its policy, below the sentences of its promise.
pub fn page_with_promise(report: &Report, promise: &[String]) -> String {
    let mut out = Html::default();
    out.raw(HEAD).raw(include_str!("style.css")).raw("</style>\n</head>\n<body>\n<main>\n");
    let zone = DisplayZone::for_report(report);
    let axis = TimeAxis::from_report(report, &zone);
    header::write(&mut out, report, promise, axis, &zone);
    let colors = classes::ClassColors::from_report(report);
    section(&mut out, "Quota usage", report, |out, policy| {
        policy.quotas.iter().for_each(|quota| quota::write(out, quota, report, axis));
        for budget in &policy.budgets {
            let sentence = budget_text::describe(budget, |time| axis.format_time(time));
            out.raw("<p><strong>").text(&budget.name).raw("</strong>, a budget for each key: ");
            out.text(sentence).raw(".</p>\n");
        }
    });
    section(&mut out, "Spikes of demand", report, |out, policy| spikes::write(out, &policy.spikes, axis));
    let steps: Vec<Steps> = report.policies.iter().map(|policy| Steps::from_policy(policy, axis)).collect();
    section(&mut out, "Admitted and refused requests", report, |out, policy| {
        verdicts::write(out, policy, &colors, &steps, axis, policy_index(report, policy));
    });
    section(&mut out, "Admitted share of requests with a cost", report, |out, policy| {
        served::write(out, policy, &colors, &steps[policy_index(report, policy)], axis);
    });
    if report.policies.iter().any(|policy| policy.cache.is_some()) {
        section(&mut out, "Cache", report, |out, policy| cache::write(out, policy.cache.as_ref()));
    }
    section(&mut out, "Most expensive routes", report, |out, policy| routes::write(out, &policy.routes));
    section(&mut out, "Most expensive bots", report, |out, policy| bots::write(out, &policy.bots));
    section(&mut out, "Who asked for most", report, |out, policy| spenders::write(out, &policy.spenders));
    section(&mut out, "Pages refused to verified bots", report, |out, policy| {
        refused_pages::write(out, &policy.refused_pages, axis);
    });
    if let (Some(comparison), [first, second]) = (&report.comparison, &report.policies[..]) {
        comparison::write(&mut out, comparison, &report.log.files, [first, second], axis);
    }
    log_section::write(&mut out, report, &zone);
    out.raw("</main>\n</body>\n</html>\n");
    out.finish()
}

/// Writes a section with a part for each policy, side by side if there is room.
fn section(out: &mut Html, heading: &'static str, report: &Report, write: impl Fn(&mut Html, &PolicyReport)) {
    out.raw("<section>\n<h2>").raw(heading).raw("</h2>\n<div class=\"policies\">\n");
    for policy in &report.policies {
        out.raw("<div class=\"policy\">\n");
        if report.policies.len() > 1 {
            out.raw("<h3>").text(&policy.name).raw("</h3>\n");
        }
        write(out, policy);
        out.raw("</div>\n");
    }
    out.raw("</div>\n</section>\n");
}

fn policy_index(report: &Report, policy: &PolicyReport) -> usize {
    report.policies.iter().position(|other| std::ptr::eq(other, policy)).unwrap_or(0)
}

const HEAD: &str = "<!DOCTYPE html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"color-scheme\" content=\"light dark\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">
<title>Tidegate replay</title>
<style>
";
