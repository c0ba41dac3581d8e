//! Renders a quota with budgets: its keys, and those that have used most.

use super::view::View;
use crate::admin::state::{BudgetDocument, BudgetKeyDocument, StateDocument};
use tidegate_replay::terminal::Align::{Left, Right};
use tidegate_replay::terminal::{columns, group_digits, printable};

/// Renders all budgets; empty if there are none.
pub(super) fn budgets(state: &StateDocument, view: &View) -> String {
    state.budgets.iter().map(|budget| block(budget, &state.time, view)).collect::<Vec<_>>().join("\n")
}

fn block(budget: &BudgetDocument, now: &str, view: &View) -> String {
    let BudgetDocument { name, enforce, keys, max_keys, replaced, used, window_end, top } = budget;
    let until =
        window_end.as_ref().map_or(String::new(), |end| format!(", until {}", view.local_exactly(end, Some(now))));
    let shadow = if *enforce { "" } else { ", shadow mode" };
    let name = view.color.bold(name);
    let noun = if *keys == 1 { "key has" } else { "keys have" };
    let [keys, max_keys] = [keys, max_keys].map(|count| group_digits(*count as u64));
    let mut text = format!("{name}  a budget for each key{until}{shadow}\n");
    text.push_str(&format!("  {keys} {noun} used {used} {}, max_keys: {max_keys}\n", used.noun()));
    if *replaced > 0 {
        let count = group_digits(u64::from(*replaced));
        let warning = format!("{count} further keys took the place of others; write a higher max_keys");
        text.push_str(&format!("  {}\n", view.color.red(&warning)));
    }
    let row = |top: &BudgetKeyDocument| {
        let limit = top.limit.as_ref().map_or(String::new(), |limit| format!("of {limit}"));
        vec![printable(&top.key), top.used.to_string(), limit]
    };
    text.push_str(&columns(4, &[Left, Right, Left], top.iter().map(row)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;
    use serde_json::json;
    use tidegate_replay::terminal::ColorMode;

    #[test]
    fn keys_with_the_most_usage_are_shown() {
        let state = json!({
            "time": "2026-11-21T13:05:00Z",
            "budgets": [{
                "name": "customer", "keys": 1200, "max_keys": 100_000, "replaced": 3, "used": 7000,
                "window_end": "2026-11-21T23:00:00Z",
                "top": [{"key": "acme", "used": 6500.5, "limit": 500_000}, {"key": "203.0.113.7", "used": 12, "limit": null}],
            }],
        });
        let mut state: StateDocument = serde_json::from_value(state).expect("a state");
        let view = View { width: 80, color: ColorMode::Plain, zone: TimeZone::UTC };
        let expected = "customer  a budget for each key, until 23:00\n\
                        \x20 1,200 keys have used 7,000 units, max_keys: 100,000\n\
                        \x20 3 further keys took the place of others; write a higher max_keys\n\
                        \x20   acme         6,500.5  of 500,000\n\
                        \x20   203.0.113.7       12\n";
        assert_eq!(budgets(&state, &view), expected);
        state.budgets[0].window_end = None;
        assert!(budgets(&state, &view).starts_with("customer  a budget for each key\n"), "no window is open");
        assert_eq!(budgets(&StateDocument::default(), &view), "");
    }
}
