//! How the log was read, what it does not say, and what was taken for true instead.

use super::html::Html;
use super::table;
use crate::replay::display_zone::DisplayZone;
use crate::replay::report::{AgreementReport, LogReport, Report};
use crate::terminal::{Align, format_duration, group_digits};

/// All of it.
pub(super) fn write(out: &mut Html, report: &Report, zone: &DisplayZone) {
    out.raw("<section>\n<h2>How the log was read</h2>\n");
    counts(out, &report.log);
    missing_fields(out, &report.log);
    out.raw("<h3>What was taken for true</h3>\n<ul>\n");
    report.assumptions.sentences().into_iter().for_each(|told| item(out, &told));
    out.raw("</ul>\n");
    for policy in &report.policies {
        if let Some(agreement) = &policy.agreement {
            agreed(out, &policy.name, agreement);
        }
        if !policy.unsupported.is_empty() {
            out.raw("<h3>What of ").text(&policy.name).raw(" was not tried</h3>\n<ul>\n");
            policy.unsupported.iter().for_each(|untried| item(out, untried));
            out.raw("</ul>\n");
        }
    }
    out.raw("<p>Times are those of ").text(zone.name()).raw(". ");
    out.raw("The same log and the same files give the same page.</p>\n</section>\n");
}

fn item(out: &mut Html, text: &str) {
    out.raw("<li>").text(text).raw("</li>\n");
}

fn counts(out: &mut Html, log: &LogReport) {
    let mut told = vec![format!("{} lines, {} of them requests", group_digits(log.lines), group_digits(log.requests))];
    let mut tell = |count: u64, what: String| {
        if count > 0 {
            told.push(format!("{} {what}", group_digits(count)));
        }
    };
    tell(log.empty, "empty".into());
    let first = log.first_not_request.as_deref().unwrap_or("-");
    tell(log.not_requests, format!("no requests that a gate would take for one; the first is {first}"));
    tell(log.out_of_order, format!("out of order, by less than {}, and put in order", format_duration(log.window_s)));
    tell(log.late, "later than that, and taken at the time of the line before".into());
    for broken in log.broken.values() {
        tell(broken.lines, format!("passed over: {}; the first is {}", broken.what, broken.first));
    }
    out.raw("<ul>\n");
    told.iter().for_each(|told| item(out, told));
    out.raw("</ul>\n");
}

fn missing_fields(out: &mut Html, log: &LogReport) {
    if log.missing_fields.is_empty() {
        return;
    }
    out.raw("<h3>What it does not say</h3>\n");
    let rows = log.missing_fields.iter().map(|lack| {
        let lines = if lack.lines == log.requests { "all".into() } else { group_digits(lack.lines) };
        vec![Html::of(lack.fact.replace('_', " ")), Html::of(lines), Html::of(&lack.instead)]
    });
    table::write(out, &[("Fact", Align::Left), ("lines", Align::Right), ("so", Align::Left)], rows);
}

fn agreed(out: &mut Html, name: &str, agreement: &AgreementReport) {
    out.raw("<p>The gate that wrote the log gave ").text(group_digits(agreement.same)).raw(" of ");
    out.text(group_digits(agreement.same + agreement.different)).raw(" verdicts as ").text(name).raw(" does; ");
    out.text(group_digits(agreement.copied_from_log)).raw(" refusals are taken as it logged them.");
    if agreement.restarts > 0 {
        out.raw(" Started anew: ").text(group_digits(agreement.restarts)).raw(" times.");
    }
    if agreement.corrections > 0 {
        out.raw(" More or less was used than its requests explain: ");
        out.text(group_digits(agreement.corrections)).raw(" times.");
    }
    out.raw("</p>\n");
}
