//! Differences between two policies.

use super::html::Html;
use super::table;
use super::time::TimeAxis;
use crate::cache_text;
use crate::report::{ComparisonReport, ExampleReport, PolicyReport};
use crate::terminal::{Align, group_digits};

/// Writes the differences by class, and examples.
pub(super) fn write(
    out: &mut Html,
    comparison: &ComparisonReport,
    files: &[String],
    policies: [&PolicyReport; 2],
    axis: TimeAxis<'_>,
) {
    let [first, second] = policies.map(|policy| policy.name.as_str());
    out.raw("<section>\n<h2>Differences</h2>\n<p>")
        .text(group_digits(comparison.same))
        .raw(" lines have the same verdict; ");
    out.text(group_digits(comparison.only_first_admits)).raw(" are admitted only under ").text(first).raw(", ");
    out.text(group_digits(comparison.only_second_admits)).raw(" only under ").text(second).raw("; ");
    out.text(group_digits(comparison.other_reason)).raw(" are refused by both for different reasons.</p>\n");
    if let Some(note) = cache_text::comparison_note(policies) {
        out.raw("<p>").text(note).raw(".</p>\n");
    }
    if comparison.other_class > 0 {
        out.raw("<p>").text(group_digits(comparison.other_class)).raw(" have another class under ").text(second);
        out.raw(": responses affect how their client is classified.</p>\n");
    }
    let rows = comparison.by_class.iter().map(|(class, difference)| {
        let counts = [difference.only_first_admits, difference.only_second_admits];
        [Html::from_text(class)].into_iter().chain(counts.map(|count| Html::from_text(group_digits(count)))).collect()
    });
    let head = [
        ("Refused as", Align::Left),
        ("only the first policy admits", Align::Right),
        ("only the second policy admits", Align::Right),
    ];
    table::write(out, &head, rows);
    let examples = [
        ("Line", Align::Left),
        ("time", Align::Left),
        ("class", Align::Left),
        (first, Align::Left),
        (second, Align::Left),
    ];
    let rows = comparison.examples.iter().map(|example| row(example, files, axis));
    table::collapsible(out, "First lines with different verdicts", &examples, rows);
    out.raw("</section>\n");
}

fn row(example: &ExampleReport, files: &[String], axis: TimeAxis<'_>) -> Vec<Html> {
    let file = files.get(example.place.file.saturating_sub(1)).map_or("-", String::as_str);
    vec![
        Html::from_text(format!("{file}:{}", example.place.line)),
        Html::from_text(axis.format_time(example.time)),
        Html::from_text(match example.class == example.second_class {
            true => example.class.clone(),
            false => format!("{}, {}", example.class, example.second_class),
        }),
        Html::from_text(example.first),
        Html::from_text(example.second),
    ]
}
