//! Pages refused to verified bots most often; a search engine may drop them.

use super::html::Html;
use super::table;
use super::time::TimeAxis;
use crate::report::RefusedPageReport;
use crate::terminal::{Align, group_digits};

/// Writes the first pages as a table, and the others collapsed.
pub(super) fn write(out: &mut Html, pages: &[RefusedPageReport], axis: TimeAxis<'_>) {
    if pages.is_empty() {
        out.raw("<p>No verified bot was refused a page.</p>\n");
        return;
    }
    let (first, rest) = pages.split_at(pages.len().min(MAX_ROWS));
    let row = |page| row(page, axis);
    table::write(out, &HEAD, first.iter().map(row));
    if !rest.is_empty() {
        table::collapsible(out, "More pages", &HEAD, rest.iter().map(row));
    }
}

fn row(page: &RefusedPageReport, axis: TimeAxis<'_>) -> Vec<Html> {
    let mut path = Html::default();
    path.raw("<code>").text(&page.page).raw("</code> <small>").text(&page.operator).raw("</small>");
    vec![
        path,
        Html::from_text(group_digits(page.refused)),
        Html::from_text(axis.format_time(page.first)),
        Html::from_text(axis.format_time(page.last)),
    ]
}

const HEAD: [(&str, Align); 4] =
    [("Page", Align::Left), ("refused", Align::Right), ("first", Align::Left), ("last", Align::Left)];

const MAX_ROWS: usize = 15;
