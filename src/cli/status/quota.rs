//! One quota: how much is gone, how long it has to last, and who has had it.

use super::state::{Class, Quota};
use super::view::View;
use crate::terminal::{Align, bar, columns, span};

/// The quota's name and window, a bar with its numbers, and a line for each class. `now` is when it was told.
pub(super) fn block(quota: &Quota, now: Option<&str>, view: &View) -> String {
    let zone = if now.is_some() { String::new() } else { format!(" {}", view.zone_name(&quota.window_end)) };
    let end = view.local(&quota.window_end, now);
    let until = format!("{end}{zone} (in {})", span(quota.window_ends_in_s));
    let shadow = if quota.enforce { "" } else { ", counted but not enforced" };
    let mut text = format!("{}  {} units until {until}{shadow}\n", view.ink.bold(&quota.name), quota.limit);
    text.push_str(&gauge(quota, view));
    let named = [
        (&quota.lost, "lost: counted as spent since a gate died, though it may not have been"),
        (&quota.overrun, "overrun: spent beyond the limit, by the origin's own word"),
        (&quota.drift, "drift: what the origin's own count differs by"),
    ];
    for (amount, name) in named.into_iter().filter(|(amount, _)| !amount.is_zero()) {
        text.push_str(&format!("  {}\n", view.ink.alarm(&format!("{amount} {name}"))));
    }
    text.push_str(&classes(&quota.classes, view));
    text
}

/// Full when nothing more can be taken: what is reserved counts like what is used.
fn gauge(quota: &Quota, view: &View) -> String {
    let Quota { limit, used, reserved, remaining, .. } = quota;
    let taken = if limit.is_zero() { 1.0 } else { (used.as_f64() + reserved.as_f64()) / limit.as_f64() };
    let numbers = format!("{}  {used} used, {reserved} reserved, {remaining} left", percent(taken));
    // Two before, two between.
    let width = view.width.saturating_sub(numbers.chars().count() + 4).clamp(10, 40);
    format!("  {}  {numbers}\n", view.ink.level(taken, &bar(taken, &[], width)))
}

fn classes(classes: &[Class], view: &View) -> String {
    if classes.is_empty() {
        return String::new();
    }
    let head = ["class", "charged since start", "shed now"].map(|name| view.ink.faint(name)).to_vec();
    let rows = classes.iter().map(|of| vec![of.class.clone(), of.charged.to_string(), shed(of, view)]);
    columns(2, &[Align::Left, Align::Right, Align::Left], std::iter::once(head).chain(rows))
}

fn shed(of: &Class, view: &View) -> String {
    let share = match of.shed {
        none if none <= 0.0 => return "-".into(),
        all if all >= 1.0 => "all".into(),
        some => percent(some).replace(".0%", "%"),
    };
    view.ink.alarm(&format!("{share}, tier {}", of.tier))
}

/// Rounded down, so that what is not all never looks like all.
fn percent(share: f64) -> String {
    format!("{:.1}%", (share * 1000.0 + 1e-9).floor() / 10.0)
}
