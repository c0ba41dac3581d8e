//! Tables, which scroll if the screen is too narrow.

use super::html::Html;
use crate::terminal::Align;

/// Writes a table; the first cell of each row is its header.
pub(super) fn write(out: &mut Html, head: &[(&str, Align)], rows: impl IntoIterator<Item = Vec<Html>>) {
    out.raw("<div class=\"scroll\"><table>\n");
    if head.iter().any(|(name, _)| !name.is_empty()) {
        out.raw("<thead><tr>");
        for (name, align) in head {
            out.raw("<th scope=\"col\"").raw(class(*align)).raw(">").add(&Html::breakable(name)).raw("</th>");
        }
        out.raw("</tr></thead>\n");
    }
    out.raw("<tbody>\n");
    for row in rows {
        out.raw("<tr>");
        for (column, (cell, (_, align))) in row.iter().zip(head).enumerate() {
            let (begin, end) = if column == 0 { ("<th scope=\"row\"", "</th>") } else { ("<td", "</td>") };
            out.raw(begin).raw(class(*align)).raw(">").add(cell).raw(end);
        }
        out.raw("</tr>\n");
    }
    out.raw("</tbody>\n</table></div>\n");
}

/// Writes a table that is collapsed until `name` is clicked.
pub(super) fn collapsible(
    out: &mut Html,
    name: &'static str,
    head: &[(&str, Align)],
    rows: impl IntoIterator<Item = Vec<Html>>,
) {
    out.raw("<details><summary>").raw(name).raw("</summary>\n");
    write(out, head, rows);
    out.raw("</details>\n");
}

const fn class(align: Align) -> &'static str {
    match align {
        Align::Left => "",
        Align::Right => " class=\"number\"",
    }
}
