//! One quota: how much is gone, how long it has to last, and who has had it.

use super::state::{Class, Plan, Quota};
use super::view::View;
use crate::terminal::{Align, bar, columns, format_duration, group_digits, sparkline};

/// The quota's name and window, a bar with its numbers, and a line for each class. `now` is when it was told.
pub(super) fn block(quota: &Quota, now: Option<&str>, view: &View) -> String {
    let zone = if now.is_some() { String::new() } else { format!(" {}", view.zone_name(&quota.window_end)) };
    let end = view.local_exactly(&quota.window_end, now);
    let until = format!("{end}{zone} (in {})", format_duration(quota.window_ends_in_s));
    let shadow = if quota.enforce { "" } else { ", counted but not enforced" };
    let mut text = format!("{}  {} units until {until}{shadow}\n", view.ink.bold(&quota.name), quota.limit);
    text.push_str(&gauge(quota, view));
    if let Some(moment) = &quota.closed_until {
        let until = format!("closed until {}: the origin says that nothing is left", view.local_exactly(moment, now));
        text.push_str(&format!("  {}\n", view.ink.red(&until)));
    }
    let named = [
        (&quota.lost, "lost: counted as spent after a crash, though it may not have been"),
        (&quota.overrun, "overrun: spent beyond the limit, by the origin's own word"),
        (&quota.drift, "drift: the origin's own count less this one"),
    ];
    for (amount, name) in named.into_iter().filter(|(amount, _)| !amount.is_zero()) {
        text.push_str(&format!("  {}\n", view.ink.red(&format!("{amount} {name}"))));
    }
    if let Some(pacing) = &quota.pacing {
        let line = format!("{} units planned by now, {} put aside for those served first", pacing.line, pacing.aside);
        text.push_str(&format!("  paced ({}): {line}\n", pacing.mode));
    }
    text.push_str(&classes(quota, view));
    text
}

/// Full when nothing more can be taken: what is reserved counts like what is used.
fn gauge(quota: &Quota, view: &View) -> String {
    let Quota { limit, used, reserved, remaining, .. } = quota;
    let taken = if limit.is_zero() { 1.0 } else { (used.as_f64() + reserved.as_f64()) / limit.as_f64() };
    let numbers = format!("{}  {used} used, {reserved} reserved, {remaining} left", percent(taken));
    // Two before, two between.
    let width = view.width.saturating_sub(numbers.chars().count() + 4).clamp(10, 40);
    format!("  {}  {numbers}\n", view.ink.by_level(taken, &bar(taken, &[], width)))
}

fn classes(quota: &Quota, view: &View) -> String {
    let classes = &quota.classes;
    if classes.is_empty() {
        return String::new();
    }
    let nothing_left = quota.enforce && (quota.remaining.is_zero() || quota.closed_until.is_some());
    let mut head = vec!["class", "charged since start", "shed now"];
    if quota.pacing.is_some() {
        head.extend(["planned", "expected, the next 24 hours"]);
    }
    let head = head.into_iter().map(|name| view.ink.dim(name)).collect();
    let row = |of: &Class| {
        let mut row = vec![of.class.clone(), of.charged.to_string(), shed_text(of, nothing_left, view)];
        row.extend(of.plan.iter().flat_map(planned));
        row
    };
    let alignment = [Align::Left, Align::Right, Align::Left, Align::Left, Align::Left];
    columns(2, &alignment, std::iter::once(head).chain(classes.iter().map(row)))
}

fn shed_text(of: &Class, nothing_left: bool, view: &View) -> String {
    let guarded = match of.guarded.is_zero() {
        true => String::new(),
        false => format!("; guarded {}", of.guarded),
    };
    let share = match of.shed {
        part if nothing_left && part < 1.0 => return view.ink.red("all, nothing is left") + &guarded,
        none if none <= 0.0 => return format!("-{guarded}"),
        all if all >= 1.0 => "all".into(),
        some => percent(some).replace(".0%", "%"),
    };
    view.ink.red(&format!("{share}, tier {}", of.tier)) + &guarded
}

/// What the plan serves of a class now, and what it expects of it.
fn planned(plan: &Plan) -> [String; 2] {
    let share = plan.share.map_or_else(|| "first".into(), |share| percent(share).replace(".0%", "%"));
    let units: f64 = plan.next_hours.iter().sum();
    [share, format!("{} {}", sparkline(&plan.next_hours), group_digits(units as u64))]
}

/// Rounded down, so that what is not all never looks like all.
fn percent(share: f64) -> String {
    format!("{:.1}%", (share * 1000.0 + 1e-9).floor() / 10.0)
}
