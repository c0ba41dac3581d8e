//! Renders one quota: its window, its usage, and the usage of each class.

use super::view::View;
use crate::admin::state::{ClassDocument, ClassPlanDocument, PacingDocument, QuotaDocument};
use tidegate_replay::terminal::{Align, bar, columns, format_duration, group_digits, sparkline, wrap};

/// Renders the quota's name, window and usage. `now` is the time of the state.
pub(super) fn usage(quota: &QuotaDocument, now: Option<&str>, view: &View) -> String {
    let zone = if now.is_some() { String::new() } else { format!(" {}", view.zone_name(&quota.window_end)) };
    let end = view.local_exactly(&quota.window_end, now);
    let until = format!("{end}{zone} (in {})", format_duration(quota.window_ends_in_s));
    let shadow = if quota.enforce { "" } else { ", shadow mode" };
    let name = view.color.bold(&quota.name);
    format!("{name}  {} {} until {until}{shadow}\n{}", quota.limit, quota.limit.noun(), usage_bar(quota, view))
}

/// Renders [`usage`] and what stands below it.
pub(super) fn block(quota: &QuotaDocument, now: Option<&str>, view: &View) -> String {
    usage(quota, now, view) + &body(quota, now, view)
}

/// Renders what stands below [`usage`], under the name of the quota; empty if there is nothing.
pub(super) fn details(quota: &QuotaDocument, now: Option<&str>, view: &View) -> String {
    match body(quota, now, view) {
        body if body.is_empty() => body,
        body => format!("{}\n{body}", view.color.bold(&quota.name)),
    }
}

/// Renders what is unusual about the usage, the pacing plan, and a line for each class.
fn body(quota: &QuotaDocument, now: Option<&str>, view: &View) -> String {
    let mut text = String::new();
    if let Some(timestamp) = &quota.closed_until {
        let until =
            format!("closed until {}: the origin reported the quota as exhausted", view.local_exactly(timestamp, now));
        text.push_str(&format!("  {}\n", view.color.red(&until)));
    }
    let named = [
        (&quota.lost, "lost: counted as used after a crash, possibly unused"),
        (&quota.overrun, "overrun: used beyond the limit, as the origin reported"),
        (&quota.drift, "drift: units reported by the origin minus units counted here"),
    ];
    for (amount, name) in named.into_iter().filter(|(amount, _)| !amount.is_zero()) {
        text.push_str(&format!("  {}\n", view.color.red(&format!("{amount} {name}"))));
    }
    if let Some(pacing) = &quota.pacing {
        let PacingDocument { mode, planned, earmarked, unpaced_demand_ratio } = pacing;
        let demand_text = match unpaced_demand_ratio {
            Some(ratio) if *ratio > 1.05 => format!("all, of which they need {ratio:.1} times as much"),
            _ => earmarked.to_string(),
        };
        let line = format!("{planned} {} planned by now; earmarked for unpaced classes: {demand_text}", planned.noun());
        text.push_str(&format!("  {}\n", wrap(&format!("paced ({mode}): {line}"), 2, 4, view.width)));
    }
    text.push_str(&classes(quota, view));
    text
}

/// Renders the usage bar. Reserved units count as used, so that a full bar means that nothing is available.
fn usage_bar(quota: &QuotaDocument, view: &View) -> String {
    let QuotaDocument { limit, used, reserved, remaining, .. } = quota;
    let taken = if limit.is_zero() { 1.0 } else { (used.as_f64() + reserved.as_f64()) / limit.as_f64() };
    let numbers = format!("{}  {used} used, {reserved} reserved, {remaining} remaining", percent(taken));
    // Two columns before the bar, two after it.
    let width = view.width.saturating_sub(numbers.chars().count() + 4).min(40);
    if width < MIN_BAR {
        return format!("  {}\n", view.color.by_level(taken, &numbers));
    }
    format!("  {}  {numbers}\n", view.color.by_level(taken, &bar(taken, &[], width)))
}

/// Least width of a bar, in columns: where a line has less, the numbers stand alone.
const MIN_BAR: usize = 10;

fn classes(quota: &QuotaDocument, view: &View) -> String {
    let classes = &quota.classes;
    if classes.is_empty() {
        return String::new();
    }
    let nothing_left = quota.enforce && (quota.remaining.is_zero() || quota.closed_until.is_some());
    let mut header = vec!["class", "charged since start", "shed now"];
    if quota.pacing.is_some() {
        header.extend(["admitted", "forecast, next 24 hours"]);
    }
    let header = header.into_iter().map(|name| view.color.dim(name)).collect();
    let row = |class: &ClassDocument| {
        let mut row = vec![class.class.clone(), class.charged.to_string(), shed_text(class, nothing_left, view)];
        row.extend(class.plan.iter().flat_map(plan_cells));
        row
    };
    let alignment = [Align::Left, Align::Right, Align::Left, Align::Left, Align::Left];
    columns(2, &alignment, std::iter::once(header).chain(classes.iter().map(row)))
}

fn shed_text(class: &ClassDocument, nothing_left: bool, view: &View) -> String {
    let guard_text = match class.guard_units.is_zero() {
        true => String::new(),
        false => format!("; crawler guard {}", class.guard_units),
    };
    let share = match class.shed {
        part if nothing_left && part < 1.0 => return view.color.red("all, nothing remains") + &guard_text,
        none if none <= 0.0 => return format!("-{guard_text}"),
        all if all >= 1.0 => "all".into(),
        some => percent(some).replace(".0%", "%"),
    };
    view.color.red(&format!("{share}, tier {}", class.tier)) + &guard_text
}

/// Renders the share that is admitted and the forecast demand of a class.
fn plan_cells(plan: &ClassPlanDocument) -> [String; 2] {
    let share = plan.admit_share.map_or_else(|| "unpaced".into(), |share| percent(share).replace(".0%", "%"));
    let units: f64 = plan.forecast_24h.iter().sum();
    [share, format!("{} {}", sparkline(&plan.forecast_24h), group_digits(units as u64))]
}

/// Formats a share in percent, rounded down, so that only a full share is shown as 100 %.
fn percent(share: f64) -> String {
    format!("{:.1}%", (share * 1000.0 + 1e-9).floor() / 10.0)
}
