//! Formatting shared by the parts of the summary.

use std::time::Duration;

pub(super) fn shadow(enforce: bool) -> &'static str {
    if enforce { "" } else { " (shadow mode)" }
}

pub(super) fn duration(span: Duration) -> String {
    let milliseconds = span.as_millis();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    let largest_unit = units.iter().find(|(unit, _)| milliseconds >= *unit && milliseconds.is_multiple_of(*unit));
    largest_unit.map_or_else(|| format!("{milliseconds}ms"), |(unit, name)| format!("{}{name}", milliseconds / unit))
}
