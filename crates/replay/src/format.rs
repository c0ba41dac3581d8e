//! Formats amounts and ratios of reports.

use crate::terminal::group_digits;
use tidegate_policy::Units;

/// Formats units like `1,234.5`.
pub(super) fn amount(units: Units) -> String {
    thousandths(units.milli())
}

/// Formats a number of thousandths like `1,234.5`.
pub(super) fn thousandths(number: u64) -> String {
    let whole = group_digits(number / 1000);
    match number % 1000 {
        0 => whole,
        rest => format!("{whole}.{rest:03}").trim_end_matches('0').to_owned(),
    }
}

/// Formats a ratio like `12.3 %`.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
