//! Table of the most expensive routes.

use super::html::Html;
use super::table;
use crate::format::{amount, percent};
use crate::report::RouteReport;
use crate::terminal::{Align, group_digits};
use tidegate_policy::Units;

/// Writes the table.
pub(super) fn write(out: &mut Html, routes: &[RouteReport]) {
    if routes.is_empty() {
        out.raw("<p>No route has a cost.</p>\n");
        return;
    }
    let all: Units = routes.iter().map(|route| route.units_asked).sum();
    let row = |route: &RouteReport| {
        let mut name = Html::breakable(&route.name);
        let share = percent(route.units_asked.as_f64() / all.as_f64().max(0.001));
        name.raw(" <small>").text(share).raw("</small>");
        vec![
            name,
            Html::from_text(amount(route.units)),
            Html::from_text(amount(route.units_asked)),
            Html::from_text(format!("{} of {}", group_digits(route.refused), group_digits(route.requests))),
        ]
    };
    out.raw("<p class=\"note\">Share: of all units asked for.</p>\n");
    let (first, others) = routes.split_at(routes.len().min(MAX_OPEN_ROWS));
    table::write(out, &HEAD, first.iter().map(row));
    if !others.is_empty() {
        table::collapsible(out, "Further routes", &HEAD, others.iter().map(row));
    }
}

/// Rows of the table that is not collapsed.
const MAX_OPEN_ROWS: usize = 10;

const HEAD: [(&str, Align); 4] =
    [("Route", Align::Left), ("units", Align::Right), ("asked for", Align::Right), ("requests refused", Align::Right)];
