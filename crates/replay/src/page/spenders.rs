//! Tables of the clients, networks, paths and user agents that asked for the most units.

use super::html::Html;
use super::table;
use crate::format::amount;
use crate::report::{SpenderReport, SpendersReport};
use crate::terminal::{Align, group_digits};

/// Writes the tables: clients open, the others collapsed.
pub(super) fn write(out: &mut Html, spenders: &SpendersReport) {
    let SpendersReport { clients, networks, paths, user_agents } = spenders;
    out.raw("<p class=\"note\">Units, over all quotas. Asked for: charged, and the cost of refused requests.</p>\n");
    if clients.is_empty() {
        out.raw("<p>The log has host names in place of addresses.</p>\n");
    } else {
        table::write(out, &head("Client"), clients.iter().map(row));
    }
    for (name, column, rows) in
        [("Networks", "Network", networks), ("Paths", "Path", paths), ("User agents", "User agent", user_agents)]
    {
        if !rows.is_empty() {
            table::collapsible(out, name, &head(column), rows.iter().map(row));
        }
    }
}

fn row(spender: &SpenderReport) -> Vec<Html> {
    let mut name = Html::breakable(if spender.name.is_empty() { "-" } else { &spender.name });
    if let Some(kind) = spender.kind {
        name.raw(" <small>").text(kind.replace('_', " ")).raw("</small>");
    }
    vec![
        name,
        Html::from_text(amount(spender.units)),
        Html::from_text(amount(spender.units_asked)),
        Html::from_text(format!("{} of {}", group_digits(spender.refused), group_digits(spender.requests))),
    ]
}

fn head(name: &str) -> [(&str, Align); 4] {
    [(name, Align::Left), ("units", Align::Right), ("asked for", Align::Right), ("requests refused", Align::Right)]
}
