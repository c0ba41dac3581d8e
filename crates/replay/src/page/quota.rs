//! Usage of a quota, against its limit and tiers.

use super::chart::{Chart, ChartLabels, Height, StepLine};
use super::html::Html;
use super::scale::Scale;
use super::table;
use super::time::TimeAxis;
use crate::display_zone::seconds;
use crate::format::{amount, percent};
use crate::report::{PointReport, QuotaReport, Report, WindowReport};
use crate::terminal::Align;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use tidegate_policy::{Timestamp, Units};

/// Writes the chart of a quota, and its windows as a table.
pub(super) fn write(out: &mut Html, quota: &QuotaReport, report: &Report, axis: TimeAxis<'_>) {
    let is_visible = |window: &&WindowReport| axis.overlaps(seconds(window.start), seconds(window.end));
    let windows: Vec<&WindowReport> = quota.windows.iter().filter(is_visible).collect();
    let mut chart = Chart::new(axis, Scale::up_to(max_quantity(quota, report), 4.0));
    let limit = quota.limit.as_f64();
    let pace = draw_planned(&mut chart, quota, &windows);
    let tiers = limit_lines(quota);
    for (above, _) in &tiers {
        chart.line("tier", (axis.from, above.as_f64()), (axis.to, above.as_f64()));
    }
    chart.line("limit", (axis.from, limit), (axis.to, limit));
    let limit_label = (quota.limit, format!("limit {}", amount(quota.limit)));
    chart.label_levels(tiers.iter().chain([&limit_label]).map(|(level, label)| (level.as_f64(), label.as_str())));
    let line = match windows.len() > MAX_DRAWN_WINDOWS {
        true => peaks(&chart, &windows),
        false => window_lines(&chart, (&quota.used, quota.step_s), &windows, |window| window.used.as_f64()),
    };
    chart.step_line("used", &line);
    let description = description(quota, &windows);
    out.raw("<figure>\n<figcaption><strong>")
        .text(&quota.name)
        .raw("</strong>: ")
        .text(&description)
        .raw("</figcaption>\n");
    let title = format!("Usage of {}", quota.name);
    chart.write(out, Height::Tall, &ChartLabels { title: &title, description }, |_, label| label);
    out.raw("<p class=\"key\"><span class=\"swatch used\"></span> units used <span class=\"swatch even\"></span> ");
    out.text(pace).raw(" ");
    out.raw("<span class=\"swatch tier\"></span> tiers: above the line, this share of the class is refused");
    let tier_labels: Vec<String> =
        tiers.iter().map(|(above, label)| format!("{label} from {}", amount(*above))).collect();
    if !tier_labels.is_empty() {
        out.raw("<span class=\"below\">: ").text(tier_labels.join("; ")).raw("</span>");
    }
    out.raw("</p>\n");
    windows_table(out, &windows, axis);
    out.raw("</figure>\n");
}

/// Returns the maximum of the quantity axis: the highest usage under any policy, so that charts are comparable. A
/// policy with a much higher value is ignored; otherwise the tiers here could not be distinguished.
fn max_quantity(quota: &QuotaReport, report: &Report) -> f64 {
    let max_used = |quota: &QuotaReport| {
        let used = quota.windows.iter().map(|window| window.used);
        used.fold(quota.limit, Units::max).as_f64()
    };
    let own_max = max_used(quota);
    let same = report.policies.iter().flat_map(|policy| &policy.quotas).filter(|other| other.name == quota.name);
    same.map(max_used).filter(|other| *other < own_max * 1.5).fold(own_max, f64::max)
}

