//! Formats amounts and ratios of reports.

use crate::terminal::group_digits;

/// Formats units like `1,234.5`.
pub(super) fn amount(units: f64) -> String {
    let thousandths = (units * 1000.0).round() as u64;
    let whole = group_digits(thousandths / 1000);
    match thousandths % 1000 {
        0 => whole,
        rest => format!("{whole}.{rest:03}").trim_end_matches('0').to_owned(),
    }
}

/// Formats a ratio like `12.3 %`.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
