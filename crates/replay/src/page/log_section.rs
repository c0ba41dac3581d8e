//! Section about the input log: counts, missing fields, and assumptions.

use super::html::Html;
use super::table;
use crate::display_zone::DisplayZone;
use crate::report::{AgreementReport, LogReport, Report};
use crate::terminal::{Align, format_duration, group_digits};

/// Writes the section.
pub(super) fn write(out: &mut Html, report: &Report, zone: &DisplayZone) {
    out.raw("<section>\n<h2>Input log</h2>\n");
    counts(out, &report.log);
    missing_fields(out, &report.log);
    out.raw("<h3>Assumptions</h3>\n<ul>\n");
    report.assumptions.sentences().into_iter().for_each(|sentence| item(out, &sentence));
    out.raw("</ul>\n");
    for policy in &report.policies {
        if let Some(agreement) = &policy.agreement {
            write_agreement(out, &policy.name, agreement);
        }
        if !policy.unsupported.is_empty() {
            out.raw("<h3>Settings of ").text(&policy.name).raw(" that were not tested</h3>\n<ul>\n");
            policy.unsupported.iter().for_each(|setting| item(out, setting));
            out.raw("</ul>\n");
        }
    }
    out.raw("<p>Times are in ").text(zone.name()).raw(". ");
    out.raw("The same log and files give the same page.</p>\n</section>\n");
}

fn item(out: &mut Html, text: &str) {
    out.raw("<li>").text(text).raw("</li>\n");
}

fn counts(out: &mut Html, log: &LogReport) {
    let mut items = vec![format!("{} lines, {} of them requests", group_digits(log.lines), group_digits(log.requests))];
    let mut add = |count: u64, label: String| {
        if count > 0 {
            items.push(format!("{} {label}", group_digits(count)));
        }
    };
    add(log.empty, "empty".into());
    let first = log.first_non_request.as_deref().unwrap_or("-");
    add(log.non_requests, format!("invalid requests; the first is {first}"));
    add(log.out_of_order, format!("out of order by less than {}, sorted", format_duration(log.window_s)));
    add(log.late, "later than that, moved to the latest time before them".into());
    for error in log.invalid_lines.values() {
        add(error.lines, format!("skipped: {}; the first is {}", error.what, error.first));
    }
    items.extend(log.clients.formats.iter().map(|format| format!("format: {format}")));
    items.extend(log.clients.columns.iter().map(|column| format!("client: {column}")));
    items.extend(log.clients.warnings.iter().map(|warning| format!("warning: {warning}")));
    out.raw("<ul>\n");
    items.iter().for_each(|text| item(out, text));
    out.raw("</ul>\n");
}

fn missing_fields(out: &mut Html, log: &LogReport) {
    if log.missing_fields.is_empty() {
        return;
    }
    out.raw("<h3>Missing fields</h3>\n");
    let rows = log.missing_fields.iter().map(|field| {
        let lines = if field.lines == log.requests { "all".into() } else { group_digits(field.lines) };
        vec![Html::from_text(field.fact.replace('_', " ")), Html::from_text(lines), Html::from_text(&field.instead)]
    });
    table::write(out, &[("Field", Align::Left), ("lines", Align::Right), ("substitute", Align::Left)], rows);
}

fn write_agreement(out: &mut Html, name: &str, agreement: &AgreementReport) {
    out.raw("<p>").text(group_digits(agreement.same)).raw(" of ");
    out.text(group_digits(agreement.same + agreement.different)).raw(" verdicts of ").text(name);
    out.raw(" agree with the log; ");
    out.text(group_digits(agreement.copied_from_log)).raw(" refusals are copied from it.");
    if agreement.restarts > 0 {
        out.raw(" Restarts of the gateway: ").text(group_digits(agreement.restarts)).raw(".");
    }
    if agreement.corrections > 0 {
        out.raw(" Corrections of usage that the requests do not explain: ");
        out.text(group_digits(agreement.corrections)).raw(".");
    }
    out.raw("</p>\n");
}