/// Draws the planned usage, or an even pace if there is no plan. Returns the label of the line.
fn draw_planned(chart: &mut Chart<'_>, quota: &QuotaReport, windows: &[&WindowReport]) -> &'static str {
    if windows.len() <= MAX_PLAN_LINES && !quota.planned.is_empty() {
        let planned = window_lines(chart, (&quota.planned, quota.step_s), windows, |_| quota.limit.as_f64());
        chart.step_line("even", &planned);
        return "the plan";
    }
    for window in windows.iter().filter(|_| windows.len() <= MAX_PLAN_LINES) {
        let (start, end) = (seconds(window.start), seconds(window.end));
        let at_an_even_pace = |at: i64| (at, quota.limit.as_f64() * (at - start) as f64 / (end - start).max(1) as f64);
        let TimeAxis { from, to, .. } = chart.time_axis;
        chart.line("even", at_an_even_pace(start.max(from)), at_an_even_pace(end.min(to)));
    }
    "an even pace"
}

/// Returns each usage at which a tier begins, with a label; tiers at the same usage share one label.
fn limit_lines(quota: &QuotaReport) -> Vec<(Units, String)> {
    let mut levels: Vec<(Units, Vec<String>)> = Vec::new();
    let mut tiers: Vec<(Units, String)> = Vec::new();
    for class_tiers in &quota.tiers {
        let above_zero = class_tiers.tiers.iter().filter(|tier| !tier.above.is_zero());
        tiers.extend(
            above_zero.map(|tier| (tier.above, format!("{} {:.0} %", class_tiers.class, tier.shed.ratio() * 100.0))),
        );
    }
    tiers.sort_by_key(|(above, _)| *above);
    for (above, label) in tiers {
        match levels.last_mut() {
            Some((level, labels)) if *level == above => labels.push(label),
            _ => levels.push((above, vec![label])),
        }
    }
    levels.into_iter().map(|(above, labels)| (above, labels.join(", "))).collect()
}

/// Draws one line through the points of all windows. Each window starts at 0 and ends at `ends_at`.
fn window_lines(
    chart: &Chart<'_>,
    (points, step_s): (&[PointReport], u64),
    windows: &[&WindowReport],
    ends_at: impl Fn(&WindowReport) -> f64,
) -> StepLine {
    let mut line = StepLine::default();
    let mut points = points.iter().map(|point| (seconds(point.time) + step_s as i64, point.units.as_f64())).peekable();
    let min_step = chart.time_axis.seconds() / MAX_POINTS;
    for window in windows {
        let (start, end) = (seconds(window.start), seconds(window.end));
        chart.step(&mut line, start, 0.0);
        let mut drawn = start;
        let mut last = None;
        while let Some((at, units)) = points.next_if(|(at, _)| *at <= end) {
            match at - drawn >= min_step {
                true => (drawn, last) = (at, None),
                false => {
                    last = Some((at, units));
                    continue;
                }
            }
            chart.step(&mut line, at, units);
        }
        if let Some((at, units)) = last {
            chart.step(&mut line, at, units);
        }
        chart.step(&mut line, end.min(chart.time_axis.to), ends_at(window));
    }
    line
}

/// Draws the usage of each window as a level, if there are too many windows to draw their course.
fn peaks(chart: &Chart<'_>, windows: &[&WindowReport]) -> StepLine {
    let mut line = StepLine::default();
    for window in windows {
        chart.step(&mut line, seconds(window.start), window.used.as_f64());
        chart.step(&mut line, seconds(window.end).min(chart.time_axis.to), window.used.as_f64());
    }
    line
}

fn description(quota: &QuotaReport, windows: &[&WindowReport]) -> String {
    let spent = windows.iter().filter(|window| window.spent.is_some()).count();
    let used: Units = windows.iter().map(|window| window.used).sum();
    let share = percent(used.as_f64() / (quota.limit.as_f64() * windows.len().max(1) as f64));
    let ending = match (windows.len(), spent) {
        (1, 0) => "units were left at its end".to_owned(),
        (1, _) => "all units were used before its end".to_owned(),
        (_, 0) => "units were left at the end of each".to_owned(),
        (_, spent) => format!("in {spent} of them all units were used before the end"),
    };
    match windows.len() {
        1 => format!("{} of {} units used in its window; {ending}.", amount(used), amount(quota.limit)),
        count => {
            let last = if quota.windows_in_all > count as u64 { "the last " } else { "" };
            format!("{share} of {} units used in {last}{count} windows; {ending}.", amount(quota.limit))
        }
    }
}

fn windows_table(out: &mut Html, windows: &[&WindowReport], axis: TimeAxis<'_>) {
    const HEAD: [(&str, Align); 6] = [
        ("Window from", Align::Left),
        ("used", Align::Right),
        ("left", Align::Right),
        ("first refused", Align::Left),
        ("spent", Align::Left),
        ("by class", Align::Left),
    ];
    let time_cell =
        |time: Option<Timestamp>| Html::from_text(time.map_or("never".into(), |time| axis.format_time(time)));
    let rows = windows.iter().map(|window| {
        vec![
            Html::from_text(axis.format_time(window.start)),
            Html::from_text(amount(window.used)),
            Html::from_text(amount(window.left)),
            time_cell(window.first_refused),
            time_cell(window.spent),
            Html::from_text(by_class(&window.by_class)),
        ]
    });
    table::collapsible(out, "Windows as a table", &HEAD, rows);
}

fn by_class(units: &BTreeMap<String, Units>) -> String {
    let mut classes: Vec<(&String, &Units)> = units.iter().collect();
    classes.sort_by_key(|(_, units)| Reverse(**units));
    let parts: Vec<String> = classes.iter().map(|(class, units)| format!("{class} {}", amount(**units))).collect();
    parts.join(", ")
}

/// With more windows, lines of an even pace would obscure the chart.
const MAX_PLAN_LINES: usize = 14;

/// With more windows, only the usage of each is drawn.
const MAX_DRAWN_WINDOWS: usize = 62;

/// More points than a screen can show.
const MAX_POINTS: i64 = 1200;
