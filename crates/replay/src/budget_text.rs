//! Words for the budgets of a quota, in the summary and on the page.

use super::format::amount;
use super::report::BudgetReport;
use super::terminal::group_digits;
use tidegate_policy::Timestamp;

/// Returns what all keys have used, and how many of them met their limit, as a sentence without its end.
pub(super) fn describe(budget: &BudgetReport, format_time: impl Fn(Timestamp) -> String) -> String {
    let keys = if budget.keys == 1 { "key" } else { "keys" };
    let used = format!("{} {keys} used {} units", group_digits(budget.keys), amount(budget.used));
    let first = budget.first_refused.map(|time| format!("; the first refusal was at {}", format_time(time)));
    let limited = match budget.limited {
        0 => "none reached its limit".to_owned(),
        1 => "1 of them reached its limit".to_owned(),
        limited => format!("{} of them reached their limits", group_digits(limited)),
    };
    format!("{used}; {limited}{}", first.unwrap_or_default())
}
