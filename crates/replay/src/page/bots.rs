//! Table of the most expensive bots.

use super::html::Html;
use super::table;
use crate::format::amount;
use crate::report::BotReport;
use crate::terminal::{Align, group_digits};
use tidegate_policy::Units;

/// Writes the table, with bars.
pub(super) fn write(out: &mut Html, bots: &[BotReport]) {
    if bots.is_empty() {
        out.raw("<p>No bot used units.</p>\n");
        return;
    }
    let max_units = bots.iter().map(|bot| bot.units_asked).max().unwrap_or(Units::ZERO);
    let row = |bot: &BotReport| {
        vec![
            name_cell(bot, max_units),
            Html::from_text(amount(bot.units)),
            Html::from_text(amount(bot.units_asked)),
            Html::from_text(format!("{} of {}", group_digits(bot.refused), group_digits(bot.requests))),
        ]
    };
    out.raw("<p class=\"note\">Units, over all quotas. Solid: charged. Outlined: cost of its refused requests.</p>\n");
    let (first, others) = bots.split_at(bots.len().min(MAX_OPEN_ROWS));
    table::write(out, &HEAD, first.iter().map(row));
    if !others.is_empty() {
        table::collapsible(out, "Further bots", &HEAD, others.iter().map(row));
    }
}

/// Renders the name and kind of a bot, with a bar of its units.
fn name_cell(bot: &BotReport, max_units: Units) -> Html {
    let mut cell = Html::from_text(&bot.name);
    cell.raw(" <small>").text(bot.kind.replace('_', " ")).raw("</small><span class=\"bar\" aria-hidden=\"true\">");
    for (class, units) in [("spent", bot.units), ("unspent", bot.units_asked.saturating_sub(bot.units))] {
        if !units.is_zero() {
            let width = format!("{:.1}", units.as_f64() / max_units.as_f64() * 100.0);
            cell.raw("<span class=\"").raw(class).raw("\" style=\"width:").text(width).raw("%\"></span>");
        }
    }
    cell.raw("</span>");
    cell
}

/// Rows of the table that is not collapsed.
const MAX_OPEN_ROWS: usize = 10;

const HEAD: [(&str, Align); 4] =
    [("Bot", Align::Left), ("units", Align::Right), ("asked for", Align::Right), ("requests refused", Align::Right)];
